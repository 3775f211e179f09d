// The parser of the text form: header, buffers, scopes, statements; see text_form.h and docs/ir.md. Any bytes give a
// Kernel or an error with a position. What it accepts need not verify.
#include <algorithm>
#include <limits>

#include "ir/core/expr_parser.h"
#include "ir/core/names.h"
#include "ir/core/swizzle.h"
#include "ir/core/text_form.h"

namespace lathe::ir {

namespace {

class KernelParser {
 public:
  explicit KernelParser(std::vector<Token> tokens) : in_(std::move(tokens)) { names_.kernel = &kernel_; }

  Result<Kernel> run() {
    if (in_.peek().kind != Token::Kind::line) return in_.expected("'kernel'");
    if (in_.peek().indent != 0) return in_.expected("'kernel' without indentation");
    in_.next();
    LATHE_RETURN_IF_ERROR(header());
    while (at_line(1) && is_buffer_line()) {
      in_.next();
      LATHE_RETURN_IF_ERROR(buffer(false));
      LATHE_RETURN_IF_ERROR(check_sizes());
      LATHE_RETURN_IF_ERROR(end_of_line());
    }
    LATHE_RETURN_IF_ERROR(body(1, kernel_.body));
    if (in_.peek().kind != Token::Kind::end) return in_.expected("an end of the text");
    return std::move(kernel_);
  }

 private:
  bool at_line(int level) const { return in_.peek().kind == Token::Kind::line && in_.peek().indent == 2 * level; }
  bool is_buffer_line() const {
    return in_.peek(1).kind == Token::Kind::name && in_.peek(2).kind == Token::Kind::punct && in_.peek(2).text == ":";
  }
  Status end_of_line() const {
    const Token::Kind kind = in_.peek().kind;
    if (kind == Token::Kind::line || kind == Token::Kind::end) return {};
    return in_.expected("the end of the line");
  }

  Status header() {
    LATHE_RETURN_IF_ERROR(in_.expect("kernel"));
    LATHE_ASSIGN(kernel_.name, in_.expect_name("a kernel name"));
    LATHE_RETURN_IF_ERROR(in_.expect("("));
    if (!in_.accept(")")) {
      do {
        LATHE_RETURN_IF_ERROR(buffer(true));
      } while (in_.accept(","));
      LATHE_RETURN_IF_ERROR(in_.expect(")"));
    }
    if (in_.accept("family")) {
      LATHE_ASSIGN(kernel_.family, in_.expect_name("a family name"));
    }
    if (in_.accept("where")) {
      do {
        LATHE_RETURN_IF_ERROR(symbol_range());
      } while (in_.accept(","));
    }
    if (in_.accept("numeric")) {
      do {
        const auto bit = parse_numeric_name(in_.peek().text);
        if (!bit) return in_.expected("a numeric class");
        in_.next();
        kernel_.numeric |= *bit;
      } while (in_.accept(","));
    }
    LATHE_RETURN_IF_ERROR(end_of_line());
    return check_sizes();
  }

  Status symbol_range() {
    Symbol s;
    LATHE_ASSIGN(s.name, in_.expect_name("a symbol name"));
    LATHE_RETURN_IF_ERROR(in_.expect("in"));
    LATHE_ASSIGN(s.min, in_.expect_integer("the smallest value"));
    LATHE_RETURN_IF_ERROR(in_.expect(".."));
    LATHE_ASSIGN(s.max, in_.expect_integer("the largest value"));
    if (in_.accept("multiple")) {
      LATHE_ASSIGN(s.multiple_of, in_.expect_integer("a number"));
    }
    kernel_.symbols.push_back(std::move(s));
    return {};
  }

  // Sizes are read before `where`: their names are checked once the symbols are known.
  Status check_sizes() {
    for (const Token& t : size_names_) {
      if (!kernel_.find_symbol(t.text)) {
        return error_at(t.line, t.column, fmt::format("expected a symbol, '{}' is not declared after 'where'", t.text));
      }
    }
    size_names_.clear();
    return {};
  }

  Result<std::vector<Expr>> sizes(std::string_view hole) {
    NameScope scope;
    scope.unknown_is_symbol = true;
    for (size_t i = 0;; ++i) {  // note the names up to the closing bracket
      const Token& t = in_.peek(i);
      if (t.kind == Token::Kind::line || t.kind == Token::Kind::end || t.text == "]") break;
      const Token& after = in_.peek(i + 1);
      const bool called = after.kind == Token::Kind::punct && after.text == "(";
      if (t.kind == Token::Kind::name && t.text != hole && !called) size_names_.push_back(t);
    }
    const Token start = in_.peek();
    LATHE_ASSIGN(std::vector<Expr> list, parse_expression_list(in_, scope, "]", hole));
    if (list.size() > kMaxRank) return error_at(start.line, start.column, "expected at most 16 dimensions");
    return list;
  }

