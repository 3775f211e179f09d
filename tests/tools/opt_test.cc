// lathe opt --run: moves from the command line never take the process down, whichever operand they are about.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/tools/process.h"

namespace lathe::tools {
namespace {

using testing::HasSubstr;

const char* const kMatmul = R"(kernel mm(x: f32[5, 21] in, w: f32[9, 21] const, y: f32[5, 9] out) family matmul
  c: f32[5, 9] heap
  t: f32[5, 9] stack
  r: f32[] reg
  for m < 5 [m]:
    for n < 9 [n]:
      c[m, n] = 0.0
      for k < 21 [k]:
        c[m, n] += x[m, k] * w[n, k]
      t[m, n] = c[m, n]
      r[] = t[m, n]
      y[m, n] = r[]
)";

Finished opt(const std::string& moves) {
  const TempDir dir;
  const std::string path = dir.path + "/mm.lir";
  std::ofstream(path) << kMatmul;
  return lathe({"opt", path, "--run", "--moves", moves});
}

TEST(Opt, PaddedConstantsAndTemporariesAreServed) {
  for (const char* buffer : {"w", "c", "t"}) {
    for (const char* row :
         {"increment_padding {} 1 32", "repeat_padding {} 0 3", "repeat_padding {} 0 3; increment_padding {} 1 16"}) {
      std::string moves = row;
      for (size_t at = 0; (at = moves.find("{}", at)) != std::string::npos;) moves.replace(at, 2, buffer);
      if (moves.find("repeat") != std::string::npos && *buffer != 'w') continue;  // rows of 5 are no multiple of 3
      const Finished f = opt(moves);
      EXPECT_EQ(f.code, 0) << moves << "\n" << f.out << f.err;
      EXPECT_THAT(f.out, HasSubstr("; equal")) << moves;
    }
  }
}

TEST(Opt, TheCallersOperandsAndRegistersKeepTheirLayout) {
  for (const char* buffer : {"x", "y", "r"}) {
    const Finished f = opt(std::string("increment_padding ") + buffer + " 1 32");
    EXPECT_EQ(f.code, 1) << f.out << f.err;
    EXPECT_THAT(f.err, HasSubstr("refused: increment_padding"));
    EXPECT_THAT(f.out, HasSubstr("; equal"));
  }
}

}  // namespace
}  // namespace lathe::tools
