// Parsing of expressions: see expr_parser.h.
#include "ir/core/expr_parser.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "ir/core/names.h"

namespace lathe::ir {

const Token& TokenStream::next() {
  const Token& t = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return t;
}

bool TokenStream::is(std::string_view word) const {
  const Token& t = peek();
  return (t.kind == Token::Kind::punct || t.kind == Token::Kind::name) && t.text == word;
}

bool TokenStream::accept(std::string_view word) {
  if (!is(word)) return false;
  next();
  return true;
}

Status TokenStream::expected(std::string_view what) const {
  const Token& t = peek();
  std::string found = "the end of the line";
  if (t.kind == Token::Kind::end) found = "the end of the text";
  if (!t.text.empty()) found = fmt::format("'{}'", t.text.substr(0, 40));
  const std::string message = fmt::format("expected {}, found {}", what, found);
  if (!t.text.empty() || at_ == 0) return error_at(t.line, t.column, message);
  const Token& last = tokens_[at_ - 1];  // the end of a line is where its last token ends
  return error_at(last.line, last.column + static_cast<int>(last.text.size()), message);
}

Status TokenStream::expect(std::string_view word) {
  if (accept(word)) return {};
  return expected(fmt::format("'{}'", word));
}

Result<std::string> TokenStream::expect_name(std::string_view what) {
  const Token& t = peek();
  if (t.kind != Token::Kind::name) return expected(what);
  if (is_reserved(t.text)) {
    return error_at(t.line, t.column, fmt::format("expected {}, '{}' is reserved", what, t.text));
  }
  next();
  return std::string(t.text);
}

Result<int64_t> TokenStream::expect_integer(std::string_view what) {
  const bool minus = is("-");
  const Token& t = peek(minus ? 1 : 0);
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (t.kind != Token::Kind::integer || t.suffix) return expected(what);
  if (!minus && t.magnitude > kMax) return error_at(t.line, t.column, "the integer is too large");
  if (minus) next();
  next();
  return minus ? static_cast<int64_t>(~t.magnitude + 1) : static_cast<int64_t>(t.magnitude);
}

namespace {

// An expression under construction: depth of the tree, and whether it is a float constant that has not been given a
// type.
struct Part {
  Expr e;
  int depth = 1;
  bool untyped = false;
};

std::optional<Op> infix_op(const Token& t) {
  if (t.kind != Token::Kind::punct && t.kind != Token::Kind::name) return std::nullopt;
  static constexpr Op kInfix[] = {Op::k_add,      Op::k_sub,    Op::k_mul,         Op::k_div,
                                  Op::k_floordiv, Op::k_mod,    Op::k_lt,          Op::k_le,
                                  Op::k_eq,       Op::k_ne,     Op::k_logical_and, Op::k_logical_or,
                                  Op::k_bit_and,  Op::k_bit_or, Op::k_shift_left,  Op::k_shift_right};
  for (const Op op : kInfix) {
    if (t.text == op_info(op).spelling) return op;
  }
  return std::nullopt;
}

std::optional<Op> call_op(std::string_view name) {
  static constexpr Op kAll[] = {
#define LATHE_NODE(id, spelling, arity, form, cls) Op::k_##id,
#include "ir/core/nodes.def"
#undef LATHE_NODE
  };
  for (const Op op : kAll) {
    const OpInfo& info = op_info(op);
    if (info.form == OpForm::kCall && op != Op::k_cast && name == info.spelling) return op;
  }
  return std::nullopt;
}

class ExprParser {
 public:
  ExprParser(TokenStream& in, const NameScope& scope) : in_(in), scope_(scope) {}

  Result<Part> binary(int min_strength, int level) {
    LATHE_ASSIGN(Part left, unary(level));
    for (;;) {
      const Token& t = in_.peek();
      const std::optional<Op> op = infix_op(t);
      if (!op || infix_strength(*op) < min_strength) return left;
      const bool compare = op_info(*op).cls == OpClass::kCompare;
      in_.next();
      LATHE_ASSIGN(Part right, binary(infix_strength(*op) + 1, level + 1));
      std::vector<Part> parts;
      parts.push_back(std::move(left));
      parts.push_back(std::move(right));
      LATHE_ASSIGN(left, combine(*op, std::move(parts), t));
      if (compare) min_strength = std::max(min_strength, 1);
      if (compare && infix_op(in_.peek()) && op_info(*infix_op(in_.peek())).cls == OpClass::kCompare) {
        return in_.expected("no second comparison (write 'and')");
      }
    }
  }

