// Random leaf programs through LLVM against the portable executor, in a child process: an LLVM fatal error ends the process it
// happens in. The child writes what it was compiling, so that a crash names its program.
#include "tests/jit/llvm_random_program.h"

namespace lathe::jit {
namespace {
using namespace llvm_test;

constexpr uint32_t kPrograms = 250;

// Empty if LLVM's code and the executor agree.
std::string compare(const Shape& shape, uint32_t seed) {
  const LeafProgram p = RandomProgram(shape, seed).program();
  const ir::Status status = verify_program(p);
  if (!status.ok()) return status.to_string();
  const auto image = compile_llvm(p, "");
  if (!image.ok()) {
    // Random programs may need more stack than a leaf has; nothing else is an excuse.
    return image.status().message().find("bytes of stack") != std::string::npos ? "" : image.status().to_string();
  }
  if (!host_runs(shape)) return {};
  std::mt19937 random(seed);
  const auto input = test_values(random, RandomProgram::kElements);
  std::vector<ir::LeafSeg> segments = {{0, 64, 3, 0, 0}, {128, 0, 0, 0, 0}, {4096, 640, 5, 0, 0}};
  std::vector<float> result[2];
  for (int who = 0; who < 2; ++who) {
    result[who].assign(RandomProgram::kElements, 0.25f);
    ir::LeafArgs args{};
    for (int s : {RandomProgram::kIn, RandomProgram::kInWalk}) {
      args.op[s] = {reinterpret_cast<char*>(const_cast<float*>(input.data())), {100, 36}};
    }
    args.op[RandomProgram::kOut] = {reinterpret_cast<char*>(result[who].data()), {68, 132}};
    for (int e = 0; e < 4; ++e) args.extent[e] = static_cast<int64_t>((seed >> e) % 7);
    args.nseg = static_cast<int64_t>(seed % 4);
    args.seg = segments.data();
    who == 0 ? execute_portable(p, args) : Mapped(*image)(args);
  }
  const int64_t at = difference(result[0], result[1]);
  if (at < 0) return {};
  return fmt::format("element {}: portable {}, llvm {}", at, result[0][static_cast<size_t>(at)],
                     result[1][static_cast<size_t>(at)]);
}

[[noreturn]] void fuzz(const Shape& shape) {
  for (uint32_t seed = 1; seed <= kPrograms; ++seed) {
    std::fprintf(stderr, "%s seed %u\n", shape.name().c_str(), seed);
    const std::string failure = compare(shape, seed);
    if (!failure.empty()) {
      std::fprintf(stderr, "%s\n%s", failure.c_str(), to_text(RandomProgram(shape, seed).program()).c_str());
      std::exit(1);
    }
  }
  std::exit(0);
}

class LlvmFuzzDeathTest : public testing::TestWithParam<int> {};

TEST_P(LlvmFuzzDeathTest, RandomProgramsEqualPortable) {
  LATHE_NEEDS_LLVM();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fuzz(all_shapes()[static_cast<size_t>(GetParam())]), testing::ExitedWithCode(0), "");
}
INSTANTIATE_TEST_SUITE_P(Shapes, LlvmFuzzDeathTest, testing::Range(0, 3),
                         [](const auto& info) { return all_shapes()[static_cast<size_t>(info.param)].name(); });

}  // namespace
}  // namespace lathe::jit
