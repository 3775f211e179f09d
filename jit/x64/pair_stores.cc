// See pair_stores.h. Operands that a leaf writes do not overlap what it uses through other operands in the same loop
// (search/cut/leaf_form.cc), but for a result in place of an input, of which each element is read before it is written.
#include "jit/x64/pair_stores.h"

#include <algorithm>

namespace lathe::jit::x64 {
namespace {

constexpr int kUnknown = -1;
constexpr int kHalfLine = 32;  // bytes of a vector of bf16

// The operand that each pointer points into, at one place after another: numbers of pointers are used again.
class Operands {
 public:
  explicit Operands(const LeafProgram& p) : of_(p.ptrs.size(), kUnknown, p.memory()) {
    for (size_t i = 0; i < p.ptrs.size(); ++i) of_[i] = p.ptrs[i].slot;
  }
  int of(int ptr) const { return ptr < 0 ? kUnknown : of_[ptr]; }
  void set(const Node& set_ptr) { of_[set_ptr.steps[0].ptr] = of_[set_ptr.from]; }
  // Where a body begins or ends, which may run again or not at all, what it sets is not known.
  void begin(const Node& n) {
    forget(n.body);
    if (n.kind != Node::Kind::segments) return;
    of_[n.seg_ptr_a] = of_[n.seg_base_a];
    of_[n.seg_ptr_b] = of_[n.seg_base_b];
  }
  void end(const Node& n) {
    forget(n.body);
    if (n.kind == Node::Kind::segments) of_[n.seg_ptr_a] = of_[n.seg_ptr_b] = kUnknown;
  }

 private:
  void forget(const Nodes& body) {
    for (const Node& n : body) {
      if (n.kind == Node::Kind::set_ptr) of_[n.steps[0].ptr] = kUnknown;
      if (n.kind == Node::Kind::segments) of_[n.seg_ptr_a] = of_[n.seg_ptr_b] = kUnknown;
      forget(n.body);
    }
  }

  std::pmr::vector<int> of_;
};

bool is_next(const Mem& a, const Mem& b) {
  return a.ptr == b.ptr && a.index_kind == b.index_kind && a.index == b.index && a.scale == b.scale &&
         b.disp == a.disp + kHalfLine;
}

}  // namespace

void pair_stores(const LeafProgram& program, const Shape& shape, Allocation& a) {
  if (!shape.evex || shape.lanes != 16 || !program.has(ir::kCpu_avx512bf16)) return;
  Operands operands(program);
  std::pmr::vector<int> waiting(program.memory());  // stores that a later one may join
  const auto operand = [&](int pos) { return operands.of(a.items[pos].node->inst.mem.ptr); };
  for (int pos = 0; pos < static_cast<int>(a.items.size()); ++pos) {
    Item& item = a.items[pos];
    if (item.kind != Item::Kind::inst) {
      waiting.clear();
      if (item.kind == Item::Kind::begin) operands.begin(*item.node);
      if (item.kind == Item::Kind::end) operands.end(*item.node);
      if (item.kind == Item::Kind::set_ptr) operands.set(*item.node);
      continue;
    }
    const Inst& inst = item.node->inst;
    const LeafOpKind kind = leaf_op_kind(inst.op);
    if (kind == LeafOpKind::kTile) waiting.clear();
    if (kind != LeafOpKind::kLoad && kind != LeafOpKind::kStore) continue;
    const bool vector = inst.op == LeafOp::k_store || inst.op == LeafOp::k_store_stream;
    const int of = operand(pos);
    const bool may_pair = vector && inst.type == MemType::bf16 && inst.mask < 0 && of != kUnknown &&
                          !a.info[inst.src[0]].constant && a.info[inst.src[0]].defs == 1;
    const auto first = std::find_if(waiting.begin(), waiting.end(), [&](int s) {
      const Inst& before = a.items[s].node->inst;
      return may_pair && before.op == inst.op && is_next(before.mem, inst.mem);
    });
    if (first != waiting.end()) {
      item.pair = *first;
      a.items[*first].skip = true;
    }
    std::erase_if(waiting, [&](int s) { return of == kUnknown || operand(s) == of; });
    if (may_pair && item.pair < 0) waiting.push_back(pos);
  }
}

}  // namespace lathe::jit::x64
