// Spellings of the text form that printer and parser share: places, marks, assignment operators, numeric classes,
// operator strengths. Tables only.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/core/kernel.h"

namespace lathe::ir {

const char* place_name(Place place);  // "in", "const", ...
std::optional<Place> parse_place(std::string_view name);
bool is_param(Place place);        // in, constant, out
bool is_input(Place place);        // in, constant: read and never written
const char* mark_name(Mark mark);  // "unroll"; none: ""
std::optional<Mark> parse_mark(std::string_view name);
const char* assign_op_name(AssignOp op);  // "", "+", "max", ...: what stands before '='
std::optional<AssignOp> parse_assign_op(std::string_view name);

std::string numeric_names(uint32_t bits);                           // "reassociate,contract"; "exact" for none
std::optional<uint32_t> parse_numeric_name(std::string_view name);  // one name; "exact" is 0

// Words that cannot name a buffer, iterator or symbol.
bool is_reserved(std::string_view name);
// A letter or _, then letters, digits and _; not reserved.
bool is_valid_name(std::string_view name);

// Deeper trees are refused by parser and verifier, so that every walk may recurse.
inline constexpr int kMaxExprDepth = 400, kMaxScopeDepth = 64, kMaxRank = 16;

// Operators bind by strength, larger first; infix ones of one strength group to the left.
inline constexpr int kOrStrength = 1, kAndStrength = 2, kNotStrength = 3, kCompareStrength = 4, kBitOrStrength = 5,
                     kBitAndStrength = 6, kShiftStrength = 7, kAddStrength = 8, kMulStrength = 9, kNegStrength = 10,
                     kAtomStrength = 11;
int infix_strength(Op op);

}  // namespace lathe::ir
