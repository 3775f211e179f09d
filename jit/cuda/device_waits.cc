// See device_waits.h.
#include "jit/cuda/device_waits.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ir/core/text_form.h"
#include "jit/cuda/thread_values.h"

namespace lathe::jit {

using ir::Expr;
using ir::Interval;
using ir::Status;

namespace {

constexpr int kNobody = -1, kSeveral = -2;  // else the number of a thread
// Or several of a warp, or some of it, all of which have met since.
constexpr int kOfFirstWarp = -3;
int several_of_warp(int warp) { return kOfFirstWarp - 2 * warp; }
int of_warp(int warp) { return several_of_warp(warp) - 1; }
int warp_of(int who) { return who >= 0 ? who / kWarpThreads : (kOfFirstWarp - who) / 2; }
bool is_of_warp(int who) { return who >= 0 || who <= kOfFirstWarp; }
constexpr int64_t kMostTurns = 256;  // of a loop that are gone through one by one
constexpr int64_t kLeastTurns = 3;
constexpr int64_t kLine = 64;  // elements that products read or not

// Who has touched an element since the last barrier.
struct Touch {
  int writer = kNobody, reader = kNobody;
};
// Copies that a thread has on their way, and to which element.
using Group = std::vector<std::pair<size_t, int>>;
struct State {
  explicit State(size_t count) : touched(count), arriving(count, 0) {}
  std::vector<Touch> touched;
  std::vector<char> arriving;
  // Lines that groups of warps may read still: since the last commit, and in groups, the oldest first.
  std::set<size_t> reads;
  std::deque<std::set<size_t>> read_groups;
  bool is_read(size_t element) const {
    const auto line = element / static_cast<size_t>(kLine);
    return reads.count(line) != 0 ||
           std::any_of(read_groups.begin(), read_groups.end(), [&](const auto& g) { return g.count(line) != 0; });
  }
  Group open;                // since the last commit
  std::deque<Group> groups;  // the oldest first
};

// Several are not known to be the same ones.
bool other(int who, int thread) {
  if (who <= kOfFirstWarp && thread >= 0) return who != of_warp(warp_of(thread));
  return who != kNobody && (who != thread || who == kSeveral);
}
// Of a warp that has met: a thread that came since is the one to tell from the others.
int together(int a, int b) {
  if (a == kNobody || a == b) return b;
  if (b == kNobody) return a;
  if (!is_of_warp(a) || !is_of_warp(b) || warp_of(a) != warp_of(b)) return kSeveral;
  if (a == of_warp(warp_of(a))) return b;
  return b == of_warp(warp_of(a)) ? a : several_of_warp(warp_of(a));
}

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
      count += static_cast<size_t>((s.count + kLine - 1) / kLine * kLine);
    }
    look(p_.body);
    ThreadValues thread(static_cast<size_t>(p_.threads));
    for (size_t t = 0; t < thread.size(); ++t) thread[t] = {static_cast<int64_t>(t), static_cast<int64_t>(t)};
    names_.set("thread", std::move(thread));
    names_.set("block", {{0, INT64_MAX}});
    names_.set("blocks", {{1, INT64_MAX}});
    for (const std::string& e : p_.sizes) names_.set(e, {{0, INT64_MAX}});
    State state(count);
    LATHE_RETURN_IF_ERROR(body(p_.body, Mask(static_cast<size_t>(p_.threads), 1), state));
    const auto late = std::find(state.arriving.begin(), state.arriving.end(), 1);
    if (late == state.arriving.end()) return {};
    return ir::invalid("async: the copy to {} is on its way at the end",
                       name_of(static_cast<size_t>(late - state.arriving.begin())));
  }

 private:
  struct Found {
    bool touches = false, waits = false;  // shared memory; at a barrier
  };

  Found look(const List& list) {
    Found all;
    for (const DeviceStmt& s : list) {
      const Found a = look(s.body), b = look(s.otherwise);
      const bool counts = s.kind == DeviceStmt::Kind::commit || s.kind == DeviceStmt::Kind::await ||
                          s.kind == DeviceStmt::Kind::commit_products || s.kind == DeviceStmt::Kind::await_products;
      const bool waits = s.kind == DeviceStmt::Kind::barrier || s.kind == DeviceStmt::Kind::warp_barrier;
      Found here{a.touches || b.touches || counts, a.waits || b.waits || waits};
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
      case Kind::count:  // it grows
        names_.set(s.name, {{0, INT64_MAX}});
        return {};
      case Kind::take:
        names_.set(s.name, {{names_.of(s.integer)[0].lo, names_.of(s.step)[0].hi}});
        return {};
      case Kind::when:
      case Kind::aligned:
        return found.touches || found.waits ? branches(s, mask, state) : Status();
      case Kind::roles: {
        Mask fill = mask, read = mask;
        for (size_t t = 0; t < mask.size(); ++t) (t < static_cast<size_t>(p_.readers()) ? fill : read)[t] = 0;
        LATHE_RETURN_IF_ERROR(body(s.body, fill, state));
        return body(s.otherwise, read, state);
      }
      case Kind::loop:
        return found.touches || found.waits ? loop(s, mask, state) : Status();
      case Kind::barrier:
        std::fill(state.touched.begin(), state.touched.end(), Touch());
        return {};
      case Kind::warp_barrier:
        for (Touch& t : state.touched) {
          for (int* who : {&t.writer, &t.reader})
            if (is_of_warp(*who) && mask[static_cast<size_t>(warp_of(*who) * kWarpThreads)] != 0)
              *who = of_warp(warp_of(*who));
        }
        return {};
      case Kind::commit:
        state.groups.push_back(std::exchange(state.open, {}));
        return {};
      case Kind::await:
        for (; state.groups.size() > static_cast<size_t>(s.groups); state.groups.pop_front())
          LATHE_RETURN_IF_ERROR(arrive(state.groups.front(), state));
        return {};
      case Kind::copy:
      case Kind::load:
      case Kind::store:
        return found.touches && !in_ring(s.places[0]) ? access(s, mask, state) : Status();
      case Kind::warp:
        if (warp_op(s.warp).goes_on()) return group(s, mask, state);
        return found.touches ? warp(s, mask, state) : Status();
      case Kind::commit_products:
        state.read_groups.push_back(std::exchange(state.reads, {}));
        return {};
      case Kind::await_products:
        for (; state.read_groups.size() > static_cast<size_t>(s.groups); state.read_groups.pop_front())
          LATHE_RETURN_IF_ERROR(read_until_here(std::exchange(state.read_groups.front(), {}), state));
        return {};
      default:
        return {};
    }
  }

  // What all threads decide alike is one of the two; else some may be in the one and some in the other.
  Status branches(const DeviceStmt& s, const Mask& mask, State& state) {
    const ThreadValues condition = s.integer ? names_.of(s.integer) : ThreadValues{{1, 1}};
    bool alike = condition.size() == 1;
    for (const DevicePlace& at : s.places) alike &= names_.of(at.offset).size() == 1;
    Mask yes = mask, no = mask;
    for (size_t t = 0; t < mask.size(); ++t) {
      yes[t] &= in(condition, t).hi != 0;
      no[t] &= s.kind == DeviceStmt::Kind::aligned || in(condition, t).lo == 0;
    }
    if (!alike && found_.at(&s).waits) {  // warps meet in it, or leave it out
      if (!s.otherwise.empty()) return ir::invalid("wait: warps do two different things and meet there");
      const State before = state;
      LATHE_RETURN_IF_ERROR(body(s.body, yes, state));
      join(state, before);
      return {};
    }
    if (!alike) {
      const Group before = state.open, outer = alternative_;
      LATHE_RETURN_IF_ERROR(body(s.body, yes, state));
      std::set_difference(state.open.begin(), state.open.end(), before.begin(), before.end(),
                          std::back_inserter(alternative_));
      std::sort(alternative_.begin(), alternative_.end());
      const Status status = body(s.otherwise, no, state);
      alternative_ = outer;
      return status;
    }
    const bool may = condition[0].hi != 0, must = condition[0].lo != 0 && s.kind == DeviceStmt::Kind::when;
    State before = state;
    if (may) LATHE_RETURN_IF_ERROR(body(s.body, yes, state));
    if (must) return {};
    LATHE_RETURN_IF_ERROR(body(s.otherwise, no, before));
    if (!may) state = before;
    join(state, before);
    return {};
  }

  static void join(State& to, const State& from) {
    for (size_t i = 0; i < to.touched.size(); ++i) {
      Touch& t = to.touched[i];
      t = {together(t.writer, from.touched[i].writer), together(t.reader, from.touched[i].reader)};
      to.arriving[i] |= from.arriving[i];
    }
    join(to.open, from.open);
    to.reads.insert(from.reads.begin(), from.reads.end());
    while (to.read_groups.size() < from.read_groups.size()) to.read_groups.emplace_front();
    for (size_t i = 0; i < from.read_groups.size(); ++i) {
      const auto& g = from.read_groups[from.read_groups.size() - 1 - i];
      to.read_groups[to.read_groups.size() - 1 - i].insert(g.begin(), g.end());
    }
    // The latest of both belong together: a wait counts from there.
    while (to.groups.size() < from.groups.size()) to.groups.emplace_front();
    for (size_t i = 0; i < from.groups.size(); ++i)
      join(to.groups[to.groups.size() - 1 - i], from.groups[from.groups.size() - 1 - i]);
  }
  static void join(Group& to, const Group& from) {
    Group all;
    std::set_union(to.begin(), to.end(), from.begin(), from.end(), std::back_inserter(all));
    to = std::move(all);
  }

  // Turns of a loop after which all that goes round with its iterator has come round twice.
  static int64_t turns_of(const std::string& iter, const List& list) {
    int64_t most = 1;
    const auto look = [&](const Expr& e) {
      if (!e) return;
      ir::for_each_node(e, [&](const ir::ExprNode& n) {
        if (n.op == ir::Op::k_mod && ir::is_const_int(n.args[1]) && n.args[1]->ival <= kMostStages &&
            ir::uses(n.args[0], iter))
          most = std::max(most, n.args[1]->ival);
      });
    };
    for (const DeviceStmt& s : list) {
      look(s.integer);
      for (const DevicePlace& at : s.places) look(at.offset);
      for (const List* inner : {&s.body, &s.otherwise}) most = std::max(most, turns_of(iter, *inner) / 2);
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
    const int64_t turns = std::min(most, std::max(turns_of(s.name, s.body), kLeastTurns));
    State left(least > 0 ? State(state.touched.size()) : state);
    for (int64_t i = 0; i < turns; ++i) {
      LATHE_RETURN_IF_ERROR(turn({i, i}, state));
      if (i + 1 >= std::min(least, turns)) join(left, state);
    }
    state = std::move(left);
    return {};
  }

  // The thread that copied sees it, others after a barrier.
  Status arrive(const Group& group, State& state) {
    for (const auto& [element, thread] : group) {
      state.arriving[element] = 0;
      LATHE_RETURN_IF_ERROR(touch(element, thread, true, state));
    }
    return {};
  }

  Status touch(size_t element, int thread, bool stores, State& state) const {
    if (state.arriving[element] != 0)
      return ir::invalid("async: {} may be touched before its copy has arrived", name_of(element));
    if (stores && state.is_read(element))
      return ir::invalid("products: {} is stored to while products may read it", name_of(element));
    Touch& t = state.touched[element];
    const int rival = other(t.writer, thread) ? t.writer : stores && other(t.reader, thread) ? t.reader : kNobody;
    if (rival != kNobody) return conflict(name_of(element), rival, thread);
    int& mine = stores ? t.writer : t.reader;
    mine = together(mine, thread);
    return {};
  }

  // s0[3]
  std::string name_of(size_t element) const {
    size_t i = first_.size() - 1;
    while (first_[i] > element) --i;
    return fmt::format("{}[{}]", p_.shared[i].name, element - first_[i]);
  }

  Status access(const DeviceStmt& s, const Mask& mask, State& state) {
    const DevicePlace& at = s.places[0];
    const auto shared = static_cast<size_t>(at.index);
    const ThreadValues offset = names_.of(at.offset), step = s.lanes > 1 ? names_.of(s.step) : ThreadValues{{1, 1}};
    const bool stores = s.kind != DeviceStmt::Kind::load, copies = s.kind == DeviceStmt::Kind::copy;
    Interval anywhere{INT64_MAX, INT64_MIN};  // that a thread may load, which need not be told from the others
    size_t added = 0;
    for (size_t t = 0; t < mask.size(); ++t) {
      if (mask[t] == 0) continue;
      const Interval &first = in(offset, t), &by = in(step, t);
      const bool known = first.lo == first.hi && by.lo == by.hi;
      const int64_t last = p_.shared[shared].count - 1;
      for (int l = 0; l < (known ? s.lanes : 1); ++l) {
        const Interval here = known ? Interval{first.lo + l * by.lo, first.lo + l * by.lo} : spread(first, by, s.lanes);
        if (!known && !stores) {
          anywhere = {std::min(anywhere.lo, here.lo), std::max(anywhere.hi, here.hi)};
          continue;
        }
        for (int64_t i = std::max<int64_t>(here.lo, 0); i <= std::min(here.hi, last); ++i) {
          const size_t element = first_[shared] + static_cast<size_t>(i);
          const std::pair copied(element, static_cast<int>(t));
          if (stores && std::binary_search(alternative_.begin(), alternative_.end(), copied)) continue;
          LATHE_RETURN_IF_ERROR(touch(element, static_cast<int>(t), stores, state));
          if (!copies) continue;
          state.open.emplace_back(element, static_cast<int>(t));
          ++added;
        }
      }
    }
    for (size_t i = state.open.size() - added; i < state.open.size(); ++i) state.arriving[state.open[i].first] = 1;
    if (added > 0) std::sort(state.open.begin(), state.open.end());
    return read_by_several(shared, anywhere, state);
  }

  Status read_by_several(size_t shared, const Interval& which, State& state) const {
    for (int64_t i = std::max<int64_t>(which.lo, 0); i <= std::min(which.hi, p_.shared[shared].count - 1); ++i)
      LATHE_RETURN_IF_ERROR(touch(first_[shared] + static_cast<size_t>(i), kSeveral, false, state));
    return {};
  }

  // Of which its ring says who may touch it (device_rings.cc).
  bool in_ring(const DevicePlace& at) const {
    return at.space == DevicePlace::Space::shared && p_.shared[static_cast<size_t>(at.index)].ring >= 0;
  }

  // Each thread says where 16 bytes lie, which all threads of its warp read.
  Status warp(const DeviceStmt& s, const Mask& mask, State& state) const {
    for (const DevicePlace& at : s.places) {
      if (at.space != DevicePlace::Space::shared) continue;
      const auto shared = static_cast<size_t>(at.index);
      const ThreadValues offset = names_.of(at.offset);
      const int lanes = lanes_at_once(p_.shared[shared].type);
      Interval anywhere{INT64_MAX, INT64_MIN};
      for (size_t t = 0; t < mask.size(); ++t) {
        if (mask[t] == 0) continue;
        const Interval &first = in(offset, t), here = spread(first, {1, 1}, lanes);
        if (first.lo == first.hi) {
          LATHE_RETURN_IF_ERROR(read_by_several(shared, here, state));
        } else {
          anywhere = {std::min(anywhere.lo, here.lo), std::max(anywhere.hi, here.hi)};
        }
      }
      LATHE_RETURN_IF_ERROR(read_by_several(shared, anywhere, state));
    }
    return {};
  }

  // Other threads may wait for what they read later than this one.
  Status read_until_here(const std::set<size_t>& lines, State& state) const {
    for (const size_t line : lines) {
      for (size_t i = 0; i < static_cast<size_t>(kLine); ++i)
        LATHE_RETURN_IF_ERROR(touch(line * static_cast<size_t>(kLine) + i, kSeveral, false, state));
    }
    return {};
  }

  // All threads of a group read its factors, until it has been waited for.
  Status group(const DeviceStmt& s, const Mask& mask, State& state) const {
    constexpr int64_t kRows = 64, kTerms = 16, kLines = ir::kSwizzledLines;
    const size_t held = warp_op(s.warp).held();
    for (size_t i = 1 + held; i < s.places.size(); ++i) {
      const DeviceTile& t = s.tiles[i - 1 - held];
      const auto shared = static_cast<size_t>(s.places[i].index);
      const std::string& name = p_.shared[shared].name;
      const int64_t length = p_.shared[shared].line();
      const ThreadValues offset = names_.of(s.places[i].offset);
      const int64_t lines = i == 1 && held == 0 ? kRows : s.columns;
      const auto element_of = [&](int64_t line, int64_t term) {
        return t.across ? line / length * t.panels + line % length + term / kLines * t.lines + term % kLines * length
                        : line / kLines * t.lines + line % kLines * length + term;
      };
      const int64_t size = element_of(lines - 1, kTerms - 1) + 1;
      std::set<size_t> begun;
      for (size_t g = 0; g < mask.size(); g += static_cast<size_t>(kGroupThreads)) {
        const Interval& first = in(offset, g);
        if (mask[g] == 0) continue;
        for (size_t u = g; u < g + static_cast<size_t>(kGroupThreads); ++u) {
          if (in(offset, u).lo != first.lo || in(offset, u).hi != first.hi)
            return ir::invalid("products: threads {} and {} do not agree where {} lies", g, u, name);
        }
        if (first.lo < 0 || first.hi > p_.shared[shared].count - size)
          return ir::invalid("products: {}[{}..{}] may lie outside of {} elements", name, first.lo, first.hi,
                             p_.shared[shared].count);
        if (!begun.insert(static_cast<size_t>(first.lo)).second || in_ring(s.places[i])) continue;
        const auto read = [&](int64_t at) -> Status {
          const size_t element = first_[shared] + static_cast<size_t>(at);
          LATHE_RETURN_IF_ERROR(touch(element, kSeveral, false, state));
          state.reads.insert(element / static_cast<size_t>(kLine));
          return {};
        };
        if (first.lo < first.hi) {  // one of several places
          for (int64_t at = first.lo; at < first.hi + size; ++at) LATHE_RETURN_IF_ERROR(read(at));
          continue;
        }
        for (int64_t line = 0; line < lines; ++line) {
          for (int64_t term = 0; term < kTerms; ++term) LATHE_RETURN_IF_ERROR(read(first.lo + element_of(line, term)));
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

  static Status conflict(const std::string& element, int a, int b) {
    const std::string who = std::max(a, b) <= kSeveral       ? "several threads"
                            : a <= kSeveral || b <= kSeveral ? fmt::format("thread {} and others", std::max(a, b))
                                                             : fmt::format("threads {} and {}", a, b);
    return ir::invalid("wait: {} may touch {}, one of them stores it, and no barrier is between them", who, element);
  }

  const DeviceProgram& p_;
  ThreadNames names_;
  Group alternative_;          // what a thread has copied where it is not here
  std::vector<size_t> first_;  // element of each shared memory in a state
  std::map<const DeviceStmt*, Found> found_;
};

}  // namespace

Status check_take_form(const DeviceProgram& program, const DeviceStmt& s) {
  if (s.places.size() != 1 || s.places[0].space != DevicePlace::Space::param)
    return ir::invalid("take: {} is taken from no parameter", s.name);
  const DeviceParam& p = program.params[static_cast<size_t>(s.places[0].index)];
  const bool integers = p.type == ir::DType::i32 || p.type == ir::DType::i64;
  return integers && !p.written ? Status() : ir::invalid("take: {} holds no integers that are only read", p.name);
}

Status check_copy_form(const DeviceProgram& program, const DeviceStmt& s) {
  const DeviceParam& p = program.params[static_cast<size_t>(s.places[1].index)];
  const DeviceShared& to = program.shared[static_cast<size_t>(s.places[0].index)];
  const bool narrow = dtype_bytes(p.type) <= 2, alone = s.lanes == 1 && !narrow;
  if ((p.type != ir::DType::f32 && !narrow) || p.type == ir::DType::b8 || p.written || p.bits)
    return ir::invalid("async: {} is no f32, bf16, f16, i8 or u8 that is only read", p.name);
  if (to.type != p.type) return ir::invalid("async: a copy of {} to {} changes its type", p.name, to.name);
  if ((!alone && s.lanes != lanes_at_once(p.type)) || (s.lanes > 1 && !ir::is_const_int(s.step, 1)))
    return ir::invalid("async: a copy of {} lanes, expected {}{} neighbours", s.lanes, narrow ? "" : "1 or ",
                       lanes_at_once(p.type));
  if (s.lanes > 1 && !ir::proves_divisible(s.places[0].offset, s.lanes, {}))
    return ir::invalid("access: {} lanes of {}[{}] at once, and nothing says that they are aligned", s.lanes, to.name,
                       print(s.places[0].offset));
  return {};
}

Status check_waits(const DeviceProgram& program) { return Checker(program).run(); }

}  // namespace lathe::jit
