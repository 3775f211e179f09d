// Random leaf programs that verify: nested loops, branches, segments, pointer arithmetic, masks, and arithmetic whose
// result does not depend on NaN payloads. Every access stays within kBytes of its operand's middle.
#pragma once
#include <bit>
#include <random>

#include "tests/jit/x64/x64_test_util.h"

namespace lathe::jit::x64_test {

class RandomProgram {
 public:
  static constexpr int kFloats = 1 << 15;
  static constexpr int kSlots = 4;

  RandomProgram(const Shape& shape, unsigned seed) : random_(seed), integers_(seed % 4 == 0), halves_(seed % 4 == 1) {
    p_ = empty_program(shape, fmt::format("random{}", seed), 0);
    p_.vector_registers = ir::isa_row(shape.level).vector_registers;
    p_.extra = seed % 8 == 0 ? host_features() & ir::extras_with(shape.features()) : 0;
    fresh_registers_ = pick(2);
    registers_ = p_.num_vregs = 4 + pick(9);
    p_.num_masks = 1 + pick(ir::isa_row(shape.level).mask_registers > 0 ? 5 : 2);
    p_.num_vars = 3 + pick(12);
    const int ptrs = 2 + pick(18);
    for (int i = 0; i < ptrs; ++i) {
      PtrInit init;
      if (pick(4) || i == 0) init.slot = pick(kSlots);
      init.bytes = 2 * kFloats + 4 * pick(64);
      for (int t = pick(3); t > 0; --t) init.terms.push_back({stride(), pick(5) - 2});
      if (init.slot < 0) init = {};
      p_.ptrs.push_back(init);
    }
    Defined d;
    d.vregs.resize(p_.num_vregs);
    d.masks.resize(p_.num_masks);
    d.vars.resize(p_.num_vars);
    for (const PtrInit& i : p_.ptrs) d.ptrs.push_back(i.slot >= 0);
    nodes(p_.body, d, 0, 12 + pick(40));
  }
  const LeafProgram& program() const { return p_; }

  Operands operands() {
    Operands in;
    std::uniform_real_distribution<float> value(-1.5f, 1.5f);
    for (int s = 0; s < kSlots; ++s) {
      in.data.emplace_back(kFloats);
      for (float& f : in.data.back()) f = halves_ ? two_halves(value(random_), value(random_)) : value(random_);
    }
    for (int i = 0; i < ir::kMaxLeafOperands * ir::kMaxLeafStrides; ++i) in.stride.push_back(4 * (pick(65) - 32));
    for (int64_t& e : in.args.extent) e = pick(70) - 3;
    segs_.clear();
    for (int s = pick(4); s > 0; --s) segs_.push_back({4 * (pick(65) - 32), 4 * (pick(65) - 32), pick(40), 0, 0});
    in.args.seg = segs_.data();
    in.args.nseg = static_cast<int64_t>(segs_.size());
    return in;
  }

 private:
  struct Defined {
    std::vector<bool> vregs, masks, ptrs, vars;
    Mem last_load;  // stores go there now and then: a load must not move past them
  };
  int pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  // Now and then something else than lanes; no f16, which may read as NaN.
  MemType narrow() {
    static constexpr MemType kTypes[] = {MemType::u8, MemType::i8, MemType::u16};
    return pick(4) == 0 ? kTypes[pick(3)] : MemType::b32;
  }
  int stride() { return pick(ir::kMaxLeafOperands * ir::kMaxLeafStrides); }
  // Both halves of its bits are numbers of bf16.
  static float two_halves(float x, float y) {
    return std::bit_cast<float>((std::bit_cast<uint32_t>(x) & 0xffff0000u) | std::bit_cast<uint32_t>(y) >> 16);
  }
  // A defined one, or -1.
  int any(const std::vector<bool>& set) {
    std::vector<int> on;
    const size_t recent = set.size() > 12 ? set.size() - 12 : 0;
    for (size_t i = recent; i < set.size(); ++i) {
      if (set[i]) on.push_back(static_cast<int>(i));
    }
    return on.empty() ? -1 : on[static_cast<size_t>(pick(static_cast<int>(on.size())))];
  }
  Extent extent() {
    Extent e;
    e.arg = pick(5) == 0 ? Extent::kConst : segments_ && pick(2) ? Extent::kSegLen : pick(ir::kMaxLeafExtents);
    e.add = e.arg == Extent::kConst ? pick(60) : pick(3) ? 0 : pick(21) - 10;
    return e;
  }
  Mem mem(const Defined& d) {
    Mem m;
    m.ptr = any(d.ptrs);
    m.disp = 4 * (pick(129) - 64);
    const int var = any(d.vars);
    switch (pick(3)) {
      case 0:
        m.index_kind = Mem::Index::stride;
        m.index = stride();
        break;
      case 1:
        if (var >= 0) {
          m.index_kind = Mem::Index::var;
          m.index = var;
        }
        break;
      default:
        break;
    }
    m.scale = 1 << pick(4);
    if (m.index_kind == Mem::Index::var) m.scale = 4;
    return m;
  }
  PtrStep step(int ptr) {
    PtrStep s;
    s.ptr = ptr;
    if (pick(2)) s.bytes = 4 * (pick(17) - 8);
    static constexpr int kMult[] = {1, 2, 4, 8, -1, 3, 0};
    for (int t = pick(3); t > 0; --t) s.terms.push_back({stride(), kMult[pick(7)]});
    return s;
  }

