// pack_kernel: the copy that fills a constant operand's packed form, or makes its elements of the caller's. Scheduled
// by the pack recipe, run once per weight.
//
//   w: f32[N, K] layout [0/32, 1, 0%32]      for d0 < ceildiv(N, 32): for d1 < K: for d2 < min(32, N - 32*d0):
//                                              dst[d0, d1, d2] = src[32*d0 + d2, d1]
#include <algorithm>

#include "ir/analysis/analysis.h"
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

bool decides_how(const Buffer& b, int dim) {
  constexpr int64_t kMost = 16;
  if (!b.made || !is_const_int(b.dims[dim]) || b.dims[dim]->ival > kMost) return false;
  const std::string name = fmt::format("d{}", dim);
  bool out = false;
  for_each_node(b.made, [&](const ExprNode& n) {
    const bool counts = n.op == Op::k_shift_left || n.op == Op::k_shift_right;
    const bool compares = op_info(n.op).cls == OpClass::kCompare && n.args[0]->type == DType::i64;
    out |= (counts && uses(n.args[1], name)) || (compares && (uses(n.args[0], name) || uses(n.args[1], name)));
  });
  return out;
}

// Divisors of dimension `dim` in the indices of what an element is made of, below `most`, the largest first.
static std::vector<int64_t> finer_words(const Buffer& b, int dim, int64_t most) {
  std::vector<int64_t> out;
  for_each_node(b.made, [&](const ExprNode& load) {
    if (load.op != Op::k_load) return;
    for (const Expr& index : load.args) {
      for_each_node(index, [&](const ExprNode& n) {
        const bool divides = n.op == Op::k_floordiv || n.op == Op::k_mod;
        if (!divides || !is_const_int(n.args[1]) || !uses(n.args[0], fmt::format("d{}", dim))) return;
        if (const int64_t by = n.args[1]->ival; by > 1 && by < most && most % by == 0) out.push_back(by);
      });
    }
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
  Expr at = d;
  for (size_t i = 0; i < words.size(); ++i) at = Expr(words[i]) * iter(fmt::format("{}{}", name, char('a' + i))) + at;
  std::vector<Stmt> inner = {body};
  rewrite_exprs(inner, [&](const Expr& e) { return e->op == Op::k_iter && e->name == name ? at : Expr(); });
  const auto whole = [&](const Expr& e) { return simplify(floordiv(e, Expr(bits))); };
  const Expr count = extent->op == Op::k_min ? min(whole(extent->args[0]), whole(extent->args[1])) : whole(extent);
  Stmt out = make_scope(name, Expr(words.back()), inner, role);
  const bool decides = is_const_int(count) && decides_how(b, dim);
  for (size_t i = words.size(); i-- > 0;) {
    out = make_scope(fmt::format("{}{}", name, char('a' + i)), i == 0 ? count : Expr(words[i - 1] / words[i]), {out},
                     decides ? "word" : "row");
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
  for (size_t p = rank; p-- > 0;) {
    const LayoutDim& l = layout[p];
    const bool innermost = p + 1 == rank;
    const int64_t bits = staged || l.part == LayoutDim::Part::outer ? 1 : bits_of(l.dim);
    const bool decides = !staged && l.part == LayoutDim::Part::whole && decides_how(*b, l.dim);
    const char* role = decides ? "word" : "row";
    nest = bits > 1 ? by_words(nest, index[p], extents[p], *b, l.dim, innermost ? "col" : "word")
                    : make_scope(fmt::format("d{}", p), extents[p], {nest}, innermost ? "col" : role);
  }
  k.body.push_back(nest);
  return k;
}

}  // namespace lathe::search
