// See whole_tiles.h. A condition a < b, whose b is a minimum of minima, holds if it does for each of them. What is left
// of b - a is x + s, where s has names that the results define themselves and x none: so x has to be more than the
// least s takes away, for all of the results the same.
#include "jit/cuda/passes/whole_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "jit/cuda/passes/renaming.h"

namespace lathe::jit {

using ir::Expr;
using ir::Op;

namespace {

using Kind = DeviceStmt::Kind;
using List = std::vector<DeviceStmt>;

constexpr size_t kWorth = 4;  // conditions less

// What an integer is the least of, if minima stand where it grows with them.
std::vector<Expr> minima(const Expr& e) {
  std::vector<Expr> out;
  const auto each = [&](const Expr& of, auto f) {
    for (const Expr& a : minima(of)) out.push_back(f(a));
  };
  switch (e->op) {
    case Op::k_min:
      for (const Expr& a : e->args) each(a, [](const Expr& x) { return x; });
      return out;
    case Op::k_add:
      each(e->args[0], [&](const Expr& x) { return x + e->args[1]; });
      return out;
    case Op::k_sub:
      each(e->args[0], [&](const Expr& x) { return x - e->args[1]; });
      return out;
    default:
      return {e};
  }
}

// The results of one list.
class Results {
 public:
  Results(const DeviceProgram& p, const List& list) {
    define("thread", {0, p.readers() - 1});
    find(p.body, true);
    find(list, false);
    ask(list);
  }
  bool worth() const { return asked_ >= kWorth && !least_.empty(); }
  // What asks whether the tile is whole, and whether its lines begin at addresses that are aligned.
  DeviceStmt question() const {
    DeviceStmt out;
    const auto and_also = [&](const Expr& e) {
      out.integer = out.integer ? ir::make(Op::k_logical_and, {out.integer, e}) : e;
    };
    for (const auto& [text, of] : least_) and_also(ir::make(Op::k_lt, {Expr(of.second - 1), of.first}));
    out.kind = lines_.empty() ? Kind::when : Kind::aligned;
    for (const auto& [text, line] : lines_) out.places.push_back(line);
    if (!lines_.empty()) out.lanes = lanes_;
    for (const std::string& size : steps_)
      and_also(ir::make(Op::k_eq, {ir::mod(ir::symbol(size), Expr(int64_t{lanes_})), Expr(0)}));
    return out;
  }
  // Without what is asked for once.
  List of_whole(const List& list) const {
    List out;
    for (const DeviceStmt& s : list) {
      DeviceStmt own = s;
      if (own.kind == Kind::when || own.kind == Kind::aligned) own.integer = rest(own.integer);
      own.body = of_whole(s.body);
      if (own.kind == Kind::aligned && are_aligned(s)) own.places.clear();
      if ((own.kind == Kind::when || own.kind == Kind::aligned) && own.places.empty() && !own.integer) {
        std::move(own.body.begin(), own.body.end(), std::back_inserter(out));
        continue;
      }
      if (own.kind == Kind::aligned && own.places.empty()) {
        own.kind = Kind::when;
        own.lanes = 1;
      }
      own.otherwise = of_whole(s.otherwise);
      out.push_back(std::move(own));
    }
    return out;
  }

 private:
  using Facts = std::map<std::string, std::pair<Expr, int64_t>>;  // by text: at least so much

