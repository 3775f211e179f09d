// The documents say what the code says: the table of options is generated from the code's, the README's C example is a
// file that is built and run, paths and options that they name exist. A mismatch names the bless command.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <set>

#include "ir/base/options.h"
#include "search/model/features.h"
#include "search/moves/transform.h"
#include "tests/source_tree.h"

namespace lathe::house {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// `|` ends a cell.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string options_table() {
  std::string out = "| variable | default | values | meaning |\n|---|---|---|---|\n";
  for (const ir::OptionInfo& o : ir::option_table()) {
    const char* free_text[] = {"absolute path", "text", "regular expression"};
    const std::string domain = *o.domain != 0 ? o.domain : free_text[static_cast<int>(o.kind)];
    const std::string standard = o.id == ir::OptionId::verify ? "0, in debug builds 1" : o.default_text;
    out += fmt::format("| `{}` | {} | {} | {} |\n", o.variable, standard, cell(domain), cell(o.meaning));
  }
  return out;
}

// What stands between "<!-- name -->" and "<!-- end -->"; position and length of it.
std::pair<size_t, size_t> block(const std::string& text, const std::string& name) {
  const std::string open = "<!-- " + name + " -->\n";
  const size_t from = text.find(open);
  if (from == std::string::npos) return {0, 0};
  const size_t to = text.find("<!-- end -->", from);
  return {from + open.size(), to == std::string::npos ? 0 : to - from - open.size()};
}

void expect_block(const std::string& path, const std::string& name, const std::string& wanted) {
  std::string text = read_text(path);
  const auto [from, length] = block(text, name);
  ASSERT_GT(from, 0u) << path << " has no block <!-- " << name << " -->";
  if (text.substr(from, length) == wanted) return;
  if (std::getenv("LATHE_BLESS") != nullptr) {
    std::ofstream(std::string(LATHE_SOURCE_DIR) + "/" + path) << text.replace(from, length, wanted);
    return;
  }
  EXPECT_EQ(text.substr(from, length), wanted)
      << path << ", block " << name << ": LATHE_BLESS=1 test_house --gtest_filter='Docs.*' rewrites it";
}

TEST(Docs, the_accuracy_of_functions_is_that_of_the_table) {
  const std::string text = read_text("docs/operators.md");
#define LATHE_VECTOR_MATH(op, ulp, bound, least) EXPECT_THAT(text, HasSubstr("\n| `" #op "` | " #ulp " | "));
#include "jit/lower/vector_math.def"
#undef LATHE_VECTOR_MATH
}

TEST(Docs, the_options_are_those_of_the_code) { expect_block("docs/debugging.md", "options", options_table()); }

TEST(Docs, the_c_example_of_the_readme_is_built_and_run) {
  expect_block("README.md", "examples/readme.c", "```c\n" + read_text("examples/readme.c") + "```\n");
  EXPECT_THAT(read_text("examples/CMakeLists.txt"), HasSubstr(" readme "));
  EXPECT_LE(make_file("readme.c", read_text("examples/readme.c")).lines.size(), 45u);
}

TEST(Docs, every_move_is_described) {
  const std::string text = read_text("docs/moves.md");
  for (const search::Transform& t : search::transforms()) EXPECT_THAT(text, HasSubstr(fmt::format("| `{} ", t.name)));
}

TEST(Docs, every_feature_is_described) {
  std::string table = "| feature | group | what |\n|---|---|---|\n";
  for (const search::FeatureInfo& f : search::feature_table())
    table += fmt::format("| `{}` | {} | {} |\n", f.name, f.group, f.text);
  expect_block("docs/search.md", "features", table);
}

TEST(Docs, every_knob_is_described) {
  std::string table = "| recipe | knob | in texts | what |\n|---|---|---|---|\n";
  for (const search::Recipe& r : search::recipes()) {
    for (const search::Knob& k : r.table())
      table += fmt::format("| `{}` | `{}` | `{}` | {} |\n", r.name, k.name, k.symbol, k.text);
  }
  expect_block("docs/search.md", "knobs", table);
}

