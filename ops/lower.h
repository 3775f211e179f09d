// From a finished graph to naive Kernels: one per group of fusion.h, in execution order, with the
// intermediates that live in the workspace. Nothing here is tuned; recipes schedule the Kernels by family and roles.
//
// Conventions. Names depend on the structure alone, never on the caller's names, so that a Schedule
// applies to every graph of its key: buffers and iterators are lower case, symbols start with an
// upper-case letter.
// Each file of ops/families/ shows its nests with their roles, and names its operands.
#pragma once
#include <string>
#include <vector>

#include "ir/core/kernel.h"
#include "ops/graph.h"

namespace lathe::ops {

// What a parameter reads or writes.
struct ParamSource {
  int tensor = -1;     // of the finished graph
  int64_t offset = 0;  // bytes from the tensor's first to the parameter's; its dtype and strides are its own then
  bool part = false;   // it is one of the fields of the tensor's blocks
  bool rises = false;  // integers that do not fall along the last dimension: the caller is held to it
};

struct LoweredKernel {
  ir::Kernel kernel;
  std::vector<ParamSource> params;
  std::string fusion_note;
  std::string structure;  // of its group (ops/structure.h): what decisions are named by
};

// An intermediate in the workspace: compact, in the order of dims.
struct TempDesc {
  int tensor = -1;
  ir::DType type = ir::DType::f32;
  std::vector<ir::Expr> dims;
};

struct Lowered {
  std::vector<LoweredKernel> kernels;
  std::vector<TempDesc> temps;
};

// `graph` comes from finish().
ir::Result<Lowered> lower(const Graph& graph);

}  // namespace lathe::ops
