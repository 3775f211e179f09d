// Every operator of ops.def at every size around vectors, tiles and blocks, fixed and as a symbol: prepared as the
// first call does on each level of this CPU (sweep_case.h). A row without samples, or whose samples are refused, fails.
#include "ops/samples.h"
#include "tests/sweep/sweep_case.h"

namespace lathe::runtime {
namespace {

using ops::DimDesc;
using ops::fixed_dim;
using ops::Graph;
using ops::OpRow;

constexpr int64_t kLargest = 4098;
constexpr int kWays = 3;       // each fixed size is met in so many,
constexpr int kOften = 70;     // and one beyond this in one of them
constexpr int kGraphs = 8;     // with a symbol; each has every kGraphs / 2-th size
constexpr int kHintEvery = 6;  // of those sizes is a hint as well

// Sizes of the dimension that is swept.
std::vector<int64_t> sizes() {
  std::vector<int64_t> out;
  for (int64_t n = 0; n <= 70; ++n) out.push_back(n);
  for (const int64_t edge : {128, 256, 512, 1024, 4096}) {
    for (int64_t n = edge - 1; n <= edge + 2; ++n) out.push_back(n);
  }
  return out;
}

// The other sizes that go with the case of this number: each row meets 5, 1 and 0, in one to four dimensions.
std::vector<DimDesc> others(const OpRow& row, size_t number) {
  const auto list = row.family->samples.around.get();
  std::vector<DimDesc> out;
  for (const int64_t n : list[number % list.size()]) out.push_back(fixed_dim(n));
  return out;
}

// One operator along one of its axes.
struct Piece {
  const OpRow* row;
  size_t axis;
};

std::vector<Piece> pieces() {
  std::vector<Piece> out;
  for (const OpRow& row : ops::op_rows()) {
    for (size_t axis = 0; axis < row.family->samples.axes.get().size(); ++axis) out.push_back({&row, axis});
  }
  return out;
}

const ops::SampleAxis& axis_of(const Piece& p) { return p.row->family->samples.axes.get()[p.axis]; }
std::string name_of(const Piece& p) { return fmt::format("{}_{}", p.row->name, axis_of(p).name); }
std::string piece_name(const ::testing::TestParamInfo<Piece>& info) { return name_of(info.param); }
void PrintTo(const Piece& p, std::ostream* out) { *out << name_of(p); }

std::string describe(const Piece& p, int variant, const std::vector<DimDesc>& others) {
  std::string out = fmt::format("{} variant {} others", p.row->name, variant);
  for (const DimDesc& d : others) out += fmt::format(" {}", ops::dim_text(d));
  return out;
}

class Sweep : public ::testing::TestWithParam<Piece> {};

TEST_P(Sweep, fixed) {
  const Piece p = GetParam();
  const int variants = p.row->family->samples.variants(*p.row);
  const std::vector<int64_t> all = sizes();
  for (size_t number = 0; number < kWays * all.size(); ++number) {
    const int64_t size = all[number / kWays];
    if (size > kOften && number % kWays != (number / kWays + number / kWays / kWays) % kWays) continue;
    const int variant = static_cast<int>(number % static_cast<size_t>(variants));
    const std::vector<DimDesc> around = others(*p.row, number + number / static_cast<size_t>(variants));
    const std::string what = fmt::format("{} {}={}", describe(p, variant, around), axis_of(p).name, size);
    const auto graph = ops::sample_graph(*p.row, p.axis, variant, {fixed_dim(size), around});
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const auto finished = ops::finish(*graph);
    if (size % axis_of(p).step != 0) {
      ASSERT_FALSE(finished.ok()) << what;
      EXPECT_EQ(finished.status().to_string(),
                fmt::format("INVALID: x.shape[{}]: {}, expected {}", around.size(), size, axis_of(p).refusal));
      continue;
    }
    ASSERT_TRUE(finished.ok()) << what << " " << finished.status().to_string();
    Case(*finished, what).run({{}}, 0);
  }
}

TEST_P(Sweep, symbol) {
  const Piece p = GetParam();
  if (axis_of(p).fixed) GTEST_SKIP() << "a fixed dimension";
  const int variants = p.row->family->samples.variants(*p.row);
  const DimDesc swept = ops::symbol_dim("N", 0, kLargest);
  const std::vector<int64_t> all = sizes();
  for (size_t part = 0; part < kGraphs; ++part) {
    std::vector<SymbolValues> shapes;
    for (size_t i = part % (kGraphs / 2); i < all.size(); i += kGraphs / 2) shapes.push_back({{"N", all[i]}});
    const int variant = static_cast<int>(part) % variants;
    const std::vector<DimDesc> around = others(*p.row, part);
    const std::string what = describe(p, variant, around);
    const auto graph = ops::sample_graph(*p.row, p.axis, variant, {swept, around});
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const auto finished = ops::finish(*graph);
    ASSERT_TRUE(finished.ok()) << what << " " << finished.status().to_string();
    Case(*finished, what).run(shapes, kHintEvery);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Sweep, ::testing::ValuesIn(pieces()), piece_name);

}  // namespace
}  // namespace lathe::runtime
