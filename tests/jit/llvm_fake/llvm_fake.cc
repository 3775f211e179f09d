// Test only: a plug-in of another version. It must be refused before it is asked to compile.
#include <cstdlib>

#define LATHE_FAKE_EXPORT extern "C" __attribute__((visibility("default")))
LATHE_FAKE_EXPORT int lathe_llvm_compile_v1() { std::abort(); }
LATHE_FAKE_EXPORT int lathe_llvm_disassemble_v1() { std::abort(); }
LATHE_FAKE_EXPORT void lathe_llvm_free_v1() {}
LATHE_FAKE_EXPORT const char* lathe_llvm_version_v1() { return "lathe-llvm 0"; }
