// What the sketches of the quantised family find in a Kernel, and how they lay its fields out.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "search/sketches/matmul_parts.h"

namespace lathe::search {

// A constant whose element is read by the weight's expression, and the dimension along which outputs lie.
struct QuantisedField {
  std::string name;
  int n_dim = -1;
  int chosen = 0;  // first dimensions that say which of several weights it is
};

struct QuantisedParts {
  const ir::Stmt *m = nullptr, *n = nullptr, *k = nullptr;  // m: null in a dequantize
  ir::Expr row;                                             // the load of the other factor; null: there is none
  ir::Expr weight;  // of the first of several; null: the Kernel has another form
  std::vector<QuantisedField> fields;
  std::vector<const ir::Stmt*> clears;  // the outermost scope of the role "clear", if there is one
  bool packed = false;
  bool reordered = false;  // loads of the weight have an index that is loaded by the depth: it stays in the nest
  bool chooses() const { return !fields.empty() && fields.front().chosen > 0; }
};
// Bytes of one weight's fields at the representative dims, and the field that has most of them.
struct FieldBytes {
  double total = 0;
  std::string largest;
  std::map<std::string, double> of;  // by name
};
FieldBytes field_bytes(const QuantisedParts& parts, const Problem& problem);

QuantisedParts quantised_parts(const ir::Kernel& kernel);

// Of one weight; a dequantize has one.
int64_t rows_of_product(const QuantisedParts& parts, const Problem& problem);
// Once panels n0 are around tiles m0: what threads share out. Where that is panels of all weights that are chosen, they
// go around these.
std::string outermost_scope(Script& s, const QuantisedParts& parts, const Problem& problem);

// Code of the statements after the sums, for so many vectors, about: a function is some 80 instructions.
int64_t end_bytes(const QuantisedParts& parts, int64_t vectors);
inline constexpr int64_t kMostEndBytes = 6 << 10;

// The layout [which, n / columns, ..., n % columns]. quads >= 0: that dimension in fours, each with its output:
// [which, n / columns, ..., quads / 4, n % columns, quads % 4].
void pack_field(Script& s, const QuantisedField& field, int64_t columns, int quads = -1);
// A scope over columns in vectors; panel > 0: of panels side by side, of so many columns each.
void vectorize_columns(Script& s, std::string scope, int64_t panel, int64_t lanes, const char* tail);

// Whether the caller's fields are parts of the same blocks of bytes, and all that a group of weights has to itself can
// lie beside each other: a block is one group, or its largest field has groups, or parts of some of these, as a
// dimension.
bool lie_in_turn(const QuantisedParts& parts, const ir::Kernel& kernel, const std::string& largest, int64_t group);
// Packed fields of such blocks lie beside each other in the order in which they are read: one stream.
void interleave_fields(Script& s, const QuantisedParts& parts, const std::string& largest);

}  // namespace lathe::search
