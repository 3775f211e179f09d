// Other types than f32 through the C ABI, on every level: bf16 and f16 rows and chains compute in f32, copies and
// transposes keep bits, casts round once; what is not served is refused by name, with what helps.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "ir/base/dtype.h"
#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

using ir::DType;

struct TypeCase {
  DType type;
  uint32_t header;
};
constexpr TypeCase kHalves[] = {{DType::bf16, LATHE_DTYPE_BF16}, {DType::f16, LATHE_DTYPE_F16}};
constexpr const char* kLevels[] = {"portable", "avx2", "avx512"};

// A tensor of any dtype: its bytes, and the DLTensor on them.
struct Bytes {
  Bytes(DType dtype, std::vector<int64_t> dims) : type(dtype), shape(std::move(dims)) {
    count = 1;
    for (const int64_t d : shape) count *= static_cast<size_t>(d);
    data.assign(count * size(), '\x5a');
    tensor = {data.data(),
              {1, 0},
              static_cast<int32_t>(shape.size()),
              {static_cast<uint8_t>(ir::dtype_dlpack_code(type)), static_cast<uint8_t>(ir::dtype_bits(type)), 1},
              shape.data(),
              nullptr,
              0};
  }
  Bytes(const Bytes&) = delete;
  size_t size() const { return static_cast<size_t>(ir::dtype_bytes(type)); }
  float at(size_t i) const {
    if (type == DType::f32) {
      float f;
      std::memcpy(&f, data.data() + 4 * i, 4);
      return f;
    }
    uint16_t h;
    std::memcpy(&h, data.data() + 2 * i, 2);
    return type == DType::bf16 ? ir::bf16_to_f32(h) : ir::f16_to_f32(h);
  }
  void set(size_t i, float f) {
    const uint16_t h = type == DType::bf16 ? ir::f32_to_bf16(f) : ir::f32_to_f16(f);
    std::memcpy(data.data() + size() * i, type == DType::f32 ? static_cast<const void*>(&f) : &h, size());
  }
  Bytes& waves(double step) {
    for (size_t i = 0; i < count; ++i) set(i, static_cast<float>(2.5 * std::sin(step * static_cast<double>(i + 1))));
    return *this;
  }
  lathe_arg arg() const { return {&tensor, data.size(), 0, 0, 0}; }

  DType type;
  std::vector<int64_t> shape;
  size_t count = 0;
  std::vector<char> data;
  lathe_tensor tensor;
};

void run(const Owned<lathe_context>& ctx, const Owned<lathe_graph>& graph, std::vector<lathe_arg> args) {
  const auto kernel = resolve(ctx.get(), graph.get());
  ASSERT_NE(kernel, nullptr);
  lathe_error e{};
  ASSERT_EQ(execute(kernel.get(), args, &e), LATHE_STATUS_OK) << e.message;
}

Owned<lathe_graph> single(const Owned<lathe_context>& ctx, const char* op, const std::vector<lathe_tensor_desc>& in,
                          const std::vector<lathe_attr>& attrs, lathe_error* e) {
  lathe_graph* out = nullptr;
  (void)lathe_graph_single(ctx.get(), op, in.data(), in.size(), attrs.data(), attrs.size(), &out, e);
  return Owned<lathe_graph>(out);
}

// One rounding of the result, and what f32 inside may be off by.
void expect_near(const Bytes& y, size_t i, double want) {
  const double got = y.at(i), unit = y.type == DType::bf16 ? 0x1p-8 : 0x1p-11;
  EXPECT_LE(std::abs(got - want), unit * std::abs(want) * 1.01 + 1e-6) << i << ": " << got << ", expected " << want;
}

