// Rows of ops.def and families.def, and the check of attributes against op_attrs.def: see op_table.h, family.h.
#include "ops/op_table.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "ops/family.h"

namespace lathe::ops {

namespace {
using ir::invalid;

struct Required {};
struct Absent {};
struct AttrRow {
  const char* name;
  AttrType type;
  std::variant<AttrValue, Required, Absent> value;
};

const std::vector<AttrRow>& attr_rows() {
  static const std::vector<AttrRow> kRows = {
#define LATHE_OP_ATTR(id, type, value) {#id, AttrType::type, value},
#include "ops/op_attrs.def"
#undef LATHE_OP_ATTR
  };
  return kRows;
}

constexpr OpRow kOps[] = {
#define LATHE_OP(id, min_arity, max_arity, family, attrs, repeats) \
  {OpId::id, #id, min_arity, max_arity, &families::family, attrs, repeats},
#include "ops/ops.def"
#undef LATHE_OP
};

const char* type_name(AttrType type) {
  switch (type) {
    case AttrType::kInt:
      return "an integer";
    case AttrType::kFloat:
      return "a finite number";
    case AttrType::kBool:
      return "a boolean";
    case AttrType::kString:
      return "a string";
    case AttrType::kInts:
      return "a list of integers";
  }
  return "";
}

// The value as the row's type; integers serve as numbers.
std::optional<AttrValue> typed(AttrType type, const AttrValue& value) {
  if (type == AttrType::kFloat) {
    if (const auto* i = std::get_if<int64_t>(&value)) return AttrValue(static_cast<double>(*i));
    const auto* d = std::get_if<double>(&value);
    return d && std::isfinite(*d) ? std::optional<AttrValue>(value) : std::nullopt;
  }
  static constexpr size_t kIndex[] = {0, 1, 2, 3, 4};  // AttrType and AttrValue, in their orders
  return value.index() == kIndex[static_cast<int>(type)] ? std::optional<AttrValue>(value) : std::nullopt;
}
}  // namespace

std::span<const OpRow> op_rows() { return kOps; }
const OpRow* find_op(std::string_view name) {
  for (const OpRow& row : kOps) {
    if (name == row.name) return &row;
  }
  return nullptr;
}
const OpRow& op_row(OpId id) { return kOps[static_cast<int>(id)]; }
const OpRow& op_row(const Node& node) { return *find_op(node.op); }

std::span<const Family* const> all_families() {
  static constexpr const Family* kFamilies[] = {
#define LATHE_FAMILY(id) &families::id,
#include "ops/families.def"
#undef LATHE_FAMILY
  };
  return kFamilies;
}
const Family* find_family(std::string_view name) {
  for (const Family* f : all_families()) {
    if (name == f->name.get()) return f;
  }
  return nullptr;
}

double elements(const std::vector<int64_t>& dims) {
  double n = 1;
  for (const int64_t d : dims) n *= static_cast<double>(d);
  return n;
}
double all_read(const Node&, const NodeSizes&, size_t) { return 1; }
double rows_read(double rows, int64_t of) { return of == 0 ? 0 : std::min(rows / static_cast<double>(of), 1.0); }

double one_per_element(const Node&, const NodeSizes& sizes) {
  double n = elements(sizes.output);
  for (const std::vector<int64_t>& in : sizes.inputs) n = std::max(n, elements(in));
  return n;
}

ir::Result<std::vector<Attr>> complete_attrs(const OpRow& row, const Node& node, const std::string& where) {
  const auto& rows = attr_rows();
  std::vector<const AttrValue*> given(rows.size());
  for (const Attr& a : node.attrs) {
    size_t i = 0;
    while (i < rows.size() && a.name != rows[i].name) ++i;
    if (i == rows.size() || !(row.attrs >> i & 1)) {
      return invalid("unknown attribute \"{}\" of {}", a.name, row.name).with_arg(where);
    }
    if (given[i]) return invalid("attribute \"{}\" is repeated", a.name).with_arg(where);
    given[i] = &a.value;
  }
  std::vector<Attr> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!(row.attrs >> i & 1)) continue;
    if (!given[i]) {
      if (std::holds_alternative<Required>(rows[i].value)) {
        return invalid("attribute \"{}\" of {} is missing", rows[i].name, row.name).with_arg(where);
      }
      if (const auto* value = std::get_if<AttrValue>(&rows[i].value)) out.push_back({rows[i].name, *value});
      continue;
    }
    std::optional<AttrValue> value = typed(rows[i].type, *given[i]);
    if (!value) {
      return invalid("expected {}", type_name(rows[i].type)).with_arg(where + "." + rows[i].name);
    }
    out.push_back({rows[i].name, *std::move(value)});
  }
  return out;
}

