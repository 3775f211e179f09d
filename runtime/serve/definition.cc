// See definition.h.
#include "runtime/serve/definition.h"

#include "ir/core/text_form.h"
#include "ops/op_table.h"
#include "runtime/compile/plain_constants.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr size_t kMaxHintedDims = 64;

// The kernel over its whole declared range; 0 is in every dim's range.
ir::Kernel widened(const ir::Kernel& kernel) {
  ir::Kernel out = kernel;
  for (ir::Symbol& s : out.symbols) {
    if (s.min != s.max) s.min = 0;
  }
  return out;
}

}  // namespace

Result<Definition> Definition::of(const ops::Graph& finished, const ir::Target& target) {
  Definition out;
  out.target_ = target;
  out.graph_ = finished;
  LATHE_ASSIGN(out.lowered_, ops::lower(finished));
  out.arg_tensors_ = ops::arguments(finished);
  return out;
}

std::vector<ir::ValueRange> Definition::values_of(int tensor) const {
  std::vector<ir::ValueRange> out;
  for (const ops::LoweredKernel& k : lowered_.kernels) {
    for (size_t p = 0; p < k.params.size(); ++p) {
      if (k.params[p].tensor == tensor && k.kernel.buffers[p].values) out.push_back(k.kernel.buffers[p].values);
    }
  }
  return out;
}

bool Definition::rises(int tensor) const {
  for (const ops::LoweredKernel& k : lowered_.kernels) {
    for (const ops::ParamSource& p : k.params) {
      if (p.tensor == tensor && p.rises) return true;
    }
  }
  return false;
}

std::vector<SymbolValues> Definition::hinted_dims() const {
  std::vector<SymbolValues> out{{}};
  for (const ops::DimDesc& d : graph_.symbols) {
    std::vector<SymbolValues> next;
    for (const SymbolValues& values : out) {
      if (d.hints.empty()) {
        next.push_back(values);
        next.back().emplace_back(ops::kernel_symbol(d.symbol), d.max);
      }
      for (const ops::Hint& h : d.hints) {
        if (next.size() >= kMaxHintedDims) break;
        next.push_back(values);
        next.back().emplace_back(ops::kernel_symbol(d.symbol), h.value);
      }
    }
    out = std::move(next);
  }
  return out;
}

std::vector<SymbolRange> Definition::ranges_at(int kernel, const SymbolValues& dims) const {
  std::vector<SymbolRange> out;
  for (const ir::Symbol& s : lowered_.kernels[static_cast<size_t>(kernel)].kernel.symbols) {
    out.push_back(default_range(dims.value_or(s.name, s.max), {s.min, s.max}));
  }
  return out;
}

search::Problem Definition::problem_in(int kernel, const std::vector<SymbolRange>& ranges, const SymbolValues& dims,
                                       const PrepareRequest& request) const {
  const ir::Kernel& naive = lowered_.kernels[static_cast<size_t>(kernel)].kernel;
  SymbolRanges narrowed;
  search::Problem p;
  for (size_t i = 0; i < naive.symbols.size(); ++i) {
    const ir::Symbol& s = naive.symbols[i];
    narrowed[s.name] = ranges[i];
    p.dims[s.name] = dims.value_or(s.name, s.max);
  }
  p.one_layout = !naive.symbols.empty();
  p.unhurried = true;
  p.kernel = search::restrict_symbols(naive, narrowed);
  p.threads = request.threads;
  p.cold = request.cold;
  p.allowed = allowed_classes(request);
  return p;
}

DecisionQuery Definition::query_in(int kernel, const std::vector<SymbolRange>& ranges,
                                   const PrepareRequest& request) const {
  DecisionQuery q;
  q.structure = lowered_.kernels[static_cast<size_t>(kernel)].structure;
  q.ranges = ranges;
  q.threads = request.threads;
  q.cold = request.cold;
  q.allowed = allowed_classes(request);
  return q;
}

search::Problem Definition::problem(int kernel, const SymbolValues& dims, const PrepareRequest& request) const {
  return problem_in(kernel, ranges_at(kernel, dims), dims, request);
}

DecisionQuery Definition::query(int kernel, const SymbolValues& dims, const PrepareRequest& request) const {
  return query_in(kernel, ranges_at(kernel, dims), request);
}

// The values of symbols that the problem is for.
SymbolRanges Definition::range_of(int kernel, const search::Problem& problem) const {
  SymbolRanges out;
  for (const ir::Symbol& s : lowered_.kernels[static_cast<size_t>(kernel)].kernel.symbols) {
    const ir::Symbol* left = problem.kernel.find_symbol(s.name);
    const auto fixed = problem.dims.find(s.name);
    if (left != nullptr) {
      out[s.name] = {left->min, left->max};
    } else if (fixed != problem.dims.end()) {
      out[s.name] = {fixed->second, fixed->second};
    }
  }
  return out;
}

search::Problem Definition::general_problem(int kernel, bool packed, const PrepareRequest& request) const {
  search::Problem p;
  const ir::Kernel& naive = lowered_.kernels[static_cast<size_t>(kernel)].kernel;
  const ir::Kernel whole = widened(naive);
  p.kernel = packed ? whole : constants_as_inputs(whole, target_);
  p.one_layout = !naive.symbols.empty();
  const std::vector<SymbolValues> hints = hinted_dims();
  for (const auto& [name, value] : hints.back()) p.dims[name] = value;
  p.threads = request.threads;
  p.cold = request.cold;
  p.allowed = allowed_classes(request);
  return p;
}

}  // namespace lathe::runtime
