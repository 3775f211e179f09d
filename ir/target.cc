// Target: see target.h.
#include "ir/target.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe::ir {

static constexpr const char* kIsaNames[] = {"portable", "avx2", "avx512", "amx"};

const char* isa_name(IsaLevel level) { return kIsaNames[static_cast<int>(level)]; }

std::optional<IsaLevel> parse_isa(std::string_view name) {
  for (int i = 0; i < 4; ++i) {
    if (name == kIsaNames[i]) return static_cast<IsaLevel>(i);
  }
  return std::nullopt;
}

Target Target::cap(IsaLevel max) const {
  Target t = *this;
  t.level = std::min(level, max);
  if (t.level == level) return t;
  if (t.level <= IsaLevel::avx2) {
    t.lanes = 8;
    t.vector_registers = 16;
    t.mask_registers = 0;
    t.bf16 = t.vnni = false;
  }
  return t;
}

std::string Target::to_string() const {
  return fmt::format("{} lanes {} registers {} l1 {} ways {} l2 {} l3 {} cores {}{}{}", isa_name(level), lanes,
                     vector_registers, l1_bytes, l1_ways, l2_bytes, l3_bytes, cores, bf16 ? " bf16" : "",
                     vnni ? " vnni" : "");
}

}  // namespace lathe::ir
