// compile_xbyak: leaf program -> registers -> bytes.
#include <array>

#include "jit/program/backend.h"
#include "jit/x64/emitter.h"

namespace lathe::jit {
namespace {

ir::Result<x64::Shape> shape_of(const LeafProgram& program) {
  x64::Shape shape;
  shape.evex = program.has(ir::isa_features(ir::IsaLevel::avx512));
  shape.lanes = program.lanes;
  shape.vectors = std::min(program.vector_registers, shape.evex ? 32 : 16);
  shape.dot4 = dot4_feature(program.features()) != 0;
  if (program.level == ir::IsaLevel::portable) return ir::unsupported("the level is portable");
  if (shape.lanes != 4 && shape.lanes != 8 && (shape.lanes != 16 || !shape.evex)) {
    return ir::unsupported("{} lanes at level {}", shape.lanes, ir::isa_name(program.level));
  }
  if (contains(program.body, LeafOp::k_shuffle128)) {
    if (shape.lanes == 4) return ir::unsupported("shuffle128 of 4 lanes");
    if (shape.lanes == 8) shape.vectors = std::min(shape.vectors, 16);  // vperm2f128 has no EVEX form
  }
  if (!shape.evex && contains(program.body, LeafOp::k_scalef)) return ir::unsupported("scalef below AVX-512");
  return shape;
}

}  // namespace

ir::Result<CodeImage> compile_xbyak(const LeafProgram& program, bool verified) {
  LATHE_ASSIGN(const x64::Shape shape, shape_of(program));
  if (!verified) LATHE_RETURN_IF_ERROR(verify_program(program));
  LATHE_ASSIGN(const x64::Allocation allocation, x64::allocate(program, shape));
  alignas(64) std::array<uint8_t, kMaxImageCode> buffer;
  x64::Assembler assembler(buffer.data());
  x64::Emitter emitter(assembler, program, shape, allocation);
  LATHE_RETURN_IF_ERROR(emitter.run());
  CodeImage image;
  LATHE_RETURN_IF_ERROR(assembler.finish(&image.text_bytes));
  image.symbol = program.name;
  image.features = emitter.features();
  image.stack_bytes = emitter.stack_bytes();
  image.code.assign(assembler.getCode(), assembler.getCode() + assembler.getSize());
  return image;
}

}  // namespace lathe::jit
