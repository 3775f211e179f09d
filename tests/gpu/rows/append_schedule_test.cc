// Appending to a cache on a GPU: what the emulator makes of the Schedules is what the interpreter does, and the real
// compiler takes them.
#include "search/gpu/rows/append_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search/gpu/choice/device_candidates.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/integers/integer_kernels.h"

namespace lathe::test {
namespace {

// As ops writes it, of heads with a norm whose first half is turned. type: of what is read; cache: of the cache.
std::string append(const std::string& type, const std::string& cache, const std::string& slots, int64_t width) {
  const auto wide = [&](const std::string& e) { return type == "f32" ? e : "f32(" + e + ")"; };
  const auto s = [&](const std::string& d) { return wide("s[t, h, " + d + "]") + " * r[h, t] * g[" + d + "]"; };
  const std::string half = std::to_string(width / 4), second = "p + " + half, rest = "q + " + std::to_string(width / 2);
  const std::string at = slots == "i64" ? "slots[t]" : "i64(slots[t])";
  const auto store = [&](const std::string& d, const std::string& value) {
    const std::string rounded = cache == "f32" ? value : cache + "(" + value + ")";
    return "c[max(" + at + ", 0), h, " + d + "] = " + rounded + "\n";
  };
  const std::string c = "co[positions[t], p]", z = "si[positions[t], p]", n = wide("s[t, h, n]");
  const std::string sizes = std::to_string(width);
  std::string out = "kernel kv_append(s: " + type + "[T, H, " + sizes + "] in, slots: " + slots +
                    "[T] in values -1..P - 1, c: " + cache + "[P, H, " + sizes + "] out keep, co: f32[40, " + half +
                    "] in, si: f32[40, " + half + "] in, positions: i64[T] in values 0..39, g: f32[" + sizes +
                    "] in) family kv_append where T in 0..8192, P in 0..65536, H in 1..64\n"
                    "  v: f32[H, T] heap\n  r: f32[H, T] heap\n"
                    "  for h < H [row]:\n    for t < T [row]:\n      for u < min(min(1, " +
                    at + " + 1), P) [slot]:\n        v[h, t] = 0.0\n        for n < " + sizes +
                    " [col]:\n          v[h, t] += " + n + " * " + n + "\n        r[h, t] = rsqrt(v[h, t] / " + sizes +
                    ".0 + 1e-05)\n        for p < " + half + " [col]:\n          " +
                    store("p", s("p") + " * " + c + " - " + s(second) + " * " + z) + "          " +
                    store(second, s(second) + " * " + c + " + " + s("p") + " * " + z);
  return out + "        for q < " + std::to_string(width - width / 2) + " [col]:\n          " + store(rest, s(rest));
}
// Of int8, each head with a scale.
const char kInt8[] =
    "kernel kv_append_int8(s: f32[T, H, 128] in, slots: i32[T] in values -1..P - 1, c: i8[P, H, 128] out keep, sc: "
    "f32[P, H] out keep) family kv_append where T in 0..8192, P in 0..65536, H in 1..64\n"
    "  e2: f32[H, T, 128] heap\n  m: f32[H, T] heap\n  i: f32[H, T] heap\n"
    "  for h < H [row]:\n    for t < T [row]:\n      for u < min(min(1, i64(slots[t]) + 1), P) [slot]:\n"
    "        for q < 128 [col]:\n          e2[h, t, q] = s[t, h, q]\n        m[h, t] = 0.0\n"
    "        for qm < 128 [col]:\n          m[h, t] max= abs(e2[h, t, qm])\n"
    "        i[h, t] = select(0.0 < m[h, t], 127.0 / m[h, t], 0.0)\n"
    "        sc[max(i64(slots[t]), 0), h] = m[h, t] * 0.007874016\n"
    "        for qc < 128 [col]:\n          c[max(i64(slots[t]), 0), h, qc] = i8(e2[h, t, qc] * i[h, t])\n";

// Tokens in turns and at once; more tokens than rows name some of them twice.
void expect_both_as_interpreted(const std::string& text, double bound) {
  const ir::Kernel naive = kernel_of(text);
  const search::GeneralKernel general = search::general_kernel(naive);
  for (const bool together : {false, true}) {
    const auto made = search::append_schedule(general, sizes_of(general, {{"T", 64}, {"P", 999}, {"H", 3}}), together);
    ASSERT_TRUE(made.ok()) << made.status().to_string() << text;
    const auto again = search::replay_on_device(general, made->schedule);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(print(again->kernel), print(made->kernel));
    for (const auto& [tokens, room, heads] :
         {std::array<int64_t, 3>{0, 3, 1}, {1, 1, 1}, {3, 0, 2}, {7, 4, 5}, {33, 40, 3}, {41, 6, 2}}) {
      const ir::SymbolValues sizes = {{"T", tokens}, {"P", room}, {"H", heads}};
      expect_as_interpreted(made->kernel, sizes_of(general, sizes), bound);
      if (tokens < 30) expect_values_kept(naive, general, made, sizes, 0.01);
    }
  }
}
TEST(AppendSchedule, OfF32IsWhatTheInterpreterSays) {
  expect_both_as_interpreted(append("f32", "f32", "i32", 24), 1e-5);
}
TEST(AppendSchedule, OfBf16IsWhatTheInterpreterSays) {
  expect_both_as_interpreted(append("bf16", "bf16", "i64", 128), 0.008);
}
TEST(AppendSchedule, OfInt8IsWhatTheInterpreterSays) { expect_both_as_interpreted(kInt8, 0); }

// A cache of one row, which is all that a slot may name: the last token that has one stays.
TEST(AppendSchedule, OneRow) {
  for (const std::string& text : {append("f32", "f32", "i64", 24), std::string(kInt8)}) {
    const ir::Kernel naive = search::restrict_symbols(kernel_of(text), {{"P", {1, 1}}});
    const search::GeneralKernel general = search::general_kernel(naive);
    for (const bool together : {false, true}) {
      const auto made = search::append_schedule(general, sizes_of(general, {{"T", 64}, {"H", 3}}), together);
      ASSERT_TRUE(made.ok()) << made.status().to_string() << text;
      for (const int64_t tokens : {0, 1, 2, 17}) {
        const ir::SymbolValues sizes = {{"T", tokens}, {"H", 3}};
        expect_as_interpreted(made->kernel, sizes_of(general, sizes), 1e-5);
        expect_values_kept(naive, general, made, sizes, 0.01);
      }
    }
  }
}

// Few tokens take turns by default, and the other way is measured, too.
TEST(AppendSchedule, TheNumberOfTokensChooses) {
  const search::GeneralKernel general = search::general_kernel(kernel_of(append("bf16", "bf16", "i32", 128)));
  for (const int64_t tokens : {1, 2, 3, 512}) {
    const ir::SymbolValues sizes = sizes_of(general, {{"T", tokens}, {"P", 4096}, {"H", 8}});
    const auto all = search::device_candidates(general, sizes, *ir::find_gpu_target("h100"), 8);
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    ASSERT_EQ(all->size(), 2u);
    EXPECT_EQ((*all)[0].schedule.knobs.count("together"), tokens > 2 ? 1u : 0u) << tokens;
    EXPECT_EQ((*all)[1].schedule.knobs.count("together"), tokens > 2 ? 0u : 1u) << tokens;
  }
}

TEST(AppendSchedule, RefusesWhatAppendsToNothing) {
  EXPECT_THAT(search::append_schedule(search::general_kernel(kernel_of(kCumsum)), {}).status().message(),
              ::testing::HasSubstr("appends to no cache"));
}

class AppendMatrix : public KernelMatrix {};
TEST_P(AppendMatrix, CompilesWithoutSpills) {
  const ir::SymbolValues one = {{"T", 1}, {"P", 4096}, {"H", 8}}, many = {{"T", 512}, {"P", 4096}, {"H", 8}};
  compile_all({{append("f32", "f32", "i32", 128), one, 8},
               {append("bf16", "bf16", "i64", 128), many, 8},
               {append("bf16", "f16", "i32", 512), many, 8},
               {kInt8, one, 1},
               {kInt8, many, 1}});
}
INSTANTIATE_TEST_SUITE_P(Gpus, AppendMatrix, testing::Values("a100", "l40s", "h200", "rtx5090"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lathe::test
