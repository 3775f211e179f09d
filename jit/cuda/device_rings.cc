// What device_waits.h says of rings. Each warp has two agents, its first thread and all others, whose conditions are
// the same. What they do is written down first, for sizes that let rings go round from never to twice and more; then
// it is played, and each agent knows what has happened before its own next step: by barriers, and by what arrives at
// rings. The blocks of a cluster are played together.
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "ir/core/text_form.h"
#include "jit/cuda/device_waits.h"
#include "jit/cuda/thread_values.h"

namespace lathe::jit {

using ir::invalid;
using ir::Status;

namespace {

using Kind = DeviceStmt::Kind;
using Space = DevicePlace::Space;
using List = std::vector<DeviceStmt>;
using Clock = std::vector<int64_t>;

constexpr int kWarp = kWarpThreads;
constexpr int64_t kTerms = 64;  // of a step: sizes are multiples of it
constexpr int64_t kTurns = 16;  // iterations of the grid at most, where a block goes through several

// What an agent does at one point.
struct Event {
  Kind kind;
  int ring = -1;
  int64_t place = 0, number = 0;                 // number: a parity, bytes, or groups
  std::vector<std::pair<int, int64_t>> touched;  // places of shared memory: which, and which place
  bool all = false;                              // in each block
  int64_t first = 0, last = 0;                   // box: elements that it fills
};

class Player {
 public:
  Player(const DeviceProgram& p, std::vector<std::vector<Event>> events)
      : p_(p), events_(std::move(events)), blocks_(static_cast<size_t>(p.cluster)) {
    for (const DeviceRing& r : p.rings) {
      first_.push_back(places_of_block_);
      places_of_block_ += static_cast<size_t>(r.places);
    }
    places_.resize(blocks_ * places_of_block_);
    for (size_t a = 0; a < agents(); ++a) clocks_.emplace_back(agents() + places_.size(), 0);
    at_.resize(agents());
    begun_.resize(agents());
    groups_.resize(agents());
    met_.resize(agents());
    opened_.resize(blocks_);
  }

  // arrivals: of each ring.
  Status run(const std::vector<int64_t>& arrivals) {
    arrivals_ = arrivals;
    for (;;) {
      bool any = false, done = true;
      for (size_t a = 0; a < agents(); ++a) {
        while (at_[a] < events_[a].size()) {
          const Event& e = events_[a][at_[a]];
          if (e.kind == Kind::barrier || e.kind == Kind::cluster_barrier) break;
          if (e.kind == Kind::await_ring && !is_full(a, e)) break;
          if (e.kind == Kind::await_products && !warp_comes(a)) break;
          LATHE_RETURN_IF_ERROR(step(a, e));
          ++at_[a];
          any = true;
        }
        done = done && at_[a] == events_[a].size();
      }
      if (done) return boxes_.empty() ? Status() : arrive();
      for (size_t b = 0; b < blocks_; ++b) any = meet(b * of_block(), (b + 1) * of_block(), Kind::barrier) || any;
      if (any || meet(0, agents(), Kind::cluster_barrier)) continue;
      LATHE_RETURN_IF_ERROR(arrive());
    }
  }

 private:
  struct Place {
    bool open = false;
    int64_t pending = 0, bytes = 0, times = 0;
    Clock arrived, full;  // of those that have arrived; when it was full the last time
  };
  // Of shared memory.
  struct Slot {
    size_t known = 0;                  // the part of clocks that says how often its ring's place was full
    int64_t time = 0;                  // of the last box; 0: none yet
    std::map<int64_t, int64_t> boxes;  // of that time: first and last element
    std::map<size_t, int64_t> stored;  // by agent
    std::map<size_t, int64_t> read;    // until; -1: still
  };
  struct Which {
    size_t block;
    std::pair<int, int64_t> place;
    bool operator<(const Which& o) const { return std::tie(block, place) < std::tie(o.block, o.place); }
  };
  struct OnItsWay {
    const Event* box;
    size_t block;  // to which
  };

