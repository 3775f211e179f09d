// What the recipes of attention name in the naive nest (ops/families/attention.cc).
#pragma once
#include <string>

#include "ir/core/kernel.h"
#include "search/sketches/recipe.h"

namespace lathe::search {

//   row { m = least | scores { c = 0; depth { c += q * k }; s = f(c); m fmax= s } | a = 0 |
//         powers { s = exp2(s - m); a += s } | r = 1 / a | columns { o = 0; values { o += s * v }; y = o * r } }
struct AttentionParts {
  const ir::Stmt *row = nullptr, *scores = nullptr, *depth = nullptr, *powers = nullptr, *columns = nullptr,
                 *values = nullptr;
  std::vector<const ir::Stmt*> heads;  // the scopes around, outermost first
  explicit operator bool() const { return values != nullptr; }
  const std::string& products() const { return depth->body[0].target; }
  const std::string& powered() const { return powers->body[0].target; }
  const std::string& sums() const { return values->body[0].target; }
};
// Points into the kernel; nothing where it has other loops.
AttentionParts attention_parts(const ir::Kernel& kernel);

// The scope in vectors, the last one masked unless `tail` is "exact".
void vectorize(Script& s, const std::string& scope, int64_t lanes, const char* tail, bool unrolled);

}  // namespace lathe::search
