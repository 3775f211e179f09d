// See safety.h. Every candidate goes through the measuring worker as a search's would, up to the timing. What passes is
// judged apart: at the same shape on other data, three times.
#include <fmt/format.h>

#include <random>
#include <set>

#include "bench/safety/safety.h"
#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/measure/worker_client.h"
#include "search/sketches/recipe.h"
#include "tests/worker/plant.h"

namespace lathe::safety {
namespace {

using runtime::CandidateResult;
using runtime::CandidateSpec;
using search::Outcome;

// Sizes are fixed: what is right at them is right wherever it would serve.
const char* const kKernels[] = {
    R"(
kernel mm(a: f32[13, 77] in, w: f32[70, 77] const, e: f32[70] const, y: f32[13, 70] out) family matmul
  c: f32[13, 70] heap
  for m < 13 [m]:
    for n < 70 [n]:
      c[m, n] = 0.0
      for k < 77 [k]:
        c[m, n] += a[m, k] * w[n, k]
      y[m, n] = c[m, n] + e[n]
)",
    R"(
kernel mm2(a: f32[32, 96] in, w: f32[96, 96] const, y: f32[32, 96] out) family matmul
  c: f32[32, 96] heap
  for m < 32 [m]:
    for n < 96 [n]:
      c[m, n] = 0.0
      for k < 96 [k]:
        c[m, n] += a[m, k] * w[n, k]
      y[m, n] = max(c[m, n], 0.0)
)",
    R"(
kernel softmax(x: f32[9, 200] in, y: f32[9, 200] out) family row
  m: f32[9] heap
  s: f32[9] heap
  for b < 9 [row]:
    m[b] = -inf
    for n < 200 [col]:
      m[b] fmax= x[b, n]
    s[b] = 0.0
    for n1 < 200 [col]:
      s[b] += exp(x[b, n1] - m[b])
    for n2 < 200 [col]:
      y[b, n2] = exp(x[b, n2] - m[b]) / s[b]
)",
    R"(
kernel rmsnorm(s: f32[11, 150] in, g: f32[150] const, d: f32[11, 150] out) family row
  v: f32[11] heap
  r: f32[11] heap
  for b < 11 [row]:
    v[b] = 0.0
    for n < 150 [col]:
      v[b] += s[b, n] * s[b, n]
    r[b] = rsqrt(v[b] / 150.0 + 1e-06)
    for n1 < 150 [col]:
      d[b, n1] = s[b, n1] * r[b] * g[n1]
)"};

struct Bed {
  std::string text;
  search::Problem problem;
  const search::Recipe* recipe = nullptr;
  std::vector<search::Schedule> schedules;
};

struct Case {
  std::string kind;
  size_t bed = 0;
  CandidateSpec spec;
};

