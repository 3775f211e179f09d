// Leaf form and canonical leaves.
//
//   outside:  names of symbols and nest iterators      -> extent slots e0, e1, ... and operand offsets
//   inside:   iterators of the group                   -> i0, i1, ...
//   access    x[8*m0 + m1, k]  = outer part (8*m0, 0) into the operand's offset, inner part p0[i0, i1]
#include "search/leaf_form.h"

#include <algorithm>

#include "ir/analysis.h"
#include "ir/text_form.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int kMaxVariants = 32;
constexpr int kMaxLoops = 3;
constexpr int64_t kMaxBakedStride = 64;

// A sum as signed addends; the constant is folded.
struct Addends {
  std::vector<Expr> terms;  // with their factors
  int64_t constant = 0;
};

void flatten(const Expr& e, int64_t factor, Addends& out) {
  if (is_const_int(e)) {
    out.constant += factor * e->ival;
  } else if (e->op == Op::k_add || e->op == Op::k_sub) {
    flatten(e->args[0], factor, out);
    flatten(e->args[1], e->op == Op::k_add ? factor : -factor, out);
  } else if (e->op == Op::k_neg) {
    flatten(e->args[0], -factor, out);
  } else if (e->op == Op::k_mul && is_const_int(e->args[0])) {
    flatten(e->args[1], factor * e->args[0]->ival, out);
  } else if (e->op == Op::k_mul && is_const_int(e->args[1])) {
    flatten(e->args[0], factor * e->args[1]->ival, out);
  } else {
    out.terms.push_back(factor == 1 ? e : Expr(factor) * e);
  }
}

Expr sum(const std::vector<Expr>& terms, int64_t constant) {
  Expr out;
  for (const Expr& t : terms) out = out ? out + t : t;
  if (!out) return Expr(constant);
  if (constant > 0) return out + Expr(constant);
  if (constant < 0) return out - Expr(-constant);
  return out;
}

// One operand slot while it is being collected.
struct Slot {
  int buffer = -1;              // index into kernel.buffers
  std::vector<Expr> outer;      // per physical dimension
  std::vector<bool> indexed;    // per physical dimension: some access uses leaf iterators or constants there
  bool written = false;
  std::vector<const Stmt*> loops;  // innermost loops that use it
};

class Builder {
 public:
  Builder(const Kernel& kernel, const std::vector<const Stmt*>& outer) : kernel_(kernel), ranges_(kernel) {
    for (const Stmt* s : outer) ranges_.enter(*s);
  }

  Result<LeafGroup> run(const Stmt* first, const Stmt* last) {
    std::vector<Stmt> group(first, last);
    for_each_stmt(group, [&](const Stmt& s) {
      if (s.kind == Stmt::Kind::scope) inside_.push_back(s.iter);
    });
    LATHE_RETURN_IF_ERROR(check_loops(group, 0, false));
    LATHE_RETURN_IF_ERROR(find_variants(group, ranges_, false));
    LATHE_RETURN_IF_ERROR(collect_slots(group, ranges_, nullptr));
    LATHE_RETURN_IF_ERROR(order_slots());
    LeafGroup out;
    int64_t combinations = 1;
    for (const NestCall::Variant& v : variants_) combinations *= v.count;
    if (combinations > kMaxVariants) return unsupported("more than {} leaf variants", kMaxVariants);
    for (int64_t c = 0; c < combinations; ++c) {
      std::vector<int64_t> values(variants_.size());
      int64_t rest = c;
      for (size_t v = variants_.size(); v-- > 0;) {
        values[v] = rest % variants_[v].count + 1;
        rest /= variants_[v].count;
      }
      LATHE_ASSIGN(Leaf leaf, build(group, values));
      out.call.leaves.push_back(static_cast<int>(out.leaves.size()));
      out.leaves.push_back(std::move(leaf));
    }
    if (extents_.size() > 8) return unsupported("more than 8 extents");
    out.call.variants = variants_;
    out.call.extents = extents_;
    out.call.tensor_steps = tensor_steps_;
    out.call.streams = streams_;
    for (const Slot& s : slots_) out.call.operands.push_back(operand(s));
    return out;
  }

