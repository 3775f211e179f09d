// Formats of weights with few bits, as data: rows of quant_formats.def, parsed. What an operator needs of one is which
// operands hold it, how a Kernel reads its fields, and the expression of a weight.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/core/kernel.h"
#include "ops/graph.h"

namespace lathe::ops {

enum class FieldsIn : uint8_t { kBlocks, kTensors };

struct QuantFormat {
  std::string name;
  FieldsIn place;
  ir::Kernel meaning;    // fields, then v[N, K]
  ir::Kernel packed;     // the same of the same fields as products want them; no statements: no other than these
  ir::Kernel reordered;  // the same with k // G for the group of input k, which may be any; no statements: it may not
  int64_t block = 1;     // weights: K is a multiple of it
  int64_t block_bytes = 0;  // kBlocks only
  bool grouped = false;     // it has symbol G
  bool made = false;        // the meaning has fields that are made when they are packed: it is one of constants only

  bool regroups() const { return !reordered.body.empty(); }
  size_t tensors() const;  // operands that hold it, but for the groups of inputs
};

// Parsed once; safe from any thread.
const std::vector<QuantFormat>& quant_formats();
// Null if there is none.
const QuantFormat* find_quant_format(std::string_view name);
std::string quant_format_names();

// One weight matrix in a format, or several to choose from.
struct QuantWeight {
  const QuantFormat* format = nullptr;
  DimDesc n;
  int64_t k = 0, group = 0;
  bool packed = false;     // read as products want it
  bool reordered = false;  // inputs belong to groups in an order of their own
  int64_t count = 0;       // matrices: the first dimension of each operand; 0: one, and no such dimension
  int64_t groups() const { return (k + group - 1) / group; }
  const ir::Kernel& kernel() const {
    if (reordered) return format->reordered;
    return packed && !format->packed.body.empty() ? format->packed : format->meaning;
  }
};
// From the operands that hold it. k: 0 where they have to tell. many: their first dimension counts matrices. INVALID
// names an operand, a dimension and what was expected.
ir::Result<QuantWeight> quant_weight(const QuantFormat& format, int64_t k, int64_t group,
                                     const std::vector<const TensorDesc*>& operands, bool many = false);

// A field as a Kernel's parameter.
struct QuantField {
  ir::Buffer buffer;   // its name that of the format's Kernel; numbers for K and G in its dims, N as the operand has it
  size_t operand = 0;  // of those that hold the format
  int64_t offset = 0;  // bytes into the operand
  bool part = false;   // it is not all of it
};
std::vector<QuantField> quant_fields(const QuantWeight& weight, const std::vector<const TensorDesc*>& operands);

// What a weight is besides row and column: the group of input k of a reordered one, the number of one of several.
struct QuantAt {
  ir::Expr group_of_k = {}, matrix = {};
};
// Weight [n, k] as f32, of the fields under these names.
ir::Expr quant_value(const QuantWeight& weight, const std::vector<QuantField>& fields,
                     const std::vector<std::string>& names, const ir::Expr& n, const ir::Expr& k,
                     const QuantAt& at = {});

}  // namespace lathe::ops
