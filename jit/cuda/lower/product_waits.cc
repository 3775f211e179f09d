// See product_waits.h. What begins products is a batch: a statement of nothing else, behind a fence of sums and before
// a commit. A wait stands before a barrier after which factors are stored to, and before what touches sums or hands
// them over. Where factors lie in rings, products that read other places than those that are filled then go on, and
// more are added to the same sums meanwhile. A fence of shared memory stands before the first barrier after a store to
// factors.
#include "jit/cuda/lower/product_waits.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"

namespace lathe::jit {

namespace {

using Kind = DeviceStmt::Kind;
using Space = DevicePlace::Space;
using List = std::vector<DeviceStmt>;

struct State {
  std::set<int> sums;   // locals whose products are on their way, and those that these read
  bool stored = false;  // to factors, since the last fence
  ir::Expr awaited;     // the place of the ring that the latest of them read
  bool operator==(const State& o) const { return sums == o.sums && stored == o.stored; }
};

void join(State& to, const State& from) {
  to.sums.insert(from.sums.begin(), from.sums.end());
  to.stored = to.stored || from.stored;
}

DeviceStmt made(Kind kind) {
  DeviceStmt out;
  out.kind = kind;
  return out;
}

bool begins(const DeviceStmt& s) { return s.kind == Kind::warp && warp_op(s.warp).goes_on(); }

template <class F>
bool any(const List& list, const F& f) {
  return std::any_of(list.begin(), list.end(),
                     [&](const DeviceStmt& s) { return f(s) || any(s.body, f) || any(s.otherwise, f); });
}

class Placer {
 public:
  explicit Placer(DeviceProgram& p) : p_(p) {}
  void run() {
    if (!any(p_.body, begins)) return;
    State state;
    List out = walk(p_.body, state, false);
    await(state, out);
    p_.body = std::move(out);
  }

 private:
  static void await(State& state, List& out, int groups = 0) {
    if (state.sums.empty()) return;
    out.push_back(made(Kind::await_products));
    out.back().groups = groups;
    if (groups == 0) state.sums.clear();
  }

  // Whether all products of a batch read rings, and add to the sums that are on their way.
  bool goes_with(const DeviceStmt& batch, const State& state) const {
    if (!begins(batch)) {
      return std::all_of(batch.body.begin(), batch.body.end(),
                         [&](const DeviceStmt& inner) { return inner.kind == Kind::let || goes_with(inner, state); });
    }
    return state.sums == std::set<int>{batch.places[0].index} &&
           std::all_of(batch.places.begin() + 1, batch.places.end(), [&](const DevicePlace& at) {
             return at.space == Space::shared && p_.shared[static_cast<size_t>(at.index)].ring >= 0;
           });
  }

  static ir::Expr number_of(const ir::Expr& place) { return place->op == ir::Op::k_mod ? place->args[0] : place; }

  // Groups of products that read other places of a ring than those that are filled from there on, before the next
  // barrier.
  int groups_left(const List& list, size_t from, const State& state) const {
    if (!state.awaited) return 0;
    int out = kMostStages;
    for (size_t i = from; i < list.size() && list[i].kind != Kind::barrier; ++i) {
      const DeviceStmt& s = list[i];
      if (hands_over(s)) return 0;
      if (s.kind == Kind::box || s.kind == Kind::arrive) {
        const int64_t places = p_.rings[static_cast<size_t>(s.ring)].places;
        const ir::Expr apart = ir::simplify(number_of(s.integer) - number_of(state.awaited));
        if (!ir::is_const_int(apart)) return 0;
        out = std::min(out, static_cast<int>((places - apart->ival % places) % places));
      }
      for (const List* inner : {&s.body, &s.otherwise}) {
        const int of = inner->empty() ? out : groups_left(*inner, 0, state);
        out = std::min(out, of);
      }
    }
    return out;
  }

  // Only products, which are known when code is made.
  static bool is_batch(const DeviceStmt& s) {
    if (s.kind != Kind::loop) return begins(s);
    return s.unrolled > 0 && any(s.body, begins) &&
           std::all_of(s.body.begin(), s.body.end(),
                       [](const DeviceStmt& inner) { return inner.kind == Kind::let || is_batch(inner); });
  }

