// See whole_question.h.
#include "jit/cuda/passes/whole_question.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/core/text_form.h"
#include "jit/cuda/passes/renaming.h"

namespace lathe::jit {

using ir::Expr;
using ir::Op;
using Kind = DeviceStmt::Kind;

namespace {

constexpr int64_t kAnything = int64_t{1} << 40;  // an integer that is read from memory, or counted

// size % n == 0
bool is_multiple(const Expr& e) {
  return e->op == Op::k_eq && e->args[0]->op == Op::k_mod && e->args[0]->args[0]->op == Op::k_symbol &&
         ir::is_const_int(e->args[0]->args[1]) && ir::is_const_int(e->args[1], 0);
}

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

// Whether a size is in it other than in a minimum, which only says which of some lines it is.
bool uses_itself(const Expr& e, const std::string& size) {
  if (e->op == Op::k_min) return false;
  return e->args.empty()
             ? ir::uses(e, size)
             : std::any_of(e->args.begin(), e->args.end(), [&](const Expr& a) { return uses_itself(a, size); });
}

// Whether accesses of several elements at once lie multiples of a size away.
bool lies_by(const std::vector<DeviceStmt>& list, const std::string& size) {
  return std::any_of(list.begin(), list.end(), [&](const DeviceStmt& s) {
    const bool here = s.lanes > 1 && std::any_of(s.places.begin(), s.places.end(), [&](const DevicePlace& at) {
                        return at.space == DevicePlace::Space::param && uses_itself(at.offset, size);
                      });
    return here || lies_by(s.body, size) || lies_by(s.otherwise, size);
  });
}

}  // namespace

WholeQuestion::WholeQuestion(const DeviceProgram& program, const List& list, const DeviceStmt* loop) : loop_(loop) {
  define("thread", {0, program.readers() - 1});
  if (loop != nullptr) known_.set(loop->name, {0, INT64_MAX});
  find_taken(program.body);
  find(program.body, true);
  find(list, false);
  ask(list);
}

DeviceStmt WholeQuestion::question() const {
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
  for (const auto& [text, multiple] : multiples_) and_also(multiple);
  return out;
}

std::vector<DeviceStmt> WholeQuestion::of_whole(const List& list) const {
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
      own.kind = Kind::when;  // whose branches have names of their own
      own.lanes = 1;
      Renaming("n").run(own.body);
    }
    own.otherwise = of_whole(s.otherwise);
    out.push_back(std::move(own));
  }
  return out;
}

void WholeQuestion::define(const std::string& name, ir::Interval range) {
  ranges_.set(name, range);
  own_.emplace_back(name, Expr(0));
  names_.insert(name);
}

void WholeQuestion::find_taken(const List& list) {
  for (const DeviceStmt& s : list) {
    if (s.kind == Kind::take) known_.set(s.name, {ir::interval(s.integer, known_).lo, ir::interval(s.step, known_).hi});
    find_taken(s.body);
    find_taken(s.otherwise);
  }
}

// Names of a list; of the whole program those alone that depend on the thread.
void WholeQuestion::find(const List& list, bool of_thread) {
  for (const DeviceStmt& s : list) {
    const bool own = names_.count(s.name) == 0 && (!of_thread || (s.kind == Kind::let && has_own(s.integer)));
    if (own && s.kind == Kind::let) define(s.name, ir::interval(s.integer, ranges_));
    if (own && s.kind == Kind::loop)
      define(s.name, {0, std::max<int64_t>(s.unrolled > 0 ? s.unrolled : ir::interval(s.integer, ranges_).hi, 1) - 1});
    const bool anything = !s.name.empty() && s.kind != Kind::let && s.kind != Kind::loop;
    if (anything && !of_thread && names_.count(s.name) == 0) define(s.name, {-kAnything, kAnything});
    find(s.body, of_thread);
    find(s.otherwise, of_thread);
  }
}

bool WholeQuestion::has_own(const Expr& e) const {
  bool out = false;
  ir::for_each_node(e, [&](const ir::ExprNode& n) { out = out || names_.count(n.name) != 0; });
  return out;
}

bool WholeQuestion::has_others(const Expr& e) const {
  bool out = false;
  ir::for_each_node(e, [&](const ir::ExprNode& n) {
    out = out || ((n.op == Op::k_iter || n.op == Op::k_symbol) && names_.count(n.name) == 0);
  });
  return out;
}

