// Which statement instances touch the same cell, decided on buffers and affine indices with ranges. Conservative: "no
// dependence" is a proof, "maybe" is not. Used by the moves' preconditions; isl checks it in the tests.
#pragma once
#include <string>
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/core/kernel.h"

namespace lathe::ir {

// A read or write of a buffer, with the scopes around it, outermost first.
struct Access {
  const Stmt* stmt = nullptr;
  std::string buffer;
  std::vector<Expr> index;
  bool write = false;
  bool reduction = false;  // the read-modify-write of op=, op != set
  AssignOp op = AssignOp::set;
  std::vector<const Stmt*> scopes;
};
// `only`: those of one buffer; null: all.
std::vector<Access> collect_accesses(const std::vector<Stmt>& body, const std::vector<const Stmt*>& outer = {},
                                     const std::string* only = nullptr);

// May instances of `a` and `b` in *different* iterations of scope `iter` (which encloses both), with all scopes outside
// it at equal values, touch one cell? Two reductions with the same op do not conflict if allow_reductions.
bool may_conflict_across(const Kernel& kernel, const std::string& iter, const Access& a, const Access& b,
                         bool allow_reductions);

// May the two adjacent statements (of one body, within the given outer scopes) be exchanged?
bool may_exchange(const Kernel& kernel, const Stmt& first, const Stmt& second, const std::vector<const Stmt*>& outer,
                  std::string* why);

// Sums that later statements of a scope read while they run:
//
//   for n < 16: { a[b] += x[b, n];  d[b, n] = a[b] }      a is the sum of iterations 0 .. n
//
// Code for all iterations at once computes the sums of all prefixes; behind the scope the buffer has the last one.
// The f32 buffers of such sums in a scope of assignments: one cell each, whose index the scope does not move, with one
// += and no read before it or in it.
std::vector<std::string> running_sums(const Kernel& kernel, const Stmt& scope);

}  // namespace lathe::ir
