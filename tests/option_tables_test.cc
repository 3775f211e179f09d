// Every option is read: rows of ir/base/options.def, what a caller sets in the structs of include/lathe.h, fields of
// the library's own structs of settings, flags of the command line. To compare an option with its range, or to store
// it, is not to read it. Names are compared, not types: a field that has its name in common with one that is read
// counts as read. The rules are functions over files, so the tests also show that they object.
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

const std::set<std::string> kLibrary = {"ir", "ops", "search", "jit", "runtime"};
// Of include/lathe.h, what callers fill in. The first two fields are the library's own affair, reserved ones have to be
// 0.
const std::set<std::string> kInputs = {
    "lathe_layer", "lathe_pool",   "lathe_context_options", "lathe_hint", "lathe_dim",  "lathe_tensor_desc",
    "lathe_attr",  "lathe_policy", "lathe_tensor",          "lathe_arg",  "lathe_exec", "lathe_budget"};

// Without comments and without what string literals hold.
std::string code_of(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool line = text.compare(at, 2, "//") == 0, block = text.compare(at, 2, "/*") == 0;
    if (line || block) {
      at = text.find(line ? "\n" : "*/", at + 2);
      at = at == std::string::npos ? text.size() : at + (line ? 0 : 2);
    } else if (text[at] == '"') {
      while (++at < text.size() && text[at] != '"' && text[at] != '\n') at += text[at] == '\\';
      ++at;
      out += "\"\"";
    } else {
      out += text[at++];
    }
  }
  return out;
}

// What ends at a semicolon or a brace.
std::vector<std::string> statements(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : code_of(text)) {
    if (c == ';' || c == '{' || c == '}')
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

std::set<std::string> matches(const std::string& text, const std::regex& pattern, int group = 1) {
  std::set<std::string> out;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), pattern); it != std::sregex_iterator(); ++it)
    out.insert((*it)[group]);
  return out;
}

// Names after a dot or an arrow that are not assigned to there. Left out are range checks and what only names a flag of
// the command line.
std::set<std::string> fields_read(const File& f) {
  static const std::regex kRead(R"((?:\.|->)(\w+)\b(?!\s*=[^=]))"), kNoUse(R"(\binvalid\(|\badd_(option|flag)\()"),
      kCheck(R"(^\s*if\b)");
  static const std::regex kComplaint(R"(^\s*return .*\binvalid\()");
  std::set<std::string> out;
  const std::vector<std::string> all = statements(f.text);
  for (size_t i = 0; i < all.size(); ++i) {
    const bool check =
        std::regex_search(all[i], kCheck) && i + 1 < all.size() && std::regex_search(all[i + 1], kComplaint);
    if (!check && !std::regex_search(all[i], kNoUse)) out.merge(matches(all[i], kRead));
  }
  return out;
}

std::set<std::string> fields_read(const std::vector<File>& files, const std::set<std::string>& folders) {
  std::set<std::string> out;
  for (const File& f : files) {
    if (folders.count(f.top()) && f.is_code()) out.merge(fields_read(f));
  }
  return out;
}

// Fields of the body of a struct, a declaration with several names included; no functions.
std::vector<std::string> fields_of(std::string body) {
  static const std::regex kBraces(R"(\{[^{}]*\})"), kTemplate(R"(<[^;]*>)"), kPointer(R"(\(\*(\w+)\))"),
      kName(R"((\w+)\s*(\[\w*\])?\s*(=.*)?$)");
  std::vector<std::string> out;
  for (const std::string& d : statements(std::regex_replace(body, kBraces, ""))) {
    std::smatch m;
    if (d.find("enum ") != std::string::npos) continue;
    if (std::regex_search(d, m, kPointer)) {
      out.push_back(m[1]);
      continue;
    }
    std::istringstream names(std::regex_replace(d, kTemplate, ""));
    for (std::string name; std::getline(names, name, ',');) {
      if (name.substr(0, name.find('=')).find('(') != std::string::npos) break;
      if (std::regex_search(name, m, kName)) out.push_back(m[1]);
    }
  }
  return out;
}

