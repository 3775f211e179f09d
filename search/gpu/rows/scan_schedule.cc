// See scan_schedule.h.
#include "search/gpu/rows/scan_schedule.h"

#include <algorithm>
#include <bit>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "search/gpu/move_list.h"
#include "search/gpu/rows/scan_columns.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr const char* kRecipe = "scan.1";
constexpr int64_t kWarp = 32, kMostThreads = 256, kShort = 4, kLong = 16, kAtOnce = 8;

struct Scan {
  std::vector<const Stmt*> nest;  // of rows
  const Stmt* columns = nullptr;
  const Stmt* sum = nullptr;  // a += x
};

Result<Scan> scan_of(const Kernel& k) {
  const auto no = [&](const char* why) { return unsupported("{} has no running sums of rows: {}", k.name, why); };
  Scan out;
  const std::vector<Stmt>* body = &k.body;
  for (; body->size() == 1 && body->front().kind == Stmt::Kind::scope; body = &body->front().body)
    out.nest.push_back(&body->front());
  if (out.nest.empty() || body->size() != 2 || (*body)[0].kind != Stmt::Kind::assign ||
      (*body)[1].kind != Stmt::Kind::scope)
    return no("expected a start and a loop in each row");
  out.columns = &(*body)[1];
  const std::string& cell = (*body)[0].target;
  for (const Stmt& s : out.columns->body) {
    if (s.kind != Stmt::Kind::assign) return no("its loop has another inside");
    const bool adds = s.op == AssignOp::add && s.target == cell;
    if (adds ? out.sum != nullptr || uses(s.value, cell) : s.op != AssignOp::set || s.target == cell)
      return no("its loop does more than add up");
    if (adds) out.sum = &s;
  }
  const Buffer& b = *k.find_buffer(cell);
  if (out.sum == nullptr || b.place != Place::heap || b.type != DType::f32 || b.dims.size() != out.nest.size())
    return no("the sum is no temporary of a row");
  for (size_t d = 0; d < b.dims.size(); ++d) {
    if (!equal(out.sum->index[d], iter(out.nest[d]->iter))) return no("the sum is no temporary of a row");
  }
  // What is stored on the way is not read again.
  bool reads = false;
  for_each_node(out.sum->value,
                [&](const ExprNode& n) { reads |= n.op == Op::k_load && !is_input(k.find_buffer(n.name)->place); });
  return reads ? no("it adds up what it stores") : Result<Scan>(std::move(out));
}

// In turns of `threads` parts of `run` neighbours.
Kernel in_parts(const Kernel& k, const Scan& scan, int64_t threads, int64_t run) {
  Kernel out = k;
  const std::string &n = scan.columns->iter, &a = scan.sum->target;
  const std::string c = n + "_c", part = a + "_p", start = a + "_q";
  const std::vector<Expr> rows = scan.sum->index;
  const auto in_row = [&](const std::string& i) {
    std::vector<Expr> at = rows;
    at.push_back(iter(i));
    return at;
  };
  for (const std::string& name : {part, start}) {
    Buffer b = *k.find_buffer(a);
    b.name = name;
    b.dims.emplace_back(threads);
    out.buffers.push_back(std::move(b));
  }
  const Expr length = scan.columns->extent, size(threads * run);
  const auto first = [&](const std::string& t) { return size * iter(c) + Expr(run) * iter(t); };
  const auto neighbours = [&](const std::string& v, const std::string& t, std::vector<Stmt> body) {
    for (Stmt& s : body) {
      const std::vector<std::pair<std::string, Expr>> at = {{n, first(t) + iter(v)}};
      s.value = substitute(s.value, at);
      for (Expr& e : s.index) e = substitute(e, at);
    }
    return make_scope(v, min(Expr(run), length - size * iter(c) - Expr(run) * iter(t)), std::move(body), "col");
  };
  const Expr zero = const_float(0);
  const std::string t = n + "_t", u = n + "_u", w = n + "_w", y = n + "_y";
  Stmt own = make_scope(t, Expr(threads),
                        {make_assign(part, in_row(t), AssignOp::set, zero),
                         neighbours(n + "_v", t, {make_assign(part, in_row(t), AssignOp::add, scan.sum->value)})});
  std::vector<Stmt> again = scan.columns->body;
  for (Stmt& s : again) {
    if (s.target == a) {
      s.target = start;
      s.index = in_row(u);
    }
    s.value = rewrite(s.value, [&](const Expr& e) -> Expr {
      return e->op == Op::k_load && e->name == a ? load(start, in_row(u), DType::f32) : Expr();
    });
  }
  const Expr before = select(make(Op::k_lt, {iter(w), iter(u)}), load(part, in_row(w), DType::f32), zero);
  Stmt results = make_scope(u, Expr(threads),
                            {make_assign(start, in_row(u), AssignOp::set, load(a, rows, DType::f32)),
                             make_scope(w, Expr(threads), {make_assign(start, in_row(u), AssignOp::add, before)}),
                             neighbours(n + "_x", u, std::move(again))});
  Stmt total = make_scope(y, Expr(threads), {make_assign(a, rows, AssignOp::add, load(part, in_row(y), DType::f32))});
  Stmt turns = make_scope(c, ceildiv(length, size), {std::move(own), std::move(results), std::move(total)}, "col");
  std::vector<Stmt>* body = &out.body;
  while (body->size() == 1) body = &body->front().body;
  (*body)[1] = std::move(turns);
  out.numeric |= kReassociate;
  return out;
}

