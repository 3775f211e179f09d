// Appending to a cache of keys or values: each head of a token, normed and turned if asked for, converted and stored in
// the row of the cache that the token's slot names. Slot -1 stores nothing.
//
//   for h [row]: for t [row]: for u < min(1, slots[t] + 1, P) [slot]:
//     v = 0;  for n [col]: v += s * s;  r = rsqrt(v / D + epsilon)                           with a norm
//     for p [col]:  (c0, c1) = (s0*cos - s1*sin, s1*cos + s0*sin)   of c[slots[t], h]        with angles
//     for q [col]:  c = s                                                                    what is left
//
// Of int8 caches e0, e1 and e2 hold the values: the first and the second of each pair, and what is left. The largest of
// them, m, makes the scale of the token's head:
//
//     for n [col]: m max= abs(e);  i = 127 / m, or 0;  sc[slots[t], h] = m / 127;  for c [col]: c = i8(e * i)
//
// Two tokens with one slot: the later one stays. Operands s, slots, c, sc, co, si, positions, g.
#include "ops/kernel_writer.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::DType;
using ir::Expr;
using ir::Stmt;

namespace {

constexpr char kEven[] = "an even size, as pairs are turned: pad it by one";
constexpr size_t kSlots = 1, kCache = 2, kScales = 3;
constexpr size_t kAngles = 3, kWithNorm = 4;  // operands: cos, sin, positions; and the norm's scale

bool has_scales(const OpRow& row) { return row.id == OpId::kv_append_int8; }
// Of cos, where there is one.
size_t first_angle(const OpRow& row) { return has_scales(row) ? kScales + 1 : kScales; }

std::span<const DType> operand_dtypes(const OpRow& row, size_t number) {
  static constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16};
  static constexpr DType kF32[] = {DType::f32}, kI8[] = {DType::i8};
  static constexpr DType kIntegers[] = {DType::i32, DType::i64};
  const size_t angles = first_angle(row);
  if (number == kSlots || number == angles + 2) return kIntegers;
  if (number == kCache && has_scales(row)) return kI8;
  if (number >= kScales && number < angles + 2) return kF32;
  return kFloats;
}

uint32_t updates(const OpRow& row) { return 1u << kCache | (has_scales(row) ? 1u << kScales : 0); }

ir::Status need_dim(const TensorDesc& t, size_t d, const TensorDesc& as, size_t of) {
  if (same_dim(t.dims[d], as.dims[of])) return {};
  return mismatch(t, d, fmt::format("{} (as {}.shape[{}])", dim_text(as.dims[of]), as.name, of));
}

ir::Status check_angles(const OpRow& row, const Inputs& in, size_t first) {
  const TensorDesc &x = *in[0], &co = *in[first], &si = *in[first + 1], &at = *in[first + 2];
  for (const TensorDesc* table : {&co, &si}) LATHE_RETURN_IF_ERROR(need_rank(*table, 2, false, row.name));
  if (!co.dims[1].fixed() || co.dims[1].min > x.dims[2].min / 2)
    return mismatch(co, 1, fmt::format("at most {} (half of the last of {})", x.dims[2].min / 2, x.name));
  for (size_t d = 0; d < 2; ++d) LATHE_RETURN_IF_ERROR(need_dim(si, d, co, d));
  LATHE_RETURN_IF_ERROR(need_rank(at, 1, false, row.name));
  return need_dim(at, 0, x, 0);
}

