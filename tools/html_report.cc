// See html_report.h. Drawn as inline SVG; colours follow the reader's light or dark setting.
#include "tools/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tools/table.h"

namespace lathe::tools {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #6b6b6b; --line: #d8d8d8; --mark: #2563eb; --base: #b45309; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececec; --soft: #a0a0a0; --line: #3a3a3a; --mark: #7aa5ff; --base: #f0a860; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } p { color: var(--soft); margin: .2rem 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); } th { color: var(--soft); font-weight: 600; }
.n { text-align: right; } code { font-size: .85em; color: var(--soft); }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-size: .8rem; color: var(--soft); } svg { width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.axis { stroke: var(--line); fill: none; } .best { stroke: var(--mark); fill: none; stroke-width: 1.6; } .roof { stroke: var(--ink); fill: none; }
.dot { fill: var(--mark); } .from { fill: none; stroke: var(--base); } .move { stroke: var(--line); }
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

using Out = std::back_insert_iterator<std::string>;

void table(const ReportPage& page, Out out) {
  fmt::format_to(
      out,
      "<h2>Operators</h2>\n<table><tr><th>operator</th><th>dims</th><th class=n>calls</th><th class=n>default us</th>"
      "<th class=n>tuned us</th><th class=n>gain</th><th class=n>of roofline</th><th "
      "class=n>measured</th><th>verdict</th>"
      "<th>schedule</th></tr>\n");
  for (const ReportOp& o : page.ops) {
    const std::string gain = o.best_us > 0 ? ratio_text(o.default_us / o.best_us) : "-";
    fmt::format_to(
        out,
        "<tr><td>{}</td><td>{}</td><td class=n>{:g}</td><td class=n>{}</td><td class=n>{}</td><td class=n>{}</td>"
        "<td class=n>{}</td><td class=n>{}</td><td>{}</td><td><code>{}</code></td></tr>\n",
        escaped(o.op), escaped(o.dims), o.weight, us_text(o.default_us), us_text(o.best_us), gain,
        percent_text(o.of_roofline), o.measurements, escaped(o.verdict), escaped(o.schedule));
  }
  fmt::format_to(out, "</table>\n");
}

// Both axes are logarithmic: operations per byte against GFLOP/s. A ring is the default, a dot what was tuned.
void roofline(const ReportPage& page, Out out) {
  if (page.peak_gflops <= 0 || page.read_gbs <= 0) return;
  constexpr double kWidth = 640, kHeight = 320, kLeft = 56, kRight = 12, kTop = 14, kBottom = 34;
  double least_x = 0.05, most_x = 100, least_y = page.peak_gflops;
  for (const ReportOp& o : page.ops) {
    if (o.best_us <= 0 || o.flops <= 0 || o.bytes <= 0) continue;
    least_x = std::min(least_x, o.flops / o.bytes);
    most_x = std::max(most_x, o.flops / o.bytes);
    least_y = std::min(least_y, o.flops / std::max(o.best_us, o.default_us) * 1e-3);
  }
  least_y = std::min(least_y, page.peak_gflops / 1000) / 1.5;
  const double most_y = page.peak_gflops * 2;
  const auto px = [&](double x) {
    return kLeft + (kWidth - kLeft - kRight) * std::log(x / least_x) / std::log(most_x / least_x);
  };
  const auto py = [&](double y) {
    return kHeight - kBottom - (kHeight - kTop - kBottom) * std::log(y / least_y) / std::log(most_y / least_y);
  };
  fmt::format_to(out,
                 "<h2>Roofline</h2>\n<p>A ring: the default schedule; a dot: tuned. The line: {:.0f} GFLOP/s, {:.1f} "
                 "GB/s from memory; operators "
                 "whose operands lie in a cache may pass its slope.</p>\n<svg viewBox=\"0 0 {} {}\" role=\"img\" "
                 "aria-label=\"roofline\">\n",
                 page.peak_gflops, page.read_gbs, kWidth, kHeight);
  for (double y = std::pow(10, std::ceil(std::log10(least_y))); y <= most_y; y *= 10) {
    fmt::format_to(out,
                   "<line class=axis x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
                   "text-anchor=\"end\">{:g}</text>\n",
                   kLeft, kWidth - kRight, py(y), py(y), kLeft - 6, py(y) + 4, y);
  }
  for (double x = std::pow(10, std::ceil(std::log10(least_x))); x <= most_x; x *= 10) {
    fmt::format_to(out,
                   "<line class=axis x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/><text x=\"{:.1f}\" y=\"{}\" "
                   "text-anchor=\"middle\">{:g}</text>\n",
                   px(x), px(x), kTop, kHeight - kBottom, px(x), kHeight - kBottom + 14, x);
  }
  fmt::format_to(
      out,
      "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">operations per byte</text><text x=\"{}\" y=\"{}\">GFLOP/s</text>\n",
      kWidth - kRight, kHeight - 4, 4, kTop - 3);
  const double ridge = std::clamp(page.peak_gflops / page.read_gbs, least_x, most_x);
  fmt::format_to(out, "<polyline class=roof points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\"/>\n", px(least_x),
                 py(std::max(least_y, least_x * page.read_gbs)), px(ridge),
                 py(std::min(page.peak_gflops, ridge * page.read_gbs)), px(most_x), py(page.peak_gflops));
  for (const ReportOp& o : page.ops) {
    if (o.best_us <= 0 || o.flops <= 0 || o.bytes <= 0) continue;
    const double x = px(o.flops / o.bytes), from = py(o.flops / o.default_us * 1e-3),
                 to = py(o.flops / o.best_us * 1e-3);
    fmt::format_to(out,
                   "<g><title>{} {}: {} us, default {} us</title><line class=move x1=\"{:.1f}\" x2=\"{:.1f}\" "
                   "y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
                   "<circle class=from cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/><circle class=dot cx=\"{:.1f}\" "
                   "cy=\"{:.1f}\" r=\"3\"/></g>\n",
                   escaped(o.op), escaped(o.dims), us_text(o.best_us), us_text(o.default_us), x, x, from, to, x, from,
                   x, to);
  }
  fmt::format_to(out, "</svg>\n");
}

// How far what the search expected of candidates was off, by operator.
void expectations(const ReportPage& page, Out out) {
  bool any = false;
  for (const ReportOp& o : page.ops) {
    std::vector<double> off;
    int faster = 0;
    for (const auto& [expected, measured] : o.expected) {
      if (expected <= 0 || measured <= 0) continue;
      off.push_back(std::max(expected / measured, measured / expected) - 1);
      faster += measured < expected;
    }
    if (off.empty()) continue;
    std::sort(off.begin(), off.end());
    if (!any) {
      fmt::format_to(out,
                     "<h2>Predicted and measured</h2>\n<p>Candidates of which the search's model had an opinion before "
                     "they were timed.</p>\n"
                     "<table><tr><th>operator</th><th>candidates</th><th>off by, median</th><th>most</th><th>faster "
                     "than predicted</th></tr>\n");
    }
    any = true;
    fmt::format_to(out, "<tr><td>{} {}</td><td>{}</td><td>{:.0f} %</td><td>{:.0f} %</td><td>{}</td></tr>\n",
                   escaped(o.op), escaped(o.dims), off.size(), 100 * off[off.size() / 2], 100 * off.back(), faster);
  }
  if (any) fmt::format_to(out, "</table>\n");
}

// Best time so far, the default's being 1, against measurements.
void curve(const ReportOp& o, Out out) {
  constexpr double kWidth = 220, kHeight = 90, kPad = 4;
  const double first = o.curve[0], least = *std::min_element(o.curve.begin(), o.curve.end());
  const double bottom = std::min(least / first, 0.9);
  const auto px = [&](size_t i) {
    return kPad + (kWidth - 2 * kPad) * static_cast<double>(i) / static_cast<double>(o.curve.size() - 1);
  };
  const auto py = [&](double us) { return kPad + (kHeight - 2 * kPad) * (1 - us / first) / (1 - bottom); };
  std::string points;
  for (size_t i = 0; i < o.curve.size(); ++i) {
    if (i > 0) points += fmt::format(" {:.1f},{:.1f}", px(i), py(o.curve[i - 1]));
    points += fmt::format(" {:.1f},{:.1f}", px(i), py(o.curve[i]));
  }
  fmt::format_to(
      out,
      "<figure><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"search curve\"><path class=axis d=\"M{} {}H{}M{} "
      "{}V{}\"/>"
      "<polyline class=best points=\"{}\"/></svg><figcaption>{} {}: {} to {} us in {}</figcaption></figure>\n",
      kWidth, kHeight, kPad, kHeight - kPad, kWidth - kPad, kPad, kPad, kHeight - kPad, points.substr(1), escaped(o.op),
      escaped(o.dims), us_text(first), us_text(o.curve.back()), o.curve.size());
}

}  // namespace

