// The identities under which things are stored (docs/store.md): semantic key, decision key,
// decision environment, leaf key, code environment. Each is the hash of a text of "field: value"
// lines made from key_fields.def. Pure functions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/target.h"
#include "ir/core/binding.h"

namespace lathe::runtime {

// Bumped when the bytes that a back end emits for some leaf may change.
inline constexpr int64_t kCodegenEpoch = 23;

using ir::SymbolRange;  // what a decision serves of one symbol

struct GraphFields {
#define LATHE_GRAPH_FIELD(type, name, identities) type name{};
#include "runtime/store/key_fields.def"
};
struct RequestFields {
#define LATHE_REQUEST_FIELD(type, name, identities) type name{};
#include "runtime/store/key_fields.def"
};
struct MachineFields {
#define LATHE_MACHINE_FIELD(type, name, identities) type name{};
#include "runtime/store/key_fields.def"
};
struct LeafFields {
#define LATHE_LEAF_FIELD(type, name, identities) type name{};
#include "runtime/store/key_fields.def"
};
struct CodeFields {
#define LATHE_CODE_FIELD(type, name, identities) type name{};
#include "runtime/store/key_fields.def"
};
struct DeviceFields {
#define LATHE_DEVICE_FIELD(type, name, identities) type name{};
#include "runtime/store/key_fields.def"
};
struct DeviceCodeFields {
#define LATHE_DEVICE_CODE_FIELD(type, name, identities) type name{};
#include "runtime/store/key_fields.def"
};

// 40 hex digits and the text they stand for (the env/ object of that name).
struct Identity {
  std::string hash, text;
};
Identity semantic_key(const GraphFields& fields);
// Without the ranges: decisions of one operator share it.
Identity decision_base(const RequestFields& fields);
Identity decision_environment(const MachineFields& fields);
Identity leaf_key(const LeafFields& fields);
Identity code_environment(const CodeFields& fields);
Identity device_environment(const DeviceFields& fields);
Identity device_code_environment(const DeviceCodeFields& fields);

// The object name of a decision: "<base>-1.1-128.255", a range for each symbol in graph order.
std::string decision_name(const std::string& base, const std::vector<SymbolRange>& ranges);
// The ranges in such a name; null if it is none.
std::optional<std::vector<SymbolRange>> decision_ranges(std::string_view name);
// The default range of a value, (2^k, 2^(k+1)] within the declared range: a Schedule tuned at 8
// serves 5..8, for the next larger tuned length transfers better than the nearest.
SymbolRange default_range(int64_t value, SymbolRange declared);

// Name of the first field that differs between two identity texts; empty if none.
std::string first_difference(std::string_view a, std::string_view b);

// This machine (CPUID, sysfs), as the Target says of caches and ISA.
MachineFields machine_fields(const ir::Target& target);
// This build; backend_versions as given ("xbyak 6.68; llvm 19.1.7").
CodeFields code_fields(const std::string& backend_versions);

}  // namespace lathe::runtime
