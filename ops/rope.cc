// Rotary embedding: each pair of the last dimension is turned by the angle of its position.
//
//   for i [row]: for p [col]:  (d0, d1) = (s0*cos - s1*sin, s1*cos + s0*sin)
//
// Pairs are (p, p + D/2), or (2p, 2p + 1) if interleaved.
#include "ops/kernel_writer.h"

namespace lathe::ops {

using ir::Expr;

ir::Result<LoweredKernel> lower_rope(KernelWriter& w) {
  const Node& node = w.anchor();
  const std::vector<Expr> dims = w.view(node.output).dims;
  const size_t rank = dims.size();
  const int64_t half = dims.back()->ival / 2;
  w.add_param(node.inputs[0], "s");
  w.add_param(node.inputs[1], "co");
  w.add_param(node.inputs[2], "si");

  std::vector<std::string> names = iter_names("i", rank - 1);
  std::vector<Expr> extents(dims.begin(), dims.end() - 1);
  std::vector<std::string> roles(names.size(), "row");
  const Index rows = iters(names);
  const Expr p = ir::iter("p");
  const bool interleaved = attr_bool(node, AttrId::interleaved);
  const auto at = [&](int which) {
    Index index = rows;
    index.push_back(interleaved ? (which ? Expr(2) * p + Expr(1) : Expr(2) * p) : (which ? p + Expr(half) : p));
    return index;
  };
  const Index angle{rows[rank - 3], p};
  const Expr x0 = load("s", at(0)), x1 = load("s", at(1)), c = load("co", angle), s = load("si", angle);
  names.emplace_back("p");
  extents.emplace_back(half);
  roles.emplace_back("col");
  return w.finish(
      "d", nest(names, extents, roles, {store("d", at(0), x0 * c - x1 * s), store("d", at(1), x1 * c + x0 * s)}));
}

}  // namespace lathe::ops
