// See cli.h.
#include "tools/cli.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "runtime/base/read_file.h"
#include "runtime/bench/bench.h"

namespace lathe::tools {

using ir::Result;
using ir::Status;
using nlohmann::json;

void add_common(CLI::App& app, CommonOptions* options, bool measures) {
  options->verb = app.get_name();
  app.add_flag("--json", options->json, "One JSON object a line on the standard output");
  app.add_option("--store", options->store, "Directory of the store")->type_name("DIR");
  app.add_option("--isa", options->isa, "Highest instruction set to generate for")
      ->check(CLI::IsMember({"host", "portable", "avx2", "avx512", "amx"}));
  if (!measures) return;
  app.add_option("--threads", options->threads, "Threads, instead of the workload's")->check(CLI::Range(1, 256));
  app.add_option("--seed", options->seed, "Seed of all random choices");
}

void add_jobs(CLI::App& app, CommonOptions* options) {
  app.add_option("--jobs", options->jobs, "Threads that prepare, compile and check; no result depends on them")
      ->check(CLI::Range(1, 256));
}

void say(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

int fail(const CommonOptions& options, const Status& status, int exit_code) {
  if (options.json) {
    json line = json_event(options, "error");
    line["code"] = ir::code_name(status.code());
    line["message"] = status.message();
    line["arg"] = status.arg();
    print_json(line);
  }
  const std::string where = status.arg().empty() ? "" : status.arg() + ": ";
  // in_file() leaves a position that ends in a number.
  const bool in_file = std::regex_search(status.arg(), std::regex(R"(:\d+$)"));
  say(fmt::format("{}{}{}", in_file ? "" : "lathe " + options.verb + ": ", where, status.message()));
  return exit_code;
}

Status of_operator(const ops::Workload& item, const Status& status) {
  return status.message().rfind(item.name + ": ", 0) == 0 ? status : status.with_context(item.name);
}

int kept(const CommonOptions& options, runtime::Context& context) {
  const int64_t lost = context.stats().get(runtime::Stat::k_publish_failed);
  if (lost == 0) return kDone;
  const auto layers = context.store().layers();
  const auto own =
      std::find_if(layers.begin(), layers.end(), [](const auto& l) { return l.mode != runtime::LayerMode::read_only; });
  return fail(options,
              ir::make_error(
                  ir::Code::kIO,
                  "{} objects could not be written to {}: expected a directory that can be made and written, with room",
                  lost, own == layers.end() ? "the store" : own->path),
              kFailed);
}

Result<std::shared_ptr<runtime::Context>> make_context(const CommonOptions& options, int own_threads) {
  runtime::ContextConfig config;
  LATHE_ASSIGN(config.options, ir::Options::from_environment());
  if (!options.isa.empty()) LATHE_RETURN_IF_ERROR(config.options.set(ir::OptionId::max_isa, options.isa));
  if (!options.store.empty()) {
    std::error_code error;
    const std::string path = std::filesystem::absolute(options.store, error).lexically_normal();
    LATHE_RETURN_IF_ERROR(config.options.set(ir::OptionId::cache_dir, path));
  }
  config.own_threads = std::max(own_threads, options.jobs);
  // A thread each, the caller's own being the first: the scheduler is slow to part two that share one.
  const std::vector<int> cpus = runtime::allowed_cpus();
  if (static_cast<int>(cpus.size()) >= own_threads) config.own_cpus = cpus;
  return runtime::Context::create(std::move(config));
}

Result<std::string> read_input(const std::string& path) {
  if (path != "-") return runtime::read_file(path);
  std::string text;
  char chunk[65536];
  while (std::cin.read(chunk, sizeof(chunk)), std::cin.gcount() > 0) {
    text.append(chunk, static_cast<size_t>(std::cin.gcount()));
    if (text.size() > runtime::kMaxTextFile)
      return ir::invalid("the standard input: has more than {} bytes", runtime::kMaxTextFile);
  }
  return text;
}

Result<std::vector<ops::Workload>> read_manifest(const std::string& path) {
  LATHE_ASSIGN(const std::string text, read_input(path));
  Result<std::vector<ops::Workload>> items = ops::parse_manifest(text);
  if (!items.ok()) return runtime::in_file(path == "-" ? "<stdin>" : path, items.status());
  if (items->empty()) return ir::invalid("{}: no operator", path);
  return items;
}

std::vector<std::string> symbols_of(const std::vector<ops::Workload>& items) {
  std::set<std::string> names;
  for (const ops::Workload& item : items) {
    for (const ops::DimDesc& d : item.dims) names.insert(d.symbol);
  }
  return {names.begin(), names.end()};
}

Result<Shape> parse_shape(const std::string& text, const std::vector<std::string>& symbols) {
  Shape shape;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    const size_t eq = item.find('=');
    char* end = nullptr;
    const long long value = eq == std::string::npos ? -1 : std::strtoll(item.c_str() + eq + 1, &end, 10);
    if (eq == 0 || value < 0 || end == item.c_str() + eq + 1 || *end != 0) {
      return ir::invalid("--shape: {}, expected SYMBOL=VALUE,...", item);
    }
    const std::string name = item.substr(0, eq);
    if (std::find(symbols.begin(), symbols.end(), name) == symbols.end()) {
      return ir::invalid(
          "--shape: no operator here has a symbol {}, expected {}", name,
          symbols.empty() ? "none: all sizes are fixed" : fmt::format("one of {}", fmt::join(symbols, ", ")));
    }
    if (!shape.emplace(name, value).second) return ir::invalid("--shape: {} is given twice", name);
  }
  return shape;
}

Result<std::vector<runtime::SymbolValues>> shaped(const ops::Workload& item, std::vector<runtime::SymbolValues> hinted,
                                                  const Shape& shape) {
  for (const ops::DimDesc& d : item.dims) {
    const auto given = shape.find(d.symbol);
    if (given == shape.end()) continue;
    if (given->second != 0 &&
        (given->second < d.min || given->second > d.max || given->second % std::max<int64_t>(d.multiple_of, 1) != 0)) {
      return ir::invalid("--shape: {}={}, {} has {}..{} in steps of {}", d.symbol, given->second, item.name, d.min,
                         d.max, d.multiple_of);
    }
    for (runtime::SymbolValues& values : hinted) {
      for (auto& [name, value] : values) {
        if (name == ops::kernel_symbol(d.symbol)) value = given->second;
      }
    }
  }
  std::vector<runtime::SymbolValues> out;
  for (runtime::SymbolValues& values : hinted) {
    if (std::find(out.begin(), out.end(), values) == out.end()) out.push_back(std::move(values));
  }
  return out;
}

json json_event(const CommonOptions& options, const char* event) {
  return {{"schema", fmt::format("lathe-{}-1", options.verb)}, {"event", event}};
}

void print_json(const json& line) {
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

namespace {

std::string symbol_name(const ops::Workload& item, const std::string& name) {
  for (const ops::DimDesc& d : item.dims) {
    if (ops::kernel_symbol(d.symbol) == name) return d.symbol;
  }
  return name;
}

std::atomic<bool> interrupt_seen{false};

constexpr unsigned kGraceSeconds = 20;  // what has not ended by then does not look

void on_interrupt(int) {
  if (interrupt_seen.exchange(true)) _exit(130);
  alarm(kGraceSeconds);
}

void on_alarm(int) { _exit(130); }

}  // namespace

json json_dims(const ops::Workload& item, const runtime::SymbolValues& dims) {
  json out = json::object();
  for (const auto& [name, value] : dims) out[symbol_name(item, name)] = value;
  return out;
}

std::string dims_text(const ops::Workload& item, const runtime::SymbolValues& dims) {
  std::string out;
  for (const auto& [name, value] : dims)
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", symbol_name(item, name), value);
  return out.empty() ? "-" : out;
}

CLI::Validator number_up_to(double most) {
  const std::string range = fmt::format("above 0, at most {:g}", most);
  return CLI::Validator(
      [most, range](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool fits = end != text.c_str() && *end == 0 && value > 0 && value <= most;
        return fits ? std::string() : fmt::format("{:.40}, expected a number {}", text, range);
      },
      range);
}

std::string tier_name(int tier) { return fmt::format("T{}", tier); }

const std::atomic<bool>& interrupted() { return interrupt_seen; }

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, nullptr);
}

}  // namespace lathe::tools
