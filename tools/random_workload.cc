// See random_workload.h.
#include "tools/random_workload.h"

#include <fmt/format.h>

#include <random>

namespace lathe::tools {

using ops::add_node;
using ops::add_tensor;
using ops::Attr;
using ops::DimDesc;
using ops::Graph;

namespace {

class Maker {
 public:
  explicit Maker(uint64_t seed) : rng_(seed) {}

  Graph graph() {
    Graph g;
    dynamic_ = chance(2);
    switch (below(6)) {
      case 0:
      case 1: matmul(g); break;
      case 2: row(g); break;
      case 3: chain(g); break;
      case 4: transpose(g); break;
      default: rope(g); break;
    }
    return g;
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  bool chance(int64_t one_in) { return below(one_in) == 0; }
  // Around tile sizes, or anything.
  int64_t size(int64_t most) {
    constexpr int64_t kEdges[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 127, 128, 129};
    const int64_t n = chance(2) ? kEdges[below(18)] : 1 + below(most);
    return std::min(n, most);
  }
  DimDesc rows(int64_t most) {
    if (!dynamic_) return ops::fixed_dim(size(most));
    return ops::symbol_dim("M", 1, 256, {{size(most), 1}});
  }

  // Elementwise followers of y, which has dims.
  int followers(Graph& g, int y, const std::vector<DimDesc>& dims) {
    for (int64_t n = below(3); n > 0; --n) {
      const std::string id = fmt::format("f{}", g.tensors.size());
      switch (below(5)) {
        case 0: y = add_node(g, "relu", {y}, id); break;
        case 1: y = add_node(g, "gelu", {y}, id); break;
        case 2: y = add_node(g, "scale", {y}, id, {{"value", 0.5}}); break;
        case 3: {
          const int bias = add_tensor(g, id + "b", {dims.back()}, true);
          y = add_node(g, "add", {y, bias}, id);
          break;
        }
        default: {
          const int other = add_tensor(g, id + "r", dims);
          y = add_node(g, chance(2) ? "add" : "mul", {y, other}, id);
        }
      }
    }
    return y;
  }

  void matmul(Graph& g) {
    const DimDesc m = rows(150), n = ops::fixed_dim(size(200)), k = ops::fixed_dim(size(300));
    const bool ta = chance(3) && !dynamic_, tb = chance(2);
    std::vector<DimDesc> a, b, y;
    if (chance(4)) {
      const DimDesc batch = ops::fixed_dim(1 + below(4));
      a.push_back(batch);
      if (chance(2)) b.push_back(batch);
      y.push_back(batch);
    }
    for (const DimDesc& d : ta ? std::vector{k, m} : std::vector{m, k}) a.push_back(d);
    for (const DimDesc& d : tb ? std::vector{n, k} : std::vector{k, n}) b.push_back(d);
    y.push_back(m);
    y.push_back(n);
    const bool constant = b.size() == 2 && chance(2);
    const int x = add_tensor(g, "x", a), w = add_tensor(g, "w", b, constant);
    g.outputs = {followers(g, add_node(g, "matmul", {x, w}, "p", {{"transpose_a", ta}, {"transpose_b", tb}}), y)};
  }

  void row(Graph& g) {
    const std::vector<DimDesc> dims = {rows(60), ops::fixed_dim(size(600))};
    const int x = add_tensor(g, "x", dims);
    constexpr const char* kPlain[] = {"softmax", "sum", "max", "mean"};
    const int64_t which = below(6);
    if (which < 4) {
      g.outputs = {add_node(g, kPlain[which], {x}, "y")};
      return;
    }
    const int scale = add_tensor(g, "s", {dims[1]}, true);
    if (which == 4) {
      g.outputs = {add_node(g, "rmsnorm", {x, scale}, "y")};
    } else {
      const int bias = add_tensor(g, "b", {dims[1]}, true);
      g.outputs = {add_node(g, "layernorm", {x, scale, bias}, "y")};
    }
  }

  void chain(Graph& g) {
    const std::vector<DimDesc> dims = {rows(60), ops::fixed_dim(size(300))};
    const int x = add_tensor(g, "x", dims);
    constexpr const char* kUnary[] = {"exp", "tanh", "sigmoid", "silu", "gelu", "relu", "abs", "neg"};
    int y = add_node(g, kUnary[below(8)], {x}, "u");
    if (chance(2)) y = add_node(g, "swiglu", {y, add_tensor(g, "v", dims)}, "w");
    g.outputs = {followers(g, y, dims)};
  }

  void transpose(Graph& g) {
    std::vector<DimDesc> dims = {rows(60), ops::fixed_dim(size(80))};
    std::vector<int64_t> perm = {1, 0};
    if (chance(2)) {
      dims.push_back(ops::fixed_dim(size(40)));
      perm = chance(2) ? std::vector<int64_t>{0, 2, 1} : std::vector<int64_t>{2, 0, 1};
    }
    g.outputs = {add_node(g, "transpose", {add_tensor(g, "x", dims)}, "y", {{"perm", perm}})};
  }

  void rope(Graph& g) {
    const DimDesc t = rows(40), half = ops::fixed_dim(size(64));
    const int x = add_tensor(g, "x", {t, ops::fixed_dim(1 + below(8)), ops::fixed_dim(2 * half.max)});
    const int cos = add_tensor(g, "cos", {t, half}), sin = add_tensor(g, "sin", {t, half});
    g.outputs = {add_node(g, "rope", {x, cos, sin}, "y", {{"interleaved", chance(2)}})};
  }

  std::mt19937_64 rng_;
  bool dynamic_ = false;
};

}  // namespace

std::vector<ops::Workload> random_workloads(int count, uint64_t seed) {
  std::vector<ops::Workload> out;
  for (int i = 0; i < count; ++i) {
    ops::Workload w = ops::make_workload(Maker(seed * 1'000'003 + static_cast<uint64_t>(i)).graph());
    w.name = fmt::format("random_{}_{}", seed, i);
    out.push_back(std::move(w));
  }
  return out;
}

}  // namespace lathe::tools
