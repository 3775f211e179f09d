// See nest_steps.h.
#include "runtime/walk/nest_steps.h"

namespace lathe::runtime {

std::optional<ProgramStep::Kind> step_kind(ir::Op op) {
  using K = ProgramStep::Kind;
  using ir::Op;
  switch (op) {
    case Op::k_add:
      return K::add;
    case Op::k_sub:
      return K::sub;
    case Op::k_mul:
      return K::mul;
    case Op::k_floordiv:
      return K::floordiv;
    case Op::k_mod:
      return K::mod;
    case Op::k_ceildiv:
      return K::ceildiv;
    case Op::k_min:
      return K::min;
    case Op::k_max:
      return K::max;
    case Op::k_neg:
      return K::neg;
    case Op::k_abs:
      return K::abs;
    case Op::k_lt:
      return K::lt;
    case Op::k_le:
      return K::le;
    case Op::k_eq:
      return K::eq;
    case Op::k_ne:
      return K::ne;
    case Op::k_logical_and:
      return K::land;
    case Op::k_logical_or:
      return K::lor;
    case Op::k_logical_not:
      return K::lnot;
    case Op::k_select:
      return K::select;
    default:
      return std::nullopt;
  }
}

ir::Result<ProgramStep::Kind> load_kind(ir::DType type) {
  switch (type) {
    case ir::DType::i8:
      return ProgramStep::Kind::load_i8;
    case ir::DType::u8:
      return ProgramStep::Kind::load_u8;
    case ir::DType::i32:
      return ProgramStep::Kind::load_i32;
    case ir::DType::i64:
      return ProgramStep::Kind::load_i64;
    default:
      return ir::unsupported("a nest reads integers of type {}", ir::dtype_name(type));
  }
}

}  // namespace lathe::runtime