const AttrValue* find_attr(const Node& node, AttrId id) {
  const std::string_view name = attr_rows()[static_cast<int>(id)].name;
  for (const Attr& a : node.attrs) {
    if (a.name == name) return &a.value;
  }
  return nullptr;
}

namespace {

template <class List, class F>
bool any(const List& list, F&& f) {
  return std::any_of(list.begin(), list.end(), f);
}
bool holds(const std::vector<int>& list, int tensor) {
  return std::find(list.begin(), list.end(), tensor) != list.end();
}

uint32_t updates_of(const Node& node) {
  const OpRow* row = find_op(node.op);
  return row == nullptr ? 0 : row->family->updates(*row);
}
bool updates(const Node& node, int tensor) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if ((updates_of(node) >> i & 1) != 0 && node.inputs[i] == tensor) return true;
  }
  return false;
}

ir::Status check_node(const Graph& g, const Node& node, const std::vector<int>& writers) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if ((updates_of(node) >> i & 1) == 0) continue;
    const int t = node.inputs[i];
    const TensorDesc& tensor = g.tensors[static_cast<size_t>(t)];
    if (writers[static_cast<size_t>(t)] >= 0)
      return ir::invalid("made by the graph, expected an input: {} updates it", node.op).with_arg(tensor.name);
    if (tensor.constant)
      return ir::invalid("a constant, expected an input: {} updates it", node.op).with_arg(tensor.name);
    int64_t reads = 0;
    for (const Node& n : g.nodes) reads += std::count(n.inputs.begin(), n.inputs.end(), t);
    if (reads != 1)
      return ir::invalid("read {} times, expected once: {} updates it", reads, node.op).with_arg(tensor.name);
  }
  const std::string& result = g.tensors[static_cast<size_t>(node.output)].name;
  if (any(g.nodes, [&](const Node& n) { return holds(n.inputs, node.output); }))
    return ir::unsupported("read in the graph of the {} that updates it: read it in another call", node.op)
        .with_arg(result);
  if (!holds(g.outputs, node.output))
    return ir::invalid("expected to be an output of the graph, as {} updates it", node.op).with_arg(result);
  return {};
}

}  // namespace

uint32_t updates_none(const OpRow&) { return 0; }
int one_result(const OpRow&) { return 1; }

ir::Status check_updates(const Graph& graph, const std::vector<int>& writers) {
  for (const Node& node : graph.nodes) {
    if (updates_of(node) != 0) LATHE_RETURN_IF_ERROR(check_node(graph, node, writers));
  }
  return {};
}

bool is_updated(const Graph& finished, int tensor) {
  return any(finished.nodes, [&](const Node& n) { return updates(n, tensor); });
}

bool is_update(const Graph& finished, int tensor) {
  return any(finished.nodes, [&](const Node& n) { return n.output == tensor && updates_of(n) != 0; });
}

std::vector<int> arguments(const Graph& finished) {
  std::vector<int> out = finished.inputs;
  for (const int t : finished.outputs) {
    if (!is_update(finished, t)) out.push_back(t);
  }
  return out;
}

}  // namespace lathe::ops
