// Moves that change numbers (docs/moves.md), and what follows from one of them.
//
// quantize_activations: a sum of products with weights of few bits becomes sums of integers, one a group.
//
//   for k < K: c += x[k] * (A(k // G) * f32(U(k) - Z) + B(k // G))      U(k) of 0 to 255, Z a number
//   ->
//   for h < K // S:                              first of all, for each row of x
//     l = max |x[..]|;  r = 127 / l;  p[h] = l / 127
//     for each group g of h:
//       t = 0;  for k < G: q[..] = i8(x[..] * r);  t += i8(x[..] * r)
//       z[g] = -Z * t;  b[g] = t * p[h]
//   for g < K // G:
//     s = z[g];  for k < G: s += q[..] * U(..)
//     c += f32(s) * (A(g) * p[g // (S / G)]);  c += B(g) * b[g]
//
// With sums=scales the groups that share a scale of the row have a sum of their own:
//
//       z[g] = -Z * t;  b[g] = t
//   for h < K // S:
//     u = 0;  for g < S // G: s = ..;  u += f32(s) * A(..);  u += B(..) * b[..]
//     c += u * p[h]
//
// With bytes=signed U(k) - Z is a signed byte as it lies, S(k): s = 0; for k < G: s += q[..] * S(..).
//
// Rows are those of the scopes around that x depends on. Where integers say how many these are, all rows of the input
// are made bytes.
#include <algorithm>

#include "ir/analysis/grouped_weight.h"
#include "ir/core/names.h"
#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

// Sums of a group: 255 * 127 * 65,536 < 2^31.
constexpr int64_t kMaxGroup = 65536;
constexpr int64_t kLargest = 127;
constexpr double kLeast = 0x1p-100;  // of a row's largest value: smaller ones become 0

Expr real(double v) { return const_float(v, DType::f32); }
Expr times(const Expr& a, const Expr& b) { return a ? a * b : b; }

// What the move finds: sum, k: c[..] += row * weight.
struct Product {
  const Stmt* update = nullptr;
  Expr row, weight;
  std::vector<const Stmt*> rows;  // scopes around that the row depends on
  std::string input;              // the buffer that the row reads first
  std::vector<Expr> index;        // of all its rows, if they are made bytes; empty: those of the scopes are
};

bool is_counted(const Stmt& scope) {
  bool out = false;
  for_each_node(scope.extent, [&](const ExprNode& n) { out |= n.op == Op::k_iter || n.op == Op::k_load; });
  return out;
}

// Whether the row lies along the last dimension of an input, and what stands before is the same along it.
bool lies_in_one_piece(const Kernel& kernel, const Expr& row, const std::string& k) {
  const Expr& e = unwidened(row);
  if (e->op != Op::k_load || e->args.empty() || kernel.find_buffer(e->name)->place != Place::in) return false;
  const Expr& last = e->args.back();
  return last->op == Op::k_iter && last->name == k &&
         std::none_of(e->args.begin(), e->args.end() - 1, [&](const Expr& i) { return uses(i, k); });
}

Result<Product> find_product(const Kernel& kernel, const ScopeSite& site) {
  const Stmt& scope = site.scope();
  Product out;
  if (scope.body.size() == 1 && scope.body[0].kind == Stmt::Kind::assign) out.update = &scope.body[0];
  const bool sums = out.update != nullptr && out.update->op == AssignOp::add && out.update->value->op == Op::k_mul &&
                    out.update->value->type == DType::f32;
  if (!sums) return invalid("expected `{}` to hold a sum of products of floats and nothing else", scope.iter);
  for (const Expr& i : out.update->index) {
    if (uses(i, scope.iter)) return invalid("expected `{}` to sum into one element", scope.iter);
  }
  const auto reads = [](const Expr& e, DType type) {
    bool found = false;
    for_each_value_load(e, [&](const ExprNode& load) { found |= load.type == type; });
    return found;
  };
  const auto few_bits = [&](const Expr& e) {
    return reads(e, DType::u8) || reads(e, DType::i8) || reads(e, DType::i32);
  };
  const std::vector<Expr>& sides = out.update->value->args;
  const size_t weight = few_bits(sides[1]) ? 1 : 0;
  if (!few_bits(sides[weight]) || few_bits(sides[1 - weight]))
    return invalid("expected one factor of `{}` to be made of integers", scope.iter);
  out.weight = sides[weight];
  out.row = sides[1 - weight];
  for (const Stmt* s : site.outer) {
    if (uses(out.row, s->iter)) out.rows.push_back(s);
  }
  for_each_value_load(out.row, [&](const ExprNode& load) {
    if (out.input.empty()) out.input = load.name;
  });
  if (out.input.empty() || !uses(out.row, scope.iter))
    return invalid("expected the other factor of `{}` to be read along it", scope.iter);
  const bool counted = std::any_of(out.rows.begin(), out.rows.end(), [](const Stmt* s) { return is_counted(*s); });
  if (counted && lies_in_one_piece(kernel, out.row, scope.iter)) {
    const std::vector<Expr>& index = unwidened(out.row)->args;
    out.index.assign(index.begin(), index.end() - 1);
  }
  return out;
}

