// Options of a context, from options.def: typed values with their source. API beats environment beats default; the
// environment is read once, when a context is made. This is the project's only reader of environment variables.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace lathe::ir {

enum class OptionId : uint8_t {
#define LATHE_OPTION(id, kind, default_text, domain, meaning) id,
#include "ir/base/options.def"
#undef LATHE_OPTION
};
enum class OptionKind : uint8_t { kPath, kText, kRegex, kChoice, kInt };
enum class OptionSource : uint8_t { kDefault, kEnvironment, kApi };

struct OptionInfo {
  OptionId id;
  std::string name;      // "cache_dir"
  std::string variable;  // "LATHE_CACHE_DIR"
  OptionKind kind;
  const char* default_text;
  const char* domain;
  const char* meaning;
};
const std::vector<OptionInfo>& option_table();
const OptionInfo* find_option(std::string_view name);  // by name or variable
const char* option_source_name(OptionSource source);   // "default", "environment", "api"

// Null optional: not set. Nothing is set in a process with raised privileges (AT_SECURE).
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

// A plain value.
class Options {
 public:
  Options();  // the defaults
  // INVALID names the variable, its value and what was expected. An empty value is as good as none.
  static Result<Options> from_environment(const Environment& environment = process_environment);

  Status set(OptionId id, std::string_view value, OptionSource source = OptionSource::kApi);
  Status set(std::string_view name, std::string_view value, OptionSource source = OptionSource::kApi);

  const std::string& text(OptionId id) const { return entry(id).text; }
  int64_t integer(OptionId id) const {
    return entry(id).integer;
  }  // kInt; auto: -1. kChoice: its position in the domain
  OptionSource source(OptionId id) const { return entry(id).source; }

  // A line for each option: "LATHE_CACHE=ro (environment)".
  std::string to_string() const;

 private:
#define LATHE_OPTION(id, kind, default_text, domain, meaning) +1
  static constexpr size_t kCount = 0
#include "ir/base/options.def"
      ;
#undef LATHE_OPTION
  struct Entry {
    std::string text;
    int64_t integer = 0;
    OptionSource source = OptionSource::kDefault;
  };
  const Entry& entry(OptionId id) const { return entries_[static_cast<size_t>(id)]; }

  std::array<Entry, kCount> entries_;
};

}  // namespace lathe::ir