  size_t agents() const { return events_.size(); }
  size_t of_block() const { return agents() / blocks_; }
  size_t block_of(size_t agent) const { return agent / of_block(); }
  // Of all agents from one on, where they have come to it.
  bool meet(size_t from, size_t to, Kind kind) {
    Clock all = clocks_[from];
    for (size_t a = from; a < to; ++a) {
      if (at_[a] == events_[a].size() || events_[a][at_[a]].kind != kind) return false;
      join(all, clocks_[a]);
    }
    for (size_t a = from; a < to; ++a) {
      clocks_[a] = all;
      ++at_[a];
    }
    return true;
  }
  // All threads of a warp wait for their products together.
  bool warp_comes(size_t a) {
    const size_t other = a ^ 1;
    if (met_[a]) return true;
    if (met_[other] || at_[other] == events_[other].size() || events_[other][at_[other]].kind != Kind::await_products)
      return false;
    ++clocks_[a][a];
    ++clocks_[other][other];
    join(clocks_[a], clocks_[other]);
    clocks_[other] = clocks_[a];
    met_[a] = met_[other] = true;
    return true;
  }
  static void join(Clock& to, const Clock& from) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = std::max(to[i], from[i]);
  }
  static int64_t weight(size_t agent) { return agent % 2 == 0 ? 1 : kWarp - 1; }
  size_t number(size_t block, const Event& e) const {
    return block * places_of_block_ + first_[static_cast<size_t>(e.ring)] + static_cast<size_t>(e.place);
  }
  bool is_full(size_t a, const Event& e) {
    const Place& p = places_[number(block_of(a), e)];
    return p.open && p.times % 2 != e.number;
  }
  std::string name(const Which& slot) const {
    return fmt::format("place {} of {}", slot.place.second, p_.shared[static_cast<size_t>(slot.place.first)].name);
  }
  bool has_seen(size_t a, size_t other, int64_t time) const { return clocks_[a][other] >= time; }

  Status opened(size_t a, size_t block, const Event& e) {
    if (places_[number(block, e)].open && has_seen(a, block * of_block(), opened_[block])) return {};
    return invalid("rings: {} is used before threads know that it was made",
                   p_.rings[static_cast<size_t>(e.ring)].name);
  }

  void settle(size_t number, int ring) {
    Place& p = places_[number];
    if (p.pending > 0 || p.bytes != 0) return;
    ++p.times;
    p.full = p.arrived;
    p.full[agents() + number] = p.times;
    p.arrived.assign(p.arrived.size(), 0);
    p.pending = arrivals_[static_cast<size_t>(ring)];
  }

  // Boxes come as late as they may.
  Status arrive() {
    if (boxes_.empty()) return invalid("rings: threads wait for what never comes");
    for (const OnItsWay& b : std::exchange(boxes_, {})) {
      const size_t at = number(b.block, *b.box);
      places_[at].bytes -= b.box->number;
      settle(at, b.box->ring);
    }
    return {};
  }