  Status buffer(bool param) {
    Buffer b;
    LATHE_ASSIGN(b.name, in_.expect_name("a buffer name"));
    LATHE_RETURN_IF_ERROR(in_.expect(":"));
    const auto type = parse_dtype(in_.peek().text);
    if (!type) return in_.expected("a dtype");
    b.type = *type;
    in_.next();
    LATHE_RETURN_IF_ERROR(in_.expect("["));
    LATHE_ASSIGN(b.dims, sizes("_"));
    const auto place = parse_place(in_.peek().text);
    if (!place || is_param(*place) != param)
      return in_.expected(param ? "in, const or out" : "heap, stack, reg or shared");
    b.place = *place;
    in_.next();
    b.kept = in_.accept("keep");
    if (in_.accept("values")) LATHE_RETURN_IF_ERROR(values(b.values));
    if (in_.accept("layout")) LATHE_RETURN_IF_ERROR(layout(b));
    if (in_.accept("pad")) {
      LATHE_RETURN_IF_ERROR(in_.expect("["));
      do {
        LATHE_ASSIGN(const int64_t pad, in_.expect_integer("a number of elements"));
        b.padding.push_back(pad);
      } while (in_.accept(","));
      LATHE_RETURN_IF_ERROR(in_.expect("]"));
    }
    if (in_.accept("swizzle")) {
      const Token at = in_.peek();
      LATHE_ASSIGN(const int64_t bytes, in_.expect_integer("32, 64 or 128"));
      if (!is_swizzle(bytes))
        return error_at(at.line, at.column, fmt::format("expected 32, 64 or 128, found {}", bytes));
      b.swizzle = static_cast<int>(bytes);
    }
    if (in_.accept("strides")) {
      LATHE_RETURN_IF_ERROR(in_.expect("["));
      LATHE_ASSIGN(b.strides, sizes("?"));
    }
    b.stream = in_.accept("stream");
    if (in_.accept("from")) LATHE_RETURN_IF_ERROR(made(b));
    kernel_.buffers.push_back(std::move(b));
    return {};
  }

  // values 0..P - 1
  Status values(ValueRange& out) {
    NameScope scope;
    scope.unknown_is_symbol = true;
    const Token start = in_.peek();
    LATHE_ASSIGN(out.lo, parse_expression(in_, scope));
    LATHE_RETURN_IF_ERROR(in_.expect(".."));
    LATHE_ASSIGN(out.hi, parse_expression(in_, scope));
    for (const Expr& end : {out.lo, out.hi}) {
      for_each_node(end, [&](const ExprNode& n) {
        if (n.op != Op::k_symbol) return;
        size_names_.push_back(start);
        size_names_.back().text = n.name;  // the buffer keeps it
      });
    }
    return {};
  }

  // from bf16 f32(w[]) * 0.5, or from i32[4, 8] u8(w[d0 // 2, d1]), or a sum: from i8[8, 4] i32(w[d1, d0])
  Status made(Buffer& b) {
    const auto type = parse_dtype(in_.peek().text);
    if (!type) return in_.expected("a dtype");
    in_.next();
    b.given = *type;
    Kernel own;
    own.buffers.push_back({b.name, b.given});
    NameScope scope;
    scope.kernel = &own;
    if (in_.accept("[")) {
      LATHE_ASSIGN(b.given_dims, sizes("_"));
      for (size_t d = 0; d <= b.dims.size(); ++d) scope.iters.push_back(fmt::format("d{}", d));
    }
    LATHE_ASSIGN(b.made, parse_expression(in_, scope));
    return {};
  }

  Status layout(Buffer& b) {
    LATHE_RETURN_IF_ERROR(in_.expect("["));
    do {
      LayoutDim l;
      LATHE_ASSIGN(const int64_t dim, in_.expect_integer("a dimension"));
      if (dim < 0 || dim >= kMaxRank) return in_.expected("a dimension below 16 before this");
      l.dim = static_cast<int>(dim);
      if (in_.is("/") || in_.is("%")) {
        l.part = in_.next().text == "/" ? LayoutDim::Part::outer : LayoutDim::Part::inner;
        LATHE_ASSIGN(l.tile, in_.expect_integer("a tile size"));
      } else if (in_.accept(":")) {
        LATHE_ASSIGN(l.tile, in_.expect_integer("a step of at least 1"));
        if (l.tile < 1) return in_.expected("a step of at least 1 before this");
      }
      b.layout.push_back(l);
    } while (in_.accept(","));
    return in_.expect("]");
  }

