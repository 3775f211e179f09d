// See random_workload.h.
#include "tools/random_workload.h"

#include <fmt/format.h>

#include <random>

#include "ops/samples.h"

namespace lathe::tools {

using ops::add_node;
using ops::add_tensor;
using ops::DimDesc;
using ops::Graph;

namespace {

class Maker {
 public:
  explicit Maker(uint64_t seed) : rng_(seed) {}

  // An operator of the table, matmuls more often than others, and sometimes elementwise ones after it.
  Graph graph() {
    dynamic_ = chance(2);
    const ops::Family family = chance(4)
                                   ? ops::Family::kMatmul
                                   : ops::op_rows()[static_cast<size_t>(below(std::ssize(ops::op_rows())))].family;
    std::vector<const ops::OpRow*> rows;
    for (const ops::OpRow& row : ops::op_rows()) {
      if (row.family == family) rows.push_back(&row);
    }
    const ops::OpRow& row = *rows[static_cast<size_t>(below(std::ssize(rows)))];
    ir::Result<Graph> made = sample(row);
    if (!made.ok()) return {};  // a family without samples: verifying an empty graph fails
    Graph g = std::move(*made);
    const ir::Result<Graph> finished = ops::finish(g);
    if (!finished.ok()) return g;
    const ops::TensorDesc& y = finished->tensors[static_cast<size_t>(finished->outputs[0])];
    if (y.dtype == ir::DType::f32 && !y.dims.empty()) g.outputs = {followers(g, g.outputs[0], y.dims)};
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
  DimDesc swept(int64_t most) {
    if (!dynamic_) return ops::fixed_dim(size(most));
    return ops::symbol_dim("M", 1, std::max<int64_t>(most, 256), {{size(most), 1}});
  }

  ir::Result<Graph> sample(const ops::OpRow& row) {
    const auto axes = ops::sample_axes(row);
    size_t axis = static_cast<size_t>(below(std::ssize(axes)));
    ops::SampleSizes sizes;
    switch (row.family) {
      case ops::Family::kMatmul:
        sizes.swept = swept(200);
        sizes.others = {ops::fixed_dim(size(200)), ops::fixed_dim(size(200))};
        if (chance(4)) sizes.others.push_back(ops::fixed_dim(1 + below(4)));
        break;
      case ops::Family::kRope:
        if (dynamic_) axis = axes.size() - 1;  // the first is the size of a head, which is fixed
        sizes.swept = axis + 1 == axes.size() ? swept(40) : ops::fixed_dim(2 * size(64));
        sizes.others = {ops::fixed_dim(1 + below(8)),
                        axis + 1 == axes.size() ? ops::fixed_dim(2 * size(64)) : ops::fixed_dim(size(40))};
        break;
      default:
        sizes.swept = swept(600);
        for (int64_t n = below(3); n > 0; --n) sizes.others.push_back(ops::fixed_dim(size(n == 2 ? 8 : 60)));
    }
    return ops::sample_graph(row, axis, static_cast<int>(below(ops::sample_variants(row))), sizes);
  }

  // Elementwise followers of y, which has dims.
  int followers(Graph& g, int y, const std::vector<DimDesc>& dims) {
    for (int64_t n = below(3); n > 0; --n) {
      const std::string id = fmt::format("f{}", g.tensors.size());
      switch (below(5)) {
        case 0:
          y = add_node(g, "relu", {y}, id);
          break;
        case 1:
          y = add_node(g, "gelu", {y}, id);
          break;
        case 2:
          y = add_node(g, "scale", {y}, id, {{"value", 0.5}});
          break;
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