// With each column a row, where sums are of columns.
Kernel of_rows(const Kernel& k) {
  const Result<ColumnSums> sums = column_sums(k);
  Result<Kernel> out = sums.ok() ? columns_as_rows(k, *sums) : Result<Kernel>(k);
  return out.ok() ? std::move(*out) : k;
}

}  // namespace

bool is_scan(const Schedule& schedule) { return schedule.recipe == kRecipe; }

Kernel kernel_of_scan(const GeneralKernel& general, const Schedule& schedule) {
  const Kernel rows = of_rows(general.kernel);
  const Result<Scan> scan = scan_of(rows);
  const auto knob = [&](const char* name) {
    const auto at = schedule.knobs.find(name);
    return at == schedule.knobs.end() ? 0 : at->second;
  };
  const int64_t threads = knob("threads"), run = knob("run");
  const bool sound = threads >= 1 && threads <= kMostThreads && run >= 1 && run <= kLong;
  return scan.ok() && sound ? in_parts(rows, *scan, threads, run) : general.kernel;
}

Result<Scheduled> scan_schedule(const GeneralKernel& general, const SymbolValues& sizes) {
  const Result<ColumnSums> sums = column_sums(general.kernel);
  if (sums.ok()) {
    Result<Scheduled> made = scan_columns_schedule(general, *sums, sizes);
    if (made.ok() || made.status().code() != Code::kUNSUPPORTED) return made;
  }
  const Kernel rows = of_rows(general.kernel);
  LATHE_ASSIGN(const Scan scan, scan_of(rows));
  const int64_t length = std::max<int64_t>(evaluate(scan.columns->extent, sizes).value_or(1), 1);
  const int64_t run = length > kMostThreads * kShort ? kLong : kShort;
  const auto parts = static_cast<uint64_t>(std::clamp((length + run - 1) / run, kWarp, kMostThreads));
  const auto threads = static_cast<int64_t>(std::bit_ceil(parts));
  const Kernel kernel = in_parts(rows, scan, threads, run);
  const std::string &b = scan.nest.back()->iter, &n = scan.columns->iter, &a = scan.sum->target;
  MoveList list(kernel, kRecipe);
  list.knob("threads", threads);
  list.knob("run", run);
  list.move("tile_scope {0}_w {1} tail=exact as {0}_wo,{0}_wi", n, kAtOnce);
  list.move("move_to_register {} {}", a, b);
  list.move("move_to_register {}_q {}", a, b);
  list.move("move_to_stack {}_p {}", a, b);
  for (const Stmt* s : scan.nest) list.move("parallelize_grid {}", s->iter);
  list.move("move_to_shared {}_p {}", a, b);
  for (const char* scope : {"t", "u", "y"}) list.move("parallelize_block {}_{}", n, scope);
  list.move("unroll_scope {}_wi", n);
  list.move("tile_scope {0}_v {1} tail=mask as {0}_vo,{0}_vi", n, kShort);
  if (!sums.ok()) list.move("vectorize_scope {}_vi", n);
  list.move("unroll_scope {}_vo", n);
  list.move("unroll_scope {}_x", n);
  return list.finish();
}

}  // namespace lathe::search
