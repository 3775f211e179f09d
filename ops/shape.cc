// What the families' rules of shapes share: see shape.h.
#include "ops/shape.h"

#include <algorithm>

namespace lathe::ops {

namespace {
using ir::DType;
using ir::invalid;
using ir::Result;
using ir::Status;
using ir::unsupported;

bool holds(std::span<const DType> dtypes, DType type) {
  return std::find(dtypes.begin(), dtypes.end(), type) != dtypes.end();
}

Status check_dtypes(const OpRow& row, const Inputs& in) {
  for (size_t i = 0; i < in.size(); ++i) {
    const std::span<const DType> served = row.family->operand_dtypes(row, i);
    const DType type = in[i]->dtype;
    if (holds(served, type)) continue;
    const bool can_cast = holds(cast_dtypes(), type) && holds(served, DType::f32);
    return unsupported("dtype {} of {}, expected {}{}", ir::dtype_name(type), row.name, list_of(served),
                       can_cast ? "; cast it to f32 before" : "")
        .with_arg(in[i]->name);
  }
  return {};
}
}  // namespace

std::string list_of(std::span<const DType> dtypes) {
  std::string out;
  for (const DType t : dtypes) out += fmt::format("{}{}", out.empty() ? "" : ", ", ir::dtype_name(t));
  return out;
}

Status mismatch(const TensorDesc& t, size_t d, const std::string& expected) {
  return invalid("{}, expected {}", dim_text(t.dims[d]), expected).with_arg(fmt::format("{}.shape[{}]", t.name, d));
}

Status need_rank(const TensorDesc& t, size_t rank, bool at_least, const char* op) {
  if (at_least ? t.dims.size() >= rank : t.dims.size() == rank) return {};
  return invalid("{} dimensions, expected {}{} ({})", t.dims.size(), at_least ? "at least " : "", rank, op)
      .with_arg(t.name + ".shape");
}

Status need_axis(const TensorDesc& t, int64_t axis, const char* op) {
  const auto rank = static_cast<int64_t>(t.dims.size());
  if (axis >= -rank && axis < rank) return {};
  return invalid("axis {} of {}, expected {} to {}", axis, op, -rank, rank - 1).with_arg(t.name);
}

Status need_last_axis(const TensorDesc& t, int64_t axis, const char* op) {
  LATHE_RETURN_IF_ERROR(need_axis(t, axis, op));
  const auto rank = static_cast<int64_t>(t.dims.size());
  if (axis == -1 || axis == rank - 1) return {};
  return unsupported("axis {} of {}: only the last axis is supported", axis, op).with_arg(t.name);
}

Result<Shape> chosen_rows(const TensorDesc& ids, DType dtype, const DimDesc& columns) {
  if (ids.dtype != DType::i32 && ids.dtype != DType::i64)
    return invalid("dtype {}, expected i32 or i64", ir::dtype_name(ids.dtype)).with_arg(ids.name);
  if (ids.dims.size() >= kMaxRank)
    return invalid("{} dimensions, expected at most {}", ids.dims.size(), kMaxRank - 1).with_arg(ids.name + ".shape");
  Shape out{dtype, ids.dims};
  out.dims.push_back(columns);
  return out;
}

Status broadcast_into(std::vector<DimDesc>& dims, const TensorDesc& t, size_t first, size_t last) {
  const size_t n = last - first;
  if (n > dims.size()) dims.insert(dims.begin(), n - dims.size(), fixed_dim(1));
  for (size_t i = 0; i < n; ++i) {
    DimDesc& have = dims[dims.size() - n + i];
    const DimDesc& want = t.dims[first + i];
    if (same_dim(have, want) || (want.fixed() && want.min == 1)) continue;
    if (!(have.fixed() && have.min == 1)) return mismatch(t, first + i, dim_text(have) + " or 1 (broadcast)");
    have = want;
  }
  return {};
}

std::span<const DType> cast_dtypes() {
  static constexpr DType kCast[] = {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i8, DType::u8, DType::b8};
  return kCast;
}

Result<Shape> infer_shape(const OpRow& row, const Node& node, const Inputs& inputs) {
  LATHE_RETURN_IF_ERROR(check_dtypes(row, inputs));
  return row.family->infer(row, node, inputs);
}

}  // namespace lathe::ops
