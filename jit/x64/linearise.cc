// See linearise.h.
//
// An interval runs from the first to the last place that touches the value. Where those lie in different bodies, it is
// stretched over the whole of each body that touches it, inside the innermost body that holds every touch: a value that
// is not local to a loop keeps its register for all of that loop. verify_program() has checked that values are defined
// before use on every path, so one local to a loop body is never carried around it.
#include "jit/x64/linearise.h"

#include <algorithm>

#include "jit/x64/pair_stores.h"

namespace lathe::jit::x64 {
namespace {

// Which sources an operation can take from memory, as bits. Commutative ones swap, comparisons mirror.
unsigned memory_sources(LeafOp op, const Shape& shape) {
  switch (op) {
    case LeafOp::k_add:
    case LeafOp::k_mul:
    case LeafOp::k_bit_and:
    case LeafOp::k_bit_or:
    case LeafOp::k_bit_xor:
    case LeafOp::k_iadd:
    case LeafOp::k_imul:
    case LeafOp::k_imin:
    case LeafOp::k_cmp_lt:
    case LeafOp::k_cmp_le:
    case LeafOp::k_cmp_eq:
    case LeafOp::k_cmp_ne:
    case LeafOp::k_cmp_unord:
      return 3;
    case LeafOp::k_sub:
    case LeafOp::k_div:
    case LeafOp::k_min:
    case LeafOp::k_max:
    case LeafOp::k_scalef:
    case LeafOp::k_bit_andnot:
    case LeafOp::k_isub:
    case LeafOp::k_unpack_lo32:
    case LeafOp::k_unpack_hi32:
    case LeafOp::k_unpack_lo64:
    case LeafOp::k_unpack_hi64:
    case LeafOp::k_shuffle128:
    case LeafOp::k_blend:
      return 2;
    case LeafOp::k_fma:
    case LeafOp::k_fnma:
      return 7;
    case LeafOp::k_dot4_u8s8:
      return shape.dot4 ? 2 : 0;
    case LeafOp::k_dot2_bf16:
      return 2;
    case LeafOp::k_sqrt:
    case LeafOp::k_round:
    case LeafOp::k_floor:
    case LeafOp::k_cvt_f32_i32:
    case LeafOp::k_cvt_i32_f32:
      return 1;
    case LeafOp::k_shift_left:
    case LeafOp::k_shift_right:
    case LeafOp::k_shift_right_arith:
      return shape.evex ? 1 : 0;
    default:
      return 0;
  }
}

// Whether the operation's memory operand may be one element repeated (AVX-512): 32-bit lanes only.
bool takes_broadcast(LeafOp op, const Shape& shape) {
  if (op == LeafOp::k_unpack_lo64 || op == LeafOp::k_unpack_hi64) return false;
  return op != LeafOp::k_shuffle128 || shape.lanes == 16;
}

// Registers for what lies between sources and result. Of stores: for lanes that are made elements; AVX-512 narrows all
// but bf16 on the way to memory.
int scratch_registers(const Inst& inst, const Shape& shape) {
  switch (inst.op) {
    case LeafOp::k_reduce_add:
    case LeafOp::k_reduce_max:
    case LeafOp::k_reduce_min:
    case LeafOp::k_reduce_mul:
    case LeafOp::k_reduce_imin:
    case LeafOp::k_reduce_iadd:
      return 1;
    case LeafOp::k_prefix_add:
      return shape.evex ? 2 : 1;
    case LeafOp::k_dot4_u8s8:
      return !shape.dot4 ? 2 : dot_overwrites(inst) ? 1 : 0;
    case LeafOp::k_dot2_bf16:
      return dot_overwrites(inst) ? 1 : 0;
    default:
      break;
  }
  if (leaf_op_kind(inst.op) != LeafOpKind::kStore || inst.type == MemType::b32) return 0;
  if (inst.type == MemType::bf16) return 2;
  return inst.op != LeafOp::k_store_lane0 && (!shape.evex || inst.op == LeafOp::k_store_stream) ? 1 : 0;
}

// First and last touch of a value, and the innermost region holding all of them.
struct Touch {
  int first = INT_MAX, last = -1;
  int first_region = 0, last_region = 0, common = -1;
  int weight = 0;
};

class Analyser {
 public:
  Analyser(const LeafProgram& program, const Shape& shape, int least_reread, bool pairs, Allocation& out)
      : p_(program),
        shape_(shape),
        least_reread_(least_reread),
        pairs_(pairs),
        a_(out),
        rereads_(program.memory()),
        spans_(program.memory()),
        vectors_(program.memory()),
        consts_(program.memory()),
        masks_(program.memory()),
        general_(program.memory()),
        temps_(program.memory()) {}

