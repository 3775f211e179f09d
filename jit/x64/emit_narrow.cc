// Loads and stores whose elements in memory are not lanes: mem_types.def. AVX-512 converts on the way and masks; below
// it masked elements come and go one by one, since no byte of a dead lane may be touched.
#include "jit/x64/emitter.h"

namespace lathe::jit::x64 {

static int bytes_of(MemType type) { return kMemTypeBytes[static_cast<int>(type)]; }

void Emitter::widen(MemType type, const Xmm& to, const Operand& from) {
  switch (type) {
    case MemType::u8:
      return as_.vpmovzxbd(to, from);
    case MemType::i8:
      return as_.vpmovsxbd(to, from);
    case MemType::u16:
      return as_.vpmovzxwd(to, from);
    case MemType::bf16:
      as_.vpmovzxwd(to, from);
      return as_.vpslld(physical(to.getIdx()), physical(to.getIdx()), 16);
    default:
      use(kCpu_f16c);
      return as_.vcvtph2ps(to, from);
  }
}

void Emitter::load_one(MemType type, const Xmm& to, const RegExp& from) {
  const Xmm low = sized(to.getIdx(), 4);
  switch (type) {
    case MemType::b64:
      if (shape_.lanes == 4) return as_.vmovddup(to, as_.qword[from]);
      return shape_.lanes == 16 ? as_.vbroadcastsd(Zmm(to.getIdx()), as_.qword[from])
                                : as_.vbroadcastsd(Ymm(to.getIdx()), as_.qword[from]);
    case MemType::u8:
      as_.movzx(as_.eax, as_.byte[from]);
      break;
    case MemType::i8:
      as_.movsx(as_.eax, as_.byte[from]);
      break;
    default:
      as_.movzx(as_.eax, as_.word[from]);
  }
  if (type == MemType::bf16) as_.shl(as_.eax, 16);
  as_.vmovd(low, as_.eax);
  if (type == MemType::f16) {
    use(kCpu_f16c | (shape_.evex ? uint64_t{kCpu_avx512vl} : 0));
    as_.vcvtph2ps(low, low);
  }
  as_.vpbroadcastd(to, low);
}

void Emitter::load_narrow(const Inst& inst, const Xmm& to, const RegExp& from) {
  use(kCpu_avx2);
  if (inst.op == LeafOp::k_load_bcast) return load_one(inst.type, to, from);
  if (inst.mask < 0 && inst.type == MemType::bf16 && shape_.lanes == 8 && !shape_.evex) {
    // One shuffle in place of two operations.
    as_.vbroadcasti128(Ymm(to.getIdx()), as_.ptr[from]);
    return as_.vpshufb(to, to, as_.pack_constant(Assembler::Pack::spread));
  }
  if (inst.mask < 0 && inst.type == MemType::bf16 && a_.spread >= 0) {
    // A load and a permutation in place of a permutation and a shift.
    use(kCpu_avx512bw);
    as_.vmovups(sized(to.getIdx(), 8), as_.ptr[from]);
    return as_.vpermw(to, physical(a_.spread), to);
  }
  if (inst.mask < 0) return widen(inst.type, to, as_.ptr[from]);
  if (shape_.evex) return widen(inst.type, to | mask_k(inst.mask) | as_.T_z, as_.ptr[from]);
  const Xmm low = sized(to.getIdx(), 4);
  as_.lea(as_.rax, as_.ptr[from]);
  as_.vmovmskps(as_.edx, mask_vec(inst.mask));
  as_.vpxor(low, low, low);
  for (int lane = 0; lane < shape_.lanes; ++lane) {
    Label dead;
    as_.bt(as_.edx, lane);
    as_.jnc(dead, as_.T_SHORT);
    if (bytes_of(inst.type) == 1) {
      as_.vpinsrb(low, low, as_.byte[as_.rax + lane], lane);
    } else {
      as_.vpinsrw(low, low, as_.word[as_.rax + 2 * lane], lane);
    }
    as_.L(dead);
  }
  widen(inst.type, to, low);
}

void Emitter::narrow(MemType type, const Operand& to, const Xmm& value) {
  if (type == MemType::f16) return as_.vcvtps2ph(to, value, 0);
  return bytes_of(type) == 1 ? as_.vpmovdb(to, value) : as_.vpmovdw(to, value);
}

// The upper half of each lane of `to`: value to nearest even, NaN where it is NaN. some_nan: it may be one that
// rounding makes a number.
void Emitter::round_to_bf16(const Xmm& to, const Xmm& other, const Xmm& value, bool some_nan) {
  constexpr int kUnord = 3;
  as_.vpsrld(to, value, 16);
  if (shape_.evex) {
    use(kCpu_avx512dq);
    as_.vpandd(to, to, as_.broadcast_constant(1));
    as_.vpaddd(to, to, value);
    as_.vpaddd(to, to, as_.broadcast_constant(0x7fff));
    if (!some_nan) return;
    as_.vcmpps(as_.k0, value, value, kUnord);
    as_.vpmovm2d(other, as_.k0);
    as_.vpord(to, to, other);
  } else {
    as_.vpand(to, to, as_.wide_constant(1));
    as_.vpaddd(to, to, value);
    as_.vpaddd(to, to, as_.wide_constant(0x7fff));
    if (!some_nan) return;
    as_.vcmpps(other, value, value, kUnord);
    as_.vpor(to, to, other);
  }
}

// AVX-512: value plus what rounds its upper half to nearest even.
void Emitter::add_half(const Xmm& to, const Xmm& value) {
  const Opmask odd(free_mask_);
  as_.vpaddd(to, value, as_.broadcast_constant(0x7fff));
  as_.vptestmd(odd, value, as_.broadcast_constant(1 << 16));
  as_.vpaddd(to | odd, to, as_.broadcast_constant(1));
}

// The instruction that makes `rounded` of `values` makes 0 of denormals: if there is one, all lanes go another way. One
// look at what is 0 takes less than one at each value, and is enough where nothing is.
Emitter::Aside& Emitter::where_denormal(const Xmm& rounded, const Xmm& scratch, std::vector<Xmm> values,
                                        std::function<void()> slow) {
  constexpr int kDenormal = 0x20;
  use(kCpu_avx512bw | kCpu_avx512dq | (rounded.isZMM() ? 0 : uint64_t{kCpu_avx512vl}));
  Aside& out = aside({});
  out.emit = [this, &out, values = std::move(values), slow = std::move(slow)] {
    Label some;
    for (const Xmm& value : values) {
      as_.vfpclassps(as_.k0, value, kDenormal);
      as_.kortestw(as_.k0, as_.k0);
      as_.jnz(some, as_.T_NEAR);
    }
    as_.jmp(out.none, as_.T_NEAR);
    as_.L(some);
    slow();
  };
  as_.vpbroadcastd(scratch, as_.scalar_constant(0x7fff7fff));  // all but the signs
  as_.vptestnmw(as_.k0, rounded, scratch);
  as_.kortestd(as_.k0, as_.k0);
  as_.jnz(out.start, as_.T_NEAR);
  as_.L(out.none);
  return out;
}

// The last temporaries are those of packing: the ones before hold sources.
Xmm Emitter::packed(const Item& item, const Xmm& value) {
  using Pack = Assembler::Pack;
  const MemType type = item.node->inst.type;
  const Xmm temp = vec(item.temp + item.num_temps - 1);
  const Xmm elements = sized(temp.getIdx(), shape_.lanes == 16 ? 8 : 4);
  if (shape_.evex) use(kCpu_avx512vl);
  if (type == MemType::bf16) {
    const Xmm other = vec(item.temp + item.num_temps - 2);
    const uint8_t known = low_halves_[static_cast<size_t>(item.node->inst.src[0])];
    const bool exact = (known & kZero) != 0, some_nan = (known & kZeroIfNan) == 0;
    if (!shape_.evex) {
      use(kCpu_avx2);
      if (!exact) round_to_bf16(temp, other, value, some_nan);
      as_.vpshufb(temp, exact ? value : temp, as_.pack_constant(Pack::high_halves));
      as_.vpermq(Ymm(temp.getIdx()), Ymm(temp.getIdx()), 0x08);
      return elements;
    }
    // No NaN is lost: three operations, and one that takes every second half.
    const bool adds_masked = !some_nan && free_mask_ > 0;
    if (exact || adds_masked) {
      use(kCpu_avx512bw);
      if (!exact) add_half(temp, value);
      as_.vmovups(sized(other.getIdx(), shape_.lanes / 2), as_.pack_constant(Pack::odd_halves));
      as_.vpermw(temp, other, exact ? value : temp);
      return elements;
    }
    const auto by_shifting = [=, this] {
      round_to_bf16(temp, other, value, some_nan);
      as_.vpsrld(temp, temp, 16);
      as_.vpmovdw(elements, temp);
    };
    if (!p_.has(kCpu_avx512bf16)) {
      by_shifting();
      return elements;
    }
    use(kCpu_avx512bf16);
    as_.vcvtneps2bf16(elements, value);
    as_.L(where_denormal(elements, sized(other.getIdx(), shape_.lanes / 2), {value}, by_shifting).back);
    return elements;
  }
  if (shape_.evex || type == MemType::f16) {
    use(kCpu_f16c);
    narrow(type, elements, value);
    return elements;
  }
  use(kCpu_avx2);
  const bool bytes = bytes_of(type) == 1;
  as_.vpshufb(temp, value, as_.pack_constant(bytes ? Pack::bytes : Pack::low_halves));
  as_.vpermq(Ymm(temp.getIdx()), Ymm(temp.getIdx()), 0x08);
  if (bytes) as_.vpshufd(elements, elements, 0x08);
  return elements;
}

// One element, by way of a general register or of memory below the stack: no vector register need be free here, but for
// bf16.
void Emitter::store_one(const Item& item, const Xmm& value, const RegExp& to) {
  const MemType type = item.node->inst.type;
  const Xmm low = sized(value.getIdx(), 4);
  if (type == MemType::b64) return as_.vmovsd(as_.qword[to], low);
  as_.lea(as_.rax, as_.ptr[to]);
  if (type == MemType::f16) {
    use(kCpu_f16c | (shape_.evex ? uint64_t{kCpu_avx512vl} : 0));
    as_.vcvtps2ph(as_.qword[as_.rsp - 16], low, 0);
    as_.mov(as_.edx, as_.dword[as_.rsp - 16]);
  } else {
    as_.vmovd(as_.edx, type == MemType::bf16 ? sized(packed(item, value).getIdx(), 4) : low);
  }
  if (bytes_of(type) == 1) return as_.mov(as_.byte[as_.rax], as_.dl);
  as_.mov(as_.word[as_.rax], as_.dx);
}

// Two vectors, the first of which the item's pair has; both by two instructions where one of them need not be rounded.
void Emitter::store_pair(const Item& item, const Xmm& second) {
  constexpr int kLine = 64;
  const Inst& inst = item.node->inst;
  Item before = a_.items[static_cast<size_t>(item.pair)];
  before.temp = item.temp;
  before.num_temps = item.num_temps;
  const Inst& first_inst = before.node->inst;
  const Xmm first = vec(first_inst.src[0]);
  const auto known = [&](const Inst& i) { return low_halves_[static_cast<size_t>(i.src[0])]; };
  if (((known(first_inst) | known(inst)) & kZero) != 0) {
    store_narrow(before, first, address(first_inst.mem));
    return store_narrow(item, second, address(inst.mem));
  }
  use(kCpu_avx512bf16);
  const RegExp to = address(first_inst.mem);
  const Xmm both = vec(item.temp + item.num_temps - 1), other = vec(item.temp + item.num_temps - 2);
  const Xmm half = sized(both.getIdx(), 8);
  const bool first_nan = (known(first_inst) & kZeroIfNan) == 0, second_nan = (known(inst) & kZeroIfNan) == 0;
  as_.vcvtne2ps2bf16(both, second, first);
  Aside& slow = where_denormal(both, other, {first, second}, [=, this] {
    for (const bool later : {false, true}) {
      round_to_bf16(both, other, later ? second : first, later ? second_nan : first_nan);
      as_.vpsrld(both, both, 16);
      as_.vpmovdw(half, both);
      as_.vmovups(as_.ptr[later ? to + kLine / 2 : to], half);
    }
  });
  if (inst.op == LeafOp::k_store_stream) {
    as_.lea(as_.rax, as_.ptr[to]);
    as_.test(as_.al, kLine - 1);
    Aside& plain = aside([=, this] { as_.vmovups(as_.ptr[as_.rax], both); });
    as_.jne(plain.start, as_.T_NEAR);
    as_.vmovntps(as_.ptr[as_.rax], both);
    as_.L(plain.back);
  } else {
    as_.vmovups(as_.ptr[to], both);
  }
  as_.L(slow.back);
}

void Emitter::store_narrow(const Item& item, const Xmm& value, const RegExp& to) {
  const Inst& inst = item.node->inst;
  const int bytes = bytes_of(inst.type);
  if (inst.op == LeafOp::k_store_lane0) return store_one(item, value, to);
  if (shape_.evex && inst.op == LeafOp::k_store && inst.type != MemType::bf16) {
    if (inst.type == MemType::f16) use(kCpu_f16c);
    return inst.mask < 0 ? narrow(inst.type, as_.ptr[to], value)
                         : narrow(inst.type, as_.ptr[to] | mask_k(inst.mask), value);
  }
  const Xmm elements = packed(item, value);
  if (inst.op == LeafOp::k_store_stream) {
    // Several stores a line: the way they go has no jump.
    as_.lea(as_.rax, as_.ptr[to]);
    as_.test(as_.al, bytes * shape_.lanes - 1);
    Aside& plain = aside([=, this] { as_.vmovups(as_.ptr[as_.rax], elements); });
    as_.jne(plain.start, as_.T_NEAR);
    as_.vmovntps(as_.ptr[as_.rax], elements);
    as_.L(plain.back);
    return;
  }
  if (inst.mask < 0) return bytes == 1 ? as_.vmovq(as_.qword[to], elements) : as_.vmovups(as_.ptr[to], elements);
  if (shape_.evex) {
    use(kCpu_avx512bw | kCpu_avx512vl);
    return as_.vmovdqu16(as_.ptr[to] | mask_k(inst.mask), elements);
  }
  as_.lea(as_.rax, as_.ptr[to]);
  as_.vmovmskps(as_.edx, mask_vec(inst.mask));
  for (int lane = 0; lane < shape_.lanes; ++lane) {
    Label dead;
    as_.bt(as_.edx, lane);
    as_.jnc(dead, as_.T_SHORT);
    if (bytes == 1) {
      as_.vpextrb(as_.byte[as_.rax + lane], elements, lane);
    } else {
      as_.vpextrw(as_.word[as_.rax + 2 * lane], elements, lane);
    }
    as_.L(dead);
  }
}

}  // namespace lathe::jit::x64
