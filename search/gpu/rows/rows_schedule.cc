// See rows_schedule.h.
#include "search/gpu/rows/rows_schedule.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "search/gpu/move_list.h"
#include "search/gpu/powers_of_two.h"
#include "search/gpu/vector_width.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kBlock = 256, kMostBlock = 1024, kWarp = 32;
constexpr int64_t kMostHeld = 32;  // elements of a row, in the registers of a thread
constexpr int64_t kMostKept = 96;  // of all buffers there
constexpr const char* kRecipe = "rows.1";
constexpr const char* kLongest = "longest";  // row that registers hold; 0: they hold none
constexpr const char* kWidth = "vector";     // where it is not kVector

struct Rows {
  std::vector<const Stmt*> nest;     // outermost first
  std::vector<const Stmt*> columns;  // of the innermost
  std::vector<std::string> cells;    // temporaries of one element a row
  std::vector<std::string> wide;     // and of a whole one
  std::vector<std::string> again;    // inputs of a row that several loops read
  std::vector<std::string> back;     // results of a row that are read again
};

bool is_column(const Stmt& s) {
  return s.kind == Stmt::Kind::scope &&
         std::all_of(s.body.begin(), s.body.end(), [](const Stmt& inner) { return inner.kind == Stmt::Kind::assign; });
}

// In how many of the loops an input is read at the loop's own place.
bool read_again(const Kernel& k, const Rows& rows, const std::string& buffer) {
  int loops = 0;
  for (const Stmt* c : rows.columns) {
    bool read = false;
    for (const Access& a : collect_accesses(c->body, {}, &buffer)) {
      if (a.write || a.index.empty()) return false;
      // Of this row: what all rows share is read through caches.
      const bool own = uses(a.index.back(), c->iter) && a.index.size() == rows.nest.size() + 1;
      if (!own) return false;
      read = true;
    }
    loops += read;
  }
  return loops > 1 && k.find_buffer(buffer)->place == Place::in;
}

bool read_back(const Kernel& k, const Rows& rows, const std::string& buffer) {
  if (k.find_buffer(buffer)->place != Place::out || k.find_buffer(buffer)->dims.size() != rows.nest.size() + 1)
    return false;
  const std::vector<Access> all = collect_accesses(k.body, {}, &buffer);
  return std::any_of(all.begin(), all.end(), [](const Access& a) { return !a.write; });
}

Result<Rows> rows_of(const Kernel& k) {
  Rows out;
  const std::vector<Stmt>* body = &k.body;
  while (body->size() == 1 && body->front().kind == Stmt::Kind::scope && !is_column(body->front())) {
    out.nest.push_back(&body->front());
    body = &body->front().body;
  }
  bool reduces = false, others = false;
  const auto look = [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::assign) return;
    others |= !is_column(s);
    if (others) return;
    out.columns.push_back(&s);
    for (const Stmt& inner : s.body) reduces |= inner.op != AssignOp::set;
  };
  for (const Stmt& s : *body) {
    // All threads of a row go through a loop around such loops and statements together.
    const auto is_assign = [](const Stmt& inner) { return inner.kind == Stmt::Kind::assign; };
    const bool turns = s.kind == Stmt::Kind::scope && std::any_of(s.body.begin(), s.body.end(), is_column) &&
                       std::any_of(s.body.begin(), s.body.end(), is_assign);
    if (turns) {
      for (const Stmt& inner : s.body) look(inner);
    } else {
      look(s);
    }
  }
  if (others) return unsupported("{} is more than rows with loops in each", k.name);
  if (out.nest.empty() || !reduces) return unsupported("{} has no rows that are reduced", k.name);
  for (const Buffer& b : k.buffers) {
    if (is_param(b.place)) {
      if (read_again(k, out, b.name)) out.again.push_back(b.name);
      if (read_back(k, out, b.name)) out.back.push_back(b.name);
    } else {
      (b.dims.size() == out.nest.size() ? out.cells : out.wide).push_back(b.name);
    }
  }
  return out;
}

// A temporary of a row that several statements assign becomes one for each of them, if all use it at their own place:
// so what each makes can be made where it is used.
void name_apart(Kernel& k, const std::string& buffer) {
  std::vector<Stmt>* body = &k.body;
  while (body->size() == 1 && body->front().kind == Stmt::Kind::scope && !is_column(body->front()))
    body = &body->front().body;
  for (const Stmt& s : *body) {
    for (const Access& a : collect_accesses({s}, {}, &buffer)) {
      const bool plain = !a.write || a.stmt->op == AssignOp::set;
      if (!is_column(s) || !plain || a.index.empty() || !equal(a.index.back(), iter(s.iter))) return;
    }
  }
  const Buffer named = *k.find_buffer(buffer);
  std::string now = buffer;
  int made = 0;
  for (Stmt& column : *body) {
    for (Stmt& s : column.body) {
      s.value = rewrite(s.value, [&](const Expr& e) {
        return e->op == Op::k_load && e->name == buffer ? load(now, e->args, e->type) : Expr();
      });
      if (s.target != buffer) continue;
      if (made++ > 0) {
        now = fmt::format("{}_{}", buffer, made);
        k.buffers.push_back(named);
        k.buffers.back().name = now;
      }
      s.target = now;
    }
  }
}

