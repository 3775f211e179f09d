// See compile_log.h.
#include "jit/cuda/compile/compile_log.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe::jit {

namespace {

struct FaultRow {
  CompileFault id;
  bool counted;
  std::string_view words, meaning;
};
constexpr FaultRow kRows[] = {
#define LATHE_COMPILE_FAULT(id, counted, words, meaning) {CompileFault::k_##id, counted != 0, words, meaning},
#include "jit/cuda/compile/compile_faults.def"
#undef LATHE_COMPILE_FAULT
};

// Parts of lines that every compilation has, and none is a complaint.
constexpr std::string_view kNoise[] = {"gmem",  "Compiling entry function", "Function properties",
                                       "Used ", "bytes stack frame",        "Compile time"};

// A number before the words that is not 0.
bool counts(std::string_view log, std::string_view words) {
  for (size_t at = log.find(words); at != std::string_view::npos; at = log.find(words, at + 1)) {
    size_t digit = at;
    while (digit > 0 && log[digit - 1] == ' ') --digit;
    for (; digit > 0 && log[digit - 1] >= '0' && log[digit - 1] <= '9'; --digit) {
      if (log[digit - 1] != '0') return true;
    }
  }
  return false;
}

const FaultRow* row_of(std::string_view log) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const FaultRow& r) {
    return r.counted ? counts(log, r.words) : log.find(r.words) != std::string_view::npos;
  });
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace

CompileFault find_fault(std::string_view log) {
  const FaultRow* row = row_of(log);
  return row == nullptr ? CompileFault::none : row->id;
}

bool spills(std::string_view log) {
  const CompileFault fault = find_fault(log);
  return fault == CompileFault::k_spill_stores || fault == CompileFault::k_spill_loads;
}

std::string fault_of(const CubinInfo& info, std::string_view log) {
  if (info.local > 0) return fmt::format("{} accesses of local memory", info.local);
  if (info.frame_bytes > 0) return fmt::format("a stack frame of {} bytes", info.frame_bytes);
  const FaultRow* row = row_of(log);
  if (row == nullptr) return {};
  std::string_view said = row->words;
  // A note's number stands behind its letter.
  if (row->id == CompileFault::k_other_note) said = log.substr(log.find(row->words) + 1, 5);
  return fmt::format("{} (the compiler reports {})", row->meaning, said);
}

std::string what_matters(std::string_view log) {
  std::string out;
  while (!log.empty()) {
    const size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    const bool noise = line.empty() || line == std::string_view("\0", 1) ||
                       std::any_of(std::begin(kNoise), std::end(kNoise),
                                   [&](std::string_view part) { return line.find(part) != std::string_view::npos; });
    if (!noise) out += std::string(line) + "\n";
  }
  return out;
}

}  // namespace lathe::jit
