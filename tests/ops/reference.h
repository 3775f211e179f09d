// Operators computed directly in f64 from their definitions, one node at a time on whole tensors:
// what lowered Kernels are compared with. Shares no code with the ops floor but the graph itself.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ir/analysis/analysis.h"
#include "ir/analysis/verifier.h"
#include "ir/meaning/interpreter.h"
#include "ops/lower.h"
#include "ops/op_table.h"
#include "tests/ops/quant_reference.h"
#include "tests/ops/reference_models.h"

namespace lathe::ops::testing {

inline double point(const Node& n, const std::vector<double>& v) {
  const std::string& op = n.op;
  const double x = v[0], y = v.size() > 1 ? v[1] : 0;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto gelu = [&](double t) {
    return get<std::string>(n, "approximate", "none") == "tanh"
               ? 0.5 * t * (1 + std::tanh(std::sqrt(2 / M_PI) * (t + 0.044715 * t * t * t)))
               : 0.5 * t * std::erfc(-t / std::sqrt(2.0));
  };
  const auto sigmoid = [](double t) { return 1 / (1 + std::exp(-t)); };
  if (op == "add") return x + y;
  if (op == "sub") return x - y;
  if (op == "mul") return x * y;
  if (op == "div") return x / y;
  if (op == "minimum") return x != x || y != y ? nan : std::min(x, y);
  if (op == "maximum") return x != x || y != y ? nan : std::max(x, y);
  if (op == "neg") return -x;
  if (op == "abs") return std::fabs(x);
  if (op == "exp") return std::exp(x);
  if (op == "log") return std::log(x);
  if (op == "sqrt") return std::sqrt(x);
  if (op == "rsqrt") return 1 / std::sqrt(x);
  if (op == "tanh") return std::tanh(x);
  if (op == "erf") return std::erf(x);
  if (op == "sigmoid") return sigmoid(x);
  if (op == "sin") return std::sin(x);
  if (op == "cos") return std::cos(x);
  if (op == "floor") return std::floor(x);
  if (op == "round") return std::nearbyint(x);
  if (op == "relu") return x != x ? nan : std::max(x, 0.0);
  if (op == "gelu") return gelu(x);
  if (op == "silu") return x * sigmoid(x);
  if (op == "scale") return x * get<double>(n, "value", 0);
  if (op == "add_scalar") return x + get<double>(n, "value", 0);
  if (op == "swiglu") return x * sigmoid(x) * y;
  if (op == "geglu") return gelu(x) * y;
  if (op == "where") return x != 0 ? y : v[2];
  if (op == "cast") {
    const ir::DType to = *ir::parse_dtype(get<std::string>(n, "to", ""));
    return ir::is_float(to) ? x : ir::round_to(to, x);
  }
  ADD_FAILURE() << "no reference for " << op;
  return nan;
}

inline void matmul(const Node& n, const Tensor& a, const Tensor& b, Tensor& y) {
  const bool ta = get(n, "transpose_a", false), tb = get(n, "transpose_b", false);
  const int64_t depth = a.dims[a.dims.size() - (ta ? 2 : 1)];
  for (size_t i = 0; i < y.data.size(); ++i) {
    const std::vector<int64_t> index = unravel(static_cast<int64_t>(i), y.dims);
    const int64_t row = index[index.size() - 2], col = index.back();
    std::vector<int64_t> ia = index, ib = index;
    double sum = 0;
    for (int64_t k = 0; k < depth; ++k) {
      ia[ia.size() - 2] = ta ? k : row;
      ia.back() = ta ? row : k;
      ib[ib.size() - 2] = tb ? col : k;
      ib.back() = tb ? k : col;
      sum += at(a, ia) * at(b, ib);
    }
    y.data[i] = sum;
  }
}

// Each byte less its zero point.
inline void matmul_integer(const Node& n, const std::vector<const Tensor*>& in, Tensor& y) {
  Tensor a = *in[0], b = *in[1];
  const bool turned = get(n, "transpose_b", false);
  for (double& v : a.data) v -= in.size() > 2 ? in[2]->data[0] : 0;
  for (size_t i = 0; i < b.data.size() && in.size() > 3; ++i) {
    const std::vector<int64_t> index = unravel(static_cast<int64_t>(i), b.dims);
    const int64_t column = index[index.size() - (turned ? 2 : 1)];
    b.data[i] -= in[3]->data[in[3]->data.size() == 1 ? 0 : static_cast<size_t>(column)];
  }
  matmul(n, a, b, y);
}

inline void row(const Node& n, const std::vector<const Tensor*>& in, Tensor& y) {
  const Tensor& x = *in[0];
  const int64_t width = x.dims.back(), rows = width == 0 ? count({x.dims.begin(), x.dims.end() - 1})
                                                         : static_cast<int64_t>(x.data.size()) / width;
  for (int64_t r = 0; r < rows; ++r) {
    const double* s = x.data.data() + r * width;
    double sum = 0, squares = 0, top = -std::numeric_limits<double>::infinity();
    bool nan = false;
    for (int64_t i = 0; i < width; ++i) {
      sum += s[i];
      squares += s[i] * s[i];
      top = std::max(top, s[i]);
      nan = nan || s[i] != s[i];
    }
    const double mean = sum / static_cast<double>(width), eps = get<double>(n, "epsilon", 1e-5);
    if (n.op == "sum") y.data[r] = sum;
    if (n.op == "mean") y.data[r] = mean;
    if (n.op == "max") y.data[r] = nan ? std::numeric_limits<double>::quiet_NaN() : top;
    double spread = 0, weights = 0;
    for (int64_t i = 0; i < width; ++i) {
      spread += (s[i] - mean) * (s[i] - mean);
      weights += std::exp(s[i] - top);
    }
    for (int64_t i = 0; i < width; ++i) {
      const double g = in.size() > 1 ? in[1]->data[i] : 1, h = in.size() > 2 ? in[2]->data[i] : 0;
      const double w = static_cast<double>(width);
      if (n.op == "softmax") y.data[r * width + i] = std::exp(s[i] - top) / weights;
      if (n.op == "layernorm") y.data[r * width + i] = (s[i] - mean) / std::sqrt(spread / w + eps) * g + h;
      if (n.op == "rmsnorm") y.data[r * width + i] = s[i] / std::sqrt(squares / w + eps) * g;
    }
  }
}

inline void argmax(const Tensor& x, Tensor& y) {
  const int64_t width = x.dims.back();
  for (size_t r = 0; r < y.data.size(); ++r) {
    const double* s = x.data.data() + static_cast<int64_t>(r) * width;
    int64_t best = -1;
    for (int64_t i = 0; i < width; ++i) {
      if (best >= 0 && std::isnan(s[best])) break;
      if (best < 0 || s[i] > s[best] || std::isnan(s[i])) best = i;
    }
    y.data[r] = static_cast<double>(best);
  }
}

// Indices are given back; values go to y.
inline Tensor top_k(const Tensor& x, Tensor& y) {
  const int64_t width = x.dims.back(), k = y.dims.back();
  Tensor indices{y.dims, std::vector<double>(y.data.size(), -1)};
  std::fill(y.data.begin(), y.data.end(), -std::numeric_limits<double>::infinity());
  for (int64_t r = 0; k > 0 && r < static_cast<int64_t>(y.data.size()) / k; ++r) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < width; ++i) {
      if (!std::isnan(x.data[r * width + i])) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return x.data[r * width + a] > x.data[r * width + b]; });
    for (int64_t i = 0; i < std::min<int64_t>(k, std::ssize(order)); ++i) {
      indices.data[r * k + i] = static_cast<double>(order[i]);
      y.data[r * k + i] = x.data[r * width + order[i]];
    }
  }
  return indices;
}

