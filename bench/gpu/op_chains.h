// A chain for each function that a device program may contain: y = f(e0), or f(e0, e1).
#pragma once
#include <string>
#include <string_view>

#include "ir/core/expr.h"
#include "jit/cuda/device_program.h"

namespace lathe::bench {

inline const jit::DeviceOpRow kDeviceOps[] = {
#define LATHE_DEVICE_OP(id, result, operands, device, host) jit::device_op(jit::DeviceOp::k_##id),
#include "jit/cuda/device_ops.def"
#undef LATHE_DEVICE_OP
#define LATHE_INTEGER_OP(id, node, type, operands, device, host) jit::device_op(jit::DeviceOp::k_##id),
#include "jit/cuda/integer_ops.def"
#undef LATHE_INTEGER_OP
};

// Of integers that are made of the floats, and floats of the result; 16 bits hold no f32 that the caller could look at.
inline std::string integer_value(const jit::DeviceOpRow& row) {
  const std::string name = ir::op_info(row.node).spelling, a = "i32(e0[j])", b = "i32(e1[j])";
  const auto chosen = [](const std::string& condition) { return "select(" + condition + ", e0[j], e1[j])"; };
  if (row.node == ir::Op::k_cast) {
    const char from = row.operands[0];
    const std::string type = ir::dtype_name(row.type), x = from == 'f' ? "e0[j]" : from == 'i' ? a : "(e0[j] < e1[j])";
    const std::string made = type + (from == 'b' ? x : "(" + x + ")");
    if (row.type == ir::DType::f32) return made;
    if (row.type == ir::DType::b8) return chosen(made);
    return ir::is_float(row.type) && from != 'f' ? "f32(" + a + ")" : "f32(" + made + ")";
  }
  if (row.node == ir::Op::k_select) return "f32(select(e0[j] < e1[j], " + a + ", " + b + "))";
  const bool shifts = row.node == ir::Op::k_shift_left || row.node == ir::Op::k_shift_right;
  std::string value = a + " " + name + " " + (shifts ? "5" : b);
  if (ir::op_info(row.node).form == ir::OpForm::kPrefix) value = name + a;
  if (ir::op_info(row.node).form == ir::OpForm::kCall)
    value = name + "(" + a + (row.operands[1] == 'i' ? ", " + b : "") + ")";
  return row.result == 'b' ? chosen(value) : "f32(" + value + ")";
}

inline std::string chain_of(const jit::DeviceOpRow& row) {
  const std::string two = "e0[j], e1[j]", name = ir::op_info(row.node).spelling;
  std::string value = name + "(e0[j])";
  if (ir::op_info(row.node).form == ir::OpForm::kInfix) value = "e0[j] " + name + " e1[j]";
  if (ir::op_info(row.node).form == ir::OpForm::kPrefix) value = name + "e0[j]";
  if (ir::op_info(row.node).form == ir::OpForm::kCall && row.operands[1] == 'f') value = name + "(" + two + ")";
  if (row.node == ir::Op::k_fma) value = "fma(e0[j], e1[j], e0[j])";
  if (row.node == ir::Op::k_select || row.result == 'b') {
    value = "e0[j] < e1[j]";
    if (row.operands[0] == 'f') value = "e0[j] " + name + " e1[j]";
    if (row.node == ir::Op::k_logical_not) value = "not " + value;
    if (row.node == ir::Op::k_logical_and || row.node == ir::Op::k_logical_or) value += " " + name + " e1[j] < 0.5";
    value = "select(" + value + ", e0[j], e1[j])";
  }
  const bool integers = std::string_view(row.operands).find('i') != std::string_view::npos;
  if (integers || row.node == ir::Op::k_cast) value = integer_value(row);
  const std::string e1 = value.find("e1") == std::string::npos ? "" : "e1: f32[N] in, ";
  return "kernel f(e0: f32[N] in, " + e1 +
         "y: f32[N] out) family elementwise where N in 0..1000000\n  for j < N [col]:\n    y[j] = " + value + "\n";
}

}  // namespace lathe::bench
