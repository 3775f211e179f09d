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
// A sink is one more score, without a key: m starts from it, and a from its power.
// cached_attention and paged_attention have the keys of a sequence up to its length only. Keys and values in pages, and
// those of bytes, are first copied into a row of floats, which Schedules move to where it is used, or leave out:
//
//   for t0 [batch]:
//     for k_g [copy_heads]: for k_j [copy]: for k_d [copy_depth]: kt = k[pages[t0, k_j // page], k_g, k_j % page]
//     and vt of v
//     the loops above, with kt for k and vt for v
//
// Scales of bytes multiply scores (kst) and weights (vst), once the sum of the weights has them.
//
// Queries of all sequences one after another: [row] runs over those of a sequence, which stand in q, y and all that is
// indexed by queries from its offset on, before the heads. Those of no sequence are 0, which is stored first.
//
// Operands q, k, v, lengths, pages, offsets, ks, vs, sinks, the mask e0, y. A mask has heads before queries, also where
// q has them behind. Sums are f32 whatever the operands are; the
// result has the dtype of q.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/analysis/analysis.h"
#include "ops/families/attention_form.h"
#include "ops/kernel_writer.h"
#include "ops/monomial.h"
#include "ops/samples.h"

namespace lathe::ops {

using ir::Expr;

namespace {

constexpr const char *kOperands[] = {"q", "k", "v"}, *kScales[] = {"", "ks", "vs"};

class AttentionWriter {
 public:
  explicit AttentionWriter(KernelWriter& w) : w_(w), node_(w.anchor()), form_(attention_form(op_row(node_), node_)) {}
  ir::Result<LoweredKernel> run();

 private:
  Index at(const Index& row, Expr last) const {
    Index out = row;
    out.push_back(std::move(last));
    return out;
  }
  Expr operand(size_t number, const Expr& row, const Expr& col) const;
  Expr scale(size_t number, const std::string& step) const;
  Expr masked(const std::string& step) const;
  ir::Status declare();
  ir::Status declare_lengths();
  ir::Status declare_offsets();
  ir::Stmt copy(const std::string& name, int tensor, ir::DType type) const;
  bool copied() const { return page_ != 0 || form_.key_scales != 0; }
  ir::Stmt clear() const;
  Expr score(const std::string& key) const;
  // The number of the key that is `step` steps from the first one.
  Expr key(const std::string& step) const { return ir::simplify(first_ + ir::iter(step)); }
  ir::Stmt keys(const std::string& step, std::vector<ir::Stmt> body) const {
    return ir::make_scope(step, seen_, std::move(body), "key");
  }

