// Loads, stores, masks and constants.
#include <algorithm>

#include "jit/x64/emitter.h"

namespace lathe::jit::x64 {

RegExp Emitter::address(const Mem& mem) {
  RegExp e = general(mem.ptr, as_.rax);
  if (mem.index_kind != Mem::Index::none) {
    const int id = mem.index_kind == Mem::Index::var ? a_.var_id(mem.index) : a_.stride_id(mem.index);
    e = e + general(id, as_.rdx) * mem.scale;
  }
  return e + mem.disp;
}

// Rows lie the index register apart.
void Emitter::tile(const Inst& inst) {
  use(kCpu_amx_tile);
  const auto tmm = [&](int which) { return Tmm(tile_of(inst.imm, which)); };
  if (inst.op == LeafOp::k_tile_zero) return as_.tilezero(tmm(0));
  if (multiplies_tiles(inst.op)) {
    const bool bf16 = inst.op == LeafOp::k_tile_dot_bf16;
    use(bf16 ? kCpu_amx_bf16 : kCpu_amx_int8);
    if (bf16) return as_.tdpbf16ps(tmm(0), tmm(1), tmm(2));
    if (inst.op == LeafOp::k_tile_dot_u8s8) return as_.tdpbusd(tmm(0), tmm(1), tmm(2));
    if (inst.op == LeafOp::k_tile_dot_s8u8) return as_.tdpbsud(tmm(0), tmm(1), tmm(2));
    return as_.tdpbssd(tmm(0), tmm(1), tmm(2));
  }
  const Reg64 base = general(inst.mem.ptr, as_.rax);
  Reg64 step = as_.rdx;
  if (inst.mem.index_kind == Mem::Index::stride) {
    step = general(a_.stride_id(inst.mem.index), as_.rdx);
  } else {
    as_.mov(as_.rdx, inst.var_add);
  }
  const Address at = as_.ptr[base + step * inst.mem.scale + inst.mem.disp];
  inst.op == LeafOp::k_tile_load ? as_.tileloadd(tmm(0), at) : as_.tilestored(at, tmm(0));
}

void Emitter::constant(const Xmm& to, uint32_t bits) {
  use(kCpu_avx);
  if (bits == 0 && to.getIdx() < 16) {
    const Xmm low = sized(to.getIdx(), 4);  // the VEX form clears the rest
    as_.vxorps(low, low, low);
  } else if (bits == 0) {
    as_.vpxord(to, to, to);
  } else {
    as_.vbroadcastss(to, as_.scalar_constant(bits));
  }
}

void Emitter::load(const Inst& inst) {
  const Xmm to = vec(inst.dst);
  const RegExp from = address(inst.mem);
  use(kCpu_avx);
  if (inst.type != MemType::b32) {
    load_narrow(inst, to, from);
  } else if (inst.op == LeafOp::k_load_bcast && shape_.evex) {
    as_.vpbroadcastd(to, as_.ptr[from]);  // twice as many a cycle as vbroadcastss on Zen 4, which shuffles for it
  } else if (inst.op == LeafOp::k_load_bcast) {
    as_.vbroadcastss(to, as_.ptr[from]);
  } else if (inst.mask < 0) {
    as_.vmovups(to, as_.ptr[from]);
  } else if (const int lanes = short_vector(inst.mask, to); lanes > 0) {
    as_.vmovups(sized(to.getIdx(), lanes), as_.ptr[from]);  // clears the rest
  } else if (shape_.evex) {
    as_.vmovups(to | mask_k(inst.mask) | as_.T_z, as_.ptr[from]);
  } else {
    as_.vmaskmovps(to, mask_vec(inst.mask), as_.ptr[from]);
  }
}

void Emitter::store(const Item& item, const Sources& s) {
  const Inst& inst = item.node->inst;
  const Xmm& value = s.reg[0];
  use(kCpu_avx);
  if (item.pair >= 0) return store_pair(item, value);
  const RegExp to = address(inst.mem);
  if (inst.type != MemType::b32) {
    store_narrow(item, value, to);
  } else if (inst.op == LeafOp::k_store_lane0) {
    as_.vmovss(as_.ptr[to], sized(value.getIdx(), 4));
  } else if (inst.op == LeafOp::k_store_stream) {
    store_stream(to, value);
  } else if (inst.mask < 0) {
    as_.vmovups(as_.ptr[to], value);
  } else if (const int lanes = short_vector(inst.mask, value); lanes > 0) {
    as_.vmovups(as_.ptr[to], sized(value.getIdx(), lanes));
  } else if (shape_.evex) {
    as_.vmovups(as_.ptr[to] | mask_k(inst.mask), value);
  } else if (const int8_t lanes = mask_lanes_[static_cast<size_t>(inst.mask)]; lanes >= 0 && shape_.lanes == 8) {
    store_lanes(to, value, lanes);
  } else {
    as_.vmaskmovps(as_.ptr[to], mask_vec(inst.mask), value);
  }
}

// How many lanes the mask always has on, where they are a vector of their own: a masked store in its place takes some
// cores a few cycles more. 0: no such mask.
int Emitter::short_vector(int mask, const Xmm& of) {
  const int lanes = mask_lanes_[static_cast<size_t>(mask)];
  if ((lanes != 4 && lanes != 8) || lanes >= shape_.lanes) return 0;
  if (of.getIdx() >= 16) use(kCpu_avx512vl);
  return lanes;
}

// The first lanes in pieces: some cores take a dozen cycles for a masked store.
void Emitter::store_lanes(const RegExp& to, const Xmm& value, int count) {
  const Xmm low = sized(value.getIdx(), 4);
  if (count == 8) return as_.vmovups(as_.ptr[to], value);
  if (count == 1) as_.vmovss(as_.ptr[to], low);
  if (count == 2 || count == 3) as_.vmovlps(as_.ptr[to], low);
  if (count == 3) as_.vextractps(as_.ptr[to + 8], low, 2);
  if (count < 4) return;
  as_.vmovups(as_.ptr[to], low);
  if (count == 4) return;
  // The upper half by way of memory below the stack: no vector register need be free here.
  as_.lea(as_.rax, as_.ptr[to]);
  as_.vextractf128(as_.ptr[as_.rsp - 16], Ymm(value.getIdx()), 1);
  if (count > 5) {
    as_.mov(as_.rdx, as_.qword[as_.rsp - 16]);
    as_.mov(as_.qword[as_.rax + 16], as_.rdx);
  }
  if (count != 6) {
    as_.mov(as_.edx, as_.dword[as_.rsp - 16 + 4 * (count - 5)]);
    as_.mov(as_.dword[as_.rax + 4 * (count - 1)], as_.edx);
  }
}

std::optional<int> Emitter::constant_lanes(const Inst& inst, int lanes) {
  if (inst.op != LeafOp::k_mask_tail || inst.var >= 0 || inst.extent.arg != Extent::kConst) return {};
  return static_cast<int>(std::clamp<int64_t>(inst.extent.add - inst.var_add, 0, lanes));
}

void Emitter::find_constant_masks(const Nodes& body) {
  for (const Node& n : body) {
    if (n.kind == Node::Kind::inst && leaf_op_kind(n.inst.op) == LeafOpKind::kMask) {
      const std::optional<int> lanes = constant_lanes(n.inst, shape_.lanes);
      int8_t& known = mask_lanes_[static_cast<size_t>(n.inst.dst)];
      known = lanes && (known == kUnsetLanes || known == *lanes) ? static_cast<int8_t>(*lanes) : kAnyLanes;
    }
    find_constant_masks(n.body);
  }
}

// Past the caches, or plainly where the address is not a multiple of the bytes stored.
void Emitter::store_stream(const RegExp& to, const Xmm& value) {
  Label plain, done;
  as_.lea(as_.rax, as_.ptr[to]);
  as_.test(as_.al, 4 * shape_.lanes - 1);
  as_.jne(plain, as_.T_SHORT);
  as_.vmovntps(as_.ptr[as_.rax], value);
  as_.jmp(done, as_.T_SHORT);
  as_.L(plain);
  as_.vmovups(as_.ptr[as_.rax], value);
  as_.L(done);
}

// Lanes below extent - (var + var_add), that difference clamped to 0 .. lanes.
void Emitter::mask_tail(const Inst& inst) {
  if (const std::optional<int> lanes = constant_lanes(inst, shape_.lanes)) return constant_mask(inst.dst, *lanes);
  Extent extent = inst.extent;
  extent.add -= inst.var_add;
  load_extent(as_.rax, extent);
  if (inst.var >= 0) as_.sub(as_.rax, general(a_.var_id(inst.var), as_.rdx));
  as_.mov(as_.edx, shape_.lanes);
  as_.cmp(as_.rax, as_.rdx);
  as_.cmovg(as_.rax, as_.rdx);
  as_.xor_(as_.edx, as_.edx);
  as_.test(as_.rax, as_.rax);
  as_.cmovs(as_.rax, as_.rdx);
  if (shape_.evex) {
    use(kCpu_avx512f | kCpu_bmi2);
    as_.dec(as_.edx);
    as_.bzhi(as_.eax, as_.edx, as_.eax);
    as_.kmovw(mask_k(inst.dst), as_.eax);
  } else {
    use(kCpu_avx2);
    const Xmm to = mask_vec(inst.dst);
    const Xmm low = sized(to.getIdx(), 4);
    as_.vmovd(low, as_.eax);
    as_.vpbroadcastd(to, low);
    as_.vpcmpgtd(to, to, as_.iota_constant());
  }
}

void Emitter::constant_mask(int mask, int lanes) {
  if (shape_.evex) {
    use(kCpu_avx512f);
    as_.mov(as_.eax, (1 << lanes) - 1);
    as_.kmovw(mask_k(mask), as_.eax);
  } else {
    use(kCpu_avx2);
    const Xmm to = mask_vec(mask);
    as_.vbroadcastss(to, as_.scalar_constant(static_cast<uint32_t>(lanes)));
    as_.vpcmpgtd(to, to, as_.iota_constant());
  }
}

void Emitter::extent_f32(const Inst& inst) {
  const Xmm to = vec(inst.dst);
  const Xmm low = sized(to.getIdx(), 4);
  load_extent(as_.rax, inst.extent);
  constant(to, 0);  // vcvtsi2ss keeps the upper lanes: break the dependence
  as_.vcvtsi2ss(low, low, as_.rax);
  as_.vbroadcastss(to, low);
  use(kCpu_avx2);
}

void Emitter::index_i32(const Inst& inst) {
  const Xmm to = vec(inst.dst);
  use(kCpu_avx2);
  const bool fixed = inst.extent.arg == Extent::kConst;
  if (inst.var < 0 && fixed) {
    constant(to, static_cast<uint32_t>(inst.extent.add));
  } else {
    Reg64 at = as_.rax;
    if (fixed && inst.extent.add == 0) {
      at = general(a_.var_id(inst.var), as_.rax);
    } else {
      load_extent(as_.rax, inst.extent);
      if (inst.var >= 0) as_.add(as_.rax, general(a_.var_id(inst.var), as_.rdx));
    }
    const Xmm low = sized(to.getIdx(), 4);
    if (!shape_.evex) as_.vmovd(low, at.cvt32());
    shape_.evex ? as_.vpbroadcastd(to, at.cvt32()) : as_.vpbroadcastd(to, low);
  }
  if (inst.imm != 0) as_.vpaddd(to, to, as_.iota_constant(shape_.lanes));
}

}  // namespace lathe::jit::x64