  static bool touches(const DeviceStmt& s, const State& state) {
    return std::any_of(s.places.begin(), s.places.end(), [&](const DevicePlace& at) {
      return at.space == Space::local && state.sums.count(at.index) != 0;
    });
  }
  // Places that are filled next.
  bool releases(const DeviceStmt& s) const {
    return s.kind == Kind::arrive && p_.rings[static_cast<size_t>(s.ring)].read >= 0;
  }
  bool stores(const DeviceStmt& s) const {
    return (s.kind == Kind::store || s.kind == Kind::copy || s.kind == Kind::box) &&
           s.places[0].space == Space::shared && p_.shared[static_cast<size_t>(s.places[0].index)].swizzle != 0;
  }
  // What a ring says is there has been handed over.
  bool hands_over(const DeviceStmt& s) const {
    return stores(s) && p_.shared[static_cast<size_t>(s.places[0].index)].ring < 0;
  }
  // Which place of several a factor has is found out before: the compiler makes products wait for branches.
  void name_places(DeviceStmt& batch, List& out) {
    std::set<std::string> own;
    std::map<std::string, std::string> known;
    const std::function<void(DeviceStmt&)> visit = [&](DeviceStmt& s) {
      if (!s.name.empty()) own.insert(s.name);
      for (DevicePlace& at : s.places) {
        at.offset = ir::rewrite(at.offset, [&](const ir::Expr& e) -> ir::Expr {
          bool outside = e->op == ir::Op::k_mod;
          ir::for_each_node(e, [&](const ir::ExprNode& n) { outside = outside && own.count(n.name) == 0; });
          if (!outside) return {};
          std::string& name = known[print(e)];
          if (name.empty()) {
            name = fmt::format("g{}", names_++);
            out.push_back(made(Kind::let));
            out.back().name = name;
            out.back().integer = e;
          }
          return ir::iter(name);
        });
      }
      for (DeviceStmt& inner : s.body) visit(inner);
    };
    visit(batch);
  }

  static void sums_of(const DeviceStmt& s, State& state) {
    for (const DevicePlace& at : s.places) {
      if (begins(s) && at.space == Space::local) state.sums.insert(at.index);
    }
    for (const DeviceStmt& inner : s.body) sums_of(inner, state);
  }

  // Whether factors may be stored to from a statement of the list on, before the next barrier. after: the same of what
  // follows the list.
  bool store_follows(const List& list, size_t from, bool after) const {
    for (size_t i = from; i < list.size(); ++i) {
      const DeviceStmt& s = list[i];
      if (s.kind == Kind::barrier) return false;
      if (stores(s) || store_follows(s.body, 0, false) || store_follows(s.otherwise, 0, false)) return true;
    }
    return after;
  }

  // What it leaves behind, and the list with what it needs.
  List walk(const List& list, State& state, bool after) {
    List out;
    for (size_t i = 0; i < list.size(); ++i) {
      const DeviceStmt& s = list[i];
      const bool later = store_follows(list, i + 1, after);
      if (s.kind == Kind::await_ring) state.awaited = s.integer;
      if (s.kind == Kind::roles) {
        out.push_back(s);
        List& reads = out.back().otherwise = walk(s.otherwise, state, false);
        await(state, reads);
        continue;
      }
      if (is_batch(s)) {
        if (!goes_with(s, state)) await(state, out);
        DeviceStmt batch = s;
        name_places(batch, out);
        out.push_back(made(Kind::fence_sums));
        out.push_back(std::move(batch));
        out.push_back(made(Kind::commit_products));
        sums_of(s, state);
        continue;
      }
      const bool waits = (s.kind == Kind::barrier && later) || touches(s, state);
      const int left = s.kind == Kind::barrier ? groups_left(list, i + 1, state) : 0;
      if (waits) await(state, out, left == kMostStages ? 0 : left);
      if (s.kind == Kind::barrier && std::exchange(state.stored, false)) out.push_back(made(Kind::fence_shared));
      state.stored = state.stored || hands_over(s);
      if (s.kind == Kind::loop && any(s.body, begins)) {
        State next = state, last;
        const bool again = store_follows(s.body, 0, later) || later;
        next.awaited = {};  // numbers of another turn
        do {                // as the loop may find it in any turn
          last = next;
          (void)walk(s.body, next, again);
          join(next, last);
        } while (!(next == last));
        DeviceStmt loop = s;
        last.awaited = {};
        const State before = last;
        loop.body = walk(s.body, last, again);
        out.push_back(std::move(loop));
        state = before;
        join(state, last);
        state.awaited = {};
        continue;
      }
      // A condition that is the same in all threads of a group.
      if (s.kind == Kind::when && any(s.body, begins)) {
        State other = state;
        out.push_back(s);
        out.back().body = walk(s.body, state, later);
        out.back().otherwise = walk(s.otherwise, other, later);
        join(state, other);
        state.awaited = {};
        continue;
      }
      // All threads wait before some of them may have to.
      const auto inside = [&](const auto& f) { return any(s.body, f) || any(s.otherwise, f); };
      const bool meets = inside([](const DeviceStmt& inner) { return inner.kind == Kind::barrier; });
      if (meets || inside([&](const DeviceStmt& inner) { return touches(inner, state); })) {
        await(state, out);
      } else if (inside([&](const DeviceStmt& inner) { return releases(inner); })) {
        const int goes_on = std::min(groups_left(s.body, 0, state), groups_left(s.otherwise, 0, state));
        await(state, out, goes_on == kMostStages ? 0 : goes_on);
      }
      if (meets && std::exchange(state.stored, false)) out.push_back(made(Kind::fence_shared));
      out.push_back(s);
      if (!inside([&](const DeviceStmt& inner) { return hands_over(inner); })) continue;
      state.stored = true;
      if (!meets) continue;
      State turn = state;
      out.back().body = walk(s.body, turn, true);
      out.back().otherwise = walk(s.otherwise, turn, true);
    }
    return out;
  }

  DeviceProgram& p_;
  int names_ = 0;  // of places, so far
};

}  // namespace

void place_product_waits(DeviceProgram& program) { Placer(program).run(); }

}  // namespace lathe::jit
