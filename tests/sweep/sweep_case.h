// How a graph is swept: prepared as the first call does on each level of this CPU (the portable tier, then the default
// Schedule's code), run between guard pages at given sizes, compared with the oracle. What is refused, or left to the
// portable tier on a level that has code, fails.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jit/host/host_cpu.h"
#include "runtime/oracle/oracle.h"
#include "runtime/serve/operator.h"
#include "tests/common/generators.h"

namespace lathe::runtime {

constexpr int64_t kBudget = 6000;  // statements interpreted per data set

// What runs when code faults; the signal then takes its course.
inline char running[512];
inline void say_what_runs(int signal) {
  (void)!write(STDERR_FILENO, running, strlen(running));
  std::signal(signal, SIG_DFL);
}

struct Level {
  std::string name;
  std::shared_ptr<Context> context;
};

// One context per level for all tests: leaves are made once.
inline const std::vector<Level>& levels() {
  static const std::vector<Level> kLevels = [] {
    std::signal(SIGSEGV, say_what_runs);
    std::vector<Level> out;
    for (int row = 0; row < ir::kIsaLevels; ++row) {
      const auto level = static_cast<ir::IsaLevel>(row);
      if (!jit::host_target().has(level)) continue;
      ContextConfig config;
      EXPECT_TRUE(config.options.set("max_isa", ir::isa_name(level)).ok());
      EXPECT_TRUE(config.options.set("cache", "off").ok());
      auto context = Context::create(std::move(config));
      EXPECT_TRUE(context.ok()) << context.status().to_string();
      out.push_back({ir::isa_name(level), std::move(context).value()});
    }
    return out;
  }();
  return kLevels;
}

// Why no code is made.
inline std::string refusal(const search::Problem& problem, const Level& level) {
  LeafPolicy policy;
  policy.forced = true;
  const ir::Target& target = level.context->target();
  return build_stage(problem.kernel, search::default_schedule(problem, target), target, level.context->leaves(), policy)
      .status()
      .to_string();
}

class Case {
 public:
  Case(const ops::Graph& graph, std::string what) : graph_(graph), what_(std::move(what)) {}

  // Prepares the graph on every level, then verifies all that serves it at each of these dims.
  void run(const std::vector<SymbolValues>& shapes, int hint_every) {
    for (const Level& level : levels()) {
      SCOPED_TRACE(what_ + " on " + level.name);
      auto op = Operator::create(level.context, graph_);
      ASSERT_TRUE(op.ok()) << op.status().to_string();
      const auto info = (*op)->stages().prepare({});
      EXPECT_TRUE(info.ok()) << "refused: " << info.status().to_string();
      if (!info.ok()) continue;
      // Where no code is made at once, leaves that LLVM made for the hint of an earlier case may serve all the same.
      if (test::generates(level.context->target()))
        EXPECT_EQ(info->tier, 1) << "no code is made for it: " << refusal((*op)->general_problem(0, true, {}), level);
      prepared_.emplace_back(&level, *op);
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      const bool hint = hint_every > 0 && i % static_cast<size_t>(hint_every) == 0;
      verify(shapes[i], hint);
    }
  }

 private:
  void verify(const SymbolValues& dims, bool hint) {
    std::string at;
    for (const auto& [name, value] : dims) at += fmt::format(" {}={}", name, value);
    std::vector<std::unique_ptr<Oracle>> oracles;
    for (const auto& [level, op] : prepared_) {
      SCOPED_TRACE(what_ + at + " on " + level->name);
      snprintf(running, sizeof running, "fault in %s%s on %s\n", what_.c_str(), at.c_str(), level->name.c_str());
      CallShape call;
      call.symbols = dims;
      const auto bound = op->shapes().bound(call);
      EXPECT_TRUE(bound.ok()) << "refused: " << bound.status().to_string();
      if (!bound.ok()) continue;
      for (size_t k = 0; hint && k < op->lowered().kernels.size(); ++k)
        check_hint(*level, *op, static_cast<int>(k), dims, (*bound)->empty);
      if ((*bound)->empty) continue;
      for (size_t k = 0; k < op->lowered().kernels.size(); ++k) {
        if (oracles.size() <= k) {
          auto oracle =
              Oracle::create({op->general_problem(static_cast<int>(k), true, {}).kernel, dims, 1, 0, kBudget}, nullptr);
          ASSERT_TRUE(oracle.ok()) << oracle.status().to_string();
          oracles.push_back(std::move(*oracle));
        }
        for (const auto& served : op->stages().of(static_cast<int>(k)))
          check(*oracles[k], served->stage, served->packed ? "" : "constants as they lie");
      }
    }
  }

  static void check(Oracle& oracle, const Stage& stage, const char* which) {
    const auto verdict = oracle.verify(stage);
    EXPECT_TRUE(verdict.ok()) << "not checked: " << verdict.status().to_string();
    EXPECT_TRUE(!verdict.ok() || verdict->ok)
        << verdict->reason << "; " << which << " " << search::to_text(stage.schedule);
  }

  // What warm-up starts from where these dims are hinted: the default Schedule over their range, or what is simpler.
  static void check_hint(const Level& level, const Operator& op, int kernel, const SymbolValues& dims, bool empty) {
    const search::Problem problem = op.problem(kernel, dims, {});
    const ir::Target& target = level.context->target();
    const auto build = [&](const search::Schedule& s) {
      return build_stage(problem.kernel, s, target, level.context->leaves(), level.context->leaf_policy());
    };
    auto stage = build(search::default_schedule(problem, target));
    for (const search::Scheduled& simpler : search::simpler_schedules(problem, target)) {
      if (!stage.ok() || stage->portable == level.context->leaves().native(target)) stage = build(simpler.schedule);
    }
    EXPECT_TRUE(stage.ok()) << "refused for its hint: " << stage.status().to_string();
    if (!stage.ok()) return;
    EXPECT_EQ(stage->portable, !level.context->leaves().native(target))
        << "no code is made for its hint: " << refusal(problem, level);
    if (empty) return;
    auto oracle = Oracle::create({problem.kernel, dims, 1, 0, kBudget}, nullptr);
    ASSERT_TRUE(oracle.ok()) << oracle.status().to_string();
    check(**oracle, *stage, "for its hint");
  }

  const ops::Graph& graph_;
  std::string what_;
  std::vector<std::pair<const Level*, std::shared_ptr<Operator>>> prepared_;
};

}  // namespace lathe::runtime
