// Where operands lie while a sample is taken, and that kernels are called there.
#include "runtime/measure/sample.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/core/text_form.h"
#include "runtime/measure/rotating_operands.h"

namespace lathe::runtime {
namespace {

TEST(Placements, DistancesAreSpreadOverThePage) {
  std::set<int64_t> seen;
  for (int p = 0; p < 64; ++p) {
    for (int i = 0; i < 12; ++i) {
      const int64_t at = placement_offset(p, i);
      EXPECT_EQ(at % 64, 0);
      EXPECT_GE(at, 0);
      EXPECT_LT(at, 4096);
      EXPECT_TRUE((p > 0 && i > 0) || at == 0);
    }
    seen.insert(placement_offset(p, 1));
  }
  EXPECT_GT(seen.size(), 32u);
  // Those that a search times: no two distances within 9 lines of each other.
  for (int p = 0; p < kPlacements; ++p) {
    for (int q = 0; q < p; ++q) {
      const int64_t apart = std::abs(placement_offset(p, 1) - placement_offset(q, 1));
      EXPECT_GE(std::min(apart, 4096 - apart), 9 * 64) << p << " " << q;
    }
  }
}

// A Stage whose leaves write down where their operands are when they are called first.
TEST(Placements, KernelsAreCalledThere) {
  const ir::Kernel k = ir::parse_kernel(
                           "kernel relu(x: f32[8, 40] in, w: f32[40] const, y: f32[8, 40] out) family elementwise\n"
                           "  for i < 8 [row]:\n    for j < 40 [col]:\n      y[i, j] = max(x[i, j], w[j])\n")
                           .value();
  LeafCache leaves({}, nullptr, nullptr);
  search::Schedule naive;
  naive.family = "elementwise";
  Stage stage = std::move(build_stage(k, naive, ir::Target(), leaves, LeafPolicy{})).value();
  struct Seen {
    std::set<int64_t> offsets;
    LeafRef real;
  } seen;
  ASSERT_EQ(stage.nest().leaves.size(), 1u);
  seen.real = stage.nest().leaves[0];
  stage.nest().leaves[0] = {
      nullptr,
      [](const void* program, const ir::LeafArgs& args) {
        Seen& s = *static_cast<Seen*>(const_cast<void*>(program));
        for (int i = 0; i < 3 && s.offsets.size() < 3; ++i)
          s.offsets.insert(static_cast<int64_t>(reinterpret_cast<uintptr_t>(args.op[i].ptr) % 4096));
        s.real(&args);
      },
      &seen};
  for (const bool cold : {false, true}) {
    const auto memory = std::move(RotatingOperands::create(k, {{}, 1, cold, 1 << 16}, nullptr)).value();
    ASSERT_TRUE(memory->add(stage).ok());
    for (int p = 0; p < 8; ++p) {
      seen.offsets.clear();
      memory->place(p);
      for (int n = 0; n < memory->copies(); ++n) {
        if (cold) memory->evict(1);
        memory->call(0);
        if (n > 0 || cold || p == 0) continue;
        EXPECT_EQ(seen.offsets,
                  (std::set<int64_t>{placement_offset(p, 0), placement_offset(p, 1), placement_offset(p, 2)}))
            << p;
      }
    }
  }
}

// What says how long loops run is what it would be in use, wherever the operands lie: all rows, in equal parts.
TEST(Placements, OffsetsAreEquallyFarApart) {
  const ir::Kernel k =
      ir::parse_kernel(
          "kernel parts(x: f32[12, 40] in, at: i32[5] in values 0..12, y: f32[12, 40] out) family elementwise\n"
          "  for i < 12 [row]:\n    for j < 40 [col]:\n      y[i, j] = 0.0\n"
          "  for t < 4 [row]:\n    for m < i64(at[t + 1]) - i64(at[t]) [row]:\n      for n < 40 [col]:\n"
          "        y[i64(at[t]) + m, n] = x[i64(at[t]) + m, n]\n")
          .value();
  LeafCache leaves({}, nullptr, nullptr);
  search::Schedule naive;
  naive.family = "elementwise";
  ir::Result<Stage> stage = build_stage(k, naive, ir::Target(), leaves, LeafPolicy{});
  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
  std::multiset<int64_t> parts;
  LeafRef& last = stage->nest().leaves.back();
  last = {nullptr,
          [](const void* program, const ir::LeafArgs& args) {
            static_cast<std::multiset<int64_t>*>(const_cast<void*>(program))->insert(args.extent[0]);
          },
          &parts};
  for (const bool cold : {false, true}) {
    const auto memory = std::move(RotatingOperands::create(k, {{}, 1, cold, 1 << 16}, nullptr)).value();
    ASSERT_TRUE(memory->add(*stage).ok());
    for (int p = 0; p < 8; ++p) {
      memory->place(p);
      for (int n = 0; n < memory->copies(); ++n) {
        parts.clear();
        memory->call(0);
        EXPECT_EQ(parts, (std::multiset<int64_t>{3, 3, 3, 3})) << p << " " << n;
      }
    }
  }
}

// What rotates: constants, where they are half of what is read or more; else everything; hot, nothing.
TEST(RotatingOperands, RotateAllWhereConstantsAreTheLesserPart) {
  const auto copies = [](const char* x, const char* w, bool cold, int64_t memory = INT64_MAX) {
    const ir::Result<ir::Kernel> k =
        ir::parse_kernel(fmt::format(R"(kernel own(x: f32[{}] in, w: f32[{}]{}, y: f32[64] out)
  for i < 64:
    y[i] = x[i] * w[i]
)",
                                     x, w[0] == '-' ? "64" : w, w[0] == '-' ? " in" : " const"));
    EXPECT_TRUE(k.ok()) << k.status().to_string();
    return std::move(RotatingOperands::create(*k, {{}, 1, cold, 1 << 16, memory}, nullptr)).value()->copies();
  };
  constexpr int kCold = 1 << 16, kRow = 64 * 4;
  EXPECT_EQ(copies("64", "64", true), (kCold + kRow - 1) / kRow) << "the constant alone";
  EXPECT_EQ(copies("1024", "64", true), (kCold + 18 * kRow - 1) / (18 * kRow)) << "x, w and y";
  EXPECT_EQ(copies("64", "-", true), (kCold + 3 * kRow - 1) / (3 * kRow)) << "there are no constants";
  EXPECT_EQ(copies("1024", "64", false), 1);
  EXPECT_EQ(copies("64", "-", false), 1);
  // No more than there is memory for, one at least.
  EXPECT_EQ(copies("64", "64", true, 10 * kRow + 1), 10);
  EXPECT_EQ(copies("64", "64", true, kCold), kCold / kRow);
  EXPECT_EQ(copies("64", "64", true, 0), 1);
}

}  // namespace
}  // namespace lathe::runtime