  Status step(size_t a, const Event& e) {
    Clock& mine = clocks_[a];
    ++mine[a];
    const size_t from = e.all ? 0 : block_of(a), to = e.all ? blocks_ : block_of(a) + 1;
    switch (e.kind) {
      case Kind::open_rings:
        if (a != from * of_block()) return {};
        for (size_t r = 0, n = from * places_of_block_; r < p_.rings.size(); ++r) {
          for (int i = 0; i < p_.rings[r].places; ++i)
            places_[n++] = {true, arrivals_[r], 0, 0, Clock(mine.size(), 0), Clock(mine.size(), 0)};
        }
        opened_[from] = mine[a];
        return {};
      case Kind::expect:
      case Kind::arrive:
        for (size_t b = from; b < to; ++b) {
          LATHE_RETURN_IF_ERROR(opened(a, b, e));
          Place& p = places_[number(b, e)];
          join(p.arrived, mine);
          p.pending -= weight(a);
          if (p.pending < 0)
            return invalid("rings: more threads arrive at {} than it waits for",
                           p_.rings[static_cast<size_t>(e.ring)].name);
          p.bytes += e.kind == Kind::expect ? e.number : 0;
          settle(number(b, e), e.ring);
        }
        return {};
      case Kind::await_ring:
        LATHE_RETURN_IF_ERROR(opened(a, from, e));
        join(mine, places_[number(from, e)].full);
        return {};
      case Kind::box:
        for (size_t b = from; b < to; ++b) {
          LATHE_RETURN_IF_ERROR(opened(a, b, e));
          LATHE_RETURN_IF_ERROR(box(a, {b, e.touched[0]}, e));
        }
        return {};
      case Kind::store:
        for (const auto& t : e.touched) {
          const Which which{from, t};
          LATHE_RETURN_IF_ERROR(filled(a, which, slots_[which]));
          slots_[which].stored[a] = mine[a];
        }
        return {};
      case Kind::warp:
        for (const auto& t : e.touched) {
          const Which which{from, t};
          Slot& s = slots_[which];
          bool seen = s.time == 0 || has_seen(a, s.known, s.time);
          for (const auto& [by, time] : s.stored) seen = seen && has_seen(a, by, time);
          if (!seen || (s.time == 0 && s.stored.empty()))
            return invalid("rings: products read {}, which is not known to be full", name(which));
          s.read[a] = -1;
          begun_[a].insert(which);
        }
        return {};
      case Kind::commit_products:
        groups_[a].push_back(std::exchange(begun_[a], {}));
        return {};
      case Kind::await_products:
        met_[a] = false;
        for (; groups_[a].size() > static_cast<size_t>(e.number); groups_[a].pop_front()) {
          for (const Which& t : groups_[a].front()) slots_[t].read[a] = mine[a] - 1;  // where the warp met
        }
        return {};
      default:
        return {};
    }
  }

  Status box(size_t a, const Which& which, const Event& e) {
    Slot& s = slots_[which];
    const size_t at = number(which.block, e);
    LATHE_RETURN_IF_ERROR(filled(a, which, s));
    if (s.time > 0 && s.time <= places_[at].times && !has_seen(a, s.known, s.time))
      return invalid("rings: a box goes to {}, where another one is on its way", name(which));
    s.known = agents() + at;
    if (s.time != places_[at].times + 1) s.boxes.clear();
    s.time = places_[at].times + 1;
    const auto next = s.boxes.lower_bound(e.first);
    if ((next != s.boxes.end() && next->first <= e.last) ||
        (next != s.boxes.begin() && std::prev(next)->second >= e.first))
      return invalid("rings: two boxes go to the same lines of {}", name(which));
    s.boxes[e.first] = e.last;
    boxes_.push_back({&e, which.block});
    return {};
  }

  // Whoever fills a place has seen that all have read it.
  Status filled(size_t a, const Which& which, Slot& s) {
    for (const auto& [by, until] : s.read) {
      if (until < 0 || !has_seen(a, by, until))
        return invalid("rings: {} is filled while products may read it", name(which));
    }
    s.read.clear();
    return {};
  }

  const DeviceProgram& p_;
  const std::vector<std::vector<Event>> events_;  // of each agent, block after block
  const size_t blocks_;
  size_t places_of_block_ = 0;
  std::vector<size_t> first_;  // of each ring, of these
  std::vector<int64_t> arrivals_;
  std::vector<Clock> clocks_;
  std::vector<size_t> at_;
  std::vector<char> met_;  // at a wait for products, by both agents of a warp
  std::vector<Place> places_;
  std::map<Which, Slot> slots_;
  std::vector<std::set<Which>> begun_;
  std::vector<std::deque<std::set<Which>>> groups_;
  std::vector<OnItsWay> boxes_;
  std::vector<int64_t> opened_;  // by block: when its rings were made
};

// What an agent does, written down.
class Follower {
 public:
  explicit Follower(const DeviceProgram& p) : p_(p) { look(p.body); }

