// The canonical Kernel of one variant of a leaf group: names become numbers, what comes from outside becomes operands,
// extents and streams. What may be a leaf is leaf_form.cc's affair.
#include <algorithm>
#include <functional>

#include "ir/analysis/analysis.h"
#include "ir/analysis/intrinsics.h"
#include "ir/core/text_form.h"
#include "search/cut/leaf_builder.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kMaxBakedStride = 64, kMaxBakedBytes = 256;
constexpr int64_t kVector = 8;           // lanes, at least
constexpr int64_t kMostLanes = 1024;     // of a vector scope
constexpr int64_t kManyLanes = 64;       // more are rarely meant: there may be a proof of fewer
constexpr int64_t kPair = 2;             // a side of a transpose that has code of its own
constexpr int64_t kSquares[] = {16, 8};  // sides of what a transpose goes by, lanes of vectors

// What a leaf keeps of a statement as it is.
Stmt without_body(const Stmt& s) {
  Stmt out;
  out.kind = s.kind;
  out.iter = s.iter;
  out.extent = s.extent;
  out.mark = s.mark;
  out.intrinsic = s.intrinsic;
  out.target = s.target;
  out.op = s.op;
  out.distance = s.distance;
  out.lines = s.lines;
  out.cache = s.cache;
  return out;
}

}  // namespace

size_t LeafBuilder::extent_number(const Expr& value) {
  for (size_t i = 0; i < extents_.size(); ++i) {
    if (equal(extents_[i].value, value)) return i;
  }
  extents_.push_back({value, 1});
  return extents_.size() - 1;
}

Expr LeafBuilder::slot_for_extent(const Expr& value) { return symbol(fmt::format("e{}", extent_number(value))); }

// A side of a transpose: what is known to be whole squares needs no code for edges.
Expr LeafBuilder::slot_for_side(const Expr& value) {
  const size_t number = extent_number(value);
  int64_t& multiple = extents_[number].multiple_of;
  for (const int64_t side : kSquares) {
    if (multiple == 1 && proves_divisible(value, side, ranges_)) multiple = side;
  }
  return symbol(fmt::format("e{}", number));
}

Expr LeafBuilder::rename(const Expr& e) const {
  if (!e || (e->holds & holds_inside_) == 0) return e;
  const auto named = [&](const Expr& n) -> Expr {
    if (n->op != Op::k_iter) return {};
    for (const auto& [from, to] : iter_names_) {
      if (from == n->name) return iter(to);
    }
    return {};
  };
  return rewrite(e, named, holds_inside_);
}

// An extent inside the leaf: outside parts become slots, min and ceildiv keep their shape.
Result<Expr> LeafBuilder::leaf_extent(const Expr& e) {
  if (is_const_int(e)) return e;
  if (e->op == Op::k_min || (e->op == Op::k_ceildiv && !outside_only(e->args[0]))) {
    LATHE_ASSIGN(Expr a, leaf_extent(e->args[0]));
    LATHE_ASSIGN(Expr b, leaf_extent(e->args[1]));
    return make(e->op, {a, b});
  }
  if (e->op == Op::k_ceildiv) return ceildiv(slot_for_extent(e->args[0]), e->args[1]);
  if (outside_only(e)) return slot_for_extent(e);
  Expr inner, outer;
  LATHE_RETURN_IF_ERROR(split(e, inner, outer));
  Addends terms;
  flatten_addends(inner, 1, terms);
  Expr out = slot_for_extent(simplify(outer + Expr(terms.constant), ranges_));
  for (const Expr& t : terms.terms) {
    const bool negative = t->op == Op::k_mul && is_const_int(t->args[0]) && t->args[0]->ival < 0;
    out = negative ? out - Expr(-t->args[0]->ival) * rename(t->args[1]) : out + rename(t);
  }
  return out;
}

