// Leaf form: whether statements can be one leaf, and what they touch. leaf_build.cc writes the leaf.
//
//   outside:  names of symbols and nest iterators      -> extent slots e0, e1, ... and operand offsets
//   inside:   iterators of the group                   -> i0, i1, ...
//   access    x[8*m0 + m1, k]  = outer part (8*m0, 0) into the operand's offset, inner part p0[i0, i1]
#include "search/cut/leaf_form.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/analysis/intrinsics.h"
#include "ir/core/layout_steps.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "ir/leaf_abi.h"
#include "search/cut/cut.h"
#include "search/cut/leaf_builder.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kMaxTable = 4096;  // entries of a call's table of leaves

// C mod T of min(T, C - T*i) for constants T and C: what the last of several tiles has; -1: anything else.
int64_t rest_of(const Expr& e, int64_t tile) {
  if (e->op != Op::k_min || !is_const_int(e->args[0], tile)) return -1;
  Addends rest;
  flatten_addends(e->args[1], 1, rest);
  if (rest.terms.size() != 1) return -1;
  const Expr& t = rest.terms[0];
  const bool steps = t->op == Op::k_mul && is_const_int(t->args[0], -tile) && t->args[1]->op == Op::k_iter;
  return steps ? rest.constant % tile : -1;
}

// Whether every statement is inside a scope of this extent: then nothing is lost where it is 0 and the leaf is not
// called.
bool all_inside(const std::vector<Stmt>& body, const LeafVariant& variant) {
  return std::all_of(body.begin(), body.end(), [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::scope) return s.kind == Stmt::Kind::prefetch;
    return variant.is_extent(s.extent) || all_inside(s.body, variant);
  });
}

}  // namespace

// Columns that vary: whole tiles have a leaf without masks, fewer columns one of half as many vectors or one of all,
// the last of them masked.
LeafVariant::Range LeafVariant::leaf_of(int64_t value) const {
  if (lanes == 0 || rest >= 0 || value == of.count) return {value, value};
  const int64_t half = ((of.count + lanes - 1) / lanes + 1) / 2 * lanes;
  return value <= half ? Range{1, std::min<int64_t>(half, of.count - 1)} : Range{half + 1, of.count - 1};
}

bool LeafVariant::is_extent(const Expr& extent) const {
  return lanes == 0
             ? equal(extent, of.extent)
             : extent->op == Op::k_ceildiv && is_const_int(extent->args[1], lanes) && equal(extent->args[0], of.extent);
}

void flatten_addends(const Expr& e, int64_t factor, Addends& out) {
  if (is_const_int(e)) {
    out.constant += factor * e->ival;
  } else if (e->op == Op::k_add || e->op == Op::k_sub) {
    flatten_addends(e->args[0], factor, out);
    flatten_addends(e->args[1], e->op == Op::k_add ? factor : -factor, out);
  } else if (e->op == Op::k_neg) {
    flatten_addends(e->args[0], -factor, out);
  } else if (e->op == Op::k_mul && is_const_int(e->args[0])) {
    flatten_addends(e->args[1], factor * e->args[0]->ival, out);
  } else if (e->op == Op::k_mul && is_const_int(e->args[1])) {
    flatten_addends(e->args[0], factor * e->args[1]->ival, out);
  } else {
    out.terms.push_back(factor == 1 ? e : Expr(factor) * e);
  }
}

Expr sum_addends(const std::vector<Expr>& terms, int64_t constant) {
  Expr out;
  for (const Expr& t : terms) out = out ? out + t : t;
  if (!out) return Expr(constant);
  if (constant > 0) return out + Expr(constant);
  if (constant < 0) return out - Expr(-constant);
  return out;
}

// All i64 but what the leaf makes of a narrower number.
bool is_index(const Expr& value) {
  return value->type == DType::i64 && !(value->op == Op::k_cast && value->args[0]->type != DType::i64);
}

LeafBuilder::LeafBuilder(const Kernel& kernel, const std::vector<const Stmt*>& outer)
    : kernel_(kernel), outer_(outer), ranges_(kernel) {
  for (const Stmt* s : outer) ranges_.enter(*s);
}

