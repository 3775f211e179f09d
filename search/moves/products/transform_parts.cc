// split_factor: a factor becomes the sum of numbers of bf16, so that products of bf16 make all of the product.
//   for k: c += x * t[k]
//   ->  for p < 3: for i: s[p, i] = part p of t[i];  for k: for p < 3: c += x * f32(s[p, k])
//
// The parts of an f32 are three: it rounded to bf16, what is left of it rounded, and the rest, which is one of bf16. Of
// an f16 two are enough, and of an f32 that is made of no more than 16 bits, such as a scale of f16 times an integer of
// 4. An infinity has the largest number of bf16 as its first part and an infinity as its second.
#include <algorithm>
#include <bit>
#include <cstdlib>

#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

constexpr double kLargestBf16 = 3.3895313892515355e38;

constexpr int64_t kBits = 8, kAllBits = 24;  // of a number of bf16, of an f32

int64_t parts_of(DType type) { return type == DType::f32 ? 3 : type == DType::f16 ? 2 : 0; }

// What an i32 holds that is made of bytes, as far as it is seen. It does not overflow.
Interval range_of(const Expr& e) {
  constexpr int64_t kMost = int64_t{1} << 20;
  const Interval unknown{-kMost, kMost};
  const auto at = [&](size_t i) { return range_of(e->args[i]); };
  const auto constant = [&](size_t i) { return is_const_int(e->args[i]) && e->args[i]->ival >= 0; };
  switch (e->op) {
    case Op::k_const_int:
      return std::abs(e->ival) < kMost ? Interval{e->ival, e->ival} : unknown;
    case Op::k_cast:
      return range_of(e->args[0]);
    case Op::k_load:
      return e->type == DType::u8 ? Interval{0, 255} : e->type == DType::i8 ? Interval{-128, 127} : unknown;
    case Op::k_bit_and:
      for (const size_t i : {0, 1})
        if (constant(i)) return {0, std::min(e->args[i]->ival, kMost)};
      return unknown;
    case Op::k_shift_right:
      return at(0).lo >= 0 ? Interval{0, at(0).hi} : unknown;
    case Op::k_add:
      return {std::max(at(0).lo + at(1).lo, -kMost), std::min(at(0).hi + at(1).hi, kMost)};
    case Op::k_sub:
      return {std::max(at(0).lo - at(1).hi, -kMost), std::min(at(0).hi - at(1).lo, kMost)};
    default:
      return unknown;
  }
}

// Bits of an f32 from the highest to the lowest that is not 0, at most; it is no larger or smaller than an f16 and some
// integers make it.
int64_t bits_of(const Expr& e) {
  if (e->type != DType::f32) return kAllBits;
  if (e->op == Op::k_mul) return std::min(bits_of(e->args[0]) + bits_of(e->args[1]), kAllBits);
  if (e->op != Op::k_cast) return kAllBits;
  const Expr& from = e->args[0];
  if (from->op == Op::k_load && from->type == DType::f16) return 11;
  if (from->type != DType::i32) return kAllBits;
  const Interval range = range_of(from);
  const auto most = static_cast<uint64_t>(std::max(std::abs(range.lo), std::abs(range.hi)));
  // The largest is a power of two of which the next lower bit is the highest of all others.
  return std::max<int64_t>(static_cast<int64_t>(std::bit_width(most)) - (std::has_single_bit(most) ? 1 : 0), 1);
}

// Which factor of the scope's only statement, c += x * t[..], is of that buffer; -1: it is another statement.
int factor_of(const Stmt& scope, const std::string& buffer) {
  if (scope.body.size() != 1 || scope.body[0].kind != Stmt::Kind::assign) return -1;
  const Stmt& s = scope.body[0];
  if (s.op != AssignOp::add || s.value->op != Op::k_mul || s.value->type != DType::f32) return -1;
  for (const Expr& i : s.index) {
    if (uses(i, scope.iter)) return -1;
  }
  for (int f = 0; f < 2; ++f) {
    const Expr &e = unwidened(s.value->args[static_cast<size_t>(f)]),
               &other = s.value->args[static_cast<size_t>(1 - f)];
    if (e->op == Op::k_load && e->name == buffer && !uses(other, buffer)) return f;
  }
  return -1;
}

// Of an element that is given, or that a nest makes.
int64_t parts_of(const Kernel& kernel, const Buffer& b) {
  if (b.type != DType::f32) return parts_of(b.type);
  int64_t bits = is_input(b.place) ? kAllBits : 0;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::assign && s.target == b.name) bits = std::max(bits, bits_of(s.value));
  });
  return bits <= 2 * kBits ? 2 : 3;
}

