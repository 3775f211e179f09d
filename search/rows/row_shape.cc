// Read from the scopes, roles and buffers of the naive Kernel.
#include "search/rows/row_shape.h"

#include <algorithm>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/analysis/dependence.h"
#include "search/moves/transform_util.h"
#include "search/sketches/generic_rules.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// No element of the buffer is found by another one's value.
bool read_in_order(const Kernel& kernel, const std::string& buffer) {
  bool plain = true;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign) return;
    for_each_node(s.value, [&](const ExprNode& e) {
      if (e.op != Op::k_load || e.name != buffer) return;
      for (const Expr& index : e.args) {
        for_each_node(index, [&](const ExprNode& part) { plain = plain && part.op != Op::k_load; });
      }
    });
  });
  return plain;
}

bool single_assignment(const Kernel& kernel, const std::string& buffer) {
  int writes = 0;
  bool plain = true;
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign || s.target != buffer) return;
    ++writes;
    plain = plain && s.op == AssignOp::set && !uses(s.value, buffer);
  });
  return plain && writes == 1;
}

}  // namespace

RowShape row_shape_of(const Problem& problem, bool streams) {
  const Kernel& k = problem.kernel;
  RowShape out;
  out.passes = scopes_with_role(k, "col");
  out.cols = extent_at(out.passes[0]->extent, problem);
  for (size_t p = 0; p < std::min<size_t>(out.passes.size(), 2); ++p) {
    for (const Stmt& c : out.passes[p]->body) {
      const bool of_column =
          std::any_of(c.index.begin(), c.index.end(), [&](const Expr& e) { return uses(e, out.passes[p]->iter); });
      out.overlapped_sums += c.kind == Stmt::Kind::assign && c.op != AssignOp::set && !of_column;
    }
  }
  out.running = !running_sums(k, *out.passes[0]).empty();
  Ranges ranges(k);
  const std::vector<const Stmt*> rows = scopes_with_role(k, "row");
  for (const Stmt* r : rows) {
    out.rows *= extent_at(r->extent, problem);
    out.row = r->iter;
    out.some_rows = proves_le(Expr(1), r->extent, ranges);
    out.two_rows = proves_le(Expr(2), r->extent, ranges);
    for_each_stmt(r->body,
                  [&](const Stmt& s) { out.decides |= s.kind == Stmt::Kind::scope && uses(s.extent, r->iter); });
  }
  std::set<std::string> read;
  for (const Access& a : collect_accesses(k.body)) {
    if (!a.write || a.reduction) read.insert(a.buffer);
  }
  for (const Buffer& b : k.buffers) {
    if (b.place == Place::heap && !rows.empty()) {
      if (b.dims.size() == rows.size()) out.scalars.push_back(b.name);
      if (b.dims.size() == rows.size() + 1) out.kept.push_back(b.name);
    }
    if (b.place == Place::heap) continue;
    double elements = 1;
    for (const Expr& d : b.dims) elements *= static_cast<double>(extent_at(d, problem));
    if (b.place == Place::in && elements >= static_cast<double>(out.rows * out.cols) && read_in_order(k, b.name))
      out.whole.push_back(b.name);
    double& widest = b.place == Place::out ? out.bytes_out : out.bytes_in;
    widest = std::max(widest, bytes_of_each(b.type));
    const bool streamed = streams && b.place == Place::out && dtype_bytes(b.type) >= 2 && read.count(b.name) == 0;
    if (streamed && written_once(k, b.name)) out.streamable.push_back(b.name);
  }
  for (const Stmt* pass : out.passes) {
    for_each_stmt(pass->body, [&](const Stmt& s) {
      if (s.kind == Stmt::Kind::assign)
        for_each_node(s.value, [&](const ExprNode& e) {
          out.functions |= op_info(e.op).cls == OpClass::kMath;
          out.normal_cdf |= e.op == Op::k_normal_cdf;
        });
    });
  }
  for_each_stmt(k.body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::assign)
      for_each_node(s.value, [&](const ExprNode& e) { out.norm |= e.op == Op::k_sqrt || e.op == Op::k_rsqrt; });
  });
  for_each_stmt(out.passes[0]->body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign) return;
    out.first_keeps |= std::find(out.kept.begin(), out.kept.end(), s.target) != out.kept.end();
    out.first_stores |= k.find_buffer(s.target)->place == Place::out && read.count(s.target) != 0;
  });
  out.norm &= out.overlapped_sums > 0;
  out.again = !out.kept.empty() && std::all_of(out.kept.begin(), out.kept.end(),
                                               [&](const std::string& b) { return single_assignment(k, b); });
  out.online = out.passes.size() >= 3 && out.passes[0]->body.size() == 1 && out.passes[0]->body[0].op == AssignOp::fmax;
  return out;
}

}  // namespace lathe::search
