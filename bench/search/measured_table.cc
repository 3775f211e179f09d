// See measured_table.h.
#include "bench/search/measured_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/core/text_form.h"

namespace lathe::bench {

using ir::Result;
using nlohmann::json;
using search::Outcome;

namespace {

constexpr Outcome kKinds[] = {Outcome::timed,   Outcome::wrong, Outcome::refused,
                              Outcome::crashed, Outcome::hung,  Outcome::skipped};

std::string quoted(const std::string& path) {
  std::string out = "'";
  for (char c : path) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Result<std::vector<std::string>> lines_of(const std::string& path) {
  const bool packed = path.size() > 3 && path.ends_with(".gz");
  FILE* in = packed ? popen(("gzip -dc " + quoted(path)).c_str(), "r") : std::fopen(path.c_str(), "r");
  if (in == nullptr) return ir::invalid("{}: cannot be read", path);
  std::string text;
  char block[1 << 16];
  for (size_t n; (n = std::fread(block, 1, sizeof(block), in)) > 0;) text.append(block, n);
  const int rc = packed ? pclose(in) : std::fclose(in);
  if (rc != 0) return ir::invalid("{}: cannot be unpacked", path);
  std::vector<std::string> out;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) out.push_back(line);
  }
  return out;
}

Result<MeasuredTask> parse_task(const json& j) {
  MeasuredTask t;
  t.name = j.at("name");
  t.group = j.at("group");
  t.length = j.at("length");
  t.isa = j.at("isa");
  t.recipe = j.at("recipe");
  t.default_row = j.at("default");
  t.refused = j.at("refused");
  t.knob_names = j.at("knobs").get<std::vector<std::string>>();
  LATHE_ASSIGN(t.problem.kernel, ir::parse_kernel(j.at("kernel").get<std::string>()));
  t.problem.threads = j.at("threads");
  t.problem.cold = j.at("cold");
  t.problem.unhurried = true;  // as in every search
  t.problem.allowed = j.value("allowed", 0u);
  return t;
}

Result<TableRow> parse_row(const MeasuredTask& task, const json& j) {
  TableRow r;
  const std::vector<int64_t> values = j.at("k");
  if (values.size() != task.knob_names.size())
    return ir::invalid("{} values, expected {}", values.size(), task.knob_names.size());
  for (size_t i = 0; i < values.size(); ++i) r.knobs[task.knob_names[i]] = values[i];
  if (j.contains("o")) {
    const std::string name = j.at("o");
    const auto* at =
        std::find_if(std::begin(kKinds), std::end(kKinds), [&](Outcome k) { return name == search::outcome_name(k); });
    if (at == std::end(kKinds)) return ir::invalid("unknown outcome {}", name);
    r.outcome = *at;
    return r;
  }
  r.passes = j.at("s").get<std::vector<std::vector<double>>>();
  if (j.contains("c")) r.confirm = j.at("c").get<std::vector<double>>();
  if (j.contains("a")) r.again = j.at("a").get<std::vector<double>>();
  if (!r.again.empty() && r.again.size() != r.confirm.size())
    return ir::invalid("{} second samples of {} passes", r.again.size(), r.confirm.size());
  for (const std::vector<double>& p : r.passes) {
    if (p.empty() || *std::min_element(p.begin(), p.end()) <= 0) return ir::invalid("a pass without a time");
  }
  return r;
}

Result<std::vector<MeasuredTask>> parse_tables(const std::vector<std::string>& lines) {
  if (!lines.empty() && lines[0].find("\"cfg\"") != std::string::npos) return parse_flat_table(lines);
  std::vector<MeasuredTask> out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const json j = json::parse(lines[i], nullptr, false);
    try {
      if (j.is_discarded() || !j.is_object()) return ir::invalid("line {}: not an object", i + 1);
      if (j.contains("task")) {
        Result<MeasuredTask> t = parse_task(j.at("task"));
        if (!t.ok()) return t.status().with_context(fmt::format("line {}", i + 1));
        out.push_back(std::move(t).value());
        continue;
      }
      if (out.empty()) return ir::invalid("line {}: a row before its task", i + 1);
      Result<TableRow> r = parse_row(out.back(), j);
      if (!r.ok()) return r.status().with_context(fmt::format("line {}", i + 1));
      out.back().rows.push_back(std::move(r).value());
    } catch (const json::exception& e) {
      return ir::invalid("line {}: {}", i + 1, e.what());
    }
  }
  for (const MeasuredTask& t : out) {
    const bool has_default = t.default_row >= 0 && t.default_row < static_cast<int>(t.rows.size());
    if (!has_default || t.rows[static_cast<size_t>(t.default_row)].passes.empty())
      return ir::invalid("{}: its default was not timed", t.name);
  }
  return out;
}

}  // namespace

Result<std::vector<MeasuredTask>> read_tables(const std::string& path) {
  std::vector<std::string> files{path};
  if (std::filesystem::is_directory(path)) {
    files.clear();
    for (const auto& e : std::filesystem::directory_iterator(path)) {
      const std::string name = e.path().filename();
      if ((name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")) && name.find("tasks") == std::string::npos)
        files.push_back(e.path());
    }
    std::sort(files.begin(), files.end());
  }
  std::vector<MeasuredTask> out;
  for (const std::string& f : files) {
    LATHE_ASSIGN(const std::vector<std::string> lines, lines_of(f));
    Result<std::vector<MeasuredTask>> tasks = parse_tables(lines);
    if (!tasks.ok()) return tasks.status().with_context(f);
    std::move(tasks->begin(), tasks->end(), std::back_inserter(out));
  }
  if (out.empty()) return ir::invalid("{}: no tables", path);
  return out;
}

double rounded(double value) {
  if (!(value > 0)) return 0;
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

static json numbers(const std::vector<double>& values) {
  json out = json::array();
  for (double v : values) {
    const double r = rounded(v);
    if (r >= 1000 && r == std::floor(r)) {
      out.push_back(static_cast<int64_t>(r));
    } else {
      out.push_back(r);
    }
  }
  return out;
}

std::string task_line(const MeasuredTask& t) {
  json j = {{"name", t.name},
            {"group", t.group},
            {"length", t.length},
            {"isa", t.isa},
            {"recipe", t.recipe},
            {"default", t.default_row},
            {"refused", t.refused},
            {"knobs", t.knob_names},
            {"kernel", ir::print(t.problem.kernel)},
            {"threads", t.problem.threads},
            {"cold", t.problem.cold}};
  if (t.problem.allowed != 0) j["allowed"] = t.problem.allowed;
  return json{{"task", j}}.dump();
}

std::string row_line(const MeasuredTask& t, const TableRow& r) {
  json j;
  j["k"] = json::array();
  for (const std::string& name : t.knob_names) j["k"].push_back(r.knobs.at(name));
  if (r.outcome != Outcome::timed) {
    j["o"] = search::outcome_name(r.outcome);
    return j.dump();
  }
  j["s"] = json::array();
  for (const std::vector<double>& p : r.passes) j["s"].push_back(numbers(p));
  if (!r.confirm.empty()) j["c"] = numbers(r.confirm);
  if (!r.again.empty()) j["a"] = numbers(r.again);
  return j.dump();
}

}  // namespace lathe::bench
