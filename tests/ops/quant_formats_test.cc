// Formats of weights with few bits: their rows, their weights bit by bit, what operators refuse.
#include "ops/quant_formats.h"

#include <gmock/gmock.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "ir/analysis/verifier.h"
#include "tests/common/quant_fields.h"
#include "tests/ops/check_lowered.h"

namespace lathe::ops::testing {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> from_hex(const std::string& text) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

Graph dequantize(const std::string& format, int64_t group,
                 const std::vector<std::pair<ir::DType, std::vector<int64_t>>>& in) {
  Graph g;
  std::vector<int> operands;
  for (const auto& [type, dims] : in) {
    std::vector<DimDesc> sizes;
    for (const int64_t d : dims) sizes.push_back(fixed_dim(d));
    operands.push_back(add_tensor(g, fmt::format("w{}", operands.size()), sizes, true, type));
  }
  g.outputs = {add_node(g, "dequantize", operands, "y", {{"format", format}, {"group", group}})};
  return g;
}

// The weights as the operator's naive Kernel makes them, in its own arithmetic.
std::vector<double> weights(const Graph& graph, const std::vector<std::vector<double>>& in) {
  const auto finished = finish(graph);
  EXPECT_TRUE(finished.ok()) << finished.status().to_string();
  if (!finished.ok()) return {};
  const auto lowered = lower(*finished);
  EXPECT_TRUE(lowered.ok()) << lowered.status().to_string();
  if (!lowered.ok()) return {};
  const LoweredKernel& k = lowered->kernels.at(0);
  std::map<std::string, Tensor> buffers;
  for (size_t p = 0; p < k.params.size(); ++p) {
    const ir::Buffer& b = k.kernel.buffers[p];
    Tensor t{sizes_of(b.dims, {}), {}};
    t.data.assign(static_cast<size_t>(count(t.dims)), NAN);
    if (b.place != ir::Place::out) {
      const Tensor whole{sizes_of(finished->tensors[k.params[p].tensor].dims, {}), in.at(k.params[p].tensor)};
      t.data = k.params[p].part ? part_of(whole, b, k.params[p].offset, {}) : whole.data;
    }
    buffers[b.name] = std::move(t);
  }
  ir::InterpreterOptions options;
  options.arithmetic = ir::Arithmetic::native;
  const ir::Status ran = ir::interpret(k.kernel, {}, buffers, options);
  EXPECT_TRUE(ran.ok()) << ran.to_string();
  return buffers.at("y").data;
}

std::vector<double> numbers(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

TEST(QuantFormats, every_row_is_a_kernel_of_its_fields) {
  size_t rows = 0;
#define LATHE_QUANT_FORMAT(name, place, meaning) ++rows;
#include "ops/quant_formats.def"
#undef LATHE_QUANT_FORMAT
  ASSERT_EQ(quant_formats().size(), rows) << "a meaning does not parse";
  for (const QuantFormat& f : quant_formats()) {
    const ir::Status valid = ir::verify(f.meaning);
    EXPECT_TRUE(valid.ok()) << f.name << ": " << valid.to_string();
    EXPECT_EQ(f.meaning.name, f.name);
    EXPECT_EQ(find_quant_format(f.name), &f);
    EXPECT_GE(f.tensors(), 1u);
    ASSERT_EQ(f.meaning.buffers.back().name, "v");
    for (const ir::Buffer& b : f.meaning.buffers) {
      EXPECT_EQ(b.place, b.name == "v" ? ir::Place::out : ir::Place::constant) << f.name;
    }
    EXPECT_EQ(f.place == FieldsIn::kBlocks, f.block_bytes > 0) << f.name;
  }
  size_t packed = 0;
#define LATHE_QUANT_FORMAT(name, place, meaning)
#define LATHE_QUANT_PACKED(name, kernel) ++packed;
#include "ops/quant_formats.def"
#undef LATHE_QUANT_FORMAT
  for (const QuantFormat& f : quant_formats()) {
    if (f.packed.body.empty()) continue;
    --packed;
    const ir::Status valid = ir::verify(f.packed);
    EXPECT_TRUE(valid.ok()) << f.name << ": " << valid.to_string();
    EXPECT_FALSE(f.made) << f.name << ": its meaning is the caller's order";
    ASSERT_EQ(f.packed.buffers.size(), f.meaning.buffers.size()) << f.name;
    for (size_t i = 0; i < f.packed.buffers.size(); ++i) {
      const ir::Buffer &p = f.packed.buffers[i], &m = f.meaning.buffers[i];
      EXPECT_EQ(p.name, m.name) << f.name;
      EXPECT_EQ(ir::given_type(p), m.type) << f.name;
      const std::vector<ir::Expr>& dims = ir::given_dims(p);
      EXPECT_TRUE(std::equal(dims.begin(), dims.end(), m.dims.begin(), m.dims.end(),
                             [](const ir::Expr& a, const ir::Expr& b) { return ir::equal(a, b); }))
          << f.name << " " << p.name;
    }
  }
  EXPECT_EQ(packed, 0u) << "a packed form does not parse, or belongs to no format";
  EXPECT_EQ(find_quant_format("q3_x"), nullptr);
}

TEST(QuantFormats, blocks_of_ggml_bit_by_bit) {
  std::ifstream in(LATHE_SOURCE_DIR "/tests/ops/quant_vectors.txt");
  ASSERT_TRUE(in.good());
  std::map<std::string, int> seen;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == ';') continue;
    std::istringstream words(line);
    std::string name, block, expected;
    words >> name >> block >> expected;
    const std::vector<uint8_t> bytes = from_hex(block), bits = from_hex(expected);
    const Graph g = dequantize(name, 0, {{ir::DType::u8, {1, static_cast<int64_t>(bytes.size())}}});
    const std::vector<double> got = weights(g, {numbers(bytes)});
    ASSERT_EQ(got.size() * 4, bits.size()) << name;
    for (size_t i = 0; i < got.size(); ++i) {
      uint32_t want;
      std::memcpy(&want, bits.data() + 4 * i, 4);
      const uint32_t have = std::bit_cast<uint32_t>(static_cast<float>(got[i]));
      const bool both_nan = std::isnan(got[i]) && std::isnan(std::bit_cast<float>(want));
      ASSERT_TRUE(have == want || both_nan) << name << " block " << seen[name] << " weight " << i;
    }
    ++seen[name];
  }
  for (const QuantFormat& f : quant_formats()) {
    EXPECT_GE(seen[f.name], f.place == FieldsIn::kBlocks ? 4 : 0) << f.name << " has no vectors";
  }
}

