// The body of rewrite(); included by expr.h only.
#pragma once
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace lathe::ir {

template <class F>
Expr with_args(const Expr& e, F&& f) {
  for (size_t i = 0; i < e->args.size(); ++i) {
    Expr changed = f(e->args[i]);
    if (changed.get() == e->args[i].get()) continue;
    std::vector<Expr> args;
    args.reserve(e->args.size());
    args.assign(e->args.begin(), e->args.begin() + static_cast<std::ptrdiff_t>(i));
    args.push_back(std::move(changed));
    while (args.size() < e->args.size()) args.push_back(f(e->args[args.size()]));
    return Expr(std::make_shared<const ExprNode>(ExprNode{e->op, e->type, std::move(args), e->name, e->ival, e->fval}));
  }
  return e;
}

template <class F>
Expr rewrite(const Expr& e, F&& f, uint64_t holding) {
  if (!e || (holding != 0 && (e->holds & holding) == 0)) return e;
  const Expr rebuilt = with_args(e, [&](const Expr& a) { return rewrite(a, f, holding); });
  Expr replaced = f(rebuilt);
  return replaced ? replaced : rebuilt;
}

}  // namespace lathe::ir
