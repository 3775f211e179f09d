// See registers.h.
#include "jit/x64/registers.h"

#include <algorithm>

#include "jit/x64/linearise.h"

namespace lathe::jit::x64 {
namespace {

using Numbers = std::pmr::vector<int>;

// Linear scan over the half positions: intervals sorted into buckets by start and end, so that each step touches only
// what begins or ends there. Prefers the register of a source that dies where the value begins.
class Scan {
 public:
  Scan(const Intervals& intervals, int end, int registers)
      : intervals_(intervals),
        starts_(static_cast<size_t>(end + 2), -1, intervals.get_allocator()),
        next_(intervals.size(), -1, intervals.get_allocator()),
        free_at_(starts_.size(), intervals.get_allocator()) {
    for (int v = static_cast<int>(intervals.size()) - 1; v >= 0; --v) {
      if (intervals[v].start < 0) continue;
      next_[v] = starts_[intervals[v].start];
      starts_[intervals[v].start] = v;
    }
    free_ = registers >= 32 ? ~uint32_t{0} : (uint32_t{1} << registers) - 1;
  }

  // False when the registers do not suffice. hint(v): a value whose register v would like, or -1.
  template <class Hint>
  bool run(std::pmr::vector<int8_t>& result, Hint&& hint) {
    result.assign(intervals_.size(), -1);
    const auto memory = starts_.get_allocator();
    Numbers ends(starts_.size() + 1, -1, memory), next_end(intervals_.size(), -1, memory);
    for (int t = 0; t < static_cast<int>(starts_.size()); ++t) {
      if (t > 0) {
        for (int v = ends[t - 1]; v >= 0; v = next_end[v]) free_ |= uint32_t{1} << result[v];
      }
      for (int v = starts_[t]; v >= 0; v = next_[v]) {
        if (!free_) return false;
        int reg = __builtin_ctz(free_);
        if (const int h = hint(v, t); h >= 0 && result[h] >= 0 && (free_ >> result[h] & 1)) reg = result[h];
        free_ &= ~(uint32_t{1} << reg);
        used_ |= uint32_t{1} << reg;
        result[v] = static_cast<int8_t>(reg);
        const int end = std::max(intervals_[v].end, t);
        next_end[v] = ends[end];
        ends[end] = v;
      }
      free_at_[t] = free_;
    }
    return true;
  }
  uint32_t used() const { return used_; }
  // A register that is free all through `wanted` and from now on not any more; -1: none.
  int take(const Interval& wanted) {
    const auto from = free_at_.begin() + wanted.start, to = free_at_.begin() + wanted.end + 1;
    uint32_t both = ~uint32_t{0};
    for (auto at = from; at != to; ++at) both &= *at;
    if (both == 0) return -1;
    const int reg = __builtin_ctz(both);
    for (auto at = from; at != to; ++at) *at &= ~(uint32_t{1} << reg);
    return reg;
  }

