// Constants whose elements packing makes of the caller's, as statements. Of some it makes sums: their `made` has one
// index more than the element has, d<rank>, which is summed over all of the caller's dimension that it indexes.
//
//   s: i32[8] const from i8[512, 8] i32(s[d1, d0])      s[d0] = the sum of the column, over 512 rows
#pragma once
#include "ir/core/kernel.h"

namespace lathe::ir {

// How many terms an element of the buffer is the sum of; null: it is none.
Expr terms_summed(const Buffer& buffer);
// The statement that fills `to` with the elements made of `from`, sums or not; its scopes are stem0, stem1, ...
Stmt elements_made(const Buffer& buffer, const std::string& from, const std::string& to, const std::string& stem);
Stmt sums_made(const Buffer& buffer, const std::string& from, const std::string& to, const std::string& stem);

}  // namespace lathe::ir
