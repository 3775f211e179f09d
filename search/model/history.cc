// Records of measurements: their text both ways and the times read from them. See history.h.
#include "search/model/history.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "ir/analysis/analysis.h"
#include "ir/analysis/verifier.h"
#include "ir/base/line_reader.h"
#include "ir/core/text_form.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {

constexpr int64_t kMaxSamples = 3, kMaxLines = 1 << 16;

std::string_view word_or_dash(const std::string& word) {
  return word.empty() ? std::string_view("-") : std::string_view(word);
}
std::string from_dash(std::string_view word) { return word == "-" ? std::string() : std::string(word); }

void print_row(const MeasuredRow& row, std::string& out) {
  auto it = std::back_inserter(out);
  fmt::format_to(it, "row {} {} {} {} {}", outcome_name(row.outcome), word_or_dash(row.recipe), row.extra.size(),
                 row.reference_us, row.samples_us.size());
  for (const double us : row.samples_us) fmt::format_to(it, " {}", us);
  for (const auto& [knob, value] : row.knobs) fmt::format_to(it, " {}={}", knob, value);
  out += '\n';
  for (const Move& move : row.extra) fmt::format_to(std::back_inserter(out), "+ {}\n", to_text(move));
}

// Whatever the order in which they were set, a task has one name and one text.
SymbolValues by_name(SymbolValues dims) {
  std::sort(dims.begin(), dims.end());
  return dims;
}

double time_of(LineReader& in, std::string_view word) {
  const double us = in.number<double>(word);
  if (us < 0 || us > 1e12) in.fail("a time out of range");
  return us;
}

MeasuredRow parse_row(LineReader& in) {
  MeasuredRow row;
  std::string_view l = in.line("row");
  const std::string_view outcome = in.word(&l);
  const auto* known = std::find(std::begin(kOutcomeNames), std::end(kOutcomeNames), outcome);
  if (known == std::end(kOutcomeNames)) in.fail("unknown outcome");
  if (!in.ok()) return row;
  row.outcome = static_cast<Outcome>(known - std::begin(kOutcomeNames));
  row.recipe = from_dash(in.word(&l));
  const int64_t moves = in.count(in.word(&l));
  row.reference_us = time_of(in, in.word(&l));
  const int64_t samples = in.count(in.word(&l));
  if (samples > kMaxSamples) in.fail("at most 3 samples");
  for (int64_t i = 0; i < samples && in.ok(); ++i) row.samples_us.push_back(time_of(in, in.word(&l)));
  while (!l.empty() && in.ok()) {
    const std::string_view w = in.word(&l);
    const size_t equals = w.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      in.fail("expected knob=value");
    } else {
      row.knobs[std::string(w.substr(0, equals))] = in.number<int64_t>(w.substr(equals + 1));
    }
  }
  for (int64_t i = 0; i < moves && in.ok(); ++i) {
    Result<Move> move = parse_move(in.line("+"));
    if (!in.ok()) break;
    if (!move.ok()) {
      in.fail(move.status().message());
    } else {
      row.extra.push_back(std::move(*move));
    }
  }
  return row;
}

Kernel read_kernel(LineReader& in) {
  std::string text;
  for (int64_t i = in.count_line("kernel"); i > 0 && in.ok(); --i) {
    const std::string_view l = in.raw();
    if (l.substr(0, 2) != "| ") in.fail("expected '| '");
    if (in.ok()) text.append(l.substr(2)).push_back('\n');
  }
  if (!in.ok()) return {};
  Result<Kernel> kernel = parse_kernel(text);
  if (kernel.ok()) {
    if (const Status verified = verify(*kernel); !verified.ok()) in.fail("the kernel: " + verified.message());
  } else {
    in.fail("the kernel: " + kernel.status().message());
  }
  return in.ok() ? std::move(*kernel) : Kernel{};
}

bool flag(LineReader& in, std::string_view label) {
  const int64_t value = in.number<int64_t>(in.line(label));
  if (value != 0 && value != 1) in.fail("expected 0 or 1");
  return value == 1;
}