class Campaign {
 public:
  Campaign(int wrong, int processes, uint64_t seed)
      : wrong_(wrong), processes_(processes), random_(seed), worker_(options(1500)), judge_(options(30'000)) {
    for (const char* text : kKernels) {
      Bed bed;
      bed.text = text;
      bed.problem.kernel = ir::parse_kernel(text).value();
      bed.recipe = search::find_recipe(bed.problem);
      bed.schedules = search::candidates(bed.problem, jit::host_target(), 24);
      beds_.push_back(std::move(bed));
    }
  }

  FaultReport run(const std::string& only) {
    const std::pair<const char*, bool (Campaign::*)(Case*)> kinds[] = {{"predicate by-passed", &Campaign::by_pass},
                                                                       {"broken rewrite", &Campaign::broken},
                                                                       {"mutated leaf bytes", &Campaign::mutated_bytes},
                                                                       {"wrong tail or nest", &Campaign::mutated_nest}};
    for (const auto& [kind, make] : kinds) {
      if (std::string_view(kind).find(only) == std::string_view::npos) continue;
      FaultCounts& counts = out_.kinds[kind];
      constexpr int kRound = 64, kMaxRounds = 400;
      for (int round = 0; round < kMaxRounds && counts.wrong() < wrong_ && out_.complaint.empty(); ++round) {
        std::vector<Case> cases;
        for (int tries = 0;
             tries < 20 * kRound && static_cast<int>(cases.size()) < std::min(kRound, wrong_ - counts.wrong());
             ++tries) {
          Case c{kind, random_() % beds_.size(), {}};
          if ((this->*make)(&c)) cases.push_back(std::move(c));
        }
        if (cases.empty()) break;
        submit(cases);
      }
    }
    std::vector<Case> cases;
    constexpr const char* kFaults[] = {"crash", "scribble", "stray", "exit", "overread", "hang", "eat", "mxcsr"};
    for (int i = 0; i < processes_; ++i) {
      Case c{"hang, crash or scribble", static_cast<size_t>(i) % beds_.size(), {}};
      c.spec.schedule =
          runtime::planted(search::to_text(pick(beds_[c.bed])) + std::string(static_cast<size_t>(i) % 7 + 1, '\n'),
                           fmt::format("{}:{}", kFaults[static_cast<size_t>(i) % std::size(kFaults)], random_() >> 1));
      cases.push_back(std::move(c));
    }
    submit(cases);
    out_.children = worker_.spawned();
    return out_;
  }

 private:
  static runtime::WorkerOptions options(int verify_ms) {
    runtime::WorkerOptions o;
    o.path = LATHE_WORKER_PATH;
    o.build_ms = 2000;
    o.verify_ms = verify_ms;
    o.memory_mb = 8192;
    return o;
  }

  const search::Schedule& pick(const Bed& bed) { return bed.schedules[random_() % bed.schedules.size()]; }

  // Knobs that the recipe refuses, expanded all the same; by neighbours of a domain's values where the domains hold
  // none.
  bool by_pass(Case* c) {
    const Bed& bed = beds_[c->bed];
    if (bed.recipe == nullptr) return false;
    search::Knobs knobs;
    for (const search::KnobDomain& d : bed.recipe->knobs(bed.problem, jit::host_target())) {
      int64_t v = d.values[random_() % d.values.size()];
      // Sizes stay sizes: nothing else reaches a recipe.
      if (v > 0 && random_() % 2 == 0) v = std::max<int64_t>(v + static_cast<int64_t>(random_() % 9) - 4, 1);
      knobs[d.name] = v;
    }
    if (bed.recipe->accepts(knobs, bed.problem, jit::host_target()).ok()) return false;
    const ir::Result<search::Schedule> schedule = bed.recipe->build(knobs, bed.problem, jit::host_target());
    if (!schedule.ok()) {
      ++out_.kinds[c->kind].planted;
      ++out_.kinds[c->kind].caught["V0"];
      return false;
    }
    c->spec.schedule = search::to_text(*schedule);
    return true;
  }

  // A Schedule up to some move, then one that is refused, applied without the precondition that refuses it.
  bool broken(Case* c) {
    const Bed& bed = beds_[c->bed];
    search::Schedule schedule = pick(bed);
    schedule.moves.resize(random_() % (std::min<size_t>(schedule.moves.size(), 12) + 1));
    schedule.recipe.clear();
    schedule.knobs.clear();
    const ir::Result<ir::Kernel> kernel = search::replay(bed.problem.kernel, schedule);
    if (!kernel.ok()) return false;
    std::vector<search::Candidate> refused;
    for (search::Candidate& m : search::applicable(*kernel, true)) {
      if (!m.refusal.empty()) refused.push_back(std::move(m));
    }
    if (refused.empty()) return false;
    const search::Move& move = refused[random_() % refused.size()].move;
    const int preconditions = static_cast<int>(search::find_transform(move.name)->preconditions.size());
    for (int p = 0; p < preconditions; ++p) {
      search::TransformParams params;
      params.disabled_precondition = p;
      if (!search::apply(*kernel, move, params).ok()) continue;
      schedule.moves.push_back(move);
      c->spec.schedule =
          runtime::planted(search::to_text(schedule), fmt::format("broken:{}.{}", schedule.moves.size() - 1, p));
      return true;
    }
    return false;
  }

  bool mutated_bytes(Case* c) {
    const std::string schedule = search::to_text(pick(beds_[c->bed]));
    c->spec.schedule = runtime::planted(schedule, fmt::format("bytes:{}", random_() >> 1));
    return true;
  }
  bool mutated_nest(Case* c) {
    const std::string schedule = search::to_text(pick(beds_[c->bed]));
    const char* fault = random_() % 2 ? "nest" : "tail";
    c->spec.schedule = runtime::planted(schedule, fmt::format("{}:{}", fault, random_() >> 1));
    return true;
  }

  runtime::EvaluateTask task(size_t bed, uint64_t seed) const {
    runtime::EvaluateTask t;
    t.kernel_text = beds_[bed].text;
    t.seed = seed;
    return t;
  }

  // The default first, so that a reference of the evaluation is right.
  ir::Result<std::vector<CandidateResult>> screen(runtime::WorkerClient& worker, size_t bed, uint64_t seed,
                                                  const std::vector<CandidateSpec>& specs) {
    LATHE_ASSIGN(const std::unique_ptr<runtime::Evaluation> evaluation, worker.begin(task(bed, seed)));
    std::vector<CandidateSpec> batch = {{search::to_text(beds_[bed].schedules[0]), true}};
    batch.insert(batch.end(), specs.begin(), specs.end());
    for (CandidateSpec& s : batch) s.time = &s == &batch[0];
    LATHE_ASSIGN(std::vector<CandidateResult> results, evaluation->screen(batch));
    if (results[0].outcome != Outcome::timed)
      return ir::internal_error("the default is not right: {}", results[0].reason);
    results.erase(results.begin());
    return results;
  }

  static bool passed(const CandidateResult& r) {
    return r.outcome == Outcome::skipped && r.gate != runtime::Gate::none;
  }

  // Why it is wrong on one of these data; empty: it is right.
  std::string wrong(const Case& c, const std::vector<uint64_t>& seeds) {
    for (const uint64_t seed : seeds) {
      const auto again = screen(judge_, c.bed, seed, {c.spec});
      if (again.ok() && passed((*again)[0])) continue;
      const std::string why =
          !again.ok() ? again.status().to_string()
                      : fmt::format("{}: {}", search::outcome_name((*again)[0].outcome), (*again)[0].reason);
      return fmt::format("{} on data {}: {}\n{}", c.kind, seed, why, c.spec.schedule);
    }
    return {};
  }

  void submit(const std::vector<Case>& cases) {
    for (size_t bed = 0; bed < beds_.size() && out_.complaint.empty(); ++bed) {
      std::vector<CandidateSpec> specs;
      std::vector<const Case*> who;
      for (const Case& c : cases) {
        if (c.bed != bed) continue;
        specs.push_back(c.spec);
        who.push_back(&c);
      }
      if (specs.empty()) continue;
      const auto results = screen(worker_, bed, random_() >> 1, specs);
      if (!results.ok()) {
        out_.complaint = results.status().to_string();
        return;
      }
      for (size_t i = 0; i < who.size(); ++i) {
        const CandidateResult& r = (*results)[i];
        FaultCounts& counts = out_.kinds[who[i]->kind];
        // What breaks nothing, because there is nothing of its sort, is no candidate.
        if (r.outcome == Outcome::refused && r.reason.find(" in the nest") != std::string::npos) continue;
        // The same nest and leaves as one before.
        if (r.outcome == Outcome::skipped && !passed(r)) continue;
        ++counts.planted;
        if (!passed(r)) {
          ++counts.caught[runtime::step_name(r.step)];
          continue;
        }
        // No winner is served without this; then whether it was a wrong one at all.
        const std::string late = wrong(*who[i], {1000}), never = late.empty() ? wrong(*who[i], {1001, 1002, 1003}) : "";
        if (!late.empty())
          ++counts.caught["after"];
        else if (never.empty())
          ++counts.harmless;
        else
          ++counts.served;
        for (const std::string& text : {late, never}) {
          if (!text.empty()) out_.passes.push_back(text);
        }
      }
    }
  }

  const int wrong_, processes_;
  std::mt19937_64 random_;
  runtime::WorkerClient worker_;
  runtime::WorkerClient judge_;  // takes its time: what is slow on a loaded machine is not wrong
  std::vector<Bed> beds_;
  FaultReport out_;
};

}  // namespace

FaultReport plant_faults(int wrong, int processes, uint64_t seed, const std::string& only) {
  return Campaign(wrong, processes, seed).run(only);
}

}  // namespace lathe::safety