Result<LeafGroup> LeafBuilder::run(const Stmt* first, const Stmt* last) {
  const std::span<const Stmt> statements(first, last);
  for_each_stmt(statements, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::scope) {
      inside_.push_back(s.iter);
      holds_inside_ |= holds_name(s.iter);
    }
    if (s.kind == Stmt::Kind::assign) written_.push_back(s.target);
  });
  std::vector<const Stmt*> around;
  LATHE_RETURN_IF_ERROR(check_loops(statements, 0, around, true));
  std::vector<Stmt> group(first, last);
  Ranges ranges = ranges_;
  LATHE_RETURN_IF_ERROR(find_variants(group, ranges, false));
  const auto may_be_nothing = [&](const LeafVariant& v) {
    return !proves_le(Expr(1), v.of.extent, ranges_) && !all_inside(group, v);
  };
  const bool columns_fit = std::none_of(variants_.begin(), variants_.end(),
                                        [&](const LeafVariant& v) { return v.lanes != 0 && may_be_nothing(v); });
  int64_t combinations = 1;
  for (const LeafVariant& v : variants_) combinations *= v.of.count;
  if (!columns_fit || combinations > kMaxTable || count_leaves() > kMaxVariants) {
    drop_columns(group);
    std::erase_if(variants_, [](const LeafVariant& v) { return v.lanes != 0; });
  }
  for (const LeafVariant& v : variants_) {
    if (may_be_nothing(v))
      return unsupported("unrolled scope of extent {}: may be 0 where other statements of the leaf run",
                         print(v.of.extent));
  }
  if (count_leaves() > kMaxVariants) return unsupported("more than {} leaf variants", kMaxVariants);
  LATHE_RETURN_IF_ERROR(collect_all(group));
  if (Status apart = order_slots(); !apart.ok()) {
    near_ = true;
    LATHE_RETURN_IF_ERROR(collect_all(group));
    LATHE_RETURN_IF_ERROR(order_slots());
  }
  LeafGroup out;
  combinations = 1;
  for (const LeafVariant& v : variants_) combinations *= v.of.count;
  std::map<std::vector<LeafVariant::Range>, int> made;
  for (int64_t c = 0; c < combinations; ++c) {
    std::vector<LeafVariant::Range> values(variants_.size());
    int64_t rest = c;
    bool happens = true;
    for (size_t v = variants_.size(); v-- > 0;) {
      const int64_t value = rest % variants_[v].of.count + 1;
      rest /= variants_[v].of.count;
      values[v] = variants_[v].leaf_of(value);
      happens &= variants_[v].takes(value);
    }
    if (!happens) {
      out.call.leaves.push_back(-1);
      continue;
    }
    const auto [leaf_at, is_new] = made.try_emplace(values, static_cast<int>(out.leaves.size()));
    out.call.leaves.push_back(leaf_at->second);
    if (!is_new) continue;
    LATHE_ASSIGN(Leaf leaf, build(group, values));
    out.leaves.push_back(std::move(leaf));
  }
  // The full tile happens: it stands in where nothing is ever called.
  for (int& leaf : out.call.leaves) leaf = leaf < 0 ? out.call.leaves.back() : leaf;
  if (extents_.size() > 8) return unsupported("more than 8 extents");
  for (const LeafVariant& v : variants_) out.call.variants.push_back(v.of);
  for (const LeafExtent& e : extents_) out.call.extents.push_back(e.value);
  if (tensor_steps_) out.call.segments.push_back({tensor_steps_, {}, {}});
  out.call.streams = streams_;
  for (const LeafSlot& s : slots_) out.call.operands.push_back(operand(s));
  return out;
}

bool LeafBuilder::is_inside(const std::string& name) const {
  return std::find(inside_.begin(), inside_.end(), name) != inside_.end();
}

bool LeafBuilder::outside_only(const Expr& e) const {
  bool ok = true;
  if (!e || (e->holds & holds_inside_) == 0) return ok;
  for_each_node(e, [&](const ExprNode& n) { ok &= !(n.op == Op::k_iter && is_inside(n.name)); });
  return ok;
}

// Whether an unrolled scope may run to its largest extent because only masked vector scopes stand below it.
bool LeafBuilder::only_vectors_below(const Stmt& s) {
  return !s.body.empty() && std::all_of(s.body.begin(), s.body.end(), [](const Stmt& c) {
    return c.kind == Stmt::Kind::scope && c.mark == Mark::vector && c.extent->op == Op::k_min;
  });
}

