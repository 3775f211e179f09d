// What the verbs of the command line share: options, the context they make, input files, output lines. Thin: the work
// is in runtime. Exit codes: 0 done, 1 failed, 2 usage or malformed input, 3 budget spent.
#pragma once
#include <CLI/App.hpp>
#include <atomic>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ops/manifest.h"
#include "runtime/serve/context.h"
#include "runtime/walk/nest_bind.h"

namespace lathe::tools {

enum Exit : int { kDone = 0, kFailed = 1, kUsage = 2, kSpent = 3 };

struct CommonOptions {
  std::string verb;
  bool json = false;
  std::string store;  // directory; empty: by the placement rules
  std::string isa;    // empty: the environment's or the host's
  int threads = 0;    // 0: the workload's
  int jobs = 1;       // threads for coarse work
  uint64_t seed = 0;
};

// A verb: adds its options to `app`; `run` returns the exit code.
struct Verb {
  const char* name;
  const char* help;
  std::function<int()> (*setup)(CLI::App& app);
};
extern const Verb kInfo, kWarmup, kTune, kBench, kVerify, kExplain, kStore, kOpt;

// --json, --store, --isa and, where they mean something, --threads and --seed.
void add_common(CLI::App& app, CommonOptions* options, bool measures = true);

// A line on stderr, which nobody may be able to read.
void say(const std::string& line);
// Reports a failure on stderr and, with --json, as an "error" event; returns the exit code. What is wrong in a file is
// reported as "FILE:LINE: message" and nothing in front.
int fail(const CommonOptions& options, const ir::Status& status, int exit_code);
// The error with the operator's name in front, once.
ir::Status of_operator(const ops::Workload& item, const ir::Status& status);
// kDone, or kFailed after a report of the objects that could not be written to the store.
int kept(const CommonOptions& options, runtime::Context& context);

// --jobs, for verbs with coarse work.
void add_jobs(CLI::App& app, CommonOptions* options);

// own_threads: for calls; as many as --jobs says for coarse work, if that is more.
ir::Result<std::shared_ptr<runtime::Context>> make_context(const CommonOptions& options, int own_threads = 0);

// A regular file, "-" the standard input, of at most runtime::kMaxTextFile bytes.
ir::Result<std::string> read_input(const std::string& path);
// A manifest, read so. INVALID names file, line and field.
ir::Result<std::vector<ops::Workload>> read_manifest(const std::string& path);

// "M=3,L=128", of these symbols. INVALID otherwise; nothing (empty) if the text is.
using Shape = std::map<std::string, int64_t>;
ir::Result<Shape> parse_shape(const std::string& text, const std::vector<std::string>& symbols);
// Those of any of these operators, by the manifest's names.
std::vector<std::string> symbols_of(const std::vector<ops::Workload>& items);
// The values of an operator with those of `shape`, by the manifest's names, instead; duplicates are dropped.
// INVALID: outside the declared range.
ir::Result<std::vector<runtime::SymbolValues>> shaped(const ops::Workload& item,
                                                      std::vector<runtime::SymbolValues> hinted, const Shape& shape);

// {"schema":"lathe-<verb>-1","event":event}
nlohmann::json json_event(const CommonOptions& options, const char* event);
void print_json(const nlohmann::json& line);
// By the manifest's names.
nlohmann::json json_dims(const ops::Workload& item, const runtime::SymbolValues& dims);
std::string dims_text(const ops::Workload& item, const runtime::SymbolValues& dims);  // "M=1 L=128"

std::string tier_name(int tier);  // "T2"

// Accepts finite numbers above 0 and at most `most`.
CLI::Validator number_up_to(double most);
inline constexpr double kMostSeconds = 1e7, kMostMiB = 1e7;

// Set by the first Ctrl-C; the second one ends the process.
const std::atomic<bool>& interrupted();
void catch_interrupts();

}  // namespace lathe::tools
