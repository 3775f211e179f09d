// lower_leaf: checks, lowers, tidies, names, verifies. The work is in Lowering (lowering.h).
#include "jit/lower/lower.h"

#include "ir/core/text_form.h"
#include "jit/lower/lowering.h"

namespace lathe::jit {

ir::Status Lowering::run() {
  LATHE_RETURN_IF_ERROR(check_leaf());
  e_.program().body.reserve(likely_size(leaf_.body));
  body(leaf_.body);
  return e_.status();
}

ir::Result<LeafProgram> lower_leaf(const ir::Kernel& leaf, const ir::Target& target, std::string_view text,
                                   std::pmr::memory_resource* memory) {
  if (!ir::is_vector_bytes(target.vector_bytes())) {
    return ir::unsupported("vector registers of {} bytes: no row of targets.def has them", target.vector_bytes());
  }
  LeafProgram program(memory);
  program.level = target.level;
  program.lanes = target.lanes;
  program.vector_registers = target.vector_registers;
  program.mask_registers = target.mask_registers;
  program.extra = code_features(leaf, target);
  LATHE_RETURN_IF_ERROR(Lowering(leaf, target, &program, memory).run().with_context("leaf"));
  batch_sums(program);
  tidy(program);
  program.name = text.empty() ? program_name(leaf, target, ir::print(leaf)) : program_name(leaf, target, text);
  const ir::Status status = verify_program(program);
  // What verify_program refuses here is a leaf that reads a register no path has set.
  if (!status.ok()) return ir::unsupported("{}", status.message());
  return program;
}

uint64_t code_features(const ir::Kernel& leaf, const ir::Target& target) {
  using enum ir::CpuFeature;
  static constexpr uint64_t kFeatures[] = {
#define LATHE_MEM_TYPE(id, bytes, feature) feature,
#include "jit/program/mem_types.def"
#undef LATHE_MEM_TYPE
  };
  uint64_t out = 0;
  if (target.extra == 0) return out;
  ir::for_each_stmt(leaf.body, [&](const ir::Stmt& s) {
    const bool rounds = s.value && s.value->op == ir::Op::k_cast && is_half(s.value->type);
    if (rounds) out |= kFeatures[static_cast<size_t>(half_type(s.value->type))];
    const bool dot4 =
        s.mark == ir::Mark::tensor && (s.intrinsic == leaf_op_name(LeafOp::k_dot4_u8s8) || s.intrinsic == "mma_u8s8");
    if (dot4) out |= dot4_feature(target.features());
    const bool dot2 = s.mark == ir::Mark::tensor && s.intrinsic == leaf_op_name(LeafOp::k_dot2_bf16);
    if (dot2) out |= kCpu_avx512bf16;
  });
  return out & target.extra;
}

}  // namespace lathe::jit
