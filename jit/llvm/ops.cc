// One emitter per row of jit/program/leaf_ops.def, reached through a table made of that file: a row without
// an emitter does not link.
#include "jit/llvm/ops.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>

#include <array>

namespace lathe::jit {
using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

OpContext::OpContext(llvm::IRBuilder<>& b, const LeafProgram& p) : builder(b), program(p), lanes(p.lanes) {}

llvm::Type* OpContext::float_type(int n) const {
  return llvm::FixedVectorType::get(builder.getFloatTy(), static_cast<unsigned>(n));
}
llvm::Type* OpContext::int_type(int n) const {
  return llvm::FixedVectorType::get(builder.getInt32Ty(), static_cast<unsigned>(n));
}
llvm::Type* OpContext::mask_type() const {
  return avx512() ? llvm::FixedVectorType::get(builder.getInt1Ty(), static_cast<unsigned>(lanes)) : int_type(lanes);
}
Value* OpContext::splat_bits(uint32_t bits) const { return llvm::ConstantInt::get(int_type(lanes), bits); }

namespace {

constexpr int kCurrentRounding = 4;  // _MM_FROUND_CUR_DIRECTION

Value* call(OpContext& c, Intrinsic::ID id, std::initializer_list<Value*> args) {
  auto* module = c.builder.GetInsertBlock()->getModule();
  return c.builder.CreateCall(Intrinsic::getDeclaration(module, id), llvm::ArrayRef<Value*>(args));
}
Value* unary(OpContext& c, Intrinsic::ID id, const Inst& i) {
  return c.builder.CreateUnaryIntrinsic(id, c.vector(i.src[0]));
}
Value* to_int(OpContext& c, Value* v) { return c.builder.CreateBitCast(v, c.int_type(c.lanes)); }
Value* to_float(OpContext& c, Value* v) { return c.builder.CreateBitCast(v, c.float_type(c.lanes)); }
Value* int_source(OpContext& c, const Inst& i, int n) { return to_int(c, c.vector(i.src[n])); }
Value* splat(OpContext& c, Value* scalar) {
  return c.builder.CreateVectorSplat(static_cast<unsigned>(c.lanes), scalar);
}

// vminps/vmaxps of 4, 8 or 16 lanes: the second operand if either is NaN or both are zero.
Value* x86_min_max(OpContext& c, bool max, Value* a, Value* b) {
  const auto lanes = llvm::cast<llvm::FixedVectorType>(a->getType())->getNumElements();
  if (lanes == 4) return call(c, max ? Intrinsic::x86_sse_max_ps : Intrinsic::x86_sse_min_ps, {a, b});
  if (lanes == 8) return call(c, max ? Intrinsic::x86_avx_max_ps_256 : Intrinsic::x86_avx_min_ps_256, {a, b});
  return call(c, max ? Intrinsic::x86_avx512_max_ps_512 : Intrinsic::x86_avx512_min_ps_512,
              {a, b, c.builder.getInt32(kCurrentRounding)});
}

// Halves combined, low half first, down to one lane; then that lane everywhere. Below four lanes
// whole 128-bit registers are combined and only lane 0 counts.
template <class Combine>
Value* reduce(OpContext& c, const Inst& i, Combine combine) {
  Value* v = c.vector(i.src[0]);
  for (int half = c.lanes / 2; half >= 1; half /= 2) {
    const int width = std::max(half, 4);
    std::vector<int> low, high;
    for (int l = 0; l < width; ++l) {
      low.push_back(l);
      high.push_back(l < half ? l + half : -1);
    }
    Value* upper = c.builder.CreateShuffleVector(v, high);
    Value* lower = half >= 4 ? c.builder.CreateShuffleVector(v, low) : v;
    v = combine(lower, upper);
  }
  return c.builder.CreateShuffleVector(v, std::vector<int>(static_cast<size_t>(c.lanes), 0));
}

// Within each 128-bit lane: element `pick[e]` of src0 (0..3) or src1 (4..7).
Value* within_128(OpContext& c, const Inst& i, std::array<int, 4> pick) {
  std::vector<int> mask;
  for (int base = 0; base < c.lanes; base += 4) {
    for (int p : pick) mask.push_back(p < 4 ? base + p : c.lanes + base + p - 4);
  }
  return c.builder.CreateShuffleVector(c.vector(i.src[0]), c.vector(i.src[1]), mask);
}

Value* to_mask(OpContext& c, Value* bits) { return c.avx512() ? bits : c.builder.CreateSExt(bits, c.mask_type()); }
Value* compare(OpContext& c, const Inst& i, llvm::CmpInst::Predicate predicate) {
  return to_mask(c, c.builder.CreateFCmp(predicate, c.vector(i.src[0]), c.vector(i.src[1])));
}

using llvm::CmpInst;

// Elements in memory, one or a vector of them.
llvm::Type* memory_type(OpContext& c, MemType type, bool many) {
  auto& b = c.builder;
  llvm::Type* one = type == MemType::b32                            ? b.getFloatTy()
                    : type == MemType::f16                          ? b.getHalfTy()
                    : kMemTypeBytes[static_cast<size_t>(type)] == 2 ? b.getInt16Ty()
                    : type == MemType::b64                          ? b.getInt64Ty()
                                                                    : b.getInt8Ty();
  return many ? llvm::FixedVectorType::get(one, static_cast<unsigned>(c.lanes)) : one;
}
llvm::Align memory_align(MemType type) { return llvm::Align(kMemTypeBytes[static_cast<size_t>(type)]); }
// What an element becomes in a lane, and a lane in memory.
Value* widened(OpContext& c, MemType type, Value* v, bool many) {
  auto& b = c.builder;
  if (type == MemType::b32) return v;
  llvm::Type* floats = many ? c.float_type(c.lanes) : b.getFloatTy();
  if (type == MemType::f16) return b.CreateFPExt(v, floats);
  llvm::Type* ints = many ? c.int_type(c.lanes) : b.getInt32Ty();
  if (type == MemType::bf16) return b.CreateBitCast(b.CreateShl(b.CreateZExt(v, ints), 16), floats);
  return b.CreateBitCast(type == MemType::i8 ? b.CreateSExt(v, ints) : b.CreateZExt(v, ints), floats);
}
Value* narrowed(OpContext& c, MemType type, Value* v, bool many) {
  auto& b = c.builder;
  if (type == MemType::b32) return v;
  llvm::Type* to = memory_type(c, type, many);
  if (type == MemType::f16) return b.CreateFPTrunc(v, to);
  Value* bits = b.CreateBitCast(v, many ? c.int_type(c.lanes) : b.getInt32Ty());
  if (type == MemType::bf16) {  // nearest even; NaN keeps the top of its payload and is quiet
    const auto number = [&](uint32_t n) { return llvm::ConstantInt::get(bits->getType(), n); };
    Value* odd = b.CreateAnd(b.CreateLShr(bits, number(16)), number(1));
    Value* up = b.CreateAdd(b.CreateAdd(bits, number(0x7fff)), odd);
    bits = b.CreateSelect(b.CreateFCmpUNO(v, v), b.CreateOr(bits, number(0x400000)), up);
    bits = b.CreateLShr(bits, number(16));
  }
  return b.CreateTrunc(bits, to);
}
Value* lanes_on(OpContext& c, const Inst& i) {
  Value* mask = c.mask(i.mask);
  return c.avx512() ? mask : c.builder.CreateICmpNE(mask, llvm::Constant::getNullValue(mask->getType()));
}

Value* emit_load(OpContext& c, const Inst& i) {
  Value* p = c.address(i.mem);
  llvm::Type* type = memory_type(c, i.type, true);
  const llvm::Align align = memory_align(i.type);
  if (i.mask < 0) return widened(c, i.type, c.builder.CreateAlignedLoad(type, p, align), true);
  if (i.type == MemType::b32 && !c.avx512()) return call(c, Intrinsic::x86_avx_maskload_ps_256, {p, c.mask(i.mask)});
  Value* zero = llvm::Constant::getNullValue(type);
  return widened(c, i.type, c.builder.CreateMaskedLoad(type, p, align, lanes_on(c, i), zero), true);
}
Value* emit_load_bcast(OpContext& c, const Inst& i) {
  Value* one = c.builder.CreateAlignedLoad(memory_type(c, i.type, false), c.address(i.mem), memory_align(i.type));
  if (i.type != MemType::b64) return splat(c, widened(c, i.type, one, false));
  Value* pairs = c.builder.CreateVectorSplat(static_cast<unsigned>(c.lanes / 2), one);
  return c.builder.CreateBitCast(pairs, c.float_type(c.lanes));
}
Value* emit_store(OpContext& c, const Inst& i) {
  Value* p = c.address(i.mem);
  Value* v = narrowed(c, i.type, c.vector(i.src[0]), true);
  const llvm::Align align = memory_align(i.type);
  if (i.mask < 0) {
    c.builder.CreateAlignedStore(v, p, align);
  } else if (i.type == MemType::b32 && !c.avx512()) {
    call(c, Intrinsic::x86_avx_maskstore_ps_256, {p, c.mask(i.mask), v});
  } else {
    c.builder.CreateMaskedStore(v, p, align, lanes_on(c, i));
  }
  return nullptr;
}
Value* emit_store_stream(OpContext& c, const Inst& i) {
  const auto bytes = static_cast<uint64_t>(c.lanes) * memory_align(i.type).value();
  Value *p = c.address(i.mem), *v = narrowed(c, i.type, c.vector(i.src[0]), true);
  llvm::Function* function = c.builder.GetInsertBlock()->getParent();
  const auto block = [&](const char* name) { return llvm::BasicBlock::Create(c.builder.getContext(), name, function); };
  llvm::BasicBlock *past = block("past"), *plain = block("plain"), *done = block("stored");
  Value* address = c.builder.CreatePtrToInt(p, c.builder.getInt64Ty());
  Value* odd = c.builder.CreateAnd(address, c.builder.getInt64(bytes - 1));
  c.builder.CreateCondBr(c.builder.CreateIsNull(odd), past, plain);
  c.builder.SetInsertPoint(past);
  auto* store = c.builder.CreateAlignedStore(v, p, llvm::Align(bytes));
  auto* one = llvm::ConstantAsMetadata::get(c.builder.getInt32(1));
  store->setMetadata("nontemporal", llvm::MDNode::get(c.builder.getContext(), one));
  c.builder.CreateBr(done);
  c.builder.SetInsertPoint(plain);
  c.builder.CreateAlignedStore(v, p, memory_align(i.type));
  c.builder.CreateBr(done);
  c.builder.SetInsertPoint(done);
  return nullptr;
}
Value* emit_store_lane0(OpContext& c, const Inst& i) {
  Value* v = c.vector(i.src[0]);
  if (i.type == MemType::b64) {
    v = c.builder.CreateBitCast(v,
                                llvm::FixedVectorType::get(c.builder.getInt64Ty(), static_cast<unsigned>(c.lanes / 2)));
  }
  Value* lane = c.builder.CreateExtractElement(v, uint64_t{0});
  if (i.type != MemType::b64) lane = narrowed(c, i.type, lane, false);
  c.builder.CreateAlignedStore(lane, c.address(i.mem), memory_align(i.type));
  return nullptr;
}
Value* emit_constant(OpContext& c, const Inst& i) {
  return llvm::ConstantExpr::getBitCast(llvm::cast<llvm::Constant>(c.splat_bits(i.imm)), c.float_type(c.lanes));
}
Value* emit_extent_f32(OpContext& c, const Inst& i) {
  return splat(c, c.builder.CreateSIToFP(c.extent(i.extent), c.builder.getFloatTy()));
}
Value* emit_index_i32(OpContext& c, const Inst& i) {
  std::vector<uint32_t> lanes;
  for (int l = 0; l < c.lanes; ++l) lanes.push_back(static_cast<uint32_t>(l) * i.imm);
  Value* index = c.builder.CreateAdd(c.extent(i.extent), c.var(i.var));
  Value* at = splat(c, c.builder.CreateTrunc(index, c.builder.getInt32Ty()));
  return to_float(c, c.builder.CreateAdd(at, llvm::ConstantDataVector::get(c.builder.getContext(), lanes)));
}
Value* emit_move(OpContext& c, const Inst& i) { return c.vector(i.src[0]); }
Value* emit_add(OpContext& c, const Inst& i) { return c.builder.CreateFAdd(c.vector(i.src[0]), c.vector(i.src[1])); }
Value* emit_sub(OpContext& c, const Inst& i) { return c.builder.CreateFSub(c.vector(i.src[0]), c.vector(i.src[1])); }
Value* emit_mul(OpContext& c, const Inst& i) { return c.builder.CreateFMul(c.vector(i.src[0]), c.vector(i.src[1])); }
Value* emit_div(OpContext& c, const Inst& i) { return c.builder.CreateFDiv(c.vector(i.src[0]), c.vector(i.src[1])); }
Value* emit_fma(OpContext& c, const Inst& i) {
  return c.builder.CreateIntrinsic(Intrinsic::fma, {c.float_type(c.lanes)},
                                   {c.vector(i.src[0]), c.vector(i.src[1]), c.vector(i.src[2])});
}
Value* emit_fnma(OpContext& c, const Inst& i) {
  return c.builder.CreateIntrinsic(Intrinsic::fma, {c.float_type(c.lanes)},
                                   {c.builder.CreateFNeg(c.vector(i.src[0])), c.vector(i.src[1]), c.vector(i.src[2])});
}
Value* emit_min(OpContext& c, const Inst& i) { return x86_min_max(c, false, c.vector(i.src[0]), c.vector(i.src[1])); }
Value* emit_max(OpContext& c, const Inst& i) { return x86_min_max(c, true, c.vector(i.src[0]), c.vector(i.src[1])); }
Value* emit_sqrt(OpContext& c, const Inst& i) { return unary(c, Intrinsic::sqrt, i); }
Value* emit_round(OpContext& c, const Inst& i) { return unary(c, Intrinsic::roundeven, i); }
Value* emit_floor(OpContext& c, const Inst& i) { return unary(c, Intrinsic::floor, i); }
Value* emit_scalef(OpContext& c, const Inst& i) {
  Value *a = c.vector(i.src[0]), *b = c.vector(i.src[1]);
  if (c.lanes == 16) {
    return call(c, Intrinsic::x86_avx512_mask_scalef_ps_512,
                {a, b, a, c.builder.getInt16(0xffff), c.builder.getInt32(kCurrentRounding)});
  }
  return call(c, Intrinsic::x86_avx512_mask_scalef_ps_256, {a, b, a, c.builder.getInt8(0xff)});
}
Value* emit_bit_and(OpContext& c, const Inst& i) {
  return to_float(c, c.builder.CreateAnd(int_source(c, i, 0), int_source(c, i, 1)));
}
Value* emit_bit_or(OpContext& c, const Inst& i) {
  return to_float(c, c.builder.CreateOr(int_source(c, i, 0), int_source(c, i, 1)));
}
Value* emit_bit_xor(OpContext& c, const Inst& i) {
  return to_float(c, c.builder.CreateXor(int_source(c, i, 0), int_source(c, i, 1)));
}
Value* emit_bit_andnot(OpContext& c, const Inst& i) {
  return to_float(c, c.builder.CreateAnd(c.builder.CreateNot(int_source(c, i, 0)), int_source(c, i, 1)));
}
Value* emit_shift_left(OpContext& c, const Inst& i) {
  if (i.imm > 31) return llvm::Constant::getNullValue(c.float_type(c.lanes));
  return to_float(c, c.builder.CreateShl(int_source(c, i, 0), c.splat_bits(i.imm)));
}
Value* emit_shift_right(OpContext& c, const Inst& i) {
  if (i.imm > 31) return llvm::Constant::getNullValue(c.float_type(c.lanes));
  return to_float(c, c.builder.CreateLShr(int_source(c, i, 0), c.splat_bits(i.imm)));
}
Value* emit_shift_right_arith(OpContext& c, const Inst& i) {
  return to_float(c, c.builder.CreateAShr(int_source(c, i, 0), c.splat_bits(std::min(i.imm, 31u))));
}
Value* emit_iadd(OpContext& c, const Inst& i) {
  return to_float(c, c.builder.CreateAdd(int_source(c, i, 0), int_source(c, i, 1)));
}
Value* emit_isub(OpContext& c, const Inst& i) {
  return to_float(c, c.builder.CreateSub(int_source(c, i, 0), int_source(c, i, 1)));
}
Value* emit_imul(OpContext& c, const Inst& i) {
  return to_float(c, c.builder.CreateMul(int_source(c, i, 0), int_source(c, i, 1)));
}
// Without the instruction, bytes as halves: two products of a pair fit 32 bits.
Value* emit_imin(OpContext& c, const Inst& i) {
  return to_float(c, c.builder.CreateBinaryIntrinsic(Intrinsic::smin, int_source(c, i, 0), int_source(c, i, 1)));
}
Value* emit_dot4_u8s8(OpContext& c, const Inst& i) {
  auto& b = c.builder;
  const bool wide = c.lanes == 16;
  Value *x = int_source(c, i, 0), *y = int_source(c, i, 1), *sum = int_source(c, i, 2);
  if (dot4_feature(c.program.features()) != 0) {
    return to_float(
        c, call(c, wide ? Intrinsic::x86_avx512_vpdpbusd_512 : Intrinsic::x86_avx512_vpdpbusd_256, {sum, x, y}));
  }
  auto* halves = llvm::FixedVectorType::get(b.getInt16Ty(), static_cast<unsigned>(2 * c.lanes));
  const auto number = [&](uint64_t n) { return llvm::ConstantInt::get(halves, n); };
  const auto pairs = [&](Value* u, Value* s) {
    return call(c, wide ? Intrinsic::x86_avx512_pmaddw_d_512 : Intrinsic::x86_avx2_pmadd_wd, {u, s});
  };
  x = b.CreateBitCast(x, halves);
  y = b.CreateBitCast(y, halves);
  Value* odd = pairs(b.CreateLShr(x, number(8)), b.CreateAShr(y, number(8)));
  Value* even = pairs(b.CreateAnd(x, number(0xff)), b.CreateAShr(b.CreateShl(y, number(8)), number(8)));
  return to_float(c, b.CreateAdd(b.CreateAdd(sum, odd), even));
}
Value* emit_dot2_bf16(OpContext& c, const Inst& i) {
  auto* pairs = llvm::FixedVectorType::get(c.builder.getBFloatTy(), static_cast<unsigned>(2 * c.lanes));
  const auto halves = [&](int s) { return c.builder.CreateBitCast(c.vector(i.src[s]), pairs); };
  return call(c, c.lanes == 16 ? Intrinsic::x86_avx512bf16_dpbf16ps_512 : Intrinsic::x86_avx512bf16_dpbf16ps_256,
              {c.vector(i.src[2]), halves(0), halves(1)});
}
Value* emit_cvt_f32_i32(OpContext& c, const Inst& i) {
  Value* v = c.vector(i.src[0]);
  if (c.lanes == 8) return to_float(c, call(c, Intrinsic::x86_avx_cvt_ps2dq_256, {v}));
  return to_float(c, call(c, Intrinsic::x86_avx512_mask_cvtps2dq_512,
                          {v, to_int(c, v), c.builder.getInt16(0xffff), c.builder.getInt32(kCurrentRounding)}));
}
Value* emit_cvt_i32_f32(OpContext& c, const Inst& i) {
  return c.builder.CreateSIToFP(int_source(c, i, 0), c.float_type(c.lanes));
}
Value* emit_cmp_lt(OpContext& c, const Inst& i) { return compare(c, i, CmpInst::FCMP_OLT); }
Value* emit_cmp_le(OpContext& c, const Inst& i) { return compare(c, i, CmpInst::FCMP_OLE); }
Value* emit_cmp_eq(OpContext& c, const Inst& i) { return compare(c, i, CmpInst::FCMP_OEQ); }
Value* emit_cmp_ne(OpContext& c, const Inst& i) { return compare(c, i, CmpInst::FCMP_UNE); }
Value* emit_cmp_unord(OpContext& c, const Inst& i) { return compare(c, i, CmpInst::FCMP_UNO); }
Value* emit_mask_tail(OpContext& c, const Inst& i) {
  auto& b = c.builder;
  Value* index = b.CreateAdd(c.var(i.var), b.getInt64(static_cast<uint64_t>(i.var_add)));
  Value* rest = b.CreateSub(c.extent(i.extent), index);
  // Choices, which the builder folds where the rest is known: bytes under a mask that is not are a branch each.
  Value *lanes = b.getInt64(static_cast<uint64_t>(c.lanes)), *none = b.getInt64(0);
  rest = b.CreateSelect(b.CreateICmpSLT(rest, lanes), rest, lanes);
  rest = b.CreateSelect(b.CreateICmpSLT(rest, none), none, rest);
  std::vector<uint32_t> ids;
  for (int l = 0; l < c.lanes; ++l) ids.push_back(static_cast<uint32_t>(l));
  Value* lane = llvm::ConstantDataVector::get(b.getContext(), ids);
  return to_mask(c, b.CreateICmpSLT(lane, splat(c, b.CreateTrunc(rest, b.getInt32Ty()))));
}
Value* emit_blend(OpContext& c, const Inst& i) {
  Value *off = c.vector(i.src[0]), *on = c.vector(i.src[1]);
  if (c.avx512()) return c.builder.CreateSelect(c.mask(i.mask), on, off);
  return call(c, Intrinsic::x86_avx_blendv_ps_256, {off, on, to_float(c, c.mask(i.mask))});
}
Value* emit_reduce_add(OpContext& c, const Inst& i) {
  return reduce(c, i, [&c](Value* a, Value* b) { return c.builder.CreateFAdd(a, b); });
}
Value* emit_reduce_max(OpContext& c, const Inst& i) {
  return reduce(c, i, [&c](Value* a, Value* b) { return x86_min_max(c, true, a, b); });
}
Value* emit_reduce_min(OpContext& c, const Inst& i) {
  return reduce(c, i, [&c](Value* a, Value* b) { return x86_min_max(c, false, a, b); });
}
Value* emit_reduce_mul(OpContext& c, const Inst& i) {
  return reduce(c, i, [&c](Value* a, Value* b) { return c.builder.CreateFMul(a, b); });
}
Value* emit_reduce_imin(OpContext& c, const Inst& i) {
  return reduce(c, i, [&c](Value* a, Value* b) {
    auto* lanes = llvm::FixedVectorType::getInteger(llvm::cast<llvm::FixedVectorType>(a->getType()));
    auto& build = c.builder;
    Value* least =
        build.CreateBinaryIntrinsic(Intrinsic::smin, build.CreateBitCast(a, lanes), build.CreateBitCast(b, lanes));
    return build.CreateBitCast(least, a->getType());
  });
}
Value* emit_reduce_iadd(OpContext& c, const Inst& i) {
  return reduce(c, i, [&c](Value* a, Value* b) {
    auto* lanes = llvm::FixedVectorType::getInteger(llvm::cast<llvm::FixedVectorType>(a->getType()));
    auto& build = c.builder;
    return build.CreateBitCast(build.CreateAdd(build.CreateBitCast(a, lanes), build.CreateBitCast(b, lanes)),
                               a->getType());
  });
}
Value* emit_prefix_add(OpContext& c, const Inst& i) {
  Value* v = c.vector(i.src[0]);
  for (int by = 1; by < c.lanes; by *= 2) {
    std::vector<int> moved;
    for (int l = 0; l < c.lanes; ++l) moved.push_back(l < by ? c.lanes : l - by);
    v = c.builder.CreateFAdd(v, c.builder.CreateShuffleVector(v, llvm::Constant::getNullValue(v->getType()), moved));
  }
  return v;
}
Value* emit_last_lane(OpContext& c, const Inst& i) {
  return c.builder.CreateShuffleVector(c.vector(i.src[0]), std::vector<int>(static_cast<size_t>(c.lanes), c.lanes - 1));
}
Value* emit_unpack_lo32(OpContext& c, const Inst& i) { return within_128(c, i, {0, 4, 1, 5}); }
Value* emit_unpack_hi32(OpContext& c, const Inst& i) { return within_128(c, i, {2, 6, 3, 7}); }
Value* emit_unpack_lo64(OpContext& c, const Inst& i) { return within_128(c, i, {0, 1, 4, 5}); }
Value* emit_unpack_hi64(OpContext& c, const Inst& i) { return within_128(c, i, {2, 3, 6, 7}); }
// 16 lanes: vshuff32x4, two blocks of src0 then two of src1, two control bits each. 8 lanes:
// vperm2f128, for each half a block of either source, bit 3 of its control gives zero.
Value* emit_shuffle128(OpContext& c, const Inst& i) {
  std::vector<int> mask;
  Value *a = c.vector(i.src[0]), *b = c.vector(i.src[1]);
  if (c.lanes == 16) {
    for (int block = 0; block < 4; ++block) {
      const int from = static_cast<int>((i.imm >> (2 * block)) & 3) + (block < 2 ? 0 : 4);
      for (int l = 0; l < 4; ++l) mask.push_back(from * 4 + l);
    }
    return c.builder.CreateShuffleVector(a, b, mask);
  }
  Value* v = llvm::Constant::getNullValue(c.float_type(8));
  for (int half = 0; half < 2; ++half) {
    const uint32_t control = (i.imm >> (4 * half)) & 15;
    if (control & 8) continue;
    Value* from = control & 2 ? b : a;
    mask.clear();
    for (int l = 0; l < 8; ++l) {
      mask.push_back(l / 4 == half ? 8 + static_cast<int>(control & 1) * 4 + l % 4 : l);
    }
    v = c.builder.CreateShuffleVector(v, from, mask);
  }
  return v;
}
// For a read of data; locality 3 is prefetcht0, 2 prefetcht1.
Value* prefetch_line(OpContext& c, const Inst& i, uint32_t locality) {
  Value* p = c.address(i.mem);
  auto& b = c.builder;
  b.CreateIntrinsic(Intrinsic::prefetch, {p->getType()}, {p, b.getInt32(0), b.getInt32(locality), b.getInt32(1)});
  return nullptr;
}
Value* emit_prefetch(OpContext& c, const Inst& i) { return prefetch_line(c, i, 3); }
Value* emit_prefetch_l2(OpContext& c, const Inst& i) { return prefetch_line(c, i, 2); }

// emit_op refuses them.
Value* emit_tile_zero(OpContext&, const Inst&) { return nullptr; }
Value* emit_tile_load(OpContext&, const Inst&) { return nullptr; }
Value* emit_tile_store(OpContext&, const Inst&) { return nullptr; }
Value* emit_tile_dot_bf16(OpContext&, const Inst&) { return nullptr; }
Value* emit_tile_dot_u8s8(OpContext&, const Inst&) { return nullptr; }
Value* emit_tile_dot_s8u8(OpContext&, const Inst&) { return nullptr; }
Value* emit_tile_dot_s8s8(OpContext&, const Inst&) { return nullptr; }

using Emitter = Value* (*)(OpContext&, const Inst&);
constexpr Emitter kEmitters[] = {
#define LATHE_LEAF_OP(id, sources, kind) &emit_##id,
#include "jit/program/leaf_ops.def"
#undef LATHE_LEAF_OP
};

}  // namespace

ir::Result<Value*> emit_op(OpContext& context, const Inst& inst) {
  if (leaf_op_kind(inst.op) == LeafOpKind::kTile) return ir::unsupported("llvm: tiles");
  if (inst.op == LeafOp::k_scalef && !context.avx512()) {
    return ir::unsupported("llvm: scalef needs AVX-512");
  }
  return kEmitters[static_cast<size_t>(inst.op)](context, inst);
}

}  // namespace lathe::jit