 private:
  const Intervals& intervals_;
  Numbers starts_, next_;
  std::pmr::vector<uint32_t> free_at_;  // by half position, once run
  uint32_t free_ = 0, used_ = 0;
};

bool overlap(const Interval& x, const Interval& y) { return x.start <= y.end && y.start <= x.end; }

// The values with an interval, heaviest first.
Numbers by_weight(const Intervals& intervals, int min_weight) {
  Numbers order(intervals.get_allocator());
  order.reserve(intervals.size());
  for (int i = 0; i < static_cast<int>(intervals.size()); ++i) {
    if (intervals[i].start >= 0 && intervals[i].weight >= min_weight) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](int x, int y) {
    return intervals[x].weight != intervals[y].weight ? intervals[x].weight > intervals[y].weight : x < y;
  });
  return order;
}

// What makes lanes of elements of bf16 has no memory form: it goes before constants.
void place_spread(const Interval& spread, Scan& vectors, Allocation& a) {
  constexpr int kWorthALoad = 8;  // uses, as Interval weighs them
  if (spread.start < 0 || spread.weight < kWorthALoad) return;
  a.spread = static_cast<int8_t>(vectors.take(spread));
  if (a.spread < 0) return;
  a.num_vectors_used = std::max(a.num_vectors_used, a.spread + 1);
  a.preloads.push_back({spread.start / 2, Preload::Kind::spread, 0});
}

// Registers that stay free over a constant's interval go to the constants, the most used first.
void place_constants(const Intervals& constants, Scan& vectors, Allocation& a) {
  for (const int v : by_weight(constants, 2)) {
    const int reg = vectors.take(constants[v]);
    if (reg < 0) continue;
    a.vector[v] = static_cast<int8_t>(reg);
    a.num_vectors_used = std::max(a.num_vectors_used, reg + 1);
    a.preloads.push_back({constants[v].start / 2, Preload::Kind::constant, v});
  }
}

void place_general(const Intervals& intervals, const LeafProgram& program, Allocation& a) {
  a.general.assign(intervals.size(), -1);
  a.slot.assign(intervals.size(), -1);
  std::pmr::vector<Intervals> busy(16, intervals.get_allocator());
  const int first_stride = a.stride_id(0), segment = a.segment_id();
  for (const int id : by_weight(intervals, 0)) {
    for (const int8_t reg : kAllocatable) {
      const auto clash = [&](const Interval& i) { return overlap(i, intervals[id]); };
      if (std::any_of(busy[reg].begin(), busy[reg].end(), clash)) continue;
      busy[reg].push_back(intervals[id]);
      a.general[id] = reg;
      a.callee_saved |= kCalleeSaved & 1u << reg;
      break;
    }
    const bool stride = id >= first_stride && id < segment;
    if (a.general[id] < 0 && !stride) a.slot[id] = static_cast<int16_t>(a.num_slots++);
    const int pos = intervals[id].start / 2;
    if (id < a.num_ptrs) {
      if (program.ptrs[id].slot >= 0 || program.ptrs[id].stream >= 0)
        a.preloads.push_back({pos, Preload::Kind::pointer, id});
    } else if (stride && a.general[id] >= 0) {
      a.preloads.push_back({pos, Preload::Kind::stride, id - first_stride});
    }
  }
}

ir::Result<Allocation> try_allocate(const LeafProgram& program, const Shape& shape, int least_reread, bool pairs) {
  Allocation a(program.memory());
  LATHE_ASSIGN(const Analysis analysis, analyse(program, shape, least_reread, pairs, a));
  const int end = 2 * static_cast<int>(a.items.size()) + 1;

  // A value that begins where an operation writes may take over the register of a source that ends there; an
  // accumulator first.
  const auto dying_source = [&](int v, int t) {
    if (!(t & 1) || v >= program.num_vregs) return -1;
    const Item& item = a.items[t / 2];
    if (item.kind != Item::Kind::inst || item.node->inst.dst != v) return -1;
    const Inst& inst = item.node->inst;
    for (int s = leaf_op_sources(inst.op) - 1; s >= 0; --s) {
      if (analysis.vectors[inst.src[s]].end == t - 1) return inst.src[s];
    }
    return -1;
  };
  Scan vectors(analysis.vectors, end, shape.vectors);
  if (!vectors.run(a.vector, dying_source)) {
    return ir::unsupported("more than {} vector registers live at once", shape.vectors);
  }
  a.num_vectors_used = vectors.used() ? 32 - __builtin_clz(vectors.used()) : 0;
  place_spread(analysis.spread, vectors, a);
  place_constants(analysis.constants, vectors, a);

  if (shape.evex) {
    Scan masks(analysis.masks, end, 7);  // k1..k7: k0 means no mask
    if (!masks.run(a.mask, [](int, int) { return -1; })) return ir::unsupported("more than 7 masks live at once");
    for (int8_t& k : a.mask) k = static_cast<int8_t>(k + (k >= 0));
  }
  place_general(analysis.general, program, a);
  std::stable_sort(a.preloads.begin(), a.preloads.end(),
                   [](const Preload& x, const Preload& y) { return x.pos < y.pos; });
  return a;
}

}  // namespace

ir::Result<Allocation> allocate(const LeafProgram& program, const Shape& shape) {
  // Of loads that are read again, as few as do: first those that sit in a register for long.
  constexpr int kLongest = 16;
  ir::Result<Allocation> a = try_allocate(program, shape, kNeverReread, true);
  for (const int least : {kNeverReread, kLongest, 0}) {
    if (a.ok() || a.status().code() != ir::Code::kUNSUPPORTED) return a;
    a = try_allocate(program, shape, least, false);
  }
  return a;
}

}  // namespace lathe::jit::x64
