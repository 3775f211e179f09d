// softmax of a vocabulary through the C ABI: rows that are so long that sums of all their terms one after
// another are too far from the real one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

TEST(Vocabulary, SoftmaxIsWithinItsTolerance) {
  for (const char* level : {"avx2", "avx512"}) {
    const auto ctx = make_context(level);
    for (const int64_t columns : {int64_t{128256}, int64_t{262144}, int64_t{151937}}) {
      SCOPED_TRACE(fmt::format("{} columns {}", level, columns));
      const auto graph = unary_graph(ctx.get(), "softmax", {fixed(1), fixed(columns)});
      const auto kernel = resolve(ctx.get(), graph.get());
      Floats x({1, columns}), y({1, columns}, NAN);
      for (size_t i = 0; i < x.data.size(); ++i) x.data[i] = static_cast<float>(i * 2654435761u % 1000) * 0.003f - 1.5f;
      const lathe_arg args[] = {x.arg(), y.arg()};
      lathe_error e;
      ASSERT_EQ(execute(kernel.get(), args, &e), LATHE_STATUS_OK) << e.message;
      double most = -INFINITY, sum = 0;
      for (const float v : x.data) most = std::max<double>(most, v);
      for (const float v : x.data) sum += std::exp(v - most);
      const double mean = 1.0 / static_cast<double>(columns);
      for (size_t i = 0; i < y.data.size(); ++i) {
        const double real = std::exp(x.data[i] - most) / sum;
        ASSERT_NEAR(y.data[i], real, 1.2e-6 * std::max(real, mean)) << "column " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lathe::test
