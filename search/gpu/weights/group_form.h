// The products of groups of rows, each group with a weight of its own, that Schedules take: what their scopes and
// operands are.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/core/binding.h"
#include "ir/core/kernel.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/product_tiles.h"

namespace lathe::search {

// for zm: for zn: y = 0, and for t: for m: for n: {c = 0; for k: c += a * b; y = f(c)}.
struct GroupForm {
  const ir::Stmt *zm = nullptr, *zn = nullptr, *t = nullptr, *m = nullptr, *n = nullptr, *k = nullptr;
  std::string sum, rows, weights;
  bool terms_last = false;        // of the weights
  std::vector<std::string> made;  // temporaries that earlier nests make
};
// UNSUPPORTED: it is anything else. Pointers are into the Kernel.
ir::Result<GroupForm> group_form(const ir::Kernel& kernel);
// The product of a group.
ProductForm product_of(const GroupForm& form);
// A product for each group, of as many rows as a group has if all have as many.
ProductShape group_shape(const GroupForm& form, const ir::SymbolValues& sizes);
// The Schedule of the nest that clears.
void clear_rows(MoveList& list, const GroupForm& form);

}  // namespace lathe::search
