// Beliefs about unmeasured candidates: they go through the measurements, ease off with distance, and come back when
// measurements are forgotten.
#include "search/strategy/surrogate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lathe::search {
namespace {

SpacePoint point(int64_t a, int64_t b) {
  SpacePoint p;
  p.knobs = {{"a", a}, {"b", b}};
  return p;
}

TEST(Surrogate, without_measurements_the_prior_stands) {
  Surrogate s({});
  EXPECT_EQ(s.add(point(1, 1), -0.5), 0);
  EXPECT_EQ(s.of(0).mean, -0.5);
  EXPECT_EQ(s.of(0).sigma, 0);
}

TEST(Surrogate, a_measurement_is_believed_and_the_level_does_not_matter) {
  for (const double scale : {1.0, 1e4}) {
    Surrogate s({.spread = 0.2, .noise = 0.001, .reach = 3});
    const int slow = s.add(point(1, 64), 0), fast = s.add(point(8, 64), 0), near = s.add(point(16, 64), 0),
              far = s.add(point(1024, 1), 0);
    s.observe(slow, 2 * scale);
    s.observe(fast, 1 * scale);
    EXPECT_NEAR(s.of(fast).mean, 0, 0.01);
    EXPECT_NEAR(s.of(slow).mean, -1, 0.01);
    EXPECT_LT(s.of(fast).sigma, 0.01);
    // A neighbour of the fast one is believed to be fast, with less and less doubt towards it.
    EXPECT_GT(s.of(near).mean, s.of(far).mean);
    EXPECT_LT(s.of(near).sigma, s.of(far).sigma);
    EXPECT_GT(s.of(near).mean, -0.5);
  }
}

TEST(Surrogate, forgetting_gives_back_what_was_believed) {
  Surrogate s({});
  for (int64_t a : {1, 2, 4, 8, 16}) s.add(point(a, 32), -0.1 * static_cast<double>(a));
  s.observe(0, 10);
  s.observe(2, 9);
  const Belief before = s.of(4);
  s.observe(4, 3);
  EXPECT_NE(s.of(3).mean, before.mean);
  s.forget_after(2);
  EXPECT_EQ(s.observations(), 2);
  EXPECT_EQ(s.of(4).mean, before.mean);
  EXPECT_EQ(s.of(4).sigma, before.sigma);
  s.forget_after(0);
  EXPECT_EQ(s.of(4).mean, -1.6);
}

TEST(Surrogate, knobs_that_come_later_and_extra_moves_set_candidates_apart) {
  Surrogate s({});
  const int plain = s.add(point(4, 32), 0);
  SpacePoint other = point(4, 32);
  other.knobs["c"] = 7;
  const int knob = s.add(other, 0);
  SpacePoint moved = point(4, 32);
  moved.extra.push_back(parse_move("tile_scope m 4 as m0,m1").value());
  const int move = s.add(moved, 0);
  s.observe(plain, 5);
  EXPECT_GT(s.of(knob).sigma, s.of(plain).sigma);
  EXPECT_GT(s.of(move).sigma, s.of(plain).sigma);
}

TEST(Surrogate, expected_gain_is_the_normal_one) {
  EXPECT_EQ((Belief{0.3, 0}).expected_gain(), 0.3);
  EXPECT_EQ((Belief{-0.3, 0}).expected_gain(), 0);
  EXPECT_NEAR((Belief{0, 1}).expected_gain(), 0.39894, 1e-5);
  EXPECT_GT((Belief{-0.1, 0.3}).expected_gain(), (Belief{-0.1, 0.1}).expected_gain());
}

}  // namespace
}  // namespace lathe::search
