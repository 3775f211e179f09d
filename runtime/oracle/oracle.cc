// See oracle.h. Per case (data set and shape): run on both guard sides, same bits; all cells
// written, nothing else; sampled cells against the reference; and, where results are exact, all
// cells against those of a Stage that passed before: two that differ are judged by the interpreter
// at the cell.
#include "runtime/oracle/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "runtime/oracle/oracle_case.h"
#include "runtime/oracle/probed_leaves.h"
#include "runtime/oracle/redefinition.h"
#include "runtime/walk/nest_bind.h"
#include "runtime/walk/nest_walk.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

constexpr double kRhoAlarm = 4;
constexpr int kWatchedCalls = 4;                    // of each leaf in each case
constexpr int64_t kLargeTask = int64_t{192} << 20;  // operands beyond: two data sets are enough
constexpr int64_t kSmallTask = int64_t{256} << 10;  // operands up to that: two more sets cost little
constexpr int64_t kTinyTask = int64_t{32} << 10;    // and six; choices need more

// Pairs of data sets in which rows have their largest element elsewhere. A choice, unlike a sum, shows a column that is
// left out or misread only where that column wins: there are so many that each does, where kMostPeaks are enough.
int peak_sets(const KernelTraits& traits, const std::vector<OperandShape>& shapes) {
  int64_t sets = traits.decides ? kUsualPeaks + 2 : kUsualPeaks;
  for (const OperandShape& s : shapes) {
    if (!traits.decides || !s.has_contents() || !ir::is_float(s.type) || s.dims.empty() || s.elements == 0) continue;
    const int64_t columns = s.dims.back(), rows = s.elements / columns;
    sets = std::max(sets, (columns + 2 * rows - 1) / (2 * rows));
  }
  return static_cast<int>(std::min<int64_t>(sets, kMostPeaks));
}

// A shape with tails, small where the symbols allow. Empty if none is fixed-free.
SymbolValues shrunken(const ir::Kernel& kernel, const SymbolValues& dims) {
  SymbolValues out = dims;
  bool changed = false;
  for (auto& [name, value] : out) {
    const ir::Symbol* s = kernel.find_symbol(name);
    if (!s || s->min >= s->max) continue;
    const int64_t step = std::max<int64_t>(s->multiple_of, 1);
    const int64_t wish = std::clamp<int64_t>(value > 13 ? 13 : value - 1, std::max<int64_t>(s->min, 1), s->max);
    const int64_t v = (wish + step - 1) / step * step;
    if (v < s->min || v > s->max || v == value) continue;
    value = v;
    changed = true;
  }
  return changed ? out : SymbolValues{};
}

}  // namespace

const char* gate_name(Gate gate) {
  switch (gate) {
    case Gate::none:
      return "none";
    case Gate::exact:
      return "exact";
    case Gate::bound:
      return "bound";
    case Gate::table:
      return "table";
  }
  return "none";
}

struct Oracle::Impl {
  OracleTask task;
  ThreadTeam* team = nullptr;
  TaskArena* arena = nullptr;
  KernelTraits traits;
  std::vector<OracleCase> cases;
  bool prepared = false;
  // What moves that redefine the Kernel make of it, by their text.
  struct Redefined {
    std::vector<OracleCase> cases;
    double error = 0;  // of the normal data
  };
  std::map<std::string, Redefined> redefined;
  int generation = 0;
  double rho_first = -1;  // of the first Stage that passed

  // Operands of the running walk, for describe().
  struct Region {
    const char* name = nullptr;
    const char* data = nullptr;
    const char *first = nullptr, *last = nullptr;
  };
  Region regions[kMaxNestBuffers];
  int num_regions = 0;

