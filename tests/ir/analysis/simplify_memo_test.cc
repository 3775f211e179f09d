// SimplifyMemo: what it remembers never changes a result, whatever was known where it was learnt; it remembers the
// latest nodes only, on its own thread only.
#include "ir/analysis/simplify_memo.h"

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

TEST(SimplifyMemo, ChangesNoResult) {
  const std::vector<Ranges> places = contexts();
  RandomIndex random(7);
  int known = 0, differ = 0;
  for (int n = 0; n < 400; ++n) {
    const Expr e = random.index(random.pick(1, 4));
    std::vector<Expr> plain;
    for (const Ranges& r : places) plain.push_back(simplify(e, r));
    for (const Expr& p : plain) differ += !equal(p, plain[0]);
    const SimplifyMemo memo;
    for (int turn = 0; turn < 40; ++turn) {
      const size_t at = static_cast<size_t>(random.pick(0, static_cast<int>(places.size()) - 1));
      const Expr once = simplify(e, places[at]);
      ASSERT_TRUE(equal(once, plain[at])) << n << " at " << at;
      // What a move makes of it elsewhere, and then here again.
      const size_t next = static_cast<size_t>(random.pick(0, static_cast<int>(places.size()) - 1));
      known += memo.knows(once, places[next]);
      const Expr twice = simplify(once, places[next]);
      const Expr copy = once->args.empty() ? once : make_typed(once->op, once->type, once->args);
      ASSERT_FALSE(copy.get() != once.get() && memo.knows(copy, places[next])) << "another node";
      ASSERT_TRUE(equal(twice, simplify(copy, places[next]))) << n << " from " << at << " to " << next;
    }
  }
  EXPECT_GT(known, 100);
  EXPECT_GT(differ, 100) << "or the places are all alike";
}

// What is known of iterators is what it would be without, whatever scopes of these names were entered before.
TEST(SimplifyMemo, ScopesAreKnownAsTheyAre) {
  RandomIndex random(11);
  const std::vector<std::string> names = {"i", "j", "k"};
  struct Scopes {
    std::vector<std::pair<std::string, Expr>> entered;
    Ranges plain;
  };
  const auto enter = [](const Scopes& s) {
    Ranges r;
    r.set("M", {1, 40});
    r.set("N", {16, 64}, 16);
    for (const auto& [name, extent] : s.entered) r.enter(name, extent);
    return r;
  };
  std::vector<Scopes> all;
  for (int n = 0; n < 300; ++n) {
    Scopes& s = all.emplace_back();
    const int depth = random.pick(1, 4);  // the fourth has a name that is known already
    for (int i = 0; i < depth; ++i)
      s.entered.emplace_back(names[static_cast<size_t>(random.pick(0, 2))], max(1, random.index(2)));
    s.plain = enter(s);
  }
  const SimplifyMemo memo;
  for (int n = 0; n < 3000; ++n) {
    const Scopes& s = all[static_cast<size_t>(random.pick(0, random.pick(0, 9) == 0 ? 299 : 19))];
    const Ranges known = enter(s);
    for (const std::string& name : names) {
      const auto a = known.find(name), b = s.plain.find(name);
      ASSERT_EQ(a.has_value(), b.has_value());
      if (!a) continue;
      EXPECT_EQ(a->lo, b->lo);
      EXPECT_EQ(a->hi, b->hi);
      EXPECT_EQ(known.points_of(name)->value, s.plain.points_of(name)->value);
      EXPECT_EQ(known.points_of(name)->known, s.plain.points_of(name)->known);
      EXPECT_EQ(known.depth_of(name), s.plain.depth_of(name));
      EXPECT_EQ(known.extent_of(name)->get(), s.plain.extent_of(name)->get());
    }
  }
}

TEST(SimplifyMemo, KnowsTheLatestNodes) {
  const Ranges r = contexts()[0];
  SimplifyMemo memo;
  const auto tail = [](int64_t n) { return min(n, symbol("M") - 8 * iter("i")); };
  const Expr first = tail(8);
  EXPECT_FALSE(memo.knows(first, r));
  memo.learn(first, r);
  EXPECT_TRUE(memo.knows(first, r));
  for (const int other : {1, 3, 4, 5, 6, 8}) EXPECT_FALSE(memo.knows(first, contexts()[static_cast<size_t>(other)]));
  for (int64_t n = 0; n < 100; ++n) memo.learn(tail(n), r);
  EXPECT_FALSE(memo.knows(first, r));
}

TEST(SimplifyMemo, IsOfOneThreadWhileItLives) {
  EXPECT_EQ(SimplifyMemo::current(), nullptr);
  {
    const SimplifyMemo outer;
    EXPECT_EQ(SimplifyMemo::current(), &outer);
    {
      const SimplifyMemo inner;
      EXPECT_EQ(SimplifyMemo::current(), &outer);
    }
    EXPECT_EQ(SimplifyMemo::current(), &outer);
    std::thread([] { EXPECT_EQ(SimplifyMemo::current(), nullptr); }).join();
  }
  EXPECT_EQ(SimplifyMemo::current(), nullptr);
}

}  // namespace
}  // namespace lathe::ir