// R and V if `vector` has extent min(V, R - V*i), or only R - V*i where that is never more, for its parent's iterator i
// and an R from outside the leaf.
bool LeafBuilder::split_mask(const Stmt& vector, const std::string& i, const Ranges& ranges, Expr& r,
                             int64_t& v) const {
  if (vector.mark != Mark::vector) return false;
  const auto fits = [&](const Expr& rest, int64_t width) {
    if (outside_only(rest)) return false;
    Addends sum_of;
    flatten_addends(rest, 1, sum_of);
    std::vector<Expr> outside;
    for (const Expr& t : sum_of.terms) {
      if (outside_only(t)) {
        outside.push_back(t);
        continue;
      }
      if (t->op != Op::k_mul || t->args[1]->op != Op::k_iter || t->args[1]->name != i || !is_const_int(t->args[0]))
        return false;
      if (width == 0) width = -t->args[0]->ival;
      if (width <= 0 || t->args[0]->ival != -width) return false;
    }
    v = width;
    r = simplify(sum_addends(outside, sum_of.constant), ranges_);
    return true;
  };
  if (vector.extent->op != Op::k_min) return fits(vector.extent, 0) && proves_le(vector.extent, Expr(v), ranges);
  for (int side = 0; side < 2; ++side) {
    const Expr &width = vector.extent->args[side], &rest = vector.extent->args[1 - side];
    if (is_const_int(width) && fits(rest, width->ival)) return true;
  }
  return false;
}

// Whether the loop runs over ceildiv(R, V) vectors that mask themselves by R; sets masked_by_ and masked_width_.
bool LeafBuilder::masks_vectors(const Stmt& loop, const Ranges& ranges) {
  for (const Stmt& child : loop.body) {
    if (child.kind != Stmt::Kind::scope || !split_mask(child, loop.iter, ranges, masked_by_, masked_width_)) continue;
    const Expr vectors = simplify(ceildiv(masked_by_, Expr(masked_width_)), ranges);
    if (equal(vectors, simplify(loop.extent, ranges))) return true;
  }
  return false;
}

Result<Expr> LeafBuilder::vector_extent(const Stmt& s, const Stmt* parent, const Ranges& ranges,
                                        const std::vector<LeafVariant::Range>& values) {
  if (is_const_int(s.extent)) return s.extent;
  Expr r;
  int64_t v = 0;
  if (parent != nullptr && split_mask(s, parent->iter, ranges, r, v)) {
    for (size_t i = 0; i < variants_.size(); ++i) {
      const auto [lo, hi] = values[i];
      if (variants_[i].lanes != v || lo != hi || !equal(variants_[i].of.extent, r)) continue;
      return hi % v == 0 ? Expr(v) : min(Expr(v), Expr(hi) - Expr(v) * rename(iter(parent->iter)));
    }
    // Constant columns of straight code have constant masks; a loop's own bound is an argument.
    const bool baked = is_const_int(r) && parent->mark == Mark::unroll;
    return min(Expr(v), (baked ? r : slot_for_extent(r)) - Expr(v) * rename(iter(parent->iter)));
  }
  // A vector has a count of lanes, which is no quotient within the leaf.
  const bool quotient = s.extent->op == Op::k_ceildiv && outside_only(s.extent);
  LATHE_ASSIGN(Expr extent, quotient ? Result<Expr>(slot_for_extent(s.extent)) : leaf_extent(s.extent));
  // Where ranges alone keep it to a few lanes, the leaf does not know them: it is told the most there are, in whole
  // vectors but for a single one, whose iterator is in no index.
  if (extent->op == Op::k_min && (is_const_int(extent->args[0]) || is_const_int(extent->args[1]))) return extent;
  int64_t most = interval(s.extent, ranges).hi;
  for (const int64_t lanes : kSquares) {
    if (most > kManyLanes && proves_le(s.extent, Expr(lanes), ranges)) most = lanes;
  }
  return most <= kMostLanes ? min(Expr(most <= 1 ? 1 : (most + kVector - 1) / kVector * kVector), extent) : extent;
}

// The extent of an unrolled scope that variant `v` ends.
Expr LeafBuilder::variant_extent(size_t v, int64_t value) const {
  const int64_t lanes = variants_[v].lanes;
  return Expr(lanes == 0 ? value : (value + lanes - 1) / lanes);
}

