// References in f64 of the operators of language models: attention, products of experts, appends to a cache.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ops/reference_tensors.h"

namespace lathe::ops::testing {

inline void attention(const Node& n, const std::vector<const Tensor*>& in, Tensor& y) {
  const Tensor &q = *in[0], &k = *in[1], &v = *in[2];
  const size_t rank = q.dims.size();
  const int64_t heads = q.dims[rank - 3], queries = q.dims[rank - 2], depth = q.dims[rank - 1];
  const bool causal = get(n, "causal", false), paged = n.op == "paged_attention", lengths = n.op != "attention";
  const int64_t page = k.dims[rank - 2], kept = k.dims[rank - 3], width = y.dims.back();
  const int64_t keys = paged ? page * in[4]->dims[1] : page;
  const bool sinks = get(n, "sinks", false);
  const bool scales = get(n, "scales", false);
  const size_t behind = paged     ? 5
                        : lengths ? 4
                                  : 3,
               mask = behind + (scales ? 2 : 0), end_of_masks = in.size() - (sinks ? 1 : 0);
  const int64_t window = get<int64_t>(n, "window", 0);
  const double cap = get(n, "soft_cap", 0.0), stated = get(n, "scale", 0.0);
  const double scale = stated != 0 ? stated : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(depth, 1)));
  for (int64_t row = 0; row < (width == 0 ? 0 : count(y.dims) / width); ++row) {
    const int64_t i = row % queries, head = row / queries % heads, batch = row / queries / heads;
    const auto kept_row = [&](int64_t j) {  // of k and v
      const int64_t kept_head = head / (heads / kept);
      if (!paged) return (batch * kept + kept_head) * keys + j;
      const auto of = static_cast<int64_t>(in[4]->data[static_cast<size_t>(batch * in[4]->dims[1] + j / page)]);
      return (of * kept + kept_head) * page + j % page;
    };
    const int64_t held = lengths ? static_cast<int64_t>(in[3]->data[static_cast<size_t>(batch)]) : keys;
    const int64_t end = causal ? i + held - queries + 1 : held, begin = window > 0 ? end - window : 0;
    std::vector<double> weights(static_cast<size_t>(keys), -INFINITY);
    for (int64_t j = std::max<int64_t>(begin, 0); j < end; ++j) {
      double s = 0;
      for (int64_t d = 0; d < depth; ++d) s += q.data[row * depth + d] * k.data[kept_row(j) * depth + d];
      if (scales) s *= in[behind]->data[static_cast<size_t>(kept_row(j))];
      s *= scale;
      if (cap > 0) s = cap * std::tanh(s / cap);
      if (end_of_masks > mask) {
        std::vector<int64_t> index = unravel(row * keys + j, {batch + 1, heads, queries, keys});
        if (in[mask]->dims.size() > index.size()) {  // pages and the keys of one
          index.back() = j / page;
          index.push_back(j % page);
        }
        s += at(*in[mask], index);
      }
      weights[static_cast<size_t>(j)] = s;
    }
    double most = -INFINITY, sum = 0;
    for (const double s : weights) most = std::max(most, s);
    const double sink = sinks ? in.back()->data[static_cast<size_t>(head)] : -INFINITY;
    if (std::isinf(most)) continue;  // no key is seen: 0
    most = std::max(most, sink);
    for (double& s : weights) sum += s = std::exp(s - most);
    sum += std::exp(sink - most);
    for (int64_t c = 0; c < width; ++c) {
      double& out = y.data[row * width + c];
      for (int64_t j = 0; j < keys; ++j) {
        if (weights[static_cast<size_t>(j)] == 0) continue;
        const double of = scales ? in[behind + 1]->data[static_cast<size_t>(kept_row(j))] : 1;
        out += weights[static_cast<size_t>(j)] / sum * of * v.data[kept_row(j) * width + c];
      }
    }
  }
}

// What a mask of [.., R, keys] or [Hq, R, N, page] has for these rows of R.
inline Tensor rows_of_mask(const Tensor& mask, int64_t first, int64_t rows) {
  const bool pages = mask.dims.size() == 4;
  Tensor out{mask.dims, {}};
  if (pages) out.dims.insert(out.dims.begin(), 1);  // as the mask of a paged_attention
  const size_t behind = pages ? 3 : 2, at = out.dims.size() - behind;
  if (out.dims.size() < behind || out.dims[at] == 1) return {out.dims, mask.data};
  const int64_t row = count({out.dims.end() - static_cast<std::ptrdiff_t>(behind) + 1, out.dims.end()}),
                all = out.dims[at];
  out.dims[at] = rows;
  if (mask.data.empty()) return out;
  for (int64_t head = 0; head < count(mask.dims) / (row * all); ++head) {
    const auto begin = mask.data.begin() + (head * all + first) * row;
    out.data.insert(out.data.end(), begin, begin + rows * row);
  }
  return out;
}

