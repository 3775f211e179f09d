// Copies of straight code that do not need each other, turn by turn: one's results arrive while the others'
// instructions start.
//
//   a0 a1 a2  b0 b1 b2   ->   a0 b0 a1 b1 a2 b2
//
// At most kAbreast at once, fewer where registers do not suffice. Groups of sums of bytes go in pairs where each has
// too few sums to hide how long a sum takes; a turn is then all that one vector of weights is used for.
//
// Moves instructions, changes none; the caller vouches for memory.
#include <algorithm>
#include <array>
#include <utility>

#include "jit/lower/lower_emit.h"

namespace lathe::jit {
namespace {

constexpr size_t kAbreast = 4;
constexpr int kLeastSums = 5, kMostSums = 11;  // of a group that goes with another one
constexpr int kSpare = 3;                      // registers for operands that cannot come from memory

// Registers, masks and pointers in one row of numbers ("things").
class Copies {
 public:
  Copies(const LeafProgram& program, const Nodes& nodes, std::span<const size_t> begins, size_t end,
         std::pmr::memory_resource* memory)
      : p_(program),
        begins_(begins),
        first_(begins[0]),
        end_(end),
        memory_(memory),
        uses_(memory),
        made_(memory),
        writer_(memory),
        writes_(memory) {
    const size_t things = static_cast<size_t>(p_.num_vregs + p_.num_masks) + p_.ptrs.size();
    writer_.assign(things, -1);
    writes_.assign(things, 0);
    uses_.reserve(end_ - first_);
    for (size_t i = first_; i < end_ && straight_; ++i) {
      if (nodes[i].kind == Node::Kind::if_any) {
        uses_.push_back(uses_of_branch(nodes, nodes[i]));
        continue;
      }
      straight_ = nodes[i].kind == Node::Kind::inst || nodes[i].kind == Node::Kind::set_ptr;
      if (straight_) uses_.push_back(uses_of(nodes[i]));
    }
  }

  // False if a copy needs what comes later, changes what another one uses, or goes on with another one's sums of bytes;
  // or if there is nothing to do.
  bool independent() {
    if (!straight_ || uses_.size() <= begins_.size()) return false;
    for (size_t c = 0; c < begins_.size(); ++c) {
      for (size_t i = begins_[c]; i < end_of(c); ++i) {
        const int t = uses(i).written;
        if (t < 0) continue;
        if (writer_[t] >= 0 && writer_[t] != static_cast<int>(c)) return false;
        writer_[t] = static_cast<int>(c);
        ++writes_[t];
      }
    }
    for (size_t c = 0; c < begins_.size(); ++c) {
      for (size_t i = begins_[c]; i < end_of(c); ++i) {
        for (const int t : uses(i)) {
          if (writer_[t] > static_cast<int>(c)) return false;
        }
        const int sum = uses(i).sum;
        if (sum >= 0 && writer_[sum] >= 0 && writer_[sum] != static_cast<int>(c)) return false;
      }
    }
    return true;
  }

  // Sums of bytes that the first copy begins; 0 where a vector of weights is for less than one product of each, so that
  // turns would be too short for what the next one waits for.
  int sums() const {
    std::pmr::vector<uint8_t> summed(writer_.size(), memory_);
    int begun = 0, products = 0, vectors = 0, weights = 0;
    for (size_t i = begins_[0]; i < end_of(0); ++i) {
      const Uses& n = uses(i);
      vectors += n.vector;
      if (n.sum < 0) continue;
      weights = vectors;  // later ones are scales
      begun += !summed[n.sum];
      ++products;
      summed[n.written] = true;
    }
    return products < begun * weights ? 0 : begun;
  }

  // The nodes in order, `abreast` copies at a time. A turn is one node. Where there are `sums` (0: not
  // asked for) it goes on until each has got a product, to where other weights are read.
  using Order = std::pmr::vector<uint32_t>;
  Order order(size_t abreast, int sums) const {
    Order out(memory_);
    out.reserve(uses_.size());
    std::pmr::vector<size_t> next(begins_.begin(), begins_.end(), memory_);
    Counts left(writes_, memory_), stores(begins_.size(), 0, memory_);
    for (size_t c = 0; c < begins_.size(); ++c) {
      for (size_t i = begins_[c]; i < end_of(c); ++i) stores[c] += uses(i).store;
    }
    for (size_t first = 0; first < begins_.size(); first += abreast) {
      const size_t last = std::min(first + abreast, begins_.size());
      for (bool more = true; more;) {
        more = false;
        bool stores_before = false;
        for (size_t c = first; c < last; ++c) {
          int summed = 0;
          do {
            if (next[c] == end_of(c)) break;
            more = true;
            const Uses& n = uses(next[c]);
            bool ready = !(stores_before && n.store) && !(sums > 0 && summed >= sums && n.vector);
            for (const int t : n) ready &= writer_[t] < 0 || writer_[t] == static_cast<int>(c) || left[t] == 0;
            if (!ready) break;
            if (n.written >= 0) --left[n.written];
            stores[c] -= n.store;
            summed += n.sum >= 0;
            out.push_back(static_cast<uint32_t>(next[c]++));
          } while (sums > 0);
          stores_before |= stores[c] > 0;
        }
      }
    }
    return out;
  }

