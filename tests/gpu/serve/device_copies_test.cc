// Transposes, rope, gather and narrow types on a device, through the C ABI and the fakes: the results of the CPU at
// every size.
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

TEST(DeviceCopies, RopeOfNarrowTypes) {
  const auto ctx = gpu_context();
  for (const uint32_t type : {LATHE_DTYPE_BF16, LATHE_DTYPE_F16}) {
    for (const uint32_t angles : {uint32_t{LATHE_DTYPE_F32}, type}) {
      for (const auto& [d, half] : {std::pair<int64_t, int64_t>{128, 64}, {70, 17}}) {
        const lathe_dim t = range("T", 0, 100);
        const auto graph =
            single_graph(ctx.get(), "rope",
                         {{{t, fixed(3), fixed(d)}, type}, {{t, fixed(half)}, angles}, {{t, fixed(half)}, angles}}, {});
        const auto kernel = served_on_device(ctx.get(), graph.get());
        ASSERT_NE(kernel, nullptr);
        for (const int64_t tokens : {0, 1, 33})
          expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(),
                           {{{tokens, 3, d}, type}, {{tokens, half}, angles}, {{tokens, half}, angles}},
                           {{tokens, 3, d}, type}, 0, 0x1p-8f);
      }
    }
  }
}

// Halves that are no vector, and shorter than one.
TEST(DeviceCopies, RopeOfFewAngles) {
  const auto ctx = gpu_context();
  for (const uint32_t type : {LATHE_DTYPE_F32, LATHE_DTYPE_F16}) {
    for (const int64_t half : {1, 3, 5, 7}) {
      const lathe_dim t = range("T", 0, 100);
      const auto graph = single_graph(
          ctx.get(), "rope", {{{t, fixed(2), fixed(2 * half + 2)}, type}, {{t, fixed(half)}}, {{t, fixed(half)}}}, {});
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      for (const int64_t tokens : {1, 33})
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(),
                         {{{tokens, 2, 2 * half + 2}, type}, {{tokens, half}}, {{tokens, half}}},
                         {{tokens, 2, 2 * half + 2}, type}, 0, 0x1p-8f);
    }
  }
}

TEST(DeviceCopies, RopeAtPositions) {
  const auto ctx = gpu_context();
  for (const uint32_t type : {LATHE_DTYPE_I32, LATHE_DTYPE_I64}) {
    for (const bool of_tokens : {true, false}) {
      const lathe_dim b = range("B", 1, 9), t = range("T", 0, 100), p = range("P", 1, 999);
      const std::vector<lathe_dim> at = of_tokens ? std::vector{t} : std::vector{b, t};
      const auto graph = single_graph(ctx.get(), "rope",
                                      {{{b, t, fixed(2), fixed(32)}}, {{p, fixed(16)}}, {{p, fixed(16)}}, {at, type}});
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      for (const int64_t tokens : {1, 5, 33}) {
        const std::vector<int64_t> positions = of_tokens ? std::vector{tokens} : std::vector<int64_t>{3, tokens};
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(),
                         {{{3, tokens, 2, 32}}, {{40, 16}}, {{40, 16}}, {positions, type, 40}}, {{3, tokens, 2, 32}});
      }
    }
  }
}

TEST(DeviceCopies, GatherOfRows) {
  const auto ctx = gpu_context();
  for (const uint32_t type : {LATHE_DTYPE_I32, LATHE_DTYPE_I64}) {
    for (const int64_t columns : {1, 3, 64, 1029}) {
      const auto graph =
          single_graph(ctx.get(), "gather", {{{range("V", 0, 5000), fixed(columns)}}, {{range("N", 0, 5000)}, type}});
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      for (const int64_t n : {0, 1, 7, 300})
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{{50, columns}}, {{n}, type, 50}}, {{n, columns}}, 8);
    }
  }
}

