// Elements of 16 bits go by 16 bytes, eight at once: in chains, rows and products of few lines, as the real compiler
// makes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "ir/analysis/analysis.h"
#include "jit/cuda/compile/nvrtc.h"
#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/choice/device_schedules.h"
#include "search/gpu/vector_width.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/real_nvrtc.h"
#include "tests/gpu/rows.h"

namespace lathe::test {
namespace {

const char kHalves[] =
    "kernel silu(e0: T[N] in, y: T[N] out) family elementwise where N in 0..1000000\n"
    "  for j < N [col]:\n    y[j] = T(f32(e0[j]) * sigmoid(f32(e0[j])))\n";
// Of one type to another.
const char kMixed[] =
    "kernel mixed(e0: T[M, N] in, e1: f32[N] in, y: f32[M, N] out) family elementwise where M in 0..9999, N in "
    "0..9999\n"
    "  for i < M [row]:\n    for j < N [col]:\n      y[i, j] = f32(e0[i, j]) + e1[j]\n";
const char kLine[] =
    "kernel line(a: T[M, K] in, b: T[N, K] in, y: T[M, N] out) family matmul where M in 0..5000, N in 0..5000, K in "
    "0..5000\n  c: f32[M, N] heap\n"
    "  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0.0\n      for k < K [k]:\n"
    "        c[m, n] += f32(a[m, k]) * f32(b[n, k])\n      y[m, n] = T(c[m, n])\n";

std::string of_type(const std::string& text, const char* type) {
  return std::regex_replace(text, std::regex("\\bT(?=[(\\[])"), type);
}

jit::DeviceProgram program_of(const std::string& text, const ir::SymbolValues& symbols) {
  const search::GeneralKernel general = search::general_kernel(kernel_of(text));
  ir::SymbolValues sizes;
  for (const auto& [name, size] : general.sizes) sizes.emplace_back(name, ir::evaluate(size, symbols).value());
  const auto scheduled = search::device_schedule(general, sizes, *ir::find_gpu_target("h200"));
  EXPECT_TRUE(scheduled.ok()) << scheduled.status().to_string();
  auto made = jit::lower_device(search::cut_launches(scheduled->kernel)->leaves[0]);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(*made);
}

TEST(WideAccess, FollowsTypeAndLength) {
  using search::vector_width;
  EXPECT_EQ(vector_width(ir::DType::f32, 64), 4);
  EXPECT_EQ(vector_width(ir::DType::bf16, 64), 8);
  EXPECT_EQ(vector_width(ir::DType::f16, 0), 8);
  // Rows of 12 elements begin at multiples of 8 bytes.
  EXPECT_EQ(vector_width(ir::DType::f16, 12), 4);
  EXPECT_EQ(vector_width(kernel_of(of_type(kMixed, "bf16")), 64), 8);
  EXPECT_EQ(vector_width(kernel_of(of_type(kMixed, "f32")), 64), 4);
}

TEST(WideAccess, IsOneOf16Bytes) {
  const auto opened = kept_nvrtc();
  if (!opened.ok()) GTEST_SKIP() << opened.status().message() << "; scripts/setup_gpu.sh fetches it";
  struct Case {
    std::string text;
    ir::SymbolValues sizes;
    int loads, stores;  // of 16 bytes
  };
  int kernels = 0, failures = 0;
  for (const char* type : {"bf16", "f16"}) {
    const Case cases[] = {{of_type(kHalves, type), {{"N", 100000}}, 1, 1},
                          {of_type(kMixed, type), {{"M", 100}, {"N", 4096}}, 3, 2},
                          {softmax_rows("4096", type), {{"B", 1000}}, 4, 4},
                          {softmax_rows("1000", type), {{"B", 1000}}, 4, 4},
                          {of_type(kLine, type), {{"M", 1}, {"N", 4096}, {"K", 4096}}, 16, 0}};  // twice
    for (const char* gpu : {"a100", "h200"}) {
      for (const Case& c : cases) {
        const auto made = (*opened)->compile(program_of(c.text, c.sizes), "lathe_leaf", *ir::find_gpu_target(gpu));
        ASSERT_TRUE(made.ok()) << made.status().message() << "\n" << c.text;
        const bool as_predicted =
            made->info.loads.bits128 == c.loads && made->info.stores.bits128 == c.stores && made->info.local == 0;
        EXPECT_TRUE(as_predicted) << gpu << ": " << made->info.loads.bits128 << ", " << made->info.stores.bits128
                                  << "\n"
                                  << c.text;
        failures += !as_predicted;
        ++kernels;
      }
    }
  }
  RecordProperty("kernels", kernels);
  RecordProperty("opcode_failures", failures);
}

}  // namespace
}  // namespace lathe::test
