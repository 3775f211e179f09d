// From chains to Schedules and launches: values stay, what is proven is proven, texts are as written here.
#include "search/gpu/rows/chain_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "ir/meaning/interpreter.h"
#include "search/cut/cut.h"
#include "search/cut/launch_cut.h"
#include "search/cut/safe_kernel.h"
#include "search/gpu/choice/device_schedules.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"

namespace lathe::search {
namespace {

using ir::Kernel;
using ir::SymbolValues;
using test::kernel_of;
using test::sizes_of;
using ::testing::HasSubstr;
using Tensors = std::map<std::string, ir::Tensor>;

Tensors inputs_of(const Kernel& kernel, const SymbolValues& symbols) {
  Tensors out;
  for (const ir::Buffer& b : kernel.buffers) {
    if (!ir::has_contents(b)) continue;
    ir::Tensor t;
    int64_t n = 1;
    for (const ir::Expr& d : b.dims) {
      t.dims.push_back(ir::evaluate(d, symbols).value());
      n *= t.dims.back();
    }
    for (int64_t i = 0; i < n; ++i) t.data.push_back(static_cast<double>((i * 7 + 3) % 23) - 11);
    out[b.name] = std::move(t);
  }
  return out;
}

void expect_same(const std::string& text, const SymbolValues& symbols) {
  const Kernel naive = kernel_of(text);
  const GeneralKernel general = general_kernel(naive);
  const SymbolValues sizes = sizes_of(general, symbols);
  const auto scheduled = device_schedule(general, sizes, *ir::find_gpu_target("h200"));
  ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
  const auto safe = check_safe(general.kernel, scheduled->kernel);
  EXPECT_TRUE(safe.ok()) << safe.message();
  EXPECT_EQ(scheduled->kernel.numeric, general.kernel.numeric);
  Tensors want = inputs_of(naive, symbols), got = want;
  ASSERT_TRUE(ir::interpret(naive, symbols, want).ok());
  ASSERT_TRUE(ir::interpret(scheduled->kernel, sizes, got).ok());
  for (const auto& [name, tensor] : want) EXPECT_EQ(tensor.data, got[name].data) << name;
}

TEST(ChainSchedule, KeepsTheValuesAtEverySize) {
  for (const int64_t n : {1, 3, 4, 5, 255, 1021, 1023, 1024, 1025, 4099}) expect_same(test::kFlat, {{"N", n}});
  for (const int64_t m : {1, 2, 3, 7, 8, 9, 11, 64, 97}) expect_same(test::kRows, {{"M", m}});
  for (const int64_t a : {1, 5, 33}) {
    for (const int64_t c : {1, 3, 4, 29}) expect_same(test::kTurned, {{"A", a}, {"B", 7}, {"C", c}});
  }
}

TEST(ChainSchedule, BlocksFollowTheShape) {
  const GeneralKernel chain = general_kernel(kernel_of(test::kTurned));
  const auto threads = [&](int64_t a, int64_t b, int64_t c) {
    const auto s = chain_schedule(chain, sizes_of(chain, {{"A", a}, {"B", b}, {"C", c}}));
    const auto& knobs = s->schedule.knobs;
    return std::vector<int64_t>{knobs.at("t0"), knobs.at("t1"), knobs.at("t2")};
  };
  EXPECT_EQ(threads(1, 1, 1), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(threads(2000, 200, 100), (std::vector<int64_t>{1, 8, 32}));
  EXPECT_EQ(threads(2000, 3, 8), (std::vector<int64_t>{32, 4, 2}));
}

TEST(ChainSchedule, IsWrittenOut) {
  const GeneralKernel chain = general_kernel(kernel_of(test::kFlat));
  const auto scheduled = chain_schedule(chain, {{"D0", 100000}});
  ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
  EXPECT_EQ(print(scheduled->kernel),
            "kernel silu(e0: f32[D0] in, y: f32[D0] out) family elementwise where D0 in 1..1099511627776\n"
            "  for jb < ceildiv(D0, 1024) [col] @grid:\n"
            "    for jt < min(256, ceildiv(D0, 4) - 256*jb) [col] @block:\n"
            "      for jv < min(4, D0 - 1024*jb - 4*jt) [col] @vector:\n"
            "        y[1024*jb + 4*jt + jv] = e0[1024*jb + 4*jt + jv] * sigmoid(e0[1024*jb + 4*jt + jv])\n");
}

// Sizes and names are none of the code's affair.
TEST(ChainSchedule, ChainsOfAFormShareTheirLeaf) {
  const auto leaf = [](std::string text, int64_t size) {
    const auto chain = general_kernel(kernel_of(text));
    const auto cut = cut_launches(chain_schedule(chain, {{"D0", size}})->kernel);
    EXPECT_TRUE(cut.ok()) << cut.status().to_string();
    EXPECT_EQ(cut->launches.size(), 1u);
    EXPECT_EQ(cut->launches[0].operands, (std::vector<int>{0, 1}));
    EXPECT_EQ(print(cut->launches[0].sizes[0]), "D0");
    return cut->leaves[0].text;
  };
  const std::string fixed =
      "kernel other(a: f32[5000] in, z: f32[5000] out) family elementwise\n"
      "  for n < 5000:\n"
      "    z[n] = a[n] * sigmoid(a[n])\n";
  const std::string text = leaf(test::kFlat, 100000);
  EXPECT_EQ(text, leaf(fixed, 5000));
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "kernel leaf(p0: f32[e0] in, p1: f32[e0] out) family device where e0 in 1..1099511627776");
}

TEST(ChainSchedule, RefusesWhatIsNoChain) {
  const auto why = [](const std::string& text) {
    return chain_schedule(general_kernel(kernel_of(text)), {}).status().message();
  };
  EXPECT_THAT(why("kernel k(x: f32[9] in, y: f32[9] out)\n  for i < 9:\n    y[i] += x[i]\n"),
              HasSubstr("k is no nest of plain assignments"));
  EXPECT_THAT(
      why("kernel k(x: f32[9] in, y: f32[9] out)\n  for i < 9:\n    y[i] = x[i]\n  for j < 9:\n    y[j] = 0.0\n"),
      HasSubstr("k is no nest of plain assignments"));
  EXPECT_THAT(why("kernel k(x: f32[9] in, y: f32[9] out)\n  for i < 9:\n    y[i] = y[max(i - 1, 0)]\n"),
              HasSubstr("must not depend on each other"));
}

TEST(LaunchCut, RefusesWhatIsNoLaunch) {
  const auto why = [](const std::string& text) { return cut_launches(kernel_of(text)).status().message(); };
  EXPECT_EQ(why("kernel k(x: f32[9] in, y: f32[9] out)\n  for i < 9:\n    y[i] = x[i]\n"),
            "scope i is no @grid scope, expected nothing outside of launches");
  EXPECT_EQ(why("kernel k(x: f32[9] in, y: f32[9] out)\n  h: f32[9] stack\n  for i < 9 @grid:\n    h[i] = x[i]\n"
                "    y[i] = h[i]\n"),
            "launch i: h is a stack buffer, expected heap, registers or shared memory");
  // As many blocks as such a scope can have, up to 64, of which those past its extent do nothing.
  EXPECT_EQ(why("kernel k(x: f32[9, 9] in, y: f32[9, 9] out)\n  for i < 9 @grid:\n    for j < i + 1 @grid:\n"
                "      y[i, j] = x[i, j]\n"),
            "");
  EXPECT_EQ(why("kernel k(x: f32[99, 99] in, y: f32[99, 99] out)\n  for i < 99 @grid:\n    for j < i + 1 @grid:\n"
                "      y[i, j] = x[i, j]\n"),
            "launch i: the extent of j is no expression of symbols");
}

// What one launch makes and another reads is an operand of both.
TEST(LaunchCut, LaunchesHandEachOtherHeapBuffers) {
  const auto cut =
      cut_launches(kernel_of("kernel k(x: f32[9] in, y: f32[9] out)\n  h: f32[9] heap\n  for i < 9 @grid:\n"
                             "    h[i] = x[i]\n  for j < 9 @grid:\n    y[j] = h[j] * 2.0\n"));
  ASSERT_TRUE(cut.ok()) << cut.status().to_string();
  ASSERT_EQ(cut->launches.size(), 2u);
  EXPECT_EQ(cut->launches[0].operands, (std::vector<int>{0, 2}));
  EXPECT_EQ(cut->launches[1].operands, (std::vector<int>{1, 2}));
  const ir::Kernel& second = cut->leaves[static_cast<size_t>(cut->launches[1].leaf)].kernel;
  EXPECT_EQ(second.buffers[0].place, ir::Place::out);
  EXPECT_EQ(second.buffers[1].place, ir::Place::in);
}

TEST(LaunchCut, TheCpuRefusesLaunches) {
  const auto nest = cut(kernel_of("kernel k(x: f32[9] in, y: f32[9] out)\n  for i < 9 @grid:\n    y[i] = x[i]\n"));
  EXPECT_EQ(nest.status().code(), ir::Code::kUNSUPPORTED);
  EXPECT_THAT(nest.status().message(), HasSubstr("@grid scope i is for a launch on a GPU"));
}

}  // namespace
}  // namespace lathe::search
