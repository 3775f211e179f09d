// See rank_test.h.
//
//   readings          c 101   r 110   r 112   c 180   c 103   r 111
//   over neighbours   1.00    1.09    1.09    1.75    1.00    1.08
//   score             most    ...     the least reading has the highest: the sum of 1/j from its rank on
//   the candidate's   sum of its scores, against that sum in every order the stages could have had
#include "runtime/measure/rank_test.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "runtime/measure/timing.h"

namespace lathe::runtime {
namespace {

constexpr int kNeighbours = 5;  // on either side
constexpr double kUnit = 16;    // scores are whole numbers of 1/16

std::vector<double> over_neighbours(const std::vector<double>& us) {
  std::vector<double> out;
  const int n = static_cast<int>(us.size());
  for (int i = 0; i < n; ++i) {
    const auto from = us.begin() + std::max(i - kNeighbours, 0), to = us.begin() + std::min(i + kNeighbours + 1, n);
    out.push_back(us[static_cast<size_t>(i)] / *std::min_element(from, to));
  }
  return out;
}

// By rank; equal ones share the mean of their places.
std::vector<int> scores(const std::vector<double>& values) {
  const size_t n = values.size();
  std::vector<size_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> at(n);
  double sum = 0;
  for (size_t rank = n; rank-- > 0;) at[rank] = sum += 1.0 / static_cast<double>(rank + 1);
  std::vector<int> out(n);
  for (size_t from = 0, to = 0; from < n; from = to) {
    double together = 0;
    for (to = from; to < n && values[order[to]] == values[order[from]]; ++to) together += at[to];
    for (size_t i = from; i < to; ++i)
      out[order[i]] = static_cast<int>(std::lround(kUnit * together / static_cast<double>(to - from)));
  }
  return out;
}

// Share of the choices of `count` scores by their sum.
std::vector<double> sums_of(const std::vector<int>& scores, size_t count) {
  size_t most = 0;
  for (const int s : scores) most += static_cast<size_t>(s);
  // ways[k][sum]: choices of k among the scores so far, as a share of all choices of k.
  std::vector<std::vector<double>> ways(count + 1, std::vector<double>(most + 1, 0));
  ways[0][0] = 1;
  size_t seen = 0;
  for (const int s : scores) {
    ++seen;
    for (size_t k = std::min(seen, count); k > 0; --k) {
      const double chosen = static_cast<double>(k) / static_cast<double>(seen);
      for (size_t sum = most + 1; sum-- > 0;) {
        const size_t step = static_cast<size_t>(s);
        const double without = k < seen ? ways[k][sum] * (1 - chosen) : 0;
        ways[k][sum] = without + (sum >= step ? ways[k - 1][sum - step] * chosen : 0);
      }
    }
  }
  return ways[count];
}

std::vector<double> convolve(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> out(a.size() + b.size() - 1, 0);
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == 0) continue;
    for (size_t j = 0; j < b.size(); ++j) out[i + j] += a[i] * b[j];
  }
  return out;
}

}  // namespace

std::vector<Reading> without_best(const std::vector<PlacedReading>& readings) {
  size_t best = 0;
  double least = INFINITY;
  for (size_t p = 0; p < readings[0].us.size(); ++p) {
    std::vector<double> own, other;
    for (const PlacedReading& r : readings) (r.candidate ? own : other).push_back(r.us[p]);
    if (const double ratio = median_of(own) / median_of(other); ratio < least) least = ratio, best = p;
  }
  std::vector<Reading> out;
  for (const PlacedReading& r : readings) {
    const double all = std::accumulate(r.us.begin(), r.us.end(), 0.0);
    out.push_back({(all - r.us[best]) / static_cast<double>(r.us.size() - 1), r.candidate, r.stage});
  }
  return out;
}

double rank_test(const std::vector<Reading>& readings, double margin) {
  std::vector<double> us;
  for (const Reading& r : readings) us.push_back(r.candidate ? r.us * margin : r.us);
  const std::vector<int> score = scores(over_neighbours(us));
  size_t own = 0;
  std::vector<double> sums = {1};
  for (size_t from = 0, to = 0; from < readings.size(); from = to) {
    std::vector<int> here;
    size_t count = 0;
    for (to = from; to < readings.size() && readings[to].stage == readings[from].stage; ++to) {
      here.push_back(score[to]);
      count += readings[to].candidate;
      own += readings[to].candidate ? static_cast<size_t>(score[to]) : 0;
    }
    sums = convolve(sums, sums_of(here, count));
  }
  double share = 0;
  for (size_t sum = own; sum < sums.size(); ++sum) share += sums[sum];
  return std::min(share, 1.0);
}

}  // namespace lathe::runtime
