// The source tree as the house tests see it: tracked places only, each file with its lines. No knowledge of any rule.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace lathe::house {

struct File {
  std::string path;  // from the root, "/" between
  std::string text;
  std::vector<std::string> lines;

  std::string extension() const { return std::filesystem::path(path).extension(); }
  std::string top() const { return path.substr(0, path.find('/')); }
  bool below(const std::string& folder) const { return path.rfind(folder + "/", 0) == 0; }
  bool is_header() const { return extension() == ".h" || extension() == ".inc"; }
  bool is_code() const { return is_header() || extension() == ".cc" || extension() == ".c"; }
};

inline File make_file(std::string path, std::string text) {
  File f{std::move(path), std::move(text), {}};
  std::istringstream in(f.text);
  for (std::string line; std::getline(in, line);) f.lines.push_back(line);
  return f;
}

inline std::string read_text(const std::string& path) {
  std::ifstream in(std::string(LATHE_SOURCE_DIR) + "/" + path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Every file of the project's own folders, by path.
inline std::vector<File> source_tree() {
  namespace fs = std::filesystem;
  const fs::path root = LATHE_SOURCE_DIR;
  std::vector<File> out;
  for (const char* folder :
       {"include", "ir", "ops", "search", "jit", "runtime", "tools", "tests", "bench", "examples", "scripts", "docs"}) {
    if (!fs::exists(root / folder)) continue;
    for (const fs::directory_entry& e : fs::recursive_directory_iterator(root / folder)) {
      if (!e.is_regular_file()) continue;
      const std::string path = fs::relative(e.path(), root).generic_string();
      out.push_back(make_file(path, read_text(path)));
    }
  }
  std::sort(out.begin(), out.end(), [](const File& a, const File& b) { return a.path < b.path; });
  return out;
}

}  // namespace lathe::house