  ir::Result<Analysis> run() {
    a_.num_ptrs = static_cast<int>(p_.ptrs.size());
    a_.num_vars = p_.num_vars;
    num_vectors_ = p_.num_vregs + (shape_.evex ? 0 : p_.num_masks);
    a_.info.resize(num_vectors_);
    vectors_.resize(num_vectors_);
    consts_.resize(p_.num_vregs);
    masks_.resize(p_.num_masks);
    general_.resize(a_.num_general());
    a_.regions.push_back({});
    a_.items.reserve(static_cast<size_t>(2 * p_.num_vregs) + 64);
    a_.regions.reserve(16);
    LATHE_RETURN_IF_ERROR(linearise(p_.body, 0));
    a_.regions[0].end = static_cast<int>(a_.items.size());
    find_constants();
    if (pairs_) pair_stores(p_, shape_, a_);
    if (least_reread_ < kNeverReread) find_reread_loads();
    for (pos_ = 0; pos_ < static_cast<int>(a_.items.size()); ++pos_) visit(a_.items[pos_]);
    return finish();
  }

 private:
  // Items, counts and range checks.
  ir::Status linearise(const Nodes& body, int region) {
    for (const Node& node : body) {
      Item item;
      item.node = &node;
      item.region = region;
      switch (node.kind) {
        case Node::Kind::inst:
          LATHE_RETURN_IF_ERROR(count(node.inst));
          a_.items.push_back(item);
          break;
        case Node::Kind::loop:
        case Node::Kind::if_less:
        case Node::Kind::if_any:
        case Node::Kind::segments: {
          if (node.kind == Node::Kind::if_any && (node.mask < 0 || node.mask >= p_.num_masks))
            return ir::invalid("leaf program: mask {}", node.mask);
          const int inner = static_cast<int>(a_.regions.size());
          // What is seldom run weighs as what runs once.
          const int outer = a_.regions[region].depth;
          const int depth = node.kind == Node::Kind::if_any ? 0 : outer + (node.kind == Node::Kind::if_less ? 0 : 1);
          const int begin = static_cast<int>(a_.items.size());
          a_.regions.push_back({region, depth, begin, begin});
          item.region = inner;
          item.kind = Item::Kind::begin;
          a_.items.push_back(item);
          LATHE_RETURN_IF_ERROR(linearise(node.body, inner));
          a_.regions[inner].end = static_cast<int>(a_.items.size());
          item.kind = Item::Kind::end;
          a_.items.push_back(item);
          break;
        }
        case Node::Kind::set_ptr:
        case Node::Kind::set_var:
        case Node::Kind::add_stream:
          item.kind = node.kind == Node::Kind::set_ptr   ? Item::Kind::set_ptr
                      : node.kind == Node::Kind::set_var ? Item::Kind::set_var
                                                         : Item::Kind::add_stream;
          a_.items.push_back(item);
          break;
      }
    }
    return {};
  }

  ir::Status count(const Inst& inst) {
    const int pos = static_cast<int>(a_.items.size());
    const auto bad = [](int i, int n) { return i < 0 || i >= n; };
    for (int s = 0; s < leaf_op_sources(inst.op); ++s) {
      if (bad(inst.src[s], p_.num_vregs)) return ir::invalid("leaf program: source register {}", inst.src[s]);
      ++a_.info[inst.src[s]].uses;
    }
    if (inst.mask >= 0 && bad(inst.mask, p_.num_masks)) return ir::invalid("leaf program: mask {}", inst.mask);
    const LeafOpKind kind = leaf_op_kind(inst.op);
    if (kind == LeafOpKind::kStore || kind == LeafOpKind::kHint || kind == LeafOpKind::kTile) return {};
    const bool to_mask = kind == LeafOpKind::kMask;
    if (bad(inst.dst, to_mask ? p_.num_masks : p_.num_vregs))
      return ir::invalid("leaf program: destination {}", inst.dst);
    if (to_mask) return {};
    VectorInfo& info = a_.info[inst.dst];
    ++info.defs;
    info.def_pos = pos;
    return {};
  }