// in_tile: inside a tensor scope, whose sides are one piece.
Status LeafBuilder::find_variants(std::vector<Stmt>& body, Ranges& ranges, bool in_tile) {
  for (Stmt& s : body) {
    if (s.kind != Stmt::Kind::scope) continue;
    s.extent = simplify(s.extent, ranges);
    if (s.mark == Mark::none && !in_tile && !outside_only(s.extent)) {
      return unsupported("scope {}: extent depends on the leaf's own loops", s.iter);
    }
    if (s.mark == Mark::unroll && !is_const_int(s.extent)) {
      if (!outside_only(s.extent))
        return unsupported("unrolled scope {}: extent depends on the leaf's own loops", s.iter);
      const int64_t most = interval(s.extent, ranges).hi;
      if (most < 1 || most > kMaxVariants) {
        return unsupported("unrolled scope {}: extent may reach {}, at most {} allowed", s.iter, most, kMaxVariants);
      }
      if (s.extent->op == Op::k_ceildiv && is_const_int(s.extent->args[1]) && only_vectors_below(s)) {
        add_variant(s.extent->args[0], interval(s.extent->args[0], ranges).hi, s.extent->args[1]->ival);
      } else {
        add_variant(s.extent, most, 0);
      }
    }
    LATHE_RETURN_IF_ERROR(inside_scope(
        ranges, s, [&](Ranges& inner) { return find_variants(s.body, inner, in_tile || s.mark == Mark::tensor); }));
    // As many vectors in whole tiles as in the last one: only the lanes of its last vector tell them apart.
    if (s.mark != Mark::unroll || !is_const_int(s.extent) || !only_vectors_below(s)) continue;
    Expr columns;
    int64_t lanes = 0;
    if (!split_mask(s.body[0], s.iter, ranges, columns, lanes) || is_const_int(columns)) continue;
    const int64_t most = interval(columns, ranges).hi;
    if (most <= s.extent->ival * lanes && rest_of(columns, most) >= 0) add_variant(columns, most, lanes);
  }
  return {};
}

void LeafBuilder::add_variant(const Expr& extent, int64_t count, int64_t lanes) {
  for (const LeafVariant& v : variants_) {
    if (v.lanes == lanes && equal(v.of.extent, extent)) return;
  }
  variants_.push_back({{extent, static_cast<int>(count)}, lanes, rest_of(extent, count)});
}

// One leaf for all columns of a tile: as many vectors as there may be, with masks.
void LeafBuilder::drop_columns(std::vector<Stmt>& body) {
  for (Stmt& s : body) {
    for (const LeafVariant& v : variants_) {
      if (v.lanes != 0 && s.kind == Stmt::Kind::scope && s.mark == Mark::unroll && v.is_extent(s.extent))
        s.extent = Expr((v.of.count + v.lanes - 1) / v.lanes);
    }
    drop_columns(s.body);
  }
}

int64_t LeafBuilder::count_leaves() const {
  int64_t leaves = 1;
  for (const LeafVariant& v : variants_) {
    std::set<LeafVariant::Range> own;
    for (int64_t value = 1; value <= v.of.count; ++value) {
      if (v.takes(value)) own.insert(v.leaf_of(value));
    }
    leaves *= static_cast<int64_t>(own.size());
  }
  return leaves;
}

// Physical index of an access, simplified, one expression per physical dimension.
std::vector<Expr> LeafBuilder::physical_index(const Buffer& b, const std::vector<Expr>& index,
                                              const Ranges& ranges) const {
  std::vector<Expr> out;
  if (b.layout.empty()) {
    for (const Expr& e : index) out.push_back(simplify(e, ranges));
    return out;
  }
  for (const LayoutDim& l : b.layout) {
    Expr e = index[l.dim];
    if (l.part == LayoutDim::Part::outer) e = floordiv(e, Expr(l.tile));
    if (l.part == LayoutDim::Part::inner) e = mod(e, Expr(l.tile));
    out.push_back(simplify(e, ranges));
  }
  return out;
}

// Splits an index into the part of the leaf (inner) and the part outside (outer).
Status LeafBuilder::split(const Expr& e, Expr& inner, Expr& outer) const {
  Addends all;
  flatten_addends(e, 1, all);
  std::vector<Expr> in, out;
  for (const Expr& t : all.terms) {
    if (outside_only(t)) {
      out.push_back(t);
      continue;
    }
    const bool plain =
        t->op == Op::k_iter || (t->op == Op::k_mul && ((is_const_int(t->args[0]) && t->args[1]->op == Op::k_iter) ||
                                                       (is_const_int(t->args[1]) && t->args[0]->op == Op::k_iter)));
    if (!plain) return unsupported("index {} is not affine in the leaf's loops", print(e));
    in.push_back(t);
  }
  const bool indexed = !in.empty();
  inner = indexed ? sum_addends(in, all.constant) : Expr();
  outer = sum_addends(out, indexed ? 0 : all.constant);
  return {};
}

