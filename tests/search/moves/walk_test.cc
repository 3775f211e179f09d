// The property of every move: any legal walk of 1-12 moves from an operator gives the values of the
// operator. And the test of that test: with any one precondition disabled, some walk finds a kernel
// that goes wrong.
#include "tests/search/moves/walk.h"

#include <gtest/gtest.h>

#include "tests/common/sanitizer.h"

namespace lathe::search {
namespace {

constexpr int kShards = test::repetitions(10), kWalksPerShard = 4000;
constexpr int kMutationWalks = 2000;

// Others with --gtest_random_seed=1, 2, ...
uint64_t first_seed() { return static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)) * kShards * kWalksPerShard; }

class RandomWalk : public testing::TestWithParam<int> {};

TEST_P(RandomWalk, KeepsTheValues) {
  const std::vector<WalkKernel> kernels = walk_kernels(true);
  ASSERT_EQ(kernels.size(), 18u);
  std::map<std::string, int> applied;
  for (int i = 0; i < kWalksPerShard; ++i) {
    const auto seed = first_seed() + static_cast<uint64_t>(GetParam()) * kWalksPerShard + static_cast<uint64_t>(i);
    const std::string wrong = walk(kernels[seed % kernels.size()], seed, {}, applied);
    ASSERT_EQ(wrong, "");
  }
  // Of the six and a half steps of a walk, two and a half find a legal move, and every row takes part.
  int moves = 0;
  for (const Transform& row : transforms()) {
    EXPECT_GT(applied[row.name], 0) << row.name;
    moves += applied[row.name];
  }
  EXPECT_GT(moves, 2.5 * kWalksPerShard);
}
INSTANTIATE_TEST_SUITE_P(Shard, RandomWalk, testing::Range(0, kShards));

// The traps as well: kernels whose iterations do depend on each other.
TEST(RandomWalks, KeepTheValuesOfTheTraps) {
  std::map<std::string, int> applied;
  for (const WalkKernel& kernel : walk_kernels(false)) {
    for (uint64_t seed = 0; seed < 100; ++seed) ASSERT_EQ(walk(kernel, first_seed() + 78000 + seed, {}, applied), "");
  }
  EXPECT_FALSE(applied.empty());
}

struct Mutation {
  std::string row;
  int precondition;
};
std::vector<Mutation> mutations() {
  std::vector<Mutation> out;
  for (const Transform& row : transforms()) {
    for (size_t i = 0; i < row.preconditions.size(); ++i) out.push_back({row.name, static_cast<int>(i)});
  }
  return out;
}
void PrintTo(const Mutation& m, std::ostream* out) { *out << m.row << " without precondition " << m.precondition; }

class WalkFindsMutation : public testing::TestWithParam<Mutation> {};

TEST_P(WalkFindsMutation, Within2000Walks) {
  const std::vector<WalkKernel> kernels = walk_kernels(false);
  const WalkOptions options{GetParam().row, GetParam().precondition, 6};
  std::map<std::string, int> applied;
  for (int i = 0; i < kMutationWalks; ++i) {
    const uint64_t seed = first_seed() + static_cast<uint64_t>(i);
    if (!walk(kernels[seed % kernels.size()], seed, options, applied).empty()) return;
  }
  FAIL() << "no walk noticed that the precondition is missing: it is redundant, or the walks are "
            "too tame";
}
INSTANTIATE_TEST_SUITE_P(All, WalkFindsMutation, testing::ValuesIn(mutations()),
                         [](const auto& info) { return info.param.row + std::to_string(info.param.precondition); });

}  // namespace
}  // namespace lathe::search
