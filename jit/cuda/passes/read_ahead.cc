// See read_ahead.h.
#include "jit/cuda/passes/read_ahead.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "jit/cuda/passes/renaming.h"

namespace lathe::jit {

namespace {

using ir::Expr;
using Kind = DeviceStmt::Kind;
using Space = DevicePlace::Space;
using List = std::vector<DeviceStmt>;

constexpr int64_t kRegisters = 65536;    // of a multiprocessor
constexpr int64_t kOtherRegisters = 40;  // of a thread: addresses and counters
constexpr int64_t kMostRegisters = 232;  // which leave the compiler some

// Only such operations of warps, in loops that are unrolled.
template <class Is>
bool all_warp(const List& list, const Is& is) {
  return std::all_of(list.begin(), list.end(), [&](const DeviceStmt& s) {
    if (s.kind == Kind::warp) return is(warp_op(s.warp));
    return s.kind == Kind::loop && s.unrolled > 0 && all_warp(s.body, is);
  });
}
bool reads(const List& list) {
  return all_warp(list, [](const WarpOpRow& row) { return row.moves(); });
}
bool multiplies(const List& list) {
  return all_warp(list, [](const WarpOpRow& row) { return !row.moves() && !row.goes_on(); });
}

void locals_of(const List& list, std::set<int>& out) {
  for (const DeviceStmt& s : list) {
    for (const DevicePlace& at : s.places) {
      if (at.space == Space::local) out.insert(at.index);
    }
    locals_of(s.body, out);
    locals_of(s.otherwise, out);
  }
}

// Whether threads wait for each other in it, or for what arrives.
bool waits(const List& list) {
  return std::any_of(list.begin(), list.end(), [](const DeviceStmt& s) {
    switch (s.kind) {
      case Kind::barrier:
      case Kind::warp_barrier:
      case Kind::cluster_barrier:
      case Kind::await:
      case Kind::await_ring:
      case Kind::await_products:
      case Kind::shuffle:
      case Kind::warp:
        return true;
      default:
        return waits(s.body) || waits(s.otherwise);
    }
  });
}

// A loop of steps, taken apart. What comes before its reads is not what they read: no barrier is in between.
struct Step {
  List before, reads, products, after;
  std::string terms;  // the iterator of the unrolled loop
  int64_t count = 0;  // of its iterations
  std::set<int> squares;
};

std::optional<Step> step_of(const DeviceStmt& loop) {
  if (loop.kind != Kind::loop || loop.unrolled > 0) return std::nullopt;
  const auto is_terms = [](const DeviceStmt& s) { return s.kind == Kind::loop && s.unrolled > 0 && !s.body.empty(); };
  Step out;
  // The last loop, behind which nothing is done but to wait.
  auto at = loop.body.end();
  bool meets = false;
  while (at != loop.body.begin()) {
    const Kind kind = std::prev(at)->kind;
    if (kind != Kind::commit && kind != Kind::await && kind != Kind::barrier) break;
    meets = meets || kind == Kind::barrier;
    --at;
  }
  if (!meets || at == loop.body.begin() || !is_terms(*std::prev(at))) return std::nullopt;
  const DeviceStmt& terms = *std::prev(at);
  out.after.assign(at, loop.body.end());
  out.before.assign(loop.body.begin(), std::prev(at));
  out.terms = terms.name;
  out.count = terms.unrolled;
  if (out.count % 2 != 0 || !ir::is_const_int(terms.integer, out.count)) return std::nullopt;
  const auto split =
      std::find_if(terms.body.begin(), terms.body.end(), [](const DeviceStmt& s) { return !reads({s}); });
  out.reads.assign(terms.body.begin(), split);
  out.products.assign(split, terms.body.end());
  if (waits(out.before) || out.reads.empty() || out.products.empty() || !multiplies(out.products)) return std::nullopt;
  locals_of(out.reads, out.squares);
  std::set<int> touched;
  locals_of(out.before, touched);
  for (const int local : touched) {
    if (out.squares.count(local) != 0) return std::nullopt;
  }
  return out;
}

class Reader {
 public:
  explicit Reader(DeviceProgram& p) : p_(p) {}

