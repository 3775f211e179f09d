// Matching the arguments of a call: see call_args.h. In-place calls are judged by alias.cc's rule.
#include "runtime/capi/call_args.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "ops/monomial.h"
#include "ops/op_table.h"
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

[[gnu::cold]] Status refuse_device(const CallPlan& plan, int arg, const lathe_device& have) {
  const ArgPlan& a = plan.args[static_cast<size_t>(arg)];
  if (plan.device.type == 1) return refuse(a, arg, ".device", fmt::format("type {}, expected 1 (CPU)", have.type));
  return refuse(
      a, arg, ".device",
      fmt::format("type {} id {}, expected {} (CUDA) id {}", have.type, have.id, plan.device.type, plan.device.id));
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

// The expression, which is affine, from its values where all symbols are 0, and where one is 1.
Result<ValueCheck::End> end_of(const ir::Expr& e, const std::vector<ops::DimDesc>& symbols) {
  ir::SymbolValues at;
  for (const ops::DimDesc& s : symbols) at.emplace_back(ops::kernel_symbol(s.symbol), 0);
  ValueCheck::End out;
  const std::optional<int64_t> base = ir::evaluate(e, at);
  if (!base) return ir::internal_error("a range of values ends at {}", ir::print(e));
  out.base = *base;
  for (size_t s = 0; s < symbols.size(); ++s) {
    const std::string name = ops::kernel_symbol(symbols[s].symbol);
    at[name] = 1;
    out.by_symbol[s] = ir::evaluate(e, at).value_or(out.base) - out.base;
    at[name] = 0;
  }
  return out;
}

int64_t end_at(const ValueCheck::End& end, size_t symbols, const DispatchKey& key) {
  __int128 out = end.base;
  for (size_t s = 0; s < symbols; ++s) out += static_cast<__int128>(end.by_symbol[s]) * key.dims[s];
  return static_cast<int64_t>(std::clamp<__int128>(out, INT64_MIN, INT64_MAX));
}

// The first of n elements outside lo..hi and its value; false: none is.
template <class T>
bool find_outside(const void* data, int64_t n, int64_t stride, int64_t lo, int64_t hi, int64_t& at, int64_t& value) {
  const T* const values = static_cast<const T*>(data);
  bool outside = false;
  for (int64_t i = 0; i < n; ++i) outside |= values[i * stride] < lo || values[i * stride] > hi;
  if (!outside) return false;
  for (at = 0; values[at * stride] >= lo && values[at * stride] <= hi;) ++at;
  value = values[at * stride];
  return true;
}

// The first of n elements that is less than the one before it; lo: that one.
template <class T>
bool find_fall(const void* data, int64_t n, int64_t stride, int64_t& lo, int64_t& at, int64_t& value) {
  const T* const values = static_cast<const T*>(data);
  for (at = 1; at < n; ++at) {
    lo = values[(at - 1) * stride];
    value = values[at * stride];
    if (value < lo) return true;
  }
  return false;
}

using FindOutside = bool (*)(const void*, int64_t, int64_t, int64_t, int64_t, int64_t&, int64_t&);
FindOutside find_outside_in(const ArgPlan& a) {
  const bool has_sign = a.dtype.code == ir::dtype_dlpack_code(ir::DType::i32);
  if (a.bytes == 1) return has_sign ? find_outside<int8_t> : find_outside<uint8_t>;
  return a.bytes == 4 ? find_outside<int32_t> : find_outside<int64_t>;
}

Status plan_stride(const CallPlan& plan, const ops::TensorDesc& t, size_t d, ArgPlan& a) {
  const std::optional<ops::Monomial> stride = ops::monomial(t.strides[d]);
  if (!stride || stride->symbols.size() > 1)
    return ir::unsupported("expected a number times at most one symbol")
        .with_arg(fmt::format("{}.strides[{}]", t.name, d));
  a.strides[d] = stride->coeff;
  a.stride_symbol[d] = -1;
  if (stride->symbols.empty()) return {};
  const auto at = std::find_if(plan.symbols.begin(), plan.symbols.end(),
                               [&](const ir::Symbol& s) { return s.name == stride->symbols[0]; });
  if (at == plan.symbols.end()) return ir::internal_error("a stride of {} is {}", t.name, ir::print(t.strides[d]));
  a.stride_symbol[d] = static_cast<int8_t>(at - plan.symbols.begin());
  return {};
}

// The stride of an argument that is not compact, once the sizes are known. No product overflows: the graph was checked.
int64_t stride_of(const ArgPlan& a, int d, const DispatchKey& key) {
  return a.stride_symbol[d] < 0 ? a.strides[d] : a.strides[d] * key.dims[a.stride_symbol[d]];
}

}  // namespace

