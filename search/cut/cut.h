// cut: a scheduled Kernel to nest (data) and leaves (code). docs/ir.md states the rules.
#pragma once
#include "ir/base/status.h"
#include "ir/nest.h"

namespace lathe::search {

ir::Result<ir::CutKernel> cut(const ir::Kernel& scheduled);

// Whether the Schedule chose how this constant parameter lies in memory, by layout or by padding, or its elements are
// made of what the caller gives: it is then read in a packed form.
bool is_packed(const ir::Buffer& buffer);
// Of a constant whose elements are made of the bits of larger ones: how many neighbours along a dimension share one.
int64_t sharing_a_word(const ir::Buffer& buffer, int dim);
// Whether counts of shifts or conditions in the value, which are numbers in code, depend on the iterator.
bool decides(const ir::Expr& value, const std::string& iter);
// Whether an element's place in a short dimension decides so how it is made.
bool decides_how(const ir::Buffer& buffer, int dim);
// The statement in loops along that dimension, iterator d: words, then what shares one, in a scope of d's name and of
// that role ("word": to be unrolled); the outermost scope has that name and "a". The extent is a multiple of what
// shares one.
ir::Stmt by_words(const ir::Stmt& body, const ir::Expr& d, const ir::Expr& extent, const ir::Buffer& buffer, int dim,
                  const char* role);
// The Kernel that fills the packed form of constant parameter `buffer`: parameters src (as the caller gives it, its
// logical dims) and dst (its physical dims, compact); padding is zero. Naive, family "pack", roles as scopes of the
// layout.
ir::Result<ir::Kernel> pack_kernel(const ir::Kernel& scheduled, const std::string& buffer);

}  // namespace lathe::search