// The weights of one row of blocks by the format's meaning, or by its packed form.
std::vector<double> row_of(const QuantFormat& f, bool packed, const std::vector<double>& bytes) {
  const int64_t k = static_cast<int64_t>(bytes.size()) / f.block_bytes * f.block;
  const QuantWeight w{&f, fixed_dim(1), k, 0, packed};
  TensorDesc operand;
  operand.dtype = ir::DType::u8;
  operand.dims = {fixed_dim(1), fixed_dim(static_cast<int64_t>(bytes.size()))};
  const Tensor whole{{1, static_cast<int64_t>(bytes.size())}, bytes};
  std::map<std::string, Tensor> buffers;
  ir::Kernel kernel = w.kernel();
  const std::vector<QuantField> fields = quant_fields(w, {&operand});
  for (size_t i = 0; i < fields.size(); ++i) {
    ir::Buffer given = fields[i].buffer;
    given.dims = ir::given_dims(given);
    given.type = ir::given_type(given);
    Tensor field{sizes_of(given.dims, {{"N", 1}}), part_of(whole, given, fields[i].offset, {})};
    buffers[given.name] = std::move(field);
  }
  buffers["v"] = {{1, k}, std::vector<double>(static_cast<size_t>(k), NAN)};
  ir::InterpreterOptions options;
  options.arithmetic = ir::Arithmetic::native;
  const ir::Status ran = ir::interpret(kernel, {{"N", 1}, {"K", k}}, buffers, options);
  EXPECT_TRUE(ran.ok()) << ran.to_string();
  return buffers.at("v").data;
}