  void find_constants() {
    for (int v = 0; v < p_.num_vregs; ++v) {
      VectorInfo& info = a_.info[v];
      if (info.defs != 1) continue;
      Item& def = a_.items[info.def_pos];
      if (def.node->inst.op != LeafOp::k_constant) continue;
      info.constant = true;
      def.skip = true;
    }
  }

  // Counts the uses of each load that could read memory again, and finds how long it would sit in a register.
  void find_reread_loads() {
    rereads_.resize(p_.num_vregs);
    spans_.resize(p_.num_vregs);
    for (pos_ = 0; pos_ < static_cast<int>(a_.items.size()); ++pos_) {
      const Item& item = a_.items[pos_];
      const LeafOp op = item.kind == Item::Kind::inst ? item.node->inst.op : LeafOp::k_move;
      const unsigned allowed = memory_sources(op, shape_);
      for (int s = 0; s < 3 && allowed >> s; ++s) {
        const int v = item.node->inst.src[s];
        if (!(allowed >> s & 1) || !reaches(v, op, item.region)) continue;
        ++rereads_[v];
        spans_[v] = pos_ - a_.info[v].def_pos;
        break;  // one memory operand an instruction
      }
      if (item.kind != Item::Kind::inst || leaf_op_kind(op) == LeafOpKind::kStore ||
          leaf_op_kind(op) == LeafOpKind::kTile)
        barrier_ = pos_;
    }
    barrier_ = -1;
  }

  int weight_of(int region) const { return 1 << (3 * std::min(a_.regions[region].depth, 6)); }

  void touch(Touch& t, int half, int region) {
    if (half < t.first) {
      t.first = half;
      t.first_region = region;
    }
    if (half >= t.last) {
      t.last = half;
      t.last_region = region;
    }
    t.common = t.common < 0 ? region : common_region(t.common, region);
    t.weight += weight_of(region);
  }
  int common_region(int x, int y) const {
    while (x != y) {
      // A region's number is larger than its parent's.
      if (x > y) {
        x = a_.regions[x].parent;
      } else {
        y = a_.regions[y].parent;
      }
    }
    return x;
  }

  void general(int id, int pos, int region) { touch(general_[id], 2 * pos, region); }
  void memory(const Mem& mem, int pos, int region) {
    general(mem.ptr, pos, region);
    if (mem.index_kind == Mem::Index::var) general(a_.var_id(mem.index), pos, region);
    if (mem.index_kind == Mem::Index::stride) general(a_.stride_id(mem.index), pos, region);
  }
  void step(const PtrStep& s, int pos, int region) {
    for (const PtrTerm& t : s.terms) general(a_.stride_id(t.stride), pos, region);
  }

  // A load with one use (or whose every use can take it from memory), in the same body, with no store and no pointer or
  // variable change in between.
  bool can_fold(int v, LeafOp user, int region) const {
    const int uses = a_.info[v].uses;
    const bool again = least_reread_ < kNeverReread && rereads_[v] == uses && spans_[v] >= least_reread_;
    return (uses == 1 || again) && reaches(v, user, region);
  }
  bool reaches(int v, LeafOp user, int region) const {
    const VectorInfo& info = a_.info[v];
    if (info.defs != 1) return false;
    const Item& def = a_.items[info.def_pos];
    if (def.region != region || info.def_pos <= barrier_) return false;
    const Inst& load = def.node->inst;
    if (load.mask >= 0 || load.type != MemType::b32) return false;
    if (load.op == LeafOp::k_load) return true;
    return load.op == LeafOp::k_load_bcast && shape_.evex && takes_broadcast(user, shape_);
  }

