// Target: see target.h.
#include "ir/base/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ir/base/target_text.h"

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
  return fmt::format("{} lanes {} registers {} masks {} l1 {} ways {} l2 {} l3 {} cores {}{}{}", isa_name(level), lanes,
                     vector_registers, mask_registers, l1_bytes, l1_ways, l2_bytes, l3_bytes, cores,
                     bf16 ? " bf16" : "", vnni ? " vnni" : "");
}

Result<Target> parse_target(std::string_view text) {
  const auto word = [&text] {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view out = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return out;
  };
  Target t;
  const std::string_view whole = text;
  const auto refuse = [whole](std::string_view what) {
    return invalid("target \"{}\": expected {}", whole.substr(0, 200), what);
  };
  const std::optional<IsaLevel> level = parse_isa(word());
  if (!level) return refuse("an instruction set first");
  t.level = *level;
  const auto take = [&](std::string_view name, auto* value) {
    if (word() != name) return false;
    const std::string_view number = word();
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), *value);
    return error == std::errc() && end == number.data() + number.size() && *value >= 0;
  };
  if (!take("lanes", &t.lanes) || !take("registers", &t.vector_registers) || !take("masks", &t.mask_registers) ||
      !take("l1", &t.l1_bytes) || !take("ways", &t.l1_ways) || !take("l2", &t.l2_bytes) || !take("l3", &t.l3_bytes) ||
      !take("cores", &t.cores)) {
    return refuse("lanes, registers, masks, l1, ways, l2, l3 and cores, each with its number");
  }
  while (!text.empty()) {
    const std::string_view feature = word();
    if (feature != "bf16" && feature != "vnni") return refuse("bf16 or vnni at the end");
    (feature == "bf16" ? t.bf16 : t.vnni) = true;
  }
  return t;
}

}  // namespace lathe::ir
