// ORC set-up: code generation level Less (None spills tiles, Default buys nothing), PIC, small
// model, no IR passes, no contraction, and the program's own order of instructions: LLVM's machine
// scheduler interleaves independent polynomials until they spill.
#include "jit/llvm/emit_object.h"

#include <llvm/CodeGen/MachineModuleInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/TargetPassConfig.h>
#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/DiagnosticHandler.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>

#include <map>
#include <mutex>

#include "jit/llvm/module.h"

namespace lathe::jit {
namespace {

ir::Status failed(const char* what, llvm::Error error) {
  return ir::internal_error("llvm: {}: {}", what, llvm::toString(std::move(error)));
}

// orc::SimpleCompiler with a pass taken out. addPassesToEmitFile leaves no way to do that, so its
// steps are taken here.
class FixedOrderCompiler final : public llvm::orc::IRCompileLayer::IRCompiler {
 public:
  explicit FixedOrderCompiler(std::unique_ptr<llvm::TargetMachine> machine)
      : IRCompiler(llvm::orc::irManglingOptionsFromTargetOptions(machine->Options)), machine_(std::move(machine)) {}

  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> operator()(llvm::Module& module) override {
    auto& machine = static_cast<llvm::LLVMTargetMachine&>(*machine_);
    llvm::SmallVector<char, 0> object;
    llvm::raw_svector_ostream stream(object);
    llvm::legacy::PassManager passes;
    auto* info = new llvm::MachineModuleInfoWrapperPass(&machine);  // passes owns it
    llvm::TargetPassConfig* config = machine.createPassConfig(passes);
    config->disablePass(&llvm::MachineSchedulerID);
    passes.add(config);
    passes.add(info);
    const bool refused = config->addISelPasses();
    config->addMachinePasses();
    config->setInitialized();
    if (refused || machine.addAsmPrinter(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile,
                                         info->getMMI().getContext())) {
      return llvm::createStringError("the target emits no objects");
    }
    passes.add(llvm::createFreeMachineFunctionPass());
    passes.run(module);
    return std::make_unique<llvm::SmallVectorMemoryBuffer>(std::move(object), "leaf", false);
  }

 private:
  std::unique_ptr<llvm::TargetMachine> machine_;
};

class OrcEmitter final : public ObjectEmitter {
 public:
  explicit OrcEmitter(std::unique_ptr<llvm::orc::LLJIT> jit) : jit_(std::move(jit)) {}
  const llvm::DataLayout& layout() const override { return jit_->getDataLayout(); }
  ir::Result<std::vector<uint8_t>> emit(llvm::Module& module) override {
    auto object = jit_->getIRCompileLayer().getCompiler()(module);
    if (!object) return failed("compile", object.takeError());
    const auto* bytes = reinterpret_cast<const uint8_t*>((*object)->getBufferStart());
    return std::vector<uint8_t>(bytes, bytes + (*object)->getBufferSize());
  }

 private:
  std::unique_ptr<llvm::orc::LLJIT> jit_;
};

ir::Result<std::unique_ptr<ObjectEmitter>> make_emitter(const LlvmTarget& target) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  llvm::orc::JITTargetMachineBuilder machine{llvm::Triple(kLlvmTriple)};
  machine.setCPU(target.cpu);
  machine.setFeatures(target.features);
  machine.setRelocationModel(llvm::Reloc::PIC_);
  machine.setCodeModel(llvm::CodeModel::Small);
  machine.setCodeGenOptLevel(llvm::CodeGenOptLevel::Less);
  machine.getOptions().AllowFPOpFusion = llvm::FPOpFusion::Strict;
  machine.getOptions().EmitStackSizeSection = true;
  auto jit =
      llvm::orc::LLJITBuilder()
          .setJITTargetMachineBuilder(std::move(machine))
          .setLinkProcessSymbolsByDefault(false)
          .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
          .setCompileFunctionCreator([](llvm::orc::JITTargetMachineBuilder builder)
                                         -> llvm::Expected<std::unique_ptr<llvm::orc::IRCompileLayer::IRCompiler>> {
            auto created = builder.createTargetMachine();
            if (!created) return created.takeError();
            return std::make_unique<FixedOrderCompiler>(std::move(*created));
          })
          .create();
  if (!jit) return failed("LLJIT", jit.takeError());
  return std::unique_ptr<ObjectEmitter>(std::make_unique<OrcEmitter>(std::move(*jit)));
}

// Keeps the first error the back end reports, which would go to stderr otherwise.
class Diagnostics final : public llvm::DiagnosticHandler {
 public:
  explicit Diagnostics(std::string* error) : error_(error) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() == llvm::DS_Error && error_->empty()) {
      llvm::raw_string_ostream stream(*error_);
      llvm::DiagnosticPrinterRawOStream printer(stream);
      info.print(printer);
    }
    return true;
  }

 private:
  std::string* error_;
};

}  // namespace

ir::Result<ObjectEmitter*> object_emitter(ir::IsaLevel level, int lanes) {
  LATHE_ASSIGN(const LlvmTarget target, llvm_target(level, lanes));
  thread_local std::map<std::string, std::unique_ptr<ObjectEmitter>> emitters;
  auto& emitter = emitters[target.cpu];
  if (!emitter) {
    LATHE_ASSIGN(emitter, make_emitter(target));
  }
  return emitter.get();
}

ir::Result<std::vector<uint8_t>> emit_program(const LeafProgram& program, std::string* ir_text) {
  LATHE_ASSIGN(ObjectEmitter * emitter, object_emitter(program.level, program.lanes));
  std::string error;
  llvm::LLVMContext context;
  context.setDiagnosticHandler(std::make_unique<Diagnostics>(&error));
  LATHE_ASSIGN(auto module, build_module(program, context, emitter->layout()));
  if (ir_text) {
    llvm::raw_string_ostream stream(*ir_text);
    module->print(stream, nullptr);
    return std::vector<uint8_t>();
  }
  LATHE_ASSIGN(auto object, emitter->emit(*module));
  if (!error.empty()) return ir::internal_error("llvm: {}", error);
  return object;
}

}  // namespace lathe::jit
