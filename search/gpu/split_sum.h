// Sums of products whose terms several blocks share: each sums a part of them into memory that launches hand each
// other, and a second launch adds up the parts, always in the same order.
#pragma once
#include <functional>
#include <string>

#include "ir/base/status.h"
#include "ir/core/kernel.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"

namespace lathe::search {

// The Kernel with parts of so many terms: a nest of the parts' sums, which is a product, and one that adds them up.
ir::Result<ir::Kernel> split_kernel(const ir::Kernel& kernel, const ProductForm& form, int64_t terms);
// What the Schedule of a Kernel is written for: the Kernel itself, or, with terms > 0, that with parts of so many. Then
// form_of() finds the product of the parts' sums, and summed stays the iterator of the terms of the whole.
using WriteProduct =
    std::function<ir::Result<Scheduled>(const ir::Kernel& kernel, const ProductForm& form, const std::string& summed)>;
using FormOfNest = ir::Result<ProductForm> (*)(const ir::Kernel& kernel, size_t nest);
ir::Result<Scheduled> whole_or_split(const ir::Kernel& kernel, const ProductForm& form, int64_t terms,
                                     FormOfNest form_of, const WriteProduct& write);
// The move that makes it, the first of a Schedule. summed: the iterator of the terms.
void split_sum(MoveList& list, const std::string& summed, int64_t terms);
// The Schedule of the second nest.
void add_up_parts(MoveList& list, const ir::Kernel& split);

}  // namespace lathe::search