  void visit(List& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      visit(list[i].body);
      visit(list[i].otherwise);
      const std::optional<Step> step = step_of(list[i]);
      if (!step || !has_room(*step) || !knows_names(*step, list[i].name)) continue;
      DeviceStmt first;
      first.kind = Kind::when;
      first.integer = ir::make(ir::Op::k_lt, {Expr(0), list[i].integer});
      rotate(*step, list[i], first.body);
      DeviceStmt last;  // what the reads after the last step saw may be stored to
      last.kind = Kind::barrier;
      const auto at = list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), std::move(first));
      list.insert(at + 2, std::move(last));
      i += 2;
    }
  }

 private:
  // Blocks on a multiprocessor, by registers.
  int64_t blocks(int64_t locals) const { return kRegisters / (p_.threads * (locals + kOtherRegisters)); }
  bool has_room(const Step& step) const {
    std::set<int> used;
    locals_of(step.products, used);
    int64_t now = 0, more = 0;
    for (const int local : used) now += p_.locals[static_cast<size_t>(local)].registers();
    for (const int local : step.squares) more += p_.locals[static_cast<size_t>(local)].registers();
    return now + more + kOtherRegisters <= kMostRegisters && blocks(now + more) == blocks(now);
  }

  // What reads depend on within a step must be said in integers, so that it can be said of another step.
  bool knows_names(const Step& step, const std::string& loop) {
    lets_.clear();
    std::set<std::string> unknown;
    for (const DeviceStmt& s : step.before) {
      if (s.kind == Kind::let) {
        lets_.emplace_back(s.name, s.integer);
      } else if (!s.name.empty()) {
        unknown.insert(s.name);
      }
    }
    bool known = !loop.empty();
    const auto look = [&](const Expr& e) {
      ir::for_each_node(inlined(e), [&](const ir::ExprNode& n) { known = known && unknown.count(n.name) == 0; });
    };
    each_place(step.reads, [&](const DevicePlace& at) {
      look(at.offset);
      known = known && stays_in_ring(inlined(at.offset), loop);
    });
    each_integer(step.reads, look);
    return known;
  }
  // The number of the step says a place of a ring, and nothing else: so there is one for the step after the last, too.
  static bool stays_in_ring(const Expr& e, const std::string& loop) {
    const Expr others = ir::rewrite(e, [](const Expr& n) -> Expr {
      return n->op == ir::Op::k_mod && ir::is_const_int(n->args[1]) ? Expr(0) : Expr();
    });
    return !ir::uses(others, loop);
  }

  template <class F>
  static void each_place(const List& list, const F& f) {
    for (const DeviceStmt& s : list) {
      for (const DevicePlace& at : s.places) f(at);
      each_place(s.body, f);
    }
  }

  template <class F>
  static void each_integer(const List& list, const F& f) {
    for (const DeviceStmt& s : list) {
      if (s.integer) f(s.integer);
      each_integer(s.body, f);
    }
  }

  // Names of the step replaced by what they stand for, the last ones first.
  Expr inlined(Expr e) const {
    for (auto let = lets_.rbegin(); let != lets_.rend(); ++let) e = ir::substitute(e, {*let});
    return e;
  }

  // The statements for one number of the unrolled loop, with names of their own, in the other set of registers or not.
  template <class Offset>
  List copy(List list, bool other, const Offset& offset) {
    replace(list, other, offset);
    Renaming(fmt::format("_{}", copies_++).c_str()).run(list);
    return list;
  }
  template <class Offset>
  void replace(List& list, bool other, const Offset& offset) {
    for (DeviceStmt& s : list) {
      if (s.integer) s.integer = ir::simplify(offset(s.integer));
      for (DevicePlace& at : s.places) {
        at.offset = ir::simplify(offset(at.offset));
        const auto second = at.space == Space::local ? second_.find(at.index) : second_.end();
        if (other && second != second_.end()) at.index = second->second;
      }
      replace(s.body, other, offset);
    }
  }

  void rotate(const Step& step, DeviceStmt& loop, List& first) {
    for (const int local : step.squares) {
      if (second_.count(local) != 0) continue;
      DeviceLocal other = p_.locals[static_cast<size_t>(local)];
      other.name += "_n";
      second_[local] = static_cast<int>(p_.locals.size());
      p_.locals.push_back(std::move(other));
    }
    const auto of_terms = [&](int64_t k) {
      return [&, k](const Expr& e) { return ir::substitute(e, {{step.terms, Expr(k)}}); };
    };
    const auto of_step = [&](const Expr& number) {
      return [&, number](const Expr& e) { return ir::substitute(inlined(of_terms(0)(e)), {{loop.name, number}}); };
    };
    first = copy(step.reads, false, of_step(Expr(0)));
    List lets;
    const List next = copy(step.reads, false, [&](const Expr& e) {
      return named_places(of_step(ir::iter(loop.name) + Expr(1))(e), loop.name, lets);
    });
    loop.body = std::move(lets);
    const auto add = [&](const List& list) { loop.body.insert(loop.body.end(), list.begin(), list.end()); };
    add(step.before);
    for (int64_t k = 0; k < step.count; ++k) {
      const bool last = k + 1 == step.count;
      if (last) add(step.after);
      add(last ? next : copy(step.reads, (k + 1) % 2 != 0, of_terms(k + 1)));
      add(copy(step.products, k % 2 != 0, of_terms(k)));
    }
  }

  // Places of a ring are found out before the step, where registers are free.
  Expr named_places(const Expr& e, const std::string& loop, List& lets) const {
    return ir::rewrite(ir::simplify(e), [&](const Expr& n) -> Expr {
      bool of_loop = n->op == ir::Op::k_mod && ir::uses(n, loop);
      ir::for_each_node(n, [&](const ir::ExprNode& in) { of_loop = of_loop && (in.name.empty() || in.name == loop); });
      if (!of_loop) return {};
      const auto known = std::find_if(lets.begin(), lets.end(),
                                      [&](const DeviceStmt& s) { return ir::print(s.integer) == ir::print(n); });
      if (known != lets.end()) return ir::iter(known->name);
      DeviceStmt let;
      let.name = fmt::format("{}_{}", loop, copies_ + lets.size());
      let.integer = n;
      lets.push_back(let);
      return ir::iter(let.name);
    });
  }

  DeviceProgram& p_;
  std::map<int, int> second_;  // of a local: the one that the next squares go to
  std::vector<std::pair<std::string, Expr>> lets_;
  int copies_ = 0;
};

}  // namespace

void read_ahead(DeviceProgram& program) { Reader(program).visit(program.body); }

}  // namespace lathe::jit
