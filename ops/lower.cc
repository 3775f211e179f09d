// Groups to Kernels, and the intermediates between them: see lower.h. The nests are written by the
// family files.
#include "ops/lower.h"

#include <algorithm>

#include "ops/family.h"
#include "ops/kernel_writer.h"
#include "ops/structure.h"

namespace lathe::ops {

ir::Result<Lowered> lower(const Graph& graph) {
  if (graph.source.empty()) return ir::internal_error("lower() takes a finished graph");
  Lowered out;
  for (const Group& group : fuse(graph)) {
    KernelWriter writer(graph, group);
    LATHE_ASSIGN(LoweredKernel kernel, group.family->lower(writer));
    kernel.structure = structure_of(graph, group);
    out.kernels.push_back(std::move(kernel));
    std::vector<int> results = group.stored;
    results.push_back(group.output);
    for (const int t : results) {
      if (std::find(graph.outputs.begin(), graph.outputs.end(), t) != graph.outputs.end()) continue;
      TempDesc temp{t, graph.tensors[static_cast<size_t>(t)].dtype, {}};
      for (const DimDesc& d : graph.tensors[static_cast<size_t>(t)].dims) temp.dims.push_back(dim_expr(d));
      out.temps.push_back(std::move(temp));
    }
  }
  return out;
}

}  // namespace lathe::ops