inline void cumsum(const Tensor& x, int64_t axis, Tensor& y) {
  const size_t along = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(x.dims.size()) : axis);
  int64_t behind = 1;
  for (size_t d = along + 1; d < x.dims.size(); ++d) behind *= x.dims[d];
  for (int64_t i = 0; i < static_cast<int64_t>(y.data.size()); ++i) {
    const bool first = i / behind % x.dims[along] == 0;
    y.data[static_cast<size_t>(i)] =
        x.data[static_cast<size_t>(i)] + (first ? 0 : y.data[static_cast<size_t>(i - behind)]);
  }
}

inline void rope(const Node& n, const std::vector<const Tensor*>& in, Tensor& y) {
  const int64_t d = y.dims.back(), heads = y.dims[y.dims.size() - 2], tokens = y.dims[y.dims.size() - 3];
  const int64_t half = in[1]->dims[1];
  const bool interleaved = get(n, "interleaved", false);
  y.data = in[0]->data;
  for (size_t v = 0; v * d < y.data.size(); ++v) {
    const int64_t token = static_cast<int64_t>(v) / heads;  // of the whole batch
    int64_t t = token % tokens;
    if (in.size() > 3) t = static_cast<int64_t>(in[3]->data[in[3]->dims.size() == 1 ? t : token]);
    for (int64_t p = 0; p < half; ++p) {
      const double c = in[1]->data[t * half + p], s = in[2]->data[t * half + p];
      const int64_t i = static_cast<int64_t>(v) * d + (interleaved ? 2 * p : p), j = interleaved ? i + 1 : i + half;
      y.data[i] = in[0]->data[i] * c - in[0]->data[j] * s;
      y.data[j] = in[0]->data[i] * s + in[0]->data[j] * c;
    }
  }
}