 private:
  Status too_deep(const Token& t) const {
    return error_at(t.line, t.column, fmt::format("the expression is nested deeper than {}", kMaxExprDepth));
  }

  // Builds the node; untyped float constants take the type of their float siblings.
  Result<Part> combine(Op op, std::vector<Part> parts, const Token& t) {
    Part out;
    std::optional<DType> sibling;
    bool all_untyped = true;
    for (const Part& p : parts) {
      out.depth = std::max(out.depth, p.depth + 1);
      if (!p.untyped && is_float(p.e->type)) sibling = p.e->type;
      all_untyped = all_untyped && p.untyped;
    }
    if (out.depth > kMaxExprDepth) return too_deep(t);
    std::vector<Expr> args;
    for (Part& p : parts) args.push_back(p.untyped && sibling ? with_context_type(p.e, *sibling) : std::move(p.e));
    out.e = make(op, std::move(args));
    return out;
  }

  Result<Part> unary(int level) {
    const Token& t = in_.peek();
    if (level > kMaxExprDepth) return too_deep(t);
    if (t.kind == Token::Kind::name && t.text == "not") {
      in_.next();
      LATHE_ASSIGN(Part arg, binary(kNotStrength, level + 1));
      return prefix(Op::k_logical_not, std::move(arg), t);
    }
    if (t.kind != Token::Kind::punct || t.text != "-") return atom(level);
    in_.next();
    const Token& literal = in_.peek();
    const bool constant = literal.kind == Token::Kind::integer || literal.kind == Token::Kind::real ||
                          (literal.kind == Token::Kind::name && (literal.text == "inf" || literal.text == "nan"));
    if (constant) return number(true);
    LATHE_ASSIGN(Part arg, unary(level + 1));
    return prefix(Op::k_neg, std::move(arg), t);
  }

  Result<Part> prefix(Op op, Part arg, const Token& t) {
    std::vector<Part> parts;
    parts.push_back(std::move(arg));
    return combine(op, std::move(parts), t);
  }

  // A number, inf, nan, true or false; `minus` when a '-' stood before it.
  Result<Part> number(bool minus) {
    const Token t = in_.next();
    Part out;
    if (t.kind == Token::Kind::integer) {
      constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
      if (!minus && t.magnitude > kMax) return error_at(t.line, t.column, "the integer is too large");
      const int64_t value = static_cast<int64_t>(minus ? ~t.magnitude + 1 : t.magnitude);
      out.e = Expr(value);
      if (t.suffix && *t.suffix != DType::i64) out.e = retyped(out.e, *t.suffix);
      return out;
    }
    double value = t.real;
    std::optional<DType> type = t.suffix;
    if (t.kind == Token::Kind::name) {
      value = t.text == "inf" ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
      if (in_.is(":") && in_.peek(1).kind == Token::Kind::name) {
        in_.next();
        type = parse_dtype(in_.peek().text);
        if (!type || !is_float(*type)) return in_.expected("a float dtype");
        in_.next();
      }
    }
    out.e = const_float(minus ? -value : value, type.value_or(DType::f32));
    out.untyped = !type;
    return out;
  }

  static Expr retyped(const Expr& e, DType type) {
    auto node = std::make_shared<ExprNode>(*e);
    node->type = type;
    return Expr(std::shared_ptr<const ExprNode>(std::move(node)));
  }

  Result<Part> atom(int level) {
    const Token& t = in_.peek();
    if (in_.accept("(")) {
      LATHE_ASSIGN(Part inner, binary(kOrStrength, level + 1));
      LATHE_RETURN_IF_ERROR(in_.expect(")"));
      return inner;
    }
    if (t.kind == Token::Kind::integer || t.kind == Token::Kind::real) return number(false);
    if (t.kind != Token::Kind::name) return in_.expected("an expression");
    if (t.text == "inf" || t.text == "nan") return number(false);
    if (t.text == "true" || t.text == "false") {
      in_.next();
      Part out;
      out.e = retyped(Expr(t.text == "true" ? 1 : 0), DType::b8);
      return out;
    }
    const Token& after = in_.peek(1);
    if (after.kind == Token::Kind::punct && after.text == "(") return call(level);
    if (after.kind != Token::Kind::punct || after.text != "[") return name();
    // `for b < B [row]`: a bracket after anything but a buffer is not an index.
    const bool buffer = !scope_.kernel || scope_.kernel->find_buffer(t.text);
    return !buffer && is_known(t.text) ? name() : load_of(level);
  }

