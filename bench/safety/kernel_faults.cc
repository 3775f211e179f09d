// See kernel_faults.h. One walk finds all faults, and the same walk plants the one with a given number.
#include "bench/safety/kernel_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::safety {
namespace {

using ir::Expr;
using ir::Op;
using ir::Stmt;

// Rounding hides what so small a constant does.
constexpr double kLeastConstant = 1e-3;

bool has_load(const Expr& e) {
  bool found = false;
  ir::for_each_node(e, [&](const ir::ExprNode& n) { found |= n.op == Op::k_load; });
  return found;
}

// Where an expression stands.
struct Place {
  bool index = false;   // of an element
  bool chosen = false;  // in an index that integers of an argument choose
  bool condition = false;
  bool extent = false;
  bool scale = false;  // in an index of a constant of floats
};

class Walk {
 public:
  // planted: -1 to find all.
  Walk(const ir::Kernel& kernel, int planted) : out_(kernel), planted_(planted) {}

  void run() {
    for (ir::Buffer& b : out_.buffers) {
      // Packing: the element that is made of the caller's.
      if (!b.made) continue;
      where_ = b.name + " made of";
      b.made = value(b.made, {});
    }
    body(out_.body);
  }
  ir::Kernel kernel() && { return std::move(out_); }
  std::vector<KernelFault> found() && { return std::move(found_); }

 private:
  FaultKind kind_of(const Place& at, FaultKind otherwise) const {
    if (at.condition || at.extent) return FaultKind::mask;
    if (at.index) return at.chosen ? FaultKind::page : at.scale ? FaultKind::scale : FaultKind::index;
    return otherwise;
  }
  // The replacement if it is the one to plant, else null.
  Expr offer(FaultKind kind, const Expr& from, Expr to) {
    if (done_ || ir::equal(from, to)) return {};
    const int number = next_++;
    if (planted_ < 0) {
      found_.push_back({number, kind, fmt::format("{}: {} becomes {}", where_, ir::print(from), ir::print(to))});
    } else if (number == planted_) {
      done_ = true;
      return to;
    }
    return {};
  }
  Expr first_of(FaultKind kind, const Expr& from, std::initializer_list<Expr> others) {
    for (const Expr& to : others) {
      if (Expr planted = offer(kind, from, to)) return planted;
    }
    return {};
  }

  Expr constants(const Expr& e, const Place& at) {
    if (e->op == Op::k_const_float) {
      if (std::abs(e->fval) < kLeastConstant || std::isinf(e->fval)) return {};
      return first_of(FaultKind::scale, e, {ir::const_float(2 * e->fval, e->type)});
    }
    const auto integer = [&](int64_t v) { return ir::const_int(v, e->type); };
    const FaultKind kind = kind_of(at, FaultKind::bits);
    return first_of(kind, e, {integer(e->ival + 1), integer(e->ival - 1), integer(e->ival / 2), integer(2 * e->ival)});
  }

  Expr operators(const Expr& e, const Place& at) {
    const auto arg = [&](size_t i) { return e->args[i]; };
    const auto with = [&](Op op, size_t first, size_t second) {
      return ir::make_typed(op, e->type, {arg(first), arg(second)});
    };
    switch (e->op) {
      case Op::k_const_int:
      case Op::k_const_float:
        return constants(e, at);
      case Op::k_add:
        return first_of(kind_of(at, FaultKind::scale), e, {arg(0), arg(1)});
      case Op::k_sub:
        return first_of(kind_of(at, FaultKind::scale), e, {arg(0), with(Op::k_add, 0, 1)});
      case Op::k_mul:
        return first_of(kind_of(at, FaultKind::scale), e, {arg(0), arg(1)});
      case Op::k_div:
        return first_of(FaultKind::scale, e, {arg(0)});
      case Op::k_floordiv:
        return first_of(kind_of(at, FaultKind::index), e, {with(Op::k_mod, 0, 1)});
      case Op::k_mod:
        return first_of(kind_of(at, FaultKind::index), e, {with(Op::k_floordiv, 0, 1)});
      case Op::k_min:
      case Op::k_max:
      case Op::k_fmax: {
        const Op other = e->op == Op::k_min ? Op::k_max : Op::k_min;
        return first_of(kind_of(at, FaultKind::order), e, {with(other, 0, 1), arg(0), arg(1)});
      }
      case Op::k_abs:
      case Op::k_neg:
        return first_of(FaultKind::order, e, {arg(0)});
      case Op::k_lt:
        return first_of(FaultKind::mask, e, {with(Op::k_le, 0, 1), with(Op::k_lt, 1, 0)});
      case Op::k_le:
        return first_of(FaultKind::mask, e, {with(Op::k_lt, 0, 1), with(Op::k_le, 1, 0)});
      case Op::k_eq:
        return first_of(FaultKind::mask, e, {with(Op::k_ne, 0, 1)});
      case Op::k_ne:
        return first_of(FaultKind::mask, e, {with(Op::k_eq, 0, 1)});
      case Op::k_logical_and:
        return first_of(FaultKind::mask, e, {arg(0), arg(1), with(Op::k_logical_or, 0, 1)});
      case Op::k_logical_or:
        return first_of(FaultKind::mask, e, {arg(0), arg(1), with(Op::k_logical_and, 0, 1)});
      case Op::k_logical_not:
        return first_of(FaultKind::mask, e, {arg(0)});
      case Op::k_select:
        return first_of(FaultKind::mask, e, {arg(1), arg(2), ir::select(arg(0), arg(2), arg(1))});
      case Op::k_bit_and:
        return first_of(FaultKind::bits, e, {arg(0), with(Op::k_bit_or, 0, 1)});
      case Op::k_bit_or:
        return first_of(FaultKind::bits, e, {arg(0), arg(1), with(Op::k_bit_and, 0, 1)});
      case Op::k_shift_left:
        return first_of(FaultKind::bits, e, {arg(0), with(Op::k_shift_right, 0, 1)});
      case Op::k_shift_right:
        return first_of(FaultKind::bits, e, {arg(0), with(Op::k_shift_left, 0, 1)});
      case Op::k_iter:
        return at.index || at.condition ? iterators(e, at) : Expr();
      default:
        return {};
    }
  }