  const std::function<void()>* alive = nullptr;  // of the running verification
  void tell() const {
    if (alive != nullptr && *alive) (*alive)();
  }
  Status prepare();
  Result<Redefined*> redefine(const Stage& stage);
  Status compute(OracleCase* c) const;
  Status add_case(const SymbolValues& symbols, DataKind kind, const OracleCase* first, int64_t budget, int again = 0);
  Result<Verdict> verify(const Stage& stage);
  Status run(const Stage& stage, OracleCase* c, Verdict* verdict);
  Status walk_once(const Stage& stage, const BoundExecutable& bound, OracleCase* c, GuardSide side,
                   std::vector<GuardMemory>* outs, std::string* broken = nullptr);
  void compare(const OracleCase& c, const Reference& reference, const std::vector<const char*>& outs,
               Verdict* verdict) const;
  Status judge(OracleCase* c, size_t param, int64_t offset, const std::vector<const char*>& outs, Verdict* verdict);
  void remember(const char* name, const char* data, int64_t bytes) {
    if (num_regions == kMaxNestBuffers) return;
    regions[num_regions++] = {name, data, data - 4096, data + bytes + 4096};
  }
};

// again: other data of the same kind.
Status Oracle::Impl::add_case(const SymbolValues& symbols, DataKind kind, const OracleCase* first, int64_t budget,
                              int again) {
  tell();
  OracleCase c;
  c.kind = kind;
  c.symbols = symbols;
  c.budget = budget;
  LATHE_ASSIGN(c.shapes, operand_shapes(task.naive, &c.symbols));
  c.layouts = arg_layouts(task.naive, c.shapes);
  if (first) {
    c.sampled = first->sampled;
  } else {
    LATHE_ASSIGN(SampledKernel sampled, SampledKernel::create(task.naive, c.symbols));
    c.sampled = std::make_shared<const SampledKernel>(std::move(sampled));
  }
  DataRecipe recipe;
  recipe.kind = kind;
  recipe.seed = task.seed * 4 + static_cast<uint64_t>(kind) + (static_cast<uint64_t>(again) << 40);
  recipe.limited = traits.overflows || traits.math;
  recipe.peaked = traits.overflows && traits.largest;
  recipe.any_integer = !traits.indirect;
  recipe.peaks = again;
  recipe.peak_sets = peak_sets(traits, c.shapes);
  recipe.mean = again > recipe.peak_sets ? 1 : 0;
  // Equal ones. Not for functions: thousands of equal terms are rounded to the same side each, beyond any tolerance.
  if (!traits.math) recipe.integer_range >>= std::min(again, kUsualPeaks);
  LATHE_RETURN_IF_ERROR(fill_inputs(&c, recipe, first));
  c.seed = recipe.seed;
  cases.push_back(std::move(c));
  return {};
}

// The reference of a case, which interprets: most of the time there is.
Status Oracle::Impl::compute(OracleCase* c) const {
  const HostData host = c->host();
  ReferenceRequest request{&task.naive, &c->shapes, &host, c->kind,
                           c->kind == DataKind::normal && traits.sums && !traits.math};
  LATHE_ASSIGN(c->reference, make_reference(*c->sampled, c->sampled->choose(c->budget, c->seed), request, traits));
  return {};
}

Status Oracle::Impl::prepare() {
  if (prepared) return {};
  cases.clear();
  cases.reserve(5 + 2 * kMostPeaks);
  traits = kernel_traits(task.naive);
  LATHE_RETURN_IF_ERROR(add_case(task.dims, DataKind::integers, nullptr, task.budget));
  int64_t bytes = 0;
  for (const OperandShape& s : cases[0].shapes) bytes += s.bytes();
  LATHE_RETURN_IF_ERROR(add_case(task.dims, DataKind::normal, &cases[0], task.budget / 2));
  if (bytes <= kLargeTask) LATHE_RETURN_IF_ERROR(add_case(task.dims, DataKind::wide, &cases[0], task.budget / 2));
  // Few rows: what is wrong only where one is larger than the next may be right by chance.
  const int further = bytes <= kTinyTask ? peak_sets(traits, cases[0].shapes) : bytes <= kSmallTask ? 1 : 0;
  for (int again = 1; again <= further; ++again) {
    LATHE_RETURN_IF_ERROR(add_case(task.dims, DataKind::integers, &cases[0], task.budget / 4, again));
    LATHE_RETURN_IF_ERROR(add_case(task.dims, DataKind::normal, &cases[0], task.budget / 4, again));
  }
  // Of rows whose mean is near 0, nothing shows that it is not subtracted.
  if (bytes <= kTinyTask && traits.math && traits.sums)
    LATHE_RETURN_IF_ERROR(add_case(task.dims, DataKind::normal, &cases[0], task.budget / 4, further + 1));
  const SymbolValues small = shrunken(task.naive, task.dims);
  if (!small.empty() && bytes <= kLargeTask) {
    LATHE_RETURN_IF_ERROR(add_case(small, DataKind::integers, nullptr, task.budget / 2));
  }
  LATHE_RETURN_IF_ERROR(for_each_index(arena, cases.size(), [&](size_t i) { return compute(&cases[i]); }));
  prepared = true;
  return {};
}

