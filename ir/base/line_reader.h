// Reads the text records this project writes: one item a line, "label value value", nothing else accepted. The first
// fault sticks, with its line number; after it every call answers empty. Not a parser of free text. One reader per
// text.
#pragma once
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ir/base/status.h"

namespace lathe::ir {

class LineReader {
 public:
  // Counts above max_items are faults: a damaged length must not allocate.
  explicit LineReader(std::string_view text, int64_t max_items = 4096) : rest_(text), max_items_(max_items) {}
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  bool at_end() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }
  int line_number() const { return number_; }

  // The rest of the next line after `label ` (which must be there).
  std::string_view line(std::string_view label) {
    const std::string_view l = raw();
    if (!ok()) return {};
    if (l.substr(0, label.size()) != label || (l.size() > label.size() && l[label.size()] != ' ') ||
        l.size() == label.size()) {
      fail(fmt::format("expected '{}'", label));
      return {};
    }
    return l.substr(label.size() + 1);
  }
  std::string_view raw() {
    if (!ok()) return {};
    ++number_;
    const size_t end = rest_.find('\n');
    if (end == std::string_view::npos) {
      fail("unexpected end");
      return {};
    }
    const std::string_view l = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return l;
  }
  template <class T>
  T number(std::string_view text) {
    T v{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
    bool good = error == std::errc() && end == text.data() + text.size();
    if constexpr (std::is_floating_point_v<T>) good = good && std::isfinite(v);
    if (!good) fail(fmt::format("'{:.40}' is no number", text));
    return good ? v : T{};
  }
  // A number of items, which follow.
  int64_t count(std::string_view text) {
    const int64_t n = number<int64_t>(text);
    if (n < 0 || n > max_items_) fail("count out of range");
    return ok() ? n : 0;
  }
  int64_t count_line(std::string_view label) { return count(line(label)); }
  // The next word of *text; the last one takes the rest.
  std::string_view word(std::string_view* text) {
    const size_t end = text->find(' ');
    const std::string_view w = text->substr(0, end);
    if (w.empty()) fail("a word is missing");
    text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
    return w;
  }
  void done(std::string_view text) {
    if (!text.empty()) fail("unexpected words");
  }
  void fail(std::string_view what) {
    if (ok()) status_ = invalid("line {}: {}", number_, what);
  }

 private:
  std::string_view rest_;
  int64_t max_items_;
  int number_ = 0;
  Status status_;
};

}  // namespace lathe::ir
