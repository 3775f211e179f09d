// Features and the analytic stage from a Structure. See features.h.
#include "search/model/features.h"

#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"

namespace lathe::search {

namespace {

constexpr double kLine = 64, kPage = 4096, kUsable = 0.75;  // of a cache's capacity

float logged(double x) { return static_cast<float>(std::log2(1 + std::max(x, 0.0))); }
float signed_log(int64_t v) { return v < 0 ? -logged(-static_cast<double>(v)) : logged(static_cast<double>(v)); }

double stride_class(double stride, double element) {
  if (stride == 0) return 0;
  return stride == 1 ? 1 : stride * element <= kLine ? 2 : 3;
}

double total(const std::vector<double>& bytes) {
  double sum = 0;
  for (const double b : bytes) sum += b;
  return sum;
}

struct Traffic {
  std::array<std::vector<double>, 4> bytes;  // into registers, L1, L2, L3; by buffer
};

Traffic traffic_of(const Structure& s, const ir::Target& t) {
  return {{traffic(s, static_cast<double>(t.vector_registers) * t.vector_bytes(), 0),
           traffic(s, kUsable * static_cast<double>(t.l1_bytes), kLine),
           traffic(s, kUsable * static_cast<double>(t.l2_bytes), kLine),
           traffic(s, kUsable * static_cast<double>(t.l3_bytes), kLine)}};
}

AnalyticCost cost_of(const Structure& s, const Traffic& traffic, const ProblemFacts& facts, const MachineRates& r) {
  AnalyticCost c;
  const double share = s.imbalance / facts.threads;
  c.compute = facts.naive.flops * std::max(s.slowdown, 1.0) / r.flops * 1e-3 * share;
  c.l1 = total(traffic.bytes[0]) / r.l1 * 1e-3 * share;
  c.l2 = total(traffic.bytes[1]) / r.l2 * 1e-3 * share;
  c.l3 = total(traffic.bytes[2]) / r.l3 * 1e-3 * share;
  c.dram = total(traffic.bytes[3]) / r.dram * 1e-3 * share * s.stream;
  c.calls = s.calls * share;
  c.tasks = facts.threads > 1 ? s.tasks * share : 0;
  c.barriers = facts.threads > 1 && s.parallel != Axis::none ? 1 + s.barriers : 0;
  c.overhead = c.calls * r.call_us + c.tasks * r.task_us + c.barriers * r.barrier_us;
  return c;
}

// How the tiles and blocks cut the three extents; what is not cut is one piece.
struct Tiling {
  double rows, columns, depth;  // of one tile
  double row_tiles, row_tail, row_padding, column_tail, depth_steps, depth_padding;
};
Tiling tiling_of(const Structure& s, const ProblemFacts& facts) {
  const auto cut = [](double piece, double whole) { return piece > 0 && piece < whole ? piece : std::max(whole, 1.0); };
  const double rows = std::max(facts.naive.rows, 1.0), columns = std::max(facts.naive.columns, 1.0),
               depth = std::max(facts.naive.depth, 1.0);
  Tiling t{};
  t.rows = cut(s.tile_rows, rows);
  t.columns = cut(s.block_columns, columns);
  t.depth = cut(s.block_depth, depth);
  t.row_tiles = std::ceil(rows / t.rows);
  t.row_tail = rows - std::floor(rows / t.rows) * t.rows;
  t.row_padding = t.row_tiles * t.rows / rows;
  t.column_tail = columns / t.columns - std::floor(columns / t.columns);
  t.depth_steps = std::ceil(depth / t.depth);
  t.depth_padding = t.depth_steps * t.depth / depth;
  return t;
}

// What a loop deep in the nest walks again and again: the set inside the outermost loop of an axis.
double set_inside(const Structure& s, Axis axis) {
  for (size_t l = 0; l < s.loops.size(); ++l) {
    if (s.loops[l].axis == axis) return working_set(s, static_cast<int>(l));
  }
  return working_set(s, -1);
}

}  // namespace

const std::array<FeatureInfo, kFeatures>& feature_table() {
  static constexpr std::array<FeatureInfo, kFeatures> kTable = {{
#define LATHE_FEATURE(id, group, text) {#id, #group, text},
#include "search/model/features.def"
#undef LATHE_FEATURE
  }};
  return kTable;
}

std::string feature_hash() {
  std::string names;
  for (const FeatureInfo& f : feature_table()) names += fmt::format("{} {}\n", f.name, f.group);
  return fmt::format("{:016x}", ir::hash_text(names));
}

MachineRates MachineRates::assumed(const ir::Target& target) {
  constexpr double kGHz = 3.5;
  MachineRates r;
  const double lanes = target.level == ir::IsaLevel::portable ? 4 : target.lanes;
  const bool fused = target.level != ir::IsaLevel::portable;
  r.flops = kGHz * lanes * (fused ? 4 : 2);
  r.l1 = kGHz * lanes * 8;
  r.l2 = r.l1 / 3;
  r.l3 = r.l1 / 8;
  r.dram = 18;
  return r;
}

double AnalyticCost::total() const {
  const double memory = std::max({l1, l2, l3, dram});
  return std::max(compute, memory) + kExposed * std::min(compute, memory) + overhead;
}

Featurizer::Featurizer(const Problem& problem, const ir::Target& target, const MachineRates& rates,
                       const Recipe* recipe)
    : task_(std::make_shared<const Task>(Task{problem, target})), rates_(rates), facts_(facts_of(problem)) {
  if (recipe == nullptr) return;
  sketch_ = recipe->sketch(task_->problem, task_->target);
  table_ = recipe->table();
}

std::vector<Featurizer::Named> Featurizer::named(const Knobs& knobs) const {
  std::vector<Named> out;
  for (const auto& [symbol, value] : knobs) {
    const Knob* knob = find_knob(table_, symbol);
    if (knob == nullptr || knob->seen) continue;
    const auto& table = feature_table();
    const auto* row = std::find_if(table.begin(), table.end(),
                                   [&](const FeatureInfo& f) { return f.name == std::string_view(knob->name); });
    if (row != table.end()) out.push_back({static_cast<Feature>(row - table.begin()), value});
  }
  return out;
}

Featurizer::Result Featurizer::of(const Knobs& knobs) const {
  return of(sketch_ ? sketch_->structure(knobs, facts_) : facts_.naive, named(knobs));
}

Featurizer::Result Featurizer::of(const ir::Kernel& scheduled) const {
  Structure s = structure_of(scheduled, task_->problem);
  s.padded = s.flops / std::max(facts_.naive.flops, 1.0);
  s.rows = facts_.naive.rows;
  s.columns = facts_.naive.columns;
  s.depth = facts_.naive.depth;
  Result r = of(s, {});
  return r;
}

std::optional<Featurizer::Result> Featurizer::of(const Knobs& knobs, const std::vector<Move>& extra) const {
  const bool by_recipe = sketch_ != nullptr && !knobs.empty();
  if (by_recipe && extra.empty()) return of(knobs);
  Scheduled own{{.family = task_->problem.kernel.family}, task_->problem.kernel};
  if (by_recipe) {
    ir::Result<Scheduled> made = sketch_->script(knobs);
    if (!made.ok()) return std::nullopt;
    own = std::move(*made);
  }
  Scheduled with = own;
  if (!extend(with, extra).ok()) return std::nullopt;
  return by_recipe ? of(knobs, own.kernel, with.kernel) : of(with.kernel);
}

Featurizer::Result Featurizer::of(const Knobs& knobs, const ir::Kernel& without, const ir::Kernel& with) const {
  Result r = of(knobs);
  const Result before = of(without), after = of(with);
  for (size_t i = 0; i < r.x.size(); ++i) r.x[i] += after.x[i] - before.x[i];
  if (before.us > 0) r.us *= after.us / before.us;
  return r;
}

Featurizer::Result Featurizer::of(const Structure& s, std::span<const Named> knobs) const {
  const Traffic bytes = traffic_of(s, task_->target);
  Result r;
  r.cost = cost_of(s, bytes, facts_, rates_);
  r.us = r.cost.total();
  const auto set = [&](Feature f, double value) { r.x[static_cast<size_t>(f)] = static_cast<float>(value); };
  const auto log = [&](Feature f, double value) { r.x[static_cast<size_t>(f)] = logged(value); };

  log(Feature::k_flops, facts_.naive.flops);
  log(Feature::k_compulsory_bytes, facts_.compulsory_bytes);
  log(Feature::k_intensity, facts_.naive.flops / std::max(facts_.compulsory_bytes, 1.0));
  log(Feature::k_rows, facts_.naive.rows);
  log(Feature::k_columns, facts_.naive.columns);
  log(Feature::k_depth, facts_.naive.depth);
  log(Feature::k_element_in, facts_.element_in);
  log(Feature::k_element_out, facts_.element_out);

  const AnalyticCost& c = r.cost;
  log(Feature::k_predicted_us, r.us);
  log(Feature::k_compute_us, c.compute);
  log(Feature::k_overhead_us, c.overhead);
  log(Feature::k_l1_us, c.l1);
  log(Feature::k_l2_us, c.l2);
  log(Feature::k_l3_us, c.l3);
  log(Feature::k_dram_us, c.dram);
  set(Feature::k_imbalance, s.imbalance);
  set(Feature::k_padded, s.padded);
  set(Feature::k_register_pressure, s.registers / task_->target.vector_registers);
  set(Feature::k_latency_cover, s.tile_rows * s.tile_vectors * s.unroll / 8);
  const double parts[] = {c.compute, c.l1, c.l2, c.l3, c.dram, c.overhead};
  set(Feature::k_bottleneck,
      static_cast<double>(std::max_element(std::begin(parts), std::end(parts)) - std::begin(parts)));

  double compulsory[3] = {1, 1, 1};
  for (const Structure::Buffer& b : s.buffers) {
    if (b.operand >= 0) compulsory[b.operand] = std::max(compulsory[b.operand], b.bytes);
  }
  for (int level = 1; level <= 3; ++level) {
    double moved[3] = {0, 0, 0};
    for (size_t b = 0; b < s.buffers.size(); ++b) {
      const int operand = s.buffers[b].scratch ? 2 : s.buffers[b].operand;
      if (operand >= 0) moved[operand] += bytes.bytes[static_cast<size_t>(level)][b];
    }
    for (int o = 0; o < 3; ++o) {
      r.x[static_cast<size_t>(Feature::k_a_l1) + static_cast<size_t>(3 * (level - 1) + o)] =
          logged(moved[o] / compulsory[o]);
    }
  }
  log(Feature::k_set_l1, set_inside(s, Axis::rows) / static_cast<double>(task_->target.l1_bytes));
  log(Feature::k_set_l2, set_inside(s, Axis::columns) / static_cast<double>(task_->target.l2_bytes));
  log(Feature::k_set_l3, working_set(s, -1) / static_cast<double>(task_->target.l3_bytes));

  log(Feature::k_tile_rows, s.tile_rows);
  log(Feature::k_tile_vectors, s.tile_vectors);
  log(Feature::k_unroll, s.unroll);
  log(Feature::k_block_rows, s.block_rows);
  log(Feature::k_block_columns, s.block_columns);
  log(Feature::k_block_depth, s.block_depth);
  const Tiling t = tiling_of(s, facts_);
  log(Feature::k_panel_bytes, t.depth * t.columns * facts_.element_in);
  log(Feature::k_tile_bytes, t.depth * t.rows * facts_.element_in);
  log(Feature::k_row_tiles, t.row_tiles);
  log(Feature::k_row_tail, t.row_tail);
  set(Feature::k_row_padding, t.row_padding);
  set(Feature::k_column_tail, t.column_tail);
  log(Feature::k_depth_steps, t.depth_steps);
  set(Feature::k_depth_padding, t.depth_padding);
  set(Feature::k_tile_reuse, s.tile_rows * s.tile_vectors / std::max(s.tile_rows + s.tile_vectors, 1.0));
  log(Feature::k_calls, s.calls);
  log(Feature::k_tasks, s.tasks);
  set(Feature::k_parallel_axis, static_cast<double>(s.parallel));
  set(Feature::k_packs_rows, s.packs_rows ? 1 : 0);
  set(Feature::k_packs_columns, s.packs_columns ? 1 : 0);
  log(Feature::k_split_depth, s.split_depth);

  set(Feature::k_stride_class, stride_class(s.innermost_stride, facts_.element_in));
  log(Feature::k_tile_pages, s.tile_rows * std::max(s.row_stride_bytes / kPage, 1.0));
  log(Feature::k_task_lines, facts_.compulsory_bytes / kLine / std::max(s.tasks, 1.0));
  const bool same_sets = s.row_stride_bytes > 0 && std::fmod(s.row_stride_bytes, kPage) == 0 && !s.packs_rows;
  set(Feature::k_set_conflicts, same_sets ? s.tile_rows / std::max(task_->target.l1_ways, 1) : 0);

  set(Feature::k_cold, facts_.cold ? 1 : 0);
  log(Feature::k_threads, facts_.threads);
  log(Feature::k_prefetch_bytes, s.prefetch_bytes);
  set(Feature::k_prefetch_next, s.prefetch_next ? 1 : 0);
  for (const Named& k : knobs) set(k.feature, signed_log(k.value));
  return r;
}

Features features(const Problem& problem, const ir::Target& target, const MachineRates& rates, const Recipe* recipe,
                  const Knobs& knobs) {
  return Featurizer(problem, target, rates, recipe).of(knobs).x;
}

double analytic_us(const Problem& problem, const ir::Target& target, const MachineRates& rates, const Recipe* recipe,
                   const Knobs& knobs) {
  return Featurizer(problem, target, rates, recipe).of(knobs).us;
}

}  // namespace lathe::search
