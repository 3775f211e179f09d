// pack_kernel: the copy that fills a constant operand's packed form, or makes its elements of the caller's. Scheduled
// by the pack recipe, run once per weight.
//
//   w: f32[N, K] layout [0/32, 1, 0%32]      for d0 < ceildiv(N, 32): for d1 < K: for d2 < min(32, N - 32*d0):
//                                              dst[d0, d1, d2] = src[32*d0 + d2, d1]
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/layout_steps.h"
#include "ir/core/made_sums.h"
#include "search/cut/cut.h"
#include "search/cut/leaf_form.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

bool is_packed(const Buffer& b) {
  const bool padded = std::any_of(b.padding.begin(), b.padding.end(), [](int64_t pad) { return pad != 0; });
  return b.place == Place::constant && (!b.layout.empty() || padded || b.made);
}

static Expr zero_of(DType type) {
  if (is_float(type)) return const_float(0, type);
  return type == DType::i64 ? Expr(0) : cast(type, Expr(0));
}

int64_t sharing_a_word(const Buffer& b, int dim) {
  int64_t out = 1;
  if (!b.made) return out;
  for_each_node(b.made, [&](const ExprNode& n) {
    if (n.op == Op::k_floordiv && is_const_int(n.args[1]) && uses(n.args[0], fmt::format("d{}", dim)))
      out = std::max(out, n.args[1]->ival);
  });
  return out;
}

constexpr int64_t kMostUnrolled = 16;

bool decides(const Expr& e, const std::string& name) {
  bool out = false;
  for_each_node(e, [&](const ExprNode& n) {
    const bool counts = n.op == Op::k_shift_left || n.op == Op::k_shift_right;
    const bool compares = op_info(n.op).cls == OpClass::kCompare && n.args[0]->type == DType::i64;
    out |= (counts && uses(n.args[1], name)) || (compares && (uses(n.args[0], name) || uses(n.args[1], name)));
  });
  return out;
}

bool decides_how(const Buffer& b, int dim) {
  if (!b.made || !is_const_int(b.dims[dim]) || b.dims[dim]->ival > kMostUnrolled) return false;
  return decides(b.made, fmt::format("d{}", dim));
}