  ir::Result<std::vector<Event>> run(int block, int thread, int64_t size, int64_t mapped) {
    names_ = {};
    out_.clear();
    thread_ = thread;
    names_.set("thread", {{thread, thread}});
    names_.set("block", {{0, 0}});
    names_.set("blocks", {{1, 1}});
    for (const std::string& e : p_.sizes) names_.set(e, {{size, size}});
    names_.set(kMapped, {{mapped, mapped}});
    int64_t first = 0;
    if (turns_) {
      LATHE_ASSIGN(first, value(turns_));
      first = std::max<int64_t>(first - kTurns * p_.cluster, 0);
    }
    names_.set("block", {{first + block, first + block}});
    names_.set("blocks", {{p_.cluster, p_.cluster}});
    LATHE_RETURN_IF_ERROR(walk(p_.body));
    return std::move(out_);
  }
  ir::Result<int64_t> value(const ir::Expr& e) const {
    const ir::Interval v = names_.of(e)[0];
    if (v.lo != v.hi) return invalid("rings: {} cannot be followed", print(e));
    return v.lo;
  }

 private:
  struct Found {
    bool waits = false, stores = false;
  };

  bool in_ring(const DevicePlace& at) const {
    return at.space == Space::shared && p_.shared[static_cast<size_t>(at.index)].ring >= 0;
  }
  Found look(const List& list) {
    Found all;
    for (const DeviceStmt& s : list) {
      const Found a = look(s.body), b = look(s.otherwise);
      Found here{a.waits || b.waits, a.stores || b.stores};
      here.stores |= s.kind == Kind::store && in_ring(s.places[0]);
      if (s.kind == Kind::loop && !turns_ && ir::uses(s.integer, "blocks")) turns_ = s.integer;
      switch (s.kind) {
        case Kind::open_rings:
        case Kind::expect:
        case Kind::arrive:
        case Kind::await_ring:
        case Kind::box:
        case Kind::barrier:
        case Kind::cluster_barrier:
        case Kind::commit_products:
        case Kind::await_products:
          here.waits = true;
          break;
        case Kind::warp:
          here.waits |= warp_op(s.warp).goes_on();
          break;
        default:
          break;
      }
      found_[&s] = here;
      all = {all.waits || here.waits, all.stores || here.stores};
    }
    return all;
  }

  Status walk(const List& list) {
    for (const DeviceStmt& s : list) LATHE_RETURN_IF_ERROR(statement(s));
    return {};
  }

  Status statement(const DeviceStmt& s) {
    const Found& found = found_.at(&s);
    if (s.kind == Kind::let) names_.set(s.name, names_.of(s.integer));
    if (s.kind == Kind::take) names_.set(s.name, {{}});
    if (s.kind == Kind::count) names_.set(s.name, {{0, 0}});
    if (s.kind == Kind::add) {
      LATHE_ASSIGN(const int64_t next, value(ir::iter(s.name) + s.integer));
      names_.set(s.name, {{next, next}});
    }
    if (!found.waits && !found.stores) return {};
    switch (s.kind) {
      case Kind::when: {
        const ir::Interval is = names_.of(s.integer)[0];
        if (is.lo != is.hi && found.waits) return invalid("rings: {} cannot be followed", print(s.integer));
        return walk(is.hi == 0 ? s.otherwise : s.body);
      }
      case Kind::loop: {
        LATHE_ASSIGN(int64_t turns, value(s.integer));
        if (!found.waits) turns = std::min<int64_t>(turns, 1);  // as all of them
        for (int64_t i = 0; i < turns; ++i) {
          names_.set(s.name, {{i, i}});
          LATHE_RETURN_IF_ERROR(walk(s.body));
        }
        return {};
      }
      case Kind::roles:
        return walk(thread_ < p_.readers() ? s.otherwise : s.body);
      case Kind::aligned:
        return invalid("rings: what addresses are cannot be followed");
      default:
        return event(s);
    }
  }

