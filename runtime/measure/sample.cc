// See sample.h.
#include "runtime/measure/sample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace lathe::runtime {
namespace {

constexpr double kReadingUs = 10;  // of calls whose time is read at once
constexpr int kMaxRepeats = 1 << 16;
constexpr int64_t kLine = 64, kLinesOfPage = 64;
constexpr double kGolden = 0.6180339887498949;

}  // namespace

int calls_in(double us, double once_us) {
  return static_cast<int>(std::clamp(std::ceil(us / once_us), 1.0, double{kMaxRepeats}));
}
int calls_at_once(double once_us) { return calls_in(kReadingUs, once_us); }

double sampled_us(int calls, int at_once, const std::function<void()>& call, const std::function<int64_t()>& now_ns) {
  std::vector<double> readings;
  for (int done = 0; done < calls; done += at_once) {
    const int64_t from = now_ns();
    for (int r = 0; r < at_once; ++r) call();
    const int64_t ns = now_ns() - from;
    if (ns > 0) readings.push_back(static_cast<double>(ns) * 1e-3 / at_once);
  }
  if (readings.empty()) return 0;
  const auto quartile = readings.begin() + static_cast<std::ptrdiff_t>((readings.size() - 1) / 4);
  std::nth_element(readings.begin(), quartile, readings.end());
  return *quartile;
}

int64_t placement_offset(int placement, int operand) {
  const double turns = placement * kGolden;
  const auto apart =
      static_cast<int64_t>((turns - std::floor(turns)) * kLinesOfPage);  // lines between an operand and the next
  return apart * operand % kLinesOfPage * kLine;
}

}  // namespace lathe::runtime