  // The first row, or that of another loop around.
  Expr iterators(const Expr& e, const Place& at) {
    const FaultKind kind = kind_of(at, FaultKind::index);
    if (Expr planted = offer(kind, e, Expr(0))) return planted;
    for (const std::string& other : around_) {
      if (Expr planted = offer(kind, e, ir::iter(other))) return planted;
    }
    return {};
  }

  // An element's place: its neighbours, as far as there are any; then what the index is made of.
  std::vector<Expr> indices(const std::string& buffer, const std::vector<Expr>& index, Place at) {
    const ir::Buffer* b = out_.find_buffer(buffer);
    std::vector<Expr> out = index;
    at.index = true;
    at.scale = b != nullptr && b->place == ir::Place::constant && ir::is_float(b->type);
    const bool integers = b != nullptr && ir::is_param(b->place) && !ir::is_float(b->type) && at.chosen;
    for (size_t d = 0; d < index.size() && !done_; ++d) {
      Place here = at;
      here.chosen = integers || has_load(index[d]);
      if (b != nullptr && d < b->dims.size() && b->dims[d]) {
        const Expr last = b->dims[d] - Expr(1);
        const FaultKind kind = kind_of(here, FaultKind::index);
        Expr planted =
            first_of(kind, index[d], {ir::min(index[d] + Expr(1), last), ir::max(index[d] - Expr(1), Expr(0))});
        if (planted) {
          out[d] = planted;
          break;
        }
      }
      out[d] = value(index[d], here);
    }
    return out;
  }

  Expr value(const Expr& e, Place at) {
    if (!e || done_) return e;
    if (e->op == Op::k_load) {
      // Integers of an argument that choose: which of them is read.
      Place inside = at;
      inside.chosen = at.index || at.extent || at.condition;
      std::vector<Expr> index = indices(e->name, e->args, inside);
      return done_ ? ir::load(e->name, std::move(index), e->type) : e;
    }
    if (Expr planted = operators(e, at)) return planted;
    return ir::with_args(e, [&, n = 0](const Expr& a) mutable {
      Place here = at;
      here.condition |= e->op == Op::k_select && n == 0;
      ++n;
      return value(a, here);
    });
  }

  void body(std::vector<Stmt>& statements) {
    for (Stmt& s : statements) {
      if (done_) return;
      if (s.kind == Stmt::Kind::scope) {
        where_ = fmt::format("for {}", s.iter);
        if (has_load(s.extent)) extent(s);
        around_.push_back(s.iter);
        body(s.body);
        around_.pop_back();
      } else if (s.kind == Stmt::Kind::assign) {
        where_ = s.target;
        std::vector<Expr> index = indices(s.target, s.index, {});
        if (done_) s.index = std::move(index);
        s.value = value(s.value, {});
      }
    }
  }

  void extent(Stmt& s) {
    Place at;
    at.extent = true;
    if (Expr planted = first_of(FaultKind::mask, s.extent, {s.extent - Expr(1), s.extent + Expr(1)}))
      s.extent = planted;
    else
      s.extent = value(s.extent, at);
  }

  ir::Kernel out_;
  const int planted_;
  int next_ = 0;
  bool done_ = false;
  std::string where_;
  std::vector<std::string> around_;
  std::vector<KernelFault> found_;
};

}  // namespace

const char* fault_kind_name(FaultKind kind) {
  constexpr const char* kNames[kFaultKinds] = {"bits", "scale", "mask", "page", "index", "order"};
  return kNames[static_cast<int>(kind)];
}

std::vector<KernelFault> faults_of(const ir::Kernel& kernel) {
  Walk walk(kernel, -1);
  walk.run();
  return std::move(walk).found();
}

ir::Kernel plant(const ir::Kernel& kernel, int number) {
  Walk walk(kernel, number);
  walk.run();
  return std::move(walk).kernel();
}

}  // namespace lathe::safety
