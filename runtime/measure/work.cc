// See work.h.
#include "runtime/measure/work.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/base/dtype.h"
#include "ops/family.h"
#include "ops/op_table.h"

namespace lathe::runtime {
int64_t size_at(const ops::DimDesc& dim, const SymbolValues& values) {
  if (dim.fixed()) return dim.max;
  return values.value_or(ops::kernel_symbol(dim.symbol), dim.max);
}

int64_t elements_at(const ops::TensorDesc& tensor, const SymbolValues& values) {
  int64_t n = 1;
  for (const ops::DimDesc& d : tensor.dims) {
    if (__builtin_mul_overflow(n, size_at(d, values), &n)) return INT64_MAX;
  }
  return n;
}

int64_t span_at(const ops::TensorDesc& tensor, const SymbolValues& values) {
  const int64_t elements = elements_at(tensor, values);
  if (tensor.strides.empty() || elements == 0) return elements;
  int64_t last = 0;
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    const std::optional<int64_t> stride = ir::evaluate(tensor.strides[d], values);
    int64_t step = 0;
    if (!stride || __builtin_mul_overflow(*stride, size_at(tensor.dims[d], values) - 1, &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return INT64_MAX;
    }
  }
  return last + 1;
}

Work work_at(const ops::Graph& finished, const SymbolValues& values) {
  Work work;
  const auto sizes_of = [&](int t) {
    std::vector<int64_t> out;
    for (const ops::DimDesc& d : finished.tensors[static_cast<size_t>(t)].dims) out.push_back(size_at(d, values));
    return out;
  };
  std::vector<double> share(finished.tensors.size(), 0);  // that is read: what most is
  for (const ops::Node& node : finished.nodes) {
    ops::NodeSizes sizes;
    for (const int t : node.inputs) sizes.inputs.push_back(sizes_of(t));
    sizes.output = sizes_of(node.output);
    const ops::Family& family = *ops::op_row(node).family;
    work.flops += family.flops(node, sizes);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      double& most = share[static_cast<size_t>(node.inputs[i])];
      most = std::max(most, family.share_read.get()(node, sizes, i));
    }
  }
  for (const int t : finished.inputs) {
    const ops::TensorDesc& tensor = finished.tensors[static_cast<size_t>(t)];
    const double bytes =
        share[static_cast<size_t>(t)] * static_cast<double>(ir::dtype_bytes(tensor.dtype, elements_at(tensor, values)));
    work.read_bytes += bytes;
    if (tensor.constant) work.constant_bytes += bytes;
  }
  for (const int t : finished.outputs) {
    const ops::TensorDesc& tensor = finished.tensors[static_cast<size_t>(t)];
    if (ops::is_update(finished, t)) continue;
    work.write_bytes += static_cast<double>(ir::dtype_bytes(tensor.dtype, elements_at(tensor, values)));
  }
  return work;
}

double roofline_us(const Work& work, const Arithmetic& arithmetic, const MachineProfile& profile,
                   const ir::Target& target, bool cold, int threads) {
  const PeakProbe peak = profile.peak(arithmetic.factors, target, arithmetic.tiles);
  const double bytes = work.read_bytes + work.write_bytes;
  const auto place = [&](double footprint) {
    return footprint <= static_cast<double>(target.l1_bytes)   ? "l1"
           : footprint <= static_cast<double>(target.l2_bytes) ? "l2"
           : footprint <= static_cast<double>(target.l3_bytes) ? "l3"
                                                               : "memory";
  };
  // Constants are read from memory, the rest from its cache; what is copied counts at the rate of a copy.
  const double constant = cold ? work.constant_bytes : 0, hot = bytes - constant;
  const double read_memory = profile.get("read_memory"), read_hot = profile.get(fmt::format("read_{}", place(bytes)));
  if (read_memory <= 0 || read_hot <= 0) return 0;
  const double moving = (constant / read_memory + hot / read_hot) * 1e-3;
  if (peak.gflops <= 0) return moving;
  const double ceiling = ceiling_of(arithmetic, peak.factors, peak.instructions);
  return std::max(work.flops / (peak.gflops * ceiling * std::max(threads, 1)) * 1e-3, moving);
}

}  // namespace lathe::runtime
