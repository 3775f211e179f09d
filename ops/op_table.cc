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

}  // namespace lathe::ops
