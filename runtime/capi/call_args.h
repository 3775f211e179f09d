// The arguments of one call against the graph they are for: everything serving needs (symbols' values, addresses) or a
// refusal that names the argument. A CallPlan is made once per kernel; matching allocates nothing unless it refuses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "include/lathe.h"
#include "ir/base/status.h"
#include "ops/graph.h"
#include "runtime/serve/dispatch.h"
#include "runtime/serve/operator.h"
#include "runtime/walk/bound_nest.h"

namespace lathe::runtime {

inline constexpr int kMaxArgs = kMaxNestBuffers;

struct ArgPlan {
  std::string name;
  lathe_data_type dtype{};
  int32_t bytes = 4;  // of an element
  int32_t rank = 0;
  int64_t size[ops::kMaxRank] = {};   // where fixed
  int8_t symbol[ops::kMaxRank] = {};  // its number, or -1: fixed
  bool compact = true;
  int64_t strides[ops::kMaxRank] = {};       // unless compact; times the value of a symbol, where there is one
  int8_t stride_symbol[ops::kMaxRank] = {};  // its number, or -1
  bool output = false, constant = false;     // output: what is updated, too
  // Of the packed form; 0: it is best left as it is.
  uint64_t layout_id = 0, packed_bytes = 0;
};

// What the elements of an integer argument must be.
struct ValueCheck {
  // A constant plus so many times the value of each symbol.
  struct End {
    int64_t base = 0, by_symbol[ops::kMaxSymbols] = {};
  };
  int arg = -1;
  End lo, hi;
  bool rises = false;  // along the last dimension each is at least the one before it
};

struct CallPlan {
  std::vector<ArgPlan> args;        // inputs, then outputs that are no updates of inputs
  std::vector<ir::Symbol> symbols;  // in the order of the graph, as the caller named them
  std::vector<ValueCheck> values;   // of all calls of the kernel: none for most
  bool exact_alias = false;         // an output may be an input of the same shape and strides
  lathe_device device{1, 0};        // where the tensors lie
};

inline constexpr uint64_t kPackAlign = 64;

struct MatchedCall {
  DispatchKey key;
  void* data[kMaxArgs];
  uint64_t bytes[kMaxArgs];  // from the first to past the last byte touched; 0: empty
  bool packed = false;
};

ir::Result<CallPlan> make_call_plan(const Operator& op, const ops::Graph& graph);
// All but the values of arguments.
ir::Status match_call(const CallPlan& plan, const lathe_arg* args, size_t num_args, int32_t threads, MatchedCall& out);
// Whether the arguments, at data, have values that the kernel takes: one that is not is described.
struct ForeignValue {
  int arg = -1;
  int64_t at[ops::kMaxRank] = {}, value = 0, lo = 0, hi = 0;
};
bool values_fit(const CallPlan& plan, const DispatchKey& key, void* const* data, ForeignValue& foreign) noexcept;
ir::Status match_values(const CallPlan& plan, const MatchedCall& call);
// What can be asked without reading them: that there is a value for each. A GPU takes the nearest that is allowed.
ir::Status match_value_ranges(const CallPlan& plan, const MatchedCall& call);
// The same call as BoundShapes::bound takes it: whoever made the operator named its symbols.
CallShape operator_call(const Operator& op, const CallPlan& plan, const MatchedCall& call);
// One constant to be packed, without the other arguments.
ir::Status match_constant(const CallPlan& plan, int arg, const lathe_tensor& tensor, MatchedCall& out);

}  // namespace lathe::runtime
