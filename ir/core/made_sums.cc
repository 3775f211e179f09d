// See made_sums.h.
#include "ir/core/made_sums.h"

#include <fmt/format.h>

namespace lathe::ir {

Expr terms_summed(const Buffer& b) {
  Expr out;
  if (!b.made || b.given_dims.empty()) return out;
  const std::string along = fmt::format("d{}", b.dims.size());
  for_each_node(b.made, [&](const ExprNode& load) {
    if (load.op != Op::k_load) return;
    for (size_t d = 0; d < load.args.size() && d < b.given_dims.size(); ++d) {
      if (load.args[d]->op == Op::k_iter && load.args[d]->name == along) out = b.given_dims[d];
    }
  });
  return out;
}

Stmt sums_made(const Buffer& b, const std::string& from, const std::string& to, const std::string& stem) {
  std::vector<Expr> index;
  for (size_t d = 0; d < b.dims.size(); ++d) index.push_back(iter(fmt::format("{}{}", stem, d)));
  const std::string along = fmt::format("{}{}", stem, b.dims.size());
  std::vector<Expr> term = index;
  term.push_back(iter(along));
  std::vector<Stmt> body = {make_assign(to, index, AssignOp::set, const_int(0, b.type))};
  body.push_back(
      make_scope(along, terms_summed(b), {make_assign(to, index, AssignOp::add, made_element(b, from, term))}, "sums"));
  for (size_t d = b.dims.size(); d-- > 0;) body = {make_scope(index[d]->name, b.dims[d], std::move(body), "sums")};
  return body[0];
}

Stmt elements_made(const Buffer& b, const std::string& from, const std::string& to, const std::string& stem) {
  if (terms_summed(b)) return sums_made(b, from, to, stem);
  std::vector<Expr> index;
  for (size_t d = 0; d < b.dims.size(); ++d) index.push_back(iter(fmt::format("{}{}", stem, d)));
  std::vector<Stmt> body = {make_assign(to, index, AssignOp::set, made_element(b, from, index))};
  for (size_t d = b.dims.size(); d-- > 0;) body = {make_scope(index[d]->name, b.dims[d], std::move(body))};
  return body[0];
}

}  // namespace lathe::ir
