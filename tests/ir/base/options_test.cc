// Options: sources, types, refusals.
#include "ir/base/options.h"

#include <gtest/gtest.h>

#include <map>

namespace lathe::ir {
namespace {

Environment fake(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

TEST(Options, DefaultsAreValid) {
  Options options;
  for (const OptionInfo& row : option_table()) {
    EXPECT_EQ(options.text(row.id), row.default_text) << row.name;
    EXPECT_EQ(options.source(row.id), OptionSource::kDefault) << row.name;
    EXPECT_TRUE(options.set(row.id, row.default_text).ok()) << row.name;
    EXPECT_EQ(find_option(row.variable), &row);
  }
  EXPECT_EQ(options.integer(OptionId::code_mb), 256);
  EXPECT_EQ(options.text(OptionId::cache), "rw");
}

TEST(Options, ApiBeatsEnvironmentBeatsDefault) {
  Result<Options> options =
      Options::from_environment(fake({{"LATHE_CACHE", "ro"}, {"LATHE_CODE_MB", "7"}, {"LATHE_DUMP", ""}}));
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_EQ(options->text(OptionId::cache), "ro");
  EXPECT_EQ(options->source(OptionId::cache), OptionSource::kEnvironment);
  EXPECT_EQ(options->integer(OptionId::code_mb), 7);
  EXPECT_EQ(options->source(OptionId::dump), OptionSource::kDefault);
  ASSERT_TRUE(options->set("cache", "off").ok());
  EXPECT_EQ(options->text(OptionId::cache), "off");
  EXPECT_EQ(options->source(OptionId::cache), OptionSource::kApi);
  EXPECT_NE(options->to_string().find("LATHE_CACHE=off (api)\n"), std::string::npos);
  EXPECT_NE(options->to_string().find("LATHE_CODE_MB=7 (environment)\n"), std::string::npos);
}

TEST(Options, RefusesWhatItCannotHonour) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"LATHE_CACHE", "yes"},    {"LATHE_CODE_MB", "0"},      {"LATHE_CODE_MB", "12x"},
      {"LATHE_CODE_MB", "-1"},   {"LATHE_CACHE_DIR", "here"}, {"LATHE_FILTER", "("},
      {"LATHE_MAX_ISA", "AVX2"}, {"LATHE_PROFILE", "16"},     {"LATHE_CODE_MB", "9223372036854775808"}};
  for (const auto& [name, value] : bad) {
    const Result<Options> options = Options::from_environment(fake({{name, value}}));
    ASSERT_FALSE(options.ok()) << name;
    EXPECT_EQ(options.status().arg(), name);
    EXPECT_NE(options.status().message().find("expected"), std::string::npos);
  }
  Options options;
  EXPECT_EQ(options.set("cache", "yes").message(), "LATHE_CACHE=yes: expected one of off, ro, rw");
  EXPECT_EQ(options.text(OptionId::cache), "rw");
  EXPECT_FALSE(options.set("no_such_option", "1").ok());
}

}  // namespace
}  // namespace lathe::ir