// Both vocabularies name the same types, and a description ends where its struct_size says.
TEST(CapiTypes, ADescriptionTakesDlpacksTypes) {
  const std::vector<lathe_dim> dims = {fixed(3), fixed(5)};
  const auto ctx = make_context("portable");
  for (uint32_t t = LATHE_DTYPE_F32; t <= LATHE_DTYPE_BOOL; ++t) {
    const auto type = static_cast<DType>(t);
    SCOPED_TRACE(ir::dtype_name(type));
    lathe_tensor_desc d = desc("x", dims);
    d.data_type = {static_cast<uint8_t>(ir::dtype_dlpack_code(type)), static_cast<uint8_t>(ir::dtype_bits(type)), 1};
    for (const uint32_t plain : {0u, t}) {
      d.dtype = plain;
      lathe_error e{};
      const auto graph = single(ctx, "copy", {d}, {}, &e);
      ASSERT_NE(graph, nullptr) << e.message;
      Bytes x(type, {3, 5}), y(type, {3, 5});
      for (size_t i = 0; i < x.data.size(); ++i) x.data[i] = static_cast<char>(i % 2);
      run(ctx, graph, {x.arg(), y.arg()});
      EXPECT_EQ(x.data, y.data);
    }
  }
}

TEST(CapiTypes, ADescriptionOfTheFirstHeaderIsReadToItsEnd) {
  const std::vector<lathe_dim> dims = {fixed(3), fixed(5)};
  const auto ctx = make_context("portable");
  lathe_tensor_desc d = desc("x", dims, 0, LATHE_DTYPE_I32);
  d.struct_size = offsetof(lathe_tensor_desc, data_type);
  d.data_type = {99, 99, 99};
  d.reserved2 = 99;
  lathe_error e{};
  const auto graph = single(ctx, "copy", {d}, {}, &e);
  ASSERT_NE(graph, nullptr) << e.message;
  Bytes x(DType::i32, {3, 5}), y(DType::i32, {3, 5});
  run(ctx, graph, {x.arg(), y.arg()});
  EXPECT_EQ(x.data, y.data);
}

TEST(CapiTypes, RowsOfHalvesComputeInF32) {
  const std::vector<lathe_dim> dims = {range("M", 1, 64), fixed(77)}, row = {fixed(77)};
  for (const char* isa : kLevels) {
    for (const auto& [type, header] : kHalves) {
      SCOPED_TRACE(std::string(isa) + " " + ir::dtype_name(type));
      const auto ctx = make_context(isa);
      lathe_error e{};
      const auto graph =
          single(ctx, "rmsnorm", {desc("x", dims, 0, header), desc("g", row, LATHE_TENSOR_CONST)}, {}, &e);
      ASSERT_NE(graph, nullptr) << e.message;
      Bytes x(type, {9, 77}), g(DType::f32, {77}), y(type, {9, 77});
      x.waves(0.37);
      g.waves(1.3);
      run(ctx, graph, {x.arg(), g.arg(), y.arg()});
      for (size_t r = 0; r < 9; ++r) {
        double squares = 0;
        for (size_t c = 0; c < 77; ++c) squares += std::pow(x.at(77 * r + c), 2);
        const double scale = 1 / std::sqrt(squares / 77 + 1e-5);
        for (size_t c = 0; c < 77; ++c) expect_near(y, 77 * r + c, x.at(77 * r + c) * scale * g.at(c));
      }
    }
  }
}

// x * b - b in one kernel: the product is not rounded on the way.
TEST(CapiTypes, ChainsOfHalvesRoundOnce) {
  const std::vector<lathe_dim> dims = {fixed(5), fixed(133)};
  for (const char* isa : kLevels) {
    for (const auto& [type, header] : kHalves) {
      SCOPED_TRACE(std::string(isa) + " " + ir::dtype_name(type));
      const auto ctx = make_context(isa);
      lathe_graph* made = nullptr;
      lathe_error e{};
      ASSERT_EQ(lathe_graph_create(ctx.get(), "chain", &made, &e), LATHE_STATUS_OK) << e.message;
      const Owned<lathe_graph> graph(made);
      int32_t x_id = 0, b_id = 0, product = 0, sum = 0;
      const lathe_tensor_desc x_desc = desc("x", dims, 0, header), b_desc = desc("b", dims, 0, header);
      ASSERT_EQ(lathe_graph_tensor(made, &x_desc, &x_id, &e), LATHE_STATUS_OK) << e.message;
      ASSERT_EQ(lathe_graph_tensor(made, &b_desc, &b_id, &e), LATHE_STATUS_OK) << e.message;
      const int32_t both[] = {x_id, b_id};
      ASSERT_EQ(lathe_graph_op(made, "mul", both, 2, nullptr, 0, "p", &product, &e), LATHE_STATUS_OK) << e.message;
      const int32_t last[] = {product, b_id};
      ASSERT_EQ(lathe_graph_op(made, "sub", last, 2, nullptr, 0, "y", &sum, &e), LATHE_STATUS_OK) << e.message;
      ASSERT_EQ(lathe_graph_output(made, sum, &e), LATHE_STATUS_OK) << e.message;
      ASSERT_EQ(lathe_graph_finish(made, &e), LATHE_STATUS_OK) << e.message;
      Bytes x(type, {5, 133}), b(type, {5, 133}), y(type, {5, 133});
      x.waves(0.7);
      b.waves(0.11);
      run(ctx, graph, {x.arg(), b.arg(), y.arg()});
      for (size_t i = 0; i < y.count; ++i) {
        const float want = x.at(i) * b.at(i) - b.at(i);
        EXPECT_NEAR(y.at(i), want, (type == DType::bf16 ? 0x1p-8 : 0x1p-11) * std::abs(want) + 1e-6);
      }
    }
  }
}

