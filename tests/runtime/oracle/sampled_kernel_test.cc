// Sampling: which iterators may be sampled, and that a sampled Kernel gives the same cells as the
// whole one.
#include "runtime/oracle/sampled_kernel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/core/text_form.h"

namespace lathe::runtime {
namespace {

ir::Kernel parse(const char* text) {
  ir::Result<ir::Kernel> k = ir::parse_kernel(text);
  EXPECT_TRUE(k.ok()) << k.status().to_string();
  return std::move(k).value();
}

const char* const kGrouped = R"(
kernel mm(a: f32[6, M, 9] in, w: f32[3, 7, 9] const, y: f32[6, M, 7] out) family matmul where M in 1..64
  c: f32[6, M, 7] heap
  for t < 6 [batch]:
    for m < M [m]:
      for n < 7 [n]:
        c[t, m, n] = 0.0
        for k < 9 [k]:
          c[t, m, n] += a[t, m, k] * w[t // 2, n, k]
        y[t, m, n] = c[t, m, n] + f32(m)
)";

// Cells of the output computed whole and at picks.
void compare(const ir::Kernel& kernel, const SymbolValues& dims, int64_t budget) {
  SymbolValues symbols = dims;
  const std::vector<OperandShape> shapes = operand_shapes(kernel, &symbols).value();
  ir::Result<SampledKernel> sampled = SampledKernel::create(kernel, symbols);
  ASSERT_TRUE(sampled.ok());
  std::map<std::string, ir::Tensor> whole, part;
  const auto picks = sampled->choose(budget, 3);
  sampled->add_picks(picks, &part);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const OperandShape& s = shapes[i];
    if (s.place == ir::Place::out) continue;
    ir::Tensor t{s.dims, {}}, p;
    for (int64_t n = 0; n < s.elements; ++n)
      t.data.push_back(static_cast<double>((n * 7 + static_cast<int64_t>(i)) % 23 - 11));
    for (size_t d = 0; d < s.dims.size(); ++d) {
      const int c = sampled->class_of(s.name, static_cast<int>(d));
      p.dims.push_back(c < 0 ? s.dims[d] : static_cast<int64_t>(picks[c].size()));
    }
    sampled->for_each_picked(s, picks, [&](int64_t, const std::vector<int64_t>& at) {
      int64_t offset = 0;
      for (size_t d = 0; d < at.size(); ++d) offset += at[d] * s.strides[d];
      p.data.push_back(t.data[offset]);
    });
    whole[s.name] = t;
    part[s.name] = p;
  }
  const ir::Kernel small = sampled->at(picks);
  ir::Status status = ir::interpret(kernel, symbols, whole);
  ASSERT_TRUE(status.ok()) << status.to_string();
  status = ir::interpret(small, {}, part);
  ASSERT_TRUE(status.ok()) << status.to_string() << ir::print(small);
  for (const OperandShape& s : shapes) {
    if (s.place != ir::Place::out) continue;
    int64_t cells = 0;
    sampled->for_each_picked(s, picks, [&](int64_t i, const std::vector<int64_t>& at) {
      int64_t offset = 0;
      for (size_t d = 0; d < at.size(); ++d) offset += at[d] * s.strides[d];
      EXPECT_EQ(part[s.name].data[i], whole[s.name].data[offset]) << s.name << " " << offset;
      ++cells;
    });
    EXPECT_GT(cells, 0);
  }
}

TEST(SampledKernel, GroupedMatmulWithAnIteratorUsedAsANumber) {
  for (const int64_t budget : {100'000, 400, 1}) compare(parse(kGrouped), {{"M", 40}}, budget);
}

TEST(SampledKernel, SumsAndWhatTheyReadStayWhole) {
  const ir::Kernel k = parse(R"(
kernel norm(s: f32[B, N] in, g: f32[N] const, d: f32[B, N] out) family row where B in 1..64, N in 1..64
  a: f32[B] heap
  for b < B [row]:
    a[b] = 0.0
    for n < N [col]:
      a[b] += s[b, n] * s[b, n]
    for n1 < N [col]:
      d[b, n1] = s[b, n1] * a[b] * g[n1]
)");
  ir::Result<SampledKernel> s = SampledKernel::create(k, {{"B", 32}, {"N", 17}});
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->num_classes(), 1);
  EXPECT_EQ(s->extent(0), 32);
  EXPECT_EQ(s->class_of("d", 0), 0);
  EXPECT_EQ(s->class_of("d", 1), -1);
  EXPECT_EQ(s->class_of("g", 0), -1);
  compare(k, {{"B", 32}, {"N", 17}}, 100);
}

TEST(SampledKernel, ANeighbourOrAReversedIndexIsNotSampled) {
  const ir::Kernel k = parse(R"(
kernel diff(x: f32[64] in, y: f32[63] out) family elementwise
  for i < 63:
    y[i] = x[i] - x[i + 1]
)");
  ir::Result<SampledKernel> s = SampledKernel::create(k, {});
  ASSERT_TRUE(s.ok());
  EXPECT_EQ(s->class_of("x", 0), -1);
  compare(k, {}, 10);
}

TEST(SampledKernel, EdgesAreAmongThePicks) {
  const ir::Kernel k = parse(kGrouped);
  const SampledKernel s = SampledKernel::create(k, {{"M", 40}}).value();
  const int m = s.class_of("y", 1);
  ASSERT_GE(m, 0);
  const auto picks = s.choose(1'000, 1);
  EXPECT_EQ(picks[m].back(), 39);
  EXPECT_EQ(picks[m].front(), 0);
}

// Statements of a scope count even if its extent varies from row to row, or is an input's.
TEST(SampledKernel, ScopesOfVaryingExtentCount) {
  for (const char* const extent : {"i + 1", "i64(lengths[t])", "max(i64(lengths[t]) - 5, 0)"}) {
    const std::string scores = fmt::format(R"(
kernel scores(q: f32[32, L, 64] in, k: f32[32, L, 64] in, lengths: i32[32] in values 0..L, y: f32[32, L] out) family attention where L in 1..600
  c: f32[32, L, L] heap
  for t < 32 [batch]:
    for i < L [row]:
      y[t, i] = 0.0
      for j < {} [key]:
        c[t, i, j] = 0.0
        for d < 64 [k]:
          c[t, i, j] += q[t, i, d] * k[t, j, d]
        y[t, i] fmax= c[t, i, j]
)",
                                           extent);
    const ir::Kernel k = parse(scores.c_str());
    const SampledKernel s = SampledKernel::create(k, {{"L", 512}}).value();
    ASSERT_EQ(s.num_classes(), 2) << extent;
    constexpr int64_t kBudget = 300'000;
    const auto picks = s.choose(kBudget, 3);
    EXPECT_GE(picks[0].size() * picks[1].size(), 8u) << extent;
    std::map<std::string, ir::Tensor> tensors;
    s.add_picks(picks, &tensors);
    const auto rows = static_cast<int64_t>(picks[s.class_of("y", 1)].size());
    const auto heads = static_cast<int64_t>(picks[s.class_of("y", 0)].size());
    const auto filled = [&](int64_t queries, double value) {
      return ir::Tensor{{heads, queries, 64}, std::vector<double>(static_cast<size_t>(heads * queries * 64), value)};
    };
    tensors["q"] = filled(rows, 1);
    tensors["k"] = filled(512, 1);
    tensors["lengths"] = {{32}, std::vector<double>(32, 512)};
    ir::InterpreterOptions options;
    options.max_steps = 32 * kBudget;
    const ir::Status status = ir::interpret(s.at(picks), {}, tensors, options);
    EXPECT_TRUE(status.ok()) << extent << ": " << status.to_string();
  }
}

// A few rows of a table: statements are few, and the interpreter would hold all of it.
TEST(SampledKernel, OfALargeTableColumnsAreSampled) {
  const ir::Kernel k = parse(R"(
kernel rows(t: f32[200000, 4096] in, ids: i32[3] in values 0..200000 - 1, y: f32[3, 4096] out) family gather
  for i < 3 [row]:
    for j < 4096 [col]:
      y[i, j] = t[i64(ids[i]), j]
)");
  const SampledKernel s = SampledKernel::create(k, {}).value();
  const int j = s.class_of("t", 1);
  ASSERT_GE(j, 0);
  EXPECT_EQ(s.class_of("t", 0), -1);
  const auto picks = s.choose(1'000'000, 1);
  EXPECT_EQ(picks[static_cast<size_t>(s.class_of("ids", 0))].size(), 3u);
  EXPECT_LE(picks[static_cast<size_t>(j)].size() * 200000, size_t{1} << 24);
  EXPECT_EQ(picks[static_cast<size_t>(j)].back(), 4095);
  compare(parse(R"(
kernel rows(t: f32[9, 40] in, ids: i32[7] in, y: f32[7, 40] out) family gather
  for i < 7 [row]:
    for j < 40 [col]:
      y[i, j] = t[(i64(ids[i]) + 11) % 9, j]
)"),
          {}, 60);
}

}  // namespace
}  // namespace lathe::runtime
