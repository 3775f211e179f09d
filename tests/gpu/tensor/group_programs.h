// What tests of products by groups of warps share: a device program and the Kernel it is of, places in it, and what
// goes wrong with one whose boxes arrive in rings.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/analysis/analysis.h"
#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/tensor/hopper_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {

struct GroupProgram {
  ir::Kernel kernel;
  jit::DeviceProgram program;
};
inline GroupProgram group_program(bool turn_a, bool turn_b, const search::GroupTile& tile) {
  const search::GeneralKernel general = search::general_kernel(kernel_of(tensor_product("bf16", turn_a, turn_b)));
  const auto scheduled = search::hopper_schedule(general, tile);
  EXPECT_TRUE(scheduled.ok()) << scheduled.status().to_string();
  const auto cut = search::cut_launches(scheduled->kernel);
  EXPECT_TRUE(cut.ok()) << cut.status().to_string();
  const auto program = jit::lower_device(cut->leaves[0]);
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return {scheduled->kernel, program.value()};
}

// The statement of that kind and number; null: there are fewer.
inline jit::DeviceStmt* find(jit::DeviceProgram& p, jit::DeviceStmt::Kind kind, int which) {
  jit::DeviceStmt* out = nullptr;
  visit(p.body, kind, [&](std::vector<jit::DeviceStmt>& list, size_t i) {
    if (which-- == 0) out = &list[i];
  });
  return out;
}
inline void add(ir::Expr& e, int64_t n) { e = e + ir::Expr(n); }

constexpr double kGroupBound = 1.0 / 128;
// Of rows, columns and terms that are multiples of 8, so that operands have maps: with more steps than twice the places
// of a ring, and with fewer than its places.
inline std::string ring_failure(const jit::DeviceProgram& p, const ir::Kernel& kernel, int64_t rows = 72) {
  const std::string why = failure_of(p, kernel, {{"D0", rows}, {"D1", 64}, {"D2", 424}}, kGroupBound);
  return why.empty() ? failure_of(p, kernel, {{"D0", rows}, {"D1", 64}, {"D2", 128}}, kGroupBound) : why;
}

}  // namespace lathe::test