// Whether the slot serves an access at `outer`; near_: of a buffer that is written also at a constant distance, which
// goes into the index inside. What is written through one operand is not taken to be what another one reads.
bool LeafBuilder::serves(const LeafSlot& slot, const std::vector<Expr>& outer, std::vector<Expr>& inner) const {
  std::vector<int64_t> distance(outer.size(), 0);
  const std::string& name = kernel_.buffers[static_cast<size_t>(slot.buffer)].name;
  const bool near = near_ && std::find(written_.begin(), written_.end(), name) != written_.end();
  for (size_t d = 0; d < outer.size(); ++d) {
    if (equal(slot.outer[d], outer[d])) continue;
    if (!near) return false;
    const Expr difference = simplify(outer[d] - slot.outer[d], ranges_);
    if (!is_const_int(difference)) return false;
    distance[d] = difference->ival;
  }
  for (size_t d = 0; d < outer.size(); ++d) {
    if (distance[d] != 0) inner[d] = inner[d] ? inner[d] + Expr(distance[d]) : Expr(distance[d]);
  }
  return true;
}

// A loop at run time, in whose code a value is kept until the next iteration.
static bool is_loop(const Stmt* s) { return s->mark != Mark::unroll && s->mark != Mark::vector; }
static bool has_scope(const LeafUse& use, const Stmt* s) {
  return std::find(use.scopes.begin(), use.scopes.end(), s) != use.scopes.end();
}

// The slot of an access (made if new), and the inner index of every physical dimension. Each variant asks again.
Result<const LeafAccess*> LeafBuilder::slot_of(const std::string& name, const std::vector<Expr>& index,
                                               const Ranges& ranges) {
  const auto [known, is_new] = accesses_.try_emplace({at_, &index});
  LeafAccess& access = known->second;
  if (!is_new) return &access;
  std::vector<Expr>& inner = access.inner;
  int buffer = 0;
  while (kernel_.buffers[buffer].name != name) ++buffer;
  const std::vector<Expr> physical = physical_index(kernel_.buffers[buffer], index, ranges);
  std::vector<Expr> outer(physical.size());
  inner.assign(physical.size(), Expr());
  for (size_t d = 0; d < physical.size(); ++d) LATHE_RETURN_IF_ERROR(split(physical[d], inner[d], outer[d]));
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].buffer != buffer) continue;
    if (!serves(slots_[i], outer, inner)) continue;
    access.slot = static_cast<int>(i);
    return &access;
  }
  access.slot = static_cast<int>(slots_.size());
  slots_.push_back({buffer, outer, std::vector<bool>(outer.size(), false), false, {}});
  return &access;
}

Status LeafBuilder::collect_access(const std::string& name, const std::vector<Expr>& index, const Ranges& ranges,
                                   bool write, const std::vector<const Stmt*>& scopes) {
  const Buffer* b = kernel_.find_buffer(name);
  if (b == nullptr) return internal_error("unknown buffer {}", name);
  if (b->place == Place::reg) return {};
  LATHE_ASSIGN(const LeafAccess* access, slot_of(name, index, ranges));
  const int s = access->slot;
  for (size_t d = 0; d < access->inner.size(); ++d) {
    if (access->inner[d]) slots_[s].indexed[d] = true;
  }
  slots_[s].written |= write;
  const auto loop = std::find_if(scopes.rbegin(), scopes.rend(), is_loop);
  slots_[s].loops.push_back(loop == scopes.rend() ? nullptr : *loop);
  uses_.push_back({s, write, scopes});
  return {};
}

Status LeafBuilder::collect_all(const std::vector<Stmt>& group) {
  slots_.clear();
  uses_.clear();
  accesses_.clear();
  Ranges ranges = ranges_;
  std::vector<const Stmt*> scopes;
  return collect_slots(group, ranges, scopes);
}

// Integers are the nest's, and so is what they load.
Status LeafBuilder::collect_loads(const Expr& e, const Ranges& ranges, const std::vector<const Stmt*>& scopes) {
  if (e->op == Op::k_load) return collect_access(e->name, e->args, ranges, false, scopes);
  if (is_index(e)) return {};
  for (const Expr& a : e->args) LATHE_RETURN_IF_ERROR(collect_loads(a, ranges, scopes));
  return {};
}

Status LeafBuilder::collect_slots(const std::vector<Stmt>& body, Ranges& ranges, std::vector<const Stmt*>& scopes) {
  for (const Stmt& s : body) {
    if (s.kind == Stmt::Kind::scope) {
      scopes.push_back(&s);
      LATHE_RETURN_IF_ERROR(
          inside_scope(ranges, s, [&](Ranges& inner) { return collect_slots(s.body, inner, scopes); }));
      scopes.pop_back();
    } else if (s.kind == Stmt::Kind::assign) {
      at_ = &s;
      LATHE_RETURN_IF_ERROR(collect_loads(s.value, ranges, scopes));
      LATHE_RETURN_IF_ERROR(collect_access(s.target, s.index, ranges, true, scopes));
    }
  }
  return {};
}