// NaN stays NaN, infinities and denormals stay what they are.
TEST(CapiTypes, NanInfinityAndDenormalsOfHalves) {
  const std::vector<lathe_dim> dims = {fixed(40)};
  for (const char* isa : kLevels) {
    for (const auto& [type, header] : kHalves) {
      SCOPED_TRACE(std::string(isa) + " " + ir::dtype_name(type));
      const auto ctx = make_context(isa);
      lathe_error e{};
      const auto graph = single(ctx, "neg", {desc("x", dims, 0, header)}, {}, &e);
      ASSERT_NE(graph, nullptr) << e.message;
      Bytes x(type, {40}), y(type, {40});
      for (size_t i = 0; i < 40; ++i) {
        const uint16_t infinity = type == DType::bf16 ? 0x7f80 : 0x7c00;
        const uint16_t bits[] = {1, 3, infinity, static_cast<uint16_t>(infinity + 1), 0x7fff, 0};
        std::memcpy(x.data.data() + 2 * i, &bits[i % 6], 2);
      }
      run(ctx, graph, {x.arg(), y.arg()});
      for (size_t i = 0; i < 40; ++i) {
        if (std::isnan(x.at(i))) {
          EXPECT_TRUE(std::isnan(y.at(i))) << i;
        } else {
          EXPECT_EQ(std::bit_cast<uint32_t>(y.at(i)), std::bit_cast<uint32_t>(-x.at(i))) << i;
        }
      }
    }
  }
}

TEST(CapiTypes, CopiesAndTransposesKeepEveryBit) {
  const std::vector<lathe_dim> dims = {fixed(35), fixed(67)};
  const int64_t turned[] = {1, 0};
  lathe_attr perm{};
  perm.name = "perm";
  perm.type = LATHE_ATTR_INTS;
  perm.ints = turned;
  perm.num_ints = 2;
  for (const char* isa : kLevels) {
    const auto ctx = make_context(isa);
    for (uint32_t header = 0; header < ir::kDTypes; ++header) {  // lathe_dtype numbers them as the table does
      const auto type = static_cast<DType>(header);
      SCOPED_TRACE(std::string(isa) + " " + ir::dtype_name(type));
      lathe_error e{};
      Bytes x(type, {35, 67}), y(type, {35, 67}), t(type, {67, 35});
      for (size_t i = 0; i < x.data.size(); ++i) x.data[i] = static_cast<char>(i * 2654435761u >> 13);
      const auto copy = single(ctx, "copy", {desc("x", dims, 0, header)}, {}, &e);
      ASSERT_NE(copy, nullptr) << e.message;
      run(ctx, copy, {x.arg(), y.arg()});
      EXPECT_EQ(x.data, y.data);
      const auto transpose = single(ctx, "transpose", {desc("x", dims, 0, header)}, {perm}, &e);
      ASSERT_NE(transpose, nullptr) << e.message;
      run(ctx, transpose, {x.arg(), t.arg()});
      for (size_t r = 0; r < 35; ++r) {
        for (size_t c = 0; c < 67; ++c)
          ASSERT_EQ(std::memcmp(&x.data[(67 * r + c) * x.size()], &t.data[(35 * c + r) * x.size()], x.size()), 0)
              << r << " " << c;
      }
    }
  }
}

