// Operands of one operator to time it on: constants packed, floats tame. Cold ones rotate over copies that are together
// at least cold_bytes() (machine_profile.h): the constants where they are half of the bytes that a call reads or more,
// as those of a decode step; else all operands, results included. Made once for all shapes, since packing and filling
// large constants takes longer than timing them. Where integers say how long loops run, as lengths of sequences do,
// they are the largest that they may be, offsets are equally far apart, and indices all different. Not thread-safe.
#pragma once
#include <memory>
#include <vector>

#include "runtime/serve/operator.h"

namespace lathe::runtime {

struct BenchOperandOptions {
  bool cold = false;
  int64_t ram = 0;         // most that the operands take
  int64_t cold_bytes = 0;  // that copies of cold operands have together
  uint64_t seed = 0;
};

// What the elements of argument `arg` may be at these dims; none: anything.
ir::Result<std::optional<ir::SymbolRange>> argument_values(const Definition& op, size_t arg, const SymbolValues& dims);
// Fills the argument, which is not packed, with what is to be timed: tame numbers, and integers as above.
void fill_argument(const Definition& op, size_t arg, const SymbolValues& dims,
                   const std::optional<ir::SymbolRange>& values, uint64_t seed, char* data, int64_t bytes);

class BenchOperands {
 public:
  // The operator is prepared, and outlives this object.
  BenchOperands(Operator& op, const BenchOperandOptions& options);
  ~BenchOperands();
  // Operands for these dims. UNSUPPORTED: more memory than options.ram, or than there is.
  ir::Status place(const SymbolValues& dims);
  // Until the next place(): the calls until all operands are those of the first call again, and their arguments, one
  // call's after the other's.
  int64_t calls() const { return calls_; }
  const std::vector<void*>& args() const { return args_; }
  // Everything rotates, not the constants alone.
  bool all_rotate() const { return all_rotate_; }

 private:
  struct Operand;
  const ops::TensorDesc& tensor(size_t arg) const;
  ir::Status sizes(const SymbolValues& dims);
  ir::Status reserve(size_t arg, int64_t copies);
  ir::Status fill(size_t arg, const SymbolValues& dims);

  Operator& op_;
  BenchOperandOptions options_;
  std::vector<std::unique_ptr<Operand>> operands_;  // by argument
  std::vector<void*> args_;
  int64_t calls_ = 1;
  bool all_rotate_ = false;
};

}  // namespace lathe::runtime
