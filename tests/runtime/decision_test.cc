// Decision records: round trip, strictness, and no mutation of the text that crashes or
// half-parses.
#include "runtime/decision.h"

#include <gtest/gtest.h>

#include <random>

namespace lathe::runtime {
namespace {

Decision sample() {
  Decision d;
  d.key = "00aa-1.1";
  d.environment = "e1";
  d.op = "matmul M=1..1";
  d.epoch = 1;
  d.numeric = 3;
  d.workspace = 4096;
  d.status = DecisionStatus::verified;
  d.default_us = 12.25;
  d.best_us = 1.0 / 3;
  d.oracle = {12, 0.4375, "bound"};
  d.kernels = {{"gate",
                "tile_scope n 32 tail=mask as n0,n1\nparallelize n0",
                {"11", "22"},
                {{"w", "[0/32, 1, 0%32]"}}},
               {"empty", "", {}, {}}};
  d.candidates = {{"h1", 9, 1, 1.5, -3.25, -2}, {"h2", 9, 1e-9, 2e300, 0, 0}};
  return d;
}

TEST(Decision, RoundTrips) {
  const std::string text = print_decision(sample());
  auto d = parse_decision(text);
  ASSERT_TRUE(d.ok()) << d.status().to_string();
  EXPECT_EQ(print_decision(*d), text);
  EXPECT_EQ(d->kernels[0].schedule, sample().kernels[0].schedule);
  EXPECT_EQ(d->kernels[0].layouts[0].second, "[0/32, 1, 0%32]");
  EXPECT_EQ(d->kernels[1].schedule, "");
  EXPECT_EQ(d->best_us, 1.0 / 3);
  EXPECT_EQ(d->candidates[1].median_us, 2e300);
  EXPECT_EQ(d->status, DecisionStatus::verified);
}

TEST(Decision, ASchedulesLinesCannotBecomeARecord) {
  Decision d = sample();
  d.kernels[0].schedule = "candidates 0\n| x\n\nkernels 1";
  auto back = parse_decision(print_decision(d));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->kernels[0].schedule, d.kernels[0].schedule);
}

TEST(Decision, MissingAndExtraLinesAreRefusedByNumber) {
  const std::string text = print_decision(sample());
  for (size_t at = 0, line = 1; at < text.size(); ++line) {
    const size_t end = text.find('\n', at) + 1;
    EXPECT_FALSE(parse_decision(text.substr(0, at) + text.substr(end)).ok()) << "line " << line;
    EXPECT_FALSE(parse_decision(text.substr(0, at) + "extra\n" + text.substr(at)).ok())
        << "line " << line;
    EXPECT_FALSE(parse_decision(text.substr(0, at)).ok()) << "line " << line;
    at = end;
  }
  std::string bad = text;
  bad.replace(bad.find("numeric 3"), 9, "numeric x");
  EXPECT_EQ(parse_decision(bad).status().message(), "line 5: 'x' is no number");
  for (const char* value : {"inf", "nan", "1e999", "", "1 "}) {
    bad = text;
    bad.replace(bad.find("default_us 12.25"), 16, std::string("default_us ") + value);
    EXPECT_FALSE(parse_decision(bad).ok()) << value;
  }
  for (const char* value : {"-1", "99999", "4097"}) {
    bad = text;
    bad.replace(bad.find("kernels 2"), 9, std::string("kernels ") + value);
    EXPECT_FALSE(parse_decision(bad).ok()) << value;
  }
}

TEST(Decision, MutatedTextParsesToWhatItPrintsOrNotAtAll) {
  const std::string text = print_decision(sample());
  std::mt19937 rng(3);
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string t = text;
    for (int n = 1 + static_cast<int>(rng() % 3); n > 0; --n) {
      const size_t at = rng() % t.size();
      switch (rng() % 3) {
        case 0:
          t[at] = static_cast<char>(rng());
          break;
        case 1:
          t.erase(at, 1 + rng() % 4);
          break;
        default:
          t.insert(at, t.substr(rng() % t.size(), rng() % 20));
      }
      if (t.empty()) t = "x";
    }
    auto d = parse_decision(t);
    if (!d.ok()) continue;
    ++parsed;
    auto again = parse_decision(print_decision(*d));
    ASSERT_TRUE(again.ok()) << again.status().to_string() << "\n" << t;
    ASSERT_EQ(print_decision(*again), print_decision(*d));
  }
  EXPECT_GT(parsed, 100);
}

}  // namespace
}  // namespace lathe::runtime