TEST(CapiTypes, WhatIsNotServedIsRefusedByName) {
  const auto ctx = make_context();
  const std::vector<lathe_dim> dims = {fixed(3), fixed(4)};
  const auto refusal = [&](const char* op, uint32_t header, const std::vector<lathe_attr>& attrs) {
    lathe_error e{};
    EXPECT_EQ(single(ctx, op, {desc("x", dims, 0, header)}, attrs, &e), nullptr);
    return std::string(e.message);
  };
  EXPECT_EQ(refusal("relu", LATHE_DTYPE_I32, {}),
            "x: dtype i32 of relu, expected f32, bf16, f16; cast it to f32 before");
  EXPECT_EQ(refusal("softmax", LATHE_DTYPE_F64, {}), "x: dtype f64 of softmax, expected f32, bf16, f16");
  EXPECT_EQ(refusal("cast", LATHE_DTYPE_I64, {text_attr("to", "f32")}),
            "x: dtype i64 of cast, expected f32, bf16, f16, i32, i8, u8, b8");
  EXPECT_EQ(refusal("cast", LATHE_DTYPE_F32, {text_attr("to", "f64")}),
            "x: to \"f64\" of cast, expected f32, bf16, f16, i32, i8, u8, b8");
  EXPECT_EQ(refusal("cast", LATHE_DTYPE_F32, {text_attr("to", "int4")}),
            "x: to \"int4\" of cast, expected f32, bf16, f16, i32, i8, u8, b8");
}

