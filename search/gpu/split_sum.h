// Sums of products whose terms several blocks share: each sums a part of them into memory that launches hand each
// other, and a second launch adds up the parts, always in the same order.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "ir/core/kernel.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"

namespace lathe::search {

// The Kernel with parts of so many terms: a nest of the parts' sums, which is a product, and one that adds them up.
ir::Result<ir::Kernel> split_kernel(const ir::Kernel& kernel, const ProductForm& form, int64_t terms);
// The move that makes it, the first of a Schedule. summed: the iterator of the terms.
void split_sum(MoveList& list, const std::string& summed, int64_t terms);
// The Schedule of the second nest.
void add_up_parts(MoveList& list, const ir::Kernel& split);

}  // namespace lathe::search
