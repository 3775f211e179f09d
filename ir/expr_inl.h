// The body of rewrite(); included by expr.h only.
#pragma once

namespace lathe::ir {

template <class F>
Expr rewrite(const Expr& e, F&& f) {
  if (!e) return e;
  std::vector<Expr> args;
  bool changed = false;
  args.reserve(e->args.size());
  for (const Expr& a : e->args) {
    args.push_back(rewrite(a, f));
    changed |= args.back().get() != a.get();
  }
  Expr rebuilt = e;
  if (changed) {
    auto node = std::make_shared<ExprNode>(*e);
    node->args = std::move(args);
    rebuilt = Expr(std::shared_ptr<const ExprNode>(std::move(node)));
  }
  Expr replaced = f(rebuilt);
  return replaced ? replaced : rebuilt;
}

}  // namespace lathe::ir