std::string html_report(const ReportPage& page) {
  std::string text;
  Out out(text);
  double before = 0, after = 0;
  for (const ReportOp& o : page.ops) {
    if (o.best_us <= 0) continue;
    before += o.weight * o.default_us;
    after += o.weight * o.best_us;
  }
  fmt::format_to(out,
                 "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                 "content=\"width=device-width\">"
                 "<title>{}</title><style>{}</style></head><body>\n<h1>{}</h1>\n<p>{}</p>\n",
                 escaped(page.title), kStyle, escaped(page.title), escaped(page.machine));
  fmt::format_to(out,
                 "<p>{} operators and shapes, {} measurements, {:.1f} s; the weighted whole {} as fast as with the "
                 "default schedules.</p>\n",
                 page.ops.size(), page.measurements, page.seconds, after > 0 ? ratio_text(before / after) : "-");
  table(page, out);
  roofline(page, out);
  expectations(page, out);
  bool any = false;
  for (const ReportOp& o : page.ops) {
    if (o.curve.size() < 2 || o.curve[0] <= 0) continue;
    if (!any)
      fmt::format_to(out,
                     "<h2>Search curves</h2>\n<p>Best time so far, from the default's, against measurements.</p>\n<div "
                     "class=curves>\n");
    any = true;
    curve(o, out);
  }
  if (any) fmt::format_to(out, "</div>\n");
  fmt::format_to(out, "</body></html>\n");
  return text;
}

}  // namespace lathe::tools
