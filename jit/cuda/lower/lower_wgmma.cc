// What four warps do together while they go on: a @tensor scope of a row of warp_ops.def for groups of warps. Its
// factors lie in swizzled shared memory; how, the layout and the swizzle of their buffers say. The first one may be in
// registers.
#include "ir/core/text_form.h"
#include "jit/cuda/lower/lowering.h"

namespace lathe::jit {

using ir::Expr;
using ir::Result;
using ir::Status;
using ir::Stmt;
using ir::unsupported;

namespace {

constexpr int64_t kLines = ir::kSwizzledLines;
constexpr int64_t kTerms = 16;  // of an instruction

}  // namespace

// Elements from that of the first row (or column) and term to another one.
Result<int64_t> DeviceLowering::tile_step(const std::string& buffer, const std::vector<Expr>& index,
                                          const std::string& line, int64_t by, const std::string& term,
                                          int64_t terms) const {
  LATHE_ASSIGN(const DevicePlace from, element(buffer, index, {{line, Expr(0)}, {term, Expr(0)}}));
  LATHE_ASSIGN(const DevicePlace to, element(buffer, index, {{line, Expr(by)}, {term, Expr(terms)}}));
  const Expr step = ir::simplify(to.offset - from.offset, ranges_);
  if (!ir::is_const_int(step)) return unsupported("{} does not lie in tiles", buffer);
  return step->ival;
}

// lines: rows of a, columns of b.
Result<DeviceTile> DeviceLowering::tile_of(const std::string& buffer, const std::vector<Expr>& index,
                                           const std::string& line, int64_t lines, const std::string& term) const {
  const auto step = [&](int64_t by, int64_t terms) { return tile_step(buffer, index, line, by, term, terms); };
  const int64_t length = out_.shared[static_cast<size_t>(place_of_.at(buffer).index)].line();
  LATHE_ASSIGN(const int64_t next, step(1, 0));
  LATHE_ASSIGN(const int64_t next_term, step(0, 1));
  DeviceTile out;
  out.across = next == 1;
  if (next * next_term != length) return unsupported("{} does not lie in lines of {}", buffer, length);
  LATHE_ASSIGN(out.lines, out.across ? step(0, kLines) : step(kLines, 0));
  if (out.across && lines > length) {
    LATHE_ASSIGN(out.panels, step(length, 0));
  }
  // All others follow from these.
  for (int64_t i = 0; i < lines; ++i) {
    for (const int64_t k : {int64_t{0}, kLines - 1, kLines, kTerms - 1}) {
      const int64_t wanted = out.across
                                 ? i / length * out.panels + i % length + k / kLines * out.lines + k % kLines * length
                                 : i / kLines * out.lines + i % kLines * length + k;
      LATHE_ASSIGN(const int64_t is, step(i, k));
      if (is != wanted) return unsupported("{} does not lie in tiles of {} lines", buffer, kLines);
    }
  }
  return out;
}

Status DeviceLowering::warpgroup(const Stmt& s, DeviceStmt out, List& to) {
  const Stmt *ms = &s.body[0], *ns = &ms->body[0], &is = ns->body[0];
  const std::string &k = s.iter, &m = ms->iter, &n = ns->iter;
  out.columns = static_cast<int>(ns->extent->ival);
  const auto sum = [&](int64_t row, int64_t column) {
    return element(is.target, is.index, {{m, Expr(row)}, {n, Expr(column)}});
  };
  LATHE_ASSIGN(DevicePlace first, sum(0, 0));
  LATHE_ASSIGN(const DevicePlace below, sum(8, 0));
  LATHE_ASSIGN(const DevicePlace last, sum(8, out.columns - 1));
  if (!ir::is_const_int(ir::simplify(below.offset - first.offset, ranges_), out.columns / 4) ||
      !ir::is_const_int(ir::simplify(last.offset - first.offset, ranges_), out.columns / 2 - 1))
    return unsupported("sums of {} in {} do not lie together", s.intrinsic, is.target);
  out.places.push_back(std::move(first));
  const ir::ExprNode *a = nullptr, *b = nullptr;
  ir::for_each_node(is.value, [&](const ir::ExprNode& e) {
    if (e.op != ir::Op::k_load) return;
    const bool of_rows = std::any_of(e.args.begin(), e.args.end(), [&](const Expr& x) { return ir::uses(x, m); });
    (of_rows ? a : b) = &e;
  });
  const bool held = warp_op(out.warp).held() > 0;
  for (int64_t q = 0; held && q < 4; ++q) {
    const std::vector<std::pair<std::string, Expr>> at = {{m, Expr(q % 2 * 8)}, {k, Expr(q / 2 * 8)}};
    LATHE_ASSIGN(DevicePlace place, element(a->name, a->args, at));
    out.places.push_back(std::move(place));
  }
  for (const ir::ExprNode* factor : {a, b}) {
    if (held && factor == a) continue;
    if (place_of_.at(factor->name).space != DevicePlace::Space::shared)
      return unsupported("{} of {} is not in shared memory", factor->name, s.intrinsic);
    if (kernel_.find_buffer(factor->name)->swizzle == 0)
      return unsupported("{} of {} is not swizzled", factor->name, s.intrinsic);
    const std::string& line = factor == a ? m : n;
    LATHE_ASSIGN(DevicePlace place, element(factor->name, factor->args, {{line, Expr(0)}, {k, Expr(0)}}));
    LATHE_ASSIGN(const DeviceTile tile, tile_of(factor->name, factor->args, line, factor == a ? 64 : out.columns, k));
    out.places.push_back(std::move(place));
    out.tiles.push_back(tile);
  }
  to.push_back(std::move(out));
  return {};
}

}  // namespace lathe::jit
