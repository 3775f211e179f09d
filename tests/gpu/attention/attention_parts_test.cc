// Keys in parts without tensor cores, of caches, pages, bytes and unequal sequences, and attention of one key: values
// stay, what is proven is proven, on the emulator in every order of the threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/analysis.h"
#include "search/cut/launch_cut.h"
#include "search/cut/safe_kernel.h"
#include "search/gpu/attention/attention_schedule.h"
#include "search/gpu/attention/attention_tiles.h"
#include "tests/gpu/attention/attention_ops.h"
#include "tests/gpu/attention/tensor_attentions.h"

namespace lathe::search {
namespace {

using ir::SymbolValues;
using test::AttentionOp;
using test::kernel_of_op;

constexpr ir::DType kF32 = ir::DType::f32, kBf16 = ir::DType::bf16, kF16 = ir::DType::f16;

// B sequences with S queries each, and T keys or pages of 16 of as many.
SymbolValues sizes(int64_t b, int64_t s, int64_t t) {
  return {{"B", b}, {"S", s}, {"T", t}, {"P", 3 * (t / 16) + 1}, {"N", t / 16}};
}
// R queries of B sequences, with N pages each.
SymbolValues rows(int64_t b, int64_t r, int64_t n) { return {{"B", b}, {"R", r}, {"P", 3 * n + 1}, {"N", n}}; }

void expect_kept(const ir::Kernel& naive, int64_t part, std::initializer_list<SymbolValues> all, double bound) {
  const GeneralKernel general = general_kernel(naive);
  const auto made = attention_schedule(general, part);
  ASSERT_TRUE(made.ok()) << made.status().to_string() << "\n" << print(general.kernel);
  SCOPED_TRACE(to_text(made->schedule));
  EXPECT_TRUE(check_safe(general.kernel, made->kernel).ok());
  for (const SymbolValues& s : all) {
    test::expect_values_kept(naive, general, made, s, bound);
    test::expect_as_interpreted(made->kernel, test::sizes_of(general, s), bound);
  }
}
void expect_parts(const AttentionOp& op, std::initializer_list<int64_t> parts,
                  std::initializer_list<SymbolValues> all) {
  for (const int64_t part : parts) expect_kept(kernel_of_op(op), part, all, op.type == kF32 ? 2e-5 : 2e-2);
}

// None, one, one less and more than a part, and parts that are full.
TEST(AttentionParts, OfCaches) {
  const auto lengths = {sizes(1, 1, 0),  sizes(1, 1, 1),  sizes(2, 1, 15), sizes(1, 1, 16),
                        sizes(1, 2, 17), sizes(2, 1, 64), sizes(1, 1, 65), sizes(2, 1, 100)};
  expect_parts({.heads = 8, .type = kF32}, {16, 64}, lengths);
  expect_parts({.heads = 3, .kept = 3, .depth = 20, .columns = 12, .causal = false, .type = kF32}, {16}, lengths);
  expect_parts({.heads = 8, .kept = 1, .type = kBf16, .sinks = true}, {32}, lengths);
  expect_parts({.heads = 8, .bytes = true, .type = kF32}, {16, 32}, lengths);
  expect_parts({.type = kF16, .window = 40, .masked = true}, {16}, {sizes(1, 1, 75), sizes(2, 2, 40)});
}

TEST(AttentionParts, OfPages) {
  const auto pages = {sizes(1, 1, 0), sizes(2, 1, 16), sizes(1, 1, 64), sizes(2, 2, 112)};
  expect_parts({.op = "paged_attention", .type = kF32}, {16, 32}, pages);
  expect_parts({.op = "paged_attention", .heads = 8, .bytes = true}, {64}, pages);
  expect_parts({.op = "paged_attention", .heads = 1, .kept = 1, .type = kF32, .page = 5}, {16}, {sizes(2, 1, 48)});
}

TEST(AttentionParts, OfUnequalSequences) {
  const auto calls = {rows(3, 5, 4), rows(1, 1, 2), rows(4, 3, 0), rows(0, 3, 1), rows(2, 0, 1)};
  expect_parts({.op = "ragged_attention", .type = kF32}, {16, 32}, calls);
  expect_parts({.op = "ragged_attention", .heads = 3, .kept = 3, .causal = false, .type = kF32}, {16}, calls);
  expect_parts({.op = "ragged_attention", .heads = 1, .kept = 1, .type = kF32, .sequences = 3}, {16},
               {rows(3, 5, 3), rows(3, 2, 1)});
  expect_parts({.op = "ragged_attention", .heads = 8, .bytes = true}, {32}, {rows(3, 5, 4)});
  // More heads than a block takes.
  expect_parts({.op = "ragged_attention", .heads = 32, .kept = 2, .sinks = true}, {64}, {rows(3, 4, 9)});
  expect_parts({.op = "ragged_attention", .window = 70}, {32}, {rows(3, 20, 8)});
  expect_parts({.op = "ragged_attention", .masked = true}, {32}, {rows(3, 5, 4)});
}

// Parts of rows that no sequence has, or behind the end of theirs, do nothing; a launch before clears results, and one
// after puts parts together.
TEST(AttentionParts, UnequalSequencesHaveThreeLaunches) {
  const GeneralKernel general = general_kernel(kernel_of_op({.op = "ragged_attention", .type = kF32}));
  const auto cut = cut_launches(attention_schedule(general, 16)->kernel);
  ASSERT_TRUE(cut.ok()) << cut.status().to_string();
  ASSERT_EQ(cut->launches.size(), 3u);
  const SymbolValues symbols = test::sizes_of(general, rows(5, 7, 3));
  const auto blocks = [&](size_t launch) {
    int64_t out = 1;
    for (const ir::Expr& e : cut->launches[launch].grid) out *= ir::evaluate(e, symbols).value();
    return out;
  };
  EXPECT_EQ(blocks(1), 7 * 2 * 3);
  EXPECT_EQ(blocks(2), 7 * 4);
}

TEST(AttentionParts, UnequalSequencesAreDividedWhereTheyAreFew) {
  const ir::GpuTarget h100 = *ir::find_gpu_target("h100");
  const auto best = [&](int64_t sequences, int64_t queries) {
    const ir::SymbolValues calls = rows(sequences, queries, 64);
    const GeneralKernel general = general_kernel(test::up_to(
        kernel_of_op({.op = "ragged_attention", .heads = 32, .kept = 8, .depth = 128, .columns = 128, .type = kF32}),
        calls));
    return key_parts(general, test::sizes_of(general, calls), h100).value().front();
  };
  for (const int64_t sequences : {1, 2, 8}) {
    const int64_t part = best(sequences, sequences);
    ASSERT_GT(part, 0) << sequences;
    EXPECT_GE(sequences * 8 * 1024 / part, 132) << sequences;
  }
  EXPECT_EQ(best(8, 512), 0);
}

// Pages whose lines lie apart, by any distances: where they begin is asked once, together with the distances, also
// where a window begins within a page. Each form has a device program, and some are run.
TEST(AttentionParts, WindowsOfStridedPages) {
  AttentionOp op = {.kept = 2, .by_strides = true};
  int programs = 0;
  for (const char* name : {"paged_attention", "ragged_attention"}) {
    for (const int64_t window : {0, 1000}) {
      for (const int64_t page : {16, 17}) {
        for (const int64_t depth : {7, 64}) {
          for (const ir::DType type : {kF32, kBf16}) {
            op.op = name, op.window = window, op.page = page, op.type = type;
            op.depth = op.columns = depth;
            SCOPED_TRACE(testing::Message()
                         << name << " " << window << " " << page << " " << depth << " " << ir::dtype_name(type));
            const auto made = attention_schedule(general_kernel(kernel_of_op(op)), 0);
            ASSERT_TRUE(made.ok()) << made.status().to_string();
            const auto cut = cut_launches(made->kernel);
            ASSERT_TRUE(cut.ok()) << cut.status().to_string();
            for (const ir::Leaf& leaf : cut->leaves) {
              const auto program = jit::lower_device(leaf);
              EXPECT_TRUE(program.ok()) << program.status().to_string();
              ++programs;
            }
          }
        }
      }
    }
  }
  EXPECT_GE(programs, 32);
  const auto pages = [](int64_t queries) { return SymbolValues{{"B", 2}, {"S", queries}, {"P", 5}, {"N", 3}}; };
  expect_parts({.op = "paged_attention", .depth = 7, .columns = 7, .type = kF32, .window = 1000, .by_strides = true},
               {0}, {pages(1), pages(20)});
  expect_parts({.op = "paged_attention", .depth = 7, .columns = 7, .window = 30, .by_strides = true}, {0}, {pages(20)});
  for (const int64_t page : {16, 17}) {
    expect_parts({.op = "ragged_attention",
                  .depth = 64,
                  .columns = 64,
                  .type = kF32,
                  .page = page,
                  .window = 20,
                  .by_strides = true},
                 {0}, {rows(3, 5, 3), rows(2, 40, 18)});
  }
}

// Lines of one element: a thread has its keys alone.
TEST(AttentionParts, PagesOfOneElement) {
  expect_parts({.op = "paged_attention", .depth = 1, .columns = 1, .type = kF32}, {0},
               {sizes(2, 1, 0), sizes(2, 3, 48)});
  expect_parts({.op = "paged_attention", .depth = 1, .columns = 1, .page = 1, .by_strides = true}, {0},
               {{{"B", 2}, {"S", 8}, {"P", 9}, {"N", 5}}});
  expect_parts({.op = "ragged_attention", .heads = 6, .kept = 3, .depth = 1, .columns = 5, .type = kF32}, {0},
               {rows(3, 5, 3)});
}

// Of a known number of keys, a cache with room for one, and windows of one in pages.
TEST(AttentionParts, OneKey) {
  const auto one = [](const test::AttentionText& a) {
    std::string text = test::attention_text(a);
    const size_t at = text.find("T in 0..8192");
    if (at != std::string::npos) text.replace(at, 12, "T in 0..1");
    return test::kernel_of(text);
  };
  for (const int64_t queries : {1, 3}) expect_kept(test::fixed_attention({2, queries, 1, queries == 1}), 0, {{}}, 2e-2);
  const auto calls = {sizes(2, 1, 1), sizes(1, 1, 0), sizes(3, 1, 1)};
  expect_kept(one({"f32", 4, 2, 8, 200, false, 0, true}), 0, calls, 1e-5);
  expect_kept(one({"bf16", 3, 3, 33, 1, false, 0, true}), 0, calls, 2e-2);
  expect_kept(test::kernel_of(test::attention_text({"f32", 4, 2, 8, 8, true, 1, false, true})), 0, {sizes(2, 3, 32)},
              1e-5);
  expect_kept(kernel_of_op({.op = "ragged_attention", .type = kF32, .window = 1}), 0, {rows(3, 5, 2)}, 1e-5);
  expect_kept(kernel_of_op({.op = "ragged_attention", .bytes = true, .window = 1}), 0, {rows(3, 5, 2)}, 2e-2);
}

}  // namespace
}  // namespace lathe::search