// Up to the brace that closes the struct, which stands at the start of its line.
std::string body_after(const std::string& text, const std::smatch& head) {
  const size_t from = static_cast<size_t>(head.position() + head.length());
  return text.substr(from, text.find("\n}", from) - from);
}

// "struct.field" of those that nobody reads.
Complaints unread_fields(const std::string& name, const std::string& body, const std::set<std::string>& read) {
  static const std::set<std::string> kOfTheAbi = {"struct_size", "version"};
  Complaints out;
  for (const std::string& field : fields_of(body)) {
    if (!read.count(field) && !kOfTheAbi.count(field) && field.rfind("reserved", 0) != 0)
      out.push_back(name + "." + field);
  }
  return out;
}

Complaints unread_rows(const std::string& table, const std::vector<File>& files) {
  static const std::regex kRow(R"(LATHE_OPTION\((\w+), k)"), kRead(R"(\.(?:text|integer)\((?:ir::)?OptionId::(\w+)\))");
  std::set<std::string> read;
  for (const File& f : files) {
    if (kLibrary.count(f.top()) && f.is_code()) read.merge(matches(code_of(f.text), kRead));
  }
  Complaints out;
  for (const std::string& row : matches(code_of(table), kRow)) {
    if (!read.count(row)) out.push_back(row);
  }
  return out;
}

Complaints unread_inputs(const std::string& header, const std::vector<File>& files) {
  static const std::regex kStruct(R"(typedef struct (\w+) \{)");
  const std::set<std::string> read = fields_read(files, kLibrary);
  const std::string text = code_of(header);
  Complaints out;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), kStruct); it != std::sregex_iterator(); ++it) {
    if (!kInputs.count((*it)[1])) continue;
    for (std::string& c : unread_fields((*it)[1], body_after(text, *it), read)) out.push_back(std::move(c));
  }
  return out;
}

Complaints unread_settings(const std::vector<File>& files) {
  static const std::regex kStruct(
      R"(struct (\w+(?:Options|Config|Budget|Flags|Policy|Request|Rules|Task))\s*(?::[^;{]*)?\{)");
  std::set<std::string> folders = kLibrary;
  folders.merge(std::set<std::string>{"tools", "bench"});
  const std::set<std::string> read = fields_read(files, folders);
  Complaints out;
  for (const File& f : files) {
    if (!folders.count(f.top()) || !f.is_code()) continue;
    const std::string text = code_of(f.text);
    for (auto it = std::sregex_iterator(text.begin(), text.end(), kStruct); it != std::sregex_iterator(); ++it) {
      for (std::string& c : unread_fields((*it)[1], body_after(text, *it), read)) out.push_back(f.path + ": " + c);
    }
  }
  return out;
}

// A flag of a verb is read in the verb's file, one of all verbs in some file of the folder.
Complaints unread_flags(const std::vector<File>& files) {
  static const std::regex kFlag(R"re(add_(?:option|flag)\("!?([\w-]+)", \w+(?:->|\.)(\w+)[,)])re");
  const std::set<std::string> anywhere = fields_read(files, {"tools"});
  Complaints out;
  for (const File& f : files) {
    if (!f.below("tools") || f.extension() != ".cc") continue;
    const bool common = f.path == "tools/cli.cc";
    const std::set<std::string> here = fields_read(f);
    for (auto it = std::sregex_iterator(f.text.begin(), f.text.end(), kFlag); it != std::sregex_iterator(); ++it) {
      if (!(common ? anywhere : here).count((*it)[2])) out.push_back(f.path + ": " + (*it)[1].str());
    }
  }
  return out;
}

