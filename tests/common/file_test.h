// File tests: a .lir file holds a test. Its first line names the command, comment lines below it hold settings and the
// expectation, the rest is the text:
//   ; test: simplify
//   ; set: N = 5
//   ; expect: a line of what the command prints
//   kernel ...
// A mismatch fails with a diff and the command that rewrites the expectations (LATHE_BLESS=1). Each floor registers its
// commands:
//   class MyFiles : public test::FileTestSuite {};
//   TEST_P(MyFiles, Matches) { check(GetParam(), {{"verify", verify_command}}); }
//   INSTANTIATE_TEST_SUITE_P(Dir, MyFiles, testing::ValuesIn(test::list_files("tests/ir/file")), test::file_stem);
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/options.h"

namespace lathe::test {

struct FileTest {
  std::string path;
  std::string command;                                        // first word after "; test:"
  std::string argument;                                       // the rest of that line
  std::vector<std::pair<std::string, std::string>> settings;  // "; set: name = value"
  std::string expect;                                         // lines, each with its end
  std::string text;                                           // what follows the leading comment lines
};
// Prints what the command makes of the file.
using FileCommand = std::function<std::string(const FileTest&)>;

inline std::string trimmed(const std::string& s) {
  const size_t from = s.find_first_not_of(" \t\r"), to = s.find_last_not_of(" \t\r");
  return from == std::string::npos ? "" : s.substr(from, to - from + 1);
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

inline FileTest parse_file_test(const std::string& path) {
  FileTest out;
  out.path = path;
  std::ifstream in(path);
  bool head = true;
  for (std::string line; std::getline(in, line);) {
    const auto rest = [&](const std::string& prefix) { return line.compare(0, prefix.size(), prefix) == 0; };
    if (head && rest("; test:")) {
      const std::string what = trimmed(line.substr(7));
      const size_t space = std::min(what.find(' '), what.size());
      out.command = what.substr(0, space);
      out.argument = trimmed(what.substr(space));
    } else if (head && rest("; set:")) {
      const size_t equals = std::min(line.find('='), line.size() - 1);
      out.settings.emplace_back(trimmed(line.substr(6, equals - 6)), trimmed(line.substr(equals + 1)));
    } else if (head && rest("; expect:")) {
      out.expect += (line.size() > 10 ? line.substr(10) : "") + "\n";
    } else {
      head = head && !line.empty() && line[0] == ';';
      out.text += line + "\n";
    }
  }
  return out;
}

// Only the lines that differ, with those common to the front and the end left out.
inline std::string diff(const std::string& expected, const std::string& actual) {
  std::vector<std::string> a = lines_of(expected), b = lines_of(actual);
  size_t front = 0;
  while (front < a.size() && front < b.size() && a[front] == b[front]) ++front;
  size_t back = 0;
  while (back + front < a.size() && back + front < b.size() && a[a.size() - 1 - back] == b[b.size() - 1 - back]) ++back;
  std::string out = "@@ line " + std::to_string(front + 1) + " of the expectation\n";
  for (size_t i = front; i + back < a.size(); ++i) out += "- " + a[i] + "\n";
  for (size_t i = front; i + back < b.size(); ++i) out += "+ " + b[i] + "\n";
  return out;
}

// The file with its expectation replaced; all else as it stands.
inline void bless(const FileTest& t, const std::string& actual) {
  std::vector<std::string> head, tail;
  std::ifstream in(t.path);
  bool in_head = true;
  for (std::string line; std::getline(in, line);) {
    in_head = in_head && !line.empty() && line[0] == ';';
    if (in_head && line.compare(0, 9, "; expect:") == 0) continue;
    (in_head ? head : tail).push_back(line);
  }
  in.close();
  std::ofstream out(t.path, std::ios::trunc);
  for (const std::string& line : head) out << line << "\n";
  for (const std::string& line : lines_of(actual)) out << (line.empty() ? "; expect:" : "; expect: " + line) << "\n";
  for (const std::string& line : tail) out << line << "\n";
}

class FileTestSuite : public testing::TestWithParam<std::string> {
 protected:
  static void check(const std::string& path, const std::map<std::string, FileCommand>& commands) {
    const FileTest t = parse_file_test(path);
    const auto found = commands.find(t.command);
    ASSERT_NE(found, commands.end()) << path << ": unknown command '" << t.command << "'";
    std::string actual = found->second(t);
    if (!actual.empty() && actual.back() != '\n') actual += "\n";
    if (actual == t.expect) return;
    if (ir::process_environment("LATHE_BLESS") == "1") {
      bless(t, actual);
      return;
    }
    std::error_code error;
    FAIL() << path << "\n"
           << diff(t.expect, actual) << "To accept: LATHE_BLESS=1 "
           << std::filesystem::read_symlink("/proc/self/exe", error).string() << " --gtest_filter='*"
           << testing::UnitTest::GetInstance()->current_test_info()->name() << "'";
  }
};

// The .lir files of a directory of the source tree, in name order.
inline std::vector<std::string> list_files(const std::string& directory) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(LATHE_SOURCE_DIR "/") + directory, error)) {
    if (entry.path().extension() == ".lir") out.push_back(entry.path().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

inline std::string file_stem(const testing::TestParamInfo<std::string>& info) {
  std::string out = std::filesystem::path(info.param).stem().string();
  for (char& c : out) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return out;
}

}  // namespace lathe::test
