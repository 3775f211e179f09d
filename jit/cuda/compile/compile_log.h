// What a compiler's log says: which lines matter, and why what came out may not serve. Pure.
#pragma once
#include <string>
#include <string_view>

#include "jit/cuda/compile/cubin.h"

namespace lathe::jit {

// The rows of compile_faults.def.
enum class CompileFault : uint8_t {
  none,
#define LATHE_COMPILE_FAULT(id, counted, words, meaning) k_##id,
#include "jit/cuda/compile/compile_faults.def"
#undef LATHE_COMPILE_FAULT
};
CompileFault find_fault(std::string_view log);

// Registers did not suffice.
bool spills(std::string_view log);

// Why what the compiler made may not serve; empty: it may.
std::string fault_of(const CubinInfo& info, std::string_view log);

// The log without lines that every compilation has.
std::string what_matters(std::string_view log);

}  // namespace lathe::jit
