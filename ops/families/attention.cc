// Attention: each query's mean of the values, weighted by the softmax of its scores with the keys that it sees.
//
//   for t [batch]: for i [row]:
//     m = least;  for j [key]: { c = 0;  for d [k]: c += q * k;  s = f(c);  m fmax= s }
//     a = 0;      for j1 [key]: { s = exp(s - m);  a += s }
//     r = 1 / a
//     for n [n]: { o = 0;  for j2 [key]: o += s * v;  y = o * r }
//
// [key] runs over the keys that query i may see, from the first one: c and s are indexed by the key's own number.
// Scores below the least f32, such as those that a mask of -inf makes, have the weight 0. A query without keys gives 0.
// cached_attention has the keys of a sequence up to its length only. Operands q, k, v, lengths, then the mask e0, y.
// Sums are f32 whatever the operands are; the result has the dtype of q.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/analysis/analysis.h"
#include "ops/kernel_writer.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::Expr;

namespace {

enum Operand : uint8_t { kQuery, kKey, kValue };

bool has_lengths(const OpRow& row) { return row.id == OpId::cached_attention; }
constexpr size_t kLengths = 3;
size_t mask_at(const OpRow& row) { return has_lengths(row) ? 4 : 3; }

std::span<const ir::DType> operand_dtypes(const OpRow& row, size_t number) {
  static constexpr ir::DType kIntegers[] = {ir::DType::i32, ir::DType::i64};
  if (has_lengths(row) && number == kLengths) return kIntegers;
  static constexpr ir::DType kFloats[] = {ir::DType::f32, ir::DType::bf16, ir::DType::f16};
  return kFloats;
}

ir::Status attributes_hold(const OpRow& row, const Node& node) {
  const double scale = attr_float(node, AttrId::scale), cap = attr_float(node, AttrId::soft_cap);
  const int64_t window = attr_int(node, AttrId::window);
  if (!std::isfinite(scale)) return ir::invalid("scale {}, expected a finite number", scale).with_arg(row.name);
  if (!(cap >= 0) || std::isinf(cap))
    return ir::invalid("soft_cap {}, expected a number above 0, or 0 for none", cap).with_arg(row.name);
  if (window < 0) return ir::invalid("window {}, expected at least 1, or 0 for none", window).with_arg(row.name);
  return {};
}

// Of `t` at dimension `d`, which has to be what `other` has there.
ir::Status same_as(const TensorDesc& t, size_t d, const TensorDesc& other, const char* what) {
  if (same_dim(t.dims[d], other.dims[d])) return {};
  return mismatch(t, d, fmt::format("{} ({} of {})", dim_text(other.dims[d]), what, other.name));
}

ir::Result<Shape> infer(const OpRow& row, const Node& node, const Inputs& in) {
  LATHE_RETURN_IF_ERROR(attributes_hold(row, node));
  const TensorDesc &q = *in[kQuery], &k = *in[kKey], &v = *in[kValue];
  LATHE_RETURN_IF_ERROR(need_rank(q, has_lengths(row) ? 4 : 3, true, row.name));
  const size_t rank = q.dims.size(), heads = rank - 3, rows = rank - 2, last = rank - 1;
  LATHE_RETURN_IF_ERROR(need_rank(k, rank, false, row.name));
  LATHE_RETURN_IF_ERROR(need_rank(v, rank, false, row.name));
  for (size_t d = 0; d < heads; ++d) {
    LATHE_RETURN_IF_ERROR(same_as(k, d, q, "batch"));
    LATHE_RETURN_IF_ERROR(same_as(v, d, q, "batch"));
  }
  for (const TensorDesc* t : {&q, &k}) {
    if (!t->dims[heads].fixed()) return mismatch(*t, heads, "a fixed number of heads: finish a graph for each");
  }
  const int64_t all = q.dims[heads].max, kept = k.dims[heads].max;
  if (all != kept && (kept == 0 || all % kept != 0))
    return mismatch(k, heads, fmt::format("a divisor of {} (heads of {})", all, q.name));
  LATHE_RETURN_IF_ERROR(same_as(v, heads, k, "heads"));
  LATHE_RETURN_IF_ERROR(same_as(v, rows, k, "keys"));
  if (!q.dims[last].fixed()) return mismatch(q, last, "a fixed size: finish a graph for each");
  LATHE_RETURN_IF_ERROR(same_as(k, last, q, "depth"));
  if (has_lengths(row)) {
    LATHE_RETURN_IF_ERROR(need_rank(*in[kLengths], rank - 3, false, row.name));
    for (size_t d = 0; d < heads; ++d) LATHE_RETURN_IF_ERROR(same_as(*in[kLengths], d, q, "batch"));
  }
  if (in.size() > mask_at(row)) {
    const TensorDesc& mask = *in[mask_at(row)];
    std::vector<DimDesc> scores = q.dims;
    scores[last] = k.dims[rows];
    if (mask.dims.size() > rank)
      return ir::invalid("{} dimensions, expected at most {} (scores of {})", mask.dims.size(), rank, row.name)
          .with_arg(mask.name);
    for (size_t d = 0; d < mask.dims.size(); ++d) {
      const DimDesc& score = scores[rank - mask.dims.size() + d];
      if (!same_dim(mask.dims[d], score) && !same_dim(mask.dims[d], fixed_dim(1)))
        return mismatch(mask, d, fmt::format("{} (of the scores) or 1", dim_text(score)));
    }
  }
  Shape out{q.dtype, q.dims};
  out.dims[last] = v.dims[last];
  return out;
}

// Two per multiply-add of the two products, for the keys that queries may see.
double flops(const Node& node, const NodeSizes& sizes) {
  const std::vector<int64_t>&q = sizes.inputs[kQuery], &v = sizes.inputs[kValue];
  const size_t rank = q.size();
  const int64_t queries = q[rank - 2], keys = v[rank - 2], window = attr_int(node, AttrId::window);
  double seen = 0;  // by all queries of a head
  for (int64_t i = 0; i < queries; ++i) {
    int64_t n = attr_bool(node, AttrId::causal) ? std::max<int64_t>(0, i + keys - queries + 1) : keys;
    if (window > 0) n = std::min(n, window);
    seen += static_cast<double>(n);
  }
  double heads = 1;
  for (size_t d = 0; d + 2 < rank; ++d) heads *= static_cast<double>(q[d]);
  return 2.0 * heads * seen * static_cast<double>(q[rank - 1] + v[rank - 1]);
}

class AttentionWriter {
 public:
  explicit AttentionWriter(KernelWriter& w) : w_(w), node_(w.anchor()), row_of_(op_row(node_)) {}
  ir::Result<LoweredKernel> run();

