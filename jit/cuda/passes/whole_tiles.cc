// See whole_tiles.h.
#include "jit/cuda/passes/whole_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "jit/cuda/differing_names.h"
#include "jit/cuda/passes/renaming.h"
#include "jit/cuda/passes/whole_question.h"

namespace lathe::jit {

namespace {

using Kind = DeviceStmt::Kind;
using List = std::vector<DeviceStmt>;

constexpr size_t kWorth = 4;  // conditions less

bool has(const List& list, Kind kind) {
  return std::any_of(list.begin(), list.end(), [&](const DeviceStmt& s) { return s.kind == kind; });
}

// Of a number of iterations: what division leaves.
bool is_rest(const ir::Expr& e) {
  bool out = false;
  ir::for_each_node(e, [&](const ir::ExprNode& n) { out = out || n.op == ir::Op::k_mod; });
  return out;
}

bool multiplies_in_groups(const List& list) {
  return std::any_of(list.begin(), list.end(), [](const DeviceStmt& s) {
    return s.kind == Kind::await_products || multiplies_in_groups(s.body) || multiplies_in_groups(s.otherwise);
  });
}

// Whether a loop of that name stays unrolled: registers are chosen by it, or accesses of parameters are on their way
// together.
bool stays_unrolled(const List& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const DeviceStmt& s) {
    const bool here = std::any_of(s.places.begin(), s.places.end(), [&](const DevicePlace& at) {
      if (at.space == DevicePlace::Space::param) return true;
      return at.space == DevicePlace::Space::local && ir::uses(at.offset, name);
    });
    return here || stays_unrolled(s.body, name) || stays_unrolled(s.otherwise, name);
  });
}

// Loops that need not be unrolled are not: two long loops beside each other cost the compiler registers, and time.
void roll_up(List& list) {
  for (DeviceStmt& s : list) {
    if (s.kind == Kind::loop && s.unrolled > 0 && !stays_unrolled(s.body, s.name)) s.unrolled = 0;
    roll_up(s.body);
    roll_up(s.otherwise);
  }
}

class Asking {
 public:
  explicit Asking(DeviceProgram& p) : p_(p), value_(next_value(p.body)) {
    differ_.add("thread", DifferingNames::Among::warp);
    find_differing(p.body);
  }

  void results(List& l) {
    for (DeviceStmt& s : l) {
      results(s.body);
      results(s.otherwise);
    }
    const auto waits = [](const DeviceStmt& s) { return s.kind == Kind::await_products; };
    const auto last = std::find_if(l.rbegin(), l.rend(), waits);
    if (last == l.rend()) return;
    auto first = last.base();
    while (first != l.end() && arrives(*first)) ++first;
    auto end = l.end();  // blocks of a cluster meet last of all
    while (end != first && std::prev(end)->kind == Kind::cluster_barrier) --end;
    List tail(first, end);
    const WholeQuestion question(p_, tail);
    if (tail.empty() || question.asked() < kWorth || question.nothing()) return;
    DeviceStmt when = question.question();
    when.body = question.of_whole(tail);
    Renaming("_w", &value_).run(when.body);
    when.otherwise = std::move(tail);
    *first = std::move(when);
    l.erase(std::next(first), end);
  }

  void loops(List& l) {
    for (DeviceStmt& s : l) {
      // What is left behind whole steps is no step.
      const bool steps = s.kind == Kind::loop && s.unrolled == 0 && !is_rest(s.integer) && has(s.body, Kind::barrier) &&
                         !multiplies_in_groups(s.body);
      if (steps) {
        loop(s);
        continue;
      }
      loops(s.body);
      loops(s.otherwise);
    }
  }

 private:
  void loop(DeviceStmt& s) {
    const WholeQuestion question(p_, s.body, &s);
    if (question.asked() < kWorth || question.nothing()) return;
    DeviceStmt when = question.question();
    if (differ_.of(when) != DifferingNames::Among::none) return;  // threads would not go the same way
    DeviceStmt whole = s;
    whole.body = question.of_whole(s.body);
    when.body = {std::move(whole)};
    const std::string suffix = loops_++ == 0 ? "_w" : fmt::format("_w{}", loops_);
    Renaming(suffix.c_str(), &value_).run(when.body);
    roll_up(s.body);
    when.otherwise = {std::move(s)};
    s = std::move(when);
  }

  static bool arrives(const DeviceStmt& s) {
    return s.kind == Kind::arrive || std::any_of(s.body.begin(), s.body.end(), arrives);
  }

  void find_differing(const List& list) {
    for (const DeviceStmt& s : list) {
      if (s.kind == Kind::let || s.kind == Kind::loop) differ_.add(s.name, differ_.of(s.integer));
      if (s.kind == Kind::take) differ_.add(s.name, differ_.of(s.places[0].offset));
      if (s.kind == Kind::count) differ_.add(s.name, DifferingNames::Among::warp);
      find_differing(s.body);
      find_differing(s.otherwise);
    }
  }

  DeviceProgram& p_;
  int value_;
  int loops_ = 0;  // that are there twice: of two in branches of one statement, names may be the same
  DifferingNames differ_;
};

}  // namespace

void ask_for_whole_tiles(DeviceProgram& program) {
  if (program.roles.fillers > 0) Asking(program).results(program.body);
}

void ask_for_whole_steps(DeviceProgram& program) {
  if (program.roles.fillers == 0 && program.rings.empty()) Asking(program).loops(program.body);
}

}  // namespace lathe::jit
