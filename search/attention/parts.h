// What the recipes of attention share: the names in the naive nest (ops/families/attention.cc), and the moves of its
// three parts.
#pragma once
#include <string>
#include <vector>

#include "ir/core/kernel.h"
#include "search/sketches/recipe.h"

namespace lathe::search {

//   row { m = least | scores { c = 0; depth { c += q * k }; s = f(c); m fmax= s } | a = 0 |
//         powers { s = exp2(s - m); a += s } | r = 1 / a | columns { o = 0; values { o += s * v }; y = o * r } }
struct AttentionParts {
  const ir::Stmt *row = nullptr, *scores = nullptr, *depth = nullptr, *powers = nullptr, *columns = nullptr,
                 *values = nullptr;
  std::vector<const ir::Stmt*> heads;  // the scopes around, outermost first
  std::vector<const ir::Stmt*> clear;  // of results that no query has, before all: or none
  // Of what keys have from its pages, or from bytes, before the scope of heads.
  struct Copy {
    const ir::Stmt *heads = nullptr, *keys = nullptr, *depth = nullptr;  // heads, depth: null where there is one
    const ir::Stmt& one() const { return (depth != nullptr ? depth : keys)->body[0]; }
  };
  std::vector<Copy> copies;
  explicit operator bool() const { return values != nullptr; }
  const std::string& products() const { return depth->body[0].target; }
  const std::string& powered() const { return powers->body[0].target; }
  const std::string& sums() const { return values->body[0].target; }
  const std::string& maximum() const { return scores->body[3].target; }
  const std::string& total() const { return powers->body[1].target; }
  const std::string& inverse() const { return row->body[4].target; }
};
// Points into the kernel; nothing where it has other loops.
AttentionParts attention_parts(const ir::Kernel& kernel);

// The loads of keys and of values in the two products.
const ir::Expr& load_of_keys(const AttentionParts& p);
const ir::Expr& load_of_values(const AttentionParts& p);
// Heads that share keys: 1 where each has its own.
int64_t heads_of_group(const AttentionParts& p);
// The scope of the heads that share keys, and the innermost one around it, or "root". The scope of all heads is divided
// where only some share. Empty heads: each has its own keys, around is its scope; `always`: not then either.
struct SharedKeys {
  std::string around, heads;
};
SharedKeys share_keys(Script& s, const AttentionParts& p, bool always = false);

// The results that no query has, in vectors.
void vectorize_clear(Script& s, const AttentionParts& p, int64_t lanes);
// Keys of a page; 0: keys and values are in no pages.
int64_t page_of(const AttentionParts& p);
// Keys that a query sees at most; symbols may be known to have smaller values than the Kernel says.
int64_t most_keys_seen(const ir::Kernel& kernel, const AttentionParts& p, const ir::SymbolValues& most = {});
// Whether that is more than so many, and no query sees more all the same: the number is a difference of symbols.
bool sees_fewer(const ir::Kernel& kernel, const AttentionParts& p, int64_t keys);
// Whether queries see keys from the first one on.
bool from_first(const AttentionParts& p);
// The copy of what the load reads; null: it is an input.
const AttentionParts::Copy* copy_of(const AttentionParts& p, const ir::Expr& load);
// What is copied for the heads that share it, to the stack; the name that `around` has then. The scope `around` takes
// so many heads of keys at a time; 0: it holds all of them.
std::string copy_rows(Script& s, const AttentionParts& p, const SharedKeys& shared, int64_t key_heads = 1);
// The copies, page by page and in vectors: when all else is done. A page is copied for all the heads that copy_rows()
// left inside.
void vectorize_copies(Script& s, const AttentionParts& p, int64_t lanes, int64_t key_heads = 1);

// The scope in vectors, the last one masked unless `tail` is "exact".
void vectorize(Script& s, const std::string& scope, int64_t lanes, const char* tail, bool unrolled);

// Keys in parts of so many, in scopes of their own: all that a part needs is in the scopes that p has, of which the row
// holds the scope of parts. What all parts make, those scopes hold again, under names that end in _m.
inline constexpr const char* kKeyPart = "kpart";
void split_keys(Script& s, const AttentionParts& p, int64_t keys);
// The latter in vectors: one leaf.
void merge_parts(Script& s, const AttentionParts& p, int64_t lanes, int64_t column_vectors, bool parallel);
// Whether each sequence has rows of queries of its own, wherever that is proven.
bool sequences_apart(const AttentionParts& p);
// Scopes around one another, outermost first, are shared out among threads.
void share_out(Script& s, const AttentionParts& p, std::vector<std::string> scopes);

// rows { columns { o = 0 | depth { o += s * v } | y = f(o) } }: blocks of columns whose sums are in registers.
void sum_columns(Script& s, const std::string& columns, const std::string& depth, const std::string& sums,
                 int64_t block, int64_t lanes, const char* tail);

// rows { maximum | powers }: maxima and sums in registers; vectors, several side by side where there are whole steps of
// them.
void softmax_to_registers(Script& s, const AttentionParts& p, const std::string& rows);
void vectorize_softmax(Script& s, const AttentionParts& p, const std::string& maximum, int64_t vectors, int64_t lanes);

// step { keys { heads { c = 0 | d: c += q * k | s = f(c) } } }, keys and heads in full.
struct Scores {
  std::string heads, keys, step;
  std::string suffix;  // of the scope of the depth
  std::string sums;
};
// Vectors along the depth, the same of all keys side by side.
void scores_by_vectors(Script& s, const AttentionParts& p, const Scores& of, int64_t most_depth, int64_t depth_vectors,
                       int64_t lanes);
// A key with all of its depth before the next one: a vector of the sum of each key and head is in a register until all
// its lanes are added. The depth is whole vectors.
void scores_by_rows(Script& s, const AttentionParts& p, const Scores& of, int64_t lanes);

// tiles { rows { columns { c = 0 | depth: c += a * b | y = f(c) } } }; no tiles: rows are one.
struct Product {
  std::string tiles, rows, columns, depth, sums;
  const char* column_tail;
  int64_t panel_columns;
  bool joined;         // the tiles of a panel are one leaf
  bool tensor = true;  // the depth is a loop of the instruction mma
  bool pairs = false;  // of dot2_bf16, a pair of it a step
};
// Panels of columns around tiles of rows, whose sums are in registers.
void tile_product(Script& s, const Product& p, int64_t lanes);
// The same for a depth in pages, without tiles: the sums go from page to page through memory. `around`: a scope that
// holds the rows, of which all iterations take one page after another; empty: there is none.
void sum_pages(Script& s, const Product& p, const std::string& around, int64_t page, int64_t lanes);

// The queries of a sequence at the shape hinted; of unequal sequences, as many as each has on average.
int64_t queries_of_sequence(const AttentionParts& p, const Problem& problem);

}  // namespace lathe::search
