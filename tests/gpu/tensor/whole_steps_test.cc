// Loops that bring operands in steps: whole tiles ask once before the loop, and do what others do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/product_schedule.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

using search::ProductTile;
using search::TensorTile;
using ::testing::HasSubstr;
using Kind = jit::DeviceStmt::Kind;

const char kTurned[] =
    "kernel turned(a: f32[M, K] in, b: f32[N, K] in, y: f32[M, N] out) family matmul where M in 0..5000, N in "
    "0..5000, K in 0..5000\n"
    "  c: f32[M, N] heap\n"
    "  for m < M [m]:\n    for n < N [n]:\n      c[m, n] = 0.0\n      for k < K [k]:\n"
    "        c[m, n] += a[m, k] * b[n, k]\n      y[m, n] = c[m, n]\n";

ir::Kernel with_stages(bool turned, int64_t stages) {
  TensorTile tile{32, 32, 32, 16, 32};
  tile.stages = stages;
  return tensor_schedule(search::general_kernel(kernel_of(tensor_product("bf16", false, turned))), tile)->kernel;
}

ir::Kernel ahead() {
  ProductTile tile{64, 64, 8, 8, 4};
  tile.ahead = true;
  return product_schedule(search::general_kernel(kernel_of(kTurned)), tile)->kernel;
}

jit::DeviceProgram lowered(const ir::Kernel& kernel) {
  const auto cut = search::cut_launches(kernel);
  return jit::lower_device(cut.value().leaves[0]).value();
}

// Conditions in a list.
int conditions(const std::vector<jit::DeviceStmt>& list) {
  int out = 0;
  for (const jit::DeviceStmt& s : list)
    out += (s.kind == Kind::when || s.kind == Kind::aligned) + conditions(s.body) + conditions(s.otherwise);
  return out;
}

// The statement that asks before a loop with barriers.
const jit::DeviceStmt* question(const std::vector<jit::DeviceStmt>& list) {
  for (const jit::DeviceStmt& s : list) {
    const bool asks = s.kind == Kind::aligned && s.body.size() == 1 && s.body[0].kind == Kind::loop;
    if (asks && s.body[0].unrolled == 0) return &s;
    if (const jit::DeviceStmt* in = question(s.body)) return in;
  }
  return nullptr;
}

TEST(WholeSteps, AskOnceBeforeTheLoop) {
  const jit::DeviceProgram program = lowered(with_stages(false, 2));
  EXPECT_THAT(print(program), HasSubstr("if 31 < e0 - 32*i0 and 31 < e1 - 32*i1 and -1 < e2 - 32*ceildiv(e2, 32) and "
                                        "e1 % 8 == 0 and e2 % 8 == 0 and aligned x8 p0["));
  for (const ir::Kernel& kernel : {with_stages(false, 2), with_stages(true, 3), ahead()}) {
    const jit::DeviceProgram p = lowered(kernel);
    const jit::DeviceStmt* asks = question(p.body);
    ASSERT_NE(asks, nullptr) << print(p);
    EXPECT_EQ(conditions(asks->body), 0) << print(p);
    EXPECT_GT(conditions(asks->otherwise), 3) << print(p);
  }
}

// Whole tiles and others, terms that are whole steps and others, and lines that begin anywhere.
TEST(WholeSteps, OnTheEmulator) {
  for (const ir::SymbolValues& sizes : {ir::SymbolValues{{"D0", 64}, {"D1", 64}, {"D2", 96}},
                                        {{"D0", 64}, {"D1", 64}, {"D2", 97}},
                                        {{"D0", 64}, {"D1", 65}, {"D2", 96}},
                                        {{"D0", 33}, {"D1", 64}, {"D2", 72}},
                                        {{"D0", 64}, {"D1", 64}, {"D2", 32}},
                                        {{"D0", 64}, {"D1", 64}, {"D2", 0}}}) {
    for (const int64_t stages : {2, 3}) {
      expect_as_interpreted(with_stages(false, stages), sizes, kBf16);
      expect_as_interpreted(with_stages(true, stages), sizes, kBf16);
    }
    expect_as_interpreted(ahead(), sizes, 1e-5);
  }
}

}  // namespace
}  // namespace lathe::test
