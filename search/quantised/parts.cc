// See parts.h.
#include "search/quantised/parts.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/layout_steps.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

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
  p.weight = p.m != nullptr ? value->args[1] : value;
  p.packed = p.m != nullptr;
  for_each_node(p.weight, [&](const ExprNode& load) {
    if (load.op != Op::k_load) return;
    const auto is_it = [&](const QuantisedField& f) { return f.name == load.name; };
    if (std::any_of(p.fields.begin(), p.fields.end(), is_it)) return;
    QuantisedField f{load.name, -1};
    for (size_t d = 0; d < load.args.size(); ++d) {
      if (uses(load.args[d], p.n->iter)) f.n_dim = static_cast<int>(d);
    }
    p.packed &= kernel.find_buffer(load.name)->place == Place::constant && f.n_dim >= 0;
    p.fields.push_back(f);
  });
  return p;
}

FieldBytes field_bytes(const QuantisedParts& parts, const Problem& problem) {
  FieldBytes out;
  double most = 0;
  for (const QuantisedField& f : parts.fields) {
    const Buffer& b = *problem.kernel.find_buffer(f.name);
    double bytes = dtype_bytes(b.type);
    for (const Expr& d : b.dims) bytes *= static_cast<double>(std::max<int64_t>(extent_at(d, problem), 1));
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

void pack_field(Script& s, const QuantisedField& field, int64_t columns, int quads) {
  using Part = LayoutDim::Part;
  s.move("tile_buffer {} {} {}", field.name, field.n_dim, columns);
  if (quads >= 0) s.move("tile_buffer {} {} 4", field.name, quads);
  if (!s.ok()) return;
  std::vector<LayoutDim> now = s.kernel().find_buffer(field.name)->layout, wanted;
  const auto is_inner = [&](const LayoutDim& l, int dim) { return l.dim == dim && l.part == Part::inner; };
  for (const LayoutDim& l : now) {
    if (l.dim == field.n_dim && l.part == Part::outer) wanted.insert(wanted.begin(), l);
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

bool share_blocks(const QuantisedParts& parts, const Kernel& kernel) {
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
  }
  return true;
}

void interleave_fields(Script& s, const QuantisedParts& parts, const std::string& largest) {
  if (!s.ok() || !share_blocks(parts, s.kernel())) return;
  const auto buffer = [&](const std::string& name) -> const Buffer& { return *s.kernel().find_buffer(name); };
  const auto block = static_cast<size_t>(parts.fields.front().n_dim) + 1;  // the position of blocks
  // Groups of a block, of the largest field and those that have as many: they lie beside each other in turn.
  const auto groups = [&](const std::string& name) -> int64_t {
    const Buffer& b = buffer(name);
    const bool whole = b.layout.size() > block + 2 && b.layout[block + 1].part == LayoutDim::Part::whole;
    const Expr extent = whole ? b.dims[static_cast<size_t>(b.layout[block + 1].dim)] : Expr(1);
    return is_const_int(extent) ? extent->ival : 1;
  };
  const int64_t count = groups(largest);
  const auto in_turn = [&](const std::string& name) { return count > 1 && groups(name) == count; };
  const auto bytes_inside = [&](const std::string& name, size_t d) {
    return dtype_bytes(buffer(name).type, elements_inside(buffer(name), d));
  };
  int64_t group_bytes = 0, block_bytes = 0;
  for (const QuantisedField& f : parts.fields)
    (in_turn(f.name) ? group_bytes : block_bytes) += bytes_inside(f.name, block + (in_turn(f.name) ? 1 : 0));
  block_bytes += count * group_bytes;
  for (const QuantisedField& f : parts.fields) {
    const int64_t size = dtype_bytes(buffer(f.name).type);
    if (in_turn(f.name)) s.move("space_dim {} {} {}", f.name, block + 1, group_bytes / size);
    s.move("space_dim {} {} {}", f.name, block, block_bytes / size);
  }
}

}  // namespace lathe::search