ir::Result<Shape> infer(const OpRow& row, const Node& node, const Inputs& in) {
  const TensorDesc &x = *in[0], &slots = *in[kSlots], &cache = *in[kCache];
  const size_t first = first_angle(row);
  if (in.size() != first && in.size() != first + kAngles && in.size() != first + kWithNorm)
    return ir::invalid("{} operands of {}, expected {}, {} or {}", in.size(), row.name, first, first + kAngles,
                       first + kWithNorm)
        .with_arg(x.name);
  LATHE_RETURN_IF_ERROR(need_rank(x, 3, false, row.name));
  if (!x.dims[2].fixed()) return mismatch(x, 2, "a fixed size: finish a graph for each");
  if (x.dims[2].min % 2 != 0) return mismatch(x, 2, kEven);
  LATHE_RETURN_IF_ERROR(need_rank(slots, 1, false, row.name));
  LATHE_RETURN_IF_ERROR(need_dim(slots, 0, x, 0));
  LATHE_RETURN_IF_ERROR(need_rank(cache, 3, false, row.name));
  for (const size_t d : {1, 2}) LATHE_RETURN_IF_ERROR(need_dim(cache, d, x, d));
  if (has_scales(row)) {
    LATHE_RETURN_IF_ERROR(need_rank(*in[kScales], 2, false, row.name));
    for (const size_t d : {0, 1}) LATHE_RETURN_IF_ERROR(need_dim(*in[kScales], d, cache, d));
  }
  if (in.size() > first) LATHE_RETURN_IF_ERROR(check_angles(row, in, first));
  if (in.size() == first + kWithNorm) {
    LATHE_RETURN_IF_ERROR(need_rank(*in.back(), 1, false, row.name));
    LATHE_RETURN_IF_ERROR(need_dim(*in.back(), 0, x, 2));
  }
  if (const double epsilon = attr_float(node, AttrId::epsilon); epsilon < 0)
    return ir::invalid("epsilon {} of {}, expected >= 0", epsilon, row.name).with_arg(x.name);
  return Shape{cache.dtype, cache.dims};
}

class AppendWriter {
 public:
  explicit AppendWriter(KernelWriter& w) : w_(w), node_(w.anchor()), row_(op_row(node_)), first_(first_angle(row_)) {}
  ir::Result<LoweredKernel> run();

 private:
  bool turns() const { return node_.inputs.size() > first_; }
  bool norms() const { return node_.inputs.size() == first_ + kWithNorm; }
  Stmt col(const std::string& iter, const Expr& extent, std::vector<Stmt> body) const {
    return ir::make_scope(iter, extent, std::move(body), "col");
  }
  Index head(const Expr& d) const { return {ir::iter("t"), ir::iter("h"), d}; }
  Expr scalar(const char* name) const { return load(name, token_); }
  Expr given(const Expr& d) const { return as_dtype(DType::f32, ir::load("s", head(d), w_.dtype_of("s"))); }
  // An element of the head as it is turned: normed.
  Expr element(const Expr& d) const {
    if (!norms()) return given(d);
    return given(d) * scalar("r") * as_dtype(DType::f32, ir::load("g", {d}, w_.dtype_of("g")));
  }
  // Elements of a head that one scope makes, one an iteration: where they go, and what they are.
  struct Part {
    std::string held;  // an int8 cache's values on their way
    Expr at, value;    // by the scope's iterator
  };
  void norm(std::vector<Stmt>& body);
  std::vector<Part> pairs() const;
  Part rest(int64_t turned) const;
  // The parts of one scope, stored in the cache, or held until their scale is known.
  void keep(const std::string& iter, const Expr& extent, const std::vector<Part>& parts, std::vector<Stmt>& body);
  void quantise(std::vector<Stmt>& body);

  KernelWriter& w_;
  const Node& node_;
  const OpRow& row_;
  const size_t first_;
  const Index token_ = iters({"h", "t"});
  std::vector<Expr> tokens_;  // heads, tokens
  Expr width_, slot_, half_, position_;
  std::vector<Stmt> maxima_, rounded_;  // scopes over what is held
};

void AppendWriter::norm(std::vector<Stmt>& body) {
  w_.add_temp("v", tokens_);
  w_.add_temp("r", tokens_);
  const Expr x = given(ir::iter("n"));
  body.push_back(store("v", token_, f32(0)));
  body.push_back(col("n", width_, {store("v", token_, x * x, ir::AssignOp::add)}));
  const Expr mean = scalar("v") / f32_of(width_);
  body.push_back(store("r", token_, ir::make(ir::Op::k_rsqrt, {mean + f32(attr_float(node_, AttrId::epsilon))})));
}

std::vector<AppendWriter::Part> AppendWriter::pairs() const {
  const Expr p = ir::iter("p");
  const bool interleaved = attr_bool(node_, AttrId::interleaved);
  const Expr d0 = interleaved ? Expr(2) * p : p, d1 = interleaved ? Expr(2) * p + Expr(1) : p + half_;
  const Expr x0 = element(d0), x1 = element(d1), c = load("co", {position_, p}), s = load("si", {position_, p});
  return {{"e0", d0, x0 * c - x1 * s}, {"e1", d1, x1 * c + x0 * s}};
}