// Of the loop's iterations, where it is least: the first or the last. Null: it does not say which.
Expr WholeQuestion::least_of_loop(const Expr& e) const {
  if (loop_ == nullptr || !ir::uses(e, loop_->name)) return e;
  const Expr next = ir::substitute(e, {{loop_->name, ir::iter(loop_->name) + Expr(1)}});
  const Expr more = ir::simplify(next - e);
  if (!ir::is_const_int(more)) return {};
  return ir::simplify(ir::substitute(e, {{loop_->name, more->ival < 0 ? loop_->integer - Expr(1) : Expr(0)}}));
}

// Whether a < b follows from facts that are the same for all statements of the list.
bool WholeQuestion::follows(const Expr& condition, Facts& facts) const {
  if (condition->op != Op::k_lt) return false;
  for (const Expr& most : minima(condition->args[1])) {
    const Expr more = ir::simplify(most - condition->args[0]);
    Expr x = ir::simplify(ir::substitute(more, own_));
    const Expr s = ir::simplify(more - x);
    if (has_others(s)) return false;
    int64_t least = ir::interval(s, ranges_).lo;
    if (ir::interval(x, known_).hi <= -std::max<int64_t>(least, -INT32_MAX)) return false;  // some never are inside
    x = least_of_loop(x);
    if (least < -INT32_MAX || !x) return false;
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
Expr WholeQuestion::rest(const Expr& condition) const {
  if (!condition) return condition;
  if (condition->op == Op::k_logical_and) {
    const Expr a = rest(condition->args[0]), b = rest(condition->args[1]);
    return !a ? b : !b ? a : ir::make(Op::k_logical_and, {a, b});
  }
  if (multiples_.count(print(condition)) != 0) return {};
  Facts facts;
  return follows(condition, facts) ? Expr() : condition;
}

void WholeQuestion::ask(const Expr& condition) {
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
bool WholeQuestion::begins_line(const DevicePlace& at, DevicePlace* line, std::set<std::string>* steps) const {
  *line = at;
  line->offset = ir::substitute(at.offset, own_);
  if (loop_ != nullptr) line->offset = ir::substitute(line->offset, {{loop_->name, Expr(0)}});
  line->offset = ir::simplify(line->offset);
  const Expr far = ir::simplify(at.offset - line->offset);
  ir::Ranges multiples;
  ir::for_each_node(far, [&](const ir::ExprNode& n) {
    if (n.op == Op::k_symbol && uses_itself(far, n.name) && steps->insert(n.name).second)
      multiples.set(n.name, {0, INT64_MAX}, lanes_);
  });
  return at.space == DevicePlace::Space::param && ir::proves_divisible(far, lanes_, multiples);
}

bool WholeQuestion::are_aligned(const DeviceStmt& s) const {
  return s.lanes == lanes_ && std::all_of(s.places.begin(), s.places.end(), [&](const DevicePlace& at) {
           DevicePlace line;
           std::set<std::string> steps;
           return begins_line(at, &line, &steps);
         });
}

void WholeQuestion::ask_of_lines(const DeviceStmt& s) {
  if (lanes_ == 0) lanes_ = s.lanes;
  if (!are_aligned(s)) return;
  if (s.integer) ask_of_multiples(s.integer, s.body);
  for (const DevicePlace& at : s.places) {
    DevicePlace line;
    std::set<std::string> steps;
    begins_line(at, &line, &steps);
    lines_.emplace(fmt::format("{} {}", at.index, print(line.offset)), line);
    steps_.insert(steps.begin(), steps.end());
  }
}

// What lies beyond these lines is aligned because of the sizes that are asked for together with them.
void WholeQuestion::ask_of_multiples(const Expr& condition, const List& body) {
  if (condition->op == Op::k_logical_and) {
    for (const Expr& e : condition->args) ask_of_multiples(e, body);
  } else if (is_multiple(condition) && lies_by(body, condition->args[0]->args[0]->name)) {
    multiples_.emplace(print(condition), condition);
  }
}

void WholeQuestion::ask(const List& list) {
  for (const DeviceStmt& s : list) {
    if (s.kind == Kind::when || s.kind == Kind::aligned) ask(s.integer);
    if (s.kind == Kind::aligned) ask_of_lines(s);
    ask(s.body);
    ask(s.otherwise);
  }
}

}  // namespace lathe::jit
