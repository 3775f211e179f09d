// The lexer of the text form: see lexer.h.
#include "ir/base/lexer.h"

#include <charconv>

namespace lathe::ir {

Status error_at(int line, int column, std::string_view message) {
  return invalid("line {}, column {}: {}", line, column, message);
}

namespace {

constexpr int kMaxColumns = 1 << 20;
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_alpha(c) || is_digit(c); }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Result<std::vector<Token>> run() {
    while (at_ < text_.size()) LATHE_RETURN_IF_ERROR(one_line());
    push(Token::Kind::end, at_, 0);
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  int column(size_t at) const { return static_cast<int>(at - line_start_) + 1; }
  Status fail(size_t at, std::string_view message) const { return error_at(line_, column(at), message); }
  Token& push(Token::Kind kind, size_t from, size_t size) {
    Token t;
    t.kind = kind;
    t.text = text_.substr(from, size);
    t.line = line_;
    t.column = column(from);
    tokens_.push_back(t);
    return tokens_.back();
  }

  Status one_line() {
    line_start_ = at_;
    while (peek() == ' ') ++at_;
    const int indent = static_cast<int>(at_ - line_start_);
    bool first = true;
    while (at_ < text_.size() && text_[at_] != '\n') {
      const char c = text_[at_];
      if (at_ - line_start_ > kMaxColumns) return fail(at_, "the line is too long");
      if (c == ';') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        break;
      }
      if (c == ' ' || c == '\r') {
        ++at_;
        continue;
      }
      if (first) push(Token::Kind::line, at_, 0).indent = indent;
      first = false;
      LATHE_RETURN_IF_ERROR(one_token());
    }
    if (at_ < text_.size()) ++at_;
    ++line_;
    return {};
  }

  Status one_token() {
    const char c = peek();
    const size_t from = at_;
    if (is_alpha(c)) {
      while (is_word(peek())) ++at_;
      push(Token::Kind::name, from, at_ - from);
      return {};
    }
    if (is_digit(c)) return number();
    for (std::string_view two : {"..", "//", "==", "!=", "<=", "+=", "*=", "<<", ">>"}) {
      if (text_.substr(at_, 2) != two) continue;
      at_ += 2;
      push(Token::Kind::punct, from, 2);
      return {};
    }
    if (std::string_view("()[],:@<=+-*/%?&|").find(c) == std::string_view::npos) {
      if (c == '\t') return fail(from, "expected spaces, found a tab");
      return fail(from, c > ' ' && c < 127 ? fmt::format("unexpected character '{}'", c)
                                           : fmt::format("unexpected byte {}", int{static_cast<unsigned char>(c)}));
    }
    ++at_;
    push(Token::Kind::punct, from, 1);
    return {};
  }

  Status number() {
    const size_t from = at_;
    bool real = false;
    while (is_digit(peek())) ++at_;
    if (peek() == '.' && is_digit(peek(1))) {
      real = true;
      ++at_;
      while (is_digit(peek())) ++at_;
    }
    if (peek() == 'e') {
      const size_t sign = peek(1) == '+' || peek(1) == '-' ? 2 : 1;
      if (!is_digit(peek(sign))) return fail(at_, "expected digits after 'e'");
      real = true;
      at_ += sign;
      while (is_digit(peek())) ++at_;
    }
    if (is_word(peek())) return fail(at_, fmt::format("expected an end of the number, found '{}'", peek()));
    Token& t = push(real ? Token::Kind::real : Token::Kind::integer, from, at_ - from);
    if (peek() == ':' && is_alpha(peek(1))) {
      const size_t name = ++at_;
      while (is_word(peek())) ++at_;
      t.suffix = parse_dtype(text_.substr(name, at_ - name));
      if (!t.suffix) return fail(name, "expected a dtype after ':'");
      if (is_float(*t.suffix) != real) {
        return fail(name, real ? "a float constant takes a float dtype" : "a float constant needs '.' or 'e'");
      }
    }
    const char* begin = t.text.data();
    const char* end = begin + t.text.size();
    if (!real) {
      const auto [stop, error] = std::from_chars(begin, end, t.magnitude);
      constexpr uint64_t kLimit = uint64_t{1} << 63;
      if (error != std::errc() || stop != end || t.magnitude > kLimit) return fail(from, "the integer is too large");
      return {};
    }
    // Rounded once, to the type of the constant: f32 unless stated.
    if (t.suffix == DType::f64) {
      const auto [stop, error] = std::from_chars(begin, end, t.real);
      if (error != std::errc() || stop != end) return fail(from, "the constant is out of range of f64");
      return {};
    }
    float value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || stop != end) return fail(from, "the constant is out of range of f32");
    t.real = value;
    return {};
  }

  std::string_view text_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view text) { return Lexer(text).run(); }

}  // namespace lathe::ir
