// Transposes, rope and gather on a device, through the C ABI and the fakes: the results of the CPU at every size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/served_op.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

struct Permutation {
  std::vector<int64_t> order;
  lathe_attr attr() const {
    lathe_attr a{};
    a.name = "perm";
    a.type = LATHE_ATTR_INTS;
    a.ints = order.data();
    a.num_ints = order.size();
    return a;
  }
  std::vector<int64_t> of(const std::vector<int64_t>& dims) const {
    std::vector<int64_t> out;
    for (const int64_t p : order) out.push_back(dims[static_cast<size_t>(p)]);
    return out;
  }
};

TEST(DeviceCopies, TransposesOfMatrices) {
  const auto ctx = gpu_context();
  const Permutation swap{{1, 0}};
  const auto graph =
      single_graph(ctx.get(), "transpose", {{{range("M", 0, 5000), range("N", 0, 5000)}}}, {swap.attr()});
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  for (const int64_t m : {0, 1, 3, 31, 32, 33, 67}) {
    for (const int64_t n : {1, 4, 29, 32, 33, 64, 101}) {
      for (const size_t room : {0, 4})
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{{m, n}}}, {{n, m}}, room);
    }
  }
  expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{{5, 0}}}, {{0, 5}});
  expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{{1031, 2}}}, {{2, 1031}});
}

TEST(DeviceCopies, PermutationsOfDimensions) {
  const auto ctx = gpu_context();
  for (const Permutation& p :
       {Permutation{{0, 2, 1, 3}}, {{0, 2, 1}}, {{2, 0, 1}}, {{2, 1, 0}}, {{3, 1, 2, 0}}, {{0, 1}}}) {
    std::vector<lathe_dim> dims = {range("A", 1, 100), range("B", 1, 100), fixed(5), fixed(7)};
    dims.resize(p.order.size());
    const auto graph = single_graph(ctx.get(), "transpose", {{dims}}, {p.attr()});
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    for (const int64_t a : {1, 2, 33}) {
      std::vector<int64_t> shape = {a, 35 - a, 5, 7};
      shape.resize(dims.size());
      expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{shape}}, {p.of(shape)});
    }
  }
}

// Both pairings; positions that are those of the rows, of tokens, or given for all; part of a head turned.
TEST(DeviceCopies, Rope) {
  const auto ctx = gpu_context();
  for (const bool interleaved : {false, true}) {
    lathe_attr pairing{};
    pairing.name = "interleaved";
    pairing.type = LATHE_ATTR_BOOL;
    pairing.i = interleaved;
    for (const auto& [d, angles] : {std::pair<int64_t, int64_t>{64, 32}, {2, 1}, {70, 17}, {128, 64}}) {
      const lathe_dim t = range("T", 0, 100);
      const auto graph = single_graph(
          ctx.get(), "rope", {{{t, fixed(3), fixed(d)}}, {{t, fixed(angles)}}, {{t, fixed(angles)}}}, {pairing});
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      for (const int64_t tokens : {0, 1, 5, 33})
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(),
                         {{{tokens, 3, d}}, {{tokens, angles}}, {{tokens, angles}}}, {{tokens, 3, d}});
    }
  }
}

}  // namespace
}  // namespace lathe::test
