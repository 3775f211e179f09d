// Operands of a Kernel: their shapes in memory, three sets of values to check it with, which depend on the position in
// memory, so that a shifted operand shows, and tame ones to time it with. Knows nothing of results. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/core/kernel.h"
#include "runtime/walk/nest_bind.h"

namespace lathe::runtime {

// A parameter at given sizes, strides in elements.
struct OperandShape {
  std::string name;
  ir::DType type = ir::DType::f32;
  ir::Place place = ir::Place::in;
  bool kept = false;  // an output that comes with contents
  std::vector<int64_t> dims, strides;
  std::optional<ir::SymbolRange> values;  // what its elements may be; none: anything
  bool rises = false;                     // each is the end of what the one before begins, so that none falls
  bool counts = false;                    // loops have as many iterations as its elements say
  int64_t elements = 0;                   // of the logical tensor
  int64_t span = 0;                       // from the first element to behind the last one
  int64_t bytes() const { return ir::dtype_bytes(type, span); }
  bool dense() const { return span == elements; }
  bool has_contents() const { return place != ir::Place::out || kept; }
};

// All parameters in order. Stride symbols without a value get the compact one, added to *symbols.
// INVALID: a size without value; UNSUPPORTED: strides that follow from nothing, more than 2^40
// elements, elements whose range of values is empty.
ir::Result<std::vector<OperandShape>> operand_shapes(const ir::Kernel& kernel, SymbolValues* symbols);
// The range at these sizes, for so many elements; none: they may be anything. UNSUPPORTED: they may be nothing.
ir::Result<std::optional<ir::SymbolRange>> values_of(const ir::ValueRange& range, const SymbolValues& symbols,
                                                     int64_t elements);
std::vector<ArgLayout> arg_layouts(const ir::Kernel& kernel, const std::vector<OperandShape>& shapes);

// integers: small, every partial sum exact; normal: random; wide: exponents far apart and terms that cancel. Of the
// former two, some rows have their largest element at an end, or all of them anywhere (peaks), and integers with a
// range have ends of it at theirs: what is wrong in tails alone shows where there are few rows.
enum class DataKind : uint8_t { integers, normal, wide };
const char* data_kind_name(DataKind kind);

inline constexpr int kUsualPeaks = 3, kMostPeaks = 8;
struct DataRecipe {
  DataKind kind = DataKind::integers;
  uint64_t seed = 0;
  int64_t integer_range = 8;    // integers: -range .. range, seldom 0
  bool any_integer = false;     // integer operands without a range: all values their type has; else 0 and 1
  bool limited = false;         // wide: |v| <= 40, for kernels with functions that overflow
  bool peaked = false;          // wide: most rows have one so large at an end that exp of it less any other overflows
  double mean = 0;              // normal: of the elements
  int peaks = 0;                // 1 to peak_sets: rows have their largest element anywhere, each time elsewhere
  int peak_sets = kUsualPeaks;  // where rows times twice as many are no fewer than columns, each column has one
};

// Fills shape.span elements. `number`: position among the parameters.
void fill_operand(const OperandShape& shape, int number, const DataRecipe& recipe, char* data);

// Fills so many bytes with what is only to be timed: floats of a size in [0.5, 1), those of 16 bits with either sign
// (tensor cores take more power, and time, where bits change), masks 0 and 1 in turn, integers anywhere in their range,
// and 0 without one. No operator leaves what a CPU computes at full speed there.
void fill_tame(ir::DType type, uint64_t seed, char* data, int64_t bytes,
               const std::optional<ir::SymbolRange>& values = {});

// Integers to be timed where some operand says how long loops run. Along a row that must not fall they are equally far
// apart; loops are as long as they may be; all others, such as indices, are different, neighbours far apart.
struct CountedIntegers {
  ir::DType type = ir::DType::i32;
  ir::SymbolRange values;
  int64_t row = 1;  // elements that must not fall
  bool rises = false, counts = false;
};
void fill_counted(const CountedIntegers& integers, char* data, int64_t count);
// Of operand i, if it has such integers.
std::optional<CountedIntegers> counted_integers(const std::vector<OperandShape>& shapes, size_t i);

// A value of the range, one of its ends one time in four.
int64_t value_in(const ir::SymbolRange& values, uint64_t random);

double load_element(ir::DType type, const char* data, int64_t index);
void store_element(ir::DType type, char* data, int64_t index, double value);

// Outputs before a run: NaN with a payload no arithmetic makes (integers: a rare pattern).
void poison(ir::DType type, char* data, int64_t count);
// Scratch before a run: the same with either sign, so that two runs that read it differ, be it taken for an integer.
void poison_scratch(char* data, int64_t bytes, bool negative);
bool is_poison(ir::DType type, const char* data, int64_t index);
// False if no element is poison; quick.
bool maybe_poison(ir::DType type, const char* data, int64_t count);

// Calls f(linear logical index, element offset) for each cell, in logical order. f returns false to
// stop.
template <class F>
void for_each_cell(const OperandShape& s, F&& f) {
  if (s.elements == 0) return;
  std::vector<int64_t> at(s.dims.size(), 0);
  int64_t offset = 0;
  for (int64_t i = 0; i < s.elements; ++i) {
    if (!f(i, offset)) return;
    for (int d = static_cast<int>(s.dims.size()) - 1; d >= 0; --d) {
      offset += s.strides[d];
      if (++at[d] < s.dims[d]) break;
      offset -= s.strides[d] * s.dims[d];
      at[d] = 0;
    }
  }
}

}  // namespace lathe::runtime
