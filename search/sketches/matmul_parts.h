// What the matmul recipe names in the naive nest, and how its operands lie: m, n and k scopes, the product, and the
// loads of A and B. Then what recipes of products share where integers choose the weights.
#pragma once
#include "search/sketches/recipe.h"

namespace lathe::search {

struct MatmulParts {
  const ir::Stmt *m = nullptr, *n = nullptr, *k = nullptr;
  const ir::Stmt* innermost = nullptr;  // of m and n: around the start, the sum and the result
  // The scope of few rows stands for n, and that of the columns, each of which lies in one piece, for m: A and B have
  // changed places. n is outside.
  bool swapped = false;
  const ir::Stmt* product = nullptr;
  const ir::Expr *a = nullptr, *b = nullptr;  // the loads of A and B
  int b_n = -1, b_k = -1;                     // B's dimensions
  std::vector<const ir::Stmt*>
      sharing;  // innermost batch scopes that B does not follow: heads that share keys, outermost first
  // What fills an operand that is a temporary, or clears the result: the outermost scopes of the roles "prologue" and
  // "clear", each around one statement.
  std::vector<const ir::Stmt*> prologues;
  // What sums the elements of rows or columns first: the outermost scopes of the role "sums".
  std::vector<const ir::Stmt*> sums;
  bool valid = false;
};
// Points into the kernel.
MatmulParts matmul_parts(const ir::Kernel& kernel);

// How B reaches the tile: packed once, transposed per panel, or row-major in place.
enum class Panels { packed, transposed, in_place };
Panels panels_of(const MatmulParts& p, const ir::Kernel& kernel);

// Whether A's rows can be packed: a row lies in one piece.
bool rows_packable(const MatmulParts& p, const ir::Kernel& kernel);

// Registers that y = f(c) needs beside the tile: a polynomial, of an epilogue that calls a function, wants several at
// once.
inline constexpr int64_t kFunctionRegisters = 9;
// Bytes of code, at most, of the epilogue's functions for one vector of sums. An image holds 24 KB.
int64_t function_bytes(const MatmulParts& p);
inline constexpr int64_t kMostFunctionBytes = 20 << 10;
int64_t epilogue_registers(const MatmulParts& p);

// Whether integers say how many rows a weight has. These are not proven to lie apart from those of another.
bool has_groups(const ir::Stmt& m);
// Rows of a weight: where integers say how many it has, as many as each has on average. `a` is the load of a row's
// element.
int64_t rows_of_weight(const ir::Stmt& m, const ir::Expr& a, const Problem& problem);
// Whether threads share out panels, and each is of all weights that are chosen: groups of any size, or too few rows
// that choose, are nothing to share out among them.
bool shares_panels(const ir::Stmt& m, const Problem& problem);
// What fills an operand or clears a result before all else: in vectors where it lies that way, rows shared out, or the
// columns of few rows.
void write_prologues(Script& s, const std::vector<const ir::Stmt*>& prologues, const Problem& problem, int64_t lanes);

}  // namespace lathe::search