AppendWriter::Part AppendWriter::rest(int64_t turned) const {
  const Expr q = ir::iter("q") + Expr(turned);
  return {"e2", q, element(q)};
}

void AppendWriter::keep(const std::string& iter, const Expr& extent, const std::vector<Part>& parts,
                        std::vector<Stmt>& body) {
  std::vector<Stmt> stores, maxima, rounded;
  // The scope's iterator, and those of the scopes that read what it holds.
  const std::string largest = iter + "m", last = iter + "c";
  const auto held = [](const std::string& i) { return Index{ir::iter("h"), ir::iter("t"), ir::iter(i)}; };
  for (const Part& p : parts) {
    if (!has_scales(row_)) {
      stores.push_back(store("c", {slot_, ir::iter("h"), p.at}, as_dtype(w_.dtype_of("c"), p.value)));
      continue;
    }
    w_.add_temp(p.held, {tokens_[0], tokens_[1], extent});
    stores.push_back(store(p.held, held(iter), p.value));
    const Expr size = ir::make(ir::Op::k_abs, {load(p.held, held(largest))});
    maxima.push_back(store("m", token_, size, ir::AssignOp::max));
    const Index at = {slot_, ir::iter("h"), ir::substitute(p.at, {{iter, ir::iter(last)}})};
    rounded.push_back(store("c", at, ir::cast(DType::i8, load(p.held, held(last)) * scalar("i"))));
  }
  body.push_back(col(iter, extent, std::move(stores)));
  if (!has_scales(row_)) return;
  maxima_.push_back(col(largest, extent, std::move(maxima)));
  rounded_.push_back(col(last, extent, std::move(rounded)));
}

void AppendWriter::quantise(std::vector<Stmt>& body) {
  w_.add_temp("m", tokens_);
  w_.add_temp("i", tokens_);
  body.push_back(store("m", token_, f32(0)));
  std::move(maxima_.begin(), maxima_.end(), std::back_inserter(body));
  const Expr some = ir::make(ir::Op::k_lt, {f32(0), scalar("m")});
  body.push_back(store("i", token_, ir::select(some, f32(127) / scalar("m"), f32(0))));
  body.push_back(store("sc", {slot_, ir::iter("h")}, scalar("m") * f32(1.0 / 127)));
  std::move(rounded_.begin(), rounded_.end(), std::back_inserter(body));
}

ir::Result<LoweredKernel> AppendWriter::run() {
  const std::vector<Expr> dims = w_.view(node_.inputs[0]).dims;
  const Expr room = w_.view(node_.inputs[kCache]).dims[0];
  tokens_ = {dims[1], dims[0]};
  width_ = dims[2];
  w_.add_param(node_.inputs[0], "s");
  LATHE_RETURN_IF_ERROR(w_.add_integers(node_.inputs[kSlots], "slots", room - Expr(1), false, Expr(-1)));
  w_.add_updated(node_.inputs[kCache], "c");
  if (has_scales(row_)) w_.add_updated(node_.inputs[kScales], "sc");
  const Expr slot = as_dtype(DType::i64, ir::load("slots", {ir::iter("t")}, w_.dtype_of("slots")));
  slot_ = ir::max(slot, Expr(0));
  half_ = Expr(0);
  if (turns()) {
    const std::vector<Expr> table = w_.view(node_.inputs[first_]).dims;
    half_ = table[1];
    w_.add_param(node_.inputs[first_], "co");
    w_.add_param(node_.inputs[first_ + 1], "si");
    LATHE_RETURN_IF_ERROR(w_.add_integers(node_.inputs[first_ + 2], "positions", table[0] - Expr(1)));
    position_ = as_dtype(DType::i64, ir::load("positions", {ir::iter("t")}, w_.dtype_of("positions")));
  }
  std::vector<Stmt> body;
  if (norms()) {
    w_.add_param(node_.inputs.back(), "g");
    norm(body);
  }
  const int64_t turned = 2 * half_->ival, left = width_->ival - turned;
  if (turns() && turned != 0) keep("p", half_, pairs(), body);
  if (left != 0 || turned == 0) keep("q", Expr(left), {rest(turned)}, body);
  if (has_scales(row_)) quantise(body);
  const Expr once = ir::min(ir::min(Expr(1), slot + Expr(1)), room);
  std::vector<Stmt> stored;
  stored.push_back(ir::make_scope("u", once, std::move(body), "slot"));
  return w_.finish_updates(nest({"h", "t"}, tokens_, {"row", "row"}, std::move(stored)));
}

