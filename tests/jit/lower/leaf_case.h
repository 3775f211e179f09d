// A leaf in text, run by the interpreter and by a leaf program on the same data; used by every test
// of lowering and of the generators. Operands sit in buffers with a border of sentinels: what lies
// outside an operand's elements must not change.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ir/core/text_form.h"
#include "ir/meaning/interpreter.h"
#include "jit/lower/lower.h"
#include "jit/program/leaf_program.h"
#include "tests/jit/x64/x64_test_util.h"

namespace lathe::jit {

// Logical sizes of an operand as the leaf indexes it, and its strides in elements.
struct OperandShape {
  std::vector<int64_t> dims, strides;
};

enum class Data { integers, normal, positive };

inline ir::Target test_target(ir::IsaLevel level) {
  ir::Target t;
  t.level = level;
  if (level == ir::IsaLevel::avx512) {
    t.lanes = 16;
    t.vector_registers = 32;
    t.mask_registers = 7;
  }
  return t;
}
// The portable level twice: as 8 and as 16 lanes.
inline std::vector<ir::Target> test_targets() {
  ir::Target wide = test_target(ir::IsaLevel::avx512);
  wide.level = ir::IsaLevel::portable;
  return {test_target(ir::IsaLevel::avx512), test_target(ir::IsaLevel::avx2), test_target(ir::IsaLevel::portable),
          wide};
}

// Text of a statement at every element of a tile: row M, column N, in whole vectors of which the last is masked. Its
// loops are i<first> of rows, i<first + 1> of vectors and i<first + 2> of lanes; each line starts with `indent`.
inline std::string tile_text(const std::string& indent, int first, int64_t rows, int64_t columns, int lanes,
                             std::string statement) {
  const std::string m = fmt::format("i{}", first), v = fmt::format("i{}", first + 1), l = fmt::format("i{}", first + 2);
  for (size_t at; (at = statement.find('M')) != std::string::npos;) statement.replace(at, 1, m);
  for (size_t at; (at = statement.find('N')) != std::string::npos;)
    statement.replace(at, 1, fmt::format("{} + {}*{}", l, lanes, v));
  return fmt::format(
      "{0}for {1} < {2} @unroll:\n{0}  for {3} < {4} @unroll:\n{0}    for {5} < min({6}, {7} - {6}*{3}) @vector:\n{0}"
      "      {8}\n",
      indent, m, rows, v, (columns + lanes - 1) / lanes, l, lanes, columns, statement);
}

class LeafCase {
 public:
  LeafCase(const std::string& text, std::vector<OperandShape> shapes, ir::SymbolValues symbols,
           Data data = Data::integers, uint32_t seed = 1)
      : shapes_(std::move(shapes)), symbols_(std::move(symbols)) {
    auto parsed = ir::parse_kernel(text);
    EXPECT_TRUE(parsed.ok()) << parsed.status().to_string() << "\n" << text;
    if (!parsed.ok()) return;
    leaf_ = *parsed;
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (const OperandShape& s : shapes_) {
      int64_t extent = 1;
      bool empty = false;
      for (size_t d = 0; d < s.dims.size(); ++d) {
        extent += (s.dims[d] - 1) * s.strides[d];
        empty |= s.dims[d] == 0;
      }
      std::vector<float> buffer((empty ? 0 : extent) + 2 * kBorder);
      for (size_t i = 0; i < buffer.size(); ++i) {
        const float border = -1e30f - 1e27f * static_cast<float>(i % 5);
        const bool inside = i >= kBorder && i < buffer.size() - kBorder;
        buffer[i] = !inside                  ? border
                    : data == Data::integers ? static_cast<float>(static_cast<int>(rng() % 9) - 4)
                    : data == Data::positive ? 0.5f + std::abs(normal(rng))
                                             : normal(rng);
      }
      start_.push_back(std::move(buffer));
    }
    buffers_ = start_;
  }

  const ir::Kernel& leaf() const { return leaf_; }
  std::vector<float>& data(int operand) { return start_[operand]; }
  static constexpr size_t kBorder = 48;

  // Fills args for the current buffers (reset to the start data).
  ir::LeafArgs args(std::vector<ir::LeafSeg>* segs) {
    buffers_ = start_;
    ir::LeafArgs a{};
    for (size_t i = 0; i < shapes_.size(); ++i) {
      a.op[i].ptr = reinterpret_cast<char*>(buffers_[i].data() + kBorder);
      for (size_t d = 0; d < shapes_[i].strides.size() && d < ir::kMaxLeafStrides; ++d) {
        a.op[i].stride[d] = shapes_[i].strides[d] * 4;
      }
    }
    for (const auto& [name, value] : symbols_) {
      if (name[0] == 'e') a.extent[name[1] - '0'] = value;
    }
    if (segs->empty()) segs->push_back({0, 0, symbols_.value_or("seglen", 0), 0, 0});
    a.nseg = static_cast<int64_t>(segs->size());
    a.seg = segs->data();
    for (ir::LeafStream& s : a.stream) s = {a.op[0].ptr, 64, 0, nullptr};
    return a;
  }