 private:
  bool is_inside(const std::string& name) const {
    return std::find(inside_.begin(), inside_.end(), name) != inside_.end();
  }
  bool outside_only(const Expr& e) const {
    bool ok = true;
    for_each_node(e, [&](const ExprNode& n) { ok &= !(n.op == Op::k_iter && is_inside(n.name)); });
    return ok;
  }

  Status check_loops(const std::vector<Stmt>& body, int depth, bool in_real_loop) {
    for (const Stmt& s : body) {
      if (s.kind != Stmt::Kind::scope) continue;
      if (s.mark == Mark::parallel) return unsupported("scope {} is parallel", s.iter);
      const bool mma = s.mark == Mark::tensor && s.intrinsic == "mma";
      if (mma && in_real_loop) return unsupported("tensor scope {} stands inside a loop", s.iter);
      const bool squares = s.mark == Mark::tensor && !mma;
      if (squares && !(outside_only(s.extent) && outside_only(s.body[0].extent))) {
        return unsupported("transpose {}: its extents depend on the leaf's own loops", s.iter);
      }
      const bool real = s.mark == Mark::none || s.mark == Mark::tensor;
      const int inner = depth + (real ? 1 : 0);
      if (inner > kMaxLoops) return unsupported("scope {} is nested deeper than {} loops", s.iter, kMaxLoops);
      LATHE_RETURN_IF_ERROR(check_loops(s.body, inner, in_real_loop || s.mark == Mark::none));
    }
    return {};
  }

  // Whether an unrolled scope may run to its largest extent because only masked vector scopes stand below it.
  static bool only_vectors_below(const Stmt& s) {
    return !s.body.empty() && std::all_of(s.body.begin(), s.body.end(), [](const Stmt& c) {
      return c.kind == Stmt::Kind::scope && c.mark == Mark::vector && c.extent->op == Op::k_min;
    });
  }

  // in_tile: inside a tensor scope, whose sides are one piece.
  Status find_variants(std::vector<Stmt>& body, const Ranges& ranges, bool in_tile) {
    for (Stmt& s : body) {
      if (s.kind != Stmt::Kind::scope) continue;
      s.extent = simplify(s.extent, ranges);
      Ranges inner = ranges;
      inner.enter(s);
      if (s.mark == Mark::none && !in_tile && !outside_only(s.extent)) {
        return unsupported("scope {}: extent depends on the leaf's own loops", s.iter);
      }
      if (s.mark == Mark::unroll && !is_const_int(s.extent)) {
        if (!outside_only(s.extent)) return unsupported("unrolled scope {}: extent depends on the leaf's own loops", s.iter);
        const int64_t most = interval(s.extent, ranges).hi;
        if (most < 1 || most > kMaxVariants) {
          return unsupported("unrolled scope {}: extent may reach {}, at most {} allowed", s.iter, most, kMaxVariants);
        }
        if (s.extent->op == Op::k_ceildiv && only_vectors_below(s)) {
          s.extent = Expr(most);
        } else {
          add_variant(s.extent, static_cast<int>(most));
        }
      }
      LATHE_RETURN_IF_ERROR(find_variants(s.body, inner, in_tile || s.mark == Mark::tensor));
    }
    return {};
  }

  void add_variant(const Expr& extent, int count) {
    for (const NestCall::Variant& v : variants_) {
      if (equal(v.extent, extent)) return;
    }
    variants_.push_back({extent, count});
  }

