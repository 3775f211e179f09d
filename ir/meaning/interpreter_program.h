// What the interpreter runs: a Kernel at given sizes with names resolved to slots and indices to integer affine forms.
// A scope has a larger slot than those around it. What an index has of outer loops is computed when the innermost of
// these takes its next value, and kept meanwhile. Private to the interpreter.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/core/binding.h"
#include "ir/meaning/interpreter.h"

namespace lathe::ir {

// A node of an expression. `integer`: computed in int64; else in the arithmetic's values.
struct CodeNode {
  Op op = Op::k_const_int;
  DType type = DType::i64;
  bool integer = true;
  bool integer_args = true;  // of the last operand: decides how comparisons and casts read theirs
  int arg[3] = {-1, -1, -1};
  int access = -1;  // load
  int slot = -1;    // iter; of a node that is kept: the innermost of the loops that it depends on
  int kept = -1;    // where, if it is: an integer of outer loops alone
  int64_t ival = 0;
  double fval = 0;
};

struct CodeTerm {
  int slot = 0;
  int64_t coef = 0;
};
// base + coef * slot of the loop right around + the sum of the terms, of outer loops, the innermost last. That and the
// base are kept, if there are terms.
struct CodeSum {
  int64_t base = 0, coef = 0;
  int slot = 0;
  int first_term = 0, last_term = 0;
  int outer = 0;  // the innermost of the terms' slots
  int kept = -1;
};
// One dimension of an access: a sum, or the value of a node.
struct CodeDim {
  int64_t size = 0, stride = 0;
  CodeSum sum;
  int node = -1;
  bool checked = true;  // false: its interval lies inside the dimension
};
// If `flat`, every dimension is affine and inside its size: the offset is one sum.
struct CodeAccess {
  int buffer = 0;
  bool integer = false;
  bool flat = false;
  CodeSum sum;
  int first_dim = 0, last_dim = 0;
};

struct CodeStep {
  bool scope = false;
  const Stmt* source = nullptr;
  // scope
  int slot = 0;
  int extent = -1;  // node; -1: the constant below
  int64_t constant_extent = 0;
  const std::vector<int64_t>* only = nullptr;
  std::vector<CodeStep> body;
  bool line = false;  // one assignment of a float, whose accesses go on by equal steps and whose target is not read
  // assign
  int access = 0;
  AssignOp op = AssignOp::set;
  DType type = DType::f32;
  bool integer = false;
  int value = 0;
  int factor_a = -1, factor_b = -1;  // += of a product: one fma
};

struct CodeBuffer {
  const Buffer* source = nullptr;
  std::vector<int64_t> dims;
  int64_t size = 0;
  bool integer = false;
};

struct Program {
  std::vector<CodeNode> nodes;
  std::vector<CodeAccess> accesses;
  std::vector<CodeDim> dims;
  std::vector<CodeTerm> terms;
  std::vector<CodeBuffer> buffers;
  std::vector<CodeStep> body;
  int slots = 0, kept = 0;
};

// The kernel, options and everything they hold must outlive the program. `ordered`: the arithmetic has comparisons.
Result<Program> compile_program(const Kernel& kernel, const SymbolValues& symbols,
                                const std::map<std::string, Tensor>& tensors, const InterpreterOptions& options,
                                bool ordered);

}  // namespace lathe::ir
