// In-place calls: see alias.h.
#include "runtime/capi/alias.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "ops/family.h"

namespace lathe::runtime {

namespace {

// Moves after which a cell's last load still comes before its store. They keep what flows from one statement to the
// next, and every load flows into the store of its cell (feeds()): nothing they reorder passes it. Not among them: what
// loads or stores anew.
constexpr std::array<std::string_view, 19> kOrderKeeping = {
    "tile_scope",       "vectorize_scope",   "unroll_scope",    "parallelize",  "move_to_register",
    "parallelize_grid", "move_to_stack",     "split_scope",     "swap_scopes",  "join_scopes",
    "swap_ops",         "parallelize_block", "pipeline",        "rotate_scope", "inline_temporary",
    "online_reduction", "stream_stores",     "split_reduction", "prefetch"};

bool keeps_order(const search::Move& m) {
  if (std::find(kOrderKeeping.begin(), kOrderKeeping.end(), m.name) == kOrderKeeping.end()) return false;
  const auto tail = m.options.find("tail");
  return tail == m.options.end() || tail->second != "clamp";  // clamped iterations run twice
}

struct Visit {
  const ir::Kernel& kernel;
  const ir::Buffer* out = nullptr;
  const ir::Stmt* store = nullptr;  // the first one
  std::vector<ir::Expr> stored;     // its index
  std::set<std::string> feeding;    // temporaries whose values reach it
  std::string stored_col;           // the column iterator there
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
    store = &s;
    stored = s.index;
    stored_col = col;
    stored_scope = scope;
  }
  static void loaded(const ir::Stmt& s, std::set<std::string>& into) {
    ir::for_each_node(s.value, [&](const ir::ExprNode& n) {
      if (n.op == ir::Op::k_load) into.insert(n.name);
    });
  }
  void find_feeding() {
    loaded(*store, feeding);
    for (size_t before = 0; before != feeding.size();) {
      before = feeding.size();
      ir::for_each_stmt(kernel.body, [&](const ir::Stmt& s) {
        if (s.kind == ir::Stmt::Kind::assign && feeding.count(s.target) != 0) loaded(s, feeding);
      });
    }
  }
  // An input that may be the result has its sizes: a dimension of 1 has one place, however it is named.
  bool same_cell(const std::vector<ir::Expr>& index, const std::string& col) const {
    for (size_t d = 0; d < index.size(); ++d) {
      if (ir::is_const_int(out->dims[d], 1) || ir::equal(index[d], stored[d])) continue;
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
      const bool input = ir::is_input(b->place);
      if (!input || b->dims.size() != out->dims.size()) return;
      ok &= scope <= stored_scope && same_cell(n.args, col) && (&s == store || feeding.count(s.target) != 0);
    });
  }
};

}  // namespace

bool may_run_in_place(const Operator& op) {
  if (op.lowered().kernels.size() != 1) return false;
  const ir::Kernel& kernel = op.lowered().kernels[0].kernel;
  const ops::Family* family = ops::find_family(kernel.family);
  if (family == nullptr || !family->in_place) return false;
  Visit visit{kernel};
  for (const ir::Buffer& b : kernel.buffers) {
    if (b.place != ir::Place::out) continue;
    if (visit.out != nullptr) return false;
    visit.out = &b;
  }
  if (visit.out == nullptr) return false;
  visit.walk(kernel.body, "", true);
  if (visit.stored_scope < 0) return false;
  visit.find_feeding();
  visit.scope = 0;
  visit.walk(kernel.body, "", false);
  if (!visit.ok) return false;
  for (const auto& s : op.stages().of(0)) {
    const std::vector<search::Move>& moves = s->stage.schedule.moves;
    if (!std::all_of(moves.begin(), moves.end(), keeps_order)) return false;
  }
  return true;
}

}  // namespace lathe::runtime