Expr part(const Expr& value, int64_t parts, const Expr& number) {
  const auto narrow = [](const Expr& e) { return cast(DType::f32, cast(DType::bf16, e)); };
  const auto real = [](double v) { return const_float(v, DType::f32); };
  const Expr first = ir::max(ir::min(value, real(kLargestBf16)), real(-kLargestBf16)), rest = value - narrow(first);
  Expr later = rest;
  if (parts > 2) {
    const Expr second = narrow(rest);
    const Expr last = select(make(Op::k_eq, {rest, second}), real(0), rest - second);
    later = select(make(Op::k_lt, {number, Expr(2)}), rest, last);
  }
  return cast(DType::bf16, select(make(Op::k_lt, {number, Expr(1)}), first, later));
}

}  // namespace

Status apply_split_factor(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("split_factor", params);
  const Buffer* found = k.find_buffer(move.args[0]);
  if (found == nullptr) return invalid("expected the name of a buffer, got `{}`", move.args[0]);
  const Buffer buffer = *found;
  LATHE_ASSIGN(const ScopeSite site, find_plain_site(k, move.args[1]));
  const int factor = factor_of(site.scope(), buffer.name);
  const int64_t parts = parts_of(k, buffer);
  if (factor < 0 || parts == 0 || buffer.values || !buffer.layout.empty() || buffer.place > Place::heap)
    return invalid("expected `{}` to sum products with elements of `{}`, of f32 or f16", site.scope().iter,
                   buffer.name);
  if (inside_shared_out(site.outer))
    return invalid("expected `{}` outside of scopes that are shared out", move.args[1]);
  const Stmt* around = site.outer.empty() ? &site.scope() : site.outer[0];
  const auto before = static_cast<size_t>(around - k.body.data());
  LATHE_RETURN_IF_ERROR(legality.require(0, is_whole(k, buffer, before), fmt::format("`{}`", buffer.name)));

  Names names(k);
  LATHE_ASSIGN(const std::vector<std::string> created,
               created_names(names, move, {buffer.name + "_p", move.args[1] + "_p"}));
  const Expr number = iter(created[1]);
  Stmt& sum = site.scope().body[0];
  std::vector<Expr> factors = sum.value->args, at = unwidened(factors[static_cast<size_t>(factor)])->args;
  at.insert(at.begin(), number);
  factors[static_cast<size_t>(factor)] = cast(DType::f32, load(created[0], at, DType::bf16));
  sum.value = factors[0] * factors[1];
  std::vector<Stmt> inner = std::move(site.scope().body);
  site.scope().body.clear();
  site.scope().body.push_back(make_scope(created[1], Expr(parts), std::move(inner)));

  Buffer out;
  out.name = created[0];
  out.type = DType::bf16;
  out.place = Place::heap;
  out.dims = buffer.dims;
  out.dims.insert(out.dims.begin(), Expr(parts));
  std::vector<std::string> iters;
  for (size_t d = 0; d < out.dims.size(); ++d) iters.push_back(names.fresh(fmt::format("{}_{}", out.name, d)));
  std::vector<Expr> index, from;
  for (const std::string& i : iters) index.push_back(iter(i));
  from.assign(index.begin() + 1, index.end());
  const Expr element = load(buffer.name, from, buffer.type);
  const Expr value = buffer.type == DType::f32 ? element : cast(DType::f32, element);
  Stmt nest = make_assign(out.name, index, AssignOp::set, part(value, parts, index[0]));
  for (size_t d = iters.size(); d-- > 0;) {
    std::vector<Stmt> body;
    body.push_back(std::move(nest));
    nest = make_scope(iters[d], out.dims[d], std::move(body));
  }
  k.buffers.push_back(std::move(out));
  k.body.insert(k.body.begin() + static_cast<std::ptrdiff_t>(before), std::move(nest));
  k.numeric |= kReassociate | kContract;
  return {};
}

std::vector<Move> propose_split_factor(const Kernel& kernel) {
  std::vector<Move> out;
  for (const std::string& scope : plain_scopes(kernel)) {
    for (const Buffer& b : kernel.buffers) {
      if (parts_of(b.type) > 0 && factor_of(*find_scope(kernel, scope), b.name) >= 0)
        out.push_back({"split_factor", {b.name, scope}, {}, {}});
    }
  }
  return out;
}

}  // namespace lathe::search
