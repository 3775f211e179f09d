// The printer of the text form: see text_form.h and docs/ir.md. Prints any Kernel, also one that does not verify; only
// those that verify are sure to parse back.
#include <fmt/format.h>

#include <cmath>

#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::ir {

namespace {

// Binding strength of an expression's outermost operator, as the parser sees it.
int strength(const ExprNode& e) {
  switch (op_info(e.op).form) {
    case OpForm::kInfix:
      return infix_strength(e.op);
    case OpForm::kPrefix:
      return e.op == Op::k_logical_not ? kNotStrength : kNegStrength;
    default:
      return kAtomStrength;
  }
}

void print_float(std::string& out, double value, DType type) {
  if (std::isnan(value)) {
    out += "nan";
  } else if (std::isinf(value)) {
    out += value < 0 ? "-inf" : "inf";
  } else {
    std::string text = type == DType::f64 ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
    if (text.find_first_of(".e") == std::string::npos) text += ".0";
    out += text;
  }
  if (type != DType::f32) out += fmt::format(":{}", dtype_name(type));
}

void print_expr(std::string& out, const Expr& e, int min_strength);

void print_list(std::string& out, const std::vector<Expr>& list, const char* null_text = "?") {
  for (size_t i = 0; i < list.size(); ++i) {
    if (i) out += ", ";
    if (list[i]) {
      print_expr(out, list[i], 0);
    } else {
      out += null_text;
    }
  }
}

void print_bare(std::string& out, const ExprNode& e) {
  switch (e.op) {
    case Op::k_const_int:
      if (e.type == DType::b8) {
        out += e.ival ? "true" : "false";
      } else {
        out += std::to_string(e.ival);
        if (e.type != DType::i64) out += fmt::format(":{}", dtype_name(e.type));
      }
      return;
    case Op::k_const_float:
      print_float(out, e.fval, e.type);
      return;
    case Op::k_iter:
    case Op::k_symbol:
      out += e.name;
      return;
    case Op::k_load:
      out += e.name;
      out += '[';
      print_list(out, e.args);
      out += ']';
      return;
    default:
      break;
  }
  const OpInfo& info = op_info(e.op);
  switch (info.form) {
    case OpForm::kInfix: {
      const int s = strength(e);
      // Left-associative; comparisons do not chain.
      print_expr(out, e.args[0], info.cls == OpClass::kCompare ? s + 1 : s);
      const bool tight = e.op == Op::k_mul && e.type == DType::i64;
      if (!tight) out += ' ';
      out += info.spelling;
      if (!tight) out += ' ';
      print_expr(out, e.args[1], s + 1);
      return;
    }
    case OpForm::kPrefix: {
      out += info.spelling;
      if (e.op == Op::k_logical_not) out += " ";
      // A minus in front of a literal belongs to the literal.
      const bool literal = e.args[0] && (e.args[0]->op == Op::k_const_int || e.args[0]->op == Op::k_const_float);
      print_expr(out, e.args[0], e.op == Op::k_neg && literal ? kAtomStrength + 1 : strength(e));
      return;
    }
    default:
      out += e.op == Op::k_cast ? dtype_name(e.type) : info.spelling;
      out += "(";
      print_list(out, e.args);
      out += ")";
  }
}

void print_expr(std::string& out, const Expr& e, int min_strength) {
  if (!e) {
    out += "?";
    return;
  }
  const bool parens = strength(*e) < min_strength;
  if (parens) out += "(";
  print_bare(out, *e);
  if (parens) out += ")";
}

void print_buffer(std::string& out, const Buffer& b) {
  out += b.name;
  out += ": ";
  out += dtype_name(b.type);
  out += '[';
  print_list(out, b.dims, "_");
  out += "] ";
  out += place_name(b.place);
  if (b.kept) out += " keep";
  if (b.values) {
    out += " values ";
    print_expr(out, b.values.lo, 0);
    out += "..";
    print_expr(out, b.values.hi, 0);
  }
  if (!b.layout.empty()) {
    out += " layout [";
    for (size_t i = 0; i < b.layout.size(); ++i) {
      const LayoutDim& l = b.layout[i];
      if (i) out += ", ";
      out += fmt::format("{}", l.dim);
      if (l.part == LayoutDim::Part::outer) out += fmt::format("/{}", l.tile);
      if (l.part == LayoutDim::Part::inner) out += fmt::format("%{}", l.tile);
      if (l.part == LayoutDim::Part::whole && l.tile != 0) out += fmt::format(":{}", l.tile);
    }
    out += "]";
  }
  if (!b.padding.empty()) out += fmt::format(" pad [{}]", fmt::join(b.padding, ", "));
  if (b.swizzle != 0) out += fmt::format(" swizzle {}", b.swizzle);
  if (!b.strides.empty()) {
    out += " strides [";
    print_list(out, b.strides);
    out += "]";
  }
  if (b.stream) out += " stream";
  if (b.made) {
    out += fmt::format(" from {}", dtype_name(b.given));
    if (!b.given_dims.empty()) {
      out += "[";
      print_list(out, b.given_dims, "_");
      out += "]";
    }
    out += " ";
    print_expr(out, b.made, 0);
  }
}

void print_body(std::string& out, const std::vector<Stmt>& body, int indent) {
  for (const Stmt& s : body) {
    out.append(static_cast<size_t>(2 * indent), ' ');
    switch (s.kind) {
      case Stmt::Kind::scope:
        out += "for ";
        out += s.iter;
        out += " < ";
        print_expr(out, s.extent, 0);
        if (!s.role.empty()) out += fmt::format(" [{}]", s.role);
        if (s.mark == Mark::tensor) {
          out += fmt::format(" @tensor({})", s.intrinsic);
        } else if (s.mark != Mark::none) {
          out += " @";
          out += mark_name(s.mark);
        }
        out += ":\n";
        print_body(out, s.body, indent + 1);
        break;
      case Stmt::Kind::assign:
        out += s.target;
        out += '[';
        print_list(out, s.index);
        out += "] ";
        out += assign_op_name(s.op);
        out += "= ";
        print_expr(out, s.value, 0);
        out += "\n";
        break;
      case Stmt::Kind::prefetch:
        out += fmt::format("prefetch {}", s.target);
        if (s.distance != 0) out += fmt::format(" ahead {}", s.distance);
        if (!s.iter.empty()) out += fmt::format(" next {}", s.iter);
        out += fmt::format(" lines {}{}\n", s.lines, s.cache == 2 ? " to l2" : "");
        break;
    }
  }
}

}  // namespace

