// What the oracle compares with: the interpreter's results on a sample of cells of one data set,
// and how near is near enough. Private to the oracle.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/oracle/data_sets.h"
#include "runtime/oracle/oracle.h"
#include "runtime/oracle/sampled_kernel.h"

namespace lathe::runtime {

// What the expressions of a Kernel contain; decides the gate.
struct KernelTraits {
  bool math = false;            // functions, or a division
  bool overflows = false;       // exp and its like: data have to stay small
  bool largest = false;         // the largest element of an operand is found
  bool sums = false;            // something accumulates
  bool indirect = false;        // an index is loaded
  bool decides = false;         // a float becomes an integer or is compared: no arithmetic of magnitudes follows that
  int fraction_bits = 0;        // of its constants together; -1: some are not dyadic
  std::set<std::string> words;  // "sum", "exp", "log": what tolerances.def asks for
};
KernelTraits kernel_traits(const ir::Kernel& kernel);

using HostData = std::vector<const char*>;  // by parameter; null for outputs

// Values of the output cells at the picks, in the order of SampledKernel::for_each_picked, outputs
// one after another.
struct Reference {
  std::vector<std::vector<int64_t>> picks;
  Gate gate = Gate::bound;
  std::vector<double> real, tolerance;
  std::vector<double> magnitude;  // S; only where rho is asked for
};

struct ReferenceRequest {
  const ir::Kernel* naive = nullptr;
  const std::vector<OperandShape>* shapes = nullptr;
  const HostData* data = nullptr;
  DataKind kind = DataKind::integers;
  bool rho = false;
  bool redefined = false;  // its first part is computed as code does, see redefinition.h
};
ir::Result<Reference> make_reference(const SampledKernel& sampled, std::vector<std::vector<int64_t>> picks,
                                     const ReferenceRequest& request, const KernelTraits& traits);

// What f32 may lose in a sum of so many terms of one sign that are added one after another, relative to the sum. Each
// step rounds what there is so far, half of the sum on average, by 2^-24 of it at most. Of few distinct values all
// steps may round to one side; of random ones roundings are random too: their sum stays below 1.1 sqrt(n) 2^-24.
double sum_in_sequence(DataKind kind, int64_t terms);

// What rounding a result to its type may add, beyond what f32 allows: 0 for f32, the unit in the last place of r for
// what is narrower (half of it, or of the one above r's power of two).
double output_rounding(ir::DType type, double r);

// Compares one output cell: 0 the same; > 1 outside the tolerance.
double cell_error(ir::DType type, double y, double r, double tolerance);

}  // namespace lathe::runtime
