// Shape inference per family: see shape.h.
#include "ops/shape.h"

#include <algorithm>

namespace lathe::ops {

namespace {
using ir::DType;
using ir::invalid;
using ir::Result;
using ir::Status;
using ir::unsupported;
using Inputs = std::vector<const TensorDesc*>;

std::string dim_name(const TensorDesc& t, size_t d) { return fmt::format("{}.shape[{}]", t.name, d); }

Status mismatch(const TensorDesc& t, size_t d, const std::string& expected) {
  return invalid("{}, expected {}", dim_text(t.dims[d]), expected).with_arg(dim_name(t, d));
}

Status need_rank(const TensorDesc& t, size_t rank, bool at_least, const char* op) {
  if (at_least ? t.dims.size() >= rank : t.dims.size() == rank) return {};
  return invalid("{} dimensions, expected {}{} ({})", t.dims.size(), at_least ? "at least " : "", rank, op)
      .with_arg(t.name + ".shape");
}

// Broadcasts `t`, aligned to the right, into `dims`.
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

Result<Shape> infer_matmul(const Node& node, const Inputs& in) {
  const TensorDesc &a = *in[0], &b = *in[1];
  LATHE_RETURN_IF_ERROR(need_rank(a, 2, true, "matmul"));
  LATHE_RETURN_IF_ERROR(need_rank(b, 2, true, "matmul"));
  const size_t ra = a.dims.size(), rb = b.dims.size();
  const bool ta = attr_bool(node, AttrId::transpose_a), tb = attr_bool(node, AttrId::transpose_b);
  const size_t a_k = ta ? ra - 2 : ra - 1, a_m = ta ? ra - 1 : ra - 2;
  const size_t b_k = tb ? rb - 1 : rb - 2, b_n = tb ? rb - 2 : rb - 1;
  if (!same_dim(a.dims[a_k], b.dims[b_k])) {
    return mismatch(a, a_k, fmt::format("{} (K of {})", dim_text(b.dims[b_k]), b.name));
  }
  Shape out;
  LATHE_RETURN_IF_ERROR(broadcast_into(out.dims, a, 0, ra - 2));
  LATHE_RETURN_IF_ERROR(broadcast_into(out.dims, b, 0, rb - 2));
  out.dims.push_back(a.dims[a_m]);
  out.dims.push_back(b.dims[b_n]);
  return out;
}

Result<Shape> infer_row(const OpRow& row, const Node& node, const Inputs& in) {
  const TensorDesc& x = *in[0];
  LATHE_RETURN_IF_ERROR(need_rank(x, 1, true, row.name));
  const int64_t axis = attr_int(node, AttrId::axis), rank = static_cast<int64_t>(x.dims.size());
  if (axis < -rank || axis >= rank) {
    return invalid("axis {} of {}, expected {} to {}", axis, row.name, -rank, rank - 1).with_arg(x.name);
  }
  if (axis != -1 && axis != rank - 1) {
    return unsupported("axis {} of {}: only the last axis is supported", axis, row.name).with_arg(x.name);
  }
  for (size_t i = 1; i < in.size(); ++i) {  // scale, bias
    LATHE_RETURN_IF_ERROR(need_rank(*in[i], 1, false, row.name));
    if (!same_dim(in[i]->dims[0], x.dims.back())) {
      return mismatch(*in[i], 0, fmt::format("{} (last of {})", dim_text(x.dims.back()), x.name));
    }
  }
  Shape out{x.dtype, x.dims};
  if (row.attrs & kHas_keepdims) {
    out.dims.pop_back();
    if (attr_bool(node, AttrId::keepdims)) out.dims.push_back(fixed_dim(1));
  }
  if ((row.attrs & kHas_epsilon) && attr_float(node, AttrId::epsilon) < 0) {
    return invalid("epsilon {} of {}, expected >= 0", attr_float(node, AttrId::epsilon), row.name).with_arg(x.name);
  }
  return out;
}

DType common_dtype(const OpRow& row, const Inputs& in);

Result<Shape> infer_elementwise(const OpRow& row, const Node& node, const Inputs& in) {
  Shape out;
  out.dtype = common_dtype(row, in);
  if (row.id == OpId::cast) {
    const auto& name = std::get<std::string>(attr(node, AttrId::to));
    const std::optional<DType> to = ir::parse_dtype(name);
    const auto served = cast_dtypes();
    if (!to || std::find(served.begin(), served.end(), *to) == served.end()) {
      std::string expected;
      for (const DType t : served) expected += fmt::format("{}{}", expected.empty() ? "" : ", ", ir::dtype_name(t));
      return to ? unsupported("to \"{}\" of cast, expected {}", name, expected).with_arg(in[0]->name)
                : invalid("to \"{}\" of cast, expected {}", name, expected).with_arg(in[0]->name);
    }
    out.dtype = *to;
  }
  for (const TensorDesc* t : in) LATHE_RETURN_IF_ERROR(broadcast_into(out.dims, *t, 0, t->dims.size()));
  if (row.attrs & kHas_approximate) {
    const auto& form = std::get<std::string>(attr(node, AttrId::approximate));
    if (form != "none" && form != "tanh") {
      return invalid("approximate \"{}\" of {}, expected \"none\" or \"tanh\"", form, row.name).with_arg(in[0]->name);
    }
  }
  return out;
}

Result<Shape> infer_transpose(const OpRow& row, const Node& node, const Inputs& in) {
  Shape out{in[0]->dtype, in[0]->dims};
  if (row.id == OpId::copy) return out;
  const auto& perm = std::get<std::vector<int64_t>>(attr(node, AttrId::perm));
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  bool good = perm.size() == out.dims.size();
  for (size_t i = 0; good && i < sorted.size(); ++i) good = sorted[i] == static_cast<int64_t>(i);
  if (!good) {
    return invalid("perm [{}] of transpose, expected each of the {} dimensions once", fmt::join(perm, ", "),
                   out.dims.size())
        .with_arg(in[0]->name);
  }
  for (size_t i = 0; i < perm.size(); ++i) out.dims[i] = in[0]->dims[perm[i]];
  return out;
}

Result<Shape> infer_rope(const Inputs& in) {
  const TensorDesc& x = *in[0];
  LATHE_RETURN_IF_ERROR(need_rank(x, 3, true, "rope"));
  const size_t rank = x.dims.size();
  const DimDesc& d = x.dims[rank - 1];
  if (!d.fixed()) return mismatch(x, rank - 1, "a fixed size: finish a graph for each");
  if (d.min % 2 != 0) return mismatch(x, rank - 1, "an even size, as pairs are turned: pad it by one");
  for (size_t i = 1; i < 3; ++i) {
    const TensorDesc& table = *in[i];
    LATHE_RETURN_IF_ERROR(need_rank(table, 2, false, "rope"));
    if (!same_dim(table.dims[0], x.dims[rank - 3])) {
      return mismatch(table, 0, fmt::format("{} (positions of {})", dim_text(x.dims[rank - 3]), x.name));
    }
    if (!same_dim(table.dims[1], fixed_dim(d.min / 2))) {
      return mismatch(table, 1, fmt::format("{} (half of the last of {})", d.min / 2, x.name));
    }
  }
  return Shape{DType::f32, x.dims};
}

Status check_dtypes(const OpRow& row, const Inputs& in) {
  for (size_t i = 0; i < in.size(); ++i) {
    const std::span<const DType> served = operand_dtypes(row, i);
    if (std::find(served.begin(), served.end(), in[i]->dtype) != served.end()) continue;
    std::string expected;
    for (const DType t : served) expected += fmt::format("{}{}", expected.empty() ? "" : ", ", ir::dtype_name(t));
    const auto castable = cast_dtypes();
    const bool can_cast = std::find(castable.begin(), castable.end(), in[i]->dtype) != castable.end() &&
                          std::find(served.begin(), served.end(), DType::f32) != served.end();
    return unsupported("dtype {} of {}, expected {}{}", ir::dtype_name(in[i]->dtype), row.name, expected,
                       can_cast ? "; cast it to f32 before" : "")
        .with_arg(in[i]->name);
  }
  return {};
}

// The one dtype of the data operands, or f32 where they differ.
DType common_dtype(const OpRow& row, const Inputs& in) {
  const size_t first = row.id == OpId::where ? 1 : 0;
  const bool same = std::all_of(in.begin() + static_cast<std::ptrdiff_t>(first), in.end(),
                                [&](const TensorDesc* t) { return t->dtype == in[first]->dtype; });
  return same ? in[first]->dtype : DType::f32;
}
}  // namespace

std::span<const DType> operand_dtypes(const OpRow& row, size_t number) {
  static constexpr DType kAll[] = {
#define LATHE_DTYPE(id, bits, values, kind, code) DType::id,
#include "ir/base/dtypes.def"
#undef LATHE_DTYPE
  };
  static constexpr DType kMask[] = {DType::b8}, kFloats[] = {DType::f32, DType::bf16, DType::f16};
  if (row.id == OpId::cast) return cast_dtypes();
  if (row.id == OpId::where && number == 0) return kMask;
  switch (row.family) {
    case Family::kTranspose:
      return kAll;
    case Family::kRow:
    case Family::kElementwise:
      return kFloats;
    default:
      return std::span(kFloats, 1);
  }
}

std::span<const DType> cast_dtypes() {
  static constexpr DType kCast[] = {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i8, DType::u8, DType::b8};
  return kCast;
}

Result<Shape> infer_shape(const OpRow& row, const Node& node, const Inputs& inputs) {
  LATHE_RETURN_IF_ERROR(check_dtypes(row, inputs));
  switch (row.family) {
    case Family::kMatmul:
      return infer_matmul(node, inputs);
    case Family::kRow:
      return infer_row(row, node, inputs);
    case Family::kElementwise:
      return infer_elementwise(row, node, inputs);
    case Family::kTranspose:
      return infer_transpose(row, node, inputs);
    case Family::kRope:
      return infer_rope(inputs);
  }
  return ir::internal_error("family of {}", row.name);
}

}  // namespace lathe::ops
