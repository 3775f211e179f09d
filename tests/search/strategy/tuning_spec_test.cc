// Tuning specs: what they match, what they expand to, and what is refused with its line.
#include "search/strategy/tuning_spec.h"

#include <gtest/gtest.h>

#include "ir/core/text_form.h"

namespace lathe::search {
namespace {

Problem gate(int64_t m) {
  Problem p;
  const auto kernel = ir::parse_kernel(R"(
kernel gate(x: f32[M, 64] in, w: f32[96, 64] const, y: f32[M, 96] out) family matmul where M in 1..64
  c: f32[M, 96] heap
  for m < M [m]:
    for n < 96 [n]:
      c[m, n] = 0.0
      for k < 64 [k]:
        c[m, n] += x[m, k] * w[n, k]
      y[m, n] = c[m, n]
)");
  EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
  p.kernel = *kernel;
  p.dims = {{"M", m}};
  return p;
}

ir::Target avx2() {
  ir::Target t;
  t.level = ir::IsaLevel::avx2;
  return t;
}

TuningSpec spec(const std::string& text) {
  const auto parsed = parse_tuning_spec(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? *parsed : TuningSpec{};
}

TEST(TuningSpec, RoleExtentsAreTakenAtTheDims) {
  EXPECT_EQ(role_extent(gate(5), "m"), 5);
  EXPECT_EQ(role_extent(gate(5), "n"), 96);
  EXPECT_EQ(role_extent(gate(5), "k"), 64);
  EXPECT_EQ(role_extent(gate(5), "row"), std::nullopt);
}

TEST(TuningSpec, TheFirstEntryThatMatchesWins) {
  const TuningSpec s = spec(R"(
spec 1
match matmul n=95              ; another weight
use panel mr=1
match matmul n=%32 m=2..8 cache=hot
use panel mr=2
match matmul isa=avx512
use panel mr=3
match matmul threads=1 name=gate k=64
use panel mr=4
)");
  const auto line = [&](const Problem& p, const ir::Target& t) {
    const SpecEntry* e = find_entry(s, p, t);
    return e == nullptr ? 0 : e->line;
  };
  EXPECT_EQ(line(gate(4), avx2()), 5);
  EXPECT_EQ(line(gate(9), avx2()), 9);
  ir::Target wide = avx2();
  wide.level = ir::IsaLevel::avx512;
  EXPECT_EQ(line(gate(9), wide), 7);
  Problem cold = gate(4);
  cold.cold = true;
  EXPECT_EQ(line(cold, avx2()), 9);
  Problem threads = gate(9);
  threads.threads = 2;
  EXPECT_EQ(line(threads, avx2()), 0);
  Problem renamed = gate(9);
  renamed.kernel.name = "up";
  EXPECT_EQ(line(renamed, avx2()), 0);
  renamed.kernel.family = "softmax";
  EXPECT_EQ(find_entry(s, renamed, wide), nullptr);
}

TEST(TuningSpec, KnobsCompleteTheDefaultAndAreJudgedByThePredicate) {
  const Problem p = gate(8);
  const TuningSpec s = spec("spec 1\nmatch matmul\nuse panel mr=2\n");
  const auto schedule = expand(s.entries[0], p, avx2());
  ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
  EXPECT_EQ(schedule->knobs.at("mr"), 2);
  EXPECT_TRUE(replay(p.kernel, *schedule).ok());

  const TuningSpec many = spec("spec 1\nmatch matmul\nuse panel mr=14 nr=32\n");
  const auto refused = expand(many.entries[0], p, avx2());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), ir::Code::kUNSUPPORTED);
  EXPECT_NE(refused.status().message().find("line 2"), std::string::npos) << refused.status().message();
  EXPECT_FALSE(expand(spec("spec 1\nmatch matmul\nuse panel streams=2 copy_panels=1\n").entries[0], p, avx2()).ok())
      << "this weight is packed: there are no panels to copy";
  EXPECT_FALSE(expand(spec("spec 1\nmatch matmul\nuse squares\n").entries[0], p, avx2()).ok());
}

TEST(TuningSpec, KnobsHaveNamesAndSymbols) {
  const Problem p = gate(8);
  const auto by_symbol = expand(spec("spec 1\nmatch matmul\nuse panel mr=2 pf=4096\n").entries[0], p, avx2());
  const auto by_name =
      expand(spec("spec 1\nmatch matmul\nuse panel tile_rows=2 prefetch=4096\n").entries[0], p, avx2());
  ASSERT_TRUE(by_symbol.ok()) << by_symbol.status().to_string();
  ASSERT_TRUE(by_name.ok()) << by_name.status().to_string();
  EXPECT_EQ(to_text(*by_name), to_text(*by_symbol));
  EXPECT_EQ(by_name->knobs.at("pf"), 4096);
}

TEST(TuningSpec, MovesAreReplayed) {
  const Problem p = gate(8);
  const TuningSpec good = spec("spec 1\nmatch matmul\nuse schedule\n| swap_scopes m n\n| parallelize n\n");
  const auto schedule = expand(good.entries[0], p, avx2());
  ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
  EXPECT_EQ(schedule->moves.size(), 2u);
  const TuningSpec bad = spec("spec 1\nmatch matmul\nuse schedule\n| parallelize k\n");
  EXPECT_EQ(expand(bad.entries[0], p, avx2()).status().code(), ir::Code::kUNSUPPORTED);
}

TEST(TuningSpec, ErrorsNameTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "spec 1"},
      {"spec 2\n", "line 1: expected `spec 1`"},
      {"spec 1\nuse panel\n", "line 2: expected `match`"},
      {"spec 1\nmatch\n", "line 2: expected a family"},
      {"spec 1\nmatch matmul\n", "line 2: expected `use`"},
      {"spec 1\nmatch matmul\nmatch matmul\n", "line 3: expected `use`"},
      {"spec 1\nmatch matmul m\nuse panel\n", "line 2: expected role=value"},
      {"spec 1\nmatch matmul m=\nuse panel\n", "line 2: m:"},
      {"spec 1\nmatch matmul m=8..1\nuse panel\n", "line 2: m: expected a range"},
      {"spec 1\nmatch matmul m=%0\nuse panel\n", "line 2: m: expected a positive multiple"},
      {"spec 1\nmatch matmul isa=neon\nuse panel\n", "line 2: isa:"},
      {"spec 1\nmatch matmul cache=warm\nuse panel\n", "line 2: cache:"},
      {"spec 1\nmatch matmul\nuse flat\n", "line 3: expected a recipe"},
      {"spec 1\nmatch matmul\nuse panel mr\n", "line 3: expected knob=number"},
      {"spec 1\nmatch matmul\nuse panel colour=3\n", "line 3: expected a knob of recipe panel, got `colour=3`"},
      {"spec 1\nmatch matmul\nuse panel again=1\n", "line 3: expected a knob of recipe panel, got `again=1`"},
      {"spec 1\nmatch matmul\nuse panel mr=2 tile_rows=4\n", "line 3: expected one value of knob mr (tile_rows)"},
      {"spec 1\nmatch matmul\nuse schedule\n| teleport m\n", "line 4: expected the name of a move"},
      {"spec 1\nmatch matmul\nuse panel\n| unroll_scope m\n", "line 4: expected `match`"},
  };
  for (const auto& [text, expected] : cases) {
    const auto parsed = parse_tuning_spec(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), ir::Code::kINVALID);
    EXPECT_NE(parsed.status().message().find(expected), std::string::npos)
        << text << " -> " << parsed.status().message();
  }
}

}  // namespace
}  // namespace lathe::search
