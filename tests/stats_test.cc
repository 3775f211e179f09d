// The tables of counters say what is counted: each row has a writer in the library, an assertion in some test that it
// moved, and a line in the page that users read. The rules are functions over files, so the test also shows that they
// object.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "tests/source_tree.h"

namespace lathe::house {
namespace {

using Complaints = std::vector<std::string>;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Row {
  std::string id, meaning;
  bool miss = false;
  std::string public_name() const { return miss ? "misses_" + id : id; }
};

std::vector<Row> rows_of(const std::string& table, const char* macro, bool miss) {
  const std::regex row(std::string(macro) + R"re(\((\w+), "([^"]*)"\))re");
  std::vector<Row> out;
  for (auto it = std::sregex_iterator(table.begin(), table.end(), row); it != std::sregex_iterator(); ++it)
    out.push_back({(*it)[1], (*it)[2], miss});
  return out;
}

std::vector<Row> all_rows() {
  std::vector<Row> out = rows_of(read_text("runtime/base/stats.def"), "LATHE_STAT", false);
  for (Row& r : rows_of(read_text("runtime/base/miss_reasons.def"), "LATHE_MISS", true)) out.push_back(std::move(r));
  return out;
}

// Statements of a file, comments left out: what ends at a semicolon or a brace.
std::vector<std::string> statements(const File& f) {
  std::vector<std::string> out(1);
  for (const std::string& line : f.lines) {
    for (const char c : line.substr(0, line.find("//"))) {
      if (c == ';' || c == '{' || c == '}')
        out.emplace_back();
      else
        out.back() += c;
    }
    out.back() += ' ';
  }
  return out;
}

// Names that are written: an argument of add(), count(), miss() or reject(), or a reason that is returned or assigned.
std::set<std::string> written(const std::vector<File>& files) {
  static const std::regex kCount(R"((add|count)\()"), kName(R"(Stat::k_(\w+))");
  static const std::regex kMiss(
      R"((miss|reject\w*|failed|wrong)\(.*MissReason::|return .*MissReason::|[^=!<>]= .*MissReason::)"),
      kReason(R"(MissReason::k_(\w+))");
  std::set<std::string> out;
  for (const File& f : files) {
    if (!f.below("runtime") || f.extension() != ".cc") continue;
    for (const std::string& s : statements(f)) {
      if (std::regex_search(s, kCount)) {
        for (auto it = std::sregex_iterator(s.begin(), s.end(), kName); it != std::sregex_iterator(); ++it)
          out.insert((*it)[1]);
      }
      if (std::regex_search(s, kMiss)) {
        for (auto it = std::sregex_iterator(s.begin(), s.end(), kReason); it != std::sregex_iterator(); ++it)
          out.insert("misses_" + (*it)[1].str());
      }
    }
  }
  return out;
}

// Names of which a test asserts that they are not zero.
std::set<std::string> moved(const std::vector<File>& files) {
  static const std::regex kAssertion(R"((EXPECT|ASSERT)_(GT|EQ|GE)\(.*)"), kNotZero(R"(, *(0u?\)+ *$|[1-9]\d*u?\)))");
  static const std::regex kName(R"re((MissReason|Stat)::k_(\w+)|"(\w+)")re");
  std::set<std::string> out;
  for (const File& f : files) {
    if (!f.below("tests") || f.extension() != ".cc") continue;
    for (std::string s : statements(f)) {
      const size_t message = s.find("<<");
      const std::string tail = message == std::string::npos ? "" : s.substr(message);
      s = s.substr(0, message);
      while (!s.empty() && s.back() == ' ') s.pop_back();
      std::smatch m;
      if (!std::regex_search(s, m, kAssertion) || !std::regex_search(s, kNotZero)) continue;
      const bool zero = std::regex_search(s, std::regex(R"(, *0u?\)+$)"));
      if (zero && m[2] != "GT") continue;
      const std::string names = s + tail;
      for (auto it = std::sregex_iterator(names.begin(), names.end(), kName); it != std::sregex_iterator(); ++it) {
        out.insert((*it)[3].matched ? (*it)[3].str() : ((*it)[1] == "MissReason" ? "misses_" : "") + (*it)[2].str());
      }
    }
  }
  return out;
}

Complaints unwritten(const std::vector<Row>& rows, const std::set<std::string>& names) {
  Complaints out;
  for (const Row& r : rows) {
    if (r.id.rfind("promotions_", 0) != 0 && !names.count(r.public_name())) out.push_back(r.public_name());
  }
  return out;
}

Complaints unmoved(const std::vector<Row>& rows, const std::set<std::string>& names) {
  Complaints out;
  for (const Row& r : rows) {
    if (!names.count(r.public_name())) out.push_back(r.public_name());
  }
  return out;
}

TEST(StatTables, every_row_has_a_writer) { EXPECT_THAT(unwritten(all_rows(), written(source_tree())), IsEmpty()); }

// The promotions are counted by a switch over the states of promotion_states.def.
TEST(StatTables, every_promotion_is_a_state) {
  const std::string states = read_text("runtime/live/promotion_states.def");
  for (const Row& r : all_rows()) {
    if (r.id.rfind("promotions_", 0) != 0) continue;
    EXPECT_NE(states.find("LATHE_PROMOTION(" + r.id.substr(11) + ","), std::string::npos) << r.id;
  }
}

TEST(StatTables, some_test_sees_every_row_move) { EXPECT_THAT(unmoved(all_rows(), moved(source_tree())), IsEmpty()); }

TEST(StatTables, every_row_is_described) {
  const std::string page = read_text("docs/stats.md");
  size_t rows = 0;
  for (const Row& r : all_rows()) {
    EXPECT_NE(page.find("| `" + r.public_name() + "` | " + r.meaning + " |"), std::string::npos)
        << r.public_name() << ": " << r.meaning;
  }
  for (size_t at = 0; (at = page.find("\n| `", at)) != std::string::npos; ++at) ++rows;
  EXPECT_EQ(rows, all_rows().size() + 1) << "all rows, and the sum of the misses";
}

TEST(StatTables, the_rules_object) {
  const std::vector<Row> rows = {{"hits", "", false}, {"io", "", true}};
  const auto library = [](const char* text) { return std::vector<File>{make_file("runtime/a.cc", text)}; };
  const auto test = [](const char* text) { return std::vector<File>{make_file("tests/a_test.cc", text)}; };
  EXPECT_THAT(
      unwritten(rows,
                written(library(
                    "x = stats.get(Stat::k_hits); // stats.add(Stat::k_hits)\nif (reason == MissReason::k_io) {}\n"))),
      ElementsAre("hits", "misses_io"));
  EXPECT_THAT(unwritten(rows, written(library("stats.add(Stat::k_hits);\nreturn failed(MissReason::k_io, errno);\n"))),
              IsEmpty());
  EXPECT_THAT(
      unmoved(rows, moved(test("EXPECT_EQ(s.get(Stat::k_hits), 0);\nEXPECT_EQ(counter(ctx, \"misses_io\"), 0u);\n"))),
      ElementsAre("hits", "misses_io"));
  EXPECT_THAT(
      unmoved(rows, moved(test("EXPECT_EQ(s.get(Stat::k_hits), 2);\nEXPECT_GT(counter(ctx, \"misses_io\"), 0u);\n"))),
      IsEmpty());
}

}  // namespace
}  // namespace lathe::house
