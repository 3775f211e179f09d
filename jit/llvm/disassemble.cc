// LLVM's MC layer, without a TargetMachine. Everything is made anew at each call: dumps are rare.
#include "jit/llvm/disassemble.h"

#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstPrinter.h>
#include <llvm/MC/MCInstrAnalysis.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/MCTargetOptions.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Triple.h>

#include <memory>
#include <mutex>

#include "jit/llvm/module.h"

namespace lathe::jit {

ir::Result<std::string> disassemble_x86(const uint8_t* code, size_t size) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86Disassembler();
  });
  constexpr unsigned kIntelSyntax = 1;
  std::string error;
  const llvm::Triple triple(kLlvmTriple);
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kLlvmTriple, error);
  if (!target) return ir::internal_error("llvm: {}", error);
  const llvm::MCTargetOptions options;
  const std::unique_ptr<llvm::MCRegisterInfo> registers(target->createMCRegInfo(kLlvmTriple));
  const std::unique_ptr<llvm::MCAsmInfo> syntax(target->createMCAsmInfo(*registers, kLlvmTriple, options));
  const std::unique_ptr<llvm::MCInstrInfo> instructions(target->createMCInstrInfo());
  const std::unique_ptr<llvm::MCSubtargetInfo> subtarget(target->createMCSubtargetInfo(kLlvmTriple, "x86-64-v4", ""));
  llvm::MCContext context(triple, syntax.get(), registers.get(), subtarget.get());
  const std::unique_ptr<llvm::MCDisassembler> decoder(target->createMCDisassembler(*subtarget, context));
  const std::unique_ptr<llvm::MCInstPrinter> printer(
      target->createMCInstPrinter(triple, kIntelSyntax, *syntax, *instructions, *registers));
  const std::unique_ptr<llvm::MCInstrAnalysis> analysis(target->createMCInstrAnalysis(instructions.get()));
  if (!decoder || !printer || !analysis) return ir::internal_error("llvm: no disassembler");
  printer->setPrintImmHex(true);
  printer->setPrintBranchImmAsAddress(true);

  std::string text;
  llvm::raw_string_ostream out(text);
  const llvm::ArrayRef<uint8_t> bytes(code, size);
  for (uint64_t at = 0; at < size;) {
    llvm::MCInst inst;
    uint64_t length = 0;
    if (decoder->getInstruction(inst, length, bytes.slice(at), at, llvm::nulls()) != llvm::MCDisassembler::Success) {
      return ir::invalid("disassembly: byte {:#x} at offset {:#x} starts no instruction", code[at], at);
    }
    std::string line;
    llvm::raw_string_ostream line_out(line);
    printer->printInst(&inst, at + length, "", *subtarget,
                       line_out);  // branches count from their end
    for (char& c : line) {
      if (c == '\t') c = ' ';
    }
    out << fmt::format("{:5x}:{}", at, line);
    if (const auto target_address = analysis->evaluateMemoryOperandAddress(inst, subtarget.get(), at, length)) {
      out << fmt::format("  ; -> {:x}", *target_address);
    }
    out << '\n';
    at += length;
  }
  return text;
}

}  // namespace lathe::jit
