// Options: see options.h.
#include "ir/base/options.h"

#include <sys/auxv.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <regex>

namespace lathe::ir {

namespace {

#ifdef NDEBUG
#define LATHE_VERIFY_DEFAULT "0"
#else
#define LATHE_VERIFY_DEFAULT "1"
#endif

std::vector<OptionInfo> make_table() {
  std::vector<OptionInfo> table = {
#define LATHE_OPTION(id, kind, default_text, domain, meaning) \
  {OptionId::id, #id, {}, OptionKind::kind, default_text, domain, meaning},
#include "ir/base/options.def"
#undef LATHE_OPTION
  };
  for (OptionInfo& row : table) {
    row.variable = "LATHE_";
    for (const char c : row.name) row.variable += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return table;
}
#undef LATHE_VERIFY_DEFAULT

std::vector<std::string_view> words(std::string_view domain) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at <= domain.size();) {
    const size_t bar = std::min(domain.find('|', at), domain.size());
    out.push_back(domain.substr(at, bar - at));
    at = bar + 1;
  }
  return out;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

Status refuse(const OptionInfo& info, std::string_view value, std::string_view expected) {
  return invalid("{}={}: expected {}", info.variable, value.substr(0, 200), expected).with_arg(info.variable);
}

Status parse_int(const OptionInfo& info, std::string_view value, int64_t* out) {
  const std::vector<std::string_view> choices = words(info.domain);
  if (choices.size() > 1 && value == choices.front()) {
    *out = -1;
    return {};
  }
  const std::string_view range = choices.back();
  const size_t dots = range.find("..");
  const int64_t min = whole_number(range.substr(0, dots)).value_or(0);
  const int64_t max = whole_number(range.substr(dots + 2)).value_or(0);
  const std::optional<int64_t> number = whole_number(value);
  if (!number || *number < min || *number > max) {
    return refuse(info, value, fmt::format("{}a number in {}", choices.size() > 1 ? "auto or " : "", range));
  }
  *out = *number;
  return {};
}

bool is_regex(std::string_view text) {
  try {
    const std::regex compiled(text.begin(), text.end(), std::regex::ECMAScript);
    return true;
  } catch (const std::regex_error&) {
    return false;
  }
}

}  // namespace

const std::vector<OptionInfo>& option_table() {
  static const std::vector<OptionInfo> table = make_table();
  return table;
}

const OptionInfo* find_option(std::string_view name) {
  for (const OptionInfo& row : option_table()) {
    if (name == row.name || name == row.variable) return &row;
  }
  return nullptr;
}

const char* option_source_name(OptionSource source) {
  static constexpr const char* kNames[] = {"default", "environment", "api"};
  return kNames[static_cast<int>(source)];
}

std::optional<std::string> process_environment(const char* name) {
  if (getauxval(AT_SECURE) != 0) return std::nullopt;
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

Options::Options() {
  for (const OptionInfo& row : option_table()) {
    Entry& e = entries_[static_cast<size_t>(row.id)];
    e.text = row.default_text;
    // Defaults are checked by the tests: set() cannot fail on them.
    if (!e.text.empty()) (void)set(row.id, row.default_text, OptionSource::kDefault);
  }
}

Result<Options> Options::from_environment(const Environment& environment) {
  Options out;
  for (const OptionInfo& row : option_table()) {
    const std::optional<std::string> value = environment(row.variable.c_str());
    if (value && !value->empty()) LATHE_RETURN_IF_ERROR(out.set(row.id, *value, OptionSource::kEnvironment));
  }
  return out;
}

Status Options::set(OptionId id, std::string_view value, OptionSource source) {
  const OptionInfo& info = option_table()[static_cast<size_t>(id)];
  Entry next{std::string(value), 0, source};
  if (value.find('\0') != std::string_view::npos) return refuse(info, "", "a value without a zero byte");
  switch (info.kind) {
    case OptionKind::kPath:
      if (!value.empty() && value.front() != '/') return refuse(info, value, "an absolute path");
      if (value.size() >= PATH_MAX) return refuse(info, value, fmt::format("a path shorter than {}", PATH_MAX));
      break;
    case OptionKind::kText:
      break;
    case OptionKind::kRegex:
      if (!is_regex(value)) return refuse(info, value, "a regular expression");
      break;
    case OptionKind::kChoice: {
      const std::vector<std::string_view> choices = words(info.domain);
      const auto found = std::find(choices.begin(), choices.end(), value);
      if (found == choices.end()) return refuse(info, value, fmt::format("one of {}", fmt::join(choices, ", ")));
      next.integer = found - choices.begin();
      break;
    }
    case OptionKind::kInt:
      LATHE_RETURN_IF_ERROR(parse_int(info, value, &next.integer));
      break;
  }
  entries_[static_cast<size_t>(id)] = std::move(next);
  return {};
}

Status Options::set(std::string_view name, std::string_view value, OptionSource source) {
  const OptionInfo* info = find_option(name);
  if (!info) return invalid("no option is called {}", name.substr(0, 100));
  return set(info->id, value, source);
}

std::string Options::to_string() const {
  std::string out;
  for (const OptionInfo& row : option_table()) {
    out += fmt::format("{}={} ({})\n", row.variable, text(row.id), option_source_name(source(row.id)));
  }
  return out;
}

}  // namespace lathe::ir
