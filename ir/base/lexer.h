// Tokens of the text form of Kernels: see docs/ir.md. Used by parser.cc only. Positions are 1-based lines and columns;
// bytes outside printable ASCII are allowed in comments and nowhere else.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"

namespace lathe::ir {

struct Token {
  enum class Kind : uint8_t { line, name, integer, real, punct, end };
  Kind kind = Kind::end;
  std::string_view text;  // a slice of the source; line: empty
  int line = 1, column = 1;
  int indent = 0;               // line: leading spaces of the line that starts here
  std::optional<DType> suffix;  // integer, real: the type after ':'
  double real = 0;              // real
  uint64_t magnitude = 0;       // integer: without its sign, at most 2^63
};

// Every line that holds anything but a comment opens with a `line` token; the last token is `end`. The tokens point
// into text.
Result<std::vector<Token>> tokenize(std::string_view text);
// "line L, column C: message" as INVALID.
Status error_at(int line, int column, std::string_view message);

}  // namespace lathe::ir
