// See device_waits.h.
#include "jit/cuda/device_waits.h"

#include <algorithm>
#include <map>
#include <vector>

#include "ir/core/text_form.h"
#include "jit/cuda/thread_values.h"

namespace lathe::jit {

using ir::Expr;
using ir::Interval;
using ir::Status;

namespace {

constexpr int kNobody = -1, kSeveral = -2;  // else the number of a thread
constexpr int64_t kMostTurns = 256;         // of a loop that are gone through one by one
constexpr int64_t kLeastTurns = 3;
constexpr int64_t kMostStages = 8;  // of what goes round

// Who has touched an element since the last barrier.
struct Touch {
  int writer = kNobody, reader = kNobody;
};
using State = std::vector<Touch>;

bool other(int who, int thread) { return who != kNobody && who != thread; }
int together(int a, int b) { return a == kNobody || a == b ? b : b == kNobody ? a : kSeveral; }

class Checker {
  using List = std::vector<DeviceStmt>;
  using Mask = std::vector<char>;  // of threads that may be here

 public:
  explicit Checker(const DeviceProgram& p) : p_(p) {}

  Status run() {
    if (p_.shared.empty() || p_.threads <= 1) return {};
    size_t count = 0;
    for (const DeviceShared& s : p_.shared) {
      first_.push_back(count);
      count += static_cast<size_t>(s.count);
    }
    look(p_.body);
    ThreadValues thread(static_cast<size_t>(p_.threads));
    for (size_t t = 0; t < thread.size(); ++t) thread[t] = {static_cast<int64_t>(t), static_cast<int64_t>(t)};
    names_.set("thread", std::move(thread));
    names_.set("block", {{0, INT64_MAX}});
    for (const std::string& e : p_.sizes) names_.set(e, {{0, INT64_MAX}});
    State state(count);
    return body(p_.body, Mask(static_cast<size_t>(p_.threads), 1), state);
  }

 private:
  struct Found {
    bool touches = false, waits = false;  // shared memory; at a barrier
  };

  Found look(const List& list) {
    Found all;
    for (const DeviceStmt& s : list) {
      const Found a = look(s.body), b = look(s.otherwise);
      Found here{a.touches || b.touches, a.waits || b.waits || s.kind == DeviceStmt::Kind::barrier};
      here.touches |= std::any_of(s.places.begin(), s.places.end(),
                                  [](const DevicePlace& at) { return at.space == DevicePlace::Space::shared; });
      found_[&s] = here;
      all = {all.touches || here.touches, all.waits || here.waits};
    }
    return all;
  }

  static const Interval& in(const ThreadValues& values, size_t thread) {
    return values[values.size() == 1 ? 0 : thread];
  }

  Status body(const List& list, const Mask& mask, State& state) {
    for (const DeviceStmt& s : list) LATHE_RETURN_IF_ERROR(statement(s, mask, state));
    return {};
  }

  Status statement(const DeviceStmt& s, const Mask& mask, State& state) {
    using Kind = DeviceStmt::Kind;
    const Found& found = found_.at(&s);
    switch (s.kind) {
      case Kind::let:
        names_.set(s.name, names_.of(s.integer));
        return {};
      case Kind::take:
        names_.set(s.name, {{names_.of(s.integer)[0].lo, names_.of(s.step)[0].hi}});
        return {};
      case Kind::when:
      case Kind::aligned:
        return found.touches || found.waits ? branches(s, mask, state) : Status();
      case Kind::loop:
        return found.touches || found.waits ? loop(s, mask, state) : Status();
      case Kind::barrier:
        std::fill(state.begin(), state.end(), Touch());
        return {};
      case Kind::load:
      case Kind::store:
        return found.touches ? access(s, mask, state) : Status();
      default:
        return {};
    }
  }

  // What all threads decide alike is one of the two; else some may be in the one and some in the other.
  Status branches(const DeviceStmt& s, const Mask& mask, State& state) {
    const ThreadValues condition = s.integer ? names_.of(s.integer) : ThreadValues{{1, 1}};
    const bool alike = s.kind == DeviceStmt::Kind::when && condition.size() == 1;
    Mask yes = mask, no = mask;
    for (size_t t = 0; t < mask.size(); ++t) {
      yes[t] &= in(condition, t).hi != 0;
      no[t] &= s.kind == DeviceStmt::Kind::aligned || in(condition, t).lo == 0;
    }
    if (!alike) {
      LATHE_RETURN_IF_ERROR(body(s.body, yes, state));
      return body(s.otherwise, no, state);
    }
    State before = state;
    const bool may = condition[0].hi != 0, must = condition[0].lo != 0;
    if (may) LATHE_RETURN_IF_ERROR(body(s.body, yes, state));
    if (must) return {};
    LATHE_RETURN_IF_ERROR(body(s.otherwise, no, before));
    if (may) {
      join(state, before);
    } else {
      state = std::move(before);
    }
    return {};
  }