// Whether the leaf may read, through one operand, what it had there before `write` went to another operand of the same
// buffer. Generated code keeps a value that it read or wrote until a statement writes through the same operand or until
// the loop around it ends; what one loop does is checked by order_slots().
bool LeafBuilder::reads_old_value(const LeafUse& write) const {
  const auto at = static_cast<size_t>(&write - uses_.data());
  const int buffer = slots_[static_cast<size_t>(write.slot)].buffer;
  for (size_t later = 0; later < uses_.size(); ++later) {
    const LeafUse& read = uses_[later];
    if (read.write || read.slot == write.slot || slots_[static_cast<size_t>(read.slot)].buffer != buffer) continue;
    for (size_t earlier = 0; earlier < uses_.size(); ++earlier) {
      const LeafUse& kept = uses_[earlier];
      if (kept.slot != read.slot) continue;
      const auto in_all = [&](const Stmt* s) { return has_scope(read, s) && has_scope(write, s); };
      const auto loops_last =
          std::all_of(kept.scopes.begin(), kept.scopes.end(), [&](const Stmt* s) { return !is_loop(s) || in_all(s); });
      const bool copied = std::any_of(kept.scopes.begin(), kept.scopes.end(),
                                      [&](const Stmt* s) { return s->mark == Mark::unroll && in_all(s); });
      if (loops_last && (copied || (earlier < at && at < later))) return true;
    }
  }
  return false;
}

Status LeafBuilder::order_slots() {
  if (slots_.size() > 12) return unsupported("more than 12 operands");
  for (size_t i = 0; i < slots_.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const bool together = std::any_of(slots_[i].loops.begin(), slots_[i].loops.end(), [&](const Stmt* l) {
        return std::find(slots_[j].loops.begin(), slots_[j].loops.end(), l) != slots_[j].loops.end();
      });
      if (slots_[i].buffer == slots_[j].buffer && together && (slots_[i].written || slots_[j].written)) {
        return unsupported("buffer {} is written and used at another offset in one loop of a leaf",
                           kernel_.buffers[slots_[i].buffer].name);
      }
    }
    const Buffer& b = kernel_.buffers[static_cast<size_t>(slots_[i].buffer)];
    const std::vector<Expr> strides = physical_strides(b);
    int given = 0;
    for (size_t d = 0; d < strides.size(); ++d) {
      if (slots_[i].indexed[d] && ++given > kMaxLeafStrides && !is_baked(b, strides[d]))
        return unsupported("an operand with more than {} strides", kMaxLeafStrides);
    }
  }
  for (const LeafUse& use : uses_) {
    if (use.write && reads_old_value(use))
      return unsupported("buffer {} is read again after it was written at another offset",
                         kernel_.buffers[static_cast<size_t>(slots_[static_cast<size_t>(use.slot)].buffer)].name);
  }
  return {};
}

NestOperand LeafBuilder::operand(const LeafSlot& slot) const {
  const Buffer& b = kernel_.buffers[slot.buffer];
  const std::vector<Expr> strides = physical_strides(b);
  NestOperand out;
  out.buffer = slot.buffer;
  out.type = b.type;
  Expr offset(0);
  for (size_t d = 0; d < strides.size(); ++d) {
    offset = offset + slot.outer[d] * strides[d];
    if (slot.indexed[d] && out.strides.size() < kMaxLeafStrides) out.strides.push_back(strides[d]);
  }
  out.offset = simplify(offset, ranges_);
  return out;
}

std::vector<Expr> physical_strides(const Buffer& buffer) {
  if (!buffer.strides.empty() && !is_packed(buffer)) return buffer.strides;
  const std::vector<Expr> dims = physical_dims(buffer);
  std::vector<Expr> out(dims.size());
  Expr stride(1);
  for (size_t d = dims.size(); d-- > 0;) {
    if (const int64_t step = stated_step(buffer, d); step != 0) stride = Expr(step);
    out[d] = stride;
    int64_t product = 0;
    if (d == 0) break;
    const bool number =
        is_const_int(stride) && is_const_int(dims[d]) && !__builtin_mul_overflow(stride->ival, dims[d]->ival, &product);
    stride = number ? Expr(product) : simplify(stride * dims[d]);
  }
  return out;
}

Result<LeafGroup> make_leaf(const Kernel& kernel, const Stmt* first, const Stmt* last,
                            const std::vector<const Stmt*>& outer) {
  return LeafBuilder(kernel, outer).run(first, last);
}

}  // namespace lathe::search
