// Groups to Kernels, and the intermediates between them: see lower.h. The nests are written by the
// family files.
#include "ops/lower.h"

#include <algorithm>

#include "ops/kernel_writer.h"
#include "ops/structure.h"

namespace lathe::ops {

static ir::Result<LoweredKernel> lower_group(const Graph& graph, const Group& group) {
  KernelWriter writer(graph, group);
  switch (group.family) {
    case Family::kMatmul:
      return lower_matmul(writer);
    case Family::kRow:
      return lower_row(writer);
    case Family::kElementwise:
      return lower_elementwise(writer);
    case Family::kTranspose:
      return lower_transpose(writer);
    case Family::kRope:
      return lower_rope(writer);
  }
  return ir::internal_error("a group of an unknown family");
}

ir::Result<Lowered> lower(const Graph& graph) {
  if (graph.source.empty()) return ir::internal_error("lower() takes a finished graph");
  Lowered out;
  for (const Group& group : fuse(graph)) {
    LATHE_ASSIGN(LoweredKernel kernel, lower_group(graph, group));
    kernel.structure = structure_of(graph, group);
    out.kernels.push_back(std::move(kernel));
    if (std::find(graph.outputs.begin(), graph.outputs.end(), group.output) != graph.outputs.end()) continue;
    TempDesc temp{group.output, graph.tensors[group.output].dtype, {}};
    for (const DimDesc& d : graph.tensors[group.output].dims) temp.dims.push_back(dim_expr(d));
    out.temps.push_back(std::move(temp));
  }
  return out;
}

}  // namespace lathe::ops
