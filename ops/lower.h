// From a finished graph to naive Kernels: one per group of fusion.h, in execution order, with the
// intermediates that live in the workspace. Nothing here is tuned; recipes schedule the Kernels by
// family and roles.
//
// Conventions. Names depend on the structure alone, never on the caller's names, so that a Schedule
// applies to every graph of its key: buffers and iterators are lower case, symbols start with an
// upper-case letter.
//   matmul       scopes t* [batch], m [m], n [n]; in them c = 0, k [k]: c += a*b, y = f(c);
//   operands a, b, e0, e1, ..., y row          scopes b* [row], siblings n, n1, n2 [col]; operands
//   s, then scale g and bias h, e*, then d elementwise  scopes i* [row], j [col]; operands e0, e1,
//   ..., y; one dimension where all operands are compact transpose    scopes i* in output order,
//   the last [col], others [row]; operands s, d rope         scopes i* [row], p [col] over the
//   pairs; operands s, co, si, d
#pragma once
#include <string>
#include <vector>

#include "ir/core/kernel.h"
#include "ops/graph.h"

namespace lathe::ops {

struct LoweredKernel {
  ir::Kernel kernel;
  std::vector<int> tensor_of_param;  // tensors of the finished graph, by parameter
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
