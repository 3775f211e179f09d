// See packed_constants.h.
#include "search/gpu/packed_constants.h"

#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "search/gpu/decoded_weight.h"
#include "search/gpu/product_form.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// Blocks of several fields, or bits in another order. What varies in size has no packed form.
bool gains(const Buffer& b) {
  const bool fixed = std::all_of(b.dims.begin(), b.dims.end(), [](const Expr& d) { return is_const_int(d); });
  return b.place == Place::constant && fixed && (b.made || !b.strides.empty());
}

// Matrices of terms by outputs: their terms are to be neighbours, since a thread takes terms of one output.
bool is_turned(const Kernel& naive, const ProductSum& sum, const Buffer& b) {
  const std::string &n = sum.n->iter, &k = sum.k->iter;
  const size_t first = b.dims.size() == 3 ? 1 : 0;  // behind the number of a weight
  bool out = b.dims.size() == first + 2;
  for (const Access& a : collect_accesses(naive.body, {}, &b.name)) {
    if (!out) break;
    const Expr &terms = a.index[first], &outputs = a.index[first + 1];
    out = uses(terms, k) && !uses(terms, n) && uses(outputs, n) && !uses(outputs, k);
    if (first == 1) out = out && !uses(a.index[0], k) && !uses(a.index[0], n);
  }
  return out;
}

// By physical dimensions, which are whole ones.
template <class T>
std::vector<T> as_laid(const Buffer& b, const std::vector<T>& of_dims) {
  std::vector<T> out;
  for (const LayoutDim& l : b.layout) out.push_back(of_dims[static_cast<size_t>(l.dim)]);
  return out;
}

}  // namespace

std::vector<Buffer> packed_constants(const Kernel& naive) {
  std::vector<Buffer> out;
  if (naive.family != kQuantisedFamily) return out;
  const Result<ProductSum> sum = product_sum(naive);
  if (!sum.ok()) return out;
  for (const Buffer& b : naive.buffers) {
    if (!gains(b)) continue;
    out.push_back(b);
    out.back().layout = full_layout(b);
    if (is_turned(naive, *sum, b)) std::swap(out.back().layout.end()[-1], out.back().layout.end()[-2]);
  }
  return out;
}

Kernel packing_kernel(const Buffer& constant) {
  Kernel out;
  out.name = "pack_" + constant.name;
  out.family = "pack";
  Buffer src = constant, dst;
  src.name = "src";
  src.place = Place::in;
  src.type = given_type(constant);
  src.dims = given_dims(constant);
  src.layout.clear();
  src.made = Expr();
  src.given_dims.clear();
  dst.name = "dst";
  dst.place = Place::out;
  dst.type = constant.type;
  dst.dims = as_laid(constant, constant.dims);
  std::vector<Expr> at;
  for (size_t d = 0; d < dst.dims.size(); ++d) at.push_back(iter(fmt::format("d{}", d)));
  const std::vector<Expr> laid = as_laid(constant, at);
  Stmt nest = make_assign("dst", laid, AssignOp::set,
                          constant.made ? made_element(constant, "src", at) : load("src", at, src.type));
  for (size_t d = at.size(); d-- > 0;) nest = make_scope(laid[d]->name, dst.dims[d], {nest}, "row");
  out.buffers = {std::move(src), std::move(dst)};
  out.body = {std::move(nest)};
  return out;
}

Kernel reads_packed(const Kernel& naive) {
  Kernel out = naive;
  for (const Buffer& packed : packed_constants(naive)) {
    Buffer& b = *out.find_buffer(packed.name);
    b.made = Expr();
    b.given_dims.clear();
    b.strides.clear();
    b.place = Place::in;
    b.dims = as_laid(packed, b.dims);
    rewrite_exprs(out.body, [&](const Expr& e) -> Expr {
      if (e->op != Op::k_load || e->name != b.name) return {};
      return load(e->name, as_laid(packed, e->args), e->type);
    });
  }
  return reads_given(out);
}

Kernel reads_given(const Kernel& naive) {
  Kernel out = as_given(naive);
  for (Buffer& b : out.buffers) {
    if (b.place == Place::constant) b.place = Place::in;
  }
  return out;
}

}  // namespace lathe::search