  // Physical index of an access, simplified, one expression per physical dimension.
  std::vector<Expr> physical_index(const Buffer& b, const std::vector<Expr>& index, const Ranges& ranges) const {
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
  Status split(const Expr& e, Expr& inner, Expr& outer) const {
    Addends all;
    flatten(e, 1, all);
    std::vector<Expr> in, out;
    for (const Expr& t : all.terms) {
      if (outside_only(t)) {
        out.push_back(t);
        continue;
      }
      const bool plain = t->op == Op::k_iter ||
                         (t->op == Op::k_mul && ((is_const_int(t->args[0]) && t->args[1]->op == Op::k_iter) ||
                                                 (is_const_int(t->args[1]) && t->args[0]->op == Op::k_iter)));
      if (!plain) return unsupported("index {} is not affine in the leaf's loops", print(e));
      in.push_back(t);
    }
    const bool indexed = !in.empty();
    inner = indexed ? sum(in, all.constant) : Expr();
    outer = sum(out, indexed ? 0 : all.constant);
    return {};
  }

  // The slot of an access (made if new), and the inner index of every physical dimension (null: none).
  Result<int> slot_of(const std::string& name, const std::vector<Expr>& index, const Ranges& ranges,
                      std::vector<Expr>& inner) {
    int buffer = 0;
    while (kernel_.buffers[buffer].name != name) ++buffer;
    const std::vector<Expr> physical = physical_index(kernel_.buffers[buffer], index, ranges);
    std::vector<Expr> outer(physical.size());
    inner.assign(physical.size(), Expr());
    for (size_t d = 0; d < physical.size(); ++d) LATHE_RETURN_IF_ERROR(split(physical[d], inner[d], outer[d]));
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].buffer != buffer) continue;
      bool same = true;
      for (size_t d = 0; d < outer.size(); ++d) same &= equal(slots_[i].outer[d], outer[d]);
      if (same) return static_cast<int>(i);
    }
    slots_.push_back({buffer, outer, std::vector<bool>(outer.size(), false), false, {}});
    return static_cast<int>(slots_.size() - 1);
  }

  Status collect_access(const std::string& name, const std::vector<Expr>& index, const Ranges& ranges, bool write,
                        const Stmt* loop) {
    const Buffer* b = kernel_.find_buffer(name);
    if (b == nullptr) return internal_error("unknown buffer {}", name);
    if (b->place == Place::reg) return {};
    std::vector<Expr> inner;
    LATHE_ASSIGN(const int s, slot_of(name, index, ranges, inner));
    for (size_t d = 0; d < inner.size(); ++d) {
      if (inner[d]) slots_[s].indexed[d] = true;
    }
    slots_[s].written |= write;
    slots_[s].loops.push_back(loop);
    return {};
  }

  Status collect_slots(const std::vector<Stmt>& body, const Ranges& ranges, const Stmt* loop) {
    for (const Stmt& s : body) {
      if (s.kind == Stmt::Kind::scope) {
        Ranges inner = ranges;
        inner.enter(s);
        const bool straight = s.mark == Mark::unroll || s.mark == Mark::vector;
        LATHE_RETURN_IF_ERROR(collect_slots(s.body, inner, straight ? loop : &s));
      } else if (s.kind == Stmt::Kind::assign) {
        Status status;
        for_each_node(s.value, [&](const ExprNode& n) {
          if (n.op == Op::k_load && status.ok()) status = collect_access(n.name, n.args, ranges, false, loop);
        });
        LATHE_RETURN_IF_ERROR(status);
        LATHE_RETURN_IF_ERROR(collect_access(s.target, s.index, ranges, true, loop));
      }
    }
    return {};
  }

  Status order_slots() {
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
      if (std::count(slots_[i].indexed.begin(), slots_[i].indexed.end(), true) > 4) {
        return unsupported("an operand with more than 4 strides");
      }
    }
    return {};
  }

  NestOperand operand(const Slot& slot) const {
    const Buffer& b = kernel_.buffers[slot.buffer];
    const std::vector<Expr> strides = physical_strides(b);
    NestOperand out;
    out.buffer = slot.buffer;
    out.type = b.type;
    Expr offset(0);
    for (size_t d = 0; d < strides.size(); ++d) {
      offset = offset + slot.outer[d] * strides[d];
      if (slot.indexed[d]) out.strides.push_back(strides[d]);
    }
    out.offset = simplify(offset, ranges_);
    return out;
  }

  // --- building one variant ---

  Expr slot_for_extent(const Expr& value) {
    for (size_t i = 0; i < extents_.size(); ++i) {
      if (equal(extents_[i], value)) return symbol(fmt::format("e{}", i));
    }
    extents_.push_back(value);
    return symbol(fmt::format("e{}", extents_.size() - 1));
  }

  Expr rename(const Expr& e) const {
    return rewrite(e, [&](const Expr& n) -> Expr {
      if (n->op != Op::k_iter) return {};
      for (const auto& [from, to] : iter_names_) {
        if (from == n->name) return iter(to);
      }
      return {};
    });
  }

  // An extent inside the leaf: outside parts become slots, min and ceildiv keep their shape.
  Result<Expr> leaf_extent(const Expr& e) {
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
    flatten(inner, 1, terms);
    Expr out = slot_for_extent(simplify(outer + Expr(terms.constant), ranges_));
    for (const Expr& t : terms.terms) {
      const bool negative = t->op == Op::k_mul && is_const_int(t->args[0]) && t->args[0]->ival < 0;
      out = negative ? out - Expr(-t->args[0]->ival) * rename(t->args[1]) : out + rename(t);
    }
    return out;
  }

  // R and V if `vector` has extent min(V, R - V*i) for its parent's iterator i and an R from outside the leaf.
  bool split_mask(const Stmt& vector, const std::string& i, Expr& r, int64_t& v) const {
    if (vector.mark != Mark::vector || vector.extent->op != Op::k_min) return false;
    for (int side = 0; side < 2; ++side) {
      const Expr &width = vector.extent->args[side], &rest = vector.extent->args[1 - side];
      if (!is_const_int(width) || outside_only(rest)) continue;
      Addends sum_of;
      flatten(rest, 1, sum_of);
      std::vector<Expr> outside;
      bool fits = true;
      for (const Expr& t : sum_of.terms) {
        if (outside_only(t)) {
          outside.push_back(t);
        } else {
          fits &= t->op == Op::k_mul && is_const_int(t->args[0], -width->ival) && t->args[1]->op == Op::k_iter && t->args[1]->name == i;
        }
      }
      if (!fits) continue;
      v = width->ival;
      r = simplify(sum(outside, sum_of.constant), ranges_);
      return true;
    }
    return false;
  }

  // Whether the loop runs over ceildiv(R, V) vectors that mask themselves by R; sets masked_by_ and masked_width_.
  bool masks_vectors(const Stmt& loop, const Ranges& ranges) {
    for (const Stmt& child : loop.body) {
      if (child.kind != Stmt::Kind::scope || !split_mask(child, loop.iter, masked_by_, masked_width_)) continue;
      const Expr vectors = simplify(ceildiv(masked_by_, Expr(masked_width_)), ranges);
      if (equal(vectors, simplify(loop.extent, ranges))) return true;
    }
    return false;
  }

  Result<Expr> vector_extent(const Stmt& s, const Stmt* parent) {
    if (is_const_int(s.extent)) return s.extent;
    Expr r;
    int64_t v = 0;
    if (parent != nullptr && split_mask(s, parent->iter, r, v)) {
      return min(Expr(v), slot_for_extent(r) - Expr(v) * rename(iter(parent->iter)));
    }
    return leaf_extent(s.extent);
  }

  Result<Expr> leaf_value(const Expr& e, const Ranges& ranges) {
    if (e->op == Op::k_load) {
      std::vector<Expr> index;
      LATHE_ASSIGN(const std::string name, leaf_access(e->name, e->args, ranges, index));
      return load(name, std::move(index), e->type);
    }
    if (e->type == DType::i64 && !is_const_int(e)) {
      if (!outside_only(e)) return unsupported("a value uses the leaf's own iterator in {}", print(e));
      return slot_for_extent(simplify(e, ranges));
    }
    if (e->args.empty()) return e;
    auto node = std::make_shared<ExprNode>(*e);
    for (Expr& a : node->args) {
      LATHE_ASSIGN(a, leaf_value(a, ranges));
    }
    return Expr(std::shared_ptr<const ExprNode>(std::move(node)));
  }

  Result<std::string> leaf_access(const std::string& name, const std::vector<Expr>& index, const Ranges& ranges,
                                  std::vector<Expr>& out) {
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
    std::vector<Expr> inner;
    LATHE_ASSIGN(const int s, slot_of(name, index, ranges, inner));
    for (size_t d = 0; d < inner.size(); ++d) {
      if (slots_[s].indexed[d]) out.push_back(inner[d] ? rename(inner[d]) : Expr(0));
    }
    return fmt::format("p{}", s);
  }

  Result<std::vector<Stmt>> build_body(const std::vector<Stmt>& body, const std::vector<int64_t>& values,
                                       const Ranges& ranges, const Stmt* parent) {
    std::vector<Stmt> out;
    for (const Stmt& s : body) {
      Stmt t = s;
      t.role.clear();
      if (s.kind == Stmt::Kind::prefetch) {
        if (parent != nullptr) LATHE_RETURN_IF_ERROR(add_stream(s, *parent, ranges, t));
      } else if (s.kind == Stmt::Kind::scope) {
        t.iter = fmt::format("i{}", iter_names_.size());
        iter_names_.emplace_back(s.iter, t.iter);
        Ranges inner = ranges;
        inner.enter(s);
        if (s.mark == Mark::tensor && s.intrinsic == "mma") {
          if (tensor_steps_ && !equal(tensor_steps_, s.extent)) return unsupported("two tensor loops of unlike extent");
          tensor_steps_ = s.extent;
          t.extent = symbol("seglen");
        } else if (s.mark == Mark::unroll && !is_const_int(s.extent)) {
          for (size_t v = 0; v < variants_.size(); ++v) {
            if (equal(variants_[v].extent, s.extent)) t.extent = Expr(values[v]);
          }
        } else if (s.mark == Mark::vector) {
          LATHE_ASSIGN(t.extent, vector_extent(s, parent));
        } else if (s.mark == Mark::none && masks_vectors(s, inner)) {
          t.extent = ceildiv(slot_for_extent(masked_by_), Expr(masked_width_));
        } else if (s.mark != Mark::unroll && outside_only(s.extent)) {
          t.extent = slot_for_extent(s.extent);
        } else {
          LATHE_ASSIGN(t.extent, leaf_extent(s.extent));
        }
        LATHE_ASSIGN(t.body, build_body(s.body, values, inner, &s));
      } else {
        LATHE_ASSIGN(t.value, leaf_value(s.value, ranges));
        LATHE_ASSIGN(t.target, leaf_access(s.target, s.index, ranges, t.index));
      }
      out.push_back(std::move(t));
    }
    return out;
  }

  // The stream of a prefetch statement: which operand, and how many bytes one call reads of it.
  Status add_stream(const Stmt& s, const Stmt& tensor, const Ranges& ranges, Stmt& leaf) {
    int found = -1;
    Expr step;
    for_each_stmt(tensor.body, [&](const Stmt& inner) {
      if (inner.kind != Stmt::Kind::assign || found >= 0) return;
      for_each_node(inner.value, [&](const ExprNode& n) {
        if (n.op != Op::k_load || n.name != s.target || found >= 0) return;
        for (size_t i = 0; i < slots_.size(); ++i) {
          if (kernel_.buffers[slots_[i].buffer].name == s.target) found = static_cast<int>(i);
        }
        const Buffer& b = *kernel_.find_buffer(n.name);
        const std::vector<Expr> index = physical_index(b, n.args, ranges), strides = physical_strides(b);
        for (size_t d = 0; d < index.size(); ++d) {
          if (uses(index[d], tensor.iter)) step = strides[d] * Expr(dtype_bytes(b.type));
        }
      });
    });
    if (found < 0 || !step) return unsupported("prefetch of {}: the tensor scope does not read it", s.target);
    leaf.target = fmt::format("p{}", found);
    leaf.distance = 0;
    leaf.iter.clear();
    if (building_streams_) {
      streams_.push_back({found, s.distance, s.iter, simplify(tensor.extent * step, ranges_), s.lines});
    }
    return {};
  }

  Result<Leaf> build(const std::vector<Stmt>& group, const std::vector<int64_t>& values) {
    iter_names_.clear();
    regs_.clear();
    building_streams_ = streams_.empty();
    Leaf leaf;
    Kernel& k = leaf.kernel;
    k.name = "leaf";
    k.family = "leaf";
    LATHE_ASSIGN(k.body, build_body(group, values, ranges_, nullptr));
    for (size_t i = 0; i < slots_.size(); ++i) k.buffers.push_back(leaf_operand(slots_[i], static_cast<int>(i)));
    LATHE_RETURN_IF_ERROR(add_registers(k, values));
    for (size_t i = 0; i < extents_.size(); ++i) k.symbols.push_back({fmt::format("e{}", i), 0, INT64_MAX, 1});
    if (tensor_steps_) k.symbols.push_back({"seglen", 0, INT64_MAX, 1});
    leaf.text = print(k);
    return leaf;
  }

  Buffer leaf_operand(const Slot& slot, int number) const {
    const Buffer& b = kernel_.buffers[slot.buffer];
    Buffer p;
    p.name = fmt::format("p{}", number);
    p.type = b.type;
    p.place = slot.written ? Place::out : Place::in;
    const std::vector<Expr> strides = physical_strides(b);
    for (size_t d = 0; d < strides.size(); ++d) {
      if (!slot.indexed[d]) continue;
      p.dims.emplace_back();
      const bool unit = is_const_int(strides[d], 1);
      const bool tiled = !b.layout.empty() && is_const_int(strides[d]) && strides[d]->ival <= kMaxBakedStride;
      p.strides.push_back(unit || tiled ? strides[d] : Expr());
    }
    return p;
  }

  // Registers are declared with the sizes of this variant: the extents of the iterators that index them.
  Status add_registers(Kernel& k, const std::vector<int64_t>& values) {
    for (size_t r = 0; r < regs_.size(); ++r) {
      Buffer b = *kernel_.find_buffer(regs_[r]);
      b.name = fmt::format("r{}", r);
      for (Expr& d : b.dims) {
        if (!is_const_int(d)) return unsupported("register buffer {} has a size that is not constant", regs_[r]);
        for (size_t v = 0; v < variants_.size(); ++v) {
          if (d->ival == variants_[v].count && dim_is_variant(regs_[r], &d - b.dims.data(), v)) d = Expr(values[v]);
        }
      }
      k.buffers.push_back(std::move(b));
    }
    return {};
  }

  // Is dimension `dim` of this register indexed by an iterator whose extent is variant v?
  bool dim_is_variant(const std::string& reg, ptrdiff_t dim, size_t v) const {
    bool found = false;
    std::vector<const Stmt*> path;
    const std::function<void(const std::vector<Stmt>&)> visit = [&](const std::vector<Stmt>& body) {
      for (const Stmt& s : body) {
        if (s.kind == Stmt::Kind::scope) {
          path.push_back(&s);
          visit(s.body);
          path.pop_back();
        } else if (s.kind == Stmt::Kind::assign && s.target == reg) {
          for (const Stmt* scope : path) {
            found |= uses(s.index[dim], scope->iter) && equal(simplify(scope->extent, ranges_), variants_[v].extent);
          }
        }
      }
    };
    visit(kernel_.body);
    return found;
  }

  const Kernel& kernel_;
  Ranges ranges_;
  std::vector<std::string> inside_;
  std::vector<NestCall::Variant> variants_;
  std::vector<Slot> slots_;
  std::vector<Expr> extents_;
  std::vector<NestStream> streams_;
  Expr tensor_steps_;
  bool building_streams_ = false;
  Expr masked_by_;
  int64_t masked_width_ = 0;
  std::vector<std::pair<std::string, std::string>> iter_names_;
  std::vector<std::string> regs_;
};

}  // namespace

std::vector<Expr> physical_strides(const Buffer& buffer) {
  if (!buffer.strides.empty()) return buffer.strides;
  const std::vector<Expr> dims = physical_dims(buffer);
  std::vector<Expr> out(dims.size());
  Expr stride(1);
  for (size_t d = dims.size(); d-- > 0;) {
    out[d] = stride;
    stride = simplify(stride * dims[d]);
  }
  return out;
}

Result<LeafGroup> make_leaf(const Kernel& kernel, const Stmt* first, const Stmt* last,
                            const std::vector<const Stmt*>& outer) {
  return Builder(kernel, outer).run(first, last);
}

}  // namespace lathe::search