TEST(OptionTables, every_row_is_read) {
  EXPECT_THAT(unread_rows(read_text("ir/base/options.def"), source_tree()), IsEmpty());
}
TEST(OptionTables, every_input_of_the_header_is_read) {
  EXPECT_THAT(unread_inputs(read_text("include/lathe.h"), source_tree()), IsEmpty());
}
TEST(OptionTables, every_field_of_a_setting_is_read) { EXPECT_THAT(unread_settings(source_tree()), IsEmpty()); }
TEST(OptionTables, every_flag_of_the_command_line_is_read) { EXPECT_THAT(unread_flags(source_tree()), IsEmpty()); }

TEST(OptionTables, the_tables_are_found) {
  size_t flags = 0, settings = 0;
  for (const File& f : source_tree()) {
    if (f.below("tools")) flags += matches(f.text, std::regex(R"(add_(option|flag)\("!?([\w-]+))"), 2).size();
    settings += matches(f.text, std::regex(R"(struct (\w*(Options|Budget|Task)) [^;]*\{\n)")).size();
  }
  EXPECT_GT(flags, 40u);
  EXPECT_GT(settings, 15u);
  EXPECT_THAT(fields_of("int32_t min, max; const char* name; void (*go)(void* self, int n); int a[3]; std::map<int, "
                        "int> m; double x = 1, y = f(2); "
                        "int g() const;"),
              ElementsAre("min", "max", "name", "go", "a", "m", "x", "y"));
}

TEST(OptionTables, the_rules_object) {
  const auto file = [](const char* path, const char* text) { return std::vector<File>{make_file(path, text)}; };
  const std::string table =
      "LATHE_OPTION(cache, kChoice, \"rw\", \"off|rw\", \"store\")\nLATHE_OPTION(turbo, kInt, \"0\", \"0..1\", \"made "
      "up\")\n";
  EXPECT_THAT(unread_rows(table, file("runtime/a.cc",
                                      "mode = options.text(OptionId::cache);  // options.integer(OptionId::turbo)\n")),
              ElementsAre("turbo"));
  EXPECT_THAT(
      unread_rows(table, file("tests/a.cc", "options.text(OptionId::cache), options.integer(OptionId::turbo);\n")),
      ElementsAre("cache", "turbo"));
  EXPECT_THAT(unread_rows(table, file("runtime/a.cc", "config.set(OptionId::turbo, o.text(ir::OptionId::cache));\n")),
              ElementsAre("turbo"));

  const std::string header =
      "typedef struct lathe_policy {\n  uint32_t struct_size, version;\n  int32_t threads; /* p.turbo */\n"
      "  uint32_t turbo, reserved;\n} lathe_policy;\n";
  EXPECT_THAT(
      unread_inputs(header,
                    file("runtime/a.cc",
                         "n = p.threads;\nif (p.turbo > 1) return invalid(\"{}\", p.turbo).with_arg(\"x\", 2);\n")),
      ElementsAre("lathe_policy.turbo"));
  EXPECT_THAT(
      unread_inputs(header, file("runtime/a.cc",
                                 "n = p->threads;\nif (p->turbo > 1) {\n  return ir::invalid(\"{}\", p->turbo);\n}\n")),
      ElementsAre("lathe_policy.turbo"));
  EXPECT_THAT(unread_inputs(header, file("runtime/a.cc", "n = p.threads;\nif (p.turbo == 1) hurry();\n")), IsEmpty());

  const std::string settings =
      "struct RunOptions {\n  int threads = 1, turbo = 0;\n  std::function<bool(int)> stop;\n};\n";
  EXPECT_THAT(unread_settings(file("runtime/a.h", (settings + "use(o.threads, o.stop); o.turbo = 2;\n").c_str())),
              ElementsAre("runtime/a.h: RunOptions.turbo"));

  const std::string flags =
      "app.add_flag(\"--turbo\", o->turbo, \"made up\");\napp.add_option(\"--rows\", o->rows, \"how many\");\n";
  EXPECT_THAT(unread_flags(file("tools/cmd_a.cc", (flags + "run(o.rows);\n").c_str())),
              ElementsAre("tools/cmd_a.cc: --turbo"));
}

}  // namespace
}  // namespace lathe::house