TEST(QuantFormats, packed_forms_hold_the_same_weights) {
  std::mt19937 rng(7);
  size_t forms = 0;
  for (const QuantFormat& f : quant_formats()) {
    if (f.packed.body.empty()) continue;
    ++forms;
    for (int round = 0; round < 8; ++round) {
      std::vector<double> bytes;
      for (int64_t i = 0; i < 3 * f.block_bytes; ++i)
        bytes.push_back(round == 0 ? 255 : static_cast<double>(rng() % 256));
      const std::vector<double> meaning = row_of(f, false, bytes), packed = row_of(f, true, bytes);
      ASSERT_EQ(meaning.size(), static_cast<size_t>(3 * f.block));
      for (size_t i = 0; i < meaning.size(); ++i) {
        const bool same = meaning[i] == packed[i] || (std::isnan(meaning[i]) && std::isnan(packed[i]));
        ASSERT_TRUE(same) << f.name << " weight " << i << ": " << packed[i] << ", expected " << meaning[i];
      }
    }
  }
  EXPECT_GE(forms, 5u);
}

TEST(QuantFormats, nibbles_and_bytes_of_matmulnbits) {
  constexpr int64_t n = 3, k = 40, group = 16, groups = 3;  // the last group is partial
  std::mt19937 rng(5);
  for (const bool zeros : {false, true}) {
    for (const int bits : {4, 8}) {
      const int64_t per_group = group * bits / 8, zero_bytes = (groups * bits + 7) / 8;
      std::vector<double> q, s, z;
      for (int64_t i = 0; i < n * groups * per_group; ++i) q.push_back(static_cast<double>(rng() % 256));
      for (int64_t i = 0; i < n * groups; ++i) s.push_back(static_cast<float>(0.01 * static_cast<double>(rng() % 100)));
      for (int64_t i = 0; i < n * zero_bytes; ++i) z.push_back(static_cast<double>(rng() % 256));
      std::vector<std::pair<ir::DType, std::vector<int64_t>>> operands = {{ir::DType::u8, {n, groups, per_group}},
                                                                          {ir::DType::f32, {n, groups}}};
      std::vector<std::vector<double>> data = {q, s};
      if (zeros) {
        operands.push_back({ir::DType::u8, {n, zero_bytes}});
        data.push_back(z);
      }
      const auto field = [&](const std::vector<double>& bytes, int64_t row_bytes, int64_t row, int64_t i) {
        const int byte = static_cast<int>(bytes[static_cast<size_t>(row * row_bytes + i * bits / 8)]);
        return bits == 8 ? byte : byte >> 4 * (i % 2) & 15;
      };
      Graph g;
      std::vector<int> in = {add_tensor(g, "a", {fixed_dim(2), fixed_dim(k)})};
      for (const auto& [type, dims] : operands) {
        std::vector<DimDesc> sizes;
        for (const int64_t d : dims) sizes.push_back(fixed_dim(d));
        in.push_back(add_tensor(g, fmt::format("w{}", in.size()), sizes, true, type));
      }
      const std::string name = fmt::format("nbits_{}{}", bits, zeros ? "_zeros" : "");
      g.outputs = {add_node(g, "quantized_matmul", in, "y", {{"format", name}, {"group", group}})};
      const auto finished = finish(g);
      ASSERT_TRUE(finished.ok()) << finished.status().to_string();
      Tensors values;
      values[0] = {{2, k}, {}};
      for (int64_t i = 0; i < 2 * k; ++i) values[0].data.push_back(static_cast<double>(i % 7) - 3);
      for (size_t i = 0; i < data.size(); ++i) values[static_cast<int>(i) + 1] = {operands[i].second, data[i]};
      const auto lowered = lower(*finished);
      ASSERT_TRUE(lowered.ok()) << lowered.status().to_string();
      run_lowered(*finished, *lowered, {}, values);
      const std::vector<double>& y = values.at(finished->outputs[0]).data;
      for (int64_t row = 0; row < 2; ++row) {
        for (int64_t o = 0; o < n; ++o) {
          double want = 0;
          for (int64_t i = 0; i < k; ++i) {
            const int zero = zeros ? field(z, zero_bytes, o, i / group) : 1 << (bits - 1);
            const double w =
                (field(q, groups * per_group, o, i) - zero) * s[static_cast<size_t>(o * groups + i / group)];
            want += values[0].data[static_cast<size_t>(row * k + i)] * w;
          }
          EXPECT_NEAR(y[static_cast<size_t>(row * n + o)], want, 1e-9) << name;
        }
      }
    }
  }
}