  Result<Part> call(int level) {
    const Token t = in_.peek();
    const std::optional<DType> type = parse_dtype(t.text);
    const std::optional<Op> op = call_op(t.text);
    if (!type && !op) return in_.expected("a function or a dtype before '('");
    in_.next();
    in_.next();
    std::vector<Part> parts;
    if (!in_.accept(")")) {
      do {
        LATHE_ASSIGN(Part part, binary(kOrStrength, level + 1));
        parts.push_back(std::move(part));
      } while (in_.accept(","));
      LATHE_RETURN_IF_ERROR(in_.expect(")"));
    }
    const int arity = type ? 1 : op_info(*op).arity;
    if (static_cast<int>(parts.size()) != arity) {
      return error_at(
          t.line, t.column,
          fmt::format("{} takes {} argument{}, found {}", t.text, arity, arity == 1 ? "" : "s", parts.size()));
    }
    if (!type) return combine(*op, std::move(parts), t);
    Part out;
    out.depth = parts[0].depth + 1;
    if (out.depth > kMaxExprDepth) return too_deep(t);
    out.e = cast(*type, std::move(parts[0].e));
    return out;
  }

  Result<Part> load_of(int level) {
    const Token t = in_.next();
    const Buffer* buffer = scope_.kernel ? scope_.kernel->find_buffer(t.text) : nullptr;
    if (!buffer) {
      return error_at(t.line, t.column, fmt::format("expected a buffer before '[', '{}' is not declared", t.text));
    }
    in_.next();
    Part out;
    std::vector<Expr> index;
    if (!in_.accept("]")) {
      do {
        LATHE_ASSIGN(Part part, binary(kOrStrength, level + 1));
        out.depth = std::max(out.depth, part.depth + 1);
        index.push_back(std::move(part.e));
      } while (in_.accept(","));
      LATHE_RETURN_IF_ERROR(in_.expect("]"));
    }
    if (out.depth > kMaxExprDepth) return too_deep(t);
    out.e = load(std::string(t.text), std::move(index), buffer->type);
    return out;
  }

  bool is_iter(std::string_view name) const {
    return std::find(scope_.iters.begin(), scope_.iters.end(), name) != scope_.iters.end();
  }
  bool is_known(std::string_view name) const {
    return is_iter(name) || (scope_.kernel && scope_.kernel->find_symbol(name));
  }

  Result<Part> name() {
    const Token t = in_.peek();
    LATHE_ASSIGN(std::string name, in_.expect_name("an expression"));
    Part out;
    if (is_iter(name)) {
      out.e = iter(std::move(name));
    } else if (scope_.unknown_is_symbol || (scope_.kernel && scope_.kernel->find_symbol(name))) {
      out.e = symbol(std::move(name));
    } else {
      const bool buffer = scope_.kernel && scope_.kernel->find_buffer(name);
      return error_at(t.line, t.column,
                      buffer ? fmt::format("expected '[' after buffer {}", name)
                             : fmt::format("expected a symbol or an enclosing iterator, '{}' is neither", name));
    }
    return out;
  }

  TokenStream& in_;
  const NameScope& scope_;
};

}  // namespace

Expr with_context_type(const Expr& e, DType type) {
  return is_float(type) && e->op == Op::k_const_float ? const_float(e->fval, type) : e;
}

Result<Expr> parse_expression(TokenStream& in, const NameScope& scope) {
  LATHE_ASSIGN(Part part, ExprParser(in, scope).binary(kOrStrength, 0));
  return std::move(part.e);
}

Result<std::vector<Expr>> parse_expression_list(TokenStream& in, const NameScope& scope, std::string_view close,
                                                std::string_view hole) {
  std::vector<Expr> out;
  if (in.accept(close)) return out;
  do {
    if (!hole.empty() && in.accept(hole)) {
      out.emplace_back();
      continue;
    }
    LATHE_ASSIGN(Expr e, parse_expression(in, scope));
    out.push_back(std::move(e));
  } while (in.accept(","));
  LATHE_RETURN_IF_ERROR(in.expect(close));
  return out;
}

}  // namespace lathe::ir
