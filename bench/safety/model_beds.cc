// See model_beds.h.
#include "bench/safety/model_beds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>

#include "ir/analysis/analysis.h"
#include "ir/analysis/verifier.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "ir/meaning/interpreter.h"
#include "jit/host/host_cpu.h"
#include "ops/lower.h"
#include "ops/samples.h"
#include "runtime/oracle/data_sets.h"
#include "runtime/oracle/guard_memory.h"
#include "runtime/oracle/oracle_case.h"

namespace lathe::safety {
namespace {

using ir::Result;
using ir::Status;

constexpr uint32_t kUsual = ir::kReassociate | ir::kContract, kNarrow = ir::kQuantisedActivations | ir::kBf16Dots;
constexpr int64_t kBudget = 60'000, kSteps = 20'000'000;
constexpr int kDataSets = 12;
constexpr double kRounding = 1e-3;  // of f32 sums, and eight times that of halves

struct BedRow {
  const char *group, *op;
  size_t axis;
  int64_t swept;
  std::vector<int64_t> others;
  int every;
};
const std::vector<BedRow>& bed_rows() {
#define LATHE_LIST(...) {__VA_ARGS__}
#define LATHE_BED(group, op, axis, swept, others, every) {#group, #op, axis, swept, LATHE_LIST others, every},
  static const std::vector<BedRow> kRows = {
#include "bench/safety/model_families.def"
  };
#undef LATHE_BED
#undef LATHE_LIST
  return kRows;
}

void add_form(Bed& bed, const char* name, search::Scheduled scheduled) {
  for (const Form& f : bed.forms) {
    if (ir::print(f.scheduled.kernel) == ir::print(scheduled.kernel)) return;
  }
  std::vector<KernelFault> faults = faults_of(scheduled.kernel);
  bed.forms.push_back({name, std::move(scheduled), std::move(faults)});
}

Result<Bed> make_bed(const BedRow& row, const ops::OpRow& op, int variant) {
  ops::SampleSizes sizes{ops::fixed_dim(row.swept), {}};
  for (const int64_t n : row.others) sizes.others.push_back(ops::fixed_dim(n));
  LATHE_ASSIGN(const ops::Graph graph, ops::sample_graph(op, row.axis, variant, sizes));
  LATHE_ASSIGN(const ops::Graph finished, ops::finish(graph));
  LATHE_ASSIGN(const ops::Lowered lowered, ops::lower(finished));
  Bed bed;
  bed.group = row.group;
  bed.name = fmt::format("{} {}", row.op, variant);
  bed.naive = lowered.kernels.at(0).kernel;
  size_t param = 0;
  for (const ir::Buffer& b : bed.naive.buffers) {
    if (ir::is_param(b.place) && lowered.kernels[0].params.at(param++).rises) bed.rising.insert(b.name);
  }
  search::Scheduled written{{}, bed.naive};
  written.schedule.family = bed.naive.family;
  add_form(bed, "written", std::move(written));
  search::Problem problem;
  problem.kernel = bed.naive;
  problem.allowed = kUsual;
  add_form(bed, "default", search::default_scheduled(problem, jit::host_target()));
  problem.allowed |= kNarrow;
  add_form(bed, "narrow sums", search::default_scheduled(problem, jit::host_target()));
  return bed;
}

// What is written may have a sum of its own for each statement: it is scheduled as any Kernel.
Result<runtime::Stage> build_written(const ir::Kernel& planted, runtime::LeafCache& cache) {
  search::Problem problem;
  problem.kernel = planted;
  problem.allowed = kUsual;
  const ir::Target& target = jit::host_target();
  auto stage =
      runtime::build_stage(planted, search::default_scheduled(problem, target), target, cache, runtime::LeafPolicy{});
  if (stage.ok()) return stage;
  search::Scheduled loops{{}, planted};
  loops.schedule.family = planted.family;
  return runtime::build_stage(planted, loops, target, cache, runtime::LeafPolicy{});
}

// Numbers that are random, few and equal, or near one another; integers that are random, the ends, or in order.
void fill(const ir::Buffer& b, bool rises, int set, std::mt19937_64& random, ir::Tensor* out) {
  std::normal_distribution<double> normal(0, 1);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  int64_t lo = 0, hi = 1;
  if (b.values) {
    lo = ir::evaluate(b.values.lo, {}).value_or(0);
    hi = ir::evaluate(b.values.hi, {}).value_or(lo);
  } else if (b.type == ir::DType::u8) {
    hi = 255;
  } else if (b.type == ir::DType::i8) {
    lo = -128;
    hi = 127;
  } else if (!ir::is_float(b.type) && b.type != ir::DType::b8) {
    lo = INT32_MIN;
    hi = INT32_MAX;
  }
  for (double& v : out->data) {
    if (ir::is_float(b.type)) {
      v = ir::round_to(b.type, set % 3 == 0   ? normal(random)
                               : set % 3 == 1 ? static_cast<double>(below(5) - 2)
                                              : 1 + normal(random) / 8);
    } else {
      v = static_cast<double>(lo + below(static_cast<uint64_t>(hi - lo) + 1));
      if (set % 4 == 3) v = static_cast<double>(below(2) != 0 ? lo : hi);
    }
  }
  if (rises) std::sort(out->data.begin(), out->data.end());
}

using Tensors = std::map<std::string, ir::Tensor>;

Tensors data_set(const ir::Kernel& kernel, const std::set<std::string>& rising, int set) {
  std::mt19937_64 random(static_cast<uint64_t>(set) + 1000);
  Tensors out;
  for (const ir::Buffer& b : kernel.buffers) {
    if (!ir::is_param(b.place) || !ir::has_contents(b)) continue;
    ir::Tensor t;
    int64_t n = 1;
    for (const ir::Expr& d : b.dims) {
      t.dims.push_back(ir::evaluate(d, {}).value_or(0));
      n *= t.dims.back();
    }
    t.data.resize(static_cast<size_t>(n));
    fill(b, rising.count(b.name) != 0, set, random, &t);
    out.emplace(b.name, std::move(t));
  }
  return out;
}

// The first cell of an output that differs by more than this share of it, or of 1.
std::string first_apart(const ir::Kernel& kernel, const Tensors& want, const Tensors& got, double share) {
  for (const ir::Buffer& b : kernel.buffers) {
    if (b.place != ir::Place::out) continue;
    const std::vector<double>&x = want.at(b.name).data, &y = got.at(b.name).data;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
      const double unit = b.type == ir::DType::bf16 || b.type == ir::DType::f16 ? 8 * share : share;
      if (!(std::abs(x[i] - y[i]) <= unit * std::max(1.0, std::abs(x[i]))))
        return fmt::format("{}[{}] = {}, expected {}", b.name, i, y[i], x[i]);
    }
  }
  return "";
}

// What the code makes of the tensors.
Status run_stage(const ir::Kernel& naive, const runtime::Stage& stage, Tensors* tensors) {
  runtime::OracleCase c;
  LATHE_ASSIGN(c.shapes, runtime::operand_shapes(naive, &c.symbols));
  c.layouts = runtime::arg_layouts(naive, c.shapes);
  LATHE_ASSIGN(const auto bound, stage.executable->bind(c.symbols, c.layouts, 1));
  std::vector<void*> args;
  for (const runtime::OperandShape& s : c.shapes) {
    auto memory = std::make_shared<runtime::OperandMemory>();
    LATHE_ASSIGN(memory->sides[0],
                 runtime::GuardMemory::map(static_cast<size_t>(s.bytes()), 64, runtime::GuardSide::before));
    const auto given = tensors->find(s.name);
    for (int64_t i = 0; given != tensors->end() && i < s.span; ++i)
      runtime::store_element(s.type, memory->sides[0].data(), i, given->second.data[static_cast<size_t>(i)]);
    args.push_back(memory->sides[0].data());
    c.inputs.push_back(std::move(memory));
  }
  for (const runtime::PackedParam& p : stage.packed) {
    LATHE_ASSIGN(args.at(static_cast<size_t>(p.param)), runtime::packed_input(&c, p, runtime::GuardSide::before));
  }
  LATHE_ASSIGN(const auto workspace, runtime::GuardMemory::map(static_cast<size_t>(bound->workspace_bytes()), 64,
                                                               runtime::GuardSide::before));
  bound->run(args.data(), workspace.data(), nullptr);
  for (size_t i = 0; i < c.shapes.size(); ++i) {
    const runtime::OperandShape& s = c.shapes[i];
    if (s.place != ir::Place::out) continue;
    ir::Tensor& t = (*tensors)[s.name];
    t.data.resize(static_cast<size_t>(s.span));
    for (int64_t e = 0; e < s.span; ++e)
      t.data[static_cast<size_t>(e)] = runtime::load_element(s.type, static_cast<const char*>(args[i]), e);
  }
  return {};
}

}  // namespace