inline void quantised(const Node& n, const std::vector<const Tensor*>& in, Tensor& y) {
  const bool multiplies = n.op == "quantized_matmul", gathers = n.op == "quantized_gather";
  std::vector<QuantOperand> operands;
  for (size_t i = multiplies ? 1 : 0; i + (gathers ? 1 : 0) < in.size(); ++i)
    operands.push_back({in[i]->dims, &in[i]->data});
  const QuantReference w(get<std::string>(n, "format", ""), get<int64_t>(n, "group", 0), operands);
  const int64_t columns = y.dims.back(), depth = multiplies ? in[0]->dims.back() : 0;
  for (int64_t i = 0; i < static_cast<int64_t>(y.data.size()); ++i) {
    const int64_t row = gathers ? static_cast<int64_t>(in.back()->data[static_cast<size_t>(i / columns)]) : i / columns;
    double& out = y.data[static_cast<size_t>(i)] = multiplies ? 0 : w.weight(row, i % columns);
    for (int64_t k = 0; k < depth; ++k)
      out += in[0]->data[static_cast<size_t>(i / columns * depth + k)] * w.weight(i % columns, k);
  }
}

// Several weights: each operand has as many parts, one after another.
inline void quantised_chosen(const Node& n, const std::vector<const Tensor*>& in, Tensor& y) {
  const int64_t weights = in[1]->dims[0], columns = y.dims.back(), depth = in[0]->dims.back();
  const Tensor& integers = *in.back();
  for (int64_t e = 0; e < weights; ++e) {
    std::vector<Tensor> parts;
    for (size_t i = 1; i + 1 < in.size(); ++i) {
      const int64_t size = static_cast<int64_t>(in[i]->data.size()) / weights;
      const auto first = in[i]->data.begin() + e * size;
      parts.push_back({{in[i]->dims.begin() + 1, in[i]->dims.end()}, {first, first + size}});
    }
    std::vector<QuantOperand> operands;
    for (const Tensor& part : parts) operands.push_back({part.dims, &part.data});
    const QuantReference w(get<std::string>(n, "format", ""), get<int64_t>(n, "group", 0), operands);
    for (int64_t row = 0; columns > 0 && row < static_cast<int64_t>(y.data.size()) / columns; ++row) {
      std::vector<int64_t> index = unravel(row * columns, y.dims);
      index.pop_back();
      const bool mine = n.op == "quantized_grouped_matmul" ? at(integers, {e}) <= static_cast<double>(row) &&
                                                                 static_cast<double>(row) < at(integers, {e + 1})
                                                           : at(integers, index) == static_cast<double>(e);
      if (!mine) continue;
      index.push_back(0);
      for (int64_t c = 0; c < columns; ++c) {
        double& out = y.data[static_cast<size_t>(row * columns + c)] = 0;
        for (index.back() = 0; index.back() < depth; ++index.back())
          out += at(*in[0], index) * w.weight(c, index.back());
      }
    }
  }
}

