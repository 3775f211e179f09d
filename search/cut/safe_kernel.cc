// See safe_kernel.h. Indices are logical: one that stays inside the declared dims stays inside the bytes behind them,
// for an argument the caller's, for a constant with a layout those of its packed form, for scratch what the nest asks
// for.
#include "search/cut/safe_kernel.h"

#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"
#include "ir/analysis/verifier.h"
#include "ir/core/layout_steps.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// Tiles and padding may round a small dimension up to a wide panel; more is nobody's layout.
constexpr double kMostGrowth = 64, kAlwaysAllowed = 1 << 16;

bool same(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Expr& x, const Expr& y) { return equal(x, y); });
}

Status check_parameters(const Kernel& naive, const Kernel& scheduled) {
  const auto count = static_cast<size_t>(naive.num_params());
  if (static_cast<size_t>(scheduled.num_params()) != count)
    return unsupported("the parameters of {} would change in number", naive.name);
  for (size_t i = 0; i < count; ++i) {
    const Buffer &a = naive.buffers[i], &b = scheduled.buffers[i];
    if (a.name != b.name || a.type != b.type || a.place != b.place || a.kept != b.kept || !same(a.dims, b.dims) ||
        !same(a.strides, b.strides) || !same(a.given_dims, b.given_dims) || a.given != b.given ||
        !equal(a.made, b.made) || !equal(a.values.lo, b.values.lo) || !equal(a.values.hi, b.values.hi))
      return unsupported("operand {} would no longer be as it was declared", a.name);
    const bool as_it_lies =
        b.layout.empty() && std::all_of(b.padding.begin(), b.padding.end(), [](int64_t pad) { return pad == 0; });
    if (b.place != Place::constant && !as_it_lies)
      return unsupported("operand {}: its layout is the caller's, and not the Schedule's to choose", b.name);
  }
  return {};
}

// Elements at the largest symbols.
double elements(const std::vector<Expr>& dims, const SymbolValues& symbols) {
  double out = 1;
  for (const Expr& d : dims) out *= static_cast<double>(evaluate(d, symbols).value_or(INT64_MAX));
  return out;
}

Status check_sizes(const Kernel& scheduled) {
  SymbolValues symbols;
  for (const Symbol& s : scheduled.symbols) symbols.emplace_back(s.name, s.max);
  for (const Buffer& b : scheduled.buffers) {
    if (b.layout.empty() && b.padding.empty()) continue;
    const double wanted = elements(physical_dims(b), symbols);
    if (wanted > kAlwaysAllowed && wanted > kMostGrowth * elements(b.dims, symbols))
      return unsupported("buffer {}: layout and padding would take {:.3g} elements, over {} times what is in it",
                         b.name, wanted, kMostGrowth);
  }
  // What lies between is other constants.
  double constants = kAlwaysAllowed;
  for (const Buffer& b : scheduled.buffers) {
    if (b.place == Place::constant) constants += elements(physical_dims(b), symbols) * dtype_bytes(b.type);
  }
  for (const Buffer& b : scheduled.buffers) {
    std::vector<Expr> dims = physical_dims(b);
    double step = 1;
    for (size_t d = dims.size(); d-- > 0 && has_steps(b);) {
      if (stated_step(b, d) != 0) step = static_cast<double>(stated_step(b, d));
      step *= elements({dims[d]}, symbols);
    }
    const double wanted = step * dtype_bytes(b.type);
    if (wanted > kMostGrowth * constants)
      return unsupported("buffer {}: its steps would take {:.3g} bytes, over {} times those of all constants", b.name,
                         wanted, kMostGrowth);
  }
  return {};
}

}  // namespace

Status check_safe(const Kernel& naive, const Kernel& scheduled) {
  LATHE_RETURN_IF_ERROR(check_parameters(naive, scheduled));
  LATHE_RETURN_IF_ERROR(check_sizes(scheduled));
  const Status proven = verify(scheduled, Bounds::proven);
  return proven.ok() ? Status() : unsupported("{}", proven.message());
}

}  // namespace lathe::search
