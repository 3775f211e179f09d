// Kernels of attention as graphs make them, for forms that attention_kernels.h does not spell out: keys and values of
// bytes with scales, and sequences of unequal numbers of queries.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/graph.h"
#include "ops/lower.h"

namespace lathe::test {

// Symbols: B sequences, S queries of each (ragged: R of all), T keys, or N pages of `page` keys out of P.
struct AttentionOp {
  const char* op = "cached_attention";
  int64_t heads = 4, kept = 2, depth = 32, columns = 32;
  bool bytes = false, causal = true;
  ir::DType type = ir::DType::bf16, scales = ir::DType::f32;
  int64_t page = 16;
  int64_t window = 0;     // 0: none
  int64_t sequences = 0;  // 0: B of them; else as many, whose offsets lie one after another
  bool masked = false, sinks = false;
  bool by_strides = false;  // keys and values of pages lie as [P, page, kept, depth]
  bool ragged() const { return std::string_view(op) == "ragged_attention"; }
  bool paged() const { return ragged() || std::string_view(op) == "paged_attention"; }
};

inline ir::Kernel kernel_of_op(const AttentionOp& a) {
  ops::Graph g;
  const auto tensor = [&](const char* name, std::vector<ops::DimDesc> dims, ir::DType type,
                          std::vector<ir::Expr> strides = {}) {
    return ops::add_tensor(g, name, std::move(dims), false, type, std::move(strides));
  };
  const auto lines = [&](int64_t n) {
    return a.by_strides ? std::vector<ir::Expr>{a.page * a.kept * n, n, a.kept * n, 1} : std::vector<ir::Expr>{};
  };
  const auto fixed = [](int64_t n) { return ops::fixed_dim(n); };
  const ops::DimDesc b = a.sequences > 0 ? fixed(a.sequences) : ops::symbol_dim("B", 0, 64),
                     rows = a.ragged() ? ops::symbol_dim("R", 0, 4096) : ops::symbol_dim("S", 0, 4096),
                     pages = ops::symbol_dim("N", 0, 512),
                     t = a.paged() ? fixed(a.page) : ops::symbol_dim("T", 0, 8192),
                     of = a.paged() ? ops::symbol_dim("P", 0, 4096) : b;
  const ir::DType kept = a.bytes ? ir::DType::i8 : a.type;
  std::vector<int> in = {a.ragged() ? tensor("q", {rows, fixed(a.heads), fixed(a.depth)}, a.type)
                                    : tensor("q", {b, fixed(a.heads), rows, fixed(a.depth)}, a.type),
                         tensor("k", {of, fixed(a.kept), t, fixed(a.depth)}, kept, lines(a.depth)),
                         tensor("v", {of, fixed(a.kept), t, fixed(a.columns)}, kept, lines(a.columns)),
                         tensor("lengths", {b}, ir::DType::i32)};
  if (a.paged()) in.push_back(tensor("pages", {b, pages}, ir::DType::i64));
  if (a.ragged() && a.sequences > 0) in.push_back(tensor("offsets", {fixed(a.sequences + 1)}, ir::DType::i32));
  if (a.ragged() && a.sequences == 0) in.push_back(tensor("offsets", {b, fixed(2)}, ir::DType::i32));
  for (const char* name : {"ks", "vs"}) {
    if (a.bytes) in.push_back(tensor(name, {of, fixed(a.kept), t}, a.scales));
  }
  if (a.masked && a.paged()) in.push_back(tensor("mask", {fixed(1), rows, pages, fixed(a.page)}, ir::DType::f32));
  if (a.masked && !a.paged()) in.push_back(tensor("mask", {rows, t}, ir::DType::f32));
  if (a.sinks) in.push_back(tensor("sinks", {fixed(a.heads)}, ir::DType::f32));
  std::vector<ops::Attr> attrs = {{"causal", a.causal}, {"scales", a.bytes}, {"sinks", a.sinks}};
  if (a.window > 0) attrs.push_back({"window", a.window});
  if (a.bytes) attrs.push_back({"scale", 1e-3});  // products of bytes are large
  g.outputs = {ops::add_node(g, a.op, in, "y", attrs)};
  return ops::lower(ops::finish(g).value()).value().kernels[0].kernel;
}

}  // namespace lathe::test