  static void join(State& to, const State& from) {
    for (size_t i = 0; i < to.size(); ++i)
      to[i] = {together(to[i].writer, from[i].writer), together(to[i].reader, from[i].reader)};
  }

  // Turns after which all that goes round in it has come round twice.
  static int64_t turns_of(const List& list) {
    int64_t most = 1;
    const auto look = [&](const Expr& e) {
      if (!e) return;
      ir::for_each_node(e, [&](const ir::ExprNode& n) {
        if (n.op == ir::Op::k_mod && ir::is_const_int(n.args[1]) && n.args[1]->ival <= kMostStages)
          most = std::max(most, n.args[1]->ival);
      });
    };
    for (const DeviceStmt& s : list) {
      look(s.integer);
      for (const DevicePlace& at : s.places) look(at.offset);
      for (const List* inner : {&s.body, &s.otherwise}) most = std::max(most, turns_of(*inner) / 2);
    }
    return 2 * most + 1;
  }

  Status loop(const DeviceStmt& s, const Mask& mask, State& state) {
    const ThreadValues extent = names_.of(s.integer);
    int64_t least = INT64_MAX, most = 0;
    for (const Interval& i : extent) {
      least = std::min(least, std::max<int64_t>(i.lo, 0));
      most = std::max(most, i.hi);
    }
    const auto turn = [&](const Interval& number, State& to) {
      names_.set(s.name, {number});
      Mask inside = mask;
      for (size_t t = 0; t < mask.size(); ++t) inside[t] &= number.lo < in(extent, t).hi;
      return body(s.body, inside, to);
    };
    if (!found_.at(&s).waits) {
      if (most > kMostTurns) return turn({0, most - 1}, state);
      for (int64_t i = 0; i < most; ++i) LATHE_RETURN_IF_ERROR(turn({i, i}, state));
      return {};
    }
    // All threads go round as often, and may leave after each turn.
    const int64_t turns = std::min(most, std::max(turns_of(s.body), kLeastTurns));
    State left(least > 0 ? State(state.size()) : state);
    for (int64_t i = 0; i < turns; ++i) {
      LATHE_RETURN_IF_ERROR(turn({i, i}, state));
      if (i + 1 >= std::min(least, turns)) join(left, state);
    }
    state = std::move(left);
    return {};
  }

  Status access(const DeviceStmt& s, const Mask& mask, State& state) {
    const DevicePlace& at = s.places[0];
    const auto shared = static_cast<size_t>(at.index);
    const ThreadValues offset = names_.of(at.offset), step = s.lanes > 1 ? names_.of(s.step) : ThreadValues{{1, 1}};
    for (size_t t = 0; t < mask.size(); ++t) {
      if (mask[t] == 0) continue;
      const Interval &first = in(offset, t), &by = in(step, t);
      const bool known = first.lo == first.hi && by.lo == by.hi;
      const int64_t last = p_.shared[shared].count - 1;
      for (int l = 0; l < (known ? s.lanes : 1); ++l) {
        const Interval here = known ? Interval{first.lo + l * by.lo, first.lo + l * by.lo} : spread(first, by, s.lanes);
        for (int64_t i = std::max<int64_t>(here.lo, 0); i <= std::min(here.hi, last); ++i) {
          Touch& touch = state[first_[shared] + static_cast<size_t>(i)];
          const int thread = static_cast<int>(t);
          const bool stores = s.kind == DeviceStmt::Kind::store;
          const int rival = other(touch.writer, thread)             ? touch.writer
                            : stores && other(touch.reader, thread) ? touch.reader
                                                                    : kNobody;
          if (rival != kNobody) return conflict(p_.shared[shared].name, i, rival, thread);
          int& mine = stores ? touch.writer : touch.reader;
          mine = together(mine, thread);
        }
      }
    }
    return {};
  }

  // All that lanes may touch whose places are not known for certain.
  static Interval spread(const Interval& first, const Interval& step, int lanes) {
    const bool forwards = step.lo >= 0 && step.hi<kMostTurns, bounded = first.lo> INT64_MIN && first.hi < INT64_MAX;
    if (lanes == 1) return first;
    if (!forwards || !bounded) return {};
    return {first.lo, first.hi + (lanes - 1) * step.hi};
  }

  static Status conflict(const std::string& name, int64_t element, int a, int b) {
    const std::string who =
        a == kSeveral ? fmt::format("thread {} and others", b) : fmt::format("threads {} and {}", a, b);
    return ir::invalid("wait: {} may touch {}[{}], one of them stores it, and no barrier is between them", who, name,
                       element);
  }

  const DeviceProgram& p_;
  ThreadNames names_;
  std::vector<size_t> first_;  // element of each shared memory in a state
  std::map<const DeviceStmt*, Found> found_;
};

}  // namespace

Status check_waits(const DeviceProgram& program) { return Checker(program).run(); }

}  // namespace lathe::jit
