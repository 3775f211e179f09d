// A chain for each function that a device program may contain: y = f(e0), or f(e0, e1).
#pragma once
#include <string>

#include "ir/core/expr.h"
#include "jit/cuda/device_program.h"

namespace lathe::bench {

inline const jit::DeviceOpRow kDeviceOps[] = {
#define LATHE_DEVICE_OP(id, result, operands, device, host) jit::device_op(jit::DeviceOp::k_##id),
#include "jit/cuda/device_ops.def"
#undef LATHE_DEVICE_OP
};

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
  const std::string e1 = value.find("e1") == std::string::npos ? "" : "e1: f32[N] in, ";
  return "kernel f(e0: f32[N] in, " + e1 +
         "y: f32[N] out) family elementwise where N in 0..1000000\n  for j < N [col]:\n    y[j] = " + value + "\n";
}

}  // namespace lathe::bench