  // What values made here occupy at once, at most; those in `kept` to the end. What is read before it is written comes
  // from outside.
  struct Live {
    int vectors = 0, masks = 0;
  };
  Live live(const Order& order, std::span<const int> kept) const {
    Counts last(writer_.size(), 0, memory_);
    for (size_t i = 0; i < order.size(); ++i) {
      for (const int t : uses(order[i])) last[t] = static_cast<int>(i);
    }
    for (const int t : kept) last[t] = static_cast<int>(order.size());
    std::pmr::vector<Live> dying(order.size() + 1, memory_);
    std::pmr::vector<uint8_t> seen(writer_.size(), memory_);
    Live now, most;
    for (size_t i = 0; i < order.size(); ++i) {
      const Uses& n = uses(order[i]);
      now.vectors -= dying[i].vectors;
      now.masks -= dying[i].masks;
      for (const int t : n) seen[t] = true;
      most.vectors = std::max(most.vectors, now.vectors + n.inner.vectors);
      most.masks = std::max(most.masks, now.masks + n.inner.masks);
      const int t = n.written;
      if (t < 0 || is_pointer(t) || seen[t] || (n.constant && writes_[t] == 1)) continue;
      seen[t] = true;
      const auto count = is_mask(t) ? &Live::masks : &Live::vectors;
      most.*count = std::max(most.*count, ++(now.*count));
      ++(dying[std::max(static_cast<size_t>(last[t]), i + 1)].*count);
    }
    return most;
  }

  // Registers and masks not made here that hold values meanwhile: those in `held`, those read, every other mask.
  template <class Constant>
  Live outside(std::span<const int> held, Constant&& constant) const {
    Live out;
    std::pmr::vector<uint8_t> counted(writer_.size(), memory_);
    for (const int t : held) {
      if (!std::exchange(counted[t], true)) ++out.vectors;
    }
    for (const Uses& n : uses_) {
      for (const int t : n) {
        if (!is_vector(t) || writer_[t] >= 0 || counted[t] || constant(t)) continue;
        counted[t] = true;
        ++out.vectors;
      }
    }
    for (int m = 0; m < p_.num_masks; ++m) out.masks += writer_[p_.num_vregs + m] < 0;
    return out;
  }

 private:
  using Counts = std::pmr::vector<int>;
  // The things a node reads, in a row, and what it writes (-1: nothing).
  struct Uses {
    std::array<int, 6> read;
    uint8_t count = 0;
    bool store = false, constant = false, vector = false;  // vector: a load that is no broadcast
    int written = -1, sum = -1;                            // sum: read, of bytes
    Live inner;                                            // of a branch: what its own values occupy at once
    void add(int thing) { read[count++] = thing; }
    const int* begin() const { return read.data(); }
    const int* end() const { return read.data() + count; }
  };
  Uses uses_of(const Node& n) const {
    Uses out;
    if (n.kind == Node::Kind::set_ptr) {
      out.add(pointer(n.from));
      out.written = pointer(n.steps[0].ptr);
      return out;
    }
    for (int s = 0; s < leaf_op_sources(n.inst.op); ++s) out.add(n.inst.src[s]);
    if (n.inst.mask >= 0) out.add(p_.num_vregs + n.inst.mask);
    if (n.inst.mem.ptr >= 0) out.add(pointer(n.inst.mem.ptr));
    const LeafOpKind kind = leaf_op_kind(n.inst.op);
    out.store = kind == LeafOpKind::kStore;
    out.constant = n.inst.op == LeafOp::k_constant;
    out.vector = n.inst.op == LeafOp::k_load;
    if (n.inst.op == LeafOp::k_dot4_u8s8) out.sum = n.inst.src[2];
    if (n.inst.dst >= 0) out.written = kind == LeafOpKind::kMask ? p_.num_vregs + n.inst.dst : n.inst.dst;
    return out;
  }
  // A branch moves as a whole. It reads what it does not make itself (of that, only what the copies make counts) and
  // may change one register of those; otherwise the code does not count as straight.
  Uses uses_of_branch(const Nodes& nodes, const Node& branch) {
    if (made_.empty()) {
      made_.assign(writer_.size(), false);
      for (size_t i = first_; i < end_; ++i) {
        if (nodes[i].kind != Node::Kind::inst) continue;
        if (const int t = uses_of(nodes[i]).written; t >= 0) made_[t] = true;
      }
    }
    Uses out;
    Counts last(writer_.size(), -1, memory_);  // by thing of the branch: its last use
    const auto outer = [&](int t) {
      if (!made_[t] || std::find(out.begin(), out.end(), t) != out.end()) return;
      straight_ &= out.count < out.read.size();
      if (straight_) out.add(t);
    };
    outer(p_.num_vregs + branch.mask);
    for (size_t i = 0; i < branch.body.size() && straight_; ++i) {
      straight_ = branch.body[i].kind == Node::Kind::inst;
      if (!straight_) break;
      const Uses n = uses_of(branch.body[i]);
      for (const int t : n) last[t] < 0 ? outer(t) : void(last[t] = static_cast<int>(i));
      const int t = n.written;
      if (t < 0 || !made_[t]) {
        straight_ &= t >= 0;
        if (t >= 0) last[t] = static_cast<int>(i);
      } else {
        straight_ &= out.written < 0 || out.written == t;
        out.written = t;
      }
    }
    Live now;
    for (size_t i = 0; i < branch.body.size() && straight_; ++i) {
      const Uses n = uses_of(branch.body[i]);
      for (const int t : n) {
        if (last[t] != static_cast<int>(i)) continue;
        last[t] = -1;  // it may be read twice
        --(now.*(is_mask(t) ? &Live::masks : &Live::vectors));
      }
      if (n.written < 0 || made_[n.written]) continue;
      const auto count = is_mask(n.written) ? &Live::masks : &Live::vectors;
      out.inner.*count = std::max(out.inner.*count, ++(now.*count));
    }
    return out;
  }
  const Uses& uses(size_t node) const { return uses_[node - first_]; }
  size_t end_of(size_t copy) const { return copy + 1 < begins_.size() ? begins_[copy + 1] : end_; }
  bool is_vector(int t) const { return t < p_.num_vregs; }
  bool is_pointer(int t) const { return t >= p_.num_vregs + p_.num_masks; }
  bool is_mask(int t) const { return !is_vector(t) && !is_pointer(t); }
  int pointer(int ptr) const { return p_.num_vregs + p_.num_masks + ptr; }

