// Products whose second factor is decoded from several fields, such as a weight of few bits: the factor gets a nest of
// its own before the product, so that Schedules of products see a matrix, which they stage or recompute as they like.
//
//   for m: for n: c = 0; for k: c += a[m, k] * f(q[n, k // 2], s[n])
//     -> for n_w: for k_w: w[n_w, k_w] = f(q[n_w, k_w // 2], s[n_w])
//        for m: for n: c = 0; for k: c += a[m, k] * w[n, k]
//
// Of several weights, such as those of experts, each is decoded: w[e_w, n_w, k_w], and the product reads the one that
// it names, be it by integers that are read.
//
// What is made of a field before, in the order of packed constants, is part of f. Where weights are only decoded, that
// is written out as well.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "ir/core/kernel.h"
#include "search/gpu/product_form.h"

namespace lathe::search {

inline constexpr const char* kQuantisedFamily = "quantised";  // that of weights of few bits

// The Kernel itself where it decodes nothing.
ir::Kernel decode_apart(ir::Kernel kernel);

// The temporary that such a Kernel decodes, and what an element of it is.
struct DecodedWeight {
  std::string buffer, output, term, number;  // its iterators; number: of several weights, else empty
  ir::Expr value;
};
// UNSUPPORTED: the Kernel decodes none.
ir::Result<DecodedWeight> decoded_weight(const ir::Kernel& kernel, const ProductForm& product);
// The buffer of the other factor.
std::string activations_of(const ProductForm& product, const DecodedWeight& weight);

}  // namespace lathe::search