// Elements of 2 and 4 bytes are moved as they are, NaN and all.
TEST(DeviceCopies, BitsOfOtherTypes) {
  const auto ctx = gpu_context();
  const Permutation swap{{1, 0}};
  for (const uint32_t type : {LATHE_DTYPE_BF16, LATHE_DTYPE_F16, LATHE_DTYPE_I32}) {
    const auto turned =
        single_graph(ctx.get(), "transpose", {{{range("M", 0, 5000), range("N", 0, 5000)}, type}}, {swap.attr()});
    const auto taken = single_graph(ctx.get(), "gather",
                                    {{{fixed(9), range("N", 0, 99)}, type}, {{range("I", 0, 99)}, LATHE_DTYPE_I32}});
    const auto turn = served_on_device(ctx.get(), turned.get()), take = served_on_device(ctx.get(), taken.get());
    ASSERT_TRUE(turn != nullptr && take != nullptr);
    for (const int64_t n : {1, 4, 33}) {
      const ArgOf from{{9, n}, type, 70000}, ids{{5}, LATHE_DTYPE_I32, 9}, to{{n, 9}, type}, rows{{5, n}, type};
      TensorOf s(from, true), i(ids, true), d(to, true), r(rows, true);
      for (size_t b = 0; b < s.bytes; ++b) s.data[b] = static_cast<char>(b * 89 + 17);
      i.fill(ids, 3);
      const lathe_arg turn_args[] = {s.arg(), d.arg()}, take_args[] = {s.arg(), i.arg(), r.arg()};
      const lathe_exec exec = on_stream();
      lathe_error e;
      ASSERT_EQ(lathe_execute(turn.get(), turn_args, 2, &exec, &e), LATHE_STATUS_OK) << e.message;
      ASSERT_EQ(lathe_execute(take.get(), take_args, 3, &exec, &e), LATHE_STATUS_OK) << e.message;
      const size_t size = s.element;
      const auto columns = static_cast<size_t>(n);
      for (size_t row = 0; row < 9; ++row) {
        for (size_t c = 0; c < columns; ++c)
          ASSERT_EQ(std::memcmp(d.data + (c * 9 + row) * size, s.data + (row * columns + c) * size, size), 0);
      }
      for (size_t k = 0; k < 5; ++k) {
        const auto row = static_cast<size_t>(reinterpret_cast<const int32_t*>(i.data)[k]);
        ASSERT_EQ(std::memcmp(r.data + k * columns * size, s.data + row * columns * size, columns * size), 0);
      }
    }
  }
}

// Arithmetic is f32; the results differ by a rounding where functions do.
TEST(DeviceCopies, NarrowFloats) {
  const auto ctx = gpu_context();
  for (const uint32_t type : {LATHE_DTYPE_BF16, LATHE_DTYPE_F16}) {
    const float ulp = type == LATHE_DTYPE_BF16 ? 0.0079f : 0.00098f;
    const lathe_dim m = range("M", 0, 99), n = range("N", 0, 5000);
    const auto gated = single_graph(ctx.get(), "swiglu", {{{m, n}, type}, {{m, n}, type}});
    const auto wide = single_graph(ctx.get(), "mul", {{{m, n}, type}, {{n}, type}});
    const auto kernel = served_on_device(ctx.get(), gated.get()), scale = served_on_device(ctx.get(), wide.get());
    ASSERT_TRUE(kernel != nullptr && scale != nullptr);
    for (const int64_t size : {1, 7, 64, 1029}) {
      for (const size_t room : {0, 2, 8}) {
        const ArgOf x{{3, size}, type}, row{{size}, type};
        expect_as_on_cpu(ctx.get(), gated.get(), kernel.get(), {x, x}, x, room, ulp);
        expect_as_on_cpu(ctx.get(), wide.get(), scale.get(), {x, row}, x, room, 0);
      }
    }
  }
}

// Integers are not looked at before a call: outside of their range they mean its nearest end, and where there is none,
// the call is refused.
TEST(DeviceCopies, IntegersOutsideOfTheirRange) {
  const auto ctx = gpu_context();
  const auto graph =
      single_graph(ctx.get(), "gather", {{{range("V", 0, 5000), fixed(3)}}, {{range("N", 0, 5000)}, LATHE_DTYPE_I32}});
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  const ArgOf table{{4, 3}}, ids{{3}, LATHE_DTYPE_I32};
  TensorOf s(table, true), i(ids, true), d({{3, 3}}, true);
  s.fill(table, 1);
  const int32_t given[] = {-5, 2, 4};
  std::memcpy(i.data, given, sizeof given);
  const lathe_arg args[] = {s.arg(), i.arg(), d.arg()};
  const lathe_exec exec = on_stream();
  lathe_error e;
  ASSERT_EQ(lathe_execute(kernel.get(), args, 3, &exec, &e), LATHE_STATUS_OK) << e.message;
  const int rows[] = {0, 2, 3};
  for (int k = 0; k < 9; ++k) EXPECT_EQ(d.floats()[k], s.floats()[3 * rows[k / 3] + k % 3]);
  TensorOf none({{0, 3}}, true);
  const lathe_arg empty[] = {none.arg(), i.arg(), d.arg()};
  EXPECT_EQ(lathe_execute(kernel.get(), empty, 3, &exec, &e), LATHE_STATUS_INVALID);
  EXPECT_THAT(std::string(e.message), HasSubstr("no value is allowed: the range is 0..-1"));
  EXPECT_EQ(e.arg_index, 1);
}

}  // namespace
}  // namespace lathe::test