  const LeafProgram& p_;
  std::span<const size_t> begins_;
  const size_t first_, end_;
  std::pmr::memory_resource* const memory_;
  std::pmr::vector<Uses> uses_;  // of the nodes from first_ on
  bool straight_ = true;
  std::pmr::vector<uint8_t> made_;  // by thing: whether a copy makes it; filled where there is a branch
  Counts writer_, writes_;          // by thing: the copy that writes it (-1: none), how often
};

// nodes[i] = nodes[order[i - first]].
void arrange(Nodes& nodes, size_t first, std::pmr::vector<uint32_t>& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] == first + i) continue;
    Node taken = std::move(nodes[first + i]);
    size_t to = i;
    while (order[to] != first + i) {
      const size_t from = std::exchange(order[to], static_cast<uint32_t>(first + to)) - first;
      nodes[first + to] = std::move(nodes[first + from]);
      to = from;
    }
    order[to] = static_cast<uint32_t>(first + to);
    nodes[first + to] = std::move(taken);
  }
}

}  // namespace

void Emitter::interleave(std::span<const size_t> begins, std::span<const int> kept, std::span<const int> held) {
  if (!ok() || tight_ || begins.size() < 2) return;
  const Turns turns{
      {begins.begin(), begins.end()}, top().out->size(), {kept.begin(), kept.end()}, {held.begin(), held.end()}};
  if (waiting_in_ == depth_) {
    waiting_.push_back(turns);
  } else {
    take_turns(turns, false);
  }
}

void Emitter::interleave_groups(std::span<const size_t> begins, std::span<const int> kept, std::span<const int> held) {
  const std::vector<Turns> inner = std::exchange(waiting_, {});
  waiting_in_ = -1;
  if (!ok() || tight_) return;
  const Turns turns{
      {begins.begin(), begins.end()}, top().out->size(), {kept.begin(), kept.end()}, {held.begin(), held.end()}};
  if (begins.size() > 1 && take_turns(turns, true)) return;
  for (const Turns& t : inner) take_turns(t, false);
  if (begins.size() > 1) take_turns(turns, false);
}

// False, and nothing moved, where there are no turns to take.
bool Emitter::take_turns(const Turns& turns, bool by_weights) {
  Nodes& out = *top().out;
  Copies copies(*program_, out, turns.begins, turns.end, memory_);
  if (!copies.independent()) return false;
  const int sums = by_weights ? copies.sums() : 0;
  if (by_weights && (sums < kLeastSums || sums > kMostSums)) return false;
  const auto outside = copies.outside(turns.held, [&](int reg) { return content(reg).constant >= 0; });
  for (size_t abreast = by_weights ? 2 : std::min(turns.begins.size(), kAbreast); abreast > 1; abreast /= 2) {
    Copies::Order order = copies.order(abreast, sums);
    const auto inside = copies.live(order, turns.kept);
    const int vectors = inside.vectors + outside.vectors + kSpare, masks = inside.masks + outside.masks;
    if (scarce_masks() ? vectors + masks > program_->vector_registers
                       : vectors > program_->vector_registers || masks > program_->mask_registers) {
      continue;
    }
    arrange(out, turns.begins[0], order);
    return true;
  }
  return false;
}

}  // namespace lathe::jit
