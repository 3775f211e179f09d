// The suite as another machine (LATHE_TEST_MACHINE): everything that this process and its worker believe of caches and
// rates is what tests/common/machines.def says. Runs before all other tests of the binary; a level that the CPU lacks
// is lowered, and that is a skip with a name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/base/target_text.h"
#include "jit/host/host_cpu.h"
#include "runtime/measure/machine_profile.h"
#include "runtime/serve/context.h"
#include "runtime/tune/tuning_history.h"
#include "tests/common/machines.h"

namespace lathe::runtime {
namespace {

using test::Machine;

MachineProfile profile_of(const Machine& m) { return {m.rates}; }

class AsMachine : public testing::Environment {
 public:
  void SetUp() override {
    const std::string name = test::machine_wanted();
    if (name.empty()) return;
    const Machine* m = test::find_machine(name);
    ASSERT_NE(m, nullptr) << "LATHE_TEST_MACHINE=" << name << ": expected a row of tests/common/machines.def";
    describe_machine(m->target, profile_of(*m));
  }
};
[[maybe_unused]] const testing::Environment* const kAsMachine = testing::AddGlobalTestEnvironment(new AsMachine);

std::shared_ptr<Context> fresh_context() {
  ContextConfig config;
  EXPECT_TRUE(config.options.set("cache", "off").ok());
  return Context::create(std::move(config)).value();
}

TEST(Machine, contexts_believe_the_description) {
  const std::string name = test::machine_wanted();
  if (name.empty()) {
    EXPECT_EQ(fresh_context()->find_profile(), "") << "nobody measured";
    return;
  }
  const Machine& m = *test::find_machine(name);
  const std::shared_ptr<Context> context = fresh_context();
  EXPECT_EQ(context->target().to_string(), m.target.without(~jit::host_features()).to_string());
  EXPECT_EQ(context->find_profile(), to_text(profile_of(m)));
  EXPECT_EQ(machine_profile(*context).values, parse_profile(to_text(profile_of(m)))->values) << "nothing is measured";
}

TEST(Machine, its_level_runs_here) {
  const Machine* m = test::find_machine(test::machine_wanted());
  if (m == nullptr) return;
  const ir::IsaLevel here = jit::host_target().level;
  if (here != m->target.level) {
    GTEST_SKIP() << "the CPU lacks " << ir::isa_name(m->target.level) << ", the level of " << m->name
                 << ": the suite ran with its caches and rates on " << ir::isa_name(here);
  }
  EXPECT_EQ(jit::host_target().extra, m->target.extra & jit::host_features());
}

TEST(Machine, descriptions_are_of_machines) {
  for (const Machine& m : test::machines()) {
    SCOPED_TRACE(m.name);
    const ir::Target& t = m.target;
    EXPECT_EQ(t.l1_bytes % (64 * t.l1_ways), 0);
    EXPECT_LT(t.l1_bytes, t.l2_bytes);
    EXPECT_LT(t.l2_bytes, t.l3_bytes);
    const MachineProfile p = profile_of(m);
    EXPECT_GE(p.values.size(), 15u);
    for (const auto& [rate, value] : p.values) EXPECT_GT(value, 0) << rate;
    for (const ir::DType factors : {ir::DType::f32, ir::DType::bf16, ir::DType::i8})
      EXPECT_GE(p.peak(factors, t).gflops, p.get(peak_name(t))) << "all that it can do is described";
    EXPECT_GE(p.get("fma_avx512"), p.get("fma_avx2"));
    for (const char* how : {"read_", "copy_"}) {
      EXPECT_GT(p.get(std::string(how) + "l1"), p.get(std::string(how) + "l2") * 0.8);
      EXPECT_GT(p.get(std::string(how) + "l2"), p.get(std::string(how) + "l3"));
      EXPECT_GT(p.get(std::string(how) + "l3"), p.get(std::string(how) + "memory"));
    }
  }
}

TEST(Machine, a_feature_may_be_taken_away) {
  const Machine& zen5 = *test::find_machine("zen5");
  const Machine* plain = test::find_machine("zen5-avx512bf16");
  ASSERT_NE(plain, nullptr);
  EXPECT_EQ(plain->target.level, ir::IsaLevel::avx512);
  EXPECT_TRUE(zen5.target.has(ir::kCpu_avx512bf16));
  EXPECT_FALSE(plain->target.has(ir::kCpu_avx512bf16));
  EXPECT_TRUE(plain->target.has(ir::kCpu_avx512vnni));
  EXPECT_EQ(plain->target.lanes, 16);
  EXPECT_EQ(plain->rates, zen5.rates);
  const Machine* narrow = test::find_machine("zen5-avx512dq");
  ASSERT_NE(narrow, nullptr);
  EXPECT_EQ(narrow->target.to_string(), zen5.target.cap(ir::IsaLevel::avx2).to_string()) << "the level goes with it";
  EXPECT_EQ(test::find_machine("zen5-sse9"), nullptr);
  EXPECT_EQ(test::find_machine("zen9-avx2"), nullptr);
}

TEST(Machine, a_target_travels_as_text) {
  for (const Machine& m : test::machines()) {
    const ir::Result<ir::Target> back = ir::parse_target(m.target.to_string());
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(back->to_string(), m.target.to_string());
    EXPECT_EQ(back->level, m.target.level);
    EXPECT_EQ(back->l3_bytes, m.target.l3_bytes);
    EXPECT_EQ(back->extra, m.target.extra);
  }
  const std::string good = ir::Target{}.to_string();
  ASSERT_TRUE(ir::parse_target(good).ok());
  for (const std::string& bad :
       {std::string(), std::string("avx2"), "z80" + good.substr(good.find(' ')), good + " sse", good + " vnni x",
        good.substr(0, good.rfind(' ')), good.substr(0, good.rfind(' ')) + " -1",
        good.substr(0, good.rfind(' ')) + " 2", good.substr(0, good.rfind(' ')) + " 99999999999999999999"}) {
    EXPECT_EQ(ir::parse_target(bad).status().code(), ir::Code::kINVALID) << bad;
  }
}

}  // namespace
}  // namespace lathe::runtime
