// See samples.h.
#include "ops/samples.h"

#include <algorithm>

namespace lathe::ops {

namespace {

// exp of an intermediate may be infinite where the result is not: a test of random data cannot tell that from a fault.
bool may_overflow(const OpRow& row, const Node& node) {
  const std::vector<ir::Expr> operands(node.inputs.size(), ir::load("x", {}, ir::DType::f32));
  bool found = false;
  ir::for_each_node((*row.family->fusion.element.get())(node, operands),
                    [&](const ir::ExprNode& n) { found |= n.op == ir::Op::k_exp; });
  return found;
}

// The row of another operator that takes `y` as it is, behind it; -1 if what was drawn does not.
int rider_behind(Graph& g, Draw& draw, int y, const std::vector<DimDesc>& dims) {
  std::vector<const OpRow*> riders;
  for (const OpRow& row : op_rows()) {
    if (row.family->rides()) riders.push_back(&row);
  }
  const OpRow& row = *draw.one_of(riders);
  const Samples& samples = row.family->samples;
  Node node;
  node.inputs = {y};
  const size_t before = g.tensors.size();
  samples.operands(g, row, 0, static_cast<int>(draw.below(samples.variants(row))),
                   {dims.back(), {dims.begin(), dims.end() - 1}}, node);
  const std::string name = fmt::format("f{}", g.tensors.size());
  const int result = add_node(g, row.name, std::move(node.inputs), name, std::move(node.attrs));
  Graph tried = g;
  tried.outputs = {result};
  const ir::Result<Graph> finished = finish(tried);
  const auto plain = [&](const Graph& f) {
    const TensorDesc& t = f.tensors[static_cast<size_t>(f.outputs[0])];
    return t.dtype == ir::DType::f32 && std::equal(t.dims.begin(), t.dims.end(), dims.begin(), dims.end(), same_dim);
  };
  if (finished.ok() && plain(*finished) && !may_overflow(row, finished->nodes.back())) return result;
  g.nodes.pop_back();
  g.tensors.resize(before);
  return -1;
}

}  // namespace

int take(int& variant, int n) {
  const int choice = variant % n;
  variant /= n;
  return choice;
}

ir::DType take_dtype(int& variant, const OpRow& row, size_t operand) {
  const std::span<const ir::DType> served = row.family->operand_dtypes(row, operand);
  return served[static_cast<size_t>(take(variant, static_cast<int>(served.size())))];
}

std::vector<DimDesc> with_last(const std::vector<DimDesc>& others, const DimDesc& last) {
  std::vector<DimDesc> out = others;
  out.push_back(last);
  return out;
}

SampleSizes any_sizes(Draw& draw, size_t) {
  SampleSizes out{draw.swept(600), {}};
  for (int64_t n = draw.below(3); n > 0; --n) out.others.push_back(fixed_dim(draw.size(n == 2 ? 8 : 60)));
  return out;
}

int64_t Draw::size(int64_t most) {
  constexpr int64_t kEdges[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 127, 128, 129};
  return std::min(chance(2) ? one_of(kEdges) : 1 + below(most), most);
}

DimDesc Draw::swept(int64_t most) {
  if (!vary_) return fixed_dim(size(most));
  return symbol_dim("M", 1, std::max<int64_t>(most, 256), {{size(most), 1}});
}

ir::Result<Graph> sample_graph(const OpRow& row, size_t axis, int variant, const SampleSizes& sizes) {
  const Samples& samples = row.family->samples;
  if (sizes.others.size() < samples.least_others)
    return ir::invalid("{} other sizes for {}, expected {}", sizes.others.size(), row.name, samples.least_others.get());
  Graph g;
  Node node;
  samples.operands(g, row, axis, variant, sizes, node);
  g.name = row.name;
  add_node(g, row.name, std::move(node.inputs), "y", std::move(node.attrs));
  g.outputs = results_of(g.nodes.back());
  return g;
}

Graph random_graph(Draw& draw) {
  const bool vary = draw.chance(2);
  if (vary) draw.vary();
  const Family* family = nullptr;
  for (const Family* f : all_families()) {
    if (family == nullptr && f->samples.one_in > 0 && draw.chance(f->samples.one_in)) family = f;
  }
  if (family == nullptr) family = draw.one_of(op_rows()).family;
  std::vector<const OpRow*> rows;
  for (const OpRow& row : op_rows()) {
    if (row.family == family) rows.push_back(&row);
  }
  const OpRow& row = *draw.one_of(rows);
  const Samples& samples = family->samples;
  std::vector<size_t> axes;
  for (size_t i = 0; i < samples.axes.get().size(); ++i) {
    if (!vary || !samples.axes.get()[i].fixed) axes.push_back(i);
  }
  const size_t axis = draw.one_of(axes);
  const SampleSizes sizes = samples.sizes(draw, axis);
  const ir::Result<Graph> made = sample_graph(row, axis, static_cast<int>(draw.below(samples.variants(row))), sizes);
  if (!made.ok()) return {};  // verifying an empty graph fails
  Graph g = *made;
  const ir::Result<Graph> finished = finish(g);
  if (!finished.ok()) return g;
  const TensorDesc& y = finished->tensors[static_cast<size_t>(finished->outputs[0])];
  const auto converts = std::find_if(op_rows().begin(), op_rows().end(),
                                     [](const OpRow& r) { return r.family->rides() && (r.attrs & kHas_to) != 0; });
  const auto becomes = [&](const char* name, const char* to) {
    Graph tried = g;
    tried.outputs = {add_node(tried, converts->name, {g.outputs[0]}, name, {{"to", std::string(to)}})};
    const bool taken = finish(tried).ok();
    if (taken) g = std::move(tried);
    return taken;
  };
  const bool widened = y.dtype == ir::DType::i32 && draw.chance(2) && becomes("real", "f32");
  if ((y.dtype != ir::DType::f32 && !widened) || y.dims.empty()) return g;
  for (int64_t n = draw.below(3); n > 0; --n) {
    const int behind = rider_behind(g, draw, g.outputs[0], y.dims);
    if (behind >= 0) g.outputs = {behind};
  }
  if (draw.chance(4)) becomes("bytes", draw.chance(2) ? "i8" : "u8");
  return g;
}

}  // namespace lathe::ops
