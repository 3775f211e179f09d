// In-place calls: see alias.h.
#include "runtime/alias.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ir/analysis.h"

namespace lathe::runtime {

namespace {

// Moves after which a cell's last load still comes before its store.
constexpr std::array<std::string_view, 5> kOrderKeeping = {"tile_scope", "vectorize_scope", "unroll_scope", "parallelize", "move_to_register"};

struct Visit {
  const ir::Kernel& kernel;
  const ir::Buffer* out = nullptr;
  std::vector<ir::Expr> stored;    // the index of the first store
  std::string stored_col;          // the column iterator there
  bool ok = true;
  int scope = 0, stored_scope = -1;  // column scopes in program order

  static bool is_col(const ir::Stmt& s) { return s.kind == ir::Stmt::Kind::scope && s.role == "col"; }

  void walk(const std::vector<ir::Stmt>& body, const std::string& col, bool look_for_store) {
    for (const ir::Stmt& s : body) {
      if (s.kind == ir::Stmt::Kind::scope) {
        if (is_col(s)) ++scope;
        walk(s.body, is_col(s) ? s.iter : col, look_for_store);
      } else if (s.kind == ir::Stmt::Kind::assign) {
        look_for_store ? find_store(s, col) : check(s, col);
      }
    }
  }
  void find_store(const ir::Stmt& s, const std::string& col) {
    if (s.target != out->name || stored_scope >= 0) return;
    stored = s.index;
    stored_col = col;
    stored_scope = scope;
  }
  bool same_cell(const std::vector<ir::Expr>& index, const std::string& col) const {
    for (size_t d = 0; d < index.size(); ++d) {
      if (ir::equal(index[d], stored[d])) continue;
      if (col.empty() || stored_col.empty()) return false;
      if (!ir::equal(index[d], ir::iter(col)) || !ir::equal(stored[d], ir::iter(stored_col))) return false;
    }
    return true;
  }
  void check(const ir::Stmt& s, const std::string& col) {
    if (s.target == out->name && !same_cell(s.index, col)) ok = false;
    ir::for_each_node(s.value, [&](const ir::ExprNode& n) {
      if (n.op != ir::Op::k_load) return;
      const ir::Buffer* b = kernel.find_buffer(n.name);
      const bool input = b->place == ir::Place::in || b->place == ir::Place::constant;
      if (!input || b->dims.size() != out->dims.size()) return;
      ok &= scope <= stored_scope && same_cell(n.args, col);
    });
  }
};

}  // namespace

bool may_run_in_place(const Operator& op) {
  if (op.lowered().kernels.size() != 1) return false;
  const ir::Kernel& kernel = op.lowered().kernels[0].kernel;
  if (kernel.family != "elementwise" && kernel.family != "row") return false;
  Visit visit{kernel};
  for (const ir::Buffer& b : kernel.buffers) {
    if (b.place != ir::Place::out) continue;
    if (visit.out != nullptr) return false;
    visit.out = &b;
  }
  if (visit.out == nullptr) return false;
  visit.walk(kernel.body, "", true);
  if (visit.stored_scope < 0) return false;
  visit.scope = 0;
  visit.walk(kernel.body, "", false);
  if (!visit.ok) return false;
  for (const auto& s : op.stages(0)) {
    for (const search::Move& m : s->stage.schedule.moves) {
      if (std::find(kOrderKeeping.begin(), kOrderKeeping.end(), m.name) == kOrderKeeping.end()) return false;
    }
  }
  return true;
}

}  // namespace lathe::runtime
