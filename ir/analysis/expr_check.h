// The expression rules of the verifier: types, names, arities, ranks. Used by verifier.cc only.
#pragma once
#include <functional>

#include "ir/analysis/analysis.h"
#include "ir/base/status.h"
#include "ir/core/kernel.h"

namespace lathe::ir {

class ExprChecker {
 public:
  // `ranges`: what is in scope; kept by the caller, who enters and leaves scopes.
  ExprChecker(const Kernel& kernel, const std::vector<const Stmt*>& scopes, const Ranges* ranges)
      : kernel_(kernel), scopes_(scopes), ranges_(ranges) {}

  // Called for every load; `guarded` under a select, `holding`: the conditions of those whose first value it is in.
  std::function<Status(const ExprNode& load, bool guarded, const std::vector<Expr>& holding)> on_load;

  Status check(const Expr& e) { return visit(e, 0, false); }
  // Also of type i64.
  Status check_index(const Expr& e);
  // Also free of loads and iterators: sizes and strides.
  Status check_size(const Expr& e);
  // The range of values of a buffer, if it states one.
  Status check_values(const Buffer& b);

 private:
  Status visit(const Expr& e, int depth, bool guarded);
  Status check_types(const ExprNode& e) const;
  Status check_count(const ExprNode& shift) const;
  Status check_name(const ExprNode& e) const;

  const Kernel& kernel_;
  const std::vector<const Stmt*>& scopes_;
  const Ranges* ranges_;
  std::vector<Expr> holding_;
};

}  // namespace lathe::ir