  Status event(const DeviceStmt& s) {
    Event e{s.kind, s.ring, 0, s.groups, {}, s.all};
    const bool of_ring =
        s.kind == Kind::expect || s.kind == Kind::arrive || s.kind == Kind::await_ring || s.kind == Kind::box;
    if (of_ring) {
      LATHE_ASSIGN(e.place, value(s.integer));
      const int places = p_.rings[static_cast<size_t>(s.ring)].places;
      if (e.place < 0 || e.place >= places)
        return invalid("rings: place {} of {}, which has {}", e.place, p_.rings[static_cast<size_t>(s.ring)].name,
                       places);
    }
    if (s.kind == Kind::expect) e.number = s.bytes;
    if (s.kind == Kind::await_ring) {
      LATHE_ASSIGN(e.number, value(s.step));
    }
    if (s.kind == Kind::box) e.number = 2 * p_.maps[static_cast<size_t>(s.map)].elements();
    const bool all = s.kind == Kind::box || s.kind == Kind::store || s.kind == Kind::warp;
    for (size_t i = 0; all && i < s.places.size(); ++i) {
      const DevicePlace& at = s.places[i];
      if (!in_ring(at)) continue;
      const DeviceShared& in = p_.shared[static_cast<size_t>(at.index)];
      LATHE_ASSIGN(const int64_t offset, value(at.offset));
      const int64_t one = in.count / p_.rings[static_cast<size_t>(in.ring)].places;
      const int64_t last = offset + (s.kind == Kind::box ? p_.maps[static_cast<size_t>(s.map)].elements() - 1 : 0);
      if (offset < 0 || last >= in.count || offset / one != last / one)
        return invalid("rings: {}[{}..{}] lies in no place of its ring", in.name, offset, last);
      if (s.kind == Kind::box && offset / one != e.place)
        return invalid("rings: a box goes to place {} of {}, and arrives at place {}", offset / one, in.name, e.place);
      e.touched.emplace_back(at.index, offset / one);
      e.first = offset;
      e.last = last;
    }
    out_.push_back(std::move(e));
    return {};
  }

  const DeviceProgram& p_;
  std::map<const DeviceStmt*, Found> found_;
  ThreadNames names_;
  ir::Expr turns_;  // of a loop over a block's iterations of the grid; null: there is none
  int thread_ = 0;
  std::vector<Event> out_;
};

bool alike(const std::vector<Event>& a, const std::vector<Event>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Event& x, const Event& y) {
    return x.kind == y.kind && x.ring == y.ring && x.place == y.place && x.number == y.number && x.all == y.all;
  });
}

}  // namespace

Status check_rings(const DeviceProgram& p) {
  if (p.rings.empty()) return {};
  int64_t places = 0;
  for (const DeviceRing& r : p.rings) places = std::max<int64_t>(places, r.places);
  Follower follower(p);
  const std::set<int64_t> steps = {0, 1, places - 1, places, places + 1, 2 * places + 1};
  for (const int64_t mapped : {1, 0}) {
    for (const int64_t n : steps) {
      std::vector<std::vector<Event>> events;
      std::vector<int64_t> arrivals;
      const int64_t size = std::max<int64_t>(n * kTerms, 1);
      for (int w = 0; w < p.cluster * (p.threads / kWarp); ++w) {
        const int block = w / (p.threads / kWarp), warp = w % (p.threads / kWarp);
        for (const int lane : {0, 1}) {
          LATHE_ASSIGN(std::vector<Event> own, follower.run(block, warp * kWarp + lane, size, mapped));
          events.push_back(std::move(own));
        }
        LATHE_ASSIGN(const std::vector<Event> last, follower.run(block, warp * kWarp + kWarp - 1, size, mapped));
        if (!alike(events.back(), last)) return invalid("rings: threads of warp {} go apart", warp);
      }
      for (const DeviceRing& r : p.rings) {
        LATHE_ASSIGN(const int64_t count, follower.value(r.arrivals));
        arrivals.push_back(count);
      }
      LATHE_RETURN_IF_ERROR(Player(p, std::move(events)).run(arrivals));
    }
  }
  return {};
}

}  // namespace lathe::jit