// Whether nothing writes what the row is made of, and its scopes can be walked before all else: those around them that
// it does not depend on do run, and so do those inside that depend on them.
bool stands_alone(const Kernel& kernel, const ScopeSite& site, const Product& p) {
  if (!p.index.empty()) return true;
  bool out = true;
  for_each_node(p.row, [&](const ExprNode& n) {
    if (n.op != Op::k_load) return;
    const Place place = kernel.find_buffer(n.name)->place;
    out &= place == Place::in || place == Place::constant;
  });
  for (size_t i = 0, used = 0; i < site.outer.size(); ++i) {
    if (used < p.rows.size() && site.outer[i] == p.rows[used]) {
      ++used;
      continue;
    }
    // Inside of the rows, those that leave out some of them.
    const Expr& extent = site.outer[i]->extent;
    const bool matters =
        used < p.rows.size() || p.rows.empty() ||
        std::any_of(p.rows.begin(), p.rows.end(), [&](const Stmt* s) { return uses(extent, s->iter); });
    const ScopePath around(site.outer.begin(), site.outer.begin() + static_cast<std::ptrdiff_t>(i));
    out &= !matters || proves_le(Expr(1), extent, ranges_at(kernel, around));
  }
  for (const Stmt* s : p.rows) out &= !is_counted(*s);
  return out;
}

}  // namespace

