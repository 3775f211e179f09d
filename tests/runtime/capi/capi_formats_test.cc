// Every format of weights through the C ABI, packed: groups of inputs in any order, scales that are no numbers, and
// what quantised activations cost.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ops/quant_formats.h"
#include "tests/common/c_client.h"
#include "tests/common/quant_fields.h"
#include "tests/ops/quant_reference.h"

namespace lathe::test {
namespace {

using testing::HasSubstr;

constexpr const char* kLevels[] = {"portable", "avx2", "avx512"};
constexpr uint32_t kBytes = LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT | LATHE_CLASS_QUANTISED_ACTIVATIONS;

// A constant operand, as numbers and as they lie.
struct Held {
  std::string name;
  uint32_t dtype = LATHE_DTYPE_F32;
  std::vector<int64_t> dims;
  std::vector<double> numbers;
  std::string bytes() const {
    std::string out;
    for (const double v : numbers) {
      const auto put = [&](auto value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
      if (dtype == LATHE_DTYPE_F32) put(static_cast<float>(v));
      if (dtype == LATHE_DTYPE_I32) put(static_cast<int32_t>(v));
      if (dtype == LATHE_DTYPE_U8) put(static_cast<uint8_t>(v));
      if (dtype == LATHE_DTYPE_I8) put(static_cast<int8_t>(v));
    }
    return out;
  }
};

uint32_t code_of(ir::DType type) {
  return type == ir::DType::u8    ? LATHE_DTYPE_U8
         : type == ir::DType::i8  ? LATHE_DTYPE_I8
         : type == ir::DType::i32 ? LATHE_DTYPE_I32
                                  : LATHE_DTYPE_F32;
}

// A weight [n, k] of random bits, its scales about 1/32.
struct Weight {
  Weight(const ops::QuantFormat& f, int64_t n, int64_t k, int64_t g, uint32_t seed)
      : format(f), n(n), k(k), group(f.grouped ? g : 0), rng(seed) {
    if (f.place == ops::FieldsIn::kBlocks) {
      const int64_t row = k / f.block * f.block_bytes;
      held.push_back({"w", LATHE_DTYPE_U8, {n, row}, {}});
      for (int64_t i = 0; i < n * row; ++i) held[0].numbers.push_back(static_cast<double>(rng() % 256));
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t b = 0; b < k / f.block; ++b) {
          for (const int64_t at : halves()) set_half(r, b, at, static_cast<uint16_t>(0x2400 + rng() % 1024));
        }
      }
      return;
    }
    for (const ops::QuantField& field : test::given_fields(f, n, k, group)) {
      Held h{field.buffer.name, code_of(ir::given_type(field.buffer)), {}, {}};
      int64_t count = 1;
      for (const ir::Expr& d : ir::given_dims(field.buffer)) h.dims.push_back(d->ival), count *= d->ival;
      for (int64_t i = 0; i < count; ++i) h.numbers.push_back(number(h));
      held.push_back(std::move(h));
    }
  }

  // Some scale of this output becomes that.
  void spoil(int64_t row, float value) {
    if (format.place == ops::FieldsIn::kBlocks) {
      set_half(row, k / format.block - 1, halves().front(), std::isnan(value) ? 0x7e00 : 0x7c00);
      return;
    }
    Held& s = held[1];
    const bool by_row = s.dims[0] == n;
    s.numbers[static_cast<size_t>(by_row ? row * (s.dims.size() > 1 ? s.dims[1] : 1) : row)] = value;
  }

  ops::testing::QuantReference reference() const {
    std::vector<ops::testing::QuantOperand> in;
    for (const Held& h : held) in.push_back({h.dims, &h.numbers});
    return {format.name, group, in};
  }

  const ops::QuantFormat& format;
  int64_t n, k, group;
  std::mt19937 rng;
  std::vector<Held> held;

