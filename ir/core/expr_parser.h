// The expression half of the parser: precedence climbing over tokens, with names resolved as they are met. Used by
// parser.cc only. Depth is limited, so that no text can exhaust the stack here or in any later walk over the tree.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "ir/base/lexer.h"
#include "ir/core/kernel.h"

namespace lathe::ir {

// What names mean. Buffers and symbols of `kernel`, iterators of the enclosing scopes.
struct NameScope {
  const Kernel* kernel = nullptr;
  std::vector<std::string> iters;
  bool unknown_is_symbol = false;  // sizes in the header, read before `where`: checked by the caller
};

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next();
  bool is(std::string_view punct_or_word) const;
  bool accept(std::string_view punct_or_word);
  Status expect(std::string_view punct_or_word);
  Result<std::string> expect_name(std::string_view what);
  Result<int64_t> expect_integer(std::string_view what);  // with sign
  // "expected <what>, found ..." at the next token.
  Status expected(std::string_view what) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

Result<Expr> parse_expression(TokenStream& in, const NameScope& scope);
// "a, b, c" up to and including the closing bracket. `hole`: a token that stands for a null Expr, empty: none.
Result<std::vector<Expr>> parse_expression_list(TokenStream& in, const NameScope& scope, std::string_view close,
                                                std::string_view hole = {});
// A float constant without a type takes this one, where the text says `t[] = 0.0` and t is not f32.
Expr with_context_type(const Expr& e, DType type);

}  // namespace lathe::ir