Status apply_quantize_activations(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& kernel = result.kernel;
  const Legality legality("quantize_activations", params);
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(kernel, move.args[0]));
  LATHE_ASSIGN(const Product found, find_product(kernel, site));
  const std::string k = site.scope().iter;
  if (!is_const_int(site.scope().extent))
    return invalid("expected a constant extent, got {}", print_extent(site.scope()));
  const int64_t depth = site.scope().extent->ival;
  LATHE_ASSIGN(const int64_t group, int_arg(move.options.at("group"), "group", 1, kMaxGroup));
  LATHE_ASSIGN(const int64_t scale, int_arg(move.options.at("scale"), "scale", group, INT64_MAX));
  if (depth == 0 || depth % scale != 0 || scale % group != 0)
    return invalid("expected group to divide scale, and scale to divide {}, got {} and {}", depth, group, scale);
  LATHE_RETURN_IF_ERROR(legality.require(0, stands_alone(kernel, site, found)));

  // The weight as a function of the group and a place in it.
  Names names(kernel);
  LATHE_ASSIGN(const std::vector<std::string> created, created_names(names, move, {k + "g"}));
  const std::string& g = created[0];
  std::optional<GroupedWeight> w = grouped_weight(found.weight, k, depth, group, g, ranges_at(kernel, site.outer));
  if (!w)
    return invalid(
        "expected the other factor to be linear in one integer of at most eight bits, all else the same within a group "
        "of {}",
        group);
  if (move.options.contains("bytes")) {
    w->byte = signed_byte(*w);
    w->zero = 0;
    if (!w->byte) return invalid("bytes=signed: expected the integers of the other factor to be signed bytes");
  }

  // Buffers.
  std::vector<Expr> row_dims, row_index = found.index;
  for (size_t d = 0; d < found.index.size(); ++d) row_dims.push_back(kernel.find_buffer(found.input)->dims[d]);
  for (const Stmt* s : found.rows) {
    if (!found.index.empty()) break;
    row_dims.push_back(s->extent);
    row_index.push_back(iter(s->iter));
  }
  const auto add_buffer = [&](const std::string& base, DType type, std::vector<Expr> dims) {
    Buffer b;
    b.name = names.fresh(base);
    b.type = type;
    b.place = Place::heap;
    b.dims = std::move(dims);
    kernel.buffers.push_back(b);
    return b.name;
  };
  const auto with = [](std::vector<Expr> list, const Expr& last) {
    list.push_back(last);
    return list;
  };
  const Expr groups(depth / group), scales(depth / scale);
  const std::string q = add_buffer(found.input + "_q", DType::i8, with(row_dims, Expr(depth)));
  const std::string p = add_buffer(found.input + "_scale", DType::f32, with(row_dims, scales));
  const std::string l = add_buffer(found.input + "_largest", DType::f32, with(row_dims, scales));
  const std::string r = add_buffer(found.input + "_inverse", DType::f32, with(row_dims, scales));
  const std::string t = add_buffer(found.input + "_total", DType::i32, with(row_dims, groups));
  const std::string b = w->rest ? add_buffer(found.input + "_sum", DType::f32, with(row_dims, groups)) : "";
  const std::string z = w->zero == 0 ? "" : add_buffer(found.input + "_start", DType::i32, with(row_dims, groups));
  const Buffer target = *kernel.find_buffer(found.update->target);
  const std::string s = add_buffer(target.name + "_i", DType::i32, target.dims);

  // The sum over groups.
  const std::vector<Expr> c = found.update->index;
  const auto f32_load = [](const std::string& name, std::vector<Expr> index) {
    return load(name, std::move(index), DType::f32);
  };
  const bool starts_at_zero = site.index > 0 && [&] {
    const Stmt& before = (*site.siblings)[site.index - 1];
    return before.kind == Stmt::Kind::assign && before.op == AssignOp::set && before.target == target.name &&
           before.value->op == Op::k_const_float && before.value->fval == 0 &&
           std::equal(before.index.begin(), before.index.end(), c.begin(), c.end(),
                      [](const Expr& a, const Expr& b) { return equal(a, b); });
  }();
  const bool late = scale == depth && starts_at_zero;  // one scale for all groups of a row
  const auto sums_of = move.options.find("sums");
  const bool shared = !late && scale > group && sums_of != move.options.end() && sums_of->second == "scales";
  const std::string parts = shared ? names.fresh(g + "_s") : "";
  const std::string u = shared ? add_buffer(target.name + "_part", DType::f32, target.dims) : target.name;
  const Expr group_number = shared ? Expr(scale / group) * iter(parts) + iter(g) : iter(g);
  const Expr scale_at = f32_load(p, with(row_index, late     ? Expr(0)
                                                    : shared ? iter(parts)
                                                             : floordiv(iter(g), Expr(scale / group))));
  const auto of_group = [&](const Expr& e) { return e && shared ? substitute(e, {{g, group_number}}) : e; };
  std::vector<Stmt> body;
  body.push_back(make_assign(
      s, c, AssignOp::set, z.empty() ? const_int(0, DType::i32) : load(z, with(row_index, group_number), DType::i32)));
  const Expr at = Expr(group) * group_number + iter(k);
  const Expr product = cast(DType::i32, load(q, with(row_index, at), DType::i8)) * of_group(w->byte);
  body.push_back(make_scope(k, Expr(group), {make_assign(s, c, AssignOp::add, product)}, site.scope().role));
  const Expr weight_scale = of_group(w->factor), sum = cast(DType::f32, load(s, c, DType::i32));
  const Expr factor = late || shared ? weight_scale : times(weight_scale, scale_at);
  body.push_back(make_assign(u, c, AssignOp::add, factor ? sum * factor : sum));
  if (w->rest)
    body.push_back(make_assign(u, c, AssignOp::add, of_group(w->rest) * f32_load(b, with(row_index, group_number))));
  std::vector<Stmt> sums;
  sums.push_back(make_scope(g, shared ? Expr(scale / group) : groups, std::move(body), "groups"));
  if (late) sums.push_back(make_assign(target.name, c, AssignOp::mul, scale_at));
  if (shared) {
    sums.insert(sums.begin(), make_assign(u, c, AssignOp::set, real(0)));
    sums.push_back(make_assign(target.name, c, AssignOp::add, f32_load(u, c) * scale_at));
    Stmt all = make_scope(parts, scales, std::move(sums), "groups");
    sums.clear();
    sums.push_back(std::move(all));
  }

  // The rows, before all else.
  Renaming own;
  std::vector<Expr> row;
  for (size_t d = 0; d < row_dims.size(); ++d) {
    const std::string stem = found.index.empty() ? found.rows[d]->iter : fmt::format("{}{}", k, d);
    row.push_back(iter(names.fresh(stem + "_q")));
    if (found.index.empty()) own.emplace_back(stem, row.back());
  }
  const std::string h = names.fresh(g + "_h"), hg = names.fresh(g + "_q"), kl = names.fresh(k + "_l"),
                    kq = names.fresh(k + "_q");
  const auto value_at = [&](const Expr& where) {
    Renaming map = own;
    map.emplace_back(k, where);
    if (found.index.empty()) return substitute(found.row, map);
    std::vector<Expr> at = row;
    at.push_back(where);
    return rewrite(found.row, [&](const Expr& e) {
      return e->op == Op::k_load && e->name == found.input ? load(e->name, at, e->type) : Expr();
    });
  };
  const Expr largest = f32_load(l, with(row, iter(h))), inverse = f32_load(r, with(row, iter(h)));
  const auto set = [](const std::string& name, std::vector<Expr> index, Expr value, AssignOp op = AssignOp::set) {
    return make_assign(name, std::move(index), op, std::move(value));
  };
  std::vector<Stmt> of_scale;
  of_scale.push_back(set(l, with(row, iter(h)), real(0)));
  of_scale.push_back(make_scope(
      kl, Expr(scale),
      {set(l, with(row, iter(h)), make(Op::k_abs, {value_at(Expr(scale) * iter(h) + iter(kl))}), AssignOp::max)}));
  of_scale.push_back(set(r, with(row, iter(h)), real(kLargest) / max(largest, real(kLeast))));
  of_scale.push_back(set(p, with(row, iter(h)), largest / real(kLargest)));
  const Expr group_at = Expr(scale / group) * iter(h) + iter(hg);
  const Expr column = Expr(group) * group_at + iter(kq);
  const Expr byte = cast(DType::i8, value_at(column) * inverse);
  std::vector<Stmt> group_body;
  group_body.push_back(set(t, with(row, group_at), const_int(0, DType::i32)));
  group_body.push_back(make_scope(
      kq, Expr(group),
      {set(q, with(row, column), byte), set(t, with(row, group_at), cast(DType::i32, byte), AssignOp::add)}));
  const Expr total = load(t, with(row, group_at), DType::i32), scale_of_row = f32_load(p, with(row, iter(h)));
  if (!z.empty()) group_body.push_back(set(z, with(row, group_at), total * const_int(-w->zero, DType::i32)));
  if (!b.empty()) {
    const Expr number = cast(DType::f32, total);
    group_body.push_back(set(b, with(row, group_at), late || shared ? number : number * scale_of_row));
  }
  of_scale.push_back(make_scope(hg, Expr(scale / group), std::move(group_body)));
  Stmt first = make_scope(h, scales, std::move(of_scale));
  for (size_t i = row.size(); i-- > 0;) {
    std::vector<Stmt> inner;
    inner.push_back(std::move(first));
    first = make_scope(row[i]->name, row_dims[i], std::move(inner), "quantise");
  }

  std::vector<Stmt>& siblings = *site.siblings;
  siblings.erase(siblings.begin() + static_cast<std::ptrdiff_t>(site.index));
  siblings.insert(siblings.begin() + static_cast<std::ptrdiff_t>(site.index), std::make_move_iterator(sums.begin()),
                  std::make_move_iterator(sums.end()));
  kernel.body.insert(kernel.body.begin(), std::move(first));
  simplify_body(kernel.body, Ranges(kernel));
  kernel.numeric |= kQuantisedActivations;
  return {};
}

std::vector<Move> propose_quantize_activations(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    for (const char* group : {"32", "128"})
      out.push_back({"quantize_activations", {scope}, {{"group", group}, {"scale", group}}, {}});
  }
  return out;
}

}  // namespace lathe::search