// Inputs may belong to groups in any order where the format's bits lie by input.
TEST(QuantFormats, groups_of_inputs_in_any_order) {
  int formats = 0;
  for (const QuantFormat& f : quant_formats()) {
    EXPECT_EQ(f.regroups(), f.name.starts_with("gptq")) << f.name;
    if (!f.regroups()) continue;
    const ir::Status valid = ir::verify(f.reordered);
    EXPECT_TRUE(valid.ok()) << f.name << ": " << valid.to_string();
    ++formats;
    constexpr int64_t kN = 16, kK = 64, kGroup = 32;
    for (const char* op : {"quantized_matmul", "dequantize", "quantized_gather"}) {
      Graph g;
      std::vector<int> in;
      if (op == std::string("quantized_matmul")) in.push_back(add_tensor(g, "a", {fixed_dim(3), fixed_dim(kK)}));
      test::add_weight(g, in, f, kN, kK, kGroup);
      in.push_back(add_tensor(g, "g_idx", {fixed_dim(kK)}, true, ir::DType::i32));
      if (op == std::string("quantized_gather"))
        in.push_back(add_tensor(g, "ids", {fixed_dim(5)}, false, ir::DType::i32));
      g.outputs = {add_node(g, op, in, "y", {{"format", f.name}, {"group", kGroup}})};
      SCOPED_TRACE(f.name + " " + op);
      check(g);
    }
  }
  EXPECT_EQ(formats, 2);
}

std::string refusal(const std::string& op, const std::string& format, int64_t group,
                    const std::vector<std::pair<ir::DType, std::vector<int64_t>>>& operands, bool constants = false) {
  Graph g;
  std::vector<int> in;
  for (const auto& [type, dims] : operands) {
    std::vector<DimDesc> sizes;
    for (const int64_t d : dims) sizes.push_back(fixed_dim(d));
    in.push_back(add_tensor(g, fmt::format("x{}", in.size()), sizes, constants && !in.empty(), type));
  }
  g.outputs = {add_node(g, op, in, "y", {{"format", format}, {"group", group}})};
  const auto finished = finish(g);
  return finished.ok() ? "accepted" : finished.status().to_string();
}