std::string print(const Expr& e) {
  std::string out;
  print_expr(out, e, 0);
  return out;
}

std::string print(const std::vector<Stmt>& body, int indent) {
  std::string out;
  print_body(out, body, indent);
  return out;
}

std::string print(const Kernel& k) {
  std::string out;
  out.reserve(1024);
  out += "kernel ";
  out += k.name;
  out += '(';
  bool first = true;
  for (const Buffer& b : k.buffers) {
    if (!is_param(b.place)) continue;
    if (!first) out += ", ";
    first = false;
    print_buffer(out, b);
  }
  out += ")";
  if (!k.family.empty()) out += " family " + k.family;
  for (size_t i = 0; i < k.symbols.size(); ++i) {
    const Symbol& s = k.symbols[i];
    out += fmt::format("{}{} in {}..{}", i == 0 ? " where " : ", ", s.name, s.min, s.max);
    if (s.multiple_of != 1) out += fmt::format(" multiple {}", s.multiple_of);
  }
  if (k.numeric != kExact) out += " numeric " + numeric_names(k.numeric);
  out += "\n";
  for (const Buffer& b : k.buffers) {
    if (is_param(b.place)) continue;
    out += "  ";
    print_buffer(out, b);
    out += "\n";
  }
  print_body(out, k.body, 1);
  return out;
}

}  // namespace lathe::ir