 private:
  double number(const Held& h) {
    if (h.dtype == LATHE_DTYPE_I32) return static_cast<int32_t>(rng());
    if (h.dtype == LATHE_DTYPE_U8) return static_cast<double>(rng() % 256);
    if (h.dtype == LATHE_DTYPE_I8) return static_cast<double>(rng() % 256) - 128;
    if (h.name == "z") return static_cast<double>(rng() % 64) / 4;
    return static_cast<float>(0.01 + 0.0001 * static_cast<double>(rng() % 400));
  }
  // Where in a block the scale lies, and the minimum.
  std::vector<int64_t> halves() const {
    if (format.name == "q6_k") return {208};
    const bool both = format.name == "q4_1" || format.name == "q5_1" || format.block == 256;
    return both ? std::vector<int64_t>{0, 2} : std::vector<int64_t>{0};
  }
  void set_half(int64_t row, int64_t block, int64_t at, uint16_t bits) {
    const size_t i = static_cast<size_t>(row * held[0].dims[1] + block * format.block_bytes + at);
    held[0].numbers[i] = bits & 255;
    held[0].numbers[i + 1] = bits >> 8;
  }
};

lathe_graph* product_graph(lathe_context* ctx, const Weight& w, lathe_error* e) {
  const std::vector<lathe_dim> rows = {range("M", 1, 64), fixed(w.k)};
  std::vector<std::vector<lathe_dim>> dims;
  for (const Held& h : w.held) {
    dims.emplace_back();
    for (const int64_t d : h.dims) dims.back().push_back(fixed(d));
  }
  std::vector<lathe_tensor_desc> inputs = {desc("a", rows)};
  for (size_t i = 0; i < dims.size(); ++i)
    inputs.push_back(desc(w.held[i].name.c_str(), dims[i], LATHE_TENSOR_CONST, w.held[i].dtype));
  lathe_attr attrs[] = {text_attr("format", w.format.name.c_str()), {}};
  attrs[1].name = "group";
  attrs[1].type = LATHE_ATTR_INT;
  attrs[1].i = w.group;
  lathe_graph* out = nullptr;
  (void)lathe_graph_single(ctx, "quantized_matmul", inputs.data(), inputs.size(), attrs, w.group != 0 ? 2 : 1, &out, e);
  return out;
}

// a[m, k] times the weight, whose operands are packed where they have a packed form.
std::vector<float> product(lathe_context* ctx, const Weight& w, Floats& a, bool packed, uint32_t allowed,
                           lathe_error* e) {
  *e = {};
  const Owned<lathe_graph> graph(product_graph(ctx, w, e));
  if (graph == nullptr) return {};
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.allowed = allowed;
  lathe_kernel* resolved = nullptr;
  EXPECT_EQ(lathe_resolve(ctx, graph.get(), &policy, &resolved, nullptr, e), LATHE_STATUS_OK) << e->message;
  const Owned<lathe_kernel> kernel(resolved);
  Floats y({a.shape[0], w.n}, 77);
  std::vector<std::string> bytes;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<lathe_tensor> tensors;
  for (const Held& h : w.held) {
    bytes.push_back(h.bytes());
    shapes.push_back(h.dims);
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint32_t type = w.held[i].dtype;
    const bool integer = type != LATHE_DTYPE_F32, small = type == LATHE_DTYPE_U8 || type == LATHE_DTYPE_I8;
    const decltype(lathe_tensor::dtype) of = {static_cast<uint8_t>(type == LATHE_DTYPE_U8 ? 1
                                                                   : integer              ? 0
                                                                                          : 2),
                                              static_cast<uint8_t>(small ? 8 : 32), 1};
    tensors.push_back(
        {bytes[i].data(), {1, 0}, static_cast<int32_t>(shapes[i].size()), of, shapes[i].data(), nullptr, 0});
  }
  std::vector<lathe_arg> args = {a.arg()};
  std::vector<std::unique_ptr<Aligned>> forms;
  for (size_t i = 0; i < tensors.size(); ++i) {
    lathe_arg arg = {&tensors[i], bytes[i].size(), 0, 0, 0};
    lathe_pack_info info{};
    const auto number = static_cast<int32_t>(i + 1);
    EXPECT_EQ(lathe_prepack_query(kernel.get(), number, &info, e), LATHE_STATUS_OK) << e->message;
    if (packed && info.layout_id != 0) {
      forms.push_back(std::make_unique<Aligned>(info.bytes));
      EXPECT_EQ(lathe_prepack(kernel.get(), number, &tensors[i], forms.back()->memory, info.bytes, e), LATHE_STATUS_OK)
          << e->message;
      tensors[i].data = forms.back()->memory;
      arg.layout_id = info.layout_id;
      arg.bytes = info.bytes;
    }
    args.push_back(arg);
  }
  args.push_back(y.arg());
  if (execute(kernel.get(), args, e) != LATHE_STATUS_OK) {
    EXPECT_EQ(y.data, std::vector<float>(y.data.size(), 77)) << "written before it is refused";
    return {};
  }
  return y.data;
}

void normal(Floats& a, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw;
  for (float& v : a.data) v = draw(rng);
}

std::vector<double> expected(const Weight& w, const Floats& a) {
  const ops::testing::QuantReference reference = w.reference();
  std::vector<double> weights(static_cast<size_t>(w.n * w.k)), out;
  for (int64_t i = 0; i < w.n * w.k; ++i) weights[static_cast<size_t>(i)] = reference.weight(i / w.k, i % w.k);
  for (int64_t i = 0; i < a.shape[0] * w.n; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < w.k; ++k)
      sum += static_cast<double>(a.data[static_cast<size_t>(i / w.n * w.k + k)]) *
             weights[static_cast<size_t>(i % w.n * w.k + k)];
    out.push_back(sum);
  }
  return out;
}

