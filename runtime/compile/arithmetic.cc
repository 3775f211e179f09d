// See arithmetic.h.
#include "runtime/compile/arithmetic.h"

#include <algorithm>

#include "ops/op_table.h"
#include "search/quantised/groups.h"
#include "search/sketches/matmul_parts.h"

namespace lathe::runtime {

namespace {

constexpr double kDepth = 32, kDots = 16;

bool is_byte(ir::DType t) { return t == ir::DType::i8 || t == ir::DType::u8; }

// Whether the sum of products is of elements that `of` accepts, on both sides.
template <class F>
bool multiplies(const ir::Stmt& s, F&& of) {
  if (s.kind != ir::Stmt::Kind::assign || s.op != ir::AssignOp::add || s.value->op != ir::Op::k_mul) return false;
  return std::all_of(s.value->args.begin(), s.value->args.end(), [&](const ir::Expr& factor) {
    bool some = false;
    ir::for_each_node(factor, [&](const ir::ExprNode& n) { some |= n.op == ir::Op::k_load && of(n.type); });
    return some;
  });
}

ir::DType factors_of(const ir::Kernel& kernel, uint32_t allowed) {
  ir::DType out = ir::DType::f32;
  for_each_stmt(kernel.body, [&](const ir::Stmt& s) {
    if (s.kind != ir::Stmt::Kind::assign) return;
    if (s.value->type == ir::DType::i32 && multiplies(s, is_byte)) out = ir::DType::i8;
    const auto is_bf16 = [](ir::DType t) { return t == ir::DType::bf16; };
    if ((allowed & ir::kBf16Dots) != 0 && multiplies(s, is_bf16)) out = ir::DType::bf16;
  });
  return out;
}

}  // namespace

Arithmetic arithmetic_of(const ops::Graph& finished, const ops::Lowered& lowered, uint32_t allowed) {
  Arithmetic out;
  for (const ops::Node& node : finished.nodes) {
    const ops::AttrValue* format = ops::find_attr(node, ops::AttrId::format);
    if (format != nullptr) out.format = std::get<std::string>(*format);
  }
  for (const ops::LoweredKernel& k : lowered.kernels) {
    const ir::DType factors = factors_of(k.kernel, allowed);
    if (factors != ir::DType::f32) out.factors = factors;
    out.tiles = out.tiles || (out.format.empty() && search::matmul_parts(k.kernel).valid);
    const bool bytes = !out.format.empty() && (allowed & ir::kQuantisedActivations) != 0;
    const search::QuantisedParts parts = bytes ? search::quantised_parts(k.kernel) : search::QuantisedParts{};
    if (!parts.weight || parts.m == nullptr || !parts.packed || !ir::is_const_int(parts.k->extent)) continue;
    const search::Groups groups = search::groups_of(parts, ir::Ranges(k.kernel));
    if (groups.group == 0) continue;
    out.factors = ir::DType::i8;
    out.tiles = out.tiles || groups.fill_tiles();
    const double group = static_cast<double>(groups.group);
    out.beside = 2 * kDepth / std::min<double>(group, search::kUsualScale);
    if (groups.weight.rest) out.beside += 2 * kDepth / group;
  }
  return out;
}

double ceiling_of(const Arithmetic& arithmetic, ir::DType factors, int instructions) {
  const bool beside = arithmetic.factors == ir::DType::i8 && factors == ir::DType::i8 && instructions > 0;
  if (!beside || arithmetic.beside == 0) return 1;
  const double dots = kDots * instructions;
  return dots / (dots + arithmetic.beside);
}

}  // namespace lathe::runtime
