// blueprints: Lathe's tuned kernels against hand-written ones, in one process, turn by turn. Prints the ratio of their
// times (above 1: Lathe is faster), as a table and with --json. Results are compared before anything is timed; a case
// that differs is a failure.
//
//   round: (ours theirs) or (theirs ours), alternately; ratio = theirs / ours; reported: the median ratio and its
//   quartiles what both take as it lies is the same memory: where pages lie makes more of a difference than kernels do
#include <fmt/format.h>
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "bench/blueprints/ours.h"
#include "jit/host/host_cpu.h"
#include "runtime/base/clock.h"
#include "runtime/bench/bench.h"
#include "runtime/measure/machine_profile.h"
#include "runtime/oracle/data_sets.h"

namespace lathe::blueprints {
namespace {

using runtime::now_us;

struct Flags {
  std::string filter = ".*";
  bool json = false;
  int rounds = 15;
  double row_ms = 3000;
};

// Zeroed pages as the system gives them: both sides' come the same way.
class Memory {
 public:
  explicit Memory(uint64_t bytes) : bytes_(std::max<uint64_t>(bytes, 64)) {
    void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    data_ = p == MAP_FAILED ? nullptr : static_cast<char*>(p);
  }
  ~Memory() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return data_; }

 private:
  uint64_t bytes_;
  char* data_;
};

int64_t count(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1) + 0.5)];
}

// One side's arguments: each in `copies` places, so that a call finds it where the last copies - 1 calls did not look.
struct Side {
  struct Arg {
    std::shared_ptr<Memory> memory;
    uint64_t stride = 0;
    int64_t copies = 1, next = 0;
    char* data() const { return memory->data() + stride * static_cast<uint64_t>(next); }
  };
  std::vector<Arg> args;
  std::vector<char*> at;
  std::unique_ptr<Memory> scratch;

  void add(uint64_t bytes, int64_t copies) {
    const uint64_t stride = (bytes + 63) / 64 * 64;
    args.push_back({std::make_shared<Memory>(stride * static_cast<uint64_t>(copies)), stride, copies, 0});
    at.push_back(args.back().data());
  }
  void spread(size_t arg, uint64_t bytes) const {
    for (int64_t c = 1; c < args[arg].copies; ++c)
      std::memcpy(args[arg].memory->data() + args[arg].stride * static_cast<uint64_t>(c), args[arg].memory->data(),
                  bytes);
  }
  void turn(size_t a) {
    args[a].next = args[a].next + 1 == args[a].copies ? 0 : args[a].next + 1;
    at[a] = args[a].data();
  }
};

struct Row {
  std::string error;
  int tier = 0;
  bool from_store = false;
  int rounds = 0;
  double ours_us = 0, theirs_us = 0, ratio = 0, ratio_lo = 0, ratio_hi = 0, of_peak = 0, of_read = 0,
         theirs_of_peak = 0, theirs_of_read = 0;
};

class Comparison {
 public:
  Comparison(lathe_context* context, const Case& c, const ir::Target& target, const Flags& flags)
      : case_(c), target_(target), flags_(flags), lathe_(make_ours(context, c)) {
    row_.error = lathe_.error;
    row_.from_store = lathe_.from_store;
  }

  Row run(runtime::MachineProbe& probe) {
    const runtime::PinnedThread pinned(true);
    if (row_.error.empty()) place();
    if (row_.error.empty()) compare();
    if (row_.error.empty()) time(probe);
    return row_;
  }

 private:
  void place() {
    const size_t n = case_.inputs.size();
    int64_t constants = 0, others = 4 * count(case_.result);
    for (const Input& i : case_.inputs) (i.constant ? constants : others) += 4 * count(i.dims);
    const auto copies_of = [&](int64_t bytes) {
      return std::clamp<int64_t>((runtime::cold_bytes(target_) + bytes - 1) / bytes, 2, 4096);
    };
    const int64_t constant_copies = case_.cold && constants > 0 ? copies_of(constants) : 1;
    // Those that caches would not keep anyway; an odd number, so that both sides get to all of them in turn.
    const int64_t other_copies = case_.cold && others > target_.l3_bytes / 4 ? copies_of(others) | 1 : 1;
    for (size_t a = 0; a <= n; ++a) {
      const bool constant = a < n && case_.inputs[a].constant;
      const int64_t plain = a < n ? count(case_.inputs[a].dims) : count(case_.result);
      const int64_t prepared = constant && case_.prepared_floats > 0 ? case_.prepared_floats : plain;
      const int64_t copies = constant ? constant_copies : other_copies;
      ours_.add(lathe_.bytes[a], copies);
      theirs_.add(4 * static_cast<uint64_t>(prepared), copies);
      if (a == n) break;
      const Memory source(4 * static_cast<uint64_t>(plain));
      float* values = reinterpret_cast<float*>(source.data());
      runtime::fill_tame(ir::DType::f32, 1 + a, source.data(), 4 * plain);
      const uint64_t bytes = 4 * static_cast<uint64_t>(plain);
      if (constant && lathe_.layouts[a] != 0) {
        row_.error = lathe_.pack(static_cast<int>(a), values, ours_.at[a]);
      } else {
        std::memcpy(ours_.at[a], values, bytes);
      }
      if (constant && case_.prepared_floats > 0) {
        case_.prepare(values, reinterpret_cast<float*>(theirs_.at[a]));
      } else {
        std::memcpy(theirs_.at[a], values, bytes);
      }
      ours_.spread(a, lathe_.bytes[a]);
      theirs_.spread(a, 4 * static_cast<uint64_t>(prepared));
    }
    if (row_.error.empty()) row_.error = lathe_.pin(reinterpret_cast<void* const*>(ours_.at.data()));
    row_.tier = lathe_.tier;
    ours_.scratch = std::make_unique<Memory>(lathe_.workspace_bytes);
    theirs_.scratch = std::make_unique<Memory>(4 * static_cast<uint64_t>(case_.scratch_floats));
  }