// Scales and zero points of one element each.
TEST(CapiFormats, OneOutputOfOneGroup) {
  for (const char* name : {"nbits_4", "nbits_4_zeros", "nbits_4_float_zeros", "nbits_8", "nbits_8_zeros",
                           "nbits_8_float_zeros", "int8_channel", "int8_group"}) {
    const Weight w(*ops::find_quant_format(name), 1, 33, 128, 7);
    Floats a({7, w.k});
    normal(a, 3);
    const std::vector<double> want = expected(w, a);
    for (const char* level : kLevels) {
      const auto ctx = make_context(level);
      for (const uint32_t allowed : {0u, kBytes}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name, level, allowed));
        lathe_error e;
        const std::vector<float> y = product(ctx.get(), w, a, true, allowed, &e);
        ASSERT_EQ(y.size(), want.size()) << e.message;
        for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], want[i], allowed == 0 ? 1e-3 : 1) << i;
      }
    }
  }
}

// Inputs in an order of their own: as a permutation, and in groups of unequal sizes.
TEST(CapiFormats, GroupsOfInputsInAnyOrder) {
  int formats = 0;
  for (const ops::QuantFormat& f : ops::quant_formats()) {
    if (!f.regroups()) continue;
    ++formats;
    for (const bool permuted : {true, false}) {
      constexpr int64_t k = 128, group = 32;
      Weight w(f, 40, k, group, 3);
      Held order{"g_idx", LATHE_DTYPE_I32, {k}, {}};
      for (int64_t i = 0; i < k; ++i)
        order.numbers.push_back(static_cast<double>(permuted ? i * 37 % k / group : w.rng() % 4));
      w.held.push_back(order);
      for (const int64_t m : {1, 5}) {
        Floats a({m, k});
        a.numbers(4);
        const std::vector<double> want = expected(w, a);
        for (const char* level : kLevels) {
          const auto ctx = make_context(level);
          for (const bool packed : {false, true}) {
            for (const uint32_t allowed : {uint32_t{LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT}, kBytes}) {
              SCOPED_TRACE(fmt::format("{} {} {} {}", f.name, m, level, packed ? "packed" : "plain"));
              lathe_error e;
              const std::vector<float> y = product(ctx.get(), w, a, packed, allowed, &e);
              ASSERT_EQ(y.size(), want.size()) << e.message;
              for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], want[i], 2e-4 * (1 + std::abs(want[i]))) << i;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(formats, 2);
}

TEST(CapiFormats, GroupsThatThereAreNoneOfAreRefused) {
  const auto ctx = make_context();
  Weight w(*ops::find_quant_format("gptq"), 16, 64, 32, 3);
  w.held.push_back({"g_idx", LATHE_DTYPE_I32, {64}, std::vector<double>(64, 1)});
  Floats a({2, 64}, 1);
  lathe_error e;
  for (const double wrong : {2., -1., 1e9}) {
    w.held.back().numbers[41] = wrong;
    for (const bool packed : {false, true}) {
      EXPECT_TRUE(product(ctx.get(), w, a, packed, 0, &e).empty());
      EXPECT_EQ(std::string(e.message), fmt::format("g_idx[41]: {}, expected 0..1", static_cast<int64_t>(wrong)));
    }
  }
  const auto refusal = [&](std::vector<int64_t> dims, uint32_t dtype) {
    w.held.back().dims = std::move(dims);
    w.held.back().dtype = dtype;
    const Owned<lathe_graph> graph(product_graph(ctx.get(), w, &e));
    EXPECT_EQ(graph, nullptr);
    return std::string(e.message);
  };
  EXPECT_THAT(refusal({63}, LATHE_DTYPE_I32), HasSubstr("g_idx.shape[0]: 63, expected 64 (g_idx of gptq"));
  EXPECT_THAT(refusal({64, 1}, LATHE_DTYPE_I32), HasSubstr("2 dimensions, expected 1 (g_idx of gptq"));
  EXPECT_THAT(refusal({64}, LATHE_DTYPE_U8), HasSubstr("dtype u8, expected i32 (g_idx of gptq"));
  Weight other(*ops::find_quant_format("nbits_4"), 16, 64, 32, 3);
  other.held.push_back({"g_idx", LATHE_DTYPE_I32, {64}, std::vector<double>(64, 1)});
  EXPECT_EQ(product_graph(ctx.get(), other, &e), nullptr);
  EXPECT_THAT(e.message, HasSubstr("takes no g_idx"));
}

// A scale that is NaN makes its output NaN, one that is infinite makes it infinite or NaN, and no other differs.
TEST(CapiFormats, ScalesThatAreNoNumbersSpoilTheirOutputAlone) {
  for (const ops::QuantFormat& f : ops::quant_formats()) {
    for (const char* level : kLevels) {
      const auto ctx = make_context(level);
      for (const int64_t m : {1, 5}) {
        for (const uint32_t allowed : {uint32_t{LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT}, kBytes}) {
          SCOPED_TRACE(fmt::format("{} {} {} rows, classes {}", f.name, level, m, allowed));
          constexpr int64_t kRow = 9;
          Weight w(f, 40, 512, 32, 5);
          Floats a({m, w.k});
          normal(a, 6);
          lathe_error e;
          const std::vector<float> clean = product(ctx.get(), w, a, true, allowed, &e);
          for (const float value : {NAN, INFINITY}) {
            w.spoil(kRow, value);
            const std::vector<float> y = product(ctx.get(), w, a, true, allowed, &e);
            ASSERT_EQ(y.size(), clean.size()) << e.message;
            for (int64_t i = 0; i < m * w.n; ++i) {
              const float got = y[static_cast<size_t>(i)];
              if (i % w.n != kRow) {
                ASSERT_EQ(got, clean[static_cast<size_t>(i)]) << i;
              } else {
                ASSERT_TRUE(std::isnan(value) ? std::isnan(got) : !std::isfinite(got)) << i << ": " << got;
              }
            }
          }
        }
      }
    }
  }
}

// The mean square of the difference over that of the result, for activations of a normal distribution. The figures are
// in bench/results/quantised_nmse.txt.
TEST(CapiFormats, QuantisedActivationsAreNear) {
  for (const ops::QuantFormat& f : ops::quant_formats()) {
    for (const char* level : kLevels) {
      const auto ctx = make_context(level);
      Weight w(f, 64, 2048, 128, 7);
      Floats a({4, w.k});
      normal(a, 8);
      const std::vector<double> want = expected(w, a);
      lathe_error e;
      const std::vector<float> y = product(ctx.get(), w, a, true, kBytes, &e);
      ASSERT_EQ(y.size(), want.size()) << e.message;
      double error = 0, size = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        error += (y[i] - want[i]) * (y[i] - want[i]);
        size += want[i] * want[i];
      }
      EXPECT_LE(error, 5e-4 * size) << f.name << " " << level;
      EXPECT_GT(error, 1e-9 * size) << f.name << " " << level << ": nothing was rounded";
      RecordProperty(fmt::format("{}_{}", f.name, level), fmt::format("{:.2e}", error / size));
    }
  }
}

}  // namespace
}  // namespace lathe::test