TEST(QuantFormats, refusals_name_the_operand_and_what_was_expected) {
  using ir::DType;
  const std::string mm = "quantized_matmul";
  EXPECT_EQ(refusal(mm, "q4_0", 0, {{DType::f32, {2, 64}}, {DType::u8, {5, 36}}}), "accepted");
  EXPECT_THAT(refusal(mm, "q9", 0, {{DType::f32, {2, 64}}, {DType::u8, {5, 36}}}), HasSubstr("expected one of q4_0"));
  EXPECT_THAT(refusal(mm, "q4_0", 0, {{DType::f32, {2, 48}}, {DType::u8, {5, 36}}}),
              HasSubstr("K 48, expected a multiple of 32"));
  EXPECT_THAT(refusal(mm, "q4_0", 0, {{DType::f32, {2, 64}}, {DType::u8, {5, 35}}}),
              HasSubstr("x1.shape[1]: 35, expected 36"));
  EXPECT_THAT(refusal(mm, "q4_0", 0, {{DType::f32, {2, 64}}, {DType::i8, {5, 36}}}), HasSubstr("expected u8"));
  EXPECT_THAT(refusal(mm, "q4_0", 0, {{DType::f32, {2, 64}}, {DType::u8, {5, 36}}, {DType::f32, {5}}}),
              HasSubstr("2 operands hold the weight, expected 1"));
  EXPECT_THAT(refusal(mm, "q4_0", 32, {{DType::f32, {2, 64}}, {DType::u8, {5, 36}}}),
              HasSubstr("group 32, expected none"));
  EXPECT_THAT(refusal(mm, "q4_0", 0, {{DType::i32, {2, 64}}, {DType::u8, {5, 36}}}), HasSubstr("dtype i32"));
  EXPECT_THAT(refusal(mm, "nbits_8", 24, {{DType::f32, {2, 64}}, {DType::u8, {5, 2, 32}}, {DType::f32, {5, 2}}}),
              HasSubstr("group 24, expected a multiple of 16"));
  EXPECT_THAT(refusal(mm, "nbits_8", 32, {{DType::f32, {2, 64}}, {DType::u8, {5, 2, 32}}, {DType::f32, {5, 3}}}),
              HasSubstr("x2.shape[1]: 3, expected 2"));
  EXPECT_THAT(refusal(mm, "nbits_8", 32, {{DType::f32, {2, 64}}, {DType::u8, {5, 2, 32}}, {DType::i8, {5, 2}}}),
              HasSubstr("expected f32, f16 or bf16"));
  EXPECT_THAT(refusal(mm, "nbits_4", 32, {{DType::f32, {2, 64}}, {DType::u8, {5, 2, 16}}, {DType::f32, {5, 2}}}),
              HasSubstr("x1: no constant, expected one"));
  // Zero points of other sizes.
  const auto zeros = [&](const std::string& format, const std::vector<int64_t>& q, const std::vector<int64_t>& s,
                         const std::vector<int64_t>& z, DType type = DType::u8) {
    const bool words = !format.starts_with("nbits");
    return refusal(mm, format, 32,
                   {{DType::f32, {2, 64}},
                    {words ? DType::i32 : DType::u8, q},
                    {words ? DType::f16 : DType::f32, s},
                    {words ? DType::i32 : type, z}},
                   true);
  };
  EXPECT_EQ(zeros("nbits_4_zeros", {5, 2, 16}, {5, 2}, {5, 1}), "accepted");
  EXPECT_THAT(zeros("nbits_4_zeros", {5, 2, 16}, {5, 2}, {5, 2}), HasSubstr("x3.shape[1]: 2, expected 1"));
  EXPECT_THAT(zeros("nbits_4_zeros", {5, 2, 16}, {5, 2}, {4, 1}), HasSubstr("x3.shape[0]: 4, expected 5"));
  EXPECT_THAT(zeros("nbits_4_zeros", {5, 2, 16}, {5, 2}, {5}), HasSubstr("1 dimensions, expected 2"));
  EXPECT_THAT(zeros("nbits_8_zeros", {5, 2, 32}, {5, 2}, {5, 3}), HasSubstr("x3.shape[1]: 3, expected 2"));
  EXPECT_THAT(zeros("nbits_8_zeros", {5, 2, 32}, {5, 2}, {5, 2}, DType::f32), HasSubstr("x3: dtype f32, expected u8"));
  EXPECT_EQ(zeros("nbits_8_float_zeros", {5, 2, 32}, {5, 2}, {5, 2}, DType::f16), "accepted");
  EXPECT_THAT(zeros("nbits_4_float_zeros", {5, 2, 16}, {5, 2}, {5, 1}, DType::f32),
              HasSubstr("x3.shape[1]: 1, expected 2"));
  for (const char* format : {"gptq", "gptq_v2", "awq"}) {
    const std::vector<int64_t> q =
        format == std::string("awq") ? std::vector<int64_t>{64, 3} : std::vector<int64_t>{8, 24};
    EXPECT_EQ(zeros(format, q, {2, 24}, {2, 3}), "accepted") << format;
    EXPECT_THAT(zeros(format, q, {2, 24}, {1, 3}), HasSubstr("x3.shape[0]: 1, expected 2")) << format;
    EXPECT_THAT(zeros(format, q, {2, 24}, {2, 24}), HasSubstr("x3.shape[1]: 24, expected 3")) << format;
    EXPECT_THAT(zeros(format, q, {2, 24}, {2, 3, 1}), HasSubstr("3 dimensions, expected 2")) << format;
    EXPECT_THAT(zeros(format, q, {3, 24}, {2, 3}), HasSubstr("x2.shape[0]: 3, expected 2")) << format;
  }
  EXPECT_EQ(refusal(mm, "q5_0", 0, {{DType::f32, {2, 64}}, {DType::u8, {5, 44}}}), "accepted");
  EXPECT_THAT(refusal("dequantize", "q4_k", 0, {{DType::u8, {5, 36}}}), HasSubstr("expected a multiple of 256"));
  EXPECT_THAT(refusal("dequantize", "q4_0", 0, {{DType::u8, {5}}}), HasSubstr("1 dimensions, expected 2"));
  EXPECT_EQ(refusal("dequantize", "q4_0", 0, {{DType::u8, {5, 36}}}), "accepted");
}