  void visit(Item& item) {
    const Node& node = *item.node;
    const int region = item.region;
    switch (item.kind) {
      case Item::Kind::inst:
        if (!item.skip) visit_inst(item);
        break;
      case Item::Kind::begin: {
        barrier_ = pos_;
        const int outer = a_.regions[region].parent;
        if (node.kind == Node::Kind::segments) {
          general(a_.segment_id(), pos_, outer);
          general(a_.segments_left_id(), pos_, outer);
          general(a_.segment_id(), pos_, region);
          general(node.seg_base_a, pos_, region);
          general(node.seg_base_b, pos_, region);
          general(node.seg_ptr_a, pos_, region);
          general(node.seg_ptr_b, pos_, region);
        } else if (node.kind == Node::Kind::if_any) {
          touch(mask(node.mask), 2 * pos_, outer);
        } else {
          general(a_.var_id(node.var), pos_, outer);
        }
        break;
      }
      case Item::Kind::end:
        barrier_ = pos_;
        if (node.kind == Node::Kind::segments) {
          general(a_.segment_id(), pos_, region);
          general(a_.segments_left_id(), pos_, region);
        } else if (node.kind == Node::Kind::loop) {
          general(a_.var_id(node.var), pos_, region);
          for (const PtrStep& s : node.steps) {
            general(s.ptr, pos_, region);
            step(s, pos_, region);
          }
        }
        break;
      case Item::Kind::set_ptr:
        barrier_ = pos_;
        general(node.from, pos_, region);
        general(node.steps[0].ptr, pos_, region);
        step(node.steps[0], pos_, region);
        break;
      case Item::Kind::set_var:
        barrier_ = pos_;
        general(a_.var_id(node.var), pos_, region);
        break;
      case Item::Kind::add_stream:
        barrier_ = pos_;
        general(node.steps[0].ptr, pos_, region);
        break;
    }
  }

  void visit_inst(Item& item) {
    const Inst& inst = item.node->inst;
    const int region = item.region;
    const LeafOpKind kind = leaf_op_kind(inst.op);
    const int sources = leaf_op_sources(inst.op);
    choose_memory_source(item, inst, sources);
    int temps = scratch_registers(inst, shape_);
    for (int s = 0; s < sources; ++s) {
      const int v = inst.src[s];
      if (a_.info[v].folded) continue;
      // Bytes are read when the result already holds the sum.
      const int half = 2 * pos_ + (is_dot(inst.op, shape_) && s < 2 ? 1 : 0);
      if (a_.info[v].constant) {
        touch(consts_[v], half, region);
        if (s != item.memory_src) ++temps;
      } else {
        touch(vectors_[v], half, region);
      }
    }
    if (inst.mask >= 0) touch(mask(inst.mask), 2 * pos_, region);
    if (item.pair >= 0) touch(vectors_[a_.items[item.pair].node->inst.src[0]], 2 * pos_, region);
    if (spreads(inst)) touch(spread_, 2 * pos_ + 1, region);  // read after the result's register is written
    if (temps) {
      item.num_temps = static_cast<int8_t>(temps);
      item.temp = num_vectors_ + static_cast<int>(temps_.size());
      for (int t = 0; t < temps; ++t) temps_.push_back({2 * pos_, 2 * pos_ + 1, 1});
    }
    // A load's address is needed here or at its use: finish() settles it.
    const bool reads_address = kind == LeafOpKind::kStore || kind == LeafOpKind::kHint || kind == LeafOpKind::kTile;
    if (reads_address && inst.mem.ptr >= 0) memory(inst.mem, pos_, region);
    if (inst.var >= 0) general(a_.var_id(inst.var), pos_, region);
    if (kind == LeafOpKind::kMask) {
      touch(mask(inst.dst), 2 * pos_ + 1, region);
    } else if (kind == LeafOpKind::kStore || kind == LeafOpKind::kTile) {
      barrier_ = pos_;
    } else if (kind != LeafOpKind::kHint) {
      touch(vectors_[inst.dst], 2 * pos_ + 1, region);
    }
  }

  // A load whose elements become lanes by one permutation.
  bool spreads(const Inst& inst) const {
    return inst.op == LeafOp::k_load && inst.type == MemType::bf16 && inst.mask < 0 && shape_.lanes == 16;
  }

  Touch& mask(int m) { return shape_.evex ? masks_[m] : vectors_[p_.num_vregs + m]; }