  // Interprets the leaf; buffers after it, strides applied.
  std::vector<std::vector<float>> expected(ir::Arithmetic arithmetic = ir::Arithmetic::native) const {
    ir::Kernel k = leaf_;
    std::map<std::string, ir::Tensor> tensors;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      ir::Buffer& b = k.buffers[i];
      for (size_t d = 0; d < b.dims.size(); ++d) b.dims[d] = ir::Expr(shapes_[i].dims[d]);
      b.strides.clear();
      ir::Tensor t;
      t.dims = shapes_[i].dims;
      each(shapes_[i], [&](int64_t at) { t.data.push_back(start_[i][kBorder + at]); });
      tensors[b.name] = std::move(t);
    }
    const ir::Status s = ir::interpret(k, symbols_, tensors, {.arithmetic = arithmetic, .keep_contents = true});
    EXPECT_TRUE(s.ok()) << s.to_string() << "\n" << ir::print(k);
    std::vector<std::vector<float>> out = start_;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      if (k.buffers[i].place != ir::Place::out) continue;
      size_t n = 0;
      const ir::Tensor& t = tensors[k.buffers[i].name];
      each(shapes_[i], [&](int64_t at) { out[i][kBorder + at] = static_cast<float>(t.data[n++]); });
    }
    return out;
  }

  ir::Result<LeafProgram> lower(const ir::Target& target) const { return lower_leaf(leaf_, target); }

  std::vector<std::vector<float>> run(const LeafProgram& p, std::vector<ir::LeafSeg> segs = {}) {
    const ir::LeafArgs a = args(&segs);
    execute_portable(p, a);
    return buffers_;
  }
  const std::vector<std::vector<float>>& buffers() const { return buffers_; }

  // Empty if every element of got is within rel * |want| + abs of want (NaN equals NaN), and all
  // others are untouched.
  static std::string compare(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& want,
                             double rel = 0, double abs = 0) {
    for (size_t b = 0; b < got.size(); ++b) {
      for (size_t i = 0; i < got[b].size(); ++i) {
        const double g = got[b][i], w = want[b][i];
        if (g == w || (std::isnan(g) && std::isnan(w)) || std::abs(g - w) <= rel * std::abs(w) + abs) continue;
        return fmt::format("operand {} element {}: {}, expected {}", b,
                           static_cast<int64_t>(i) - static_cast<int64_t>(kBorder), g, w);
      }
    }
    return {};
  }

 private:
  static void each(const OperandShape& s, const std::function<void(int64_t)>& f) {
    std::vector<int64_t> index(s.dims.size());
    for (int64_t d : s.dims) {
      if (d == 0) return;
    }
    while (true) {
      int64_t at = 0;
      for (size_t d = 0; d < index.size(); ++d) at += index[d] * s.strides[d];
      f(at);
      size_t d = index.size();
      while (d > 0 && ++index[d - 1] == s.dims[d - 1]) index[--d] = 0;
      if (d == 0) return;
    }
  }

  ir::Kernel leaf_;
  std::vector<OperandShape> shapes_;
  ir::SymbolValues symbols_;
  std::vector<std::vector<float>> start_, buffers_;
};

// Runs the program as machine code, where the machine can, and compares bits with the last run() of
// it. A refusal of the generator is a difference, unless `refused` counts it.
inline std::string x64_difference(LeafCase& c, const LeafProgram& p, int* refused = nullptr) {
  if (p.level == ir::IsaLevel::portable || !x64_test::can_run({p.level, p.lanes})) return {};
  if (!backend_built(Backend::xbyak)) return {};
  const std::vector<std::vector<float>> want = c.buffers();
  const auto image = compile_xbyak(p);
  if (!image.ok() && refused && image.status().code() == ir::Code::kUNSUPPORTED) {
    ++*refused;
    return {};
  }
  if (!image.ok()) return image.status().to_string();
  const auto code = x64_test::loader().load(*image);
  if (!code.ok()) return code.status().to_string();
  std::vector<ir::LeafSeg> segs;
  const ir::LeafArgs args = c.args(&segs);
  x64_test::call(code->entry, args);
  for (size_t b = 0; b < want.size(); ++b) {
    const int64_t at = x64_test::difference(want[b], c.buffers()[b]);
    if (at < 0) continue;
    const auto i = static_cast<size_t>(at);
    return fmt::format("operand {} element {}: x64 {}, portable {}", b, at - static_cast<int64_t>(LeafCase::kBorder),
                       c.buffers()[b][i], want[b][i]);
  }
  return {};
}

// Compiles the program as machine code and runs it where the host has its features: operand `result`, which holds
// `before`, must become `want`, what the portable executor wrote.
template <class T>
void expect_code_writes(const LeafProgram& p, ir::LeafArgs args, int result, std::vector<T> before,
                        const std::vector<T>& want) {
  if (p.level == ir::IsaLevel::portable || !backend_built(Backend::xbyak)) return;
  const auto image = compile_xbyak(p);
  ASSERT_TRUE(image.ok()) << image.status().to_string() << to_text(p);
  if ((p.features() & ~host_features()) != 0) return;
  const auto code = x64_test::loader().load(*image);
  ASSERT_TRUE(code.ok()) << code.status().to_string();
  args.op[result].ptr = reinterpret_cast<char*>(before.data());
  x64_test::call(code->entry, args);
  ASSERT_EQ(before, want) << to_text(p);
}

// Lowers for every test target, runs, compares with the interpreter; the x64 generator must give
// the same bits.
inline void expect_leaf(LeafCase& c, double rel = 0, double abs = 0) {
  const auto want = c.expected();
  for (const ir::Target& t : test_targets()) {
    auto p = c.lower(t);
    ASSERT_TRUE(p.ok()) << p.status().to_string() << "\n" << ir::print(c.leaf());
    const std::string difference = LeafCase::compare(c.run(*p), want, rel, abs);
    ASSERT_EQ(difference, "") << ir::isa_name(t.level) << " " << t.lanes << "\n" << ir::print(c.leaf()) << to_text(*p);
    int refused = 0;  // many rows of two wide vectors do not fit AVX2's registers
    const std::string x64 = x64_difference(c, *p, t.level == ir::IsaLevel::avx2 ? &refused : nullptr);
    ASSERT_EQ(x64, "") << ir::isa_name(t.level) << " " << t.lanes << "\n" << ir::print(c.leaf()) << to_text(*p);
  }
}

}  // namespace lathe::jit
