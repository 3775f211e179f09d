// See bench_operands.h.
#include "runtime/bench/bench_operands.h"

#include <algorithm>
#include <cstring>

#include "ir/analysis/analysis.h"
#include "runtime/bench/bench_memory.h"
#include "runtime/measure/work.h"
#include "runtime/oracle/data_sets.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr int64_t kMaxCopies = 16384;

}  // namespace

struct BenchOperands::Operand {
  BenchMemory memory;  // copies, `stride` apart
  size_t bytes = 0;    // of one copy
  int64_t copies = 1;
  size_t filled = 0;  // bytes of each copy that have their contents, of so many copies
  int64_t filled_copies = 0;

  size_t stride() const { return BenchMemory::round_up(bytes); }
};

BenchOperands::BenchOperands(Operator& op, const BenchOperandOptions& options) : op_(op), options_(options) {
  for (size_t a = 0; a < op.arg_tensors().size(); ++a) operands_.push_back(std::make_unique<Operand>());
}

BenchOperands::~BenchOperands() = default;

const ops::TensorDesc& BenchOperands::tensor(size_t arg) const {
  return op_.graph().tensors[static_cast<size_t>(op_.arg_tensors()[arg])];
}

// What all Kernels that read the argument take its elements to be.
Result<std::optional<ir::SymbolRange>> argument_values(const Definition& op, size_t arg, const SymbolValues& dims) {
  std::optional<ir::SymbolRange> out;
  for (const ir::ValueRange& values : op.values_of(op.arg_tensors()[arg])) {
    LATHE_ASSIGN(const std::optional<ir::SymbolRange> one, values_of(values, dims, 1));
    out = out ? ir::SymbolRange{std::max(out->lo, one->lo), std::min(out->hi, one->hi)} : one;
  }
  return out;
}

void fill_argument(const Definition& op, size_t arg, const SymbolValues& dims,
                   const std::optional<ir::SymbolRange>& values, uint64_t seed, char* data, int64_t bytes) {
  const std::vector<int>& tensors = op.arg_tensors();
  const ops::TensorDesc& tensor = op.graph().tensors[static_cast<size_t>(tensors[arg])];
  std::vector<OperandShape> shapes(tensors.size());  // as far as that matters
  for (size_t i = 0; i < tensors.size(); ++i) shapes[i].counts = op.counts(tensors[i]);
  OperandShape& own = shapes[arg];
  own.type = tensor.dtype;
  own.values = values;
  own.rises = op.rises(tensors[arg]);
  if (own.rises) own.dims = {ir::evaluate(ops::dim_expr(tensor.dims.back()), dims).value_or(1)};
  const std::optional<CountedIntegers> counted = counted_integers(shapes, arg);
  if (!counted) return fill_tame(tensor.dtype, seed, data, bytes, values);
  fill_counted(*counted, data, bytes / ir::dtype_bytes(tensor.dtype));
}

// Bytes of one copy of each operand, packed where it will be. Constants are sized once.
Status BenchOperands::sizes(const SymbolValues& dims) {
  for (size_t a = 0; a < operands_.size(); ++a) {
    Operand& o = *operands_[a];
    const int64_t size = span_at(tensor(a), dims);
    if (size > options_.ram / 4) return ir::unsupported("operand {} is too large to time", tensor(a).name);
    if (tensor(a).constant && o.filled_copies > 0) continue;
    o.bytes = static_cast<size_t>(ir::dtype_bytes(tensor(a).dtype, size));
    if (!tensor(a).constant) continue;
    LATHE_ASSIGN(const TensorPacking packing, op_.stages().packing(static_cast<int>(a), dims));
    if (!packing.parts.empty()) o.bytes = static_cast<size_t>(packing.bytes);
  }
  return {};
}

Status BenchOperands::place(const SymbolValues& dims) {
  LATHE_RETURN_IF_ERROR(sizes(dims));
  int64_t total = 0, constant = 0;
  for (size_t a = 0; a < operands_.size(); ++a) {
    total += static_cast<int64_t>(operands_[a]->stride());
    if (tensor(a).constant) constant += static_cast<int64_t>(operands_[a]->stride());
  }
  const Work work = work_at(op_.graph(), dims);
  all_rotate_ = options_.cold && 2 * work.constant_bytes < work.read_bytes;
  const int64_t wanted = options_.cold ? options_.cold_bytes : 0;
  const auto copies_of = [&](int64_t bytes) {
    return std::clamp<int64_t>((wanted + bytes - 1) / std::max<int64_t>(bytes, 1), 1, kMaxCopies);
  };
  std::vector<int64_t> copies;
  int64_t needed = 0;
  calls_ = 1;
  for (size_t a = 0; a < operands_.size(); ++a) {
    copies.push_back(tensor(a).constant ? copies_of(constant) : all_rotate_ ? copies_of(total) : 1);
    calls_ = std::max(calls_, copies[a]);
    needed += copies[a] * static_cast<int64_t>(operands_[a]->stride());
  }
  if (needed > options_.ram) return ir::unsupported("operands of {} MiB are too large to time", needed >> 20);
  for (size_t a = 0; a < operands_.size(); ++a) {
    LATHE_RETURN_IF_ERROR(reserve(a, copies[a]));
    LATHE_RETURN_IF_ERROR(fill(a, dims));
  }
  args_.clear();
  for (int64_t c = 0; c < calls_; ++c) {
    for (const auto& o : operands_)
      args_.push_back(o->memory.data() + static_cast<size_t>(c % o->copies) * o->stride());
  }
  return {};
}

Status BenchOperands::reserve(size_t arg, int64_t copies) {
  Operand& o = *operands_[arg];
  o.copies = copies;
  const size_t before = o.memory.bytes();
  if (!o.memory.reserve(o.stride() * static_cast<size_t>(copies)))
    return ir::unsupported("no memory for {}", tensor(arg).name);
  if (o.memory.bytes() != before) o.filled_copies = 0;
  return {};
}

// The first copy gets its contents, the others are copies of it: pages that nobody wrote are all the same one.
Status BenchOperands::fill(size_t arg, const SymbolValues& dims) {
  Operand& o = *operands_[arg];
  char* first = o.memory.data();
  LATHE_ASSIGN(const std::optional<ir::SymbolRange> values, argument_values(op_, arg, dims));
  if (o.filled == o.bytes && o.filled_copies >= o.copies && (tensor(arg).constant || !values)) return {};
  const uint64_t seed = options_.seed + arg;
  TensorPacking packing;
  if (tensor(arg).constant) {
    LATHE_ASSIGN(packing, op_.stages().packing(static_cast<int>(arg), dims));
  }
  if (packing.parts.empty()) {
    fill_argument(op_, arg, dims, values, seed, first, static_cast<int64_t>(o.bytes));
  } else {
    BenchMemory plain;
    const size_t size = static_cast<size_t>(ir::dtype_bytes(tensor(arg).dtype, span_at(tensor(arg), dims)));
    if (!plain.reserve(size)) return ir::unsupported("no memory for {}", tensor(arg).name);
    fill_tame(tensor(arg).dtype, seed, plain.data(), static_cast<int64_t>(size), values);
    LATHE_RETURN_IF_ERROR(run_pack(packing, dims, plain.data(), first, nullptr));
  }
  for (int64_t c = 1; c < o.copies; ++c) std::memcpy(first + static_cast<size_t>(c) * o.stride(), first, o.bytes);
  o.filled = o.bytes;
  o.filled_copies = o.copies;
  return {};
}

}  // namespace lathe::runtime
