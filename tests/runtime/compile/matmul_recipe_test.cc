// The matmul recipe's predicate is the space: what it accepts the generators make, every operator of the workloads gets
// a default it accepts, and the number of configurations stays searchable.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "ops/lower.h"
#include "ops/manifest.h"
#include "runtime/compile/compiler.h"
#include "runtime/oracle/oracle.h"
#include "search/sketches/recipe.h"
#include "tests/common/generators.h"
#include "tests/common/machines.h"

namespace lathe::runtime {
namespace {

using search::Knobs;
using search::Problem;

std::vector<ir::Target> targets() {
  ir::Target portable, avx2, avx512;
  avx2.level = ir::IsaLevel::avx2;
  avx512.level = ir::IsaLevel::avx512;
  avx512.lanes = 16;
  avx512.vector_registers = 32;
  avx512.mask_registers = 7;
  return {portable, avx2, avx512};
}

Problem matmul(const std::string& m, int64_t n, int64_t k, bool cold, ir::SymbolValues dims = {},
               const char* out = "c[m, n]") {
  Problem p;
  const std::string where = dims.empty() ? "" : " where M in 1..64";
  p.kernel =
      ir::parse_kernel(
          fmt::format(R"(kernel mm(a: f32[{0}, {2}] in, w: f32[{2}, {1}] const, y: f32[{0}, {1}] out) family matmul{3}
  c: f32[{0}, {1}] heap
  for m < {0} [m]:
    for n < {1} [n]:
      c[m, n] = 0.0
      for k < {2} [k]:
        c[m, n] += a[m, k] * w[k, n]
      y[m, n] = {4}
)",
                      m, n, k, where, out))
          .value();
  p.dims = std::move(dims);
  p.cold = cold;
  return p;
}

// The same with operands of these types, the result of a's.
Problem typed(Problem p, const std::string& a, const std::string& w) {
  std::string text = ir::print(p.kernel);
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
  };
  replace("a: f32", "a: " + a);
  replace("w: f32", "w: " + w);
  replace("y: f32", "y: " + a);
  if (a != "f32") replace("= c[m, n]", fmt::format("= {}(c[m, n])", a));
  if (a != "f32") replace("a[m, k]", "f32(a[m, k])");
  if (w != "f32") replace("w[k, n]", "f32(w[k, n])");
  p.kernel = ir::parse_kernel(text).value();
  return p;
}

// Of bench/; empty if it cannot be read.
std::vector<ops::Workload> manifest(const std::string& name) {
  std::ifstream in(std::string(LATHE_SOURCE_DIR) + "/bench/" + name + ".jsonl");
  std::stringstream text;
  text << in.rdbuf();
  ir::Result<std::vector<ops::Workload>> items = ops::parse_manifest(text.str());
  return items.ok() ? std::move(*items) : std::vector<ops::Workload>{};
}

template <class F>
void for_each_tuple(const std::vector<search::KnobDomain>& domains, F&& f) {
  Knobs k;
  const auto visit = [&](const auto& self, size_t d) -> void {
    if (d == domains.size()) return f(k);
    for (const int64_t v : domains[d].values) {
      k[domains[d].name] = v;
      self(self, d + 1);
    }
  };
  visit(visit, 0);
}

int accepted(const Problem& p, const ir::Target& t) {
  int n = 0;
  for_each_tuple(search::kMatmulRecipe.knobs(p, t),
                 [&](const Knobs& k) { n += search::kMatmulRecipe.accepts(k, p, t).ok(); });
  return n;
}

