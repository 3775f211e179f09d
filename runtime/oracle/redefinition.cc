// See redefinition.h.
#include "runtime/oracle/redefinition.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>

#include "ir/core/names.h"

namespace lathe::runtime {
namespace {

using ir::Place;

// The statements as a Kernel of their own; what they share with others becomes a parameter.
ir::Kernel part_of(const ir::Kernel& kernel, size_t first, size_t last, const std::set<std::string>& shared,
                   Place place) {
  ir::Kernel out = kernel;
  out.body.assign(kernel.body.begin() + static_cast<std::ptrdiff_t>(first),
                  kernel.body.begin() + static_cast<std::ptrdiff_t>(last));
  std::set<std::string> used;
  ir::for_each_stmt(out.body, [&](const ir::Stmt& s) {
    used.insert(s.target);
    for (const ir::Expr& i : s.index) ir::for_each_node(i, [&](const ir::ExprNode& n) { used.insert(n.name); });
    if (s.value) ir::for_each_node(s.value, [&](const ir::ExprNode& n) { used.insert(n.name); });
  });
  std::erase_if(out.buffers, [&](const ir::Buffer& b) { return used.count(b.name) == 0; });
  for (ir::Buffer& b : out.buffers) {
    if (shared.count(b.name) != 0) b.place = place;
  }
  std::stable_sort(out.buffers.begin(), out.buffers.end(), [](const ir::Buffer& a, const ir::Buffer& b) {
    return ir::is_param(a.place) && !ir::is_param(b.place);
  });
  return out;
}

// How many nests stand before those that store results.
size_t first_part(const ir::Kernel& kernel) {
  const auto stores = [&](const ir::Stmt& nest) {
    bool out = false;
    const std::span<const ir::Stmt> all(&nest, 1);
    ir::for_each_stmt(all, [&](const ir::Stmt& s) {
      out |= s.kind == ir::Stmt::Kind::assign && kernel.find_buffer(s.target)->place == Place::out;
    });
    return out;
  };
  return static_cast<size_t>(std::find_if(kernel.body.begin(), kernel.body.end(), stores) - kernel.body.begin());
}

}  // namespace

bool has_first_part(const ir::Kernel& kernel) { return first_part(kernel) > 0; }

ir::Result<ir::Kernel> run_first_part(const ir::Kernel& kernel, std::map<std::string, ir::Tensor>& tensors) {
  const size_t last = first_part(kernel);
  if (last == 0) return ir::unsupported("a redefined kernel without a first part");
  std::set<std::string> made;
  const std::span<const ir::Stmt> first(kernel.body.data(), last);
  ir::for_each_stmt(first, [&](const ir::Stmt& s) {
    if (s.kind == ir::Stmt::Kind::assign) made.insert(s.target);
  });
  ir::InterpreterOptions options;
  options.max_steps = 200'000'000;
  LATHE_RETURN_IF_ERROR(ir::interpret(part_of(kernel, 0, last, made, Place::out), {}, tensors, options));
  return part_of(kernel, last, kernel.body.size(), made, Place::in);
}

ir::Result<std::vector<std::vector<int64_t>>> same_picks(const SampledKernel& naive, const SampledKernel& redefined,
                                                         const std::vector<std::vector<int64_t>>& picks,
                                                         const std::vector<OperandShape>& shapes) {
  std::vector<std::vector<int64_t>> out(static_cast<size_t>(redefined.num_classes()));
  for (const OperandShape& s : shapes) {
    if (s.place != Place::out) continue;
    for (int d = 0; d < static_cast<int>(s.dims.size()); ++d) {
      const int from = naive.class_of(s.name, d), to = redefined.class_of(s.name, d);
      const int64_t size = s.dims[static_cast<size_t>(d)];
      std::vector<int64_t> own(static_cast<size_t>(from < 0 ? size : 0));
      std::iota(own.begin(), own.end(), 0);
      if (from >= 0) own = picks[static_cast<size_t>(from)];
      if (to < 0 && static_cast<int64_t>(own.size()) != size)
        return ir::unsupported("dimension {} of {} is sampled in one kernel only", d, s.name);
      if (to >= 0) out[static_cast<size_t>(to)] = std::move(own);
    }
  }
  for (int c = 0; c < redefined.num_classes(); ++c) {
    std::vector<int64_t>& own = out[static_cast<size_t>(c)];
    if (own.empty()) own.push_back(0);
  }
  return out;
}

double quantisation_error(const Reference& naive, const Reference& redefined) {
  double error = 0, size = 0;
  for (size_t i = 0; i < naive.real.size() && i < redefined.real.size(); ++i) {
    if (!std::isfinite(naive.real[i])) continue;
    if (!std::isfinite(redefined.real[i])) return HUGE_VAL;
    const double difference = redefined.real[i] - naive.real[i];
    error += difference * difference;
    size += naive.real[i] * naive.real[i];
  }
  return size > 0 ? error / size : error > 0 ? HUGE_VAL : 0;
}

}  // namespace lathe::runtime
