// Facts start as true and are taken back until nothing changes, so that registers which loops carry keep theirs.
#include "jit/x64/one_lane.h"

namespace lathe::jit::x64 {
namespace {

bool slow(LeafOp op) { return op == LeafOp::k_div || op == LeafOp::k_sqrt; }

// Operations of which each lane depends on that lane of the sources only.
bool lane_by_lane(LeafOp op) {
  switch (op) {
    case LeafOp::k_move:
    case LeafOp::k_add:
    case LeafOp::k_sub:
    case LeafOp::k_mul:
    case LeafOp::k_div:
    case LeafOp::k_fma:
    case LeafOp::k_fnma:
    case LeafOp::k_min:
    case LeafOp::k_max:
    case LeafOp::k_sqrt:
    case LeafOp::k_round:
    case LeafOp::k_floor:
    case LeafOp::k_scalef:
    case LeafOp::k_bit_and:
    case LeafOp::k_bit_or:
    case LeafOp::k_bit_xor:
    case LeafOp::k_bit_andnot:
    case LeafOp::k_shift_left:
    case LeafOp::k_shift_right:
    case LeafOp::k_shift_right_arith:
    case LeafOp::k_iadd:
    case LeafOp::k_isub:
    case LeafOp::k_imul:
    case LeafOp::k_imin:
    case LeafOp::k_cvt_f32_i32:
    case LeafOp::k_cvt_i32_f32:
    case LeafOp::k_blend:
      return true;
    default:
      return false;
  }
}

bool compares(LeafOp op) { return leaf_op_kind(op) == LeafOpKind::kMask && op != LeafOp::k_mask_tail; }

bool same_everywhere(LeafOp op) {
  switch (op) {
    case LeafOp::k_load_bcast:
    case LeafOp::k_constant:
    case LeafOp::k_extent_f32:
    case LeafOp::k_reduce_add:
    case LeafOp::k_reduce_max:
    case LeafOp::k_reduce_min:
    case LeafOp::k_reduce_mul:
    case LeafOp::k_reduce_imin:
    case LeafOp::k_reduce_iadd:
    case LeafOp::k_last_lane:
      return true;
    default:
      return false;
  }
}

class Facts {
 public:
  explicit Facts(const LeafProgram& p)
      : p_(p),
        out_(p.memory()),
        same_(static_cast<size_t>(p.num_vregs), 1, p.memory()),
        same_masks_(static_cast<size_t>(p.num_masks), 1, p.memory()),
        only_slow_(static_cast<size_t>(p.num_vregs), 1, p.memory()) {
    out_.vectors.assign(static_cast<size_t>(p.num_vregs), Lanes::first);
    out_.masks.assign(static_cast<size_t>(p.num_masks), 1);
  }

  OneLane find() {
    while (refine(p_.body, [&](const Inst& i) { differ(i); })) {
    }
    while (refine(p_.body, [&](const Inst& i) { read(i); })) {
    }
    return std::move(out_);
  }

 private:
  template <class T>
  void set(T& fact, T value) {
    changed_ |= fact != value;
    fact = value;
  }
  template <class F>
  bool refine(const Nodes& body, const F& f) {
    changed_ = false;
    walk(body, f);
    return changed_;
  }
  template <class F>
  void walk(const Nodes& body, const F& f) {
    for (const Node& n : body) {
      if (n.kind == Node::Kind::inst) f(n.inst);
      if (n.kind == Node::Kind::if_any) set(out_.masks[static_cast<size_t>(n.mask)], uint8_t{0});
      walk(n.body, f);
    }
  }
  // Takes back that what is written is the same in all lanes.
  void differ(const Inst& i) {
    if (i.dst < 0) return;
    const bool mask = leaf_op_kind(i.op) == LeafOpKind::kMask;
    bool same = same_everywhere(i.op) || lane_by_lane(i.op) || compares(i.op);
    for (int s = 0; s < leaf_op_sources(i.op) && !same_everywhere(i.op); ++s)
      same &= same_[static_cast<size_t>(i.src[s])] != 0;
    if (i.mask >= 0) same &= same_masks_[static_cast<size_t>(i.mask)] != 0;
    if (!same) set((mask ? same_masks_ : same_)[static_cast<size_t>(i.dst)], uint8_t{0});
    if (!mask && !slow(i.op)) only_slow_[static_cast<size_t>(i.dst)] = 0;
  }
  // Takes back that no more than the first lane is read.
  void read(const Inst& i) {
    const bool lane = (i.op == LeafOp::k_store_lane0 && i.type == MemType::b32) ||
                      (lane_by_lane(i.op) && out_.of_result(i) != Lanes::all) ||
                      (compares(i.op) && out_.masks[static_cast<size_t>(i.dst)] != 0);
    if (lane) return;
    for (int s = 0; s < leaf_op_sources(i.op); ++s) {
      const auto v = static_cast<size_t>(i.src[s]);
      if (out_.vectors[v] == Lanes::first)
        set(out_.vectors[v], same_[v] != 0 && only_slow_[v] != 0 ? Lanes::repeated : Lanes::all);
    }
    if (i.mask >= 0) set(out_.masks[static_cast<size_t>(i.mask)], uint8_t{0});
  }

  const LeafProgram& p_;
  OneLane out_;
  std::pmr::vector<uint8_t> same_, same_masks_, only_slow_;
  bool changed_ = false;
};

}  // namespace

Lanes OneLane::of_result(const Inst& inst) const {
  if (vectors.empty() || inst.dst < 0) return Lanes::all;
  if (leaf_op_kind(inst.op) == LeafOpKind::kMask)
    return compares(inst.op) && masks[static_cast<size_t>(inst.dst)] != 0 ? Lanes::first : Lanes::all;
  return lane_by_lane(inst.op) ? vectors[static_cast<size_t>(inst.dst)] : Lanes::all;
}

OneLane one_lane(const LeafProgram& program) {
  if (program.lanes < 16) return OneLane(program.memory());
  return Facts(program).find();
}

}  // namespace lathe::jit::x64