ir::Result<LoweredKernel> lower_group(KernelWriter& w) { return AppendWriter(w).run(); }

double flops(const Node&, const NodeSizes& sizes) { return elements(sizes.inputs[0]); }

// Of the cache as many rows as there are tokens, at most, which are written; of the angles as many, which are read.
double share_read(const Node& node, const NodeSizes& sizes, size_t operand) {
  const size_t angle = first_angle(op_row(node));
  const bool rows = (operand >= kCache && operand < angle) || operand == angle || operand == angle + 1;
  return rows ? rows_read(static_cast<double>(sizes.inputs[0][0]), sizes.inputs[operand][0]) : 1;
}

constexpr SampleAxis kAxes[] = {{.name = "d", .fixed = true, .step = 2, .refusal = kEven}, {"t"}};
// Heads, then the axis that is not swept.
constexpr std::initializer_list<int64_t> kAround[] = {{5, 6}, {1, 2}, {2, 8}, {3, 16}, {1, 64}, {2, 34}, {0, 6}};
constexpr int kWays = 5;  // plain; angles for all or half of a head in both pairings, the latter with a norm

int variants(const OpRow& row) {
  const auto count = [&](size_t operand) { return static_cast<int>(operand_dtypes(row, operand).size()); };
  return kWays * count(0) * count(kSlots) * count(kCache);
}

void operands(Graph& g, const OpRow& row, size_t axis, int variant, const SampleSizes& s, Node& node) {
  const DimDesc &d = axis == 0 ? s.swept : s.others[1], &t = axis == 0 ? s.others[1] : s.swept, &heads = s.others[0];
  constexpr int64_t kRoom = 23, kPositions = 40;
  const int way = take(variant, kWays);
  const DType cache = take_dtype(variant, row, kCache), x = take_dtype(variant, row, 0);
  const DType integers = take_dtype(variant, row, kSlots);
  const auto add = [&](const char* name, std::vector<DimDesc> dims, DType type) {
    node.inputs.push_back(add_tensor(g, name, std::move(dims), false, type));
  };
  add("x", {t, heads, d}, x);
  add("slots", {t}, integers);
  add("cache", {fixed_dim(kRoom), heads, d}, cache);
  if (has_scales(row)) add("scales", {fixed_dim(kRoom), heads}, DType::f32);
  if (way == 0) return;
  const DimDesc half = fixed_dim(d.max / (way > 2 ? 4 : 2));
  add("cos", {fixed_dim(kPositions), half}, DType::f32);
  add("sin", {fixed_dim(kPositions), half}, DType::f32);
  add("positions", {t}, integers);
  node.attrs.push_back({"interleaved", way % 2 == 0});
  if (way > 2) add("norm", {d}, DType::f32);
}

SampleSizes sizes(Draw& draw, size_t axis) {
  const DimDesc d = fixed_dim(2 * draw.size(64)), t = axis == 0 ? fixed_dim(draw.size(40)) : draw.swept(40);
  return {axis == 0 ? d : t, {fixed_dim(1 + draw.below(8)), axis == 0 ? t : d}};
}

}  // namespace

constexpr Family families::kv_append = {
    .name = "kv_append",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = one_result,
    .lower = lower_group,
    .flops = flops,
    .share_read = share_read,
    .updates = updates,
    .in_place = false,
    .error_rule = ErrorRule::tolerance_of_functions,
    .fusion =
        {.element = std::nullopt, .followed = false, .preceded = 0, .packed = 0, .stored = false, .f32_alone = true},
    .samples = {.axes = kAxes,
                .variants = variants,
                .operands = operands,
                .least_others = 2,
                .around = kAround,
                .sizes = sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
