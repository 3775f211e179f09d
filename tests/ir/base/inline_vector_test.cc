// InlineVector against std::vector, over the border between its own memory and the heap.
#include "ir/base/inline_vector.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

namespace lathe::ir {
namespace {

using Short = InlineVector<std::string, 3>;

std::vector<std::string> listed(const Short& v) { return {v.begin(), v.end()}; }

TEST(InlineVector, DoesWhatAVectorDoes) {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 200; ++round) {
    Short mine;
    std::vector<std::string> theirs;
    for (int step = 0; step < 20; ++step) {
      const uint64_t kind = rng() % 6;
      if (kind < 3 || theirs.empty()) {
        theirs.push_back("element " + std::to_string(rng() % 100));
        mine.push_back(theirs.back());
      } else if (kind == 3) {
        const size_t at = rng() % theirs.size();
        theirs.erase(theirs.begin() + static_cast<std::ptrdiff_t>(at));
        mine.erase(mine.begin() + at);
      } else if (kind == 4) {
        const size_t size = rng() % (theirs.size() + 1);
        theirs.resize(size);
        mine.shrink(size);
      } else {
        Short copy = mine, moved = std::move(copy);
        EXPECT_TRUE(copy.empty());  // NOLINT(bugprone-use-after-move)
        copy = moved;
        mine = std::move(copy);
        EXPECT_EQ(listed(moved), theirs);
      }
      ASSERT_EQ(listed(mine), theirs);
      ASSERT_EQ(mine.size(), theirs.size());
    }
  }
}

TEST(InlineVector, AVectorThatAssignsToItselfKeepsItsElements) {
  Short few{"a", "b"}, many{"a", "b", "c", "d", "e"};
  const Short &same_few = few, &same_many = many;
  few = same_few;
  many = same_many;
  EXPECT_EQ(listed(few), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(listed(many), (std::vector<std::string>{"a", "b", "c", "d", "e"}));
  EXPECT_EQ(many.back(), "e");
}

// What moves as bytes is owned once, whether it moves with its vector or alone into more memory, also in lists of
// lists.
TEST(InlineVector, WhatMovesAsBytesIsOwnedOnce) {
  using Shared = std::shared_ptr<int>;
  static_assert(kMovesAsBytes<Shared> && kMovesAsBytes<InlineVector<Shared, 2>> && !kMovesAsBytes<std::string>);
  const Shared value = std::make_shared<int>(7);
  for (size_t n = 0; n <= 9; ++n) {
    {
      InlineVector<InlineVector<Shared, 2>, 3> lists;
      for (size_t i = 0; i < n; ++i) {
        lists.push_back({});
        for (size_t j = 0; j < i; ++j) lists.back().push_back(value);
      }
      const auto owners = static_cast<long>(1 + n * (n - (n > 0)) / 2);
      EXPECT_EQ(value.use_count(), owners);
      InlineVector<InlineVector<Shared, 2>, 3> moved = std::move(lists), copy = moved;
      EXPECT_TRUE(lists.empty());  // NOLINT(bugprone-use-after-move)
      EXPECT_EQ(value.use_count(), 2 * owners - 1);
      copy = std::move(moved);
      EXPECT_EQ(value.use_count(), owners);
      ASSERT_EQ(copy.size(), n);
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(copy[i].size(), i);
      if (n > 1) copy.erase(copy.begin());
      copy.shrink(copy.size() / 2);
    }
    EXPECT_EQ(value.use_count(), 1);
  }
}

}  // namespace
}  // namespace lathe::ir
