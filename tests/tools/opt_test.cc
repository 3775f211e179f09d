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

// What opt says of a Kernel in text.
Finished opt_on(const std::string& kernel, const std::vector<std::string>& options) {
  const TempDir dir;
  const std::string path = dir.path + "/k.lir";
  std::ofstream(path) << kernel;
  std::vector<std::string> args = {"opt", path};
  args.insert(args.end(), options.begin(), options.end());
  return lathe(args, {{"LATHE_CACHE", "off"}});
}

TEST(Opt, AKernelThatBreaksARuleIsRefusedBeforeAnyMove) {
  // Parses, but one store has no index.
  const Finished f = opt_on(R"(kernel twice(x: f32[8] in, z: f32[9] out) family row
  for k < 9:
    z[k] = 0.0
  for j < 8:
    z[] = x[j] * 2.0
    z[j + 1] = x[j] + 3.0
)",
                            {"--applicable"});
  EXPECT_EQ(f.code, 2) << f.out << f.err;
  EXPECT_THAT(f.err, testing::AllOf(HasSubstr("k.lir"), HasSubstr("z")));
}

TEST(Opt, NoMoveAppliesToALeaf) {
  const std::string leaf =
      "kernel leaf(p0: f32[_] in strides [1], p1: f32[_] out strides [1]) family leaf where n in 0..64\n"
      "  for i < n:\n    p1[i] = 2.0 * p0[i]\n";
  EXPECT_EQ(opt_on(leaf, {}).code, 0);
  const std::vector<std::vector<std::string>> wrong = {
      {"--applicable"}, {"--run"}, {"--moves", "tile_scope i 16 tail=mask as a,b"}};
  for (const std::vector<std::string>& options : wrong) {
    const Finished f = opt_on(leaf, options);
    EXPECT_EQ(f.code, 2) << options[0] << f.out << f.err;
    EXPECT_THAT(f.err, HasSubstr("p0 has a size _"));
  }
}

TEST(Opt, ARunOutsideTheRangeOrBeyondMemoryIsRefused) {
  const std::string scale =
      "kernel scale(x: f32[N] in, y: f32[N] out) family elementwise where N in 1..64\n  for i < N [col]:\n"
      "    y[i] = 2.0 * x[i]\n";
  for (const char* value : {"0", "65", "999999999999", "9223372036854775807"}) {
    const Finished f = opt_on(scale, {"--run", "--shape", std::string("N=") + value});
    EXPECT_EQ(f.code, 2) << f.out << f.err;
    EXPECT_THAT(f.err, HasSubstr(std::string("N=") + value + ", scale has 1..64")) << value;
  }
  EXPECT_EQ(opt_on(scale, {"--run", "--shape", "N=64"}).code, 0);
  std::string large = scale;
  large.replace(large.find("1..64"), 5, "1..9000000000000000000");
  const Finished f = opt_on(large, {"--run", "--shape", "N=4000000000000000000"});
  EXPECT_EQ(f.code, 2) << f.out << f.err;
  EXPECT_THAT(f.err, HasSubstr("--run: x has more than")) << f.err;
}

}  // namespace
}  // namespace lathe::tools
