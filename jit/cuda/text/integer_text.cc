// See integer_text.h.
#include "jit/cuda/text/integer_text.h"

#include <fmt/format.h>

namespace lathe::jit {

using ir::Expr;
using ir::Op;

std::string integer_text(const Expr& e) {
  const auto arg = [&](size_t i) { return integer_text(e->args[i]); };
  const auto call = [&](const char* name) { return fmt::format("{}({}, {})", name, arg(0), arg(1)); };
  switch (e->op) {
    case Op::k_const_int:
      return fmt::format("{}ll", e->ival);
    case Op::k_symbol:
      return "a." + e->name;
    case Op::k_iter:
      return e->name == "block" || e->name == "blocks" || e->name == "thread" ? fmt::format("lt_{}()", e->name)
                                                                              : e->name;
    case Op::k_floordiv:
      return call("lt_floordiv");
    case Op::k_mod:
      return call("lt_mod");
    case Op::k_ceildiv:
      return call("lt_ceildiv");
    case Op::k_min:
      return call("lt_least");
    case Op::k_max:
      return call("lt_most");
    case Op::k_neg:
      return fmt::format("(-{})", arg(0));
    case Op::k_logical_and:
      return fmt::format("({} && {})", arg(0), arg(1));
    case Op::k_logical_or:
      return fmt::format("({} || {})", arg(0), arg(1));
    case Op::k_logical_not:
      return fmt::format("(!{})", arg(0));
    case Op::k_select:
      return fmt::format("({} ? {} : {})", arg(0), arg(1), arg(2));
    default:
      return fmt::format("({} {} {})", arg(0), op_info(e->op).spelling, arg(1));
  }
}

}  // namespace lathe::jit