inline Tensor reference(const Node& n, const std::vector<const Tensor*>& in, const std::vector<int64_t>& dims) {
  Tensor y{dims, std::vector<double>(static_cast<size_t>(count(dims)))};
  if (n.op == "matmul") {
    matmul(n, *in[0], *in[1], y);
  } else if (n.op == "matmul_integer") {
    matmul_integer(n, in, y);
  } else if (n.op == "quantized_matmul" || n.op == "dequantize" || n.op == "quantized_gather") {
    quantised(n, in, y);
  } else if (n.op == "quantized_expert_matmul" || n.op == "quantized_grouped_matmul") {
    quantised_chosen(n, in, y);
  } else if (n.op == "attention" || n.op == "cached_attention" || n.op == "paged_attention") {
    attention(n, in, y);
  } else if (n.op == "ragged_attention") {
    ragged_attention(n, in, y);
  } else if (n.op == "grouped_matmul") {
    groups(n, in, y);
  } else if (n.op == "expert_matmul") {
    experts(n, in, y);
  } else if (n.op == "gather") {
    for (size_t i = 0; i < y.data.size(); ++i) {
      std::vector<int64_t> index = unravel(static_cast<int64_t>(i), dims);
      const int64_t column = index.back();
      index.pop_back();
      y.data[i] = at(*in[0], {static_cast<int64_t>(at(*in[1], index)), column});
    }
  } else if (n.op == "rope") {
    rope(n, in, y);
  } else if (n.op == "argmax") {
    argmax(*in[0], y);
  } else if (n.op == "cumsum") {
    cumsum(*in[0], get(n, "axis", int64_t{-1}), y);
  } else if (n.op == "copy") {
    y.data = in[0]->data;
  } else if (n.op == "transpose") {
    const auto perm = get<std::vector<int64_t>>(n, "perm", {});
    for (size_t i = 0; i < y.data.size(); ++i) {
      const auto index = unravel(static_cast<int64_t>(i), dims);
      std::vector<int64_t> source(index.size());
      for (size_t d = 0; d < perm.size(); ++d) source[perm[d]] = index[d];
      y.data[i] = at(*in[0], source);
    }
  } else if (n.op == "softmax" || n.op == "layernorm" || n.op == "rmsnorm" || n.op == "sum" || n.op == "max" ||
             n.op == "mean") {
    row(n, in, y);
  } else {
    for (size_t i = 0; i < y.data.size(); ++i) {
      std::vector<double> v;
      for (const Tensor* t : in) v.push_back(at(*t, unravel(static_cast<int64_t>(i), dims)));
      y.data[i] = point(n, v);
    }
  }
  return y;
}

using Tensors = std::map<int, Tensor>;  // by tensor of the finished graph

// Adds all results to `values`, which holds the inputs.
inline void run_reference(const Graph& g, const Sizes& sizes, Tensors& values) {
  for (const Node& n : g.nodes) {
    std::vector<const Tensor*> in;
    for (int t : n.inputs) in.push_back(&values.at(t));
    if (is_update(g, n.output)) {
      Tensor y{sizes_of(g.tensors[n.output].dims, sizes), {}};
      kv_append(n, in, is_updated(g, n.inputs[3]) ? &values.at(n.inputs[3]) : nullptr, y);
      values[n.output] = std::move(y);
      continue;
    }
    if (!n.also.empty()) {
      Tensor y{sizes_of(g.tensors[n.output].dims, sizes), {}};
      y.data.resize(static_cast<size_t>(count(y.dims)));
      values[n.also[0]] = top_k(*in[0], y);
      values[n.output] = std::move(y);
      continue;
    }
    values[n.output] = reference(n, in, sizes_of(g.tensors[n.output].dims, sizes));
  }
}

// Each parameter's view reaches the same memory as the tensor, element by element in row-major
// order.
inline void check_views(const Graph& g, const LoweredKernel& k, const Sizes& sizes) {
  const auto offsets = [&](const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) {
    std::vector<int64_t> out;
    for (int64_t i = 0; i < count(dims); ++i) {
      const auto index = unravel(i, dims);
      out.push_back(strides.empty() ? i : std::inner_product(index.begin(), index.end(), strides.begin(), int64_t{0}));
    }
    return out;
  };
  for (size_t p = 0; p < k.params.size(); ++p) {
    const TensorDesc& t = g.tensors[k.params[p].tensor];
    const ir::Buffer& b = k.kernel.buffers[p];
    if (k.params[p].part) continue;  // a view of its own
    EXPECT_EQ(offsets(sizes_of(ir::given_dims(b), sizes), sizes_of(b.strides, sizes)),
              offsets(sizes_of(t.dims, sizes), sizes_of(t.strides, sizes)))
        << k.kernel.name << " " << b.name;
    EXPECT_EQ(ir::given_type(b), t.dtype);
  }
}

