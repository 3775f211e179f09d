// What the library knows of a family of operators: one record per row of families.def, each in its own file of
// ops/families/. Graphs, fusion, the runtime's checks, random workloads and sweeps ask the record; nobody asks for a
// family's or an operator's name.
#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/op_table.h"

namespace lathe::ops {

class KernelWriter;
struct LoweredKernel;
class Draw;

// A field that every record states: a record that leaves it out, or gives a null for it, does not compile.
template <class T>
class Stated {
 public:
  template <class U>
    requires std::convertible_to<U&&, T> && (!std::same_as<std::remove_cvref_t<U>, std::nullptr_t>)
  constexpr Stated(U&& value) : value_(std::forward<U>(value)) {}  // NOLINT: records list plain values
  constexpr operator const T&() const { return value_; }           // NOLINT
  constexpr const T& get() const { return value_; }

 private:
  T value_;
};

struct Shape {
  ir::DType dtype = ir::DType::f32;
  std::vector<DimDesc> dims;
  std::vector<Shape> more;  // of the results after the first one
};
using Inputs = std::vector<const TensorDesc*>;

// The sizes of a node at one shape.
struct NodeSizes {
  std::vector<std::vector<int64_t>> inputs;
  std::vector<int64_t> output;
};

double elements(const std::vector<int64_t>& dims);
// One operation per element of the largest tensor: what is not a sum of products.
double one_per_element(const Node& node, const NodeSizes& sizes);
// The share of an operand that is read: all of it; and so many rows of it at most, where some are chosen.
double all_read(const Node& node, const NodeSizes& sizes, size_t operand);
double rows_read(double rows, int64_t of);
int one_result(const OpRow& row);
// No operand is updated.
uint32_t updates_none(const OpRow& row);

// How near a result has to be, beside what holds for all (docs/measuring.md): within the bound of rounding that its
// sums allow, or within the tolerances of the functions it is made of.
enum class ErrorRule : uint8_t { bound_of_sums, tolerance_of_functions };

// An element of the result from those of the operands.
using Element = ir::Expr (*)(const Node& node, const std::vector<ir::Expr>& operands);

// Who shares a Kernel with whom. Operators with an `element` ride: they join each other and an anchor's Kernel.
struct FusionRoles {
  Stated<std::optional<Element>> element;
  Stated<bool> followed;      // riders may read the result where it is made
  Stated<uint32_t> preceded;  // bits of the operands that riders may make where they are read
  Stated<uint32_t> packed;    // bits of the operands that riders may make of one constant, when it is packed
  Stated<bool> stored;        // what is made inside may be a result as well
  Stated<bool> f32_alone;     // all tensors of the Kernel are f32, but for masks
};

// An axis of a sample: a dimension that a sweep takes through all sizes.
struct SampleAxis {
  const char* name;
  bool fixed = false;        // it may not be a symbol
  int64_t step = 1;          // sizes are multiples of it;
  const char* refusal = "";  // others are refused with these words
};

struct SampleSizes {
  DimDesc swept;                // along the axis
  std::vector<DimDesc> others;  // as the family lists them: samples.around has examples
};

// How the family is asked for, by sweeps over shapes and by random workloads.
struct Samples {
  Stated<std::span<const SampleAxis>> axes;
  // Ways to ask: attributes, operands that may be left out, constants, orders of dimensions, dtypes. Numbered from 0.
  Stated<int (*)(const OpRow& row)> variants;
  // Adds the operands and attributes. Operands that the node has already stay: riders are drawn behind a result.
  Stated<void (*)(Graph& g, const OpRow& row, size_t axis, int variant, const SampleSizes& sizes, Node& node)> operands;
  Stated<size_t> least_others;
  // Other sizes for a sweep, each list with at least `least_others`, with 5, 1 and 0 in one to four dimensions.
  Stated<std::span<const std::initializer_list<int64_t>>> around;
  Stated<SampleSizes (*)(Draw& draw, size_t axis)> sizes;
  // One random workload in so many is of this family before all operators are drawn alike; 0: none.
  Stated<int> one_in;
};

struct Family {
  Stated<std::string_view> name;  // of Kernels, Schedules and stored rows
  // What operand `number` may be.
  Stated<std::span<const ir::DType> (*)(const OpRow& row, size_t number)> operand_dtypes;
  // `node` has its attributes complete; the operands have dtypes that it takes.
  Stated<ir::Result<Shape> (*)(const OpRow& row, const Node& node, const Inputs& inputs)> infer;
  // How many results: one_result().
  Stated<int (*)(const OpRow& row)> results;
  // The naive Kernel of a group whose anchor is of this family.
  Stated<ir::Result<LoweredKernel> (*)(KernelWriter& writer)> lower;
  // Arithmetic of a node, and how much of an operand it reads. Its bytes follow from the graph.
  Stated<double (*)(const Node& node, const NodeSizes& sizes)> flops;
  Stated<double (*)(const Node& node, const NodeSizes& sizes, size_t operand)> share_read;
  // Bits of the operands that the operator updates: inputs of the graph, of which it writes some cells. Its result is
  // the first of them afterwards, and no argument of its own.
  Stated<uint32_t (*)(const OpRow& row)> updates;
  // A Kernel may write its result over an operand of the same rank if each cell is loaded for the last time before it
  // is stored, which is proved Kernel by Kernel (runtime/capi/alias.h).
  Stated<bool> in_place;
  Stated<ErrorRule> error_rule;
  FusionRoles fusion;
  Samples samples;

  bool rides() const { return fusion.element.get().has_value(); }
};

namespace families {
#define LATHE_FAMILY(id) extern const Family id;
#include "ops/families.def"
#undef LATHE_FAMILY
}  // namespace families

// In the order of families.def.
std::span<const Family* const> all_families();
// Null if no operator has such a family: Kernels that users write have names of their own.
const Family* find_family(std::string_view name);

}  // namespace lathe::ops
