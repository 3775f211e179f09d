// See table.h.
#include "tools/table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace lathe::tools {
namespace {

// Columns a UTF-8 text takes: one a code point.
size_t width(const std::string& s) {
  return static_cast<size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

Table::Table(std::vector<std::string> header) : header_(std::move(header)) {
  for (std::string& h : header_) {
    right_.push_back(h.starts_with('>'));
    if (right_.back()) h.erase(0, 1);
  }
}

void Table::row(std::vector<std::string> cells) {
  cells.resize(header_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < header_.size(); ++c) {
    widths.push_back(width(header_[c]));
    for (const auto& r : rows_) widths[c] = std::max(widths[c], width(r[c]));
  }
  std::string out;
  const auto add = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string pad(widths[c] - width(cells[c]), ' ');
      if (c > 0) line += "  ";
      line += right_[c] ? pad + cells[c] : cells[c] + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add(header_);
  for (const auto& r : rows_) add(r);
  return out;
}

Bar::Bar(bool wanted) : on_(wanted && isatty(STDERR_FILENO) == 1) {}
Bar::~Bar() { clear(); }

void Bar::update(double share, const std::string& text) {
  if (!on_) return;
  constexpr int kWidth = 24;
  const int full = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * kWidth));
  const std::string line =
      fmt::format("\r\x1b[K[{}{}] {:3.0f} %  {}", std::string(static_cast<size_t>(full), '='),
                  std::string(static_cast<size_t>(kWidth - full), ' '), 100 * share, text.substr(0, 80));
  std::fputs(line.c_str(), stderr);
  drawn_ = true;
}

void Bar::clear() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
  drawn_ = false;
}

std::string us_text(double us) {
  if (us <= 0) return "-";
  return us < 10 ? fmt::format("{:.2f}", us) : us < 1000 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us);
}

std::string percent_text(double share) { return share > 0 ? fmt::format("{:.0f} %", 100 * share) : "-"; }
std::string ratio_text(double ratio) { return ratio > 0 ? fmt::format("{:.2f}x", ratio) : "-"; }

}  // namespace lathe::tools