// Lines of a document that are too wide to be read: of prose, and of a table. Code blocks keep their lines.
std::vector<std::string> wide_lines(const File& f) {
  constexpr size_t kProse = 120, kTable = 170;
  std::vector<std::string> out;
  bool code = false;
  for (size_t i = 0; i < f.lines.size(); ++i) {
    const std::string& line = f.lines[i];
    if (line.rfind("```", 0) == 0) code = !code;
    const size_t columns = static_cast<size_t>(
        std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
    if (!code && columns > (line.rfind('|', 0) == 0 ? kTable : kProse))
      out.push_back(fmt::format("{}:{} has {} columns", f.path, i + 1, columns));
  }
  return out;
}

std::vector<File> documents() {
  std::vector<File> out = {make_file("README.md", read_text("README.md")),
                           make_file("include/lathe.h", read_text("include/lathe.h"))};
  for (File& f : source_tree()) {
    if (f.extension() == ".md" || f.below("scripts")) out.push_back(std::move(f));
  }
  return out;
}

// The comments of a source file, a line each.
std::string comments(const File& f) {
  std::string out;
  bool block = false;
  for (const std::string& line : f.lines) {
    const size_t open = line.find("/*"), slashes = line.find("//");
    if (block || open != std::string::npos) {
      out += block ? line : line.substr(open);
      block = line.find("*/", block ? 0 : open) == std::string::npos;
    } else if (slashes != std::string::npos) {
      out += line.substr(slashes);
    }
    out += '\n';
  }
  return out;
}

// Paths from the root that a text names and that are not there.
std::vector<std::string> missing_files(const std::string& where, const std::string& text, size_t* found) {
  static const std::regex kPath(
      R"((^|[\s`(/"])((ir|ops|search|jit|runtime|tools|tests|bench|docs|examples|scripts|include))"
      R"(/[A-Za-z0-9_./-]*\.[a-z]+))");
  std::vector<std::string> out;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), kPath); it != std::sregex_iterator(); ++it) {
    const std::string name = (*it)[2];
    ++*found;
    if (name.rfind("bench/results/", 0) == 0 || (*it)[1] == "/") continue;  // made by a run; inside another path
    if (!std::filesystem::exists(std::string(LATHE_SOURCE_DIR) + "/" + name)) out.push_back(where + " names " + name);
  }
  return out;
}

TEST(Docs, lines_can_be_read) {
  std::vector<std::string> wide;
  for (const File& f : documents()) {
    if (f.path != "README.md" && !(f.below("docs") && f.extension() == ".md")) continue;
    for (std::string& w : wide_lines(f)) wide.push_back(std::move(w));
  }
  EXPECT_THAT(wide, IsEmpty());
}

TEST(Docs, a_wide_line_is_missed) {
  const std::string wide(121, 'x'), table = "|" + std::string(169, 'x');
  const File f = make_file("docs/a.md", wide + "\n```\n" + wide + "\n```\n" + table + "\n" + table + "x\n");
  EXPECT_THAT(wide_lines(f), ::testing::ElementsAre("docs/a.md:1 has 121 columns", "docs/a.md:6 has 171 columns"));
}

TEST(Docs, files_that_are_named_exist) {
  std::vector<std::string> missing;
  size_t in_documents = 0, in_comments = 0;
  const auto look = [&](const std::string& where, const std::string& text, size_t* found) {
    for (std::string& m : missing_files(where, text, found)) missing.push_back(std::move(m));
  };
  for (const File& f : documents()) look(f.path, f.text, &in_documents);
  for (const File& f : source_tree()) {
    const bool of_the_house = f.below("tests") && f.path.rfind('/') == 5;  // its tests make files up
    if ((f.is_code() || f.extension() == ".def") && !of_the_house) look(f.path, comments(f), &in_comments);
  }
  EXPECT_THAT(missing, IsEmpty());
  EXPECT_GT(in_documents, 20u);
  EXPECT_GT(in_comments, 20u);
}

TEST(Docs, a_file_that_is_gone_is_missed) {
  size_t found = 0;
  const File f = make_file("ir/a.cc", "int x;  // see ir/gone.h\n/* and\n   ir/nest.h */\nf(\"ir/text.h\");\n");
  EXPECT_THAT(missing_files(f.path, comments(f), &found), ::testing::ElementsAre("ir/a.cc names ir/gone.h"));
  EXPECT_EQ(found, 2u);
}

TEST(Docs, options_that_are_named_exist) {
  const std::set<std::string> others = {"LATHE_BLESS",
                                        "LATHE_TEST_MACHINE",
                                        "LATHE_TEST_NVRTC",
                                        "LATHE_TESTS",
                                        "LATHE_LLVM",
                                        "LATHE_SANITIZE",
                                        "LATHE_BENCH",
                                        "LATHE_XBYAK",
                                        "LATHE_FAKE_NVRTC_CACHE",
                                        "LATHE_KEPT_NVRTC_CACHE",
                                        "LATHE_TEST_MATRIX"};  // of the tests and the build
  const std::regex name(R"(LATHE_[A-Z_]+[A-Z])");
  std::vector<std::string> unknown;
  for (const File& f : documents()) {
    if (f.extension() != ".md") continue;  // elsewhere macros are named alike
    for (auto it = std::sregex_iterator(f.text.begin(), f.text.end(), name); it != std::sregex_iterator(); ++it) {
      const std::string found = it->str(), header = read_text("include/lathe.h");
      const bool macro = header.find(found) != std::string::npos || f.text.find(found + "(") != std::string::npos;
      if (ir::find_option(found) == nullptr && !others.count(found) && !macro)
        unknown.push_back(f.path + " names " + found);
    }
  }
  EXPECT_THAT(unknown, IsEmpty());
}

}  // namespace
}  // namespace lathe::house