TaskRecord read_record(LineReader& in) {
  TaskRecord r;
  if (in.line("record") != "1") in.fail("expected 'record 1'");
  r.isa = from_dash(in.line("isa"));
  r.environment = from_dash(in.line("environment"));
  r.policy = from_dash(in.line("policy"));
  r.epoch = in.number<int64_t>(in.line("epoch"));
  const int64_t threads = in.number<int64_t>(in.line("threads"));
  if (threads < 1 || threads > 4096) in.fail("threads out of range");
  r.problem.threads = static_cast<int>(threads);
  r.problem.cold = flag(in, "cold");
  r.problem.one_layout = flag(in, "one_layout");
  for (int64_t i = in.count_line("dims"); i > 0 && in.ok(); --i) {
    std::string_view l = in.line("dim");
    const std::string name(in.word(&l));
    const int64_t value = in.number<int64_t>(in.word(&l));
    in.done(l);
    if (value < 0 || value > int64_t{1} << 40) in.fail("dim out of range");
    r.problem.dims[name] = value;
  }
  r.problem.kernel = read_kernel(in);
  for (int64_t i = in.count_line("rows"); i > 0 && in.ok(); --i) r.rows.push_back(parse_row(in));
  return r;
}

// What was accepted loosely (order of knobs, spelling of numbers, spaces) is refused by printing it again.
void require_canonical(LineReader& in, const TaskRecord& record, std::string_view text, int first_line) {
  const std::string again = print_record(record);
  if (!in.ok() || again == text) return;
  const size_t n = std::min(again.size(), text.size());
  const auto at = std::mismatch(again.begin(), again.begin() + static_cast<std::ptrdiff_t>(n), text.begin()).first;
  in.fail(fmt::format("not as it is written: line {}", first_line + std::count(again.begin(), at, '\n')));
}

TaskRecord next_record(LineReader& in) {
  const std::string_view before = in.rest();
  const int first_line = in.line_number() + 1;
  TaskRecord record = read_record(in);
  require_canonical(in, record, before.substr(0, before.size() - in.rest().size()), first_line);
  return record;
}

}  // namespace

double MeasuredRow::us(bool cold) const {
  if (samples_us.empty()) return 0;
  if (!cold) return *std::min_element(samples_us.begin(), samples_us.end());
  std::vector<double> sorted = samples_us;
  std::sort(sorted.begin(), sorted.end());
  const size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

std::string print_record(const TaskRecord& r) {
  std::string out;
  fmt::format_to(std::back_inserter(out),
                 "record 1\nisa {}\nenvironment {}\npolicy {}\nepoch {}\nthreads {}\ncold {}\none_layout {}\ndims {}\n",
                 word_or_dash(r.isa), word_or_dash(r.environment), word_or_dash(r.policy), r.epoch, r.problem.threads,
                 r.problem.cold ? 1 : 0, r.problem.one_layout ? 1 : 0, r.problem.dims.size());
  for (const auto& [name, value] : by_name(r.problem.dims))
    fmt::format_to(std::back_inserter(out), "dim {} {}\n", name, value);
  std::string text = print(r.problem.kernel);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  fmt::format_to(std::back_inserter(out), "kernel {}\n", std::count(text.begin(), text.end(), '\n') + 1);
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    fmt::format_to(std::back_inserter(out), "| {}\n", rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  fmt::format_to(std::back_inserter(out), "rows {}\n", r.rows.size());
  for (const MeasuredRow& row : r.rows) print_row(row, out);
  return out;
}

Result<TaskRecord> parse_record(std::string_view text) {
  LineReader in(text, kMaxLines);
  TaskRecord record = next_record(in);
  if (in.ok() && !in.at_end()) in.fail("text after the end");
  if (!in.ok()) return in.status();
  return record;
}

Result<std::vector<TaskRecord>> parse_records(std::string_view text) {
  LineReader in(text, kMaxLines);
  std::vector<TaskRecord> records;
  while (in.ok() && !in.at_end()) records.push_back(next_record(in));
  if (!in.ok()) return in.status();
  return records;
}

std::vector<double> corrected_times(const TaskRecord& record) {
  const bool cold = record.problem.cold;
  const bool referenced = std::all_of(record.rows.begin(), record.rows.end(), [](const MeasuredRow& r) {
    return r.outcome != Outcome::timed || r.reference_us > 0;
  });
  std::vector<double> times;
  for (const MeasuredRow& r : record.rows) {
    const double us = r.outcome == Outcome::timed ? r.us(cold) : 0;
    times.push_back(referenced && us > 0 ? us / r.reference_us : us);
  }
  return times;
}

std::string task_name(const Problem& problem) {
  std::string text = print(problem.kernel);
  for (const auto& [name, value] : by_name(problem.dims)) text += fmt::format("{}={} ", name, value);
  text += fmt::format("{} {}", problem.threads, problem.cold ? 1 : 0);
  return fmt::format("{:016x}", hash_text(text));
}

}  // namespace lathe::search
