// See decision.h.
#include "runtime/store/decision.h"

#include <fmt/format.h>

#include <iterator>

#include "ir/base/line_reader.h"

namespace lathe::runtime {
namespace {

constexpr const char* kStatusNames[] = {"verified", "provisional", "tie"};

}  // namespace

const char* decision_status_name(DecisionStatus status) { return kStatusNames[static_cast<int>(status)]; }

std::string print_decision(const Decision& d) {
  std::string out;
  auto it = std::back_inserter(out);
  fmt::format_to(it,
                 "decision {}\nenvironment {}\nop {}\nepoch {}\nnumeric {}\nstatus {}\n"
                 "default_us {}\nbest_us {}\n",
                 d.key, d.environment, d.op, d.epoch, d.numeric, decision_status_name(d.status), d.default_us,
                 d.best_us);
  fmt::format_to(it, "oracle {} {} {}\nkernel {}\nleaves {}\n", d.oracle.data_sets, d.oracle.worst_err_over_bound,
                 d.oracle.gate, d.kernel, d.leaf_keys.size());
  for (const std::string& l : d.leaf_keys) fmt::format_to(it, "leaf {}\n", l);
  // Line by line, so that no schedule can look like a record.
  std::string_view text = d.schedule;
  size_t lines = text.empty() ? 0 : 1;
  for (char c : text) lines += c == '\n';
  fmt::format_to(it, "schedule {}\n", lines);
  for (; lines > 0; --lines) {
    const size_t end = text.find('\n');
    fmt::format_to(it, "| {}\n", text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  fmt::format_to(it, "candidates {}\n", d.candidates.size());
  for (const CandidateTime& c : d.candidates) {
    fmt::format_to(it, "candidate {} {} {} {} {} {}\n", c.schedule_hash, c.rounds, c.min_us, c.median_us, c.interval_lo,
                   c.interval_hi);
  }
  return out;
}

ir::Result<Decision> parse_decision(std::string_view text) {
  ir::LineReader in(text);
  Decision d;
  d.key = in.line("decision");
  d.environment = in.line("environment");
  d.op = in.line("op");
  d.epoch = in.number<int64_t>(in.line("epoch"));
  d.numeric = in.number<uint32_t>(in.line("numeric"));
  const std::string_view status = in.line("status");
  bool known = false;
  for (int i = 0; i < 3; ++i) {
    if (status != kStatusNames[i]) continue;
    d.status = static_cast<DecisionStatus>(i);
    known = true;
  }
  if (!known) in.fail("unknown status");
  d.default_us = in.number<double>(in.line("default_us"));
  d.best_us = in.number<double>(in.line("best_us"));
  std::string_view l = in.line("oracle");
  d.oracle.data_sets = in.number<int64_t>(in.word(&l));
  d.oracle.worst_err_over_bound = in.number<double>(in.word(&l));
  d.oracle.gate = l;
  d.kernel = in.line("kernel");
  for (int64_t n = in.count_line("leaves"); n > 0 && in.ok(); --n) d.leaf_keys.emplace_back(in.line("leaf"));
  for (int64_t i = 0, lines = in.count_line("schedule"); i < lines && in.ok(); ++i) {
    const std::string_view line = in.raw();
    if (line.substr(0, 2) != "| ") in.fail("expected '| '");
    if (i != 0) d.schedule += '\n';
    if (in.ok()) d.schedule += line.substr(2);
  }
  for (int64_t n = in.count_line("candidates"); n > 0 && in.ok(); --n) {
    CandidateTime c;
    l = in.line("candidate");
    c.schedule_hash = in.word(&l);
    c.rounds = in.number<int64_t>(in.word(&l));
    c.min_us = in.number<double>(in.word(&l));
    c.median_us = in.number<double>(in.word(&l));
    c.interval_lo = in.number<double>(in.word(&l));
    c.interval_hi = in.number<double>(in.word(&l));
    in.done(l);
    d.candidates.push_back(std::move(c));
  }
  if (in.ok() && !in.at_end()) in.fail("text after the end");
  if (!in.ok()) return in.status();
  return d;
}

}  // namespace lathe::runtime