// Each sequence by itself, through its own rows of q.
inline void ragged_attention(const Node& n, const std::vector<const Tensor*>& in, Tensor& y) {
  const Tensor &q = *in[0], &lengths = *in[3], &pages = *in[4], &offsets = *in[5];
  const int64_t heads = q.dims[1], depth = q.dims[2], width = y.dims[2];
  for (int64_t b = 0; b < lengths.dims[0]; ++b) {
    const bool pairs = offsets.dims.size() == 2;
    const auto first = static_cast<int64_t>(offsets.data[static_cast<size_t>(pairs ? 2 * b : b)]);
    const auto end = static_cast<int64_t>(offsets.data[static_cast<size_t>(pairs ? 2 * b + 1 : b + 1)]);
    const int64_t queries = std::max<int64_t>(end - first, 0), table = pages.dims[1];
    Tensor own{{1, heads, queries, depth}, {}}, length{{1}, {lengths.data[static_cast<size_t>(b)]}};
    Tensor row{{1, table}, {pages.data.begin() + b * table, pages.data.begin() + (b + 1) * table}};
    for (int64_t at = 0; at < heads * queries * depth; ++at) {
      const int64_t h = at / depth / queries, i = at / depth % queries;
      own.data.push_back(q.data[static_cast<size_t>(((first + i) * heads + h) * depth + at % depth)]);
    }
    Tensor result{{1, heads, queries, width}, std::vector<double>(static_cast<size_t>(heads * queries * width))};
    std::vector<const Tensor*> operands = {&own, in[1], in[2], &length, &row};
    operands.insert(operands.end(), in.begin() + 6, in.end());
    const size_t scales = get(n, "scales", false) ? 2 : 0, sinks = get(n, "sinks", false) ? 1 : 0;
    Tensor mask;
    if (in.size() - sinks > 6 + scales) {
      mask = rows_of_mask(*in[6 + scales], first, queries);
      operands[5 + scales] = &mask;
    }
    Node node = n;
    node.op = "paged_attention";
    attention(node, operands, result);
    for (int64_t at = 0; at < heads * queries * width; ++at) {
      const int64_t h = at / width / queries, i = at / width % queries;
      y.data[static_cast<size_t>(((first + i) * heads + h) * width + at % width)] =
          result.data[static_cast<size_t>(at)];
    }
  }
}

inline void groups(const Node& n, const std::vector<const Tensor*>& in, Tensor& y) {
  const Tensor& offsets = *in[2];
  const bool turned = get(n, "transpose_b", false);
  const int64_t depth = in[0]->dims[1], columns = y.dims[1];
  for (int64_t e = 0; e + 1 < offsets.dims[0]; ++e) {
    for (auto r = static_cast<int64_t>(at(offsets, {e})); r < static_cast<int64_t>(at(offsets, {e + 1})); ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        double& out = y.data[static_cast<size_t>(r * columns + c)] = 0;
        for (int64_t k = 0; k < depth; ++k) out += at(*in[0], {r, k}) * at(*in[1], {e, turned ? c : k, turned ? k : c});
      }
    }
  }
}

inline void experts(const Node& n, const std::vector<const Tensor*>& in, Tensor& y) {
  const bool turned = get(n, "transpose_b", false);
  const int64_t depth = in[0]->dims.back();
  for (int64_t i = 0; i < static_cast<int64_t>(y.data.size()); ++i) {
    std::vector<int64_t> index = unravel(i, y.dims);
    const int64_t column = index.back();
    index.pop_back();
    const auto expert = static_cast<int64_t>(at(*in[2], index));
    index.push_back(0);
    for (int64_t k = 0; k < depth; ++k) {
      index.back() = k;
      y.data[static_cast<size_t>(i)] +=
          at(*in[0], index) * at(*in[1], {expert, turned ? column : k, turned ? k : column});
    }
  }
}

// The cache afterwards; scales of int8 caches are written where they are.
inline void kv_append(const Node& n, const std::vector<const Tensor*>& in, Tensor* scales, Tensor& y) {
  const Tensor &x = *in[0], &slots = *in[1];
  const size_t angles = scales != nullptr ? 4 : 3;
  const int64_t tokens = x.dims[0], heads = x.dims[1], width = x.dims[2];
  const bool interleaved = get(n, "interleaved", false);
  y.data = in[2]->data;
  for (int64_t row = 0; row < tokens * heads; ++row) {
    const int64_t token = row / heads, slot = static_cast<int64_t>(slots.data[static_cast<size_t>(token)]);
    if (slot < 0) continue;
    std::vector<double> v(x.data.begin() + row * width, x.data.begin() + (row + 1) * width);
    if (in.size() > angles + 3) {
      double squares = 0;
      for (const double a : v) squares += a * a;
      const double r = 1 / std::sqrt(squares / static_cast<double>(width) + get(n, "epsilon", 1e-5));
      for (int64_t d = 0; d < width; ++d) v[d] *= r * in.back()->data[d];
    }
    const int64_t half = in.size() > angles ? in[angles]->dims[1] : 0;
    for (int64_t p = 0; p < half; ++p) {
      const auto at = static_cast<size_t>(in[angles + 2]->data[token]) * half + p;
      const double c = in[angles]->data[at], s = in[angles + 1]->data[at];
      double &a = v[interleaved ? 2 * p : p], &b = v[interleaved ? 2 * p + 1 : p + half];
      const double first = a * c - b * s;
      b = b * c + a * s;
      a = first;
    }
    double* to = y.data.data() + (slot * heads + row % heads) * width;
    double most = 0;
    for (const double a : v) most = std::max(most, std::fabs(a));
    if (scales != nullptr) scales->data[slot * heads + row % heads] = most / 127;
    for (int64_t d = 0; d < width; ++d)
      to[d] = scales == nullptr ? v[d] : most == 0 ? 0 : std::nearbyint(v[d] * (127 / most));
  }
}

}  // namespace lathe::ops::testing