  // d = dot4_u8s8 or imul of numbers: their bits do not depend on NaN payloads.
  void integers(Nodes& body, Defined& d) {
    Inst i = arith(pick(3) ? LeafOp::k_dot4_u8s8 : LeafOp::k_imul, -1);
    int over = -1;
    for (int s = 0; s < leaf_op_sources(i.op); ++s) {
      const int from = any(d.vregs);
      if (from < 0) return;
      over = from;
      i.src[s] = p_.num_vregs++;
      body.push_back(inst(arith(LeafOp::k_cvt_f32_i32, i.src[s], from)));
    }
    i.dst = pick(2) ? i.src[pick(leaf_op_sources(i.op))] : p_.num_vregs++;
    d.vregs.resize(static_cast<size_t>(p_.num_vregs));
    body.push_back(inst(i));
    body.push_back(inst(arith(LeafOp::k_cvt_i32_f32, over, i.dst)));
  }

  void instruction(Nodes& body, Defined& d) {
    if (integers_ && pick(16) == 0) return integers(body, d);
    static constexpr LeafOp kOps[] = {LeafOp::k_add,   LeafOp::k_sub,    LeafOp::k_mul,        LeafOp::k_fma,
                                      LeafOp::k_fnma,  LeafOp::k_fma,    LeafOp::k_min,        LeafOp::k_max,
                                      LeafOp::k_move,  LeafOp::k_blend,  LeafOp::k_reduce_max, LeafOp::k_reduce_add,
                                      LeafOp::k_floor, LeafOp::k_cmp_lt, LeafOp::k_cmp_ne};
    Inst i{};
    const int kind = pick(10);
    if (kind < 3) {
      static constexpr LeafOp kLoads[] = {LeafOp::k_load, LeafOp::k_load, LeafOp::k_load, LeafOp::k_load_bcast,
                                          LeafOp::k_load_bcast};
      i.op = kLoads[pick(5)];
      i.type = halves_ && pick(2) ? MemType::bf16 : narrow();
      i.mem = mem(d);
      if (i.op == LeafOp::k_load && pick(3) == 0) i.mask = any(d.masks);
      d.last_load = i.mem;
    } else if (kind == 3) {
      static constexpr LeafOp kStores[] = {LeafOp::k_store, LeafOp::k_store, LeafOp::k_store_stream,
                                           LeafOp::k_store_lane0};
      i.op = kStores[pick(4)];
      i.mem = d.last_load.ptr >= 0 && pick(2) ? d.last_load : mem(d);
      i.src[0] = any(d.vregs);
      if (i.src[0] < 0) return;
      i.type = narrow();
      if (i.op == LeafOp::k_store_stream && kMemTypeBytes[static_cast<int>(i.type)] == 1) i.type = MemType::b32;
      if (i.op == LeafOp::k_store && pick(3) == 0) i.mask = any(d.masks);
      body.push_back(inst(i));
      return;
    } else if (kind == 4) {
      i.op = pick(3) ? LeafOp::k_constant : LeafOp::k_extent_f32;
      i.extent = extent();
      static constexpr uint32_t kBits[] = {0, 0x3f800000, 0xbf000000, 0x3fc00000, 0x80000000};
      i.imm = kBits[pick(5)];
    } else if (kind == 5) {
      i.op = LeafOp::k_mask_tail;
      i.var = any(d.vars);
      i.var_add = pick(9) - 4;
      i.extent = extent();
    } else {
      i.op = kOps[pick(15)];
      for (int s = 0; s < leaf_op_sources(i.op); ++s) {
        i.src[s] = any(d.vregs);
        if (i.src[s] < 0) return;
      }
      if (i.op == LeafOp::k_blend) {
        i.mask = any(d.masks);
        if (i.mask < 0) return;
      }
    }
    if (leaf_op_kind(i.op) == LeafOpKind::kMask) {
      i.dst = pick(p_.num_masks);
      d.masks[static_cast<size_t>(i.dst)] = true;
    } else {
      const bool fresh = fresh_registers_ && pick(4) != 0;
      i.dst = fresh ? p_.num_vregs++ : pick(fresh_registers_ ? p_.num_vregs : registers_);
      d.vregs.resize(static_cast<size_t>(p_.num_vregs));
      d.vregs[static_cast<size_t>(i.dst)] = true;
    }
    body.push_back(inst(i));
  }

