// One graph through finish(), lower() and the interpreter on random inputs, against the f64 computation of reference.h.
#pragma once
#include <random>

#include "tests/ops/reference.h"

namespace lathe::ops::testing {

// A random graph's inputs. Values in [-2, 2]; positive where an operator needs it; masks are 0
// or 1.
inline Tensors random_inputs(const Graph& g, const Sizes& sizes, std::mt19937& rng, bool positive = false) {
  Tensors out;
  const bool words = std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) {
    return n.op.starts_with("quantized_") || n.op == "dequantize";  // all bits are weights
  });
  for (int t : g.inputs) {
    Tensor v{sizes_of(g.tensors[t].dims, sizes), {}};
    std::uniform_real_distribution<float> dist(positive ? 0.1f : -2.0f, 2.0f);
    for (int64_t i = count(v.dims); i > 0; --i) {
      const ir::DType type = g.tensors[t].dtype;
      if (type == ir::DType::i32 && words) {
        v.data.push_back(static_cast<int32_t>(rng()));
      } else {
        v.data.push_back(ir::is_float(type) ? dist(rng) : ir::round_to(type, static_cast<double>(rng() % 100)));
      }
    }
    out[t] = std::move(v);
  }
  return out;
}

// Integers of which a Kernel states the range are in it, which begins at 0.
inline void keep_ranges(const Lowered& lowered, const Sizes& sizes, Tensors& inputs) {
  for (const LoweredKernel& k : lowered.kernels) {
    for (size_t p = 0; p < k.params.size(); ++p) {
      const ir::ValueRange& values = k.kernel.buffers[p].values;
      if (!values) continue;
      for (double& v : inputs.at(k.params[p].tensor).data)
        v = std::fmod(std::fabs(v), static_cast<double>(size_of(values.hi, sizes) + 1));
    }
  }
}

inline void check(const Graph& graph, const Sizes& sizes = {}, bool positive = false) {
  const auto finished = finish(graph);
  ASSERT_TRUE(finished.ok()) << finished.status().to_string();
  const auto lowered = lower(*finished);
  ASSERT_TRUE(lowered.ok()) << lowered.status().to_string();
  std::mt19937 rng(7);
  Tensors inputs = random_inputs(*finished, sizes, rng, positive);
  keep_ranges(*lowered, sizes, inputs);
  Tensors want = inputs, got = inputs;
  run_reference(*finished, sizes, want);
  run_lowered(*finished, *lowered, sizes, got);
  if (::testing::Test::HasFatalFailure()) return;
  for (int t : finished->outputs) expect_near(got.at(t), want.at(t), finished->tensors[t].name);
  for (int t : finished->inputs) {
    if (is_updated(*finished, t)) expect_near(got.at(t), want.at(t), finished->tensors[t].name);
  }
}

inline DimDesc F(int64_t n) { return fixed_dim(n); }
inline std::vector<DimDesc> fixed(const std::vector<int64_t>& dims) {
  std::vector<DimDesc> out;
  for (int64_t d : dims) out.push_back(F(d));
  return out;
}

inline Graph single(const std::string& op, const std::vector<std::vector<int64_t>>& shapes,
                    std::vector<Attr> attrs = {}) {
  Graph g;
  std::vector<int> in;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const bool mask = op == "where" && i == 0;
    in.push_back(
        add_tensor(g, "x" + std::to_string(i), fixed(shapes[i]), false, mask ? ir::DType::b8 : ir::DType::f32));
  }
  g.outputs = {add_node(g, op, in, "y", std::move(attrs))};
  return g;
}

}  // namespace lathe::ops::testing
