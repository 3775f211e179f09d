// See last_rows.h.
#include "search/moves/last_rows.h"

#include <algorithm>
#include <map>

#include "ir/analysis/analysis.h"
#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

const Expr& uncast(const Expr& e) { return e->op == Op::k_cast && e->type == DType::i64 ? e->args[0] : e; }

// The buffer of `b[t]`; empty: it is something else.
std::string element_of(const Expr& e, const std::string& t) {
  const Expr& load = uncast(e);
  const bool own = load->op == Op::k_load && load->args.size() == 1 && load->args[0]->op == Op::k_iter;
  return own && load->args[0]->name == t ? load->name : "";
}

// The integers of which a buffer that a nest makes says which ones are the last; empty: none is known to make it.
std::string named_by(const Kernel& kernel, const std::string& kept, const Expr& count) {
  const std::vector<Access> all = collect_accesses(kernel.body, {}, &kept);
  const auto writes = std::count_if(all.begin(), all.end(), [](const Access& a) { return a.write; });
  if (writes != 1 || !all.front().write || all.front().scopes.size() != 1) return "";
  const Stmt& nest = *all.front().scopes[0];
  if (nest.body.size() != 3 || nest.body[1].kind != Stmt::Kind::scope || nest.body[1].body.size() != 1) return "";
  const Stmt &start = nest.body[0], &behind = nest.body[1], &found = behind.body[0];
  if (start.kind != Stmt::Kind::assign || found.kind != Stmt::Kind::assign || found.value->op != Op::k_select ||
      found.value->args[0]->op != Op::k_eq)
    return "";
  const std::string named = element_of(found.value->args[0]->args[0], nest.iter);
  const Buffer* integers = kernel.find_buffer(named);
  if (integers == nullptr || !is_input(integers->place)) return "";
  // Nothing else writes what is found.
  for (const Access& a : collect_accesses(kernel.body, {}, &start.target)) {
    if (a.scopes.empty() || a.scopes[0] != &nest) return "";
  }
  const LastNames names{named, start.target, kept, nest.iter, behind.iter};
  return print(std::vector<Stmt>{last_nest(names, count, integers->type)}) == print(std::vector<Stmt>{nest}) ? named
                                                                                                             : "";
}

// Whether one of the scopes runs only where e < 0 is not so.
bool not_below_zero(const std::vector<const Stmt*>& scopes, const Expr& e) {
  const Expr wanted = simplify(e + Expr(1));
  const auto says = [&](const auto& self, const Expr& extent) -> bool {
    if (extent->op != Op::k_min) return equal(simplify(extent), wanted);
    return self(self, extent->args[0]) || self(self, extent->args[1]);
  };
  return std::any_of(scopes.begin(), scopes.end(), [&](const Stmt* s) { return says(says, s->extent); });
}

// Whether the access is of a row of the integer alone, in an iteration that is the last with it.
bool in_own_row(const Kernel& kernel, const Stmt& scope, const Access& a) {
  std::string named;
  for (const Stmt* s : a.scopes) {
    const std::string kept = element_of(s->extent, scope.iter);
    if (!kept.empty() && named.empty()) named = named_by(kernel, kept, scope.extent);
  }
  if (named.empty()) return false;
  return std::any_of(a.index.begin(), a.index.end(), [&](const Expr& i) {
    if (element_of(i, scope.iter) == named) return true;
    if (i->op != Op::k_max) return false;
    for (const size_t n : {0, 1}) {
      const Expr& e = i->args[n];
      if (is_const_int(i->args[1 - n], 0) && element_of(e, scope.iter) == named) return not_below_zero(a.scopes, e);
    }
    return false;
  });
}

}  // namespace

Stmt last_nest(const LastNames& names, const Expr& count, DType type) {
  const Expr a = iter(names.each), next = a + iter(names.behind) + Expr(1), end = count - a - Expr(1);
  const Expr one = const_int(1, DType::i32), none = const_int(0, DType::i32);
  const Expr same = make(Op::k_eq, {load(names.named, {a}, type), load(names.named, {next}, type)});
  std::vector<Stmt> found, body;
  found.push_back(make_assign(names.later, {a}, AssignOp::max, select(same, one, none)));
  body.push_back(make_assign(names.later, {a}, AssignOp::set, none));
  body.push_back(make_scope(names.behind, simplify(end), std::move(found)));
  const Expr last = make(Op::k_eq, {load(names.later, {a}, DType::i32), none});
  body.push_back(make_assign(names.kept, {a}, AssignOp::set, select(last, one, none)));
  return make_scope(names.each, count, std::move(body));
}

std::vector<std::string> in_last_rows(const Kernel& kernel, const Stmt& scope) {
  std::map<std::string, bool> own;
  for (const Access& a : collect_accesses(scope.body)) {
    if (is_input(kernel.find_buffer(a.buffer)->place)) continue;
    const bool its_row = in_own_row(kernel, scope, a);
    const auto [known, first] = own.try_emplace(a.buffer, its_row);
    if (!first) known->second = known->second && its_row;
  }
  std::vector<std::string> out;
  for (const auto& [name, is_own] : own) {
    if (is_own) out.push_back(name);
  }
  return out;
}

}  // namespace lathe::search