 private:
  Index at(const Index& row, Expr last) const {
    Index out = row;
    out.push_back(std::move(last));
    return out;
  }
  Expr operand(const std::string& name, const Expr& row, const Expr& col) const;
  ir::Status declare();
  Expr score(const std::string& key) const;
  // The number of the key that is `step` steps from the first one.
  Expr key(const std::string& step) const { return ir::simplify(first_ + ir::iter(step)); }
  ir::Stmt keys(const std::string& step, std::vector<ir::Stmt> body) const {
    return ir::make_scope(step, seen_, std::move(body), "key");
  }

  KernelWriter& w_;
  const Node& node_;
  const OpRow& row_of_;
  std::vector<std::string> names_;
  std::vector<Expr> extents_;
  Index row_;   // batch, head, query
  Index kept_;  // batch, head of keys and values
  int64_t window_ = 0;
  Expr first_, seen_;  // the first key that the query may see, and the number of them
  Expr depth_;
};

ir::Status AttentionWriter::declare() {
  window_ = attr_int(node_, AttrId::window);
  const char* params[] = {"q", "k", "v"};
  for (size_t i = 0; i <= kValue; ++i) w_.add_param(node_.inputs[i], params[i]);
  const std::vector<Expr>&q = w_.view(node_.inputs[kQuery]).dims, &k = w_.view(node_.inputs[kKey]).dims;
  const size_t rank = q.size();
  extents_.assign(q.begin(), q.end() - 1);
  depth_ = q.back();
  names_ = iter_names("t", rank - 2);
  names_.emplace_back("i");
  row_ = iters(names_);
  kept_.assign(row_.begin(), row_.end() - 1);
  const int64_t all = q[rank - 3]->ival, kept = k[rank - 3]->ival;
  if (all != kept) kept_.back() = kept == 1 ? Expr(0) : floordiv(kept_.back(), Expr(all / kept));
  Expr count = k[rank - 2];
  if (has_lengths(row_of_)) {
    const int lengths = node_.inputs[kLengths];
    LATHE_RETURN_IF_ERROR(w_.add_integers(lengths, "lengths", count));
    const Index sequence(row_.begin(), row_.end() - 2);
    count = as_dtype(ir::DType::i64, ir::load("lengths", sequence, w_.dtype_of("lengths")));
  }
  if (w_.graph().tensors[static_cast<size_t>(node_.inputs[kKey])].dims[rank - 2].max <= window_)
    window_ = 0;  // it leaves nothing out
  const Expr end = attr_bool(node_, AttrId::causal) ? ir::iter("i") + count - q[rank - 2] + Expr(1) : count;
  first_ = window_ > 0 ? ir::simplify(ir::max(Expr(0), end - Expr(window_))) : Expr(0);
  seen_ = ir::simplify(end - first_);
  return {};
}

Expr AttentionWriter::operand(const std::string& name, const Expr& row, const Expr& col) const {
  Index index = kept_;
  index.push_back(row);
  return as_dtype(ir::DType::f32, ir::load(name, at(index, col), w_.dtype_of(name)));
}

// What becomes of the product of a query and a key.
Expr AttentionWriter::score(const std::string& step) const {
  const double stated = attr_float(node_, AttrId::scale), cap = attr_float(node_, AttrId::soft_cap);
  const double size = static_cast<double>(std::max<int64_t>(depth_->ival, 1));
  Expr s = load("c", at(row_, key(step))) * f32(stated != 0 ? stated : 1 / std::sqrt(size));
  if (cap > 0) s = f32(cap) * ir::make(ir::Op::k_tanh, {s * f32(1 / cap)});
  if (node_.inputs.size() > mask_at(row_of_)) s = s + w_.value(node_.inputs[mask_at(row_of_)], at(row_, key(step)));
  return s;
}

ir::Result<LoweredKernel> AttentionWriter::run() {
  LATHE_RETURN_IF_ERROR(declare());
  std::vector<Expr> scores = extents_, result = w_.view(node_.output).dims;
  scores.push_back(w_.view(node_.inputs[kKey]).dims[row_.size() - 1]);
  for (const char* name : {"m", "a", "r"}) w_.add_temp(name, extents_);
  for (const char* name : {"c", "s"}) w_.add_temp(name, scores);
  w_.add_temp("o", result);
  const Expr d = ir::iter("d"), n = ir::iter("n");
  const Index s = at(row_, key("j")), s1 = at(row_, key("j1")), s2 = at(row_, key("j2"));
  const Index o = at(row_, n);
  const Expr query = as_dtype(ir::DType::f32, ir::load("q", at(row_, d), w_.dtype_of("q")));
  w_.bind(node_.output, load("o", o) * load("r", row_));
  std::vector<ir::Stmt> body;
  body.push_back(store("m", row_, f32(std::numeric_limits<float>::lowest())));
  const ir::Stmt product = store("c", s, query * operand("k", key("j"), d), ir::AssignOp::add);
  body.push_back(keys("j", {store("c", s, f32(0)), ir::make_scope("d", depth_, {product}, "k"),
                            store("s", s, score("j")), store("m", row_, load("s", s), ir::AssignOp::fmax)}));
  body.push_back(store("a", row_, f32(0)));
  const Expr power = (load("s", s1) - load("m", row_)) * f32(1.4426950408889634);
  body.push_back(keys(
      "j1", {store("s", s1, ir::make(ir::Op::k_exp2, {power})), store("a", row_, load("s", s1), ir::AssignOp::add)}));
  const Expr none = ir::make(ir::Op::k_eq, {load("a", row_), f32(0)});
  body.push_back(store("r", row_, ir::select(none, f32(0), f32(1) / load("a", row_))));
  const ir::Stmt weighted = store("o", o, load("s", s2) * operand("v", key("j2"), n), ir::AssignOp::add);
  body.push_back(ir::make_scope("n", result.back(),
                                {store("o", o, f32(0)), keys("j2", {weighted}), w_.store_result("y", o)}, "n"));
  std::vector<std::string> roles(names_.size(), "batch");
  roles.back() = "row";
  return w_.finish("y", nest(names_, extents_, roles, std::move(body)));
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) { return AttentionWriter(w).run(); }

constexpr SampleAxis kAxes[] = {{"queries"}, {"keys"}, {"depth", true}, {"width", true}};
// The three axes that are not swept, in order; then the batch.
constexpr std::initializer_list<int64_t> kAround[] = {{5, 6, 4},    {1, 8, 8}, {3, 1, 5},
                                                      {5, 5, 1, 2}, {7, 0, 3}, {1, 1, 1}};

struct Kind {
  int64_t heads, kept;
  bool causal = false, masked = false;
  int64_t window = 0;
  double cap = 0;
  ir::DType keys = ir::DType::f32;
};
constexpr Kind kKinds[] = {
    {2, 2},
    {4, 2, true},
    {2, 1, true, false, 3},
    {2, 2, false, false, 4, 2.0},
    {3, 3, false, true},
    {2, 2, true, true, 0, 0, ir::DType::bf16},
    {4, 1, false, false, 0, 0, ir::DType::f16},
};

int variants(const OpRow&) { return static_cast<int>(std::size(kKinds)); }

void operands(Graph& g, const OpRow& row, size_t axis, int variant, const SampleSizes& s, Node& node) {
  std::vector<DimDesc> sizes;  // queries, keys, depth, width
  for (size_t i = 0, other = 0; i < 4; ++i) sizes.push_back(i == axis ? s.swept : s.others[other++]);
  const Kind& kind = kKinds[variant];
  std::vector<DimDesc> batch(s.others.begin() + 3, s.others.end());
  if (has_lengths(row) && batch.empty()) batch.push_back(fixed_dim(2));
  const auto dims = [&](int64_t heads, size_t rows, size_t columns) {
    std::vector<DimDesc> out = batch;
    for (const DimDesc& d : {fixed_dim(heads), sizes[rows], sizes[columns]}) out.push_back(d);
    return out;
  };
  node.inputs.push_back(add_tensor(g, "q", dims(kind.heads, 0, 2)));
  node.inputs.push_back(add_tensor(g, "k", dims(kind.kept, 1, 2), false, kind.keys));
  node.inputs.push_back(add_tensor(g, "v", dims(kind.kept, 1, 3), false, kind.keys));
  if (has_lengths(row))
    node.inputs.push_back(add_tensor(g, "lengths", batch, false, variant % 2 == 0 ? ir::DType::i32 : ir::DType::i64));
  if (kind.masked) node.inputs.push_back(add_tensor(g, "mask", {sizes[0], sizes[1]}));
  node.attrs = {{"causal", kind.causal}, {"window", kind.window}, {"soft_cap", kind.cap}};
}

SampleSizes sizes(Draw& draw, size_t axis) {
  SampleSizes out{axis < 2 ? draw.swept(60) : fixed_dim(draw.size(60)), {}};
  for (int i = 0; i < 3; ++i) out.others.push_back(fixed_dim(draw.size(60)));
  if (draw.chance(4)) out.others.push_back(fixed_dim(1 + draw.below(3)));
  return out;
}

}  // namespace

constexpr Family families::attention = {
    .name = "attention",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = one_result,
    .lower = lower_group,
    .flops = flops,
    .share_read = all_read,
    .updates = updates_none,
    .in_place = false,
    .error_rule = ErrorRule::bound_of_sums,
    .fusion =
        {.element = std::nullopt, .followed = false, .preceded = 0, .packed = 0, .stored = false, .f32_alone = false},
    .samples = {.axes = kAxes,
                .variants = variants,
                .operands = operands,
                .least_others = 3,
                .around = kAround,
                .sizes = sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
