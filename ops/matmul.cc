// The matmul family: y[.., m, n] = f(sum over k of a[.., m, k] * b[.., k, n]), f the fused
// followers.
//
//   for t [batch]: for m [m]: for n [n]:
//     c = 0;  for k [k]: c += a * b;  y = f(c)
#include "ops/kernel_writer.h"

namespace lathe::ops {

using ir::Expr;

ir::Result<LoweredKernel> lower_matmul(KernelWriter& w) {
  const Node& node = w.anchor();
  const int ta = node.inputs[0], tb = node.inputs[1];
  const bool transpose_a = attr_bool(node, AttrId::transpose_a), transpose_b = attr_bool(node, AttrId::transpose_b);
  const std::string a = w.add_param(ta, "a"), b = w.add_param(tb, "b");
  const View& va = w.view(ta);
  const View& vb = w.view(tb);
  const std::vector<Expr> dims = w.view(w.group().output).dims;

  std::vector<std::string> names = iter_names("t", dims.size() - 2);
  const Index batch = iters(names);
  const Expr m = ir::iter("m"), n = ir::iter("n"), k = ir::iter("k");
  const auto operand = [&](const std::string& name, const View& v, bool transposed, const Expr& row, const Expr& col) {
    Index index = align(batch, {v.dims.begin(), v.dims.end() - 2});
    index.push_back(transposed ? col : row);
    index.push_back(transposed ? row : col);
    return load(name, std::move(index));
  };
  const Expr product = operand(a, va, transpose_a, m, k) * operand(b, vb, transpose_b, k, n);
  const Expr depth = va.dims[va.dims.size() - (transpose_a ? 2 : 1)];

  Index index = batch;
  index.push_back(m);
  index.push_back(n);
  w.add_temp("c", dims);
  w.bind(node.output, load("c", index));
  std::vector<ir::Stmt> body;
  body.push_back(store("c", index, f32(0)));
  body.push_back(ir::make_scope("k", depth, {store("c", index, product, ir::AssignOp::add)}, "k"));
  body.push_back(store("y", index, w.value(w.group().output, index)));

  std::vector<std::string> roles(names.size(), "batch");
  for (const char* name : {"m", "n"}) {
    names.emplace_back(name);
    roles.emplace_back(name);
  }
  return w.finish("y", nest(names, dims, roles, std::move(body)));
}

}  // namespace lathe::ops
