// Decision records: round trip, strictness, and no mutation of the text that crashes or
// half-parses.
#include "runtime/store/decision.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/store/key.h"

namespace lathe::runtime {
namespace {

Decision sample() {
  Decision d;
  d.key = "00aa-1.1";
  d.environment = "e1";
  d.op = "matmul M=1..1";
  d.epoch = 1;
  d.numeric = 3;
  d.status = DecisionStatus::verified;
  d.default_us = 12.25;
  d.best_us = 1.0 / 3;
  d.oracle = {12, 0.4375, "bound"};
  d.kernel = "gate";
  d.schedule = "tile_scope n 32 tail=mask as n0,n1\nparallelize n0";
  d.leaf_keys = {"11", "22"};
  d.candidates = {{"h1", 9, 1, 1.5, -3.25, -2}, {"h2", 9, 1e-9, 2e300, 0, 0}};
  return d;
}

TEST(Decision, RoundTrips) {
  const std::string text = print_decision(sample());
  auto d = parse_decision(text);
  ASSERT_TRUE(d.ok()) << d.status().to_string();
  EXPECT_EQ(print_decision(*d), text);
  EXPECT_EQ(d->schedule, sample().schedule);
  EXPECT_EQ(d->leaf_keys, sample().leaf_keys);
  EXPECT_EQ(d->best_us, 1.0 / 3);
  EXPECT_EQ(d->candidates[1].median_us, 2e300);
  EXPECT_EQ(d->status, DecisionStatus::verified);
}

// Another form wants another number, so that no process finds a record that it cannot read.
TEST(Decision, TheKeyHasTheNumberOfTheForm) {
  EXPECT_EQ(decision_base({}).text.substr(0, 11), "decision 2\n");
  EXPECT_EQ(print_decision(sample()),
            "decision 00aa-1.1\nenvironment e1\nop matmul M=1..1\nepoch 1\nnumeric 3\nstatus verified\n"
            "default_us 12.25\nbest_us 0.3333333333333333\noracle 12 0.4375 bound\nkernel gate\n"
            "leaves 2\nleaf 11\nleaf 22\nschedule 2\n| tile_scope n 32 tail=mask as n0,n1\n"
            "| parallelize n0\ncandidates 2\ncandidate h1 9 1 1.5 -3.25 -2\n"
            "candidate h2 9 1e-09 2e+300 0 0\n");
}

TEST(Decision, ASchedulesLinesCannotBecomeARecord) {
  Decision d = sample();
  d.schedule = "candidates 0\n| x\n\nkernel y";
  auto back = parse_decision(print_decision(d));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->schedule, d.schedule);
  d.schedule.clear();
  back = parse_decision(print_decision(d));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->schedule, "");
}

TEST(Decision, MissingAndExtraLinesAreRefusedByNumber) {
  const std::string text = print_decision(sample());
  for (size_t at = 0, line = 1; at < text.size(); ++line) {
    const size_t end = text.find('\n', at) + 1;
    EXPECT_FALSE(parse_decision(text.substr(0, at) + text.substr(end)).ok()) << "line " << line;
    EXPECT_FALSE(parse_decision(text.substr(0, at) + "extra\n" + text.substr(at)).ok()) << "line " << line;
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
    bad.replace(bad.find("leaves 2"), 8, std::string("leaves ") + value);
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