  void call_ours() {
    lathe_.run(reinterpret_cast<void* const*>(ours_.at.data()), ours_.scratch->data());
    turn(ours_);
  }
  void call_theirs() {
    case_.run(reinterpret_cast<float* const*>(theirs_.at.data()), reinterpret_cast<float*>(theirs_.scratch->data()));
    turn(theirs_);
  }
  // What is shared goes on for both.
  void turn(Side& called) {
    for (Side* side : {&ours_, &theirs_}) {
      for (size_t a = 0; a < side->at.size(); ++a) {
        if (side == &called || shared(a)) side->turn(a);
      }
    }
  }
  bool shared(size_t a) const { return ours_.args[a].memory == theirs_.args[a].memory; }
  // From the comparison on, which needs both results.
  void share() {
    for (size_t a = 0; a < ours_.args.size(); ++a) {
      const bool same = a == case_.inputs.size() ||
                        (lathe_.layouts[a] == 0 && !(case_.inputs[a].constant && case_.prepared_floats > 0));
      if (!same) continue;
      theirs_.args[a] = ours_.args[a];
      theirs_.at[a] = ours_.at[a];
    }
  }

  void compare() {
    call_ours();
    call_theirs();
    const auto* a = reinterpret_cast<const float*>(ours_.args.back().memory->data());
    const auto* b = reinterpret_cast<const float*>(theirs_.args.back().memory->data());
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < count(case_.result); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(b[i])));
      const double d = std::fabs(static_cast<double>(a[i]) - b[i]);
      difference = d <= difference ? difference : d;  // keeps a NaN
    }
    if (!(difference <= case_.tolerance * largest) || largest == 0)
      row_.error = fmt::format("results differ by {:.3g} of {:.3g}", difference, largest);
    if (row_.error.empty()) share();
  }

  template <class F>
  double sample(F&& call, int64_t reps) const {
    double best = 0;
    for (int again = 0; again < (case_.cold ? 1 : 3); ++again) {
      const double start = now_us();
      for (int64_t r = 0; r < reps; ++r) call();
      const double us = (now_us() - start) / static_cast<double>(reps);
      if (again == 0 || us < best) best = us;
    }
    return best;
  }

  void time(runtime::MachineProbe& probe) {
    const auto ours = [&] { call_ours(); };
    const auto theirs = [&] { call_theirs(); };
    const int64_t reps = static_cast<int64_t>(100 / std::max(std::min(sample(ours, 1), sample(theirs, 1)), 0.01)) + 1;
    std::vector<double> o, t, ratios, peak, read, peak_theirs, read_theirs;
    const int64_t footprint =
        case_.cold ? runtime::cold_bytes(target_) : std::max<int64_t>(static_cast<int64_t>(case_.bytes), 4096);
    const double start = now_us();
    for (int round = 0; round < flags_.rounds && (round < 9 || now_us() - start < 1e3 * flags_.row_ms); ++round) {
      const bool first = round % 2 == 0;
      if (first) o.push_back(sample(ours, reps));
      t.push_back(sample(theirs, reps));
      if (!first) o.push_back(sample(ours, reps));
      ratios.push_back(t.back() / o.back());
      const double gflops = probe.fma_peak_gflops(ir::IsaLevel::avx512) * 1e3, gbs = probe.read_gbs(footprint) * 1e3;
      peak.push_back(case_.flops / o.back() / gflops);
      read.push_back(case_.bytes / o.back() / gbs);
      peak_theirs.push_back(case_.flops / t.back() / gflops);
      read_theirs.push_back(case_.bytes / t.back() / gbs);
      ours();  // what the probes left in the caches is nobody's fault
      theirs();
    }
    row_.rounds = static_cast<int>(ratios.size());
    row_.ours_us = quantile(o, 0.5);
    row_.theirs_us = quantile(t, 0.5);
    row_.ratio = quantile(ratios, 0.5);
    row_.ratio_lo = quantile(ratios, 0.25);
    row_.ratio_hi = quantile(ratios, 0.75);
    row_.of_peak = quantile(peak, 0.5);
    row_.of_read = quantile(read, 0.5);
    row_.theirs_of_peak = quantile(peak_theirs, 0.5);
    row_.theirs_of_read = quantile(read_theirs, 0.5);
  }

  const Case& case_;
  const ir::Target& target_;
  const Flags& flags_;
  Ours lathe_;
  Side ours_, theirs_;
  Row row_;
};

