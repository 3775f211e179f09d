// Integers, conditions and elements of every size on a device, through the C ABI and the fakes: the results of the CPU,
// bit by bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/gpu/served_chain.h"
#include "tests/gpu/served_op.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kCast[] = {LATHE_DTYPE_F32, LATHE_DTYPE_BF16, LATHE_DTYPE_F16, LATHE_DTYPE_I32,
                              LATHE_DTYPE_I8,  LATHE_DTYPE_U8,   LATHE_DTYPE_BOOL};
const char* name_of(uint32_t dtype) {
  static constexpr const char* kNames[] = {"f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64", "b8"};
  return kNames[dtype];
}

// Both sides of the same call get these bytes.
void expect_same_bytes(lathe_context* ctx, const lathe_graph* graph, lathe_kernel* kernel,
                       const std::vector<ArgOf>& inputs, const ArgOf& output,
                       const std::vector<std::vector<char>>& given) {
  std::vector<std::unique_ptr<TensorOf>> host, device;
  std::vector<lathe_arg> host_args, device_args;
  for (size_t i = 0; i <= inputs.size(); ++i) {
    const ArgOf& arg = i < inputs.size() ? inputs[i] : output;
    host.push_back(std::make_unique<TensorOf>(arg, false));
    device.push_back(std::make_unique<TensorOf>(arg, true));
    if (i < inputs.size()) {
      ASSERT_EQ(given[i].size(), host[i]->bytes);
      std::memcpy(host[i]->data, given[i].data(), given[i].size());
      std::memcpy(device[i]->data, given[i].data(), given[i].size());
    }
    host_args.push_back(host[i]->arg());
    device_args.push_back(device[i]->arg());
  }
  const Owned<lathe_kernel> cpu = resolve(ctx, graph);
  const lathe_exec exec = on_stream();
  lathe_error e;
  ASSERT_EQ(lathe_execute(cpu.get(), host_args.data(), host_args.size(), nullptr, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_EQ(lathe_execute(kernel, device_args.data(), device_args.size(), &exec, &e), LATHE_STATUS_OK) << e.message;
  for (size_t i = 0; i < host.back()->bytes; ++i)
    ASSERT_EQ(host.back()->data[i], device.back()->data[i]) << "byte " << i << " of " << host.back()->bytes;
}

template <class T>
std::vector<char> bytes_of(const std::vector<T>& values) {
  const auto* first = reinterpret_cast<const char*>(values.data());
  return {first, first + values.size() * sizeof(T)};
}

TEST(DeviceIntegers, CastsBetweenAllTypes) {
  const auto ctx = gpu_context();
  for (const uint32_t from : kCast) {
    for (const uint32_t to : kCast) {
      const auto graph =
          single_graph(ctx.get(), "cast", {{{range("N", 0, 5000)}, from}}, {text_attr("to", name_of(to))});
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr) << name_of(from) << " to " << name_of(to);
      for (const int64_t n : {0, 1, 7, 8, 1031}) {
        for (const size_t room : {0, 4, 16})
          expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{{n}, from, 70000}}, {{n}, to}, room, 0);
      }
    }
  }
}

// NaN, infinities, halves and what lies beyond the ends of each type.
TEST(DeviceIntegers, CastsOfFloatsSaturate) {
  const auto ctx = gpu_context();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.5f,  1.5f,         2.5f,         -0.5f,         -1.5f, 127.4f, 127.5f,
                                     128.f, -128.5f,      -129.f,       255.5f,        256.f, -1.f,   3e9f,
                                     -3e9f, 2147483520.f, 2147483648.f, -2147483648.f, -0.f,  inf,    -inf,
                                     NAN,   1e-40f,       254.5f,       126.5f};
  const auto n = static_cast<int64_t>(values.size());
  for (const uint32_t to : {LATHE_DTYPE_I32, LATHE_DTYPE_I8, LATHE_DTYPE_U8, LATHE_DTYPE_BOOL}) {
    const auto graph = single_graph(ctx.get(), "cast", {{{range("N", 0, 5000)}}}, {text_attr("to", name_of(to))});
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    expect_same_bytes(ctx.get(), graph.get(), kernel.get(), {{{n}}}, {{n}, to}, {bytes_of(values)});
  }
  const std::vector<int32_t> whole = {0,     1,     -1,         127,        128,        -128,       -129,
                                      255,   256,   2147483647, -16777217,  16777217,   33554433,   INT32_MIN,
                                      512,   2304,  65536,      1077936129, 1078984705, 2147000001, -1077936129,
                                      65519, 65520, 65521,      -65536,     2147483584, 1073741825, 3};
  const auto m = static_cast<int64_t>(whole.size());
  for (const uint32_t to : kCast) {
    const auto graph =
        single_graph(ctx.get(), "cast", {{{range("N", 0, 5000)}, LATHE_DTYPE_I32}}, {text_attr("to", name_of(to))});
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    expect_same_bytes(ctx.get(), graph.get(), kernel.get(), {{{m}, LATHE_DTYPE_I32}}, {{m}, to}, {bytes_of(whole)});
  }
}

