// Spellings of the text form: see names.h.
#include "ir/core/names.h"

#include <array>
#include <utility>

namespace lathe::ir {

namespace {
constexpr std::array<const char*, 7> kPlaces = {"in", "out", "const", "heap", "stack", "reg", "shared"};
constexpr std::array<const char*, 10> kMarks = {"",     "unroll", "vector", "parallel",   "tensor",
                                                "grid", "block",  "role",   "persistent", "cluster"};
constexpr std::array<const char*, 6> kAssignOps = {"", "+", "max", "min", "*", "fmax"};
constexpr std::array<std::pair<const char*, uint32_t>, 7> kNumeric = {{{"reassociate", kReassociate},
                                                                       {"contract", kContract},
                                                                       {"approximate", kApproximate},
                                                                       {"reduced_accumulate", kReducedAccumulate},
                                                                       {"quantised_activations", kQuantisedActivations},
                                                                       {"winograd", kWinograd},
                                                                       {"bf16_dots", kBf16Dots}}};
constexpr std::array<std::string_view, 13> kReserved = {"inf", "nan", "true",     "false",  "and",   "or", "as",
                                                        "not", "for", "prefetch", "kernel", "where", "_"};

template <class E, size_t N>
std::optional<E> find_name(const std::array<const char*, N>& names, std::string_view name) {
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<E>(i);
  }
  return std::nullopt;
}
}  // namespace

const char* place_name(Place place) { return kPlaces[static_cast<size_t>(place)]; }
std::optional<Place> parse_place(std::string_view name) { return find_name<Place>(kPlaces, name); }
bool is_input(Place place) { return place == Place::in || place == Place::constant; }
bool is_param(Place place) { return is_input(place) || place == Place::out; }
const char* mark_name(Mark mark) { return kMarks[static_cast<size_t>(mark)]; }
std::optional<Mark> parse_mark(std::string_view name) { return find_name<Mark>(kMarks, name); }
const char* assign_op_name(AssignOp op) { return kAssignOps[static_cast<size_t>(op)]; }
std::optional<AssignOp> parse_assign_op(std::string_view name) { return find_name<AssignOp>(kAssignOps, name); }

std::string numeric_names(uint32_t bits) {
  std::string out;
  for (const auto& [name, bit] : kNumeric) {
    if ((bits & bit) == 0) continue;
    if (!out.empty()) out += ",";
    out += name;
  }
  return out.empty() ? "exact" : out;
}

std::optional<uint32_t> parse_numeric_name(std::string_view name) {
  if (name == "exact") return kExact;
  for (const auto& [known, bit] : kNumeric) {
    if (name == known) return bit;
  }
  return std::nullopt;
}

bool is_reserved(std::string_view name) {
  for (std::string_view word : kReserved) {
    if (name == word) return true;
  }
  return false;
}

bool is_valid_name(std::string_view name) {
  if (name.empty() || is_reserved(name) || (name[0] >= '0' && name[0] <= '9')) return false;
  for (const char c : name) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (!word) return false;
  }
  return true;
}

int infix_strength(Op op) {
  switch (op) {
    case Op::k_logical_or:
      return kOrStrength;
    case Op::k_logical_and:
      return kAndStrength;
    case Op::k_bit_or:
      return kBitOrStrength;
    case Op::k_bit_and:
      return kBitAndStrength;
    case Op::k_shift_left:
    case Op::k_shift_right:
      return kShiftStrength;
    case Op::k_add:
    case Op::k_sub:
      return kAddStrength;
    case Op::k_mul:
    case Op::k_div:
    case Op::k_floordiv:
    case Op::k_mod:
      return kMulStrength;
    default:
      return op_info(op).cls == OpClass::kCompare ? kCompareStrength : 0;
  }
}

}  // namespace lathe::ir