// The elements of a parameter that is part of a tensor of bytes.
inline std::vector<double> part_of(const Tensor& bytes, const ir::Buffer& b, int64_t offset, const Sizes& sizes) {
  std::vector<double> out;
  const std::vector<int64_t> dims = sizes_of(ir::given_dims(b), sizes), strides = sizes_of(b.strides, sizes);
  for (int64_t i = 0; i < count(dims); ++i) {
    const auto index = unravel(i, dims);
    const int64_t element = std::inner_product(index.begin(), index.end(), strides.begin(), int64_t{0});
    const auto at = static_cast<size_t>(offset + element * ir::dtype_bytes(b.type));
    const auto byte = [&](size_t j) { return static_cast<int>(bytes.data[at + j]); };
    double v = byte(0);
    if (b.type == ir::DType::i8) v = static_cast<int8_t>(byte(0));
    if (b.type == ir::DType::f16) v = ir::f16_to_f32(static_cast<uint16_t>(byte(0) | byte(1) << 8));
    out.push_back(v);
  }
  return out;
}

// Runs the Kernels by the interpreter; adds what they write to `values`.
inline void run_lowered(const Graph& g, const Lowered& lowered, const Sizes& sizes, Tensors& values) {
  for (const LoweredKernel& k : lowered.kernels) {
    const ir::Status valid = ir::verify(k.kernel);
    ASSERT_TRUE(valid.ok()) << valid.to_string();
    ASSERT_EQ(k.kernel.num_params(), static_cast<int>(k.params.size()));
    check_views(g, k, sizes);
    std::map<std::string, Tensor> buffers;
    for (size_t p = 0; p < k.params.size(); ++p) {
      const ir::Buffer& b = k.kernel.buffers[p];
      Tensor t{sizes_of(ir::given_dims(b), sizes), {}};
      if (b.place == ir::Place::out && !b.kept) {
        t.data.assign(static_cast<size_t>(count(t.dims)), std::numeric_limits<double>::quiet_NaN());
      } else {
        ASSERT_TRUE(values.count(k.params[p].tensor)) << "read before it is written";
        const Tensor& whole = values.at(k.params[p].tensor);
        const bool field = k.params[p].part && !b.strides.empty();  // else another reading of all of it
        t.data = field ? part_of(whole, b, k.params[p].offset, sizes) : whole.data;
      }
      buffers[b.name] = std::move(t);
    }
    Sizes symbols;
    for (const ir::Symbol& s : k.kernel.symbols) symbols[s.name] = sizes.at(s.name);
    ir::InterpreterOptions options;
    options.arithmetic = ir::Arithmetic::real;
    const ir::Status ran = ir::interpret(k.kernel, symbols, buffers, options);
    ASSERT_TRUE(ran.ok()) << ran.to_string();
    for (size_t p = 0; p < k.params.size(); ++p) {
      const ir::Buffer& b = k.kernel.buffers[p];
      int out = k.params[p].tensor;
      for (const Node& n : g.nodes) {
        if (b.kept && is_update(g, n.output) && n.inputs[2] == out) out = n.output;
      }
      if (b.place == ir::Place::out) values[out] = {sizes_of(g.tensors[out].dims, sizes), buffers.at(b.name).data};
    }
  }
}

inline void expect_near(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.data.size(), want.data.size()) << what;
  for (size_t i = 0; i < want.data.size(); ++i) {
    const double g = got.data[i], w = want.data[i];
    if (w != w || std::isinf(w)) {
      ASSERT_TRUE(w != w ? g != g : g == w) << what << " element " << i << ": " << g << ", expected " << w;
    } else {
      ASSERT_NEAR(g, w, 2e-6 * std::max(1.0, std::fabs(w))) << what << " element " << i;
    }
  }
}

}  // namespace lathe::ops::testing
