// LATHE_DUMP: a folder per kernel and per leaf with everything that was on the way to machine code. Faults are silent:
// a dump is an aid, never a reason to fail. Thread-safe: files are named by content.
#pragma once
#include <string>

#include "ir/nest.h"
#include "jit/program/backend.h"
#include "search/moves/schedule.h"

namespace lathe::runtime {

// Whether LATHE_FILTER lets this name through: an empty or malformed expression lets all.
bool dump_wanted(const std::string& filter, const std::string& name);

// <dir>/<name>-<hash8>/: naive.lir, step_NN_<move>.lir, schedule.txt, nest.txt, leaf_N.lir
void dump_kernel(const std::string& dir, const ir::Kernel& naive, const search::Schedule& schedule,
                 const ir::CutKernel& cut);
// <dir>/<symbol>/: program.txt, code.bin, and through the plug-in llvm.ll and code.s
void dump_leaf(const std::string& dir, const jit::LeafProgram& program, const jit::CodeImage& image,
               const std::string& plugin_dir);

}  // namespace lathe::runtime
