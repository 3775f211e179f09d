// See parts.h.
#include "search/quantised/parts.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/analysis/grouped_weight.h"
#include "ir/core/layout_steps.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kLine = 64, kLittle = 50;  // bytes; one part of so many

}  // namespace

QuantisedParts quantised_parts(const Kernel& kernel) {
  QuantisedParts p;
  const auto one = [&](const char* role) {
    const std::vector<const Stmt*> all = scopes_with_role(kernel, role);
    return all.size() == 1 ? all[0] : nullptr;
  };
  p.m = one("m");
  p.n = one("n");
  p.k = one("k");
  if (p.n == nullptr || p.k == nullptr || p.k->body.size() != 1 || p.k->body[0].kind != Stmt::Kind::assign) return {};
  const Expr& value = p.k->body[0].value;
  if (p.m != nullptr && (value->op != Op::k_mul || p.n->body.size() != 3 || !perfectly_contains(*p.m, *p.n))) return {};
  const Expr& weight = p.m != nullptr ? value->args[1] : value;
  if (p.m != nullptr && unwidened(value->args[0])->op == Op::k_load) p.row = unwidened(value->args[0]);
  for (const Stmt& s : kernel.body) {
    if (s.kind == Stmt::Kind::scope && s.role == "clear") p.clears.push_back(&s);
  }
  p.packed = p.m != nullptr;
  const auto says_which = [&](const Expr& index) {
    return !is_const_int(index) && !uses(index, p.n->iter) && !uses(index, p.k->iter);
  };
  for_each_value_load(weight, [&](const ExprNode& load) {
    const auto is_it = [&](const QuantisedField& f) { return f.name == load.name; };
    if (std::any_of(p.fields.begin(), p.fields.end(), is_it)) return;
    for (const Expr& index : load.args) {
      for_each_node(index, [&](const ExprNode& n) {
        const auto by_depth = [&](const Expr& e) { return uses(e, p.k->iter); };
        p.reordered |= n.op == Op::k_load && std::any_of(n.args.begin(), n.args.end(), by_depth);
      });
    }
    QuantisedField f{load.name, -1, load.args.size() > 1 && says_which(load.args[0]) ? 1 : 0};
    for (size_t d = 0; d < load.args.size(); ++d) {
      if (uses(load.args[d], p.n->iter)) f.n_dim = static_cast<int>(d);
    }
    p.packed &= kernel.find_buffer(load.name)->place == Place::constant && f.n_dim >= 0;
    p.fields.push_back(f);
  });
  p.packed &= !p.reordered;
  p.weight = rewrite(weight, [&](const Expr& e) -> Expr {
    if (e->op != Op::k_load || e->args.size() < 2 || !says_which(e->args[0])) return {};
    std::vector<Expr> index = e->args;
    index[0] = Expr(0);
    return load(e->name, std::move(index), e->type);
  });
  return p;
}

int64_t rows_of_product(const QuantisedParts& p, const Problem& problem) {
  if (p.m == nullptr) return 1;
  return p.row ? rows_of_weight(*p.m, p.row, problem) : extent_at(p.m->extent, problem);
}

std::string outermost_scope(Script& s, const QuantisedParts& p, const Problem& problem) {
  const std::vector<const Stmt*> batches = scopes_with_role(problem.kernel, "batch");
  if (batches.empty()) return "n0";
  if (!p.chooses() || !shares_panels(*p.m, problem)) return batches.front()->iter;
  for (size_t h = batches.size(); h > 0; --h) s.move("swap_scopes {} n0", batches[h - 1]->iter);
  return "n0";
}

FieldBytes field_bytes(const QuantisedParts& parts, const Problem& problem) {
  FieldBytes out;
  double most = 0;
  for (const QuantisedField& f : parts.fields) {
    const Buffer& b = *problem.kernel.find_buffer(f.name);
    double bytes = dtype_bytes(b.type);
    for (size_t d = static_cast<size_t>(f.chosen); d < b.dims.size(); ++d)
      bytes *= static_cast<double>(std::max<int64_t>(extent_at(b.dims[d], problem), 1));
    if (bytes > most) out.largest = f.name;
    most = std::max(most, bytes);
    out.of[f.name] = bytes;
    out.total += bytes;
  }
  return out;
}

int64_t end_bytes(const QuantisedParts& parts, int64_t vectors) {
  constexpr int64_t kFunction = 80, kInstruction = 8;
  int64_t instructions = 0;
  for_each_node(parts.n->body.back().value,
                [&](const ExprNode& n) { instructions += op_info(n.op).cls == OpClass::kMath ? kFunction : 1; });
  return instructions * vectors * kInstruction;
}

void vectorize_columns(Script& s, std::string scope, int64_t panel, int64_t lanes, const char* tail) {
  if (panel > 0) {
    s.move("tile_scope {} {} tail=exact as {}s,{}p", scope, panel, scope, scope);
    s.move("unroll_scope {}s", scope);
    scope += "p";
  }
  s.move("tile_scope {} {} tail={} as {}v,{}l", scope, lanes, tail, scope, scope);
  s.move("unroll_scope {}v", scope);
  s.move("vectorize_scope {}l", scope);
}