  void choose_memory_source(Item& item, const Inst& inst, int sources) {
    const unsigned allowed = memory_sources(inst.op, shape_);
    for (int s = 0; s < sources; ++s) {
      const int v = inst.src[s];
      if (!(allowed >> s & 1) || !can_fold(v, inst.op, item.region)) continue;
      item.memory_src = static_cast<int8_t>(s);
      a_.info[v].folded = true;
      a_.items[a_.info[v].def_pos].skip = true;
      memory(a_.items[a_.info[v].def_pos].node->inst.mem, pos_, item.region);
      return;
    }
    if (shape_.evex && !takes_broadcast(inst.op, shape_)) return;
    for (int s = sources - 1; s >= 0; --s) {
      if ((allowed >> s & 1) && a_.info[inst.src[s]].constant) {
        item.memory_src = static_cast<int8_t>(s);
        return;
      }
    }
  }

  // The interval of a touched value. `whole`: it must hold from before the outermost body that touches it.
  Interval interval(const Touch& t, bool whole) const {
    if (t.last < 0) return {};
    const int inside = whole ? 0 : t.common;
    Interval i{t.first, t.last, t.weight};
    if (const int r = child_of(t.first_region, inside); r >= 0) i.start = std::min(i.start, 2 * a_.regions[r].begin);
    if (const int r = child_of(t.last_region, inside); r >= 0) i.end = std::max(i.end, 2 * a_.regions[r].end + 1);
    return i;
  }
  // The region directly inside `outer` that holds `region`; -1 if they are the same.
  int child_of(int region, int outer) const {
    int child = -1;
    for (; region != outer; region = a_.regions[region].parent) child = region;
    return child;
  }

  Analysis finish() {
    for (int pos = 0; pos < static_cast<int>(a_.items.size()); ++pos) {
      const Item& item = a_.items[pos];
      if (item.kind != Item::Kind::inst || item.skip) continue;
      const Inst& inst = item.node->inst;
      if (leaf_op_kind(inst.op) == LeafOpKind::kLoad) memory(inst.mem, pos, item.region);
    }
    Analysis out(p_.memory());
    out.vectors.reserve(vectors_.size() + temps_.size());
    out.constants.reserve(consts_.size());
    out.masks.reserve(masks_.size());
    out.general.reserve(general_.size());
    for (size_t v = 0; v < vectors_.size(); ++v) {
      const bool none = a_.info[v].folded || a_.info[v].constant;
      out.vectors.push_back(none ? Interval{} : interval(vectors_[v], false));
    }
    out.vectors.insert(out.vectors.end(), temps_.begin(), temps_.end());
    for (const Touch& t : consts_) out.constants.push_back(interval(t, true));
    out.spread = interval(spread_, true);
    if (out.spread.start >= 0) out.spread.start &= ~1;
    for (const Touch& t : masks_) out.masks.push_back(interval(t, false));
    for (int id = 0; id < a_.num_general(); ++id) {
      Interval& i = out.general.emplace_back();
      const Touch& t = general_[id];
      if (t.last < 0) continue;
      i = interval(t, needs_preload(id));
      i.start &= ~1;  // general values never share a register within one item
      i.end |= 1;
    }
    return out;
  }
  // Values that come from LeafArgs.
  bool needs_preload(int id) const {
    if (id < a_.num_ptrs) return p_.ptrs[id].slot >= 0 || p_.ptrs[id].stream >= 0;
    return id >= a_.stride_id(0) && id < a_.segment_id();
  }

  const LeafProgram& p_;
  const Shape& shape_;
  const int least_reread_;
  const bool pairs_;
  Allocation& a_;
  int num_vectors_ = 0;
  int pos_ = 0;
  int barrier_ = -1;                       // last item that may change memory or an address
  std::pmr::vector<int> rereads_, spans_;  // by virtual register
  std::pmr::vector<Touch> vectors_, consts_, masks_, general_;
  Intervals temps_;
  Touch spread_;
};

}  // namespace

bool dot_overwrites(const Inst& inst) {
  return inst.dst != inst.src[2] && (inst.dst == inst.src[0] || inst.dst == inst.src[1]);
}

ir::Result<Analysis> analyse(const LeafProgram& program, const Shape& shape, int least_reread, bool pairs,
                             Allocation& out) {
  return Analyser(program, shape, least_reread, pairs, out).run();
}

}  // namespace lathe::jit::x64
