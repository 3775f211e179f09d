// One data set at one shape, in guarded memory: what the oracle runs a Stage on. Private to the
// oracle.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/oracle/guard_memory.h"
#include "runtime/oracle/oracle_reference.h"

namespace lathe::runtime {

// An input in memory, once per guard side, and its packed forms.
struct OperandMemory {
  GuardMemory sides[2];  // [1] is empty if the operand is too large to have twice
  struct Packed {
    GuardMemory sides[2];
  };
  std::map<std::pair<uint64_t, int64_t>, Packed> packed;  // by layout and bytes
  char* at(GuardSide side) const {
    const GuardMemory& m = sides[side == GuardSide::before && sides[1].data() != nullptr];
    return m.data();
  }
};

struct OracleCase {
  DataKind kind = DataKind::integers;
  SymbolValues symbols;
  int64_t budget = 0;  // statements interpreted per arithmetic
  uint64_t seed = 0;   // of the data and of the cells that are compared
  std::vector<OperandShape> shapes;
  std::vector<ArgLayout> layouts;
  std::shared_ptr<const SampledKernel> sampled;
  std::vector<std::shared_ptr<OperandMemory>> inputs;  // by parameter; null for outputs
  Reference reference;
  std::vector<std::vector<char>> baseline;  // exact gate: outputs of a Stage that passed, by parameter
  HostData host() const;
};

// Fills and protects the inputs. Constants beyond 64 MB are taken from `first`, if not null.
ir::Status fill_inputs(OracleCase* c, const DataRecipe& recipe, const OracleCase* first);
// The packed form of a constant, made at the first call.
ir::Result<char*> packed_input(OracleCase* c, const PackedParam& packed, GuardSide side);

// What outputs look like after a run: every cell written, nothing between cells. Empty if so.
std::string check_written(const OperandShape& shape, const char* data);
// Index of the first element whose bits differ among the cells; -1 if none.
int64_t first_difference(const OperandShape& shape, const char* a, const char* b);
// "y[3, 17]" for an element offset.
std::string cell_name(const OperandShape& shape, int64_t offset);
std::vector<int64_t> cell_index(const OperandShape& shape, int64_t offset);

}  // namespace lathe::runtime