void pack_field(Script& s, const QuantisedField& field, int64_t columns, int quads) {
  using Part = LayoutDim::Part;
  s.move("tile_buffer {} {} {}", field.name, field.n_dim, columns);
  if (quads >= 0) s.move("tile_buffer {} {} 4", field.name, quads);
  if (!s.ok()) return;
  std::vector<LayoutDim> now = s.kernel().find_buffer(field.name)->layout, wanted;
  const auto is_inner = [&](const LayoutDim& l, int dim) { return l.dim == dim && l.part == Part::inner; };
  for (const LayoutDim& l : now) {
    if (l.dim == field.n_dim && l.part == Part::outer) wanted.insert(wanted.begin() + field.chosen, l);
    if (l.dim != field.n_dim && !is_inner(l, quads)) wanted.push_back(l);
  }
  for (const int dim : {field.n_dim, quads}) {
    for (const LayoutDim& l : now) {
      if (is_inner(l, dim)) wanted.push_back(l);
    }
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    size_t at = i;
    while (at + 1 < now.size() && (now[at].dim != wanted[i].dim || now[at].part != wanted[i].part)) ++at;
    for (; at > i; --at) {
      s.move("swap_dims {} {} {}", field.name, at - 1, at);
      std::swap(now[at - 1], now[at]);
    }
  }
}

// Parts of a block that the field has a dimension for.
static int64_t parts_in(const QuantisedField& f, const Buffer& b) {
  const auto block = static_cast<size_t>(f.n_dim) + 1;
  return b.dims.size() > block + 2 && is_const_int(b.dims[block + 1]) ? b.dims[block + 1]->ival : 1;
}

// Whether the parts of a block are groups, or have these as a dimension.
static bool has_groups(const QuantisedField& f, const Buffer& b, const Expr& depth, int64_t group) {
  const auto in_part = static_cast<size_t>(f.n_dim) + 3;
  const Expr parts = b.dims[in_part - 2] * Expr(parts_in(f, b) * group);
  const bool of_parts = b.dims.size() > in_part + 1 && equal(simplify(parts * b.dims[in_part]), depth);
  return of_parts || equal(simplify(parts), depth);
}

bool lie_in_turn(const QuantisedParts& parts, const Kernel& kernel, const std::string& largest, int64_t group) {
  if (parts.fields.size() < 2) return false;
  const QuantisedField& one = parts.fields.front();
  const auto dims = static_cast<size_t>(one.n_dim) + 2;  // what stands before n, n, blocks
  const Buffer& a = *kernel.find_buffer(one.name);
  for (const QuantisedField& f : parts.fields) {
    const Buffer& b = *kernel.find_buffer(f.name);
    if (f.n_dim != one.n_dim || b.strides.size() < dims || b.dims.size() < dims) return false;
    for (size_t d = 0; d < dims; ++d) {
      const bool known = is_const_int(a.strides[d]) && is_const_int(b.strides[d]) && equal(b.dims[d], a.dims[d]) &&
                         equal(given_dims(b)[d], a.dims[d]);
      if (!known || dtype_bytes(given_type(a), a.strides[d]->ival) != dtype_bytes(given_type(b), b.strides[d]->ival))
        return false;
    }
    if (f.name == largest && !has_groups(f, b, parts.k->extent, group)) return false;
  }
  return true;
}

void interleave_fields(Script& s, const QuantisedParts& parts, const std::string& largest) {
  if (!s.ok()) return;
  const auto block = static_cast<size_t>(parts.fields.front().n_dim) + 1;  // the position of blocks
  int64_t count = 1;
  for (const QuantisedField& f : parts.fields) {
    if (f.name == largest) count = parts_in(f, *s.kernel().find_buffer(f.name));
  }
  struct Piece {
    const QuantisedField& field;
    bool of_part;
    int64_t element;
  };
  std::vector<Piece> pieces;
  int64_t part_bytes = 0, block_bytes = 0;
  for (const QuantisedField& f : parts.fields) {
    const Buffer& b = *s.kernel().find_buffer(f.name);
    const bool of_part = count > 1 && parts_in(f, b) == count;
    pieces.push_back({f, of_part, dtype_bytes(b.type)});
    (of_part ? part_bytes : block_bytes) += dtype_bytes(b.type, elements_inside(b, block + (of_part ? 1 : 0)));
  }
  block_bytes += count * part_bytes;
  // Whole lines where that costs little.
  const int64_t lines = (block_bytes + kLine - 1) / kLine * kLine;
  if ((lines - block_bytes) * kLittle <= block_bytes) block_bytes = lines;
  for (const Piece& p : pieces) {
    if (p.of_part) s.move("space_dim {} {} {}", p.field.name, block + 1, part_bytes / p.element);
    s.move("space_dim {} {} {}", p.field.name, block, block_bytes / p.element);
  }
}

}  // namespace lathe::search
