// Random leaf programs through LLVM and xbyak against the portable executor, in a child process: an
// LLVM fatal error ends the process it happens in. The child writes what it was compiling, so that
// a crash names its program.
#include <cstdio>
#include <cstdlib>

#include "tests/jit/llvm/llvm_random_program.h"

namespace lathe::jit {
namespace {
using namespace llvm_test;

constexpr uint32_t kPrograms = 250;

std::vector<float> run(const LeafProgram& p, uint32_t seed, const std::vector<float>& input, const CodeImage* image) {
  std::vector<float> result(RandomProgram::kElements, 0.25f);
  const std::vector<ir::LeafSeg> segments = {{0, 64, 3, 0, 0}, {128, 0, 0, 0, 0}, {4096, 640, 5, 0, 0}};
  ir::LeafArgs args{};
  args.op[RandomProgram::kIn] = {reinterpret_cast<char*>(const_cast<float*>(input.data())), {100, 36}};
  args.op[RandomProgram::kInWalk] = args.op[RandomProgram::kIn];
  args.op[RandomProgram::kOut] = {reinterpret_cast<char*>(result.data()), {68, 132}};
  for (int e = 0; e < 4; ++e) args.extent[e] = static_cast<int64_t>((seed >> e) % 7);
  args.nseg = static_cast<int64_t>(seed % 4);
  args.seg = segments.data();
  if (image) {
    Loaded code(*image);
    code(args);
  } else {
    execute_portable(p, args);
  }
  return result;
}

// Empty if both generators' code and the executor agree. Random programs may need more stack or
// registers than a leaf has: that is counted, nothing else is an excuse.
std::string compare(const Shape& shape, uint32_t seed, int* refused) {
  LeafProgram p = RandomProgram(shape, seed).program();
  if (seed % 4 < 2) p.extra = dot4_feature(shape.features() | (host_features() & ir::extras_with(shape.features())));
  const ir::Status status = verify_program(p);
  if (!status.ok()) return status.to_string();
  std::mt19937 random(seed);
  const auto input = test_values(random, RandomProgram::kElements);
  const auto want = run(p, seed, input, nullptr);
  for (const Backend backend : {Backend::llvm, Backend::xbyak}) {
    if (!backend_built(backend)) continue;
    const auto image = backend == Backend::llvm ? compile_llvm(p, "") : compile_xbyak(p);
    if (!image.ok()) {
      if (image.status().code() != ir::Code::kUNSUPPORTED) return image.status().to_string();
      ++refused[static_cast<int>(backend)];
      continue;
    }
    if (image->features & ~p.features()) return "features beyond the level";
    if (!host_runs(shape)) continue;
    const auto got = run(p, seed, input, &*image);
    const int64_t at = difference(want, got);
    if (at >= 0) {
      return fmt::format("element {}: portable {}, {} {}", at, want[static_cast<size_t>(at)], backend_name(backend),
                         got[static_cast<size_t>(at)]);
    }
  }
  return {};
}

[[noreturn]] void fuzz(const Shape& shape) {
  int refused[3] = {};
  for (uint32_t seed = 1; seed <= kPrograms; ++seed) {
    std::fprintf(stderr, "%s seed %u\n", shape.name().c_str(), seed);
    const std::string failure = compare(shape, seed, refused);
    if (!failure.empty()) {
      std::fprintf(stderr, "%s\n%s", failure.c_str(), to_text(RandomProgram(shape, seed).program()).c_str());
      std::exit(1);
    }
  }
  std::fprintf(stderr, "refused: xbyak %d, llvm %d of %u\n", refused[1], refused[2], kPrograms);
  std::exit(refused[2] > static_cast<int>(kPrograms) / 20);
}

class LlvmFuzzDeathTest : public testing::TestWithParam<int> {};

TEST_P(LlvmFuzzDeathTest, EveryGeneratorEqualsThePortableExecutor) {
  LATHE_NEEDS_LLVM();
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fuzz(all_shapes()[static_cast<size_t>(GetParam())]), testing::ExitedWithCode(0), "");
}
INSTANTIATE_TEST_SUITE_P(Shapes, LlvmFuzzDeathTest, testing::Range(0, 3),
                         [](const auto& info) { return all_shapes()[static_cast<size_t>(info.param)].name(); });

}  // namespace
}  // namespace lathe::jit
