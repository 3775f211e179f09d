// Answers that are kept: they change no result, whatever was asked before and wherever; a question is the same where
// all that counts is known alike; a thread keeps the latest answers, its own only.
#include "ir/analysis/answers.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/ir/analysis/random_index.h"

namespace lathe::ir {
namespace {

// Where one expression may stand: other values of symbols, other extents, another order of scopes, names missing.
std::vector<Ranges> contexts() {
  std::vector<Ranges> out;
  const auto add = [&](Interval m, int64_t multiple, std::initializer_list<std::pair<const char*, Expr>> scopes) {
    Ranges& r = out.emplace_back();
    r.set("M", m, multiple);
    r.set("N", {16, 64}, 16);
    for (const auto& [iter, extent] : scopes) r.enter(iter, extent);
  };
  const Expr rows = ceildiv(symbol("M"), 8), tail = min(8, symbol("M") - 8 * iter("i")), k = floordiv(symbol("N"), 4);
  add({1, 40}, 1, {{"i", rows}, {"j", tail}, {"k", k}});
  add({8, 40}, 8, {{"i", rows}, {"j", tail}, {"k", k}});
  add({1, 40}, 1, {{"k", k}, {"i", rows}, {"j", tail}});
  add({1, 8}, 1, {{"i", rows}, {"j", tail}, {"k", k}});
  add({1, 40}, 1, {{"i", 1}, {"j", tail}, {"k", 4}});
  add({1, 40}, 1, {{"i", rows}, {"j", 8}, {"k", 16}});
  add({1, 40}, 1, {{"i", rows}, {"j", tail}});
  add({1, 40}, 1, {{"i", rows}, {"j", min(8, symbol("M") - 8 * iter("i"))}, {"k", k}});
  out.push_back(out[0]);
  out.back().learn(symbol("M"), 17);
  return out;
}

struct Results {
  Expr simplified;
  Interval range;
  bool below = false, not_above = false;
};
Results ask(const Expr& e, const Expr& other, const Ranges& r) {
  return {simplify(e, r), interval(e, r), proves_lt(e, other, r), proves_le(e, other, r)};
}
// Nobody asked before.
Results ask_first(const Expr& e, const Expr& other, const Ranges& r) {
  Results out;
  std::thread([&] { out = ask(e, other, r); }).join();
  return out;
}

TEST(Answers, ChangeNoResult) {
  const std::vector<Ranges> places = contexts();
  RandomIndex random(7);
  int differ = 0, proven = 0;
  for (int n = 0; n < 300; ++n) {
    const Expr e = random.index(random.pick(1, 4)), other = random.index(random.pick(0, 2));
    std::vector<Results> first;
    for (const Ranges& r : places) first.push_back(ask_first(e, other, r));
    for (const Results& f : first) {
      differ += !equal(f.simplified, first[0].simplified) || f.below != first[0].below;
      proven += f.below;
    }
    for (int turn = 0; turn < 30; ++turn) {
      const size_t at = static_cast<size_t>(random.pick(0, static_cast<int>(places.size()) - 1));
      const Results again = ask(e, other, places[at]);
      ASSERT_TRUE(equal(again.simplified, first[at].simplified)) << n << " at " << at;
      ASSERT_EQ(again.range.lo, first[at].range.lo) << n << " at " << at;
      ASSERT_EQ(again.range.hi, first[at].range.hi) << n << " at " << at;
      ASSERT_EQ(again.below, first[at].below) << n << " at " << at;
      ASSERT_EQ(again.not_above, first[at].not_above) << n << " at " << at;
      const Expr copy = e->args.empty() ? e : make_typed(e->op, e->type, e->args);
      if (!equal(again.simplified, e)) continue;
      ASSERT_EQ(simplify(copy, places[at]).get(), copy.get()) << "another node";
    }
  }
  EXPECT_GT(differ, 100) << "or the places are all alike";
  EXPECT_GT(proven, 100);
}

bool same(const Question& a, const Question& b) {
  return a.fits() && b.fits() && std::equal(a.words().begin(), a.words().end(), b.words().begin(), b.words().end());
}

TEST(Answers, QuestionsAreTheSameWhereAllThatCountsIs) {
  const std::vector<Ranges> places = contexts(), again = contexts();
  const auto asked = [](int64_t n) { return min(n, symbol("M") - 8 * iter("i")) + iter("k"); };
  const Question q(asked(8), places[0]);
  EXPECT_TRUE(same(q, Question(asked(8), again[0]))) << "other nodes, other ranges of the same content";
  EXPECT_TRUE(same(q, Question(asked(8), places[7])));
  EXPECT_FALSE(same(q, Question(asked(7), places[0])));
  for (const size_t other : {1, 2, 3, 4, 5, 6, 8})
    EXPECT_FALSE(same(q, Question(asked(8), places[other]))) << "place " << other;

  Ranges more = places[0];
  more.enter("outer", symbol("N"));
  EXPECT_TRUE(same(q, Question(asked(8), more))) << "a name that does not count";
  const Question of_extent(iter("j"), places[0]);
  EXPECT_TRUE(same(of_extent, Question(iter("j"), places[2])));
  for (const size_t other : {1, 3, 4, 5, 8})
    EXPECT_FALSE(same(of_extent, Question(iter("j"), places[other]))) << "place " << other;

  const Canon canon(places[0], false);
  const Poly sum = canon.poly(asked(8));
  EXPECT_TRUE(same(Question(sum, places[0]), Question(sum, places[7])));
  EXPECT_FALSE(same(Question(sum, places[0]), Question(sum, places[3])));
  EXPECT_FALSE(same(Question(sum, places[0]), Question(add(sum, Poly::constant(1)), places[0])));
  EXPECT_FALSE(same(Question(sum, places[0]), Question(scaled(sum, -1), places[0])));
}

TEST(Answers, SomeAreNotKept) {
  Expr terms = iter("i");
  for (int i = 0; i < 400; ++i) terms = terms + iter("i");
  EXPECT_FALSE(Question(terms, Ranges()).fits()) << "too long";
  Ranges many;
  for (int i = 0; i < 65; ++i) many.enter("i" + std::to_string(i), 4);
  EXPECT_TRUE(Question(iter("i63"), many).fits());
  EXPECT_FALSE(Question(iter("i64"), many).fits());
  Ranges late;
  late.enter("j", min(8, iter("i")));
  EXPECT_TRUE(Question(iter("j"), late).fits());
  late.enter("i", 4);
  EXPECT_FALSE(Question(iter("j"), late).fits());
}

TEST(Answers, AThreadKeepsItsLatest) {
  using One = Answers<Asked::interval, int, 1>;
  const Ranges r = contexts()[0];
  const Question a(symbol("M"), r), b(symbol("N"), r);
  int asked = 0;
  const auto get = [&](const Question& q) { return One::get(q, [&] { return ++asked; }); };
  EXPECT_EQ(get(a), 1);
  EXPECT_EQ(get(a), 1);
  EXPECT_EQ(get(b), 2);
  EXPECT_EQ(get(a), 3) << "the place went to another";
  std::thread([&] { EXPECT_EQ(get(a), 4); }).join();
  EXPECT_EQ(get(a), 3);
}

}  // namespace
}  // namespace lathe::ir
