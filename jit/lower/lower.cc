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
  if (target.lanes != 8 && target.lanes != 16) return ir::unsupported("{} lanes, expected 8 or 16", target.lanes);
  LeafProgram program(memory);
  program.level = target.level;
  program.lanes = target.lanes;
  program.vector_registers = target.vector_registers;
  program.mask_registers = target.mask_registers;
  program.bf16 = target.bf16 && target.level >= ir::IsaLevel::avx512;
  LATHE_RETURN_IF_ERROR(Lowering(leaf, target, &program, memory).run().with_context("leaf"));
  tidy(program);
  program.name = text.empty() ? program_name(leaf, target, ir::print(leaf)) : program_name(leaf, target, text);
  const ir::Status status = verify_program(program);
  // What verify_program refuses here is a leaf that reads a register no path has set.
  if (!status.ok()) return ir::unsupported("{}", status.message());
  return program;
}

}  // namespace lathe::jit