  void nodes(Nodes& body, Defined& d, int depth, int count) {
    for (int c = 0; c < count; ++c) {
      const int kind = pick(depth < 3 ? 12 : 9);
      Node n;
      if (kind < 7) {
        instruction(body, d);
        continue;
      }
      if (kind == 7) {
        n.kind = Node::Kind::set_ptr;
        n.from = any(d.ptrs);
        const int to = pick(static_cast<int>(p_.ptrs.size()));
        n.steps = {step(to)};
        d.ptrs[static_cast<size_t>(to)] = true;
      } else if (kind == 8) {
        n.kind = Node::Kind::set_var;
        n.var = pick(p_.num_vars);
        if (busy(n.var)) continue;
        d.vars[static_cast<size_t>(n.var)] = true;
      } else if (kind == 9) {
        n.kind = pick(2) ? Node::Kind::if_less : Node::Kind::if_any;
        n.var = any(d.vars);
        n.mask = any(d.masks);
        if ((n.kind == Node::Kind::if_less ? n.var : n.mask) < 0) continue;
        n.extent = extent();
        Defined inner = d;
        nodes(n.body, inner, depth + 1, 1 + pick(8));
      } else if (kind == 10 && !segments_ && pick(2)) {
        n.kind = Node::Kind::segments;
        n.seg_base_a = any(d.ptrs);
        n.seg_base_b = any(d.ptrs);
        n.seg_ptr_a = pick(static_cast<int>(p_.ptrs.size()));
        n.seg_ptr_b = pick(static_cast<int>(p_.ptrs.size()));
        const auto is_base = [&](int ptr) { return ptr == n.seg_base_a || ptr == n.seg_base_b; };
        if (is_base(n.seg_ptr_a) || is_base(n.seg_ptr_b) || n.seg_ptr_a == n.seg_ptr_b) continue;
        Defined inner = d;
        inner.ptrs[static_cast<size_t>(n.seg_ptr_a)] = inner.ptrs[static_cast<size_t>(n.seg_ptr_b)] = true;
        segments_ = true;
        nodes(n.body, inner, depth + 1, 1 + pick(10));
        segments_ = false;
      } else {
        n.kind = Node::Kind::loop;
        n.var = pick(p_.num_vars);
        if (busy(n.var)) continue;
        n.init = pick(4) != 0 || !d.vars[static_cast<size_t>(n.var)];
        n.step = pick(3) == 0 ? 16 : 24;
        n.extent = extent();
        d.vars[static_cast<size_t>(n.var)] = true;
        for (int s = pick(3); s > 0; --s) n.steps.push_back(step(any(d.ptrs)));
        Defined inner = d;
        loop_vars_.push_back(n.var);
        nodes(n.body, inner, depth + 1, 1 + pick(12));
        loop_vars_.pop_back();
      }
      body.push_back(n);
    }
  }
  bool busy(int var) const { return std::find(loop_vars_.begin(), loop_vars_.end(), var) != loop_vars_.end(); }

  std::mt19937 random_;
  const bool integers_, halves_;  // instructions on integers; loads of bf16
  LeafProgram p_;
  int registers_ = 0;  // that any result may have
  std::vector<int> loop_vars_;
  std::vector<ir::LeafSeg> segs_;
  bool segments_ = false;
  bool fresh_registers_ = false;  // a register of its own for most results, as lowering makes them
};

}  // namespace lathe::jit::x64_test
