// Matching the arguments of a call: see call_args.h. In-place calls are judged by alias.cc's rule.
#include "runtime/capi/call_args.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "runtime/capi/alias.h"
#include "runtime/capi/handle.h"

namespace lathe::runtime {

using ir::invalid;
using ir::Result;
using ir::Status;

namespace {

// The one packed form that all stages of the operator agree on, or none.
void find_packing(const Operator& op, int tensor, ArgPlan& plan) {
  bool agreed = true;
  for (size_t k = 0; k < op.lowered().kernels.size(); ++k) {
    for (const auto& s : op.stages().of(static_cast<int>(k))) {
      const Result<TensorPacking> packing = tensor_packing(op.lowered().kernels[k], s->stage, tensor, {});
      agreed &= packing.ok();
      if (!packing.ok() || packing->parts.empty()) continue;
      agreed &= plan.layout_id == 0 || plan.layout_id == packing->layout_id;
      plan.layout_id = packing->layout_id;
      plan.packed_bytes = static_cast<uint64_t>(packing->bytes);
    }
  }
  if (!agreed) plan.layout_id = plan.packed_bytes = 0;
}

[[gnu::cold]] Status refuse(const ArgPlan& plan, int arg, const char* field, std::string message) {
  return ir::make_error_impl(ir::Code::kINVALID, std::move(message), plan.name + field, arg);
}
[[gnu::cold]] Status refuse(const ArgPlan& plan, int arg, const char* field, int d, std::string message) {
  return ir::make_error_impl(ir::Code::kINVALID, std::move(message), fmt::format("{}.{}[{}]", plan.name, field, d),
                             arg);
}

[[gnu::cold]] Status refuse_size(const CallPlan& plan, int arg, int d, int64_t size, const MatchedCall& call,
                                 uint32_t seen) {
  const ArgPlan& a = plan.args[static_cast<size_t>(arg)];
  const int symbol = a.symbol[d];
  if (symbol < 0) return refuse(a, arg, "shape", d, fmt::format("{}, expected {}", size, a.size[d]));
  const ir::Symbol& s = plan.symbols[static_cast<size_t>(symbol)];
  if (seen >> symbol & 1 && call.key.dims[symbol] != size) {
    return refuse(
        a, arg, "shape", d,
        fmt::format("{}, expected {} ({} has that value in another dimension)", size, call.key.dims[symbol], s.name));
  }
  return refuse(a, arg, "shape", d,
                s.multiple_of == 1 ? fmt::format("{}, expected 0 or {}..{} ({})", size, s.min, s.max, s.name)
                                   : fmt::format("{}, expected 0 or a multiple of {} in {}..{} ({})", size,
                                                 s.multiple_of, s.min, s.max, s.name));
}

bool in_range(const ir::Symbol& s, int64_t value) {
  if (value == 0) return true;
  return value >= s.min && value <= s.max && (s.multiple_of == 1 || value % s.multiple_of == 0);
}

}  // namespace

Result<CallPlan> make_call_plan(const Operator& op, const ops::Graph& graph) {
  CallPlan plan;
  for (const ops::DimDesc& d : graph.symbols)
    plan.symbols.push_back({ops::kernel_symbol(d.symbol), d.min, d.max, d.multiple_of});
  const size_t inputs = graph.inputs.size(), total = inputs + graph.outputs.size();
  if (total > kMaxArgs) return ir::unsupported("{} arguments, expected at most {}", total, kMaxArgs);
  for (size_t i = 0; i < total; ++i) {
    const int tensor = i < inputs ? graph.inputs[i] : graph.outputs[i - inputs];
    const ops::TensorDesc& t = graph.tensors[static_cast<size_t>(tensor)];
    ArgPlan a;
    a.name = t.name;
    a.dtype = {static_cast<uint8_t>(ir::dtype_dlpack_code(t.dtype)), static_cast<uint8_t>(ir::dtype_bits(t.dtype)), 1};
    a.bytes = ir::dtype_bytes(t.dtype);
    a.rank = static_cast<int32_t>(t.dims.size());
    a.output = i >= inputs;
    a.constant = t.constant;
    a.compact = t.strides.empty();
    for (size_t d = 0; d < t.dims.size(); ++d) {
      const auto symbol = std::find_if(graph.symbols.begin(), graph.symbols.end(),
                                       [&](const ops::DimDesc& s) { return s.symbol == t.dims[d].symbol; });
      a.symbol[d] = t.dims[d].fixed() ? int8_t{-1} : static_cast<int8_t>(symbol - graph.symbols.begin());
      a.size[d] = t.dims[d].max;
      if (a.compact) continue;
      const std::optional<int64_t> stride = ir::evaluate(t.strides[d], {});
      if (!stride) return ir::unsupported("a stride that is not a number").with_arg(t.name);
      a.strides[d] = *stride;
    }
    if (a.constant) find_packing(op, tensor, a);
    plan.args.push_back(std::move(a));
  }
  plan.exact_alias = may_run_in_place(op);
  return plan;
}

Status match_tensor(const CallPlan& plan, int arg, const lathe_tensor& t, MatchedCall& out, uint32_t& seen) {
  const ArgPlan& a = plan.args[static_cast<size_t>(arg)];
  if (t.device.type != 1) return refuse(a, arg, ".device", fmt::format("type {}, expected 1 (CPU)", t.device.type));
  if (t.dtype.code != a.dtype.code || t.dtype.bits != a.dtype.bits || t.dtype.lanes != 1) {
    return refuse(a, arg, ".dtype",
                  fmt::format("code {} bits {} lanes {}, expected code {} bits {} lanes 1", t.dtype.code, t.dtype.bits,
                              t.dtype.lanes, a.dtype.code, a.dtype.bits));
  }
  if (t.ndim != a.rank) return refuse(a, arg, ".ndim", fmt::format("{}, expected {}", t.ndim, a.rank));
  if (a.rank > 0 && t.shape == nullptr) return refuse(a, arg, ".shape", "NULL, expected a pointer");
  bool empty = false;
  for (int d = 0; d < a.rank; ++d) {
    const int64_t size = t.shape[d];
    const int s = a.symbol[d];
    if (s < 0) {
      if (size != a.size[d]) return refuse_size(plan, arg, d, size, out, seen);
    } else if (seen >> s & 1) {
      if (size != out.key.dims[s]) return refuse_size(plan, arg, d, size, out, seen);
    } else {
      if (!in_range(plan.symbols[static_cast<size_t>(s)], size)) return refuse_size(plan, arg, d, size, out, seen);
      out.key.dims[s] = size;
      seen |= 1u << s;
    }
    empty |= size == 0;
  }
  // From the innermost dimension on: the stride it must have, the one it has, and how far it reaches.
  int64_t compact = 1, last = 0;
  for (int d = a.rank - 1; d >= 0; --d) {
    const int64_t want = a.compact ? compact : a.strides[d];
    const int64_t have = t.strides != nullptr ? t.strides[d] : compact;
    if (have < 0) return refuse(a, arg, "strides", d, fmt::format("{}, expected >= 0", have));
    if (have != want && t.shape[d] > 1 && !empty) {
      return refuse(a, arg, "strides", d,
                    fmt::format("{}, expected {}{}", have, want,
                                have == 0 && a.output ? " (elements of an output share memory)" : ""));
    }
    last += (t.shape[d] - 1) * want;
    compact *= t.shape[d];
  }
  const auto at = reinterpret_cast<uintptr_t>(t.data);
  const uintptr_t first = at + t.byte_offset;
  out.data[arg] = reinterpret_cast<void*>(first);
  if (empty) {
    out.bytes[arg] = 0;
    return {};
  }
  out.bytes[arg] = static_cast<uint64_t>(last + 1) * static_cast<uint64_t>(a.bytes);
  if (t.data == nullptr) return refuse(a, arg, ".data", "NULL, expected a pointer");
  if (first < at || first + out.bytes[arg] < first)
    return refuse(a, arg, ".byte_offset", fmt::format("{} wraps round the address space", t.byte_offset));
  if (first % static_cast<uintptr_t>(a.bytes) != 0) {
    return refuse(a, arg, t.byte_offset % static_cast<uint64_t>(a.bytes) != 0 ? ".byte_offset" : ".data",
                  fmt::format("not aligned to its elements of {} bytes", a.bytes));
  }
  return {};
}

namespace {

// A packed constant: its memory has a form of its own.
Status match_packed(const CallPlan& plan, int arg, const lathe_arg& given, MatchedCall& out) {
  const ArgPlan& a = plan.args[static_cast<size_t>(arg)];
  if (a.layout_id == 0 || given.layout_id != a.layout_id) {
    return refuse(a, arg, ".layout_id",
                  fmt::format("{:#x}, expected {}", given.layout_id,
                              a.layout_id == 0 ? "0" : fmt::format("0 or {:#x}", a.layout_id)));
  }
  if (out.bytes[arg] == 0) return {};
  if (reinterpret_cast<uintptr_t>(out.data[arg]) % kPackAlign != 0) {
    return refuse(a, arg, ".data", fmt::format("a packed constant is aligned to {} bytes", kPackAlign));
  }
  out.bytes[arg] = a.packed_bytes;
  out.packed = true;
  return {};
}

bool same_strides(const ArgPlan& a, const ArgPlan& b) {
  if (a.compact != b.compact) return false;
  return a.compact || std::equal(a.strides, a.strides + a.rank, b.strides);
}

// No output overlaps another argument, but for one that is exactly an input where that is harmless.
Status match_overlaps(const CallPlan& plan, const lathe_arg* args, const MatchedCall& call) {
  const int n = static_cast<int>(plan.args.size());
  for (int o = n - 1; o >= 0 && plan.args[static_cast<size_t>(o)].output; --o) {
    const auto lo = reinterpret_cast<uintptr_t>(call.data[o]), hi = lo + call.bytes[o];
    const ArgPlan& out = plan.args[static_cast<size_t>(o)];
    for (int i = 0; i < n; ++i) {
      const auto first = reinterpret_cast<uintptr_t>(call.data[i]);
      if (i == o || call.bytes[i] == 0 || first >= hi || lo >= first + call.bytes[i]) continue;
      const ArgPlan& in = plan.args[static_cast<size_t>(i)];
      const bool exact = first == lo && call.bytes[i] == call.bytes[o] && args[i].layout_id == 0 &&
                         in.rank == out.rank && in.bytes == out.bytes && same_strides(in, out) &&
                         std::equal(args[i].tensor->shape, args[i].tensor->shape + in.rank, args[o].tensor->shape);
      if (exact && plan.exact_alias && !in.output) continue;
      return refuse(out, o, ".data",
                    fmt::format("overlaps {}{}", in.name, exact ? "; this operator cannot run in place" : ""));
    }
  }
  return {};
}

}  // namespace

Status match_call(const CallPlan& plan, const lathe_arg* args, size_t num_args, int32_t threads, MatchedCall& out) {
  const size_t n = plan.args.size();
  if (num_args != n) return invalid("{}, expected {} (inputs, then outputs)", num_args, n).with_arg("num_args", 2);
  if (args == nullptr) return null_argument("args", 1);
  if (threads < 1 || threads > kMaxThreads)
    return invalid("{}, expected 1..{}", threads, kMaxThreads).with_arg("threads");
  uint32_t seen = 0;
  out.packed = false;
  bool plain = false;  // a constant that could be packed, and is not
  for (size_t i = 0; i < n; ++i) {
    const ArgPlan& a = plan.args[i];
    const lathe_arg& given = args[i];
    const int arg = static_cast<int>(i);
    if (given.tensor == nullptr) return refuse(a, arg, ".tensor", "NULL, expected a pointer");
    if ((given.flags & ~uint32_t{LATHE_ARG_READ_ONLY}) != 0)
      return refuse(a, arg, ".flags", fmt::format("{:#x}: unknown bits", given.flags));
    if (given.reserved != 0) return refuse(a, arg, ".reserved", "expected 0");
    if (a.output && (given.flags & LATHE_ARG_READ_ONLY) != 0)
      return refuse(a, arg, ".flags", "an output cannot be READ_ONLY");
    LATHE_RETURN_IF_ERROR(match_tensor(plan, arg, *given.tensor, out, seen));
    if (given.layout_id != 0) {
      LATHE_RETURN_IF_ERROR(match_packed(plan, arg, given, out));
    } else {
      plain |= a.layout_id != 0;
    }
    if (given.bytes != 0 && given.bytes < out.bytes[i]) {
      return refuse(a, arg, ".bytes", fmt::format("{}, expected at least {}", given.bytes, out.bytes[i]));
    }
  }
  if (out.packed && plain) {
    return ir::unsupported("some constants are packed and others are not: pack all that lathe_prepack_query names")
        .with_arg("args", 1);
  }
  out.key.threads = static_cast<uint16_t>(threads);
  out.key.packed = out.packed ? 1 : 0;
  return match_overlaps(plan, args, out);
}

CallShape operator_call(const Operator& op, const CallPlan& plan, const MatchedCall& call) {
  CallShape out;
  for (size_t i = 0; i < plan.symbols.size(); ++i)
    out.symbols.emplace_back(ops::kernel_symbol(op.graph().symbols[i].symbol), call.key.dims[i]);
  out.threads = call.key.threads;
  out.packed = call.packed;
  return out;
}

}  // namespace lathe::runtime
