// One sample of something that is called again and again: how many calls it takes in and what it says of them. And the
// places that operands have in their pages while it is taken: how close a store comes to a later load, modulo a page,
// can change a kernel's time by a third.
#pragma once
#include <cstdint>
#include <functional>

namespace lathe::runtime {

// What a sample takes at least. Reading from memory varies from call to call by a quarter and from one copy to the
// next, and threads meet early or late: a sample of these takes in several. aside: not to be felt beside other work.
constexpr double sample_us(bool varies, bool aside) { return aside ? (varies ? 500 : 100) : (varies ? 4000 : 1000); }

// One sample of so many calls, microseconds a call: the lower quartile of readings of `at_once` calls each, so that a
// moment's disturbance is no part of it. 0: the clock stood still or went back.
double sampled_us(int calls, int at_once, const std::function<void()>& call, const std::function<int64_t()>& now_ns);
// So many that take so long; at least one.
int calls_in(double us, double once_us);
// How many calls of that many microseconds a reading takes in.
int calls_at_once(double once_us);

// Placements that a sample goes through: a kernel that is fast at one only is not fast. The first has all operands at
// the start of a page, as hosts have them that allocate each by itself.
inline constexpr int kPlacements = 4;
// Bytes from the start of a page, a multiple of 64 below 4096, of operand `operand` at placement `placement`: the
// distances between operands are spread evenly over the page for any number of placements from the first on.
int64_t placement_offset(int placement, int operand);

}  // namespace lathe::runtime