Result<CallPlan> make_call_plan(const Operator& op, const ops::Graph& graph) {
  CallPlan plan;
  for (const ops::DimDesc& d : graph.symbols)
    plan.symbols.push_back({ops::kernel_symbol(d.symbol), d.min, d.max, d.multiple_of});
  const std::vector<int> arguments = ops::arguments(graph);
  const size_t inputs = graph.inputs.size(), total = arguments.size();
  if (total > kMaxArgs) return ir::unsupported("{} arguments, expected at most {}", total, kMaxArgs);
  for (size_t i = 0; i < total; ++i) {
    const int tensor = arguments[i];
    const ops::TensorDesc& t = graph.tensors[static_cast<size_t>(tensor)];
    ArgPlan a;
    a.name = t.name;
    a.dtype = {static_cast<uint8_t>(ir::dtype_dlpack_code(t.dtype)), static_cast<uint8_t>(ir::dtype_bits(t.dtype)), 1};
    a.bytes = ir::dtype_bytes(t.dtype);
    a.rank = static_cast<int32_t>(t.dims.size());
    a.output = i >= inputs || ops::is_updated(graph, tensor);
    a.constant = t.constant;
    a.compact = t.strides.empty();
    for (size_t d = 0; d < t.dims.size(); ++d) {
      const auto symbol = std::find_if(graph.symbols.begin(), graph.symbols.end(),
                                       [&](const ops::DimDesc& s) { return s.symbol == t.dims[d].symbol; });
      a.symbol[d] = t.dims[d].fixed() ? int8_t{-1} : static_cast<int8_t>(symbol - graph.symbols.begin());
      a.size[d] = t.dims[d].max;
      if (a.compact) continue;
      LATHE_RETURN_IF_ERROR(plan_stride(plan, t, d, a));
    }
    if (a.constant) find_packing(op, tensor, a);
    for (const ir::ValueRange& values : op.values_of(i < inputs ? tensor : -1)) {
      ValueCheck check;
      check.arg = static_cast<int>(i);
      LATHE_ASSIGN(check.lo, end_of(values.lo, op.graph().symbols));
      LATHE_ASSIGN(check.hi, end_of(values.hi, op.graph().symbols));
      check.rises = op.rises(tensor);
      plan.values.push_back(check);
    }
    plan.args.push_back(std::move(a));
  }
  plan.exact_alias = may_run_in_place(op);
  return plan;
}

namespace {

// The type, rank and sizes of one tensor; symbols are taken as they come (seen: which are set).
Status match_sizes(const CallPlan& plan, int arg, const lathe_tensor& t, MatchedCall& out, uint32_t& seen) {
  const ArgPlan& a = plan.args[static_cast<size_t>(arg)];
  if (t.device.type != plan.device.type || (t.device.type != 1 && t.device.id != plan.device.id))
    return refuse_device(plan, arg, t.device);
  if (t.dtype.code != a.dtype.code || t.dtype.bits != a.dtype.bits || t.dtype.lanes != 1) {
    return refuse(a, arg, ".dtype",
                  fmt::format("code {} bits {} lanes {}, expected code {} bits {} lanes 1", t.dtype.code, t.dtype.bits,
                              t.dtype.lanes, a.dtype.code, a.dtype.bits));
  }
  if (t.ndim != a.rank) return refuse(a, arg, ".ndim", fmt::format("{}, expected {}", t.ndim, a.rank));
  if (a.rank > 0 && t.shape == nullptr) return refuse(a, arg, ".shape", "NULL, expected a pointer");
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
  }
  return {};
}

