// check_products of device_waits.h. All threads go through the program in step; loops are gone through until nothing
// changes.
#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "ir/core/text_form.h"
#include "jit/cuda/device_waits.h"

namespace lathe::jit {

using ir::invalid;
using ir::Status;

namespace {

using Kind = DeviceStmt::Kind;
using Space = DevicePlace::Space;
using List = std::vector<DeviceStmt>;
using Names = std::set<int>;

struct State {
  Names open;                // sums of products that no commit counts
  std::deque<Names> groups;  // on their way, the oldest first
  Names unfenced;            // locals that were touched since the last fence
  Names stored, handed;      // shared memory: since the last fence; fenced, with no barrier since
  bool operator==(const State& o) const {
    return open == o.open && groups == o.groups && unfenced == o.unfenced && stored == o.stored && handed == o.handed;
  }
  bool on_their_way(int local) const {
    return open.count(local) != 0 ||
           std::any_of(groups.begin(), groups.end(), [&](const Names& g) { return g.count(local) != 0; });
  }
};

void join(Names& to, const Names& from) { to.insert(from.begin(), from.end()); }
void join(State& to, const State& from) {
  join(to.open, from.open);
  while (to.groups.size() < from.groups.size()) to.groups.emplace_front();
  for (size_t i = 0; i < from.groups.size(); ++i)  // the latest of both belong together
    join(to.groups[to.groups.size() - 1 - i], from.groups[from.groups.size() - 1 - i]);
  join(to.unfenced, from.unfenced);
  join(to.stored, from.stored);
  join(to.handed, from.handed);
}

class Checker {
 public:
  explicit Checker(const DeviceProgram& p) : p_(p) {}
  Status run() {
    State state;
    for (size_t l = 0; l < p_.locals.size(); ++l) state.unfenced.insert(static_cast<int>(l));
    LATHE_RETURN_IF_ERROR(body(p_.body, state));
    const bool late = !state.open.empty() ||
                      std::any_of(state.groups.begin(), state.groups.end(), [](const Names& g) { return !g.empty(); });
    return late ? invalid("products: some are on their way at the end") : Status();
  }

 private:
  static bool some_on_their_way(const State& state) {
    const auto some = [](const Names& g) { return !g.empty(); };
    return some(state.open) || std::any_of(state.groups.begin(), state.groups.end(), some);
  }

  Status body(const List& list, State& state) const {
    for (const DeviceStmt& s : list) LATHE_RETURN_IF_ERROR(statement(s, state));
    return {};
  }

  Status statement(const DeviceStmt& s, State& state) const {
    switch (s.kind) {
      case Kind::when:
      case Kind::aligned: {
        State other = state;
        LATHE_RETURN_IF_ERROR(body(s.body, state));
        LATHE_RETURN_IF_ERROR(body(s.otherwise, other));
        join(state, other);
        return {};
      }
      case Kind::roles: {  // what is left unfenced by those that fill places, readers would compute with
        State filled = state;
        LATHE_RETURN_IF_ERROR(body(s.body, filled));
        join(state.stored, filled.stored);
        return body(s.otherwise, state);
      }
      case Kind::loop: {
        State before;
        do {
          before = state;
          LATHE_RETURN_IF_ERROR(body(s.body, state));
          while (state.groups.size() > static_cast<size_t>(kMostStages)) {  // older ones are as one
            join(state.groups[1], state.groups[0]);
            state.groups.pop_front();
          }
          join(state, before);
        } while (!(state == before));
        return {};
      }
      case Kind::barrier:
      case Kind::await_ring:
        state.handed.clear();
        return {};
      case Kind::arrive:
        if (state.stored.empty()) return {};
        return invalid("products: threads arrive at {} before a fence hands over what they have stored",
                       p_.rings[static_cast<size_t>(s.ring)].name);
      case Kind::fence_sums:
        // Where rings say what factors are there, more may be added to the same sums.
        if (p_.rings.empty() && some_on_their_way(state))
          return invalid("products: sums are handed over while some are on their way");
        state.unfenced.clear();
        return {};
      case Kind::fence_shared:
        join(state.handed, std::exchange(state.stored, {}));
        return {};
      case Kind::commit_products:
        // What they were given was for these alone.
        join(state.unfenced, state.open);
        state.groups.push_back(std::exchange(state.open, {}));
        return {};
      case Kind::await_products:
        while (state.groups.size() > static_cast<size_t>(s.groups)) state.groups.pop_front();
        return {};
      case Kind::warp:
        if (warp_op(s.warp).goes_on()) return begin(s, state);
        return touch(s, state);
      default:
        return touch(s, state);
    }
  }