Result<Expr> LeafBuilder::leaf_value(const Expr& e, const Ranges& ranges) {
  if (e->op == Op::k_load) {
    std::vector<Expr> index;
    LATHE_ASSIGN(const std::string name, leaf_access(e->name, e->args, ranges, index));
    return load(name, std::move(index), e->type);
  }
  if (e->op == Op::k_cast && e->type == DType::i32 && e->args[0]->type == DType::i64) {
    LATHE_ASSIGN(const Expr index, leaf_index(e->args[0], ranges));
    return cast(e->type, index);
  }
  if (is_index(e) && !is_const_int(e)) {
    if (!outside_only(e)) return unsupported("a value uses the leaf's own iterator in {}", print(e));
    return slot_for_extent(simplify(e, ranges));
  }
  if (e->args.empty()) return e;
  if (op_info(e->op).cls == OpClass::kBits || e->op == Op::k_select) return leaf_choice(e, ranges);
  auto node = std::make_shared<ExprNode>(*e);
  for (Expr& a : node->args) {
    LATHE_ASSIGN(a, leaf_value(a, ranges));
  }
  return Expr(std::shared_ptr<const ExprNode>(std::move(node)));
}

// An index as a number: what lies outside of the leaf is an argument.
Result<Expr> LeafBuilder::leaf_index(const Expr& e, const Ranges& ranges) {
  if (is_const_int(e)) return e;
  Expr inner, outer;
  LATHE_RETURN_IF_ERROR(split(simplify(e, ranges), inner, outer));
  if (!is_const_int(outer)) outer = slot_for_extent(simplify(outer, ranges));
  if (!inner) return outer;
  return is_const_int(outer, 0) ? rename(inner) : outer + rename(inner);
}

// A count of a shift and a comparison of indices are what copies of unrolled scopes make constants of.
Result<Expr> LeafBuilder::leaf_choice(const Expr& e, const Ranges& ranges) {
  auto node = std::make_shared<ExprNode>(*e);
  const auto index_of = [&](const Expr& a) { return rename(simplify(a, ranges)); };
  for (Expr& a : node->args) {
    const bool compares = op_info(a->op).cls == OpClass::kCompare && a->args[0]->type == DType::i64;
    if (a->type == DType::i64) {
      a = index_of(a);
    } else if (compares) {
      a = make(a->op, {index_of(a->args[0]), index_of(a->args[1])});
    } else {
      LATHE_ASSIGN(a, leaf_value(a, ranges));
    }
  }
  return Expr(std::shared_ptr<const ExprNode>(std::move(node)));
}

Result<std::string> LeafBuilder::leaf_access(const std::string& name, const std::vector<Expr>& index,
                                             const Ranges& ranges, std::vector<Expr>& out) {
  const Buffer& b = *kernel_.find_buffer(name);
  out.clear();
  if (b.place == Place::reg) {
    for (const Expr& e : index) out.push_back(rename(simplify(e, ranges)));
    for (size_t i = 0; i < regs_.size(); ++i) {
      if (regs_[i] == name) return fmt::format("r{}", i);
    }
    regs_.push_back(name);
    return fmt::format("r{}", regs_.size() - 1);
  }
  LATHE_ASSIGN(const LeafAccess* access, slot_of(name, index, ranges));
  const std::vector<Expr>& inner = access->inner;
  for (size_t d = 0; d < inner.size(); ++d) {
    if (slots_[access->slot].indexed[d]) out.push_back(inner[d] ? rename(inner[d]) : Expr(0));
  }
  return fmt::format("p{}", access->slot);
}

// The leaf's extent of a scope. `inner`: the ranges inside it.
Status LeafBuilder::build_scope(const Stmt& s, const std::vector<LeafVariant::Range>& values, const Ranges& inner,
                                const Stmt* parent, Stmt& t) {
  const bool side = copies_ && s.mark != Mark::unroll;
  if (s.mark == Mark::tensor && is_one_step(s)) {
    t.extent = s.extent;
  } else if (s.mark == Mark::tensor && is_summed(s)) {
    if (tensor_steps_ && !equal(tensor_steps_, s.extent)) return unsupported("two tensor loops of unlike extent");
    tensor_steps_ = s.extent;
    t.extent = symbol("seglen");
  } else if (s.mark == Mark::unroll && !is_const_int(s.extent)) {
    for (size_t v = 0; v < variants_.size(); ++v) {
      if (variants_[v].is_extent(s.extent)) t.extent = variant_extent(v, values[v].hi);
    }
  } else if (s.mark == Mark::vector) {
    LATHE_ASSIGN(t.extent, vector_extent(s, parent, inner, values));
  } else if (s.mark == Mark::none && masks_vectors(s, inner)) {
    t.extent = ceildiv(slot_for_extent(masked_by_), Expr(masked_width_));
  } else if (side && is_const_int(s.extent, kPair)) {
    t.extent = s.extent;
  } else if (s.mark != Mark::unroll && outside_only(s.extent)) {
    t.extent = side ? slot_for_side(s.extent) : slot_for_extent(s.extent);
  } else {
    LATHE_ASSIGN(t.extent, leaf_extent(s.extent));
  }
  return {};
}