// The cases with the references that the Stage's moves ask for.
Result<Oracle::Impl::Redefined*> Oracle::Impl::redefine(const Stage& stage) {
  std::string key;
  for (const search::Move& m : search::redefining_moves(stage.schedule)) key += search::to_text(m) + "\n";
  const auto [known, is_new] = redefined.try_emplace(key);
  Redefined& out = known->second;
  if (!is_new && !out.cases.empty()) return &out;
  LATHE_ASSIGN(const ir::Kernel kernel, search::redefined(task.naive, stage.schedule));
  std::vector<OracleCase> made = cases;
  for (size_t i = 0; i < made.size(); ++i) {
    tell();
    OracleCase& c = made[i];
    LATHE_ASSIGN(SampledKernel sampled, SampledKernel::create(kernel, c.symbols));
    LATHE_ASSIGN(std::vector<std::vector<int64_t>> picks, same_picks(*c.sampled, sampled, c.reference.picks, c.shapes));
    c.sampled = std::make_shared<const SampledKernel>(std::move(sampled));
    c.baseline.clear();
    const HostData host = c.host();
    const bool integers = (stage.schedule.numeric & ir::kQuantisedActivations) != 0 && has_first_part(kernel);
    const ReferenceRequest request{&kernel, &c.shapes, &host, c.kind, false, integers};
    LATHE_ASSIGN(c.reference, make_reference(*c.sampled, std::move(picks), request, traits));
    if (c.kind == DataKind::normal)
      out.error = std::max(out.error, quantisation_error(cases[i].reference, c.reference));
  }
  out.cases = std::move(made);
  return &out;
}

Status Oracle::Impl::walk_once(const Stage& stage, const BoundExecutable& bound, OracleCase* c, GuardSide side,
                               std::vector<GuardMemory>* outs, std::string* broken) {
  tell();
  std::vector<void*> args;
  num_regions = 0;
  for (size_t i = 0; i < c->shapes.size(); ++i) {
    const OperandShape& s = c->shapes[i];
    if (s.place == ir::Place::out) {
      LATHE_ASSIGN(GuardMemory memory, GuardMemory::map(static_cast<size_t>(s.bytes()), ir::dtype_bytes(s.type), side));
      if (s.kept) {
        std::memcpy(memory.data(), c->inputs[i]->at(side), static_cast<size_t>(s.bytes()));
      } else {
        poison(s.type, memory.data(), s.span);
      }
      args.push_back(memory.data());
      outs->push_back(std::move(memory));
    } else {
      outs->emplace_back();
      args.push_back(c->inputs[i]->at(side));
      for (const PackedParam& p : stage.packed) {
        if (p.param != static_cast<int>(i)) continue;
        LATHE_ASSIGN(args.back(), packed_input(c, p, side));
      }
    }
    remember(s.name.c_str(), static_cast<const char*>(args.back()), s.bytes());
  }
  LATHE_ASSIGN(GuardMemory workspace, GuardMemory::map(static_cast<size_t>(bound.workspace_bytes()), 64, side));
  poison_scratch(workspace.data(), bound.workspace_bytes(), side == GuardSide::before);
  remember("scratch", workspace.data(), bound.workspace_bytes());
  if (broken != nullptr && stage.executable->cpu_nest() != nullptr) {
    const CpuNest& nest = stage.nest();
    LATHE_ASSIGN(const BoundNest probed, bind_nest(nest.cut, c->symbols, c->layouts, task.threads));
    const ProbedLeaves watched(nest.leaves, kWatchedCalls);
    walk(probed, watched.data(), args.data(), workspace.data(), team);
    *broken = watched.broken();
  } else {
    bound.run(args.data(), workspace.data(), team);
  }
  num_regions = 0;
  return {};
}