TEST(QuantFormats, refusals_of_several_weights_name_the_operand_and_what_was_expected) {
  using ir::DType;
  using Operands = std::vector<std::pair<DType, std::vector<int64_t>>>;
  const std::string groups = "quantized_grouped_matmul", experts = "quantized_expert_matmul";
  const auto of = [](std::vector<int64_t> a, std::vector<int64_t> w, std::vector<int64_t> integers) {
    return Operands{{DType::f32, a}, {DType::u8, w}, {DType::i32, integers}};
  };
  EXPECT_EQ(refusal(groups, "q4_0", 0, of({6, 64}, {3, 5, 36}, {4})), "accepted");
  EXPECT_EQ(refusal(experts, "q4_0", 0, of({6, 1, 64}, {3, 5, 36}, {6, 2})), "accepted");
  EXPECT_EQ(refusal(experts, "q4_0", 0, of({6, 64}, {3, 5, 36}, {6})), "accepted");
  EXPECT_THAT(refusal(groups, "q4_0", 0, of({6, 64}, {3, 5, 36}, {3})),
              HasSubstr("x2.shape[0]: 3, expected 4 (one more than the weights of x1)"));
  EXPECT_THAT(refusal(groups, "q4_0", 0, of({6, 64}, {3, 5, 35}, {4})), HasSubstr("x1.shape[2]: 35, expected 36"));
  EXPECT_THAT(refusal(groups, "q4_0", 0, of({6, 64}, {5, 36}, {6})), HasSubstr("2 dimensions, expected 3 (q4_0)"));
  EXPECT_THAT(refusal(groups, "q4_0", 0, of({6, 64}, {0, 5, 36}, {1})), HasSubstr("a fixed number of weights"));
  EXPECT_THAT(refusal(groups, "q4_0", 0, of({6, 48}, {3, 5, 36}, {4})), HasSubstr("K 48, expected a multiple of 32"));
  EXPECT_THAT(refusal(experts, "q4_0", 0, of({5, 64}, {3, 5, 36}, {6})),
              HasSubstr("x0.shape[0]: 5, expected 6 (of x2)"));
  EXPECT_THAT(refusal(experts, "q9", 0, of({6, 64}, {3, 5, 36}, {6})), HasSubstr("expected one of q4_0"));
  EXPECT_THAT(refusal(groups, "q4_0", 0, {{DType::f32, {6, 64}}, {DType::u8, {3, 5, 36}}, {DType::f32, {4}}}),
              HasSubstr("x2: dtype f32, expected i32 or i64"));
  EXPECT_THAT(refusal(experts, "nbits_8", 32,
                      {{DType::f32, {6, 64}}, {DType::u8, {3, 5, 2, 32}}, {DType::f32, {2, 5, 2}}, {DType::i32, {6}}}),
              HasSubstr("x2.shape[0]: 2, expected 3 (the weights of x1)"));
  const std::vector<std::pair<DType, std::vector<int64_t>>> ordered = {
      {DType::f32, {6, 64}},   {DType::i32, {3, 8, 16}}, {DType::f16, {3, 2, 16}},
      {DType::i32, {3, 2, 2}}, {DType::i32, {64}},       {DType::i32, {4}}};
  for (const std::string& op : {groups, experts}) {
    EXPECT_THAT(refusal(op, "gptq", 32, ordered),
                HasSubstr("4 operands hold the weight, expected 3 (gptq: weights to choose from take no g_idx)"));
  }
}

}  // namespace
}  // namespace lathe::ops::testing