// Divisors of dimension `dim` in what an element is made of, below `most`, the largest first: those of indices, and
// quotients in counts of shifts.
static std::vector<int64_t> finer_words(const Buffer& b, int dim, int64_t most) {
  std::vector<int64_t> out;
  const std::string name = fmt::format("d{}", dim);
  const auto of_dim = [&](const Expr& e) { return e->op == Op::k_iter && e->name == name; };
  // x // a: a. (x // a) % b: a * b, after which it begins anew.
  const auto quotient = [&](const ExprNode& n) -> int64_t {
    if (n.op != Op::k_floordiv && n.op != Op::k_mod) return 0;
    if (!is_const_int(n.args[1])) return 0;
    if (n.op == Op::k_floordiv) return of_dim(n.args[0]) ? n.args[1]->ival : 0;
    const Expr& x = n.args[0];
    const bool of_quotient = x->op == Op::k_floordiv && of_dim(x->args[0]) && is_const_int(x->args[1]);
    return of_quotient ? x->args[1]->ival * n.args[1]->ival : 0;
  };
  const auto note = [&](const Expr& e, bool quotients_alone) {
    for_each_node(e, [&](const ExprNode& n) {
      int64_t by = quotient(n);
      const bool divides = n.op == Op::k_floordiv || n.op == Op::k_mod;
      if (by == 0 && !quotients_alone && divides && is_const_int(n.args[1]) && uses(n.args[0], name))
        by = n.args[1]->ival;
      if (by > 1 && by < most && most % by == 0) out.push_back(by);
    });
  };
  for_each_node(b.made, [&](const ExprNode& n) {
    if (n.op == Op::k_shift_left || n.op == Op::k_shift_right) note(n.args[1], true);
    if (n.op != Op::k_load) return;
    for (const Expr& index : n.args) note(index, false);
  });
  std::sort(out.rbegin(), out.rend());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// for d < E: S(d)  ->  for da < E // bits: for d < bits: S(bits*da + d), the inner one in finer words again; E is a
// multiple, by whole tiles or by the size
Stmt by_words(const Stmt& body, const Expr& d, const Expr& extent, const Buffer& b, int dim, const char* role) {
  const std::string& name = d->name;
  const int64_t bits = sharing_a_word(b, dim);
  const std::vector<int64_t> finer = finer_words(b, dim, bits);
  std::vector<int64_t> words = {bits};
  words.insert(words.end(), finer.begin(), finer.end());
  const auto whole = [&](const Expr& e) { return simplify(floordiv(e, Expr(bits))); };
  const Expr count = extent->op == Op::k_min ? min(whole(extent->args[0]), whole(extent->args[1])) : whole(extent);
  Expr at = d;
  Ranges ranges;
  ranges.set(name, {0, words.back() - 1});
  std::vector<std::string> names;
  std::vector<Expr> extents;
  for (size_t i = 0; i < words.size(); ++i) {
    names.push_back(fmt::format("{}{}", name, char('a' + i)));
    extents.push_back(i == 0 ? count : Expr(words[i - 1] / words[i]));
    at = Expr(words[i]) * iter(names[i]) + at;
    ranges.set(names[i], {0, is_const_int(extents[i]) ? extents[i]->ival - 1 : INT64_MAX - 1});
  }
  std::vector<Stmt> inner = {body};
  rewrite_exprs(inner, [&](const Expr& e) { return e->op == Op::k_iter && e->name == name ? at : Expr(); });
  rewrite_exprs(inner, [&](const Expr& e) { return e->type == DType::i64 ? simplify(e, ranges) : Expr(); });
  const auto is_decided_by = [&](const std::string& iterator) {
    bool found = false;
    for_each_stmt(inner, [&](const Stmt& s) { found |= s.value && decides(s.value, iterator); });
    return found;
  };
  Stmt out = make_scope(name, Expr(words.back()), inner, role);
  for (size_t i = words.size(); i-- > 0;) {
    const bool unrolled = is_const_int(extents[i]) && extents[i]->ival <= kMostUnrolled && is_decided_by(names[i]);
    out = make_scope(names[i], extents[i], {out}, unrolled ? "word" : "row");
  }
  return out;
}

Result<Kernel> pack_kernel(const Kernel& scheduled, const std::string& buffer) {
  const Buffer* b = scheduled.find_buffer(buffer);
  if (b == nullptr || b->place != Place::constant) return invalid("{} is not a constant parameter", buffer);
  if (!is_packed(*b)) return invalid("{} lies as the caller has it: nothing to pack", buffer);
  const std::vector<LayoutDim> layout = full_layout(*b);
  Kernel k;
  k.name = "pack_" + buffer;
  k.family = "pack";
  for (const Symbol& s : scheduled.symbols) {
    const bool used = std::any_of(b->dims.begin(), b->dims.end(), [&](const Expr& d) { return uses(d, s.name); });
    if (used) k.symbols.push_back(s);
  }
  Buffer src = *b;
  src.name = "src";
  src.place = Place::in;
  src.layout.clear();
  src.padding.clear();
  src.made = Expr();
  src.given_dims.clear();
  src.type = given_type(*b);
  src.dims = given_dims(*b);
  Buffer dst;
  dst.name = "dst";
  dst.type = b->type;
  dst.dims = physical_dims(*b);
  if (has_steps(*b)) dst.strides = physical_strides(*b);
  dst.place = Place::out;
  k.buffers = {src, dst};
  if (terms_summed(*b)) {
    if (!b->layout.empty() || dst.dims.size() != b->dims.size())
      return unsupported("{}: sums that do not lie plainly", buffer);
    k.family.clear();
    k.body.push_back(sums_made(*b, "src", "dst", "d"));
    return k;
  }

  const size_t rank = layout.size();
  std::vector<Expr> logical(b->dims.size()), extents(rank), index(rank);
  bool partial = false;
  for (size_t p = 0; p < rank; ++p) {
    const LayoutDim& l = layout[p];
    index[p] = iter(fmt::format("d{}", p));
    if (l.part == LayoutDim::Part::whole) {
      logical[l.dim] = index[p];
      extents[p] = b->dims[l.dim];
      partial |= !b->padding.empty() && b->padding[l.dim] != 0;
      continue;
    }
    if (l.part != LayoutDim::Part::inner) continue;
    size_t o = 0;
    while (o < rank && !(layout[o].dim == l.dim && layout[o].part == LayoutDim::Part::outer)) ++o;
    if (o == rank || o > p || layout[o].tile != l.tile)
      return unsupported("{}: a dimension tiled more than once", buffer);
    const Expr tile(l.tile), size = b->dims[l.dim];
    index[o] = iter(fmt::format("d{}", o));
    logical[l.dim] = tile * index[o] + index[p];
    const bool whole = is_const_int(size) && size->ival % l.tile == 0;
    extents[o] = is_const_int(size) ? Expr((size->ival + l.tile - 1) / l.tile) : ceildiv(size, tile);
    extents[p] = whole ? tile : min(tile, size - tile * index[o]);
    partial |= !whole || (!b->padding.empty() && b->padding[l.dim] != 0);
  }
  if (partial) {
    std::vector<Expr> zero_index(rank);
    for (size_t p = 0; p < rank; ++p) zero_index[p] = iter(fmt::format("z{}", p));
    Stmt nest = make_assign("dst", zero_index, AssignOp::set, zero_of(b->type));
    for (size_t p = rank; p-- > 0;)
      nest = make_scope(fmt::format("z{}", p), dst.dims[p], {nest}, p + 1 == rank ? "col" : "row");
    k.body.push_back(nest);
  }
  Expr element = b->made ? made_element(*b, "src", logical) : load("src", logical, src.type);
  const auto bits_of = [&](int dim) {
    const int64_t bits = sharing_a_word(*b, dim);
    return bits > 1 && proves_divisible(b->dims[dim], bits, {}) ? bits : 1;
  };
  const bool turned = layout[rank - 1].dim + 1 != static_cast<int>(logical.size());
  const bool finer = std::any_of(layout.begin(), layout.end(), [&](const LayoutDim& l) {
    return l.part == LayoutDim::Part::inner && l.tile % bits_of(l.dim) != 0;
  });
  if (b->made && (turned || finer)) {
    // What is turned, or cut finer, lies there first: elements are made along the caller's rows.
    Buffer whole = src;
    whole.name = "made";
    whole.dims = b->dims;
    whole.strides.clear();
    whole.type = b->type;
    whole.place = Place::heap;
    k.buffers.push_back(whole);
    std::vector<Expr> at(logical.size());
    for (size_t d = 0; d < at.size(); ++d) at[d] = iter(fmt::format("s{}", d));
    Stmt make = make_assign("made", at, AssignOp::set, made_element(*b, "src", at));
    for (size_t d = at.size(); d-- > 0;) {
      const char* role = d + 1 == at.size() ? "col" : decides_how(*b, static_cast<int>(d)) ? "word" : "row";
      make = bits_of(static_cast<int>(d)) > 1
                 ? by_words(make, at[d], b->dims[d], *b, static_cast<int>(d), d + 1 == at.size() ? role : "word")
                 : make_scope(at[d]->name, b->dims[d], {make}, role);
    }
    k.body.push_back(make);
    element = load("made", logical, b->type);
  }
  Stmt nest = make_assign("dst", index, AssignOp::set, element);
  const bool staged = k.find_buffer("made") != nullptr;
  Ranges ranges;
  for (size_t p = 0; p < rank; ++p) {
    const Expr& most = extents[p]->op == Op::k_min ? extents[p]->args[0] : extents[p];  // a tile's size
    ranges.set(index[p]->name, {0, is_const_int(most) ? most->ival - 1 : INT64_MAX - 1});
  }
  const Expr placed =
      ir::rewrite(element, [&](const Expr& e) -> Expr { return e->type == DType::i64 ? simplify(e, ranges) : Expr(); });
  for (size_t p = rank; p-- > 0;) {
    const LayoutDim& l = layout[p];
    const bool innermost = p + 1 == rank;
    const int64_t bits = staged || l.part == LayoutDim::Part::outer ? 1 : bits_of(l.dim);
    const bool few = is_const_int(extents[p]) && extents[p]->ival <= kMostUnrolled;
    const char* role = !staged && few && decides(placed, index[p]->name) ? "word" : "row";
    nest = bits > 1 ? by_words(nest, index[p], extents[p], *b, l.dim, innermost ? "col" : "word")
                    : make_scope(fmt::format("d{}", p), extents[p], {nest}, innermost ? "col" : role);
  }
  k.body.push_back(nest);
  return k;
}

}  // namespace lathe::search