  Status touch(const DeviceStmt& s, State& state) const {
    const bool stores = s.kind == Kind::store || s.kind == Kind::copy;
    for (const DevicePlace& at : s.places) {
      if (at.space == Space::shared && stores && p_.shared[static_cast<size_t>(at.index)].swizzle != 0)
        state.stored.insert(at.index);
      if (at.space != Space::local) continue;
      if (state.on_their_way(at.index))
        return invalid("products: {} is touched while its sums are on their way", p_.name_of(at));
      state.unfenced.insert(at.index);
    }
    return {};
  }

  Status begin(const DeviceStmt& s, State& state) const {
    if (state.unfenced.count(s.places[0].index) != 0)
      return invalid("products: {} adds to {}, which no fence has handed over", warp_op(s.warp).name,
                     p_.name_of(s.places[0]));
    const size_t held = warp_op(s.warp).held();
    for (size_t i = 1; i <= held; ++i) {
      const int factor = s.places[i].index;
      if (state.unfenced.count(factor) != 0)
        return invalid("products: {} reads {}, which no fence has handed over", warp_op(s.warp).name,
                       p_.name_of(s.places[i]));
      state.open.insert(factor);
    }
    for (size_t i = 1 + held; i < s.places.size(); ++i) {
      const int factor = s.places[i].index;
      if (state.stored.count(factor) != 0 || state.handed.count(factor) != 0)
        return invalid("products: {} reads {}, which no fence and barrier have handed over", warp_op(s.warp).name,
                       p_.name_of(s.places[i]));
    }
    state.open.insert(s.places[0].index);
    return {};
  }

  const DeviceProgram& p_;
};

}  // namespace

Status check_group_form(const DeviceProgram& p, const DeviceStmt& s) {
  constexpr int kMostColumns = 256;
  const WarpOpRow& row = warp_op(s.warp);
  if (p.threads % row.threads != 0)
    return invalid("warp: {} by {} threads, expected whole groups of four warps", row.name, p.threads);
  const size_t factors = std::string_view(row.operands).size(), tiles = factors - row.held();
  if (s.places.size() != 1 + factors || s.tiles.size() != tiles)
    return invalid("warp: {} has {} places and {} tiles, expected {} and {}", row.name, s.places.size(), s.tiles.size(),
                   1 + factors, tiles);
  if (s.columns < 8 || s.columns > kMostColumns || s.columns % 8 != 0)
    return invalid("warp: {} of {} columns, expected 8..{}, by 8", row.name, s.columns, kMostColumns);
  return {};
}

Status check_group_tile(const DeviceProgram& p, const DeviceStmt& s, size_t tile, const ir::Ranges& ranges) {
  constexpr int kRows = 64, kTerms = 16;
  const WarpOpRow& row = warp_op(s.warp);
  const DevicePlace& at = s.places[1 + row.held() + tile];
  const DeviceTile& t = s.tiles[tile];
  const DeviceShared& in = p.shared[static_cast<size_t>(at.index)];
  const int64_t line = in.line(), group = line * ir::kSwizzledLines;
  // Lines begin where the hardware counts them from: at each eighth one, and terms in it by 16.
  const ir::Expr in_lines = ir::simplify(ir::mod(at.offset, ir::Expr(group)), ranges);
  const bool begins =
      t.across ? ir::is_const_int(in_lines, 0)
               : ir::proves_divisible(at.offset, kTerms, ranges) && ir::interval(in_lines, ranges).hi <= line - kTerms;
  if (!begins || t.lines < group || t.lines % group != 0 || t.panels % group != 0)
    return invalid("warp: {}[{}] is not where lines of a tile begin", in.name, print(at.offset));
  const int64_t lines = tile == 0 && row.held() == 0 ? kRows : s.columns;
  if (t.across ? (lines > line && t.panels <= 0) : t.panels != 0)
    return invalid("warp: {} of {} has panels of {}", in.name, row.name, t.panels);
  return {};
}

Status check_products(const DeviceProgram& program) { return Checker(program).run(); }

}  // namespace lathe::jit
