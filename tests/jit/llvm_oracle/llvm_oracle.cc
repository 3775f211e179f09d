// Test only: LLJIT links an object by itself and gives the function's address, as the oracle of
// link_object. A library of its own, so that the test binary does not link LLVM.
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

// The function named `symbol`, or null with the reason in `error` (256 bytes). The code lives until
// `release` gets the handle.
extern "C" __attribute__((visibility("default"))) void* lathe_oracle_link(const uint8_t* object, size_t size,
                                                                          const char* symbol, void** handle,
                                                                          char* error) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  llvm::orc::JITTargetMachineBuilder machine{llvm::Triple("x86_64-unknown-linux-gnu")};
  const auto fail = [error](llvm::Error e) -> void* {
    std::snprintf(error, 256, "%s", llvm::toString(std::move(e)).c_str());
    return nullptr;
  };
  auto jit = llvm::orc::LLJITBuilder()
                 .setJITTargetMachineBuilder(machine)
                 .setLinkProcessSymbolsByDefault(false)
                 .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                 .create();
  if (!jit) return fail(jit.takeError());
  auto buffer =
      llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(reinterpret_cast<const char*>(object), size), "leaf");
  if (auto e = (*jit)->addObjectFile(std::move(buffer))) return fail(std::move(e));
  auto address = (*jit)->lookup(symbol);
  if (!address) return fail(address.takeError());
  *handle = jit->release();
  return address->toPtr<void*>();
}

extern "C" __attribute__((visibility("default"))) void lathe_oracle_release(void* handle) {
  delete static_cast<llvm::orc::LLJIT*>(handle);
}