// Sums of i32 wrap, and broadcast.
TEST(DeviceIntegers, SumsOfI32) {
  const auto ctx = gpu_context();
  const lathe_dim m = range("M", 0, 99), n = range("N", 0, 5000);
  const auto graph = single_graph(ctx.get(), "add", {{{m, n}, LATHE_DTYPE_I32}, {{n}, LATHE_DTYPE_I32}});
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  for (const int64_t size : {0, 1, 4, 7, 1031}) {
    const ArgOf x{{3, size}, LATHE_DTYPE_I32, 70000}, row{{size}, LATHE_DTYPE_I32, 9};
    for (const size_t room : {0, 4}) expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {x, row}, x, room, 0);
  }
  const std::vector<int32_t> a = {INT32_MAX, INT32_MIN, -1, 5}, b = {1, -1, INT32_MIN, 7};
  expect_same_bytes(ctx.get(), graph.get(), kernel.get(), {{{1, 4}, LATHE_DTYPE_I32}, {{4}, LATHE_DTYPE_I32}},
                    {{1, 4}, LATHE_DTYPE_I32}, {bytes_of(a), bytes_of(b)});
}

// Every byte but 0 is true.
TEST(DeviceIntegers, WhereWithAMask) {
  const auto ctx = gpu_context();
  const lathe_dim m = range("M", 0, 99), n = range("N", 0, 5000);
  for (const uint32_t type : {LATHE_DTYPE_F32, LATHE_DTYPE_BF16, LATHE_DTYPE_F16}) {
    for (const bool broadcast : {false, true}) {
      const std::vector<lathe_dim> mask = broadcast ? std::vector{n} : std::vector{m, n};
      const auto graph = single_graph(ctx.get(), "where", {{mask, LATHE_DTYPE_BOOL}, {{m, n}, type}, {{n}, type}});
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      for (const int64_t size : {0, 1, 8, 13, 1029}) {
        const ArgOf x{{3, size}, type}, row{{size}, type},
            c{broadcast ? std::vector{size} : std::vector<int64_t>{3, size}, LATHE_DTYPE_BOOL};
        for (const size_t room : {0, 4})
          expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {c, x, row}, x, room, 0);
      }
    }
  }
}

// x / scale, rounded, and bytes of it: what a quantiser does, in one launch.
TEST(DeviceIntegers, AChainThatQuantises) {
  const auto ctx = gpu_context();
  const auto graph = graph_of(ctx.get(), {{range("M", 0, 99), range("N", 0, 5000)}},
                              {{"scale", {0}, {float_attr("value", 37.3)}},
                               {"round", {-1}},
                               {"add_scalar", {-1}, {float_attr("value", 3)}},
                               {"cast", {-1}, {text_attr("to", "u8")}}});
  const auto kernel = served_on_device(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  for (const int64_t n : {1, 8, 13, 1029})
    expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{{3, n}}}, {{3, n}, LATHE_DTYPE_U8}, 0, 0);
}

TEST(DeviceIntegers, ElementsOfEverySizeAreMoved) {
  const auto ctx = gpu_context();
  static constexpr int64_t kSwap[] = {1, 0};
  lathe_attr perm{};
  perm.name = "perm";
  perm.type = LATHE_ATTR_INTS;
  perm.ints = kSwap;
  perm.num_ints = 2;
  for (const uint32_t type : {LATHE_DTYPE_I8, LATHE_DTYPE_U8, LATHE_DTYPE_BOOL, LATHE_DTYPE_I64, LATHE_DTYPE_F64}) {
    const lathe_dim m = range("M", 0, 5000), n = range("N", 0, 5000);
    const auto turned = single_graph(ctx.get(), "transpose", {{{m, n}, type}}, {perm}),
               copied = single_graph(ctx.get(), "copy", {{{m, n}, type}}),
               taken = single_graph(ctx.get(), "gather", {{{m, n}, type}, {{range("I", 0, 99)}, LATHE_DTYPE_I32}});
    const auto turn = served_on_device(ctx.get(), turned.get()), copy = served_on_device(ctx.get(), copied.get()),
               take = served_on_device(ctx.get(), taken.get());
    ASSERT_TRUE(turn != nullptr && copy != nullptr && take != nullptr) << name_of(type);
    for (const auto& [a, b] : {std::pair<int64_t, int64_t>{9, 1}, {1, 9}, {9, 8}, {33, 31}, {7, 64}, {64, 129}}) {
      const ArgOf x{{a, b}, type}, ids{{5}, LATHE_DTYPE_I32, a}, rows{{5, b}, type};
      std::vector<char> bytes(TensorOf(x, false).bytes);
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 89 + 17);
      const std::vector<int32_t> at = {0, static_cast<int32_t>(a - 1), 0, static_cast<int32_t>(a / 2), 0};
      expect_same_bytes(ctx.get(), turned.get(), turn.get(), {x}, {{b, a}, type}, {bytes});
      expect_same_bytes(ctx.get(), copied.get(), copy.get(), {x}, x, {bytes});
      expect_same_bytes(ctx.get(), taken.get(), take.get(), {x, ids}, rows, {bytes, bytes_of(at)});
    }
  }
}

