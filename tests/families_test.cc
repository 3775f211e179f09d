// Families and operators are told apart by their records (ops/family.h), never by a switch or by name. The rules are
// functions over files, so the test also shows that they object.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "tests/source_tree.h"

namespace lathe::house {
namespace {

using Complaints = std::vector<std::string>;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Names of families and operators: the first column of a table.
std::vector<std::string> names(const std::string& table, const std::string& macro) {
  std::vector<std::string> out;
  const std::string text = read_text(table);
  const std::regex row("\n" + macro + "\\((\\w+)");
  for (std::sregex_iterator i(text.begin(), text.end(), row), end; i != end; ++i) out.push_back((*i)[1]);
  return out;
}

// Who may: the families themselves; recipes, which say what families they are for; and what says apart from the library
// what each operator means.
bool may_name(const File& f) {
  return f.below("ops/families") || f.path == "ops/op_table.cc" || f.path == "ops/op_table.h" ||
         f.below("search/sketches") || f.below("search/quantised") || f.below("search/attention") ||
         f.path == "tests/ops/reference.h";
}
// Library, tools, and what tests are made from: not the tests, which ask for the operators they mean.
bool is_ruled(const File& f) {
  for (const char* floor : {"ops", "search", "jit", "runtime", "tools", "tests/sweep", "tests/common"}) {
    if (f.below(floor)) return f.is_code() && !may_name(f);
  }
  return false;
}

Complaints told_by_name(const File& f) {
  static const std::regex kCompared(R"re((family|\.op|->op|op_name|\.name)(\.get\(\)|\(\))? *[!=]= *"(\w+)")re");
  static const std::regex kRecord(R"re(\b(OpId|families)::\w+)re");
  static const std::regex kSwitch(R"re(\bswitch *\(.*(family|row(\([^)]*\))?(\.|->)id)\b)re");
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> out = names("ops/families.def", "LATHE_FAMILY");
    const std::vector<std::string> ops = names("ops/ops.def", "LATHE_OP");
    out.insert(out.end(), ops.begin(), ops.end());
    return out;
  }();
  Complaints out;
  if (!is_ruled(f)) return out;
  for (size_t i = 0; i < f.lines.size(); ++i) {
    const std::string code = f.lines[i].substr(0, f.lines[i].find("//"));
    const auto complain = [&](const std::string& what) {
      out.push_back(f.path + ":" + std::to_string(i + 1) + " " + what);
    };
    std::smatch m;
    if (std::regex_search(code, m, kCompared) && std::find(kNames.begin(), kNames.end(), m[3]) != kNames.end())
      complain("compares with " + m[3].str());
    if (std::regex_search(code, m, kRecord)) complain("names " + m[0].str());
    if (std::regex_search(code, kSwitch)) complain("switches");
  }
  return out;
}

// Fields of a record that may be left out.
Complaints unstated(const File& f) {
  static const std::regex kRecord(R"re(struct (Family|FusionRoles|Samples) \{)re");
  static const std::regex kField(R"re(^  (?!Stated<|FusionRoles |Samples |bool rides\(|//)(\S.*))re");
  Complaints out;
  bool inside = false;
  for (const std::string& line : f.lines) {
    std::smatch m;
    if (std::regex_search(line, kRecord)) {
      inside = true;
    } else if (line == "};") {
      inside = false;
    } else if (inside && std::regex_search(line, m, kField)) {
      out.push_back("a record may lack " + m[1].str());
    }
  }
  return out;
}

TEST(Families, are_told_apart_by_their_records) {
  Complaints all;
  for (const File& f : source_tree()) {
    const Complaints c = told_by_name(f);
    all.insert(all.end(), c.begin(), c.end());
  }
  EXPECT_THAT(all, IsEmpty());
}
TEST(Families, state_every_role) {
  EXPECT_THAT(unstated(make_file("ops/family.h", read_text("ops/family.h"))), IsEmpty());
}
TEST(Families, have_a_file_each) {
  const std::vector<std::string> families = names("ops/families.def", "LATHE_FAMILY");
  EXPECT_GE(families.size(), 5u);
  for (const std::string& family : families)
    EXPECT_NE(read_text("ops/families/" + family + ".cc").find("constexpr Family families::" + family),
              std::string::npos)
        << family;
}

TEST(Families, the_rules_object) {
  EXPECT_THAT(told_by_name(make_file("runtime/a.cc", "if (kernel.family != \"row\") x();\n// node.op == \"matmul\"\n")),
              ElementsAre("runtime/a.cc:1 compares with row"));
  EXPECT_THAT(told_by_name(make_file("tools/a.cc", "bool b = node.op == \"softmax\" || node.op == \"none\";\n")),
              ElementsAre("tools/a.cc:1 compares with softmax"));
  EXPECT_THAT(told_by_name(make_file("ops/a.cc", "if (row.id == OpId::cast) x();\n")),
              ElementsAre("ops/a.cc:1 names OpId::cast"));
  EXPECT_THAT(told_by_name(make_file("tests/sweep/a.cc", "if (row.family == &ops::families::rope) x();\n")),
              ElementsAre("tests/sweep/a.cc:1 names families::rope"));
  EXPECT_THAT(told_by_name(make_file("search/cut/a.cc", "  switch (row.id) {\n")),
              ElementsAre("search/cut/a.cc:1 switches"));
  EXPECT_THAT(told_by_name(make_file("ops/families/a.cc", "switch (row.id) { case OpId::cast: ; }\n")), IsEmpty());
  EXPECT_THAT(unstated(make_file("a.h", "struct Family {\n  Stated<bool> a;\n  // b\n  bool c = false;\n};\nint d;\n")),
              ElementsAre("a record may lack bool c = false;"));
}

}  // namespace
}  // namespace lathe::house
