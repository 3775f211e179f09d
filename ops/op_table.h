// The operators as data: ops.def and op_attrs.def as enums and rows, look-up by name, and
// attributes read with their defaults. Knows nothing of shapes (shape.h) or Kernels (lower.h).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/graph.h"

namespace lathe::ops {

enum class AttrId : uint8_t {
#define LATHE_OP_ATTR(id, type, value) id,
#include "ops/op_attrs.def"
#undef LATHE_OP_ATTR
};
enum AttrBits : uint32_t {
#define LATHE_OP_ATTR(id, type, value) kHas_##id = 1u << static_cast<int>(AttrId::id),
#include "ops/op_attrs.def"
#undef LATHE_OP_ATTR
};
enum class AttrType : uint8_t { kInt, kFloat, kBool, kString, kInts };

enum class OpId : uint8_t {
#define LATHE_OP(id, min_arity, max_arity, family, attrs, repeats) id,
#include "ops/ops.def"
#undef LATHE_OP
};
struct Family;  // ops/family.h

struct OpRow {
  OpId id;
  const char* name;
  int min_arity, max_arity;
  const Family* family;
  uint32_t attrs;  // AttrBits
  int repeats;
};

std::span<const OpRow> op_rows();
// Null if there is no such operator.
const OpRow* find_op(std::string_view name);
const OpRow& op_row(OpId id);
// The row of a node of a finished graph.
const OpRow& op_row(const Node& node);

// Checks the attributes of a node (known, unique, typed, required ones there) and returns them
// completed with the defaults where there are such, in table order. `where` names the node in errors.
ir::Result<std::vector<Attr>> complete_attrs(const OpRow& row, const Node& node, const std::string& where);

// Of a node of a finished graph; null if it is absent and has no default.
const AttrValue* find_attr(const Node& node, AttrId id);
// The same of an attribute that is required or has a default.
inline const AttrValue& attr(const Node& node, AttrId id) { return *find_attr(node, id); }
inline bool attr_bool(const Node& node, AttrId id) { return std::get<bool>(attr(node, id)); }
inline double attr_float(const Node& node, AttrId id) { return std::get<double>(attr(node, id)); }
inline int64_t attr_int(const Node& node, AttrId id) { return std::get<int64_t>(attr(node, id)); }

// Operators that update an operand where it lies, as Family::updates says: what finish() asks of them, and what a call
// is given.
//
// Of a graph whose operators, attributes and shapes are known: what is updated is an input of the graph, no constant,
// and nobody else's operand; the result is an output of the graph that nobody reads. writers: of each tensor, -1: none.
ir::Status check_updates(const Graph& graph, const std::vector<int>& writers);

// Whether an operator of the finished graph updates this input.
bool is_updated(const Graph& finished, int tensor);
// Whether this is what an updated input is afterwards.
bool is_update(const Graph& finished, int tensor);
// Tensors that a call is given: the inputs, then the outputs but for updates.
std::vector<int> arguments(const Graph& finished);

}  // namespace lathe::ops