void Oracle::Impl::compare(const OracleCase& c, const Reference& reference, const std::vector<const char*>& outs,
                           Verdict* verdict) const {
  size_t cell = 0;
  const double u = 0x1p-24;
  const int64_t cells = std::max<int64_t>(static_cast<int64_t>(reference.real.size()), 1);
  std::vector<int64_t> counts;
  for (const auto& p : reference.picks) counts.push_back(static_cast<int64_t>(p.size()));
  const double terms = std::max({1.0, static_cast<double>(c.sampled->steps(counts)) / static_cast<double>(cells),
                                 static_cast<double>(c.sampled->running_terms())});
  for (size_t i = 0; i < c.shapes.size(); ++i) {
    const OperandShape& s = c.shapes[i];
    if (s.place != ir::Place::out) continue;
    c.sampled->for_each_picked(s, reference.picks, [&](int64_t, const std::vector<int64_t>& at) {
      int64_t offset = 0;
      for (size_t d = 0; d < at.size(); ++d) offset += at[d] * s.strides[d];
      const double y = load_element(s.type, outs[i], offset), r = reference.real[cell],
                   tolerance = reference.tolerance[cell];
      const double error = cell_error(s.type, y, r, tolerance);
      if (error > 1 && verdict->ok) {
        verdict->ok = false;
        verdict->reason =
            fmt::format("{} = {:.9g}, expected {:.9g} within {:.3g} ({} data, gate {})", cell_name(s, offset), y, r,
                        tolerance, data_kind_name(c.kind), gate_name(reference.gate));
      }
      verdict->err_over_bound = std::max(verdict->err_over_bound, error);
      if (c.kind == DataKind::normal && !reference.magnitude.empty() && reference.magnitude[cell] > 0) {
        const double of_sum = std::max(std::abs(y - r) - output_rounding(s.type, r), 0.0);
        verdict->rho = std::max(verdict->rho, of_sum / (std::sqrt(terms) * u * reference.magnitude[cell]));
      }
      ++cell;
    });
  }
}

// Two Stages differ in a cell where every order of summation gives the same bits: one of them is
// wrong.
Status Oracle::Impl::judge(OracleCase* c, size_t param, int64_t offset, const std::vector<const char*>& outs,
                           Verdict* verdict) {
  const OperandShape& s = c->shapes[param];
  const std::vector<int64_t> at = cell_index(s, offset);
  std::vector<std::vector<int64_t>> picks;
  for (int k = 0; k < c->sampled->num_classes(); ++k) picks.push_back({0});
  for (size_t d = 0; d < at.size(); ++d) {
    if (const int k = c->sampled->class_of(s.name, static_cast<int>(d)); k >= 0) picks[k] = {at[d]};
  }
  const HostData host = c->host();
  ReferenceRequest request{&task.naive, &c->shapes, &host, c->kind, false};
  LATHE_ASSIGN(const Reference reference, make_reference(*c->sampled, std::move(picks), request, traits));
  compare(*c, reference, outs, verdict);
  if (verdict->ok) {
    c->baseline.clear();
    ++generation;
  }
  return {};
}