  void define(const std::string& name, ir::Interval range) {
    ranges_.set(name, range);
    own_.emplace_back(name, Expr(0));
    names_.insert(name);
  }
  // Names of a list; of the whole program those alone that depend on the thread.
  void find(const List& list, bool of_thread) {
    for (const DeviceStmt& s : list) {
      const bool own = names_.count(s.name) == 0 && (!of_thread || (s.kind == Kind::let && has_own(s.integer)));
      if (own && s.kind == Kind::let) define(s.name, ir::interval(s.integer, ranges_));
      if (own && s.kind == Kind::loop)
        define(s.name, {0, (s.unrolled > 0 ? s.unrolled : ir::interval(s.integer, ranges_).hi) - 1});
      find(s.body, of_thread);
      find(s.otherwise, of_thread);
    }
  }
  bool has_own(const Expr& e) const {
    bool out = false;
    ir::for_each_node(e, [&](const ir::ExprNode& n) { out = out || names_.count(n.name) != 0; });
    return out;
  }
  bool has_others(const Expr& e) const {
    bool out = false;
    ir::for_each_node(e, [&](const ir::ExprNode& n) {
      out = out || ((n.op == Op::k_iter || n.op == Op::k_symbol) && names_.count(n.name) == 0);
    });
    return out;
  }
  // Whether a < b follows from facts that are the same for all of the results.
  bool follows(const Expr& condition, Facts& facts) const {
    if (condition->op != Op::k_lt) return false;
    for (const Expr& most : minima(condition->args[1])) {
      const Expr more = ir::simplify(most - condition->args[0]);
      Expr x = ir::simplify(ir::substitute(more, own_));
      const Expr s = ir::simplify(more - x);
      if (has_others(s)) return false;
      int64_t least = ir::interval(s, ranges_).lo;
      if (least < -INT32_MAX) return false;
      if (ir::is_const_int(x)) {
        if (x->ival + least <= 0) return false;
        continue;
      }
      const bool added_to = x->op == Op::k_add || x->op == Op::k_sub;
      if (added_to && ir::is_const_int(x->args[1])) {
        least += x->op == Op::k_add ? x->args[1]->ival : -x->args[1]->ival;
        x = x->args[0];
      }
      const auto [at, added] = facts.try_emplace(print(x), x, 1 - least);
      at->second.second = std::max(at->second.second, 1 - least);
    }
    return true;
  }
  // Of a condition, what is not asked for once; null: nothing.
  Expr rest(const Expr& condition) const {
    if (!condition) return condition;
    if (condition->op == Op::k_logical_and) {
      const Expr a = rest(condition->args[0]), b = rest(condition->args[1]);
      return !a ? b : !b ? a : ir::make(Op::k_logical_and, {a, b});
    }
    Facts facts;
    return follows(condition, facts) ? Expr() : condition;
  }
  void ask(const Expr& condition) {
    if (!condition) return;
    if (condition->op == Op::k_logical_and) {
      for (const Expr& e : condition->args) ask(e);
      return;
    }
    Facts facts = least_;
    if (!follows(condition, facts)) return;
    least_ = std::move(facts);
    ++asked_;
  }
  // Of a parameter's element: the first one of the line, which is as much aligned if it and all sizes between them are.
  bool begins_line(const DevicePlace& at, DevicePlace* line, std::set<std::string>* steps) const {
    *line = at;
    line->offset = ir::simplify(ir::substitute(at.offset, own_));
    const Expr far = ir::simplify(at.offset - line->offset);
    ir::Ranges multiples;
    ir::for_each_node(far, [&](const ir::ExprNode& n) {
      if (n.op == Op::k_symbol && steps->insert(n.name).second) multiples.set(n.name, {0, INT64_MAX}, lanes_);
    });
    return at.space == DevicePlace::Space::param && ir::proves_divisible(far, lanes_, multiples);
  }
  bool are_aligned(const DeviceStmt& s) const {
    return s.lanes == lanes_ && std::all_of(s.places.begin(), s.places.end(), [&](const DevicePlace& at) {
             DevicePlace line;
             std::set<std::string> steps;
             return begins_line(at, &line, &steps);
           });
  }
  void ask_of_lines(const DeviceStmt& s) {
    if (lanes_ == 0) lanes_ = s.lanes;
    if (!are_aligned(s)) return;
    for (const DevicePlace& at : s.places) {
      DevicePlace line;
      std::set<std::string> steps;
      begins_line(at, &line, &steps);
      lines_.emplace(fmt::format("{} {}", at.index, print(line.offset)), line);
      steps_.insert(steps.begin(), steps.end());
    }
  }
  void ask(const List& list) {
    for (const DeviceStmt& s : list) {
      if (s.kind == Kind::when || s.kind == Kind::aligned) ask(s.integer);
      if (s.kind == Kind::aligned) ask_of_lines(s);
      ask(s.body);
      ask(s.otherwise);
    }
  }

  ir::Ranges ranges_;                              // of their own names
  std::vector<std::pair<std::string, Expr>> own_;  // each of them 0
  std::set<std::string> names_;
  Facts least_;
  size_t asked_ = 0;
  int lanes_ = 0;                             // of accesses of several at once
  std::map<std::string, DevicePlace> lines_;  // by text: where they begin
  std::set<std::string> steps_;               // sizes between them
};

class Asking {
 public:
  explicit Asking(DeviceProgram& p) : p_(p), value_(next_value(p.body)) {}

  void list(List& l) {
    for (DeviceStmt& s : l) {
      list(s.body);
      list(s.otherwise);
    }
    const auto waits = [](const DeviceStmt& s) { return s.kind == Kind::await_products; };
    const auto last = std::find_if(l.rbegin(), l.rend(), waits);
    if (last == l.rend()) return;
    auto first = last.base();
    while (first != l.end() && arrives(*first)) ++first;
    auto end = l.end();  // blocks of a cluster meet last of all
    while (end != first && std::prev(end)->kind == Kind::cluster_barrier) --end;
    List tail(first, end);
    Results results(p_, tail);
    if (tail.empty() || !results.worth()) return;
    DeviceStmt when = results.question();
    when.body = results.of_whole(tail);
    Renaming("_w", &value_).run(when.body);
    when.otherwise = std::move(tail);
    *first = std::move(when);
    l.erase(std::next(first), end);
  }

 private:
  static bool arrives(const DeviceStmt& s) {
    return s.kind == Kind::arrive || std::any_of(s.body.begin(), s.body.end(), arrives);
  }

  DeviceProgram& p_;
  int value_;
};

}  // namespace

void ask_for_whole_tiles(DeviceProgram& program) {
  if (program.roles.fillers > 0) Asking(program).list(program.body);
}

}  // namespace lathe::jit
