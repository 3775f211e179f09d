// Scheduled Kernels on the emulator: cut, lowered, compiled by the fake compiler, and run with threads in every order.
#pragma once
#include <map>
#include <string>

#include "ir/core/binding.h"
#include "ir/core/kernel.h"
#include "ir/meaning/interpreter.h"
#include "jit/cuda/device_program.h"
#include "search/gpu/product_schedule.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/fakes/bank_log.h"

namespace lathe::test {

using Tensors = std::map<std::string, ir::Tensor>;

// Values of its inputs that are exact as f32, and sums of which are.
Tensors inputs_of(const ir::Kernel& kernel, const ir::SymbolValues& symbols);
// Of the symbols that stand for the general Kernel's sizes.
ir::SymbolValues sizes_of(const search::GeneralKernel& general, const ir::SymbolValues& symbols);
// A Schedule was made, is proven, can be cut, and interpreted gives what the naive Kernel does, within `bound` relative
// to 1 + |value|.
void expect_values_kept(const ir::Kernel& naive, const search::GeneralKernel& general,
                        const ir::Result<search::Scheduled>& scheduled, const ir::SymbolValues& symbols, double bound);
// Outputs after a run, in that map too. What is never written is NaN.
void emulate(const ir::Kernel& scheduled, const ir::SymbolValues& symbols, Tensors& tensors);
// What the emulator finds wrong with a program in the place of the Kernel's only leaf, or with its results, which may
// differ from the interpreter's as below, in some order of the threads and of copies; empty: nothing. The verifier is
// not asked.
std::string failure_of(const jit::DeviceProgram& program, const ir::Kernel& scheduled, const ir::SymbolValues& symbols,
                       double bound = 1e-5);
// Conflicts of shared memory and sectors of the GPU's in a run.
BankCounts bank_conflicts(const ir::Kernel& scheduled, const ir::SymbolValues& symbols);
// Outputs differ from the interpreter's by at most `bound`, relative to the larger of 1 and the value.
void expect_as_interpreted(const ir::Kernel& scheduled, const ir::SymbolValues& symbols, double bound = 0);

}  // namespace lathe::test