// The lowest index of the largest, or the first NaN; -1 of nothing.
TEST(DeviceIntegers, Argmax) {
  const auto ctx = gpu_context();
  for (const uint32_t to : {LATHE_DTYPE_I32, LATHE_DTYPE_I64}) {
    for (const uint32_t type : {LATHE_DTYPE_F32, LATHE_DTYPE_BF16}) {
      const auto graph = single_graph(ctx.get(), "argmax", {{{range("M", 0, 99), range("N", 0, 200000)}, type}},
                                      {text_attr("to", name_of(to))});
      const auto kernel = served_on_device(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      for (const int64_t n : {0, 1, 3, 31, 101, 1031, 5003}) {
        for (const int64_t m : {1, 5})
          expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{{m, n}, type}}, {{m}, to}, 0, 0);
      }
      if (type != LATHE_DTYPE_F32) continue;
      for (const size_t size : {3, 70, 1029}) {
        std::vector<float> x(4 * size, -1.f);
        x[size - 1] = NAN, x[size - 2] = INFINITY;                      // the NaN
        x[size + 1] = 2.f, x[2 * size - 1] = 2.f;                       // the first one
        for (size_t i = 2 * size; i < 3 * size; ++i) x[i] = -INFINITY;  // the first one
        x[3 * size] = -0.f, x[3 * size + 1] = 0.f;                      // the first one
        const auto n = static_cast<int64_t>(size);
        expect_same_bytes(ctx.get(), graph.get(), kernel.get(), {{{4, n}}}, {{4}, to}, {bytes_of(x)});
      }
    }
  }
}

TEST(DeviceIntegers, SumsUpToEachElement) {
  const auto ctx = gpu_context();
  for (const uint32_t type : {LATHE_DTYPE_F32, LATHE_DTYPE_F16}) {
    const auto graph = single_graph(ctx.get(), "cumsum", {{{range("M", 0, 99), range("N", 0, 200000)}, type}});
    const auto kernel = served_on_device(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr);
    for (const int64_t n : {0, 1, 3, 31, 128, 1025, 4097, 9001}) {
      for (const int64_t m : {1, 5})
        expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{{m, n}, type}}, {{m, n}, type}, 0,
                         type == LATHE_DTYPE_F32 ? 4e-6f : 1e-3f);
    }
  }
}

TEST(DeviceIntegers, SumsUpToEachElementAlongAnyAxis) {
  const auto ctx = gpu_context();
  const std::vector<lathe_dim> dims = {range("A", 0, 3000), range("B", 0, 3000), range("C", 0, 3000)};
  for (const uint32_t type : {LATHE_DTYPE_F32, LATHE_DTYPE_BF16}) {
    for (const int64_t axis : {0, 1, -2, -3}) {
      for (const bool of_rank_2 : {false, true}) {
        if (of_rank_2 && axis != 0) continue;
        const std::vector<lathe_dim> used(dims.begin() + (of_rank_2 ? 1 : 0), dims.end());
        const auto graph = single_graph(ctx.get(), "cumsum", {{used, type}}, {int_attr("axis", axis)});
        const auto kernel = served_on_device(ctx.get(), graph.get());
        ASSERT_NE(kernel, nullptr);
        for (std::vector<int64_t> shape : {std::vector<int64_t>{3, 1, 5},
                                           {1, 9, 31},
                                           {7, 2, 64},
                                           {0, 4, 4},
                                           {4, 0, 4},
                                           {4, 4, 0},
                                           {2, 129, 1},
                                           {130, 3, 8}}) {
          if (of_rank_2) shape.erase(shape.begin());
          expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(), {{shape, type}}, {shape, type}, 4,
                           type == LATHE_DTYPE_F32 ? 4e-6f : 1e-2f);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lathe::test
