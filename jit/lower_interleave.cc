// Copies of straight code that do not need each other, turn by turn: one's results arrive while the others' instructions start.
//
//   a0 a1 a2  b0 b1 b2   ->   a0 b0 a1 b1 a2 b2
//
// At most kAbreast at once, fewer where registers do not suffice. Moves instructions, changes none; the caller vouches for memory.
#include <algorithm>

#include "jit/lower_emit.h"

namespace lathe::jit {
namespace {

constexpr size_t kAbreast = 4;
constexpr int kSpare = 3;  // registers for operands that cannot come from memory

// Registers, masks and pointers in one row of numbers.
class Copies {
 public:
  Copies(const LeafProgram& program, const Nodes& nodes, std::span<const size_t> begins)
      : p_(program), nodes_(nodes), begins_(begins) {
    const size_t things = static_cast<size_t>(p_.num_vregs + p_.num_masks) + p_.ptrs.size();
    writer_.assign(things, -1);
    writes_.assign(things, 0);
  }

  // False if a copy needs what comes later, or changes what another one uses.
  bool independent() {
    for (size_t c = 0; c < begins_.size(); ++c) {
      for (size_t i = begins_[c]; i < end_of(c); ++i) {
        if (nodes_[i].kind != Node::Kind::inst && nodes_[i].kind != Node::Kind::set_ptr) return false;
        const int t = written(nodes_[i]);
        if (t < 0) continue;
        if (writer_[t] >= 0 && writer_[t] != static_cast<int>(c)) return false;
        writer_[t] = static_cast<int>(c);
        ++writes_[t];
      }
    }
    bool ok = true;
    for (size_t c = 0; c < begins_.size(); ++c) {
      for (size_t i = begins_[c]; i < end_of(c); ++i) for_each_read(nodes_[i], [&](int t) { ok &= writer_[t] <= static_cast<int>(c); });
    }
    return ok;
  }

  // The nodes in order, `abreast` copies at a time.
  std::vector<size_t> order(size_t abreast) const {
    std::vector<size_t> out, next(begins_.begin(), begins_.end());
    std::vector<int> left = writes_, stores(begins_.size(), 0);
    for (size_t c = 0; c < begins_.size(); ++c) {
      for (size_t i = begins_[c]; i < end_of(c); ++i) stores[c] += is_store(nodes_[i]);
    }
    for (size_t first = 0; first < begins_.size(); first += abreast) {
      const size_t last = std::min(first + abreast, begins_.size());
      for (bool more = true; more;) {
        more = false;
        bool stores_before = false;
        for (size_t c = first; c < last; ++c) {
          if (next[c] < end_of(c)) {
            more = true;
            const Node& n = nodes_[next[c]];
            bool ready = !(stores_before && is_store(n));
            for_each_read(n, [&](int t) { ready &= writer_[t] < 0 || writer_[t] == static_cast<int>(c) || left[t] == 0; });
            if (ready) {
              if (const int t = written(n); t >= 0) --left[t];
              stores[c] -= is_store(n);
              out.push_back(next[c]++);
            }
          }
          stores_before |= stores[c] > 0;
        }
      }
    }
    return out;
  }

  // What values made here occupy at once, at most; those in `kept` to the end. What is read before it is written comes from outside.
  struct Live {
    int vectors = 0, masks = 0;
  };
  Live live(const std::vector<size_t>& order, std::span<const int> kept) const {
    std::vector<size_t> last(writer_.size(), 0);
    for (size_t i = 0; i < order.size(); ++i) for_each_read(nodes_[order[i]], [&](int t) { last[static_cast<size_t>(t)] = i; });
    for (const int t : kept) last[static_cast<size_t>(t)] = order.size();
    std::vector<Live> dying(order.size() + 1);
    std::vector<bool> seen(writer_.size(), false);
    Live now, most;
    for (size_t i = 0; i < order.size(); ++i) {
      const Node& n = nodes_[order[i]];
      now.vectors -= dying[i].vectors;
      now.masks -= dying[i].masks;
      for_each_read(n, [&](int t) { seen[static_cast<size_t>(t)] = true; });
      const int t = written(n);
      if (t < 0 || is_pointer(t) || seen[static_cast<size_t>(t)] || is_constant(n)) continue;
      seen[static_cast<size_t>(t)] = true;
      const auto count = is_mask(t) ? &Live::masks : &Live::vectors;
      most.*count = std::max(most.*count, ++(now.*count));
      ++(dying[std::max(last[static_cast<size_t>(t)], i + 1)].*count);
    }
    return most;
  }

