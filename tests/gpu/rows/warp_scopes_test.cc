// The innermost @block scopes of up to 32 iterations are lanes of a warp: what a mark of warps would say follows from
// their number. Rows that share a block, a warp each.
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "search/cut/launch_cut.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using Kind = jit::DeviceStmt::Kind;

DeviceProgram lowered(const std::string& text) {
  const auto cut = search::cut_launches(kernel_of(text));
  EXPECT_TRUE(cut.ok()) << cut.status().to_string();
  const auto program = jit::lower_device(cut->leaves[0]);
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  EXPECT_TRUE(verify(*program).ok()) << verify(*program).to_string();
  return *program;
}

// So many rows share a block, so many threads a row.
std::string sums(int64_t rows, int64_t lanes) {
  return fmt::format(
      "kernel sums(x: f32[M, 256] in, y: f32[M] out) family row where M in 0..100 numeric reassociate\n"
      "  a: f32[{0}] reg\n"
      "  for b < ceildiv(M, {0}) @grid:\n"
      "    for w < min({0}, M - {0}*b) @block:\n"
      "      a[w] = 0.0\n"
      "      for l < {1} @block:\n"
      "        for k < {2}:\n"
      "          a[w] += x[{0}*b + w, {1}*k + l]\n"
      "      y[{0}*b + w] = a[w]\n",
      rows, lanes, 256 / lanes);
}

TEST(WarpScopes, ReduceWithoutSharedMemory) {
  for (const int64_t lanes : {4, 32}) {
    const DeviceProgram p = lowered(sums(8, lanes));
    EXPECT_EQ(p.threads, 8 * lanes);
    EXPECT_EQ(p.shared.size(), 0u);
    EXPECT_EQ(count_of(p, Kind::barrier) + count_of(p, Kind::warp_barrier), 0);
    EXPECT_EQ(count_of(p, Kind::shuffle), lanes == 4 ? 2 : 5);
    for (const int64_t m : {0, 5, 16}) expect_as_interpreted(kernel_of(sums(8, lanes)), {{"M", m}}, 1e-5);
  }
  // Of two warps a row is reduced by both, which meet.
  const DeviceProgram p = lowered(sums(4, 64));
  EXPECT_EQ(p.shared.size(), 1u);
  EXPECT_EQ(count_of(p, Kind::barrier), 1);
}

// Lanes hand each other what they store; rows are of different lengths, and warps leave the loop one after the other.
TEST(WarpScopes, ExchangeByABarrierOfTheWarp) {
  const std::string text =
      "kernel turned(x: f32[M, 8, 8, 32] in, y: f32[M, 8, 8, 32] out) family row where M in 0..100\n"
      "  s: f32[8, 32] shared\n"
      "  for b < M @grid:\n"
      "    for w < 8 @block:\n"
      "      for k < w + 1:\n"
      "        for l < 32 @block:\n"
      "          s[w, l] = x[b, w, k, l]\n"
      "        for l2 < 32 @block:\n"
      "          y[b, w, k, l2] = s[w, 31 - l2]\n";
  const DeviceProgram p = lowered(text);
  EXPECT_EQ(count_of(p, Kind::barrier), 0);
  EXPECT_EQ(count_of(p, Kind::warp_barrier), 2);
  expect_as_interpreted(kernel_of(text), {{"M", 3}}, 0);
}

}  // namespace
}  // namespace lathe::test
