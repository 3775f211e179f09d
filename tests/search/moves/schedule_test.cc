// Schedules: text both ways, replay at other shapes, and the whole way from the naive matmul of
// docs/ir.md to its scheduled form.
#include "search/moves/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/core/text_form.h"

namespace lathe::search {
namespace {

using testing::HasSubstr;

constexpr const char* kNaive = R"(
kernel gate(x: f32[M, 896] in, w: f32[4864, 896] const, b: f32[4864] const, y: f32[M, 4864] out) family matmul where M in 1..4096
  c: f32[M, 4864] heap
  for m < M [m]:
    for n < 4864 [n]:
      c[m, n] = 0.0
      for k < 896 [k]:
        c[m, n] += x[m, k] * w[n, k]
      y[m, n] = c[m, n] + b[n]
)";

constexpr const char* kSchedule = R"(schedule 1 family matmul class contract
from panel.1 kc=0 mr=8 nr=32
tile_scope m 8 tail=mask as m0,m1
tile_scope n 32 tail=mask as n0,n1
swap_scopes m1 n0
swap_scopes m0 n0
split_scope n1 after=0 as n1b
split_scope n1b after=0 as n1c
split_scope m1 after=0 as m1b
split_scope m1b after=0 as m1c
swap_scopes n1b k
swap_scopes m1b k
tile_buffer w 0 32
swap_dims w 1 2
unroll_scope m1
unroll_scope m1b
unroll_scope m1c
tile_scope n1 16 tail=mask as n1v,n1l
unroll_scope n1v
vectorize_scope n1l
tile_scope n1b 16 tail=mask as n1bv,n1bl
unroll_scope n1bv
vectorize_scope n1bl
tile_scope n1c 16 tail=mask as n1cv,n1cl
unroll_scope n1cv
vectorize_scope n1cl
move_to_register c m0
tensorize k mma
prefetch w k ahead=8192 lines=8
parallelize n0
)";

constexpr const char* kScheduled =
    R"(kernel gate(x: f32[M, 896] in, w: f32[4864, 896] const layout [0/32, 1, 0%32], b: f32[4864] const, y: f32[M, 4864] out) family matmul where M in 1..4096 numeric contract
  c: f32[8, 32] reg
  for n0 < 152 [n] @parallel:
    for m0 < ceildiv(M, 8) [m]:
      for m1 < min(8, M - 8*m0) [m] @unroll:
        for n1v < 2 [n] @unroll:
          for n1l < 16 [n] @vector:
            c[m1, n1l + 16*n1v] = 0.0
      for k < 896 [k] @tensor(mma):
        prefetch w ahead 8192 lines 8
        for m1b < min(8, M - 8*m0) [m] @unroll:
          for n1bv < 2 [n] @unroll:
            for n1bl < 16 [n] @vector:
              c[m1b, n1bl + 16*n1bv] += x[8*m0 + m1b, k] * w[32*n0 + n1bl + 16*n1bv, k]
      for m1c < min(8, M - 8*m0) [m] @unroll:
        for n1cv < 2 [n] @unroll:
          for n1cl < 16 [n] @vector:
            y[8*m0 + m1c, 32*n0 + n1cl + 16*n1cv] = c[m1c, n1cl + 16*n1cv] + b[32*n0 + n1cl + 16*n1cv]
)";

ir::Kernel parse(const std::string& text) {
  ir::Result<ir::Kernel> kernel = ir::parse_kernel(text);
  EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
  return kernel.ok() ? *kernel : ir::Kernel{};
}

