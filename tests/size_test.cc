// Files stay small and say what they are for: at most 500 lines each (tables and goldens are exempt), an opening
// comment, comments no wider than the formatter's lines, which it leaves alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/source_tree.h"

namespace lathe::house {
namespace {

using Complaints = std::vector<std::string>;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kMaxLines = 500, kMaxColumns = 120;

// What people write and read as source; .def, .lir, .txt, .jsonl and .md are tables, goldens, data and prose.
bool is_source(const File& f) {
  static const std::set<std::string> kExtensions = {".cc", ".c", ".h", ".inc", ".py", ".sh", ".cmake"};
  return kExtensions.count(f.extension()) > 0 || f.path.find("CMakeLists.txt") != std::string::npos;
}

Complaints too_long(const File& f) {
  Complaints out;
  if (is_source(f) && f.lines.size() > kMaxLines)
    out.push_back(f.path + ": " + std::to_string(f.lines.size()) + " lines");
  return out;
}

Complaints no_opening_comment(const File& f) {
  Complaints out;
  if (!is_source(f) && f.extension() != ".def") return out;
  size_t first = 0;
  while (first < f.lines.size() && (f.lines[first].rfind("#!", 0) == 0 || f.lines[first].empty())) ++first;
  const std::string line = first < f.lines.size() ? f.lines[first] : "";
  const bool c_like = f.is_code() || f.extension() == ".def";
  const bool comment = c_like ? line.rfind("//", 0) == 0 || line.rfind("/*", 0) == 0
                              : line.rfind("#", 0) == 0 || line.rfind("\"\"\"", 0) == 0;
  if (!comment) out.push_back(f.path + ": opens without a comment");
  return out;
}

// In characters: what follows the first byte of one is no column.
size_t columns(const std::string& line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

Complaints wide_comment(const File& f) {
  Complaints out;
  if (!f.is_code()) return out;
  for (size_t i = 0; i < f.lines.size(); ++i) {
    const size_t first = f.lines[i].find_first_not_of(" \t");
    if (first == std::string::npos) continue;
    const std::string start = f.lines[i].substr(first, 2);
    const bool comment = start == "//" || start == "/*" || start == "* ";
    if (comment && columns(f.lines[i]) > kMaxColumns)
      out.push_back(f.path + ":" + std::to_string(i + 1) + " is a comment of " + std::to_string(columns(f.lines[i])) +
                    " columns");
  }
  return out;
}

Complaints unfinished(const File& f) {
  Complaints out;
  for (const char* word : {"TO"
                           "DO",
                           "FIX"
                           "ME"}) {
    if (is_source(f) && f.text.find(word) != std::string::npos) out.push_back(f.path + ": " + word);
  }
  return out;
}

Complaints everywhere(Complaints (*rule)(const File&)) {
  Complaints out;
  for (const File& f : source_tree()) {
    for (std::string& c : rule(f)) out.push_back(std::move(c));
  }
  return out;
}

TEST(Size, files_have_at_most_500_lines) { EXPECT_THAT(everywhere(too_long), IsEmpty()); }
TEST(Size, files_open_with_a_comment) { EXPECT_THAT(everywhere(no_opening_comment), IsEmpty()); }
TEST(Size, comments_are_no_wider_than_code) { EXPECT_THAT(everywhere(wide_comment), IsEmpty()); }
TEST(Size, nothing_is_left_for_later) { EXPECT_THAT(everywhere(unfinished), IsEmpty()); }

TEST(Size, the_rules_object) {
  std::string text = "// long\n";
  for (size_t i = 0; i < kMaxLines; ++i) text += "int x;\n";
  EXPECT_THAT(too_long(make_file("ir/a.cc", text)), ElementsAre("ir/a.cc: 501 lines"));
  EXPECT_THAT(too_long(make_file("ir/a.def", text)), IsEmpty());
  EXPECT_THAT(no_opening_comment(make_file("ir/a.h", "#pragma once\n// late\n")),
              ElementsAre("ir/a.h: opens without a comment"));
  EXPECT_THAT(no_opening_comment(make_file("scripts/a.sh", "#!/bin/sh\n# what\n")), IsEmpty());
  EXPECT_THAT(wide_comment(make_file("ir/a.cc",
                                     "  // " + std::string(116, 'x') + "\n  // " + std::string(113, 'x') + "\u2500\n")),
              ElementsAre("ir/a.cc:1 is a comment of 121 columns"));
  EXPECT_THAT(unfinished(make_file("ir/a.cc", std::string("// TO") + "DO: x\n")),
              ElementsAre(std::string("ir/a.cc: TO") + "DO"));
}

}  // namespace
}  // namespace lathe::house