Status Oracle::Impl::run(const Stage& stage, OracleCase* c, Verdict* verdict) {
  LATHE_RETURN_IF_ERROR(check_host_memory(*stage.executable, "verification"));
  LATHE_ASSIGN(const std::unique_ptr<const BoundExecutable> bound,
               stage.executable->bind(c->symbols, c->layouts, task.threads));
  std::vector<GuardMemory> first, second;
  LATHE_RETURN_IF_ERROR(walk_once(stage, *bound, c, GuardSide::after, &first));
  // The calling convention is watched while the code runs anyway.
  LATHE_RETURN_IF_ERROR(walk_once(stage, *bound, c, GuardSide::before, &second, &verdict->reason));
  if (!verdict->reason.empty()) {
    verdict->ok = false;
    return {};
  }
  std::vector<const char*> outs;
  for (const GuardMemory& m : first) outs.push_back(m.data());
  for (size_t i = 0; i < c->shapes.size() && verdict->ok; ++i) {
    const OperandShape& s = c->shapes[i];
    if (s.place != ir::Place::out || s.span == 0) continue;
    verdict->reason = check_written(s, outs[i]);
    const int64_t differs = verdict->reason.empty() ? first_difference(s, outs[i], second[i].data()) : -1;
    if (differs >= 0) verdict->reason = fmt::format("two runs differ in {}", cell_name(s, differs));
    verdict->ok = verdict->reason.empty();
  }
  if (!verdict->ok) return {};
  const Gate gate = c->reference.gate;
  if (verdict->gate == Gate::none) verdict->gate = gate;
  compare(*c, c->reference, outs, verdict);
  if (!verdict->ok || gate != Gate::exact) return {};
  for (size_t i = 0; i < c->shapes.size() && verdict->ok; ++i) {
    const OperandShape& s = c->shapes[i];
    if (s.place != ir::Place::out || s.span == 0 || c->baseline.size() <= i) continue;
    const int64_t differs = first_difference(s, outs[i], c->baseline[i].data());
    if (differs >= 0) LATHE_RETURN_IF_ERROR(judge(c, i, differs, outs, verdict));
  }
  if (verdict->ok && c->baseline.empty()) {
    for (size_t i = 0; i < c->shapes.size(); ++i) {
      const bool out = c->shapes[i].place == ir::Place::out;
      c->baseline.emplace_back(outs[i], outs[i] + (out ? c->shapes[i].bytes() : 0));
    }
  }
  return {};
}

Oracle::Oracle(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Oracle::~Oracle() = default;

Result<std::unique_ptr<Oracle>> Oracle::create(OracleTask task, ThreadTeam* team, TaskArena* arena) {
  if (task.threads < 1) return ir::invalid("{} threads", task.threads);
  auto impl = std::make_unique<Impl>();
  impl->task = std::move(task);
  impl->team = team;
  impl->arena = arena;
  return std::unique_ptr<Oracle>(new Oracle(std::move(impl)));
}

Result<Verdict> Oracle::verify(const Stage& stage, const std::function<void()>& alive) {
  impl_->alive = &alive;
  const Result<Verdict> out = impl_->verify(stage);
  impl_->alive = nullptr;
  return out;
}

Result<Verdict> Oracle::Impl::verify(const Stage& stage) {
  LATHE_RETURN_IF_ERROR(prepare());
  Verdict verdict;
  verdict.ok = true;
  std::vector<OracleCase>* asked = &cases;
  if (!search::redefining_moves(stage.schedule).empty()) {
    LATHE_ASSIGN(Redefined * other, redefine(stage));
    if (other->error > kMostQuantisationError) {
      verdict.ok = false;
      verdict.reason = fmt::format("quantised activations differ by {:.2g} of the mean square, expected at most {:.2g}",
                                   other->error, kMostQuantisationError);
      return verdict;
    }
    asked = &other->cases;
  }
  for (OracleCase& c : *asked) {
    LATHE_RETURN_IF_ERROR(run(stage, &c, &verdict));
    if (!verdict.ok) return verdict;
  }
  double& first = rho_first;
  if (verdict.rho > kRhoAlarm && verdict.rho > 2 * std::max(first, 0.0)) {
    verdict.ok = false;
    verdict.reason = fmt::format("rho {:.2f} on normal data: honest sums stay below 1.5", verdict.rho);
  } else if (first < 0) {
    first = verdict.rho;
  }
  return verdict;
}

int Oracle::generation() const { return impl_->generation; }

size_t Oracle::describe(const void* address, char* out, size_t size) const {
  const char* p = static_cast<const char*>(address);
  for (int i = 0; i < impl_->num_regions; ++i) {
    const Impl::Region& r = impl_->regions[i];
    if (p < r.first || p >= r.last || size < 40) continue;
    size_t n = 0;
    for (const char* c = r.name; *c && n < size - 32; ++c) out[n++] = *c;
    const bool before = p < r.data;
    uint64_t distance = static_cast<uint64_t>(before ? r.data - p : p - r.data);
    char digits[24];
    int count = 0;
    do digits[count++] = static_cast<char>('0' + distance % 10);
    while ((distance /= 10) != 0);
    for (const char c : {' ', before ? '-' : '+', ' '}) out[n++] = c;
    while (count > 0) out[n++] = digits[--count];
    return n;
  }
  return 0;
}

}  // namespace lathe::runtime