Result<runtime::Oracle*> Bed::oracle() {
  if (oracle_ == nullptr) {
    LATHE_ASSIGN(oracle_, runtime::Oracle::create({naive, {}, 1, 0, kBudget}, nullptr));
  }
  return oracle_.get();
}

Result<runtime::Stage> Bed::build(const Form& form, const KernelFault& fault, runtime::LeafCache& cache) const {
  ir::Kernel planted = plant(form.scheduled.kernel, fault.number);
  LATHE_RETURN_IF_ERROR(ir::verify(planted));
  Result<runtime::Stage> stage = form.name == "written"
                                     ? build_written(planted, cache)
                                     : runtime::build_stage(naive, search::Scheduled{form.scheduled.schedule, planted},
                                                            jit::host_target(), cache, runtime::LeafPolicy{});
  if (!stage.ok() && stage.status().code() != ir::Code::kUNSUPPORTED)
    return ir::unsupported("{}", stage.status().to_string());
  return stage;
}

Result<std::string> Bed::difference(const Form& form, const KernelFault& fault, const runtime::Stage& stage) const {
  const ir::Kernel right = ir::as_given(form.scheduled.kernel),
                   wrong = ir::as_given(plant(form.scheduled.kernel, fault.number));
  ir::InterpreterOptions options;
  options.arithmetic = ir::Arithmetic::real;
  options.max_steps = kSteps;
  for (int set = 0; set < kDataSets; ++set) {
    const Tensors given = data_set(right, rising, set);
    Tensors want = given, got = given;
    LATHE_RETURN_IF_ERROR(ir::interpret(right, {}, want, options));
    const Status status = ir::interpret(wrong, {}, got, options);
    // Cells that nothing wrote are one thing to the interpreter, and whatever was there to code.
    const std::string expected = status.ok() ? first_apart(right, want, got, 1e-6) : status.to_string();
    if (expected.empty()) continue;
    Tensors made = given;
    LATHE_RETURN_IF_ERROR(run_stage(naive, stage, &made));
    const std::string found = first_apart(right, want, made, kRounding);
    if (!found.empty()) return fmt::format("{} (data {})", found, set);
  }
  return std::string();
}

Result<std::vector<Bed>> make_beds(const std::string& only) {
  std::vector<Bed> out;
  for (const BedRow& row : bed_rows()) {
    if (std::string_view(row.group).find(only) == std::string_view::npos) continue;
    for (const ops::OpRow& op : ops::op_rows()) {
      if (op.name != std::string_view(row.op)) continue;
      for (int v = 0; v < op.family->samples.variants.get()(op); v += row.every) {
        auto bed = make_bed(row, op, v);
        if (!bed.ok()) return bed.status().with_context(fmt::format("{} {}", row.op, v));
        out.push_back(std::move(bed).value());
      }
    }
  }
  return out;
}

}  // namespace lathe::safety