  KernelWriter& w_;
  const Node& node_;
  const AttentionForm form_;
  std::vector<std::string> names_;
  std::vector<Expr> extents_;
  Index row_;    // batch, head, query; ragged: query of all, head
  Index batch_;  // without heads
  Index kept_;   // batch, head of keys and values
  int64_t window_ = 0;
  int64_t page_ = 0;         // keys of a page; 0: there are none
  std::vector<Expr> sizes_;  // of what each query has
  Expr room_, count_;        // keys that a sequence may have, and that it has
  Expr first_, seen_;        // the first key that the query may see, and the number of them
  Expr depth_;
};

ir::Status AttentionWriter::declare_lengths() {
  LATHE_RETURN_IF_ERROR(w_.add_integers(node_.inputs[form_.lengths], "lengths", room_));
  count_ = as_dtype(ir::DType::i64, ir::load("lengths", batch_, w_.dtype_of("lengths")));
  if (page_ == 0) return {};
  const Expr pages = w_.view(node_.inputs[AttentionForm::kKey]).dims[0];
  return w_.add_integers(node_.inputs[form_.pages], "pages", pages - Expr(1));
}

// The queries of a sequence are those from one offset to the next.
ir::Status AttentionWriter::declare_offsets() {
  const int offsets = node_.inputs[form_.offsets];
  LATHE_RETURN_IF_ERROR(w_.add_integers(offsets, "offsets", sizes_[0], true));
  const bool pairs = w_.view(offsets).dims.size() == 2;  // else the end of one is where the next begins
  const auto offset = [&](int64_t end) {
    const Expr sequence = ir::iter(names_[0]);
    const Index at = pairs ? Index{sequence, Expr(end)} : Index{ir::simplify(sequence + Expr(end))};
    return as_dtype(ir::DType::i64, ir::load("offsets", at, w_.dtype_of("offsets")));
  };
  extents_.back() = offset(1) - offset(0);
  row_ = {offset(0) + ir::iter(names_.back()), ir::iter(names_[1])};
  return {};
}

ir::Status AttentionWriter::declare() {
  for (size_t i = 0; i < std::size(kOperands); ++i) w_.add_param(node_.inputs[i], kOperands[i]);
  const std::vector<Expr>&q = w_.view(node_.inputs[AttentionForm::kQuery]).dims,
        &k = w_.view(node_.inputs[AttentionForm::kKey]).dims;
  const bool ragged = form_.offsets != 0;
  const Expr heads = q[form_.heads(q.size())];
  sizes_.assign(q.begin(), q.end() - 1);
  extents_ = ragged ? std::vector{w_.view(node_.inputs[form_.lengths]).dims[0], heads, q[0]} : sizes_;
  depth_ = q.back();
  names_ = iter_names("t", extents_.size() - 1);
  names_.emplace_back("i");
  row_ = iters(names_);
  kept_.assign(row_.begin(), row_.end() - 1);
  batch_.assign(row_.begin(), row_.end() - 2);
  const int64_t all = heads->ival, kept = k[k.size() - 3]->ival;
  if (all != kept) kept_.back() = kept == 1 ? Expr(0) : floordiv(kept_.back(), Expr(all / kept));
  room_ = k[k.size() - 2];
  if (form_.pages != 0) {
    page_ = room_->ival;
    room_ = multiply(Expr(page_), w_.view(node_.inputs[form_.pages]).dims[1]);
  }
  count_ = room_;
  if (form_.lengths != 0) LATHE_RETURN_IF_ERROR(declare_lengths());
  if (ragged) LATHE_RETURN_IF_ERROR(declare_offsets());
  if (form_.key_scales != 0) {
    w_.add_param(node_.inputs[form_.key_scales], kScales[AttentionForm::kKey]);
    w_.add_param(node_.inputs[form_.value_scales], kScales[AttentionForm::kValue]);
  }
  if (form_.sinks != 0) w_.add_param(node_.inputs[form_.sinks], "sinks");
  const DimDesc& keys = w_.graph().tensors[static_cast<size_t>(node_.inputs[AttentionForm::kKey])].dims[k.size() - 2];
  window_ = page_ == 0 && keys.max <= form_.window ? 0 : form_.window;  // it may leave nothing out
  const Expr end = form_.causal ? ir::iter("i") + count_ - extents_.back() + Expr(1) : count_;
  first_ = window_ > 0 ? ir::simplify(ir::max(Expr(0), end - Expr(window_))) : Expr(0);
  seen_ = ir::simplify(end - first_);
  if (ir::is_const_int(room_, 0)) first_ = seen_ = Expr(0);
  return {};
}

// y = 0.
ir::Stmt AttentionWriter::clear() const {
  const std::vector<Expr>& dims = w_.view(node_.output).dims;
  const ir::DType type = w_.graph().tensors[static_cast<size_t>(node_.output)].dtype;
  const std::vector<std::string> names = {"zr", "zh", "zn"}, roles(names.size(), "clear");
  return nest(names, dims, roles, {store("y", iters(names), as_dtype(type, f32(0)))})[0];
}

Expr AttentionWriter::operand(size_t number, const Expr& row, const Expr& col) const {
  const std::string name = kOperands[number];
  Index index = kept_;
  index.push_back(row);
  if (form_.key_scales != 0) return load(name + "t", at(index, col));
  return as_dtype(ir::DType::f32, ir::load(copied() ? name + "t" : name, at(index, col), w_.dtype_of(name)));
}

// Of a key's bytes, or a value's.
Expr AttentionWriter::scale(size_t number, const std::string& step) const {
  const std::string name = kScales[number];
  return as_dtype(ir::DType::f32, ir::load(page_ != 0 ? name + "t" : name, at(kept_, key(step)), w_.dtype_of(name)));
}

// What the keys of a sequence have, from its pages, as `type`.
ir::Stmt AttentionWriter::copy(const std::string& name, int tensor, ir::DType type) const {
  const std::vector<Expr>& dims = w_.view(tensor).dims;
  const size_t heads = page_ != 0 ? 1 : batch_.size();
  const Expr key = ir::iter(name + "_j");
  std::vector<std::string> names = {name + "_j"}, roles = {"copy"};
  std::vector<Expr> extents = {count_};
  Expr head(0);
  if (!ir::is_const_int(dims[heads], 1)) {
    head = ir::iter(name + "_g");
    names.insert(names.begin(), name + "_g");
    roles.insert(roles.begin(), "copy_heads");
    extents.insert(extents.begin(), dims[heads]);
  }
  Index from = batch_, to = batch_;
  if (page_ != 0) {
    from = {as_dtype(ir::DType::i64,
                     ir::load("pages", {batch_[0], ir::simplify(floordiv(key, Expr(page_)))}, w_.dtype_of("pages")))};
  }
  from.insert(from.end(), {head, page_ != 0 ? ir::simplify(mod(key, Expr(page_))) : key});
  to.insert(to.end(), {head, key});
  std::vector<Expr> room(extents_.begin(), extents_.begin() + static_cast<std::ptrdiff_t>(batch_.size()));
  room.insert(room.end(), {dims[heads], room_});
  if (dims.size() > heads + 2) {
    const std::string column = name + "_d";
    names.push_back(column);
    roles.emplace_back("copy_depth");
    extents.push_back(dims.back());
    from.push_back(ir::iter(column));
    to.push_back(ir::iter(column));
    room.push_back(dims.back());
  }
  w_.add_temp(name + "t", room, type);
  return nest(names, extents, roles,
              {store(name + "t", to, as_dtype(type, ir::load(name, from, w_.dtype_of(name))))})[0];
}

// What the mask adds to the score of a query and a key.
Expr AttentionWriter::masked(const std::string& step) const {
  const int mask = node_.inputs[form_.mask];
  View& view = w_.view(mask);
  const size_t rank = w_.view(node_.inputs[AttentionForm::kQuery]).dims.size();
  Index index = row_;
  if (form_.offsets != 0) std::swap(index[0], index[1]);
  Index at_key = {key(step)};
  if (form_.mask_has_pages(rank, view.dims.size())) {
    const Expr &page = view.dims.back(), &table = view.dims[rank - 1];
    const Expr all = w_.view(node_.inputs[form_.pages]).dims[1];
    if (view.strides.empty() && ir::is_const_int(page, page_) && ir::equal(table, all)) {  // one after another
      view.dims.pop_back();
      view.dims.back() = room_;
    } else {
      at_key = {ir::simplify(floordiv(key(step), Expr(page_))), ir::simplify(mod(key(step), Expr(page_)))};
    }
  }
  index.insert(index.end(), at_key.begin(), at_key.end());
  return w_.value(mask, index);
}

// What becomes of the product of a query and a key.
Expr AttentionWriter::score(const std::string& step) const {
  const double stated = attr_float(node_, AttrId::scale);
  const double size = static_cast<double>(std::max<int64_t>(depth_->ival, 1));
  Expr s = load("c", at(row_, key(step)));
  if (form_.key_scales != 0) s = s * scale(AttentionForm::kKey, step);
  s = s * f32(stated != 0 ? stated : 1 / std::sqrt(size));
  if (const double cap = form_.soft_cap; cap > 0) s = f32(cap) * ir::make(ir::Op::k_tanh, {s * f32(1 / cap)});
  if (form_.mask != 0) s = s + masked(step);
  return s;
}

ir::Result<LoweredKernel> AttentionWriter::run() {
  LATHE_RETURN_IF_ERROR(declare());
  std::vector<Expr> scores = sizes_, result = w_.view(node_.output).dims;
  scores.push_back(room_);
  for (const char* name : {"m", "a", "r"}) w_.add_temp(name, sizes_);
  for (const char* name : {"c", "s"}) w_.add_temp(name, scores);
  w_.add_temp("o", result);
  const Expr d = ir::iter("d"), n = ir::iter("n");
  const Index s = at(row_, key("j")), s1 = at(row_, key("j1")), s2 = at(row_, key("j2"));
  const Index o = at(row_, n);
  const Expr query = as_dtype(ir::DType::f32, ir::load("q", at(row_, d), w_.dtype_of("q")));
  w_.bind(node_.output, load("o", o) * load("r", row_));
  std::vector<ir::Stmt> body;
  const Expr least = f32(std::numeric_limits<float>::lowest());
  const auto power = [&](const Expr& score) {
    return ir::make(ir::Op::k_exp2, {(score - load("m", row_)) * f32(1.4426950408889634)});
  };
  Expr sink;
  if (form_.sinks != 0)
    sink = as_dtype(ir::DType::f32, ir::load("sinks", {ir::iter(names_[names_.size() - 2])}, w_.dtype_of("sinks")));
  body.push_back(store("m", row_, sink ? ir::make(ir::Op::k_fmax, {least, sink}) : least));
  const ir::Stmt product = store("c", s, query * operand(AttentionForm::kKey, key("j"), d), ir::AssignOp::add);
  body.push_back(keys("j", {store("c", s, f32(0)), ir::make_scope("d", depth_, {product}, "k"),
                            store("s", s, score("j")), store("m", row_, load("s", s), ir::AssignOp::fmax)}));
  body.push_back(store("a", row_, sink ? power(sink) : f32(0)));
  std::vector<ir::Stmt> powers = {store("s", s1, power(load("s", s1))),
                                  store("a", row_, load("s", s1), ir::AssignOp::add)};
  if (form_.value_scales != 0) powers.push_back(store("s", s1, load("s", s1) * scale(AttentionForm::kValue, "j1")));
  body.push_back(keys("j1", std::move(powers)));
  const Expr none = ir::make(ir::Op::k_eq, {load("a", row_), f32(0)});
  body.push_back(store("r", row_, ir::select(none, f32(0), f32(1) / load("a", row_))));
  const ir::Stmt weighted =
      store("o", o, load("s", s2) * operand(AttentionForm::kValue, key("j2"), n), ir::AssignOp::add);
  body.push_back(ir::make_scope("n", result.back(),
                                {store("o", o, f32(0)), keys("j2", {weighted}), w_.store_result("y", o)}, "n"));
  std::vector<std::string> roles(names_.size(), "batch");
  roles.back() = "row";
  if (!copied()) return w_.finish("y", nest(names_, extents_, roles, std::move(body)));
  std::vector<ir::Stmt> sequence;
  for (const size_t number : {AttentionForm::kKey, AttentionForm::kValue}) {
    const std::string name = kOperands[number];
    const bool bytes = form_.key_scales != 0;
    sequence.push_back(copy(name, node_.inputs[number], bytes ? ir::DType::f32 : w_.dtype_of(name)));
    if (!bytes || page_ == 0) continue;
    const size_t scales = number == AttentionForm::kKey ? form_.key_scales : form_.value_scales;
    sequence.push_back(copy(kScales[number], node_.inputs[scales], w_.dtype_of(kScales[number])));
  }
  const auto batch = static_cast<std::ptrdiff_t>(batch_.size());
  const auto inner = [&](const auto& list) { return std::vector(list.begin() + batch, list.end()); };
  const auto outer = [&](const auto& list) { return std::vector(list.begin(), list.begin() + batch); };
  sequence.push_back(nest(inner(names_), inner(extents_), inner(roles), std::move(body))[0]);
  std::vector<ir::Stmt> all = nest(outer(names_), outer(extents_), outer(roles), std::move(sequence));
  if (form_.offsets != 0) all.insert(all.begin(), clear());
  return w_.finish("y", std::move(all));
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
  bool sinks = false, bytes = false;
};
constexpr Kind kKinds[] = {
    {2, 2},
    {4, 2, true},
    {2, 1, true, false, 3},
    {2, 2, false, false, 4, 2.0},
    {3, 3, false, true},
    {2, 2, true, true, 0, 0, ir::DType::bf16},
    {4, 1, false, false, 0, 0, ir::DType::f16},
    {4, 2, true, false, 0, 0, ir::DType::f32, true},
    {2, 1, false, true, 2, 1.5, ir::DType::f32, true},
    {4, 2, true, false, 0, 0, ir::DType::f32, false, true},
    {3, 1, false, false, 3, 0, ir::DType::f16, true, true},
};

int variants(const OpRow&) { return static_cast<int>(std::size(kKinds)); }

void operands(Graph& g, const OpRow& row, size_t axis, int variant, const SampleSizes& s, Node& node) {
  std::vector<DimDesc> sizes;  // queries, keys, depth, width
  for (size_t i = 0, other = 0; i < 4; ++i) sizes.push_back(i == axis ? s.swept : s.others[other++]);
  const Kind& kind = kKinds[variant];
  std::vector<DimDesc> batch(s.others.begin() + 3, s.others.end());
  const bool ragged = row.id == OpId::ragged_attention, paged = ragged || row.id == OpId::paged_attention;
  const bool lengths = row.id != OpId::attention;
  if (paged) batch.resize(std::min<size_t>(batch.size(), 1));
  if (lengths && batch.empty()) batch.push_back(fixed_dim(2));
  const auto dims = [&](int64_t heads, size_t rows, size_t columns) {
    std::vector<DimDesc> out = batch;
    for (const DimDesc& d : {fixed_dim(heads), sizes[rows], sizes[columns]}) out.push_back(d);
    return out;
  };
  node.inputs.push_back(
      add_tensor(g, "q", ragged ? std::vector{sizes[0], fixed_dim(kind.heads), sizes[2]} : dims(kind.heads, 0, 2)));
  constexpr int64_t kPageSizes[] = {4, 1, 16, 3};
  const bool bytes = kind.bytes && lengths;
  const DimDesc page = fixed_dim(kPageSizes[variant % std::ssize(kPageSizes)]);
  const auto kept = [&](const char* name, size_t columns) {
    std::vector<DimDesc> pages = {fixed_dim(7), fixed_dim(kind.kept), page, sizes[columns]};
    node.inputs.push_back(
        add_tensor(g, name, paged ? pages : dims(kind.kept, 1, columns), false, bytes ? ir::DType::i8 : kind.keys));
  };
  kept("k", 2);
  kept("v", 3);
  const ir::DType integer = variant % 2 == 0 ? ir::DType::i32 : ir::DType::i64;
  if (lengths) node.inputs.push_back(add_tensor(g, "lengths", batch, false, integer));
  if (paged) node.inputs.push_back(add_tensor(g, "pages", {batch[0], sizes[1]}, false, integer));
  if (ragged) node.inputs.push_back(add_tensor(g, "offsets", {fixed_dim(batch[0].max + 1)}, false, integer));
  for (const char* name : {"k_scales", "v_scales"}) {
    if (!bytes) break;
    std::vector<DimDesc> of = g.tensors[static_cast<size_t>(node.inputs[1])].dims;
    of.pop_back();
    node.inputs.push_back(add_tensor(g, name, of, false, kind.keys));
  }
  if (kind.masked) {
    std::vector<DimDesc> mask = {sizes[0], sizes[1]};
    if (paged && sizes[1].fixed() && variant % 2 == 0) {
      mask[1] = fixed_dim(sizes[1].max * page.max);
    } else if (paged) {
      mask = {fixed_dim(kind.heads), sizes[0], sizes[1], page};
      if (!ragged) mask.insert(mask.begin(), fixed_dim(1));
    }
    node.inputs.push_back(add_tensor(g, "mask", mask));
  }
  if (kind.sinks) node.inputs.push_back(add_tensor(g, "sinks", {fixed_dim(kind.heads)}));
  node.attrs = {{"causal", kind.causal}, {"sinks", kind.sinks}};
  if (bytes) node.attrs.push_back({"scales", true});
  if (kind.window > 0) node.attrs.push_back({"window", kind.window});
  if (kind.cap > 0) node.attrs.push_back({"soft_cap", kind.cap});
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
    .operand_dtypes = attention_dtypes,
    .infer = attention_shape,
    .results = one_result,
    .lower = lower_group,
    .flops = attention_flops,
    .share_read = attention_share_read,
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