Result<std::vector<Stmt>> LeafBuilder::build_body(const std::vector<Stmt>& body,
                                                  const std::vector<LeafVariant::Range>& values, Ranges& ranges,
                                                  const Stmt* parent) {
  std::vector<Stmt> out;
  out.reserve(body.size());
  for (const Stmt& s : body) {
    Stmt t = without_body(s);
    if (s.kind == Stmt::Kind::prefetch) {
      if (parent == nullptr) continue;
      if (parent->mark == Mark::tensor) {
        LATHE_RETURN_IF_ERROR(add_stream(s, *parent, ranges, t));
      } else {
        LATHE_RETURN_IF_ERROR(add_loop_stream(s, t));
      }
    } else if (s.kind == Stmt::Kind::scope) {
      t.iter = fmt::format("i{}", iter_names_.size());
      iter_names_.emplace_back(s.iter, t.iter);
      const bool outside = copies_;
      copies_ = outside || (s.mark == Mark::tensor && !is_summed(s));
      around_.push_back(&s);
      const Status built = inside_scope(ranges, s, [&](Ranges& inner) -> Status {
        LATHE_RETURN_IF_ERROR(build_scope(s, values, inner, parent, t));
        LATHE_ASSIGN(t.body, build_body(s.body, values, inner, &s));
        return {};
      });
      copies_ = outside;
      around_.pop_back();
      LATHE_RETURN_IF_ERROR(built);
    } else if (const auto known = statements_.find(&s); known != statements_.end()) {
      t = known->second;
    } else {
      at_ = &s;
      LATHE_ASSIGN(t.value, leaf_value(s.value, ranges));
      LATHE_ASSIGN(t.target, leaf_access(s.target, s.index, ranges, t.index));
      statements_.emplace(&s, t);
    }
    out.push_back(std::move(t));
  }
  return out;
}

Result<Leaf> LeafBuilder::build(const std::vector<Stmt>& group, const std::vector<LeafVariant::Range>& values) {
  iter_names_.clear();
  building_streams_ = streams_.empty();
  Leaf leaf;
  Kernel& k = leaf.kernel;
  k.name = "leaf";
  k.family = "leaf";
  Ranges ranges = ranges_;
  LATHE_ASSIGN(k.body, build_body(group, values, ranges, nullptr));
  for (size_t i = operands_.size(); i < slots_.size(); ++i)
    operands_.push_back(leaf_operand(slots_[i], static_cast<int>(i)));
  k.buffers.reserve(slots_.size() + regs_.size());
  k.buffers = operands_;
  LATHE_RETURN_IF_ERROR(add_registers(k, values));
  for (size_t i = 0; i < extents_.size(); ++i) {
    // What fewer vectors would do has a leaf of its own: all but the last of these are whole.
    int64_t least = 0;
    for (size_t v = 0; v < variants_.size(); ++v) {
      if (variants_[v].lanes != 0 && equal(variants_[v].of.extent, extents_[i].value)) least = values[v].lo;
    }
    k.symbols.push_back({fmt::format("e{}", i), least, INT64_MAX, extents_[i].multiple_of});
  }
  if (tensor_steps_) k.symbols.push_back({"seglen", 0, INT64_MAX, 1});
  leaf.text = print(k);
  return leaf;
}

// Whether physical dimension `d` is a tile that may be wider than what is left of its dimension: all of it is there to
// be read.
bool LeafBuilder::reaches_past_end(const Buffer& b, size_t d) const {
  if (b.layout.empty() || b.layout[d].part != LayoutDim::Part::inner) return false;
  return !proves_divisible(b.dims[static_cast<size_t>(b.layout[d].dim)], b.layout[d].tile, ranges_);
}

