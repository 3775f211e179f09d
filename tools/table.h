// Output for people: a table with aligned columns, and a progress bar on stderr, on terminals only.
#pragma once
#include <string>
#include <vector>

namespace lathe::tools {

class Table {
 public:
  // A header that starts with '>' is aligned to the right, without the '>'.
  explicit Table(std::vector<std::string> header);
  void row(std::vector<std::string> cells);
  std::string text() const;

 private:
  std::vector<std::string> header_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

class Bar {
 public:
  explicit Bar(bool wanted);
  ~Bar();
  void update(double share, const std::string& text);
  void clear();

 private:
  bool on_ = false, drawn_ = false;
};

// Numbers in cells; "-" for what was not measured.
std::string us_text(double us);          // "12.3"
std::string percent_text(double share);  // "87 %"
std::string ratio_text(double ratio);    // "1.24x"

}  // namespace lathe::tools