Schedule schedule(const std::string& text) {
  ir::Result<Schedule> parsed = parse_schedule(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? *parsed : Schedule{};
}

std::string replace(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

TEST(Schedule, TextRoundTrips) {
  const Schedule s = schedule(kSchedule);
  EXPECT_EQ(s.family, "matmul");
  EXPECT_EQ(s.numeric, ir::kContract);
  EXPECT_EQ(s.recipe, "panel.1");
  EXPECT_EQ(s.knobs.at("nr"), 32);
  EXPECT_EQ(s.moves.size(), 28u);
  EXPECT_EQ(to_text(s), kSchedule);
  EXPECT_EQ(to_text(schedule("schedule 1\n")), "schedule 1 family any class exact\n");
}

TEST(Schedule, LeadsFromTheNaiveMatmulToTheDocumentedForm) {
  std::vector<ir::Kernel> steps;
  ir::Result<ir::Kernel> scheduled = replay(parse(kNaive), schedule(kSchedule), &steps);
  ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
  EXPECT_EQ(ir::print(*scheduled), kScheduled);
  EXPECT_EQ(steps.size(), 28u);
  EXPECT_EQ(scheduled->numeric, schedule(kSchedule).numeric);
}

TEST(Schedule, ReplaysAtOtherShapes) {
  // N with a tail, symbolic; then everything constant.
  const std::string symbolic = replace(replace(kNaive, "4864", "N"), "M in 1..4096", "M in 1..4096, N in 1..4096");
  ir::Result<ir::Kernel> tails = replay(parse(symbolic), schedule(kSchedule));
  ASSERT_TRUE(tails.ok()) << tails.status().to_string();
  EXPECT_THAT(ir::print(*tails), HasSubstr("for n0 < ceildiv(N, 32) [n] @parallel:"));
  EXPECT_THAT(ir::print(*tails), HasSubstr("c: f32[8, 32] reg"));
  const std::string constant = replace(replace(replace(kNaive, "[M,", "[3,"), "< M", "< 3"), " where M in 1..4096", "");
  ir::Result<ir::Kernel> small = replay(parse(constant), schedule(kSchedule));
  ASSERT_TRUE(small.ok()) << small.status().to_string();
  EXPECT_THAT(ir::print(*small), HasSubstr("c: f32[3, 32] reg"));
}

TEST(Schedule, RefusalNamesTheMoveAndTheReason) {
  ir::Result<ir::Kernel> refused = replay(
      parse(kNaive), schedule("schedule 1 family matmul\ntile_scope m 8 tail=mask\ntile_scope m1 3 tail=exact\n"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), ir::Code::kUNSUPPORTED);
  EXPECT_THAT(refused.status().message(), HasSubstr("move 2: tile_scope m1 3 tail=exact"));
  EXPECT_THAT(refused.status().message(), HasSubstr("tail=exact needs an extent that is a multiple of the tile"));
  EXPECT_FALSE(replay(parse(kNaive), schedule("schedule 1 family row\n")).ok());
}

// Further moves on what is scheduled make what a replay of all of them makes, within the limits of one.
TEST(Schedule, IsExtendedAsItIsReplayed) {
  const ir::Kernel naive = ir::parse_kernel(kNaive).value();
  const Schedule whole = parse_schedule(kSchedule).value();
  Schedule first = whole;
  first.moves.resize(5);
  auto scheduled = schedule_kernel(naive, first);
  ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
  EXPECT_EQ(scheduled->schedule.numeric, 0u);
  ASSERT_TRUE(extend(*scheduled, {whole.moves.begin() + 5, whole.moves.end()}).ok());
  EXPECT_EQ(to_text(scheduled->schedule), kSchedule);
  EXPECT_EQ(ir::print(scheduled->kernel), kScheduled);

  const Move refused = parse_move("swap_scopes no_such other").value();
  EXPECT_THAT(extend(*scheduled, {refused}).message(), HasSubstr(fmt::format("move {}", whole.moves.size() + 1)));
  const Move again = parse_move("unroll_scope m1").value();
  const ir::Status many = extend(*scheduled, std::vector<Move>(kMaxMoves, again));
  EXPECT_EQ(many.code(), ir::Code::kUNSUPPORTED);
  EXPECT_THAT(many.message(), HasSubstr("at most 256 are allowed"));
}

TEST(Schedule, MalformedTextNamesTheLine) {
  const auto message = [](const char* text) { return parse_schedule(text).status().message(); };
  EXPECT_THAT(message(""), HasSubstr("expected `schedule 1`"));
  EXPECT_THAT(message("schedule 2\n"), HasSubstr("line 1"));
  EXPECT_THAT(message("schedule 1 class fast\n"), HasSubstr("numeric class"));
  EXPECT_THAT(message("schedule 1\nfrom panel.1 mr\n"), HasSubstr("line 2: expected knob=value"));
  EXPECT_THAT(message("schedule 1\n\nfold_scope m 3\n"), HasSubstr("line 3"));
  EXPECT_THAT(message("schedule 1\ntile_scope m 3 tail=mask as a b\n"), HasSubstr("list of names"));
}

TEST(Applicable, ListsOnlyWhatApplyAccepts) {
  const ir::Kernel kernel = parse(replace(replace(kNaive, "4864", "64"), "896", "8"));
  size_t legal = 0, refused = 0;
  for (const Candidate& c : applicable(kernel, true)) {
    const ir::Result<TransformResult> again = apply(kernel, c.move);
    EXPECT_EQ(again.ok(), c.refusal.empty()) << to_text(c.move) << ": " << c.refusal;
    ir::Result<Move> parsed = parse_move(to_text(c.move));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(to_text(*parsed), to_text(c.move));
    ++(c.refusal.empty() ? legal : refused);
  }
  EXPECT_EQ(applicable(kernel).size(), legal);
  EXPECT_GT(legal, 20u);
  EXPECT_GT(refused, 20u);
}

}  // namespace
}  // namespace lathe::search