// Operands of bf16 and f16 are read as they are: a packed weight takes two bytes an element. Sums of these numbers are
// exact, so that the one rounding of the result shows.
TEST(CapiTypes, ProductsOfNarrowOperands) {
  constexpr int64_t kRows = 5, kDepth = 70, kColumns = 52;
  const std::tuple<DType, uint32_t, DType, uint32_t> kinds[] = {
      {DType::bf16, LATHE_DTYPE_BF16, DType::bf16, LATHE_DTYPE_BF16},
      {DType::f32, LATHE_DTYPE_F32, DType::f16, LATHE_DTYPE_F16},
      {DType::f16, LATHE_DTYPE_F16, DType::f32, LATHE_DTYPE_F32}};
  for (const char* level : kLevels) {
    const auto ctx = make_context(level);
    for (const auto& [x_type, x_header, w_type, w_header] : kinds) {
      SCOPED_TRACE(fmt::format("{}, {} x {}", level, ir::dtype_name(x_type), ir::dtype_name(w_type)));
      const std::vector<lathe_dim> left = {range("M", 1, 64), fixed(kDepth)}, right = {fixed(kDepth), fixed(kColumns)};
      lathe_tensor_desc in[2] = {desc("x", left), desc("w", right, LATHE_TENSOR_CONST)};
      in[0].dtype = x_header;
      in[1].dtype = w_header;
      lathe_error e{};
      lathe_graph* made = nullptr;
      ASSERT_EQ(lathe_graph_single(ctx.get(), "matmul", in, 2, nullptr, 0, &made, &e), LATHE_STATUS_OK) << e.message;
      const Owned<lathe_graph> graph(made);
      const auto kernel = resolve(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      Bytes x(x_type, {kRows, kDepth}), w(w_type, {kDepth, kColumns});
      for (size_t i = 0; i < x.count; ++i) x.set(i, static_cast<float>(static_cast<int>(i * 5 % 17) - 8));
      for (size_t i = 0; i < w.count; ++i) w.set(i, static_cast<float>(static_cast<int>(i * 7 % 23) - 11));
      lathe_pack_info pack{};
      ASSERT_EQ(lathe_prepack_query(kernel.get(), 1, &pack, &e), LATHE_STATUS_OK) << e.message;
      const size_t most = static_cast<size_t>(kDepth * 64 * ir::dtype_bytes(w_type));  // panels of 64 columns at most
      EXPECT_LE(pack.bytes, most);
      Aligned packed(pack.bytes);
      if (pack.bytes != 0) {
        ASSERT_EQ(lathe_prepack(kernel.get(), 1, &w.tensor, packed.memory, pack.bytes, &e), LATHE_STATUS_OK);
      }
      lathe_tensor t = w.tensor;
      t.data = packed.memory;
      for (const bool as_packed : {true, false}) {
        if (as_packed && pack.bytes == 0) continue;
        Bytes y(x_type, {kRows, kColumns});
        run(ctx, graph, {x.arg(), as_packed ? lathe_arg{&t, pack.bytes, 0, 0, pack.layout_id} : w.arg(), y.arg()});
        for (int64_t m = 0; m < kRows; ++m) {
          for (int64_t n = 0; n < kColumns; ++n) {
            float sum = 0;
            for (int64_t k = 0; k < kDepth; ++k)
              sum += x.at(static_cast<size_t>(m * kDepth + k)) * w.at(static_cast<size_t>(k * kColumns + n));
            Bytes want(x_type, {1});
            want.set(0, sum);
            ASSERT_EQ(y.at(static_cast<size_t>(m * kColumns + n)), want.at(0)) << as_packed << " " << m << " " << n;
          }
        }
      }
    }
  }
}

// A weight stored in bf16 is widened and scaled when it is packed; one that comes as it lies, by a pass before the
// product. Both equal the product of the widened weight, bit by bit, as sums of these numbers are exact.
TEST(CapiTypes, AWeightIsPackedAsItIsMade) {
  for (const char* level : kLevels) {
    for (const bool turned : {false, true}) {
      SCOPED_TRACE(std::string(level) + (turned ? ", turned" : ""));
      const auto ctx = make_context(level);
      const std::vector<lathe_dim> left = {range("M", 1, 64), fixed(70)},
                                   right =
                                       turned ? std::vector{fixed(52), fixed(70)} : std::vector{fixed(70), fixed(52)};
      const lathe_tensor_desc x_desc = desc("x", left);
      lathe_tensor_desc w_desc = desc("w", right, LATHE_TENSOR_CONST);
      w_desc.dtype = LATHE_DTYPE_BF16;
      lathe_error e{};
      lathe_graph* made = nullptr;
      ASSERT_EQ(lathe_graph_create(ctx.get(), "gate", &made, &e), LATHE_STATUS_OK) << e.message;
      const Owned<lathe_graph> graph(made);
      int32_t in[2], wide = 0, scaled = 0, out = 0;
      const lathe_attr to = text_attr("to", "f32");
      lathe_attr value{}, transpose{};
      value.name = "value";
      value.type = LATHE_ATTR_FLOAT;
      value.f = 0.5;
      transpose.name = "transpose_b";
      transpose.type = LATHE_ATTR_BOOL;
      transpose.i = turned;
      ASSERT_EQ(lathe_graph_tensor(graph.get(), &x_desc, &in[0], &e), LATHE_STATUS_OK) << e.message;
      ASSERT_EQ(lathe_graph_tensor(graph.get(), &w_desc, &in[1], &e), LATHE_STATUS_OK) << e.message;
      ASSERT_EQ(lathe_graph_op(graph.get(), "cast", &in[1], 1, &to, 1, "wide", &wide, &e), LATHE_STATUS_OK);
      ASSERT_EQ(lathe_graph_op(graph.get(), "scale", &wide, 1, &value, 1, "scaled", &scaled, &e), LATHE_STATUS_OK);
      in[1] = scaled;
      ASSERT_EQ(lathe_graph_op(graph.get(), "matmul", in, 2, &transpose, 1, "y", &out, &e), LATHE_STATUS_OK);
      ASSERT_EQ(lathe_graph_output(graph.get(), out, &e), LATHE_STATUS_OK) << e.message;
      ASSERT_EQ(lathe_graph_finish(graph.get(), &e), LATHE_STATUS_OK) << e.message;
      const auto kernel = resolve(ctx.get(), graph.get());
      ASSERT_NE(kernel, nullptr);
      Bytes w(DType::bf16, turned ? std::vector<int64_t>{52, 70} : std::vector<int64_t>{70, 52});
      for (size_t i = 0; i < w.count; ++i) w.set(i, static_cast<float>(static_cast<int>(i * 7 % 23) - 11));
      lathe_pack_info pack{};
      ASSERT_EQ(lathe_prepack_query(kernel.get(), 1, &pack, &e), LATHE_STATUS_OK) << e.message;
      ASSERT_GT(pack.bytes, 0u);
      Aligned packed(pack.bytes);
      ASSERT_EQ(lathe_prepack(kernel.get(), 1, &w.tensor, packed.memory, pack.bytes, &e), LATHE_STATUS_OK) << e.message;
      lathe_tensor t = w.tensor;
      t.data = packed.memory;
      for (const int64_t m : {1, 5, 64}) {
        Bytes x(DType::f32, {m, 70});
        for (size_t i = 0; i < x.count; ++i) x.set(i, static_cast<float>(static_cast<int>(i * 5 % 17) - 8));
        for (const bool as_packed : {true, false}) {
          Bytes y(DType::f32, {m, 52});
          const lathe_arg weight = as_packed ? lathe_arg{&t, pack.bytes, 0, 0, pack.layout_id} : w.arg();
          run(ctx, graph, {x.arg(), weight, y.arg()});
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t n = 0; n < 52; ++n) {
              float want = 0;
              for (int64_t k = 0; k < 70; ++k)
                want += x.at(static_cast<size_t>(i * 70 + k)) * 0.5f *
                        w.at(static_cast<size_t>(turned ? n * 70 + k : k * 52 + n));
              ASSERT_EQ(y.at(static_cast<size_t>(i * 52 + n)), want) << m << " " << as_packed << " " << i << " " << n;
            }
          }
        }
      }
    }
  }
}