  Status body(int level, std::vector<Stmt>& out) {
    if (level > kMaxScopeDepth) return in_.expected("at most 64 nested scopes");
    while (at_line(level)) {
      in_.next();
      Stmt s;
      if (in_.accept("for")) {
        LATHE_RETURN_IF_ERROR(scope(level, s));
      } else if (in_.accept("prefetch")) {
        LATHE_RETURN_IF_ERROR(prefetch(s));
      } else {
        LATHE_RETURN_IF_ERROR(assign(s));
      }
      LATHE_RETURN_IF_ERROR(end_of_line());
      out.push_back(std::move(s));
    }
    if (in_.peek().kind == Token::Kind::line && in_.peek().indent > 2 * (level - 1)) {
      const Token& t = in_.peek();
      return error_at(t.line, t.column, fmt::format("expected an indentation of {}, found {}", 2 * level, t.indent));
    }
    return {};
  }

  Status scope(int level, Stmt& s) {
    s.kind = Stmt::Kind::scope;
    LATHE_ASSIGN(s.iter, in_.expect_name("an iterator name"));
    LATHE_RETURN_IF_ERROR(in_.expect("<"));
    LATHE_ASSIGN(s.extent, parse_expression(in_, names_));
    if (in_.accept("[")) {
      LATHE_ASSIGN(s.role, in_.expect_name("a role"));
      LATHE_RETURN_IF_ERROR(in_.expect("]"));
    }
    if (in_.accept("@")) {
      const auto mark = parse_mark(in_.peek().text);
      if (!mark || *mark == Mark::none) return in_.expected("unroll, vector, parallel, tensor, grid or block");
      s.mark = *mark;
      in_.next();
      if (s.mark == Mark::tensor) {
        LATHE_RETURN_IF_ERROR(in_.expect("("));
        LATHE_ASSIGN(s.intrinsic, in_.expect_name("an intrinsic"));
        LATHE_RETURN_IF_ERROR(in_.expect(")"));
      }
    }
    LATHE_RETURN_IF_ERROR(in_.expect(":"));
    LATHE_RETURN_IF_ERROR(end_of_line());
    names_.iters.push_back(s.iter);
    LATHE_RETURN_IF_ERROR(body(level + 1, s.body));
    names_.iters.pop_back();
    return {};
  }

  Status prefetch(Stmt& s) {
    s.kind = Stmt::Kind::prefetch;
    LATHE_ASSIGN(s.target, in_.expect_name("a buffer"));
    if (!kernel_.find_buffer(s.target)) return in_.expected("a declared buffer before this");
    if (in_.accept("ahead")) {
      LATHE_ASSIGN(s.distance, in_.expect_integer("a number of bytes"));
    }
    if (in_.accept("next")) {
      LATHE_ASSIGN(s.iter, in_.expect_name("an iterator"));
    }
    LATHE_RETURN_IF_ERROR(in_.expect("lines"));
    LATHE_ASSIGN(const int64_t lines, in_.expect_integer("a number of lines"));
    if (lines < 0 || lines > std::numeric_limits<int>::max())
      return in_.expected("a smaller number of lines before this");
    s.lines = static_cast<int>(lines);
    if (!in_.accept("to")) return {};
    s.cache = 2;
    return in_.expect("l2");
  }

  Status assign(Stmt& s) {
    const Token start = in_.peek();
    LATHE_ASSIGN(s.target, in_.expect_name("a statement"));
    const Buffer* target = kernel_.find_buffer(s.target);
    if (!target) {
      return error_at(start.line, start.column, fmt::format("expected a buffer, '{}' is not declared", s.target));
    }
    LATHE_RETURN_IF_ERROR(in_.expect("["));
    LATHE_ASSIGN(s.index, parse_expression_list(in_, names_, "]"));
    const Token op = in_.peek();
    if (op.text == "+=" || op.text == "*=") {
      s.op = op.text == "+=" ? AssignOp::add : AssignOp::mul;
    } else if (op.kind == Token::Kind::name && parse_assign_op(op.text)) {
      s.op = *parse_assign_op(op.text);
      in_.next();
      if (!in_.is("=")) return in_.expected("'='");
    } else if (!in_.is("=")) {
      return in_.expected("=, +=, *=, max=, min= or fmax=");
    }
    in_.next();
    const bool typed_constant = in_.peek().suffix.has_value() || in_.peek(1).suffix.has_value();
    LATHE_ASSIGN(s.value, parse_expression(in_, names_));
    if (!typed_constant) s.value = with_context_type(s.value, target->type);
    return {};
  }

  TokenStream in_;
  Kernel kernel_;
  NameScope names_;
  std::vector<Token> size_names_;
};

}  // namespace

Result<Kernel> parse_kernel(std::string_view text) {
  LATHE_ASSIGN(std::vector<Token> tokens, tokenize(text));
  return KernelParser(std::move(tokens)).run();
}

}  // namespace lathe::ir