  // Registers and masks not made here that hold values meanwhile: those in `held`, those read, every other mask.
  template <class Constant>
  Live outside(std::span<const int> held, Constant&& constant) const {
    Live out;
    std::vector<bool> counted(writer_.size(), false);
    const auto count = [&](int t) {
      if (is_mask(t) || is_pointer(t) || writer_[static_cast<size_t>(t)] >= 0 || counted[static_cast<size_t>(t)] || constant(t)) return;
      counted[static_cast<size_t>(t)] = true;
      ++out.vectors;
    };
    for (const int t : held) {
      if (counted[static_cast<size_t>(t)]) continue;
      counted[static_cast<size_t>(t)] = true;
      ++out.vectors;
    }
    for (size_t i = begins_[0]; i < nodes_.size(); ++i) for_each_read(nodes_[i], count);
    for (int m = 0; m < p_.num_masks; ++m) out.masks += writer_[static_cast<size_t>(mask(m))] < 0;
    return out;
  }

 private:
  size_t end_of(size_t copy) const { return copy + 1 < begins_.size() ? begins_[copy + 1] : nodes_.size(); }
  bool is_constant(const Node& n) const { return n.inst.op == LeafOp::k_constant && writes_[static_cast<size_t>(n.inst.dst)] == 1; }
  bool is_mask(int t) const { return t >= p_.num_vregs && t < p_.num_vregs + p_.num_masks; }
  bool is_pointer(int t) const { return t >= p_.num_vregs + p_.num_masks; }
  int mask(int m) const { return p_.num_vregs + m; }
  int pointer(int ptr) const { return p_.num_vregs + p_.num_masks + ptr; }
  static bool is_store(const Node& n) { return n.kind == Node::Kind::inst && leaf_op_kind(n.inst.op) == LeafOpKind::kStore; }
  int written(const Node& n) const {
    if (n.kind == Node::Kind::set_ptr) return pointer(n.steps[0].ptr);
    if (n.inst.dst < 0) return -1;
    return leaf_op_kind(n.inst.op) == LeafOpKind::kMask ? mask(n.inst.dst) : n.inst.dst;
  }
  template <class F>
  void for_each_read(const Node& n, F&& f) const {
    if (n.kind == Node::Kind::set_ptr) return f(pointer(n.from));
    for (int s = 0; s < leaf_op_sources(n.inst.op); ++s) f(n.inst.src[s]);
    if (n.inst.mask >= 0) f(mask(n.inst.mask));
    if (n.inst.mem.ptr >= 0) f(pointer(n.inst.mem.ptr));
  }

  const LeafProgram& p_;
  const Nodes& nodes_;
  std::span<const size_t> begins_;
  std::vector<int> writer_, writes_;  // by thing: the copy that writes it (-1: none), how often
};

}  // namespace

void Emitter::interleave(std::span<const size_t> begins, std::span<const int> kept, std::span<const int> held) {
  if (!ok() || tight_ || begins.size() < 2) return;
  Nodes& out = *top().out;
  Copies copies(*program_, out, begins);
  if (!copies.independent()) return;
  const auto outside = copies.outside(held, [&](int reg) { return content(reg).constant >= 0; });
  for (size_t abreast = std::min(begins.size(), kAbreast); abreast > 1; abreast /= 2) {
    const std::vector<size_t> order = copies.order(abreast);
    const auto inside = copies.live(order, kept);
    const int vectors = inside.vectors + outside.vectors + kSpare, masks = inside.masks + outside.masks;
    if (scarce_masks() ? vectors + masks > program_->vector_registers
                       : vectors > program_->vector_registers || masks > program_->mask_registers) {
      continue;
    }
    Nodes moved(out.get_allocator());
    moved.reserve(order.size());
    for (const size_t i : order) moved.push_back(std::move(out[i]));
    std::move(moved.begin(), moved.end(), out.begin() + static_cast<std::ptrdiff_t>(begins[0]));
    return;
  }
}

}  // namespace lathe::jit
