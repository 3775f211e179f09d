// See scan_columns.h.
#include "search/gpu/rows/scan_columns.h"

#include <algorithm>
#include <bit>
#include <map>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "search/gpu/move_list.h"
#include "search/gpu/vector_width.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kBlock = 256, kRun = 8;  // threads; rows that a thread loads at once
constexpr int64_t kMany = 4096;            // columns, with which threads that each have some of them are enough

// The iterators of scopes around one another, with nothing beside them; what the last one holds.
std::pair<std::vector<const Stmt*>, const std::vector<Stmt>*> nest_of(const Stmt& outer) {
  std::vector<const Stmt*> out = {&outer};
  while (out.back()->body.size() == 1 && out.back()->body.front().kind == Stmt::Kind::scope)
    out.push_back(&out.back()->body.front());
  return {out, &out.back()->body};
}

std::vector<std::string> names_of(const std::vector<const Stmt*>& scopes) {
  std::vector<std::string> out;
  for (const Stmt* s : scopes) out.push_back(s->iter);
  return out;
}

// Inputs that have another element for each step, and whether they have one for each column.
std::map<std::string, bool> inputs_along(const Kernel& k, const ColumnSums& sums) {
  std::map<std::string, bool> out;
  for_each_stmt(sums.last->body, [&](const Stmt& s) {
    for_each_node(s.value, [&](const ExprNode& n) {
      if (n.op != Op::k_load || !is_input(k.find_buffer(n.name)->place)) return;
      const auto used = [&](const std::string& iter) {
        return std::any_of(n.args.begin(), n.args.end(), [&](const Expr& e) { return uses(e, iter); });
      };
      if (used(sums.along->iter)) out[n.name] |= used(sums.last->iter);
    });
  });
  return out;
}

}  // namespace

Result<ColumnSums> column_sums(const Kernel& k) {
  const auto no = [&](const char* why) { return unsupported("{} has no running sums of columns: {}", k.name, why); };
  ColumnSums out;
  const std::vector<Stmt>* body = &k.body;
  for (; body->size() == 1 && body->front().kind == Stmt::Kind::scope; body = &body->front().body)
    out.nest.push_back(body->front().iter);
  const auto is_scope = [](const Stmt& s) { return s.kind == Stmt::Kind::scope; };
  if (out.nest.empty() || body->size() != 2 || !std::all_of(body->begin(), body->end(), is_scope))
    return no("expected a start and a loop in each row");
  const auto [starts, start] = nest_of((*body)[0]);
  const auto [steps, step] = nest_of((*body)[1]);
  if (starts.size() + 1 != steps.size() || start->size() != 1 || (*start)[0].kind != Stmt::Kind::assign)
    return no("expected a start and a sum of each column");
  for (size_t i = 0; i < starts.size(); ++i) {
    if (!equal(starts[i]->extent, steps[i + 1]->extent)) return no("sums of other columns start");
  }
  if (!std::all_of(step->begin(), step->end(), [](const Stmt& s) { return s.kind == Stmt::Kind::assign; }))
    return no("its loop has another inside");
  out.starts = names_of(starts);
  out.columns = names_of({steps.begin() + 1, steps.end()});
  out.along = steps.front();
  out.last = steps.back();
  out.sum = (*start)[0].target;
  const Buffer& b = *k.find_buffer(out.sum);
  if (b.place != Place::heap || b.type != DType::f32) return no("the sum is no temporary");
  return out;
}

Result<Kernel> columns_as_rows(const Kernel& k, const ColumnSums& sums) {
  MoveList list(k, "columns_as_rows");
  for (const std::string& m : sums.columns) list.move("swap_scopes {} {}", sums.along->iter, m);
  for (size_t i = 0; i < sums.columns.size(); ++i) list.move("join_scopes {} {}", sums.starts[i], sums.columns[i]);
  LATHE_ASSIGN(Scheduled made, list.finish());
  return std::move(made.kernel);
}

Result<Scheduled> scan_columns_schedule(const GeneralKernel& general, const ColumnSums& sums,
                                        const SymbolValues& sizes) {
  const Kernel& k = general.kernel;
  const auto extent = [&](const std::string& iter) {
    int64_t out = kBlock;
    for_each_stmt(k.body, [&](const Stmt& s) {
      if (s.kind == Stmt::Kind::scope && s.iter == iter) out = evaluate(s.extent, sizes).value_or(kBlock);
    });
    return std::max<int64_t>(out, 1);
  };
  const std::string &n = sums.along->iter, &c = sums.starts.back(), &m = sums.columns.back();
  std::vector<std::string> around = sums.nest;
  around.insert(around.end(), sums.starts.begin(), sums.starts.end() - 1);
  int64_t lines = 1;
  for (const std::string& i : around) lines *= extent(i);
  const int64_t columns = extent(c);
  if (lines * columns < kMany && extent(n) > kRun) return unsupported("{} has few columns", k.name);
  const int64_t vector = lines * columns < kMany * kVector ? 1 : vector_width(k, columns);
  const auto threads_for = [](int64_t work) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(work, kBlock))));
  };
  const int64_t across = threads_for((columns + vector - 1) / vector),
                down = std::min(threads_for(extent(around.back())), kBlock / across);
  MoveList list(k, "scan_columns.1");
  list.knob("columns", across);
  list.knob("rows", down);
  list.knob("vector", vector);
  for (const std::string& i : {c, m}) list.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", i, vector);
  for (const std::string& i : sums.columns) list.move("swap_scopes {} {}{}", n, i, i == m ? "c" : "");
  for (size_t i = 0; i < sums.columns.size(); ++i)
    list.move("join_scopes {0}{2} {1}{2}", sums.starts[i], sums.columns[i], sums.columns[i] == m ? "c" : "");
  list.move("move_to_register {} {}c", sums.sum, c);
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", n, kRun);
  for (const auto& [x, of_column] : inputs_along(k, sums)) {
    list.move("create_temporary {0} {0}_r at={1}b mode=stage", x, n);
    list.move("move_to_register {}_r {}b", x, n);
    list.move("unroll_scope {}_r_0", x);
    if (of_column && vector > 1) list.move("vectorize_scope {}_r_1", x);
  }
  list.move("tile_scope {0}c {1} tail=mask as {0}b,{0}t", c, across);
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}t", around.back(), down);
  list.move("swap_scopes {}t {}b", around.back(), c);
  for (size_t i = 0; i + 1 < around.size(); ++i) list.move("parallelize_grid {}", around[i]);
  for (const std::string& i : {around.back(), c}) list.move("parallelize_grid {}b", i);
  for (const std::string& i : {around.back(), c}) list.move("parallelize_block {}t", i);
  list.move("unroll_scope {}i", n);
  for (const std::string& i : {c, m}) list.move("vectorize_scope {}v", i);
  return list.finish();
}

}  // namespace lathe::search
