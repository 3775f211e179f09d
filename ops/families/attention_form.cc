// See attention_form.h.
#include "ops/families/attention_form.h"

#include <algorithm>
#include <cmath>

#include "ops/shape.h"

namespace lathe::ops {

namespace {

constexpr size_t kQuery = AttentionForm::kQuery, kKey = AttentionForm::kKey, kValue = AttentionForm::kValue;

// Operands that every node of the operator has, in order: q, k, v; of sequences the lengths, the tables of pages, the
// offsets of their queries.
constexpr size_t kLengths = 3, kPages = 4, kOffsets = 5;
bool is_ragged(const OpRow& row) { return row.id == OpId::ragged_attention; }
bool has_pages(const OpRow& row) { return is_ragged(row) || row.id == OpId::paged_attention; }
bool has_lengths(const OpRow& row) { return row.id != OpId::attention; }
size_t fixed_operands(const OpRow& row) { return is_ragged(row) ? 6 : has_pages(row) ? 5 : has_lengths(row) ? 4 : 3; }

bool has_scales(const OpRow& row, const Node& node) { return has_lengths(row) && attr_bool(node, AttrId::scales); }

ir::Status attributes_hold(const OpRow& row, const Node& node) {
  const AttrValue *cap = find_attr(node, AttrId::soft_cap), *window = find_attr(node, AttrId::window);
  if (cap != nullptr && !(std::get<double>(*cap) > 0))
    return ir::invalid("soft_cap {}, expected a number above 0; leave it out for none", std::get<double>(*cap))
        .with_arg(row.name);
  if (window != nullptr && std::get<int64_t>(*window) < 1)
    return ir::invalid("window {}, expected at least 1; leave it out for all keys", std::get<int64_t>(*window))
        .with_arg(row.name);
  const bool sinks = attr_bool(node, AttrId::sinks);
  const size_t least = fixed_operands(row) + (has_scales(row, node) ? 2 : 0) + (sinks ? 1 : 0);
  if (node.inputs.size() == least || node.inputs.size() == least + 1) return {};  // with a mask, or without
  return ir::invalid("{} operands of {} {} sinks{}, expected {} or {}", node.inputs.size(), row.name,
                     sinks ? "with" : "without", has_scales(row, node) ? " and with scales" : "", least, least + 1)
      .with_arg(row.name);
}

// Of `t` at dimension `d`, which has to be what `other` has at `of`.
ir::Status same_as(const TensorDesc& t, size_t d, const TensorDesc& other, size_t of, const char* what) {
  if (same_dim(t.dims[d], other.dims[of])) return {};
  return mismatch(t, d, fmt::format("{} ({} of {})", dim_text(other.dims[of]), what, other.name));
}
ir::Status same_as(const TensorDesc& t, size_t d, const TensorDesc& other, const char* what) {
  return same_as(t, d, other, d, what);
}

// q, k and v, but for what k and v have before their heads.
ir::Status heads_fit(const OpRow& row, const AttentionForm& form, const TensorDesc& q, const TensorDesc& k,
                     const TensorDesc& v) {
  const size_t of_q = form.heads(q.dims.size()), rank = form.offsets != 0 ? 4 : q.dims.size();
  const size_t heads = rank - 3, rows = rank - 2, last = rank - 1;
  LATHE_RETURN_IF_ERROR(need_rank(k, rank, false, row.name));
  LATHE_RETURN_IF_ERROR(need_rank(v, rank, false, row.name));
  for (size_t d = 0; d < heads && !has_pages(row); ++d) {
    LATHE_RETURN_IF_ERROR(same_as(k, d, q, "batch"));
    LATHE_RETURN_IF_ERROR(same_as(v, d, q, "batch"));
  }
  for (const auto& [t, d] : {std::pair{&q, of_q}, {&k, heads}}) {
    if (!t->dims[d].fixed()) return mismatch(*t, d, "a fixed number of heads: finish a graph for each");
  }
  const int64_t all = q.dims[of_q].max, kept = k.dims[heads].max;
  if (all != kept && (kept == 0 || all % kept != 0))
    return mismatch(k, heads, fmt::format("a divisor of {} (heads of {})", all, q.name));
  LATHE_RETURN_IF_ERROR(same_as(v, heads, k, "heads"));
  if (has_pages(row)) {
    LATHE_RETURN_IF_ERROR(same_as(v, 0, k, "pages"));
    if (!k.dims[rows].fixed() || k.dims[rows].max < 1)
      return mismatch(k, rows, "a fixed number of keys of a page, at least 1: finish a graph for each");
    LATHE_RETURN_IF_ERROR(same_as(v, rows, k, "keys of a page"));
  } else {
    LATHE_RETURN_IF_ERROR(same_as(v, rows, k, "keys"));
  }
  if (!q.dims.back().fixed()) return mismatch(q, q.dims.size() - 1, "a fixed size: finish a graph for each");
  return same_as(k, last, q, q.dims.size() - 1, "depth");
}

// [B + 1], or [B, 2]: the same with strides of 1 and 1, where B is a symbol.
ir::Status offsets_fit(const OpRow& row, const TensorDesc& offsets, const TensorDesc& lengths) {
  const DimDesc& sequences = lengths.dims[0];
  if (offsets.dims.size() == 1) {
    if (!sequences.fixed())
      return mismatch(offsets, 0, fmt::format("[{}, 2], with strides 1 and 1 for one array", dim_text(sequences)));
    const DimDesc ends = fixed_dim(sequences.max + 1);
    if (same_dim(offsets.dims[0], ends)) return {};
    return mismatch(offsets, 0, fmt::format("{} (batch of {}, and one more)", ends.max, lengths.name));
  }
  LATHE_RETURN_IF_ERROR(need_rank(offsets, 2, false, row.name));
  LATHE_RETURN_IF_ERROR(same_as(offsets, 0, lengths, "batch"));
  if (same_dim(offsets.dims[1], fixed_dim(2))) return {};
  return mismatch(offsets, 1, "2: where the queries of a sequence begin and end");
}

// One for each key and head, where keys and values are bytes.
ir::Status scales_fit(const OpRow& row, const AttentionForm& form, const Inputs& in) {
  for (const auto& [number, scales] : {std::pair{kKey, form.key_scales}, {kValue, form.value_scales}}) {
    const TensorDesc& bytes = *in[number];
    if ((bytes.dtype == ir::DType::i8) != (scales != 0))
      return ir::invalid("dtype {} {} scales, expected {}", ir::dtype_name(bytes.dtype),
                         scales != 0 ? "with" : "without", scales != 0 ? "i8" : "f32, bf16, f16")
          .with_arg(bytes.name);
    if (scales == 0) continue;
    LATHE_RETURN_IF_ERROR(need_rank(*in[scales], bytes.dims.size() - 1, false, row.name));
    for (size_t d = 0; d + 1 < bytes.dims.size(); ++d) LATHE_RETURN_IF_ERROR(same_as(*in[scales], d, bytes, "keys"));
  }
  return {};
}

// Broadcasts to the scores, [.., heads, queries, keys]; keys in pages may be two dimensions, [.., N, page].
ir::Status mask_fits(const OpRow& row, const AttentionForm& form, const Inputs& in) {
  const TensorDesc &mask = *in[form.mask], &q = *in[kQuery], &k = *in[kKey];
  const size_t rank = q.dims.size();
  std::vector<DimDesc> scores(q.dims.begin(), q.dims.end() - 1);
  if (form.offsets != 0) std::swap(scores[0], scores[1]);
  const DimDesc& keys = k.dims[k.dims.size() - 2];
  if (form.pages == 0) {
    scores.push_back(keys);
  } else if (const DimDesc& table = in[form.pages]->dims[1]; form.mask_has_pages(rank, mask.dims.size())) {
    scores.insert(scores.end(), {table, keys});
  } else {
    scores.push_back(fixed_dim(table.fixed() ? table.max * keys.max : 1));
    const bool unknown = !table.fixed() && !mask.dims.empty() && !same_dim(mask.dims.back(), fixed_dim(1));
    if (unknown)
      return mismatch(mask, mask.dims.size() - 1,
                      fmt::format("1, or {} dimensions, the last two [{}, {}] (pages of keys)", rank + 1,
                                  dim_text(table), keys.max));
  }
  if (mask.dims.size() > scores.size())
    return ir::invalid("{} dimensions, expected at most {} (scores of {})", mask.dims.size(), scores.size(), row.name)
        .with_arg(mask.name);
  for (size_t d = 0; d < mask.dims.size(); ++d) {
    const DimDesc& score = scores[scores.size() - mask.dims.size() + d];
    if (!same_dim(mask.dims[d], score) && !same_dim(mask.dims[d], fixed_dim(1)))
      return mismatch(mask, d, fmt::format("{} (of the scores) or 1", dim_text(score)));
  }
  return {};
}

}  // namespace

AttentionForm attention_form(const OpRow& row, const Node& node) {
  AttentionForm out;
  const bool sinks = attr_bool(node, AttrId::sinks);
  const bool scales = has_scales(row, node);
  const size_t first = fixed_operands(row) + (scales ? 2 : 0), end = node.inputs.size() - (sinks ? 1 : 0);
  if (has_lengths(row)) out.lengths = kLengths;
  if (has_pages(row)) out.pages = kPages;
  if (is_ragged(row)) out.offsets = kOffsets;
  if (scales) out.key_scales = first - 2, out.value_scales = first - 1;
  if (end > first) out.mask = first;
  if (sinks) out.sinks = end;
  if (const AttrValue* window = find_attr(node, AttrId::window)) out.window = std::get<int64_t>(*window);
  if (const AttrValue* cap = find_attr(node, AttrId::soft_cap)) out.soft_cap = std::get<double>(*cap);
  out.causal = attr_bool(node, AttrId::causal);
  return out;
}

std::span<const ir::DType> attention_dtypes(const OpRow& row, size_t number) {
  static constexpr ir::DType kIntegers[] = {ir::DType::i32, ir::DType::i64};
  if (number >= kLengths && number < fixed_operands(row)) return kIntegers;
  static constexpr ir::DType kKept[] = {ir::DType::f32, ir::DType::bf16, ir::DType::f16, ir::DType::i8};
  if (has_lengths(row) && (number == kKey || number == kValue)) return kKept;
  static constexpr ir::DType kFloats[] = {ir::DType::f32, ir::DType::bf16, ir::DType::f16};
  return kFloats;
}

ir::Result<Shape> attention_shape(const OpRow& row, const Node& node, const Inputs& in) {
  LATHE_RETURN_IF_ERROR(attributes_hold(row, node));
  const AttentionForm form = attention_form(row, node);
  const TensorDesc &q = *in[kQuery], &k = *in[kKey], &v = *in[kValue];
  LATHE_RETURN_IF_ERROR(need_rank(q, form.lengths != 0 && form.offsets == 0 ? 4 : 3, form.pages == 0, row.name));
  LATHE_RETURN_IF_ERROR(heads_fit(row, form, q, k, v));
  const size_t heads = form.heads(q.dims.size());
  if (form.lengths != 0) {
    LATHE_RETURN_IF_ERROR(need_rank(*in[form.lengths], form.offsets != 0 ? 1 : heads, false, row.name));
    for (size_t d = 0; d < heads && form.offsets == 0; ++d)
      LATHE_RETURN_IF_ERROR(same_as(*in[form.lengths], d, q, "batch"));
  }
  if (form.pages != 0) {
    LATHE_RETURN_IF_ERROR(need_rank(*in[form.pages], 2, false, row.name));
    LATHE_RETURN_IF_ERROR(same_as(*in[form.pages], 0, *in[form.lengths], "batch"));
  }
  LATHE_RETURN_IF_ERROR(scales_fit(row, form, in));
  if (form.offsets != 0) LATHE_RETURN_IF_ERROR(offsets_fit(row, *in[form.offsets], *in[form.lengths]));
  if (form.sinks != 0) {
    LATHE_RETURN_IF_ERROR(need_rank(*in[form.sinks], 1, false, row.name));
    LATHE_RETURN_IF_ERROR(same_as(*in[form.sinks], 0, q, heads, "heads"));
  }
  if (form.mask != 0) LATHE_RETURN_IF_ERROR(mask_fits(row, form, in));
  Shape out{q.dtype, q.dims};
  out.dims.back() = v.dims.back();
  return out;
}

// Two per multiply-add of the two products, for the keys that queries may see.
double attention_flops(const Node& node, const NodeSizes& sizes) {
  const AttentionForm form = attention_form(op_row(node), node);
  const std::vector<int64_t>&q = sizes.inputs[kQuery], &v = sizes.inputs[kValue];
  // Of ragged queries each sequence has as many, on average.
  const int64_t sequences = form.offsets != 0 ? std::max<int64_t>(sizes.inputs[form.lengths][0], 1) : 1;
  const int64_t queries = q[form.queries(q.size())] / sequences;
  const int64_t keys = v[v.size() - 2] * (form.pages != 0 ? sizes.inputs[form.pages][1] : 1);
  double seen = 0;  // by all queries of a head
  for (int64_t i = 0; i < queries; ++i) {
    int64_t n = form.causal ? std::max<int64_t>(0, i + keys - queries + 1) : keys;
    if (form.window > 0) n = std::min(n, form.window);
    seen += static_cast<double>(n);
  }
  double heads = static_cast<double>(sequences);  // of all sequences
  for (size_t d = 0; d <= form.heads(q.size()); ++d)
    heads *= static_cast<double>(d == form.queries(q.size()) ? 1 : q[d]);
  return 2.0 * heads * seen * static_cast<double>(q.back() + v.back());
}

// As many pages as there are in the tables, at most.
double attention_share_read(const Node& node, const NodeSizes& sizes, size_t operand) {
  const AttentionForm form = attention_form(op_row(node), node);
  if (form.pages == 0 || (operand != kKey && operand != kValue)) return 1;
  return rows_read(elements(sizes.inputs[form.pages]), sizes.inputs[operand][0]);
}

}  // namespace lathe::ops