// Sums of rope are f32 and rounded once, whatever the angles are; numbers beyond the pairs keep their bits. It is
// served by native code where there is any.
TEST(CapiTypes, RopeOfHalvesIsRoundedOnce) {
  constexpr int64_t kTokens = 5, kHeads = 3;
  for (const char* isa : kLevels) {
    const auto ctx = make_context(isa);
    for (const auto& [type, header] : kHalves) {
      for (const bool own_angles : {false, true}) {
        for (const bool interleaved : {false, true}) {
          for (const auto& [d, half] : {std::pair<int64_t, int64_t>{128, 64}, {70, 17}, {6, 1}, {64, 32}, {34, 0}}) {
            SCOPED_TRACE(fmt::format("{} {} {} {} {} {}", isa, ir::dtype_name(type), own_angles, interleaved, d, half));
            const DType of_angles = own_angles ? type : DType::f32;
            const std::vector<lathe_dim> xs = {range("T", 1, 64), fixed(kHeads), fixed(d)},
                                         angles = {range("T", 1, 64), fixed(half)};
            lathe_attr pairing{};
            pairing.name = "interleaved";
            pairing.type = LATHE_ATTR_BOOL;
            pairing.i = interleaved;
            const uint32_t table = own_angles ? header : uint32_t{LATHE_DTYPE_F32};
            lathe_error e{};
            const auto graph = single(
                ctx, "rope", {desc("x", xs, 0, header), desc("c", angles, 0, table), desc("s", angles, 0, table)},
                {pairing}, &e);
            ASSERT_NE(graph, nullptr) << e.message;
            lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
            (void)resolve(ctx.get(), graph.get(), &info);
            EXPECT_EQ(info.tier, std::string(isa) == "portable" ? 0 : 1);
            Bytes x(type, {kTokens, kHeads, d}), co(of_angles, {kTokens, half}), si(of_angles, {kTokens, half}),
                y(type, {kTokens, kHeads, d});
            x.waves(0.7);
            co.waves(0.3);
            si.waves(1.1);
            run(ctx, graph, {x.arg(), co.arg(), si.arg(), y.arg()});
            for (int64_t row = 0; row < kTokens * kHeads; ++row) {
              for (int64_t p = 0; p < half; ++p) {
                const auto i = static_cast<size_t>(row * d + (interleaved ? 2 * p : p)),
                           j = i + static_cast<size_t>(interleaved ? 1 : half),
                           at = static_cast<size_t>(row / kHeads * half + p);
                const double c = co.at(at), s = si.at(at), a = x.at(i), b = x.at(j);
                expect_near(y, i, a * c - b * s);
                expect_near(y, j, b * c + a * s);
              }
              for (auto q = static_cast<size_t>(row * d + 2 * half); q < static_cast<size_t>((row + 1) * d); ++q)
                ASSERT_EQ(y.at(q), x.at(q)) << q;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace lathe::test
