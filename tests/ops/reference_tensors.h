// What references in f64 share: sizes, elements with numpy's broadcasting, attributes.
#pragma once
#include <numeric>
#include <string>
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/meaning/interpreter.h"
#include "ops/op_table.h"

namespace lathe::ops::testing {

using ir::Tensor;
using Sizes = ir::SymbolValues;

inline int64_t count(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}
inline int64_t size_of(const DimDesc& d, const Sizes& sizes) { return d.fixed() ? d.min : sizes.at(d.symbol); }
inline int64_t size_of(const ir::Expr& e, const Sizes& sizes) { return *ir::evaluate(e, sizes); }
template <class D>
std::vector<int64_t> sizes_of(const std::vector<D>& dims, const Sizes& sizes) {
  std::vector<int64_t> out;
  for (const D& d : dims) out.push_back(size_of(d, sizes));
  return out;
}
inline std::vector<int64_t> unravel(int64_t i, const std::vector<int64_t>& dims) {
  std::vector<int64_t> out(dims.size());
  for (size_t d = dims.size(); d-- > 0; i /= dims[d]) out[d] = i % dims[d];
  return out;
}
// The element at `index` with numpy's broadcasting.
inline double at(const Tensor& t, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (size_t d = 0; d < t.dims.size(); ++d) {
    const int64_t i = index[index.size() - t.dims.size() + d];
    offset = offset * t.dims[d] + (t.dims[d] == 1 ? 0 : i);
  }
  return t.data[offset];
}

template <class T>
T get(const Node& n, const std::string& name, T fallback) {
  for (const Attr& a : n.attrs) {
    if (a.name != name) continue;
    if (const auto* v = std::get_if<T>(&a.value)) return *v;
  }
  return fallback;
}

}  // namespace lathe::ops::testing
