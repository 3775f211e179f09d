// What the oracle's data hold beside random values: ends of ranges, integers that rise, largest elements at the ends of
// rows and all over them, scratch that differs from run to run.
#include "runtime/oracle/data_sets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "ir/core/text_form.h"

namespace lathe::runtime {
namespace {

constexpr const char* kGrouped = R"(
kernel grouped(a: f32[12, 40] in, o: i32[5] in values 0..12, l: i32[3] in values 0..30, y: f32[12, 40] out) family experts
  for t < 4 [batch]:
    for m < i64(o[t + 1]) - i64(o[t]) [m]:
      for n < 40 [n]:
        y[min(i64(o[t]) + m, 11), n] = a[min(i64(o[t]) + m, 11), n]
)";

std::vector<OperandShape> shapes() {
  SymbolValues none;
  const auto kernel = ir::parse_kernel(kGrouped);
  EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
  const auto made = operand_shapes(*kernel, &none);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return *made;
}

std::vector<int32_t> integers(const OperandShape& s, DataKind kind, int peaks = 0) {
  std::vector<int32_t> out(static_cast<size_t>(s.span));
  DataRecipe recipe;
  recipe.kind = kind;
  recipe.peaks = peaks;
  fill_operand(s, 1, recipe, reinterpret_cast<char*>(out.data()));
  return out;
}

std::vector<float> floats(const OperandShape& s, DataKind kind, int peaks = 0) {
  std::vector<float> out(static_cast<size_t>(s.span));
  DataRecipe recipe;
  recipe.kind = kind;
  recipe.peaks = peaks;
  fill_operand(s, 0, recipe, reinterpret_cast<char*>(out.data()));
  return out;
}

TEST(DataSets, IntegersThatBoundLoopsRiseOverAllThereIs) {
  const std::vector<OperandShape> s = shapes();
  EXPECT_TRUE(s[1].rises);
  EXPECT_FALSE(s[2].rises);
  EXPECT_EQ(integers(s[1], DataKind::integers), (std::vector<int32_t>{0, 3, 6, 9, 12}));
  EXPECT_EQ(integers(s[1], DataKind::normal), (std::vector<int32_t>{0, 0, 0, 0, 12}));
  for (int peaks = 1; peaks <= kUsualPeaks; ++peaks) {
    const std::vector<int32_t> any = integers(s[1], DataKind::normal, peaks);
    EXPECT_TRUE(std::is_sorted(any.begin(), any.end()));
    EXPECT_GE(any.front(), 0);
    EXPECT_LE(any.back(), 12);
  }
}

TEST(DataSets, IntegersHaveTheEndsOfTheirRange) {
  const std::vector<OperandShape> s = shapes();
  EXPECT_EQ(integers(s[2], DataKind::integers).front(), 30);
  EXPECT_EQ(integers(s[2], DataKind::normal).back(), 30);
  const std::vector<int32_t> least = integers(s[2], DataKind::wide);
  EXPECT_EQ(least[0], 0);
  EXPECT_EQ(least[1], 1);
  OperandShape one = s[2];
  one.values = ir::SymbolRange{7, 7};
  for (const DataKind kind : {DataKind::integers, DataKind::normal, DataKind::wide})
    EXPECT_EQ(integers(one, kind), (std::vector<int32_t>{7, 7, 7}));
  one.dims = {1};
  one.elements = one.span = 1;
  EXPECT_EQ(integers(one, DataKind::integers), (std::vector<int32_t>{7}));
}

TEST(DataSets, ALengthIsOneMoreThanAPowerOfTwo) {
  OperandShape lengths = shapes()[2];
  for (int64_t hi = 2; hi < 300; ++hi) {
    lengths.values = ir::SymbolRange{0, hi};
    const auto length = static_cast<uint32_t>(integers(lengths, DataKind::normal).front());
    EXPECT_TRUE(length == 1 || std::has_single_bit(length - 1)) << length << " of " << hi;
    EXPECT_LE(4 * length, 2 * hi + 4) << hi;
    EXPECT_EQ(integers(lengths, DataKind::integers).back(), static_cast<int32_t>(length));
  }
  lengths.values = ir::SymbolRange{0, 144};
  EXPECT_EQ(integers(lengths, DataKind::normal).front(), 65);
}

TEST(DataSets, LargestElementsStandAtEndsAndAllOver) {
  const OperandShape s = shapes()[0];
  const auto first_largest = [&](const std::vector<float>& data, int64_t row) {
    const auto begin = data.begin() + row * 40;
    return std::max_element(begin, begin + 40) - begin;
  };
  // Of integers two are equal there, so that the lower one is what counts.
  const std::vector<float> whole = floats(s, DataKind::integers), random = floats(s, DataKind::normal);
  EXPECT_EQ(first_largest(whole, 0), 38);
  EXPECT_EQ(whole[38], whole[39]);
  EXPECT_EQ(first_largest(whole, 1), 0);
  EXPECT_EQ(first_largest(random, 0), 0);
  EXPECT_EQ(first_largest(random, 1), 39);
  std::set<int64_t> places, of_first_row;
  for (int peaks = 1; peaks <= kUsualPeaks; ++peaks) {
    for (const DataKind kind : {DataKind::integers, DataKind::normal}) {
      const std::vector<float> data = floats(s, kind, peaks);
      for (int64_t row = 0; row < 12; ++row) places.insert(first_largest(data, row) / 8);
      of_first_row.insert(first_largest(data, 0) / 8);
    }
  }
  EXPECT_EQ(places.size(), 5u);
  EXPECT_GE(of_first_row.size(), 4u);
}

TEST(DataSets, EachColumnIsTheLargestWhereSetsSuffice) {
  for (const int64_t columns : {8, 37, 40, 64, 100}) {
    for (const int64_t rows : {3, 5, 7}) {
      OperandShape s;
      s.dims = {rows, columns};
      s.strides = {columns, 1};
      s.elements = s.span = rows * columns;
      DataRecipe recipe;
      recipe.peak_sets = static_cast<int>((columns + 2 * rows - 1) / (2 * rows));
      std::set<int64_t> places;
      for (recipe.peaks = 1; recipe.peaks <= recipe.peak_sets; ++recipe.peaks) {
        for (const DataKind kind : {DataKind::integers, DataKind::normal}) {
          recipe.kind = kind;
          std::vector<float> data(static_cast<size_t>(s.span));
          fill_operand(s, 0, recipe, reinterpret_cast<char*>(data.data()));
          for (int64_t row = 0; row < rows; ++row) {
            const auto begin = data.begin() + row * columns;
            places.insert(std::max_element(begin, begin + columns) - begin);
          }
        }
      }
      EXPECT_GE(std::ssize(places), columns - 1) << rows << " rows of " << columns;
    }
  }
}

TEST(DataSets, ScratchDiffersFromRunToRun) {
  int32_t once[4] = {}, again[4] = {};
  poison_scratch(reinterpret_cast<char*>(once), sizeof once, false);
  poison_scratch(reinterpret_cast<char*>(again), sizeof again, true);
  EXPECT_GT(once[3], 0);
  EXPECT_LT(again[3], 0);
  for (const int32_t* p : {once, again}) {
    EXPECT_TRUE(std::isnan(load_element(ir::DType::f32, reinterpret_cast<const char*>(p), 1)));
    EXPECT_TRUE(std::isnan(load_element(ir::DType::bf16, reinterpret_cast<const char*>(p), 1)));
    EXPECT_TRUE(std::isnan(load_element(ir::DType::f16, reinterpret_cast<const char*>(p), 1)));
  }
}

// What a result was filled with is found wherever it is left, in every type that has such a pattern.
TEST(DataSets, WhatNobodyWroteIsFoundQuickly) {
  for (const ir::DType type : {ir::DType::f32, ir::DType::bf16, ir::DType::f16, ir::DType::i32}) {
    constexpr int64_t kCells = 101;
    std::vector<char> data(static_cast<size_t>(ir::dtype_bytes(type, kCells)));
    for (int64_t left = 0; left < kCells; ++left) {
      fill_tame(type, 1, data.data(), static_cast<int64_t>(data.size()));
      EXPECT_FALSE(maybe_poison(type, data.data(), kCells)) << ir::dtype_name(type);
      poison(type, data.data() + ir::dtype_bytes(type, left), 1);
      EXPECT_TRUE(maybe_poison(type, data.data(), kCells)) << ir::dtype_name(type) << left;
      EXPECT_TRUE(is_poison(type, data.data(), left)) << ir::dtype_name(type) << left;
    }
  }
}

// Of 16 bits with many values and either sign: tensor cores take less time where bits stay.
TEST(DataSets, FloatsToBeTimedDiffer) {
  for (const ir::DType type : {ir::DType::f32, ir::DType::bf16, ir::DType::f16}) {
    constexpr int64_t kCells = 1000;
    std::vector<char> data(static_cast<size_t>(ir::dtype_bytes(type, kCells)));
    fill_tame(type, 1, data.data(), static_cast<int64_t>(data.size()));
    std::set<double> values;
    int64_t negative = 0;
    for (int64_t i = 0; i < kCells; ++i) {
      const double v = load_element(type, data.data(), i);
      EXPECT_TRUE(std::abs(v) >= 0.5 && std::abs(v) < 1) << v;
      values.insert(v);
      negative += v < 0;
    }
    EXPECT_GT(values.size(), type == ir::DType::bf16 ? 200u : 500u) << ir::dtype_name(type);
    EXPECT_EQ(negative > 300 && negative < 700, type != ir::DType::f32) << negative;
  }
}

}  // namespace
}  // namespace lathe::runtime
