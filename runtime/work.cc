// See work.h.
#include "runtime/work.h"

#include <algorithm>

#include "ir/analysis.h"
#include "ir/dtype.h"

namespace lathe::runtime {
namespace {

bool flag(const ops::Node& node, const char* name) {
  for (const ops::Attr& a : node.attrs) {
    if (a.name == name && std::holds_alternative<bool>(a.value)) return std::get<bool>(a.value);
  }
  return false;
}

}  // namespace

int64_t size_at(const ops::DimDesc& dim, const SymbolValues& values) {
  if (dim.fixed()) return dim.max;
  for (const auto& [name, value] : values) {
    if (name == ops::kernel_symbol(dim.symbol)) return value;
  }
  return dim.max;
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
  for (const ops::Node& node : finished.nodes) {
    double flops = static_cast<double>(elements_at(finished.tensors[static_cast<size_t>(node.output)], values));
    if (node.op == "matmul") {
      const ops::TensorDesc& a = finished.tensors[static_cast<size_t>(node.inputs[0])];
      const size_t rank = a.dims.size();
      if (rank >= 2) flops *= 2.0 * static_cast<double>(size_at(a.dims[rank - (flag(node, "transpose_a") ? 2 : 1)], values));
    } else {
      for (const int t : node.inputs) {
        flops = std::max(flops, static_cast<double>(elements_at(finished.tensors[static_cast<size_t>(t)], values)));
      }
    }
    work.flops += flops;
  }
  for (const int t : finished.inputs) {
    const ops::TensorDesc& tensor = finished.tensors[static_cast<size_t>(t)];
    const double bytes = static_cast<double>(elements_at(tensor, values)) * static_cast<double>(ir::dtype_bytes(tensor.dtype));
    work.read_bytes += bytes;
    if (tensor.constant) work.constant_bytes += bytes;
  }
  for (const int t : finished.outputs) {
    const ops::TensorDesc& tensor = finished.tensors[static_cast<size_t>(t)];
    work.write_bytes += static_cast<double>(elements_at(tensor, values)) * static_cast<double>(ir::dtype_bytes(tensor.dtype));
  }
  return work;
}

}  // namespace lathe::runtime