void print_row(const Case& c, const Row& r, bool json) {
  if (json) {
    nlohmann::json line = {{"event", "row"}, {"case", c.name}, {"cache", c.cold ? "cold" : "hot"}};
    if (!r.error.empty()) {
      line["error"] = r.error;
    } else {
      line.update({{"tier", r.tier},
                   {"from_store", r.from_store},
                   {"rounds", r.rounds},
                   {"us", r.ours_us},
                   {"blueprint_us", r.theirs_us},
                   {"ratio", r.ratio},
                   {"ratio_lo", r.ratio_lo},
                   {"ratio_hi", r.ratio_hi},
                   {"of_peak", r.of_peak},
                   {"of_read", r.of_read},
                   {"blueprint_of_peak", r.theirs_of_peak},
                   {"blueprint_of_read", r.theirs_of_read}});
    }
    fmt::print("{}\n", line.dump());
  } else if (!r.error.empty()) {
    fmt::print("{:<24} {}\n", c.name, r.error);
  } else {
    fmt::print("{:<24} T{:<4} {:>9.2f} {:>10.2f} {:>6.3f} {:>6.3f}..{:<6.3f} {:>6.2f} {:>6.2f} {:>7.2f} {:>6.2f}\n",
               c.name, r.tier, r.ours_us, r.theirs_us, r.ratio, r.ratio_lo, r.ratio_hi, r.of_peak, r.theirs_of_peak,
               r.of_read, r.theirs_of_read);
  }
  std::fflush(stdout);
}

int run(const Flags& flags) {
  const ir::Target target = jit::host_target();
  if (!target.has(ir::IsaLevel::avx512)) {
    if (flags.json) {
      fmt::print("{}\n", nlohmann::json{{"event", "summary"}, {"skipped", "no AVX-512"}}.dump());
    } else {
      fmt::print("skipped: the blueprints are written for AVX-512, which this machine lacks\n");
    }
    return 0;
  }
  Cases cases;
#define BLUEPRINT_CASES(function) function(&cases);
#include "bench/blueprints/cases.def"
#undef BLUEPRINT_CASES
  lathe_context* context = nullptr;
  lathe_error error = {};
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.worker_path = LATHE_WORKER_PATH;
  if (lathe_context_create(&options, &context, &error) != LATHE_STATUS_OK) {
    fmt::print(stderr, "{}\n", error.message);
    return 2;
  }
  const std::regex wanted(flags.filter);
  runtime::MachineProbe probe;
  int rows = 0, failed = 0;
  double worst = 0, logs = 0;
  if (!flags.json) {
    fmt::print("{:<24} {:<5} {:>9} {:>10} {:>6} {:>14} {:>6} {:>6} {:>7} {:>6}\n", "case", "tier", "us", "blueprint",
               "ratio", "quartiles", "peak", "bp", "read", "bp");
  }
  for (const Case& c : cases) {
    if (!std::regex_search(c.name, wanted)) continue;
    const Row row = Comparison(context, c, target, flags).run(probe);
    print_row(c, row, flags.json);
    failed += !row.error.empty();
    if (!row.error.empty()) continue;
    worst = rows == 0 ? row.ratio : std::min(worst, row.ratio);
    logs += std::log(row.ratio);
    ++rows;
  }
  lathe_context_destroy(context);
  const double mean = rows > 0 ? std::exp(logs / rows) : 0;
  if (flags.json) {
    fmt::print(
        "{}\n",
        nlohmann::json{{"event", "summary"}, {"rows", rows}, {"failed", failed}, {"worst", worst}, {"geomean", mean}}
            .dump());
  } else {
    fmt::print("{} rows, {} failed; ratio to the blueprints: worst {:.3f}, geometric mean {:.3f}\n", rows, failed,
               worst, mean);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lathe::blueprints

int main(int argc, char** argv) {
  lathe::blueprints::Flags flags;
  CLI::App app{
      "Lathe's tuned kernels against hand-written ones. The store is LATHE_CACHE_DIR's; what it lacks is tuned first."};
  app.add_flag("--json", flags.json, "one object per line");
  app.add_option("--filter", flags.filter, "regular expression over the names of cases");
  app.add_option("--rounds", flags.rounds, "at most; at least 9");
  app.add_option("--row-ms", flags.row_ms, "time of a row, beyond 9 rounds");
  CLI11_PARSE(app, argc, argv);
  return lathe::blueprints::run(flags);
}