// Whether what lies past the end of physical dimension `d` may be overwritten as well: a row of a stack buffer that one
// statement fills, so that nobody reads what it does not reach.
bool LeafBuilder::has_room_past_end(const Buffer& b, size_t d) const {
  if (b.place != Place::stack || !is_const_int(physical_dims(b)[d]) || physical_dims(b)[d]->ival > kMaxBakedStride)
    return false;
  int writers = 0;
  for_each_stmt(kernel_.body, [&](const Stmt& s) { writers += s.kind == Stmt::Kind::assign && s.target == b.name; });
  return writers == 1;
}

// Whether the stride is a number in the leaf: the Schedule's own doing, not the caller's, as few shapes have another.
bool LeafBuilder::is_baked(const Buffer& b, const Expr& stride) {
  const bool own = !b.layout.empty() || b.place == Place::stack;
  const int64_t most = b.place == Place::stack && dtype_bytes(b.type) == 1 ? kMaxBakedBytes : kMaxBakedStride;
  return is_const_int(stride, 1) || (own && is_const_int(stride) && stride->ival <= most);
}

Buffer LeafBuilder::leaf_operand(const LeafSlot& slot, int number) const {
  const Buffer& b = kernel_.buffers[slot.buffer];
  Buffer p;
  p.name = fmt::format("p{}", number);
  p.type = b.type;
  p.place = slot.written ? Place::out : Place::in;
  p.stream = b.stream;
  const std::vector<Expr> strides = physical_strides(b);
  for (size_t d = 0; d < strides.size(); ++d) {
    if (!slot.indexed[d]) continue;
    const bool unit = is_const_int(strides[d], 1);
    const bool stated =
        is_const_int(slot.outer[d], 0) && (reaches_past_end(b, d) || (slot.written && unit && has_room_past_end(b, d)));
    p.dims.push_back(stated ? physical_dims(b)[d] : Expr());
    p.strides.push_back(is_baked(b, strides[d]) ? strides[d] : Expr());
  }
  return p;
}

// Registers are declared with the sizes of this variant: the extents of the iterators that index them.
Status LeafBuilder::add_registers(Kernel& k, const std::vector<LeafVariant::Range>& values) {
  for (size_t r = 0; r < regs_.size(); ++r) {
    Buffer b = *kernel_.find_buffer(regs_[r]);
    b.name = fmt::format("r{}", r);
    for (Expr& d : b.dims) {
      if (!is_const_int(d)) return unsupported("register buffer {} has a size that is not constant", regs_[r]);
      for (size_t v = 0; v < variants_.size(); ++v) {
        const int64_t lanes = std::max<int64_t>(variants_[v].lanes, 1);
        const bool largest = d->ival == lanes * variant_extent(v, variants_[v].of.count)->ival;
        if (largest && dim_is_variant(r, static_cast<size_t>(&d - b.dims.data()), v))
          d = Expr(lanes * variant_extent(v, values[v].hi)->ival);
      }
    }
    k.buffers.push_back(std::move(b));
  }
  return {};
}

// Is dimension `dim` of this register indexed by an iterator whose extent is variant v?
bool LeafBuilder::dim_is_variant(size_t reg, size_t dim, size_t v) {
  const auto [known, is_new] = variant_dims_.try_emplace({reg, dim, v}, false);
  bool& found = known->second;
  if (!is_new) return found;
  std::vector<const Stmt*> path;
  const std::function<void(const std::vector<Stmt>&)> visit = [&](const std::vector<Stmt>& body) {
    for (const Stmt& s : body) {
      if (s.kind == Stmt::Kind::scope) {
        path.push_back(&s);
        visit(s.body);
        path.pop_back();
      } else if (s.kind == Stmt::Kind::assign && s.target == regs_[reg]) {
        for (const Stmt* scope : path) {
          found =
              found || (uses(s.index[dim], scope->iter) && variants_[v].is_extent(simplify(scope->extent, ranges_)));
        }
      }
    }
  };
  visit(kernel_.body);
  return found;
}

}  // namespace lathe::search