TEST(MatmulRecipe, accepts_what_the_generators_make_and_computes_it) {
  if (!jit::host_target().has(ir::IsaLevel::avx2)) GTEST_SKIP() << "needs AVX2: nothing is generated for this machine";
  for (const ir::IsaLevel level : {ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
    const ir::Target t = jit::host_target().cap(level);
    if (t.level != level) continue;
    const std::pair<Problem, SymbolValues> problems[] = {{matmul("6", 128, 320, true), {}},
                                                         {matmul("1", 256, 64, true), {}},
                                                         {matmul("33", 72, 65, false), {}},
                                                         {matmul("M", 128, 300, true, {{"M", 9}}), {{"M", 9}}},
                                                         {typed(matmul("6", 129, 320, true), "bf16", "bf16"), {}},
                                                         {typed(matmul("33", 72, 65, false), "f32", "f16"), {}},
                                                         {typed(matmul("5", 70, 96, false), "f16", "bf16"), {}},
                                                         {matmul("33", 72, 65, false, {}, "cos(c[m, n])"), {}}};
    for (const auto& [p, dims] : problems) {
      LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
      auto oracle = Oracle::create({p.kernel, dims, 1, 7}, nullptr);
      ASSERT_TRUE(oracle.ok());
      int seen = 0, made = 0;
      for_each_tuple(search::kMatmulRecipe.knobs(p, t), [&](const Knobs& k) {
        // A prime step: every value of every knob turns up, with many of the others.
        if (!search::kMatmulRecipe.accepts(k, p, t).ok() || seen++ % 11 != 0) return;
        const auto schedule = search::kMatmulRecipe.build(k, p, t);
        ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
        LeafPolicy policy;
        policy.llvm = false;
        const auto stage = build_stage(p.kernel, *schedule, t, leaves, policy);
        ASSERT_TRUE(stage.ok()) << search::to_text(*schedule) << stage.status().to_string();
        EXPECT_EQ(stage->portable, !test::generates(t)) << search::to_text(*schedule);
        const auto verdict = (*oracle)->verify(*stage);
        ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
        EXPECT_TRUE(verdict->ok) << search::to_text(*schedule) << verdict->reason;
        ++made;
      });
      EXPECT_GT(made, 2);
    }
  }
}

TEST(MatmulRecipe, refuses_what_is_no_setting) {
  const ir::Target t = targets()[2];
  const Problem p = matmul("16", 512, 1024, true);
  const Knobs good = search::kMatmulRecipe.defaults(p, t);
  ASSERT_TRUE(search::kMatmulRecipe.build(good, p, t).ok());
  const std::pair<const char*, int64_t> bad[] = {{"mr", 0}, {"mr", -4}, {"nr", 0},   {"nr", 24}, {"nr", -32},
                                                 {"st", 0}, {"kc", -1}, {"mc", -96}, {"pf", -2}};
  for (const auto& [name, value] : bad) {
    Knobs k = good;
    k[name] = value;
    EXPECT_FALSE(search::kMatmulRecipe.accepts(k, p, t).ok()) << name << " " << value;
    EXPECT_FALSE(search::kMatmulRecipe.build(k, p, t).ok()) << name << " " << value;
  }
  EXPECT_FALSE(search::kMatmulRecipe.accepts({}, p, t).ok());
  EXPECT_FALSE(search::kMatmulRecipe.build({}, p, t).ok());
}

// The tasks that are measured, those with a batch and two threads among them.
std::vector<Problem> measured_problems() {
  std::vector<Problem> out;
  for (const ops::Workload& w : manifest("tables/tasks")) {
    const auto graph = ops::finish(w.graph);
    const auto lowered = graph.ok() ? ops::lower(*graph) : ir::Result<ops::Lowered>(graph.status());
    if (!lowered.ok() || lowered->kernels.size() != 1 || w.dims.size() != 1) continue;
    for (const ops::Hint& hint : w.dims[0].hints) {
      Problem p;
      p.kernel = search::restrict_symbols(lowered->kernels[0].kernel,
                                          {{ops::kernel_symbol(w.dims[0].symbol), {hint.value, hint.value}}});
      p.threads = w.threads;
      p.cold = w.cache == ops::CacheState::cold;
      if (search::kMatmulRecipe.matches(p)) out.push_back(std::move(p));
    }
  }
  return out;
}

TEST(MatmulRecipe, whatever_is_accepted_of_a_measured_task_can_be_built) {
  if (!jit::host_target().has(ir::IsaLevel::avx2)) GTEST_SKIP() << "needs AVX2: nothing is generated for this machine";
  std::vector<Problem> problems = measured_problems();
  ASSERT_GT(problems.size(), 25u);
  problems.push_back(matmul("M", 128, 1024, true, {{"M", 9}}));
  problems.back().one_layout = true;
  // Columns that vary, as those of an attention's scores.
  Problem scores;
  scores.kernel =
      ir::parse_kernel(
          R"(kernel scores(a: f32[3, 5, 34] in, b: f32[3, L, 34] in, y: f32[3, 5, L] out) family matmul where L in 1..64
  c: f32[3, 5, L] heap
  for b0 < 3 [batch]:
    for m < 5 [m]:
      for n < L [n]:
        c[b0, m, n] = 0.0
        for k < 34 [k]:
          c[b0, m, n] += a[b0, m, k] * b[b0, n, k]
        y[b0, m, n] = c[b0, m, n]
)")
          .value();
  scores.dims = {{"L", 40}};
  problems.push_back(std::move(scores));
  const ir::Target t = jit::host_target();
  std::mt19937_64 random(5);
  int batched = 0, packs = 0;
  for (const Problem& p : problems) {
    std::vector<Knobs> all;
    for_each_tuple(search::kMatmulRecipe.knobs(p, t), [&](const Knobs& k) {
      if (search::kMatmulRecipe.accepts(k, p, t).ok()) all.push_back(k);
    });
    ASSERT_FALSE(all.empty());
    const bool batch = !search::scopes_with_role(p.kernel, "batch").empty();
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    for (int n = 0; n < 8; ++n) {
      const Knobs& k = all[random() % all.size()];
      const auto schedule = search::kMatmulRecipe.build(k, p, t);
      ASSERT_TRUE(schedule.ok()) << ir::print(p.kernel) << schedule.status().to_string();
      const auto stage = build_stage(p.kernel, *schedule, t, leaves, {.llvm = false, .portable = !test::generates(t)});
      ASSERT_TRUE(stage.ok()) << ir::print(p.kernel) << search::to_text(*schedule) << stage.status().to_string();
      batched += batch;
      packs += batch && k.at("pa") != 0;
    }
  }
  EXPECT_GT(batched, 20);
  EXPECT_GT(packs, 5);
}

TEST(MatmulRecipe, packs_the_rows_of_a_batch_and_of_a_block) {
  const ir::Target t = jit::host_target();
  if (!t.has(ir::IsaLevel::avx2)) GTEST_SKIP() << "needs AVX2: nothing is generated for this machine";
  Problem batched;
  batched.kernel =
      ir::parse_kernel(R"(kernel bm(a: f32[3, 21, 34] in, b: f32[3, 40, 34] in, y: f32[3, 21, 40] out) family matmul
  c: f32[3, 21, 40] heap
  for b0 < 3 [batch]:
    for m < 21 [m]:
      for n < 40 [n]:
        c[b0, m, n] = 0.0
        for k < 34 [k]:
          c[b0, m, n] += a[b0, m, k] * b[b0, n, k]
        y[b0, m, n] = c[b0, m, n]
)")
          .value();
  const std::pair<Problem, int64_t> problems[] = {{batched, 0}, {matmul("200", 80, 40, false), 96}};
  for (const auto& [p, mc] : problems) {
    const Knobs k = {{"mr", 4}, {"nr", 2 * t.lanes}, {"st", 1}, {"kc", 0}, {"mc", mc}, {"pa", 1}, {"pf", 0}};
    ASSERT_TRUE(search::kMatmulRecipe.accepts(k, p, t).ok());
    LeafCache leaves(LeafCacheOptions{}, nullptr, nullptr);
    const auto schedule = search::kMatmulRecipe.build(k, p, t);
    ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
    const auto stage = build_stage(p.kernel, *schedule, t, leaves, {.llvm = false, .portable = !test::generates(t)});
    ASSERT_TRUE(stage.ok()) << stage.status().to_string();
    const auto verdict = Oracle::create({p.kernel, {}, 1, 7}, nullptr).value()->verify(*stage);
    ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
    EXPECT_TRUE(verdict->ok) << search::to_text(*schedule) << verdict->reason;
  }
}

// The functions of a result as a pass of their own: the same values, from less code.
TEST(MatmulRecipe, functions_pass_over_scratch) {
  const ir::Target t = jit::host_target();
  if (!t.has(ir::IsaLevel::avx2)) GTEST_SKIP() << "needs AVX2: nothing is generated for this machine";
  for (const Problem& p : {matmul("M", 8 * t.lanes, 70, false, {{"M", 33}}, "c[m, n] * normal_cdf(c[m, n])"),
                           matmul("7", 2 * t.lanes + 3, 40, false, {}, "tanh(c[m, n])")}) {
    const bool whole = !p.dims.empty();
    for (const int64_t st : {1, 2}) {
      if (st > 1 && !whole) continue;
      int64_t bytes[2] = {};
      for (const int64_t ep : {0, 1}) {
        const Knobs k = {
            {"mr", 2}, {"nr", 2 * t.lanes}, {"st", t.lanes == 16 ? st : 1}, {"kc", 0}, {"mc", 0}, {"ep", ep}, {"pa", 0},
            {"pf", 0}};
        Problem q = p;
        q.one_layout = whole;
        const ir::Status accepted = search::kMatmulRecipe.accepts(k, q, t);
        if (!accepted.ok() && ep == 0) continue;  // no registers left at this level
        ASSERT_TRUE(accepted.ok()) << accepted.to_string();
        const auto schedule = search::kMatmulRecipe.build(k, q, t);
        ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
        LeafCacheOptions options;
        options.keep_images = true;
        LeafCache leaves(options, nullptr, nullptr);
        const auto stage =
            build_stage(q.kernel, *schedule, t, leaves, {.llvm = false, .portable = !test::generates(t)});
        ASSERT_TRUE(stage.ok()) << stage.status().to_string();
        for (const auto& image : stage->images) bytes[ep] += static_cast<int64_t>(image->code.size());
        for (const int64_t m : {1, 2, 33}) {
          const auto verdict =
              Oracle::create({q.kernel, whole ? SymbolValues{{"M", m}} : SymbolValues{}, 1, 7}, nullptr)
                  .value()
                  ->verify(*stage);
          ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
          EXPECT_TRUE(verdict->ok) << search::to_text(*schedule) << verdict->reason;
        }
      }
      EXPECT_TRUE(bytes[0] == 0 || bytes[1] < bytes[0]) << bytes[1] << " " << bytes[0];
    }
  }
  const Problem plain = matmul("33", 64, 70, false);
  EXPECT_FALSE(search::kMatmulRecipe.accepts({{"mr", 2}, {"nr", 2 * t.lanes}, {"ep", 1}}, plain, t).ok())
      << "nothing to pass over scratch for";
}

TEST(MatmulRecipe, domains_hold_all_that_is_accepted) {
  // Brute force over more values than the domains have: whatever the predicate accepts of them is in the domains.
  const std::vector<search::KnobDomain> wide = {{"mr", {0, 1, 2, 3, 4, 6, 8, 14, 28}},
                                                {"nr", {16, 32, 48, 64}},
                                                {"st", {1, 2, 4}},
                                                {"kc", {0, 256, 512, 2048}},
                                                {"mc", {0, 96, 192}},
                                                {"pa", {0, 1}},
                                                {"pf", {-1, 0, 4096, 8192}}};
  const ir::Target t = targets()[2];
  for (const Problem& p : {matmul("16", 512, 1024, true), matmul("300", 300, 512, false), matmul("2", 64, 100, true)}) {
    std::map<std::string, std::vector<int64_t>> domain;
    for (const search::KnobDomain& d : search::kMatmulRecipe.knobs(p, t)) domain[d.name] = d.values;
    int inside = 0;
    for_each_tuple(wide, [&](const Knobs& k) {
      if (k.at("mr") == 0 || !search::kMatmulRecipe.accepts(k, p, t).ok()) return;
      ++inside;
      for (const auto& [name, value] : k) {
        const std::vector<int64_t>& v = domain[name];
        EXPECT_NE(std::find(v.begin(), v.end(), value), v.end()) << name << " " << value;
      }
    });
    EXPECT_GT(inside, 20);
  }
}

TEST(MatmulRecipe, spaces_are_searchable) {
  const ir::Target t = targets()[2];
  for (const Problem& p :
       {matmul("8", 4096, 4096, true), matmul("16", 4096, 4096, true), matmul("128", 896, 4864, true),
        matmul("1024", 1024, 1024, false), matmul("197", 768, 768, false), matmul("4", 512, 896, true)}) {
    const int n = accepted(p, t);
    EXPECT_GE(n, 200) << ir::print(p.kernel);
    EXPECT_LE(n, 5000) << ir::print(p.kernel);
  }
}

TEST(MatmulRecipe, old_records_mean_what_they_did) {
  const ir::Target t = targets()[2];
  const Problem p = matmul("16", 512, 1024, true);
  const Knobs old = {{"mr", 8}, {"nr", 32}, {"kc", 512}, {"mc", 0}, {"pf", -1}};
  Knobs now = old;
  now["st"] = 1;
  now["pa"] = 0;
  ASSERT_TRUE(search::kMatmulRecipe.accepts(old, p, t).ok());
  search::Schedule a = search::kMatmulRecipe.build(old, p, t).value(),
                   b = search::kMatmulRecipe.build(now, p, t).value();
  a.knobs = b.knobs = {};
  EXPECT_EQ(search::to_text(a), search::to_text(b));
}

TEST(MatmulRecipe, every_operator_of_the_workloads_has_an_accepted_default) {
  std::vector<ir::Target> all = targets();
  for (const test::Machine& m : test::machines()) all.push_back(m.target);
  int problems = 0;
  for (const char* name : {"limits", "qwen2.5-0.5b", "smollm2-135m", "minilm-l6", "bert-base", "llama3-8b-layer",
                           "odd_shapes", "narrow_products"}) {
    const std::vector<ops::Workload> items = manifest("workloads/" + std::string(name));
    ASSERT_FALSE(items.empty()) << name;
    for (const ops::Workload& item : items) {
      const auto graph = ops::finish(item.graph);
      ASSERT_TRUE(graph.ok());
      const auto lowered = ops::lower(*graph);
      ASSERT_TRUE(lowered.ok());
      for (const ops::LoweredKernel& kernel : lowered->kernels) {
        Problem p;
        p.kernel = kernel.kernel;
        p.one_layout = !p.kernel.symbols.empty();
        p.threads = item.threads;
        p.cold = item.cache == ops::CacheState::cold;
        for (const ir::Symbol& s : p.kernel.symbols)
          p.dims[s.name] = std::max<int64_t>(s.min, std::min<int64_t>(s.max, 8));
        if (!search::kMatmulRecipe.matches(p)) continue;
        for (const ir::Target& t : all) {
          const Knobs k = search::kMatmulRecipe.defaults(p, t);
          ASSERT_FALSE(k.empty()) << item.name << " " << t.to_string();
          EXPECT_TRUE(search::kMatmulRecipe.accepts(k, p, t).ok()) << item.name << " " << t.to_string();
          EXPECT_TRUE(search::kMatmulRecipe.build(k, p, t).ok()) << item.name << " " << t.to_string();
          ++problems;
        }
      }
    }
  }
  EXPECT_GT(problems, 100);
}

// The first call of an operator waits until its default's code is made, for every row count at once: that is bounded by
// how much it is.
TEST(MatmulRecipe, defaults_where_rows_vary_are_little_code) {
  const ir::Target t = jit::host_target();
  if (!t.has(ir::IsaLevel::avx512) || !test::generates(t)) GTEST_SKIP() << "needs AVX-512: the bound is for its code";
  int seen = 0;
  for (const char* name : {"qwen2.5-0.5b", "minilm-l6", "llama3-8b-layer"}) {
    const std::vector<ops::Workload> items = manifest("workloads/" + std::string(name));
    ASSERT_FALSE(items.empty()) << name;
    for (const ops::Workload& item : items) {
      const auto graph = ops::finish(item.graph);
      const auto lowered = graph.ok() ? ops::lower(*graph) : ir::Result<ops::Lowered>(graph.status());
      ASSERT_TRUE(lowered.ok()) << item.name;
      for (const ops::LoweredKernel& kernel : lowered->kernels) {
        Problem p;
        p.kernel = kernel.kernel;
        p.one_layout = !p.kernel.symbols.empty();
        p.cold = item.cache == ops::CacheState::cold;
        for (const auto& d : item.dims) p.dims[ops::kernel_symbol(d.symbol)] = d.hints.back().value;
        if (!search::kMatmulRecipe.matches(p)) continue;
        const auto schedule = search::kMatmulRecipe.build(search::kMatmulRecipe.defaults(p, t), p, t);
        ASSERT_TRUE(schedule.ok()) << item.name << schedule.status().to_string();
        LeafCacheOptions options;
        options.keep_images = true;
        LeafCache leaves(options, nullptr, nullptr);
        const auto stage =
            build_stage(p.kernel, *schedule, t, leaves, {.llvm = false, .portable = !test::generates(t)});
        ASSERT_TRUE(stage.ok()) << item.name << stage.status().to_string();
        size_t bytes = 0;
        for (const auto& image : stage->images) bytes += image->code.size();
        // A panel that is transposed has its squares besides: stored whole, and as wide as the last one is.
        const bool transposes = search::to_text(*schedule).find("tensorize bt_0 transpose") != std::string::npos;
        // Tiles of up to 32 rows are taller: few of them read the weight again.
        const bool few = std::any_of(p.dims.begin(), p.dims.end(), [](const auto& d) { return d.second <= 32; });
        EXPECT_LE(bytes, transposes ? 10500u : few ? 8500u : 6000u) << item.name << " " << search::to_text(*schedule);
        ++seen;
      }
    }
  }
  EXPECT_GT(seen, 20);
}

}  // namespace
}  // namespace lathe::runtime