// Its strides and memory, once all sizes are known.
Status match_memory(const CallPlan& plan, int arg, const lathe_tensor& t, MatchedCall& out) {
  const ArgPlan& a = plan.args[static_cast<size_t>(arg)];
  // From the innermost dimension on: the stride it must have, the one it has, and how far it reaches.
  struct {
    int d = -1;
    int64_t want = 0, have = 0;
  } other;  // the innermost that has another one
  int64_t compact = 1, last = 0;
  for (int d = a.rank - 1; d >= 0; --d) {
    const int64_t want = a.compact ? compact : stride_of(a, d, out.key);
    const int64_t have = t.strides != nullptr ? t.strides[d] : compact;
    if (have < 0) return refuse(a, arg, "strides", d, fmt::format("{}, expected >= 0", have));
    if (have != want && t.shape[d] > 1 && other.d < 0) other = {d, want, have};
    last += (t.shape[d] - 1) * want;
    compact *= t.shape[d];
  }
  const bool empty = compact == 0;
  if (other.d >= 0 && !empty) {
    return refuse(a, arg, "strides", other.d,
                  fmt::format("{}, expected {}{}", other.have, other.want,
                              other.have == 0 && a.output ? " (elements of an output share memory)" : ""));
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
  return a.compact || (std::equal(a.strides, a.strides + a.rank, b.strides) &&
                       std::equal(a.stride_symbol, a.stride_symbol + a.rank, b.stride_symbol));
}

// No output overlaps another argument, but for one that is exactly an input where that is harmless.
Status match_overlaps(const CallPlan& plan, const lathe_arg* args, const MatchedCall& call) {
  const int n = static_cast<int>(plan.args.size());
  for (int o = n - 1; o >= 0; --o) {
    if (!plan.args[static_cast<size_t>(o)].output) continue;
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

Status match_constant(const CallPlan& plan, int arg, const lathe_tensor& tensor, MatchedCall& out) {
  uint32_t seen = 0;
  LATHE_RETURN_IF_ERROR(match_sizes(plan, arg, tensor, out, seen));
  const ArgPlan& a = plan.args[static_cast<size_t>(arg)];
  for (int d = 0; d < a.rank && !a.compact; ++d) {
    const int symbol = a.stride_symbol[d];
    if (symbol >= 0 && (seen >> symbol & 1) == 0) {
      return refuse(
          a, arg, "strides", d,
          fmt::format("depends on {}, which is no size of it", plan.symbols[static_cast<size_t>(symbol)].name));
    }
  }
  return match_memory(plan, arg, tensor, out);
}

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
    LATHE_RETURN_IF_ERROR(match_sizes(plan, arg, *given.tensor, out, seen));
  }
  for (size_t i = 0; i < n; ++i) {
    const ArgPlan& a = plan.args[i];
    const lathe_arg& given = args[i];
    const int arg = static_cast<int>(i);
    LATHE_RETURN_IF_ERROR(match_memory(plan, arg, *given.tensor, out));
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

bool values_fit(const CallPlan& plan, const DispatchKey& key, void* const* data, ForeignValue& foreign) noexcept {
  for (const ValueCheck& check : plan.values) {
    const ArgPlan& a = plan.args[static_cast<size_t>(check.arg)];
    const int64_t lo = end_at(check.lo, plan.symbols.size(), key);
    foreign.hi = end_at(check.hi, plan.symbols.size(), key);
    int64_t size[ops::kMaxRank] = {}, stride[ops::kMaxRank] = {}, elements = 1;
    for (int d = a.rank - 1; d >= 0; --d) {
      size[d] = a.symbol[d] < 0 ? a.size[d] : key.dims[a.symbol[d]];
      stride[d] = a.compact ? elements : stride_of(a, d, key);
      elements *= size[d];
    }
    if (elements == 0) continue;
    const bool one_row = a.rank == 0 || (a.compact && !check.rises);
    const int outer = one_row ? 0 : a.rank - 1;
    const int64_t row = one_row ? elements : size[outer], step = one_row ? 1 : stride[outer];
    const FindOutside find = find_outside_in(a);
    int64_t at[ops::kMaxRank] = {}, offset = 0;
    for (int64_t rows = elements / row; rows > 0; --rows) {
      int64_t found = 0;
      const char* const first = static_cast<const char*>(data[check.arg]) + offset * a.bytes;
      const auto fall = a.bytes == 4 ? find_fall<int32_t> : find_fall<int64_t>;
      foreign.lo = lo;
      if (find(first, row, step, lo, foreign.hi, found, foreign.value) ||
          (check.rises && fall(first, row, step, foreign.lo, found, foreign.value))) {
        for (int d = a.rank - 1; d >= outer; --d) {
          at[d] = found % size[d];
          found /= size[d];
        }
        std::copy(at, at + a.rank, foreign.at);
        foreign.arg = check.arg;
        return false;
      }
      for (int d = outer - 1; d >= 0; --d) {
        offset += stride[d];
        if (++at[d] < size[d]) break;
        offset -= stride[d] * size[d];
        at[d] = 0;
      }
    }
  }
  return true;
}

Status match_values(const CallPlan& plan, const MatchedCall& call) {
  ForeignValue v;
  if (values_fit(plan, call.key, call.data, v)) return {};
  const ArgPlan& a = plan.args[static_cast<size_t>(v.arg)];
  const std::string at = fmt::format("[{}]", fmt::join(v.at, v.at + a.rank, ", "));
  return refuse(a, v.arg, at.c_str(),
                v.lo > v.hi ? fmt::format("{}, and no value is allowed: the range is {}..{}", v.value, v.lo, v.hi)
                            : fmt::format("{}, expected {}..{}", v.value, v.lo, v.hi));
}

Status match_value_ranges(const CallPlan& plan, const MatchedCall& call) {
  for (const ValueCheck& check : plan.values) {
    const int64_t lo = end_at(check.lo, plan.symbols.size(), call.key),
                  hi = end_at(check.hi, plan.symbols.size(), call.key);
    if (lo > hi && call.bytes[check.arg] != 0)
      return refuse(plan.args[static_cast<size_t>(check.arg)], check.arg, "",
                    fmt::format("no value is allowed: the range is {}..{}", lo, hi));
  }
  return {};
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
