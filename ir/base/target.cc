// Target: see target.h.
#include "ir/base/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "ir/base/target_text.h"

namespace lathe::ir {

namespace {

constexpr uint64_t features_of(IsaLevel level) {
  switch (level) {
#define LATHE_TARGET(id, base, features, vectors, bytes, registers, masks) \
  case IsaLevel::id:                                                       \
    return (features) | (IsaLevel::base == IsaLevel::id ? 0 : features_of(IsaLevel::base));
#define LATHE_TARGET_EXTRA(word, base, feature)
#include "ir/base/targets.def"
  }
  return 0;
}

constexpr IsaRow kRows[] = {
#define LATHE_TARGET(id, base, features, vectors, bytes, registers, masks) \
  {#id, features_of(IsaLevel::id), IsaLevel::vectors, bytes, registers, masks},
#define LATHE_TARGET_EXTRA(word, base, feature)
#include "ir/base/targets.def"
};

struct Extra {
  const char* word;
  uint64_t feature, needs;
};
constexpr Extra kExtras[] = {
#define LATHE_TARGET(id, base, features, vectors, bytes, registers, masks)
#define LATHE_TARGET_EXTRA(word, base, feature) {#word, feature, features_of(IsaLevel::base)},
#include "ir/base/targets.def"
};

}  // namespace

const IsaRow& isa_row(IsaLevel level) { return kRows[static_cast<int>(level)]; }

std::optional<IsaLevel> parse_isa(std::string_view name) {
  for (int i = 0; i < kIsaLevels; ++i) {
    if (name == kRows[i].name) return static_cast<IsaLevel>(i);
  }
  return std::nullopt;
}

uint64_t extras_with(uint64_t features) {
  uint64_t out = 0;
  for (const Extra& e : kExtras) out |= (e.needs & ~features) == 0 ? e.feature : 0;
  return out;
}

bool is_vector_bytes(int64_t bytes) {
  return std::any_of(std::begin(kRows), std::end(kRows), [&](const IsaRow& r) { return r.vector_bytes == bytes; });
}

Target Target::with(uint64_t features) const {
  Target t = *this;
  for (int i = 0; i < kIsaLevels; ++i) {
    if ((kRows[i].features & ~features) == 0) t.level = static_cast<IsaLevel>(i);
  }
  const IsaRow& row = isa_row(t.level);
  t.extra = features & extras_with(row.features);
  t.lanes = row.vector_bytes / 4;
  t.vector_registers = row.vector_registers;
  t.mask_registers = row.mask_registers;
  return t;
}

Target Target::cap(IsaLevel max) const {
  const uint64_t allowed = isa_features(max) | extras_with(isa_features(max));
  return (features() & ~allowed) == 0 ? *this : without(~allowed);
}

Target bare_target(IsaLevel level) { return Target().with(isa_features(level)); }

std::string Target::to_string() const {
  std::string out =
      fmt::format("{} lanes {} registers {} masks {} l1 {} ways {} l2 {} l3 {} cores {} memory {} pipes {} alone {}",
                  isa_name(level), lanes, vector_registers, mask_registers, l1_bytes, l1_ways, l2_bytes, l3_bytes,
                  cores, memory_rate, pipe_bytes, prefetches_alone ? 1 : 0);
  for (const Extra& e : kExtras) {
    if ((extra & e.feature) != 0) out += fmt::format(" {}", e.word);
  }
  return out;
}

Result<Target> parse_target(std::string_view text) {
  const auto word = [&text] {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view out = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return out;
  };
  Target t;
  int alone = 0;
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
      !take("cores", &t.cores) || !take("memory", &t.memory_rate) || t.memory_rate == 0 ||
      !take("pipes", &t.pipe_bytes) || t.pipe_bytes == 0 || !take("alone", &alone) || alone > 1) {
    return refuse("lanes, registers, masks, l1, ways, l2, l3, cores, memory, pipes and alone, each with its number");
  }
  t.prefetches_alone = alone == 1;
  while (!text.empty()) {
    const std::string_view feature = word();
    const auto* const e =
        std::find_if(std::begin(kExtras), std::end(kExtras), [&](const Extra& x) { return x.word == feature; });
    if (e == std::end(kExtras) || !t.has(e->needs))
      return refuse("features that the instruction set may have at the end");
    t.extra |= e->feature;
  }
  return t;
}

}  // namespace lathe::ir