// What is said of a row's length: that it fits, and that vectors go up in it. Lengths of calls stay within the bound,
// whatever `longest` is.
Kernel narrowed(const GeneralKernel& general, const Rows& rows, int64_t longest, int64_t vector) {
  Kernel out = general.kernel;
  for (Symbol& s : out.symbols) {
    const bool length = std::any_of(rows.columns.begin(), rows.columns.end(), [&](const Stmt* c) {
      return c->extent->op == Op::k_symbol && c->extent->name == s.name;
    });
    if (!length) continue;
    if (longest > 0) s.max = std::min(s.max, std::max({longest, general.most.value_or(s.name, s.max), s.min}));
    if (general.multiple.value_or(s.name, 1) % vector == 0) s.multiple_of = vector;
  }
  if (longest == 0) {
    for (const std::string& t : rows.wide) name_apart(out, t);
  }
  return out;
}

}  // namespace

Kernel kernel_of_rows(const GeneralKernel& general, const Schedule& schedule) {
  const Result<Rows> rows = schedule.recipe == kRecipe ? rows_of(general.kernel) : unsupported("it is of no rows");
  if (!rows.ok()) return general.kernel;
  const auto knob = [&](const char* name, int64_t otherwise) {
    const auto at = schedule.knobs.find(name);
    return at == schedule.knobs.end() ? otherwise : at->second;
  };
  return narrowed(general, *rows, knob(kLongest, 0), knob(kWidth, kVector));
}

Result<Scheduled> rows_schedule(const GeneralKernel& general, const SymbolValues& sizes) {
  LATHE_ASSIGN(const Rows rows, rows_of(general.kernel));
  const auto hinted = [&](const Stmt& s) { return std::max<int64_t>(evaluate(s.extent, sizes).value_or(kBlock), 1); };
  int64_t columns = 1, most = 1;
  for (const Stmt* c : rows.columns) {
    columns = std::max(columns, hinted(*c));
    most = std::max(most, evaluate(c->extent, general.most).value_or(INT64_MAX));
  }
  // Four vectors a thread; a warp for a row as long as its registers hold that, for then nothing goes through memory.
  const int64_t vector = vector_width(general.kernel, columns), most_held = kMostHeld / vector;
  const int64_t vectors = (columns + vector - 1) / vector, most_vectors = (most - 1) / vector + 1;
  int64_t threads = std::min(ceil_pow2((vectors + 3) / 4), kBlock);
  if (threads > kWarp && vectors <= kWarp * most_held) threads = kWarp;
  const auto kept = static_cast<int64_t>(rows.wide.size() + rows.again.size() + rows.back.size());
  const int64_t held = kept == 0 ? most_held : std::min(most_held, kMostKept / vector / kept);
  const bool fits = held > 0 && most_vectors <= kMostBlock * held;
  if (fits) {
    while (threads * held < most_vectors) threads *= 2;
  } else {
    threads = std::min(ceil_pow2(vectors), kBlock);
  }
  // Rows of similar length share their code.
  const int64_t turns = std::min(ceil_pow2((most_vectors - 1) / threads + 1), held);
  const std::string b = rows.nest.back()->iter;
  const int64_t down = std::min(ceil_pow2(hinted(*rows.nest.back())), std::max<int64_t>(kBlock / threads, 1));

  const int64_t longest = fits ? threads * turns * vector : 0;
  const Kernel kernel = narrowed(general, rows, longest, vector);
  MoveList list(kernel, kRecipe);
  list.knob("threads", threads);
  list.knob("rows", down);
  list.knob(kLongest, longest);
  if (vector != kVector) list.knob(kWidth, vector);
  std::vector<std::string> loops;
  if (fits) {
    for (const std::string& x : rows.again) {
      list.move("create_temporary {0} {0}_row at={1} mode=stage", x, b);
      list.move("move_to_register {}_row {}", x, b);
      loops.push_back(x + "_row_0");
    }
  }
  for (const Stmt* c : rows.columns) loops.push_back(c->iter);
  if (fits) {
    for (const std::string& y : rows.back) {
      list.move("keep_result {0} {0}_row at={1}", y, b);
      list.move("move_to_register {}_row {}", y, b);
      loops.push_back(y + "_row_0");
    }
  }
  LATHE_ASSIGN(const Rows apart, rows_of(kernel));
  for (const std::string& t : apart.wide) {
    if (fits) {
      list.move("move_to_register {} {}", t, b);
    } else {
      list.move("inline_temporary {}", t);
    }
  }
  for (const std::string& t : rows.cells) list.move("move_to_register {} {}", t, b);
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}t", b, down);
  for (size_t i = 0; i + 1 < rows.nest.size(); ++i) list.move("parallelize_grid {}", rows.nest[i]->iter);
  list.move("parallelize_grid {}b", b);
  list.move("parallelize_block {}t", b);
  for (const std::string& n : loops) {
    list.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", n, vector);
    list.move("deal_scope {0}c {1} as {0}t,{0}i", n, threads);
    list.move("parallelize_block {}t", n);
    if (fits) list.move("unroll_scope {}i", n);
    list.move("vectorize_scope {}v", n);
  }
  return list.finish();
}

}  // namespace lathe::search
