// covers(): what one part of a loop tree writes for certain, of what a later part may read. Every claim is compared
// with the cells that both touch at small sizes.
#include "search/moves/footprint.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "ir/core/text_form.h"
#include "search/moves/legality.h"

namespace lathe::search {
namespace {

using namespace ir;  // NOLINT: this file is all IR

// Cells of the access below the scopes it shares, at one point of those and of the symbols.
std::set<std::vector<int64_t>> cells(const Access& access, size_t fixed, SymbolValues env) {
  std::set<std::vector<int64_t>> out;
  const std::function<void(size_t)> enter = [&](size_t depth) {
    if (depth == access.scopes.size()) {
      std::vector<int64_t> cell;
      for (const Expr& e : access.index) cell.push_back(*evaluate(e, env));
      out.insert(std::move(cell));
      return;
    }
    const int64_t trips = *evaluate(access.scopes[depth]->extent, env);
    for (int64_t i = 0; i < trips; ++i) {
      env[access.scopes[depth]->iter] = i;
      enter(depth + 1);
    }
  };
  enter(fixed);
  return out;
}

// Of the first write and the first read of `t`, in scope `o` where the text has one.
bool claims(const std::string& body) {
  const Result<Kernel> parsed =
      parse_kernel("kernel t(x: f32[N] in, y: f32[N] out) where N in 1..40\n  t: f32[99, 99] heap\n" + body);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string() << "\n" << body;
  if (!parsed.ok()) return false;
  const std::string name = "t";
  const std::vector<Access> accesses = collect_accesses(parsed->body, {}, &name);
  const Access& write = accesses.front();
  const auto read = std::find_if(accesses.begin(), accesses.end(), [](const Access& a) { return !a.write; });
  EXPECT_TRUE(write.write && read != accesses.end());
  const size_t fixed = write.scopes.front() == read->scopes.front() ? 1 : 0;
  const bool claimed = covers(*parsed, write, *read, fixed);
  for (int64_t n = 1; n <= 40 && claimed; ++n) {
    SymbolValues env{{"N", n}};
    const int64_t outer = fixed == 1 ? *evaluate(write.scopes[0]->extent, env) : 1;
    for (int64_t o = 0; o < outer; ++o) {
      if (fixed == 1) env["o"] = o;
      const auto written = cells(write, fixed, env);
      for (const auto& cell : cells(*read, fixed, env)) EXPECT_TRUE(written.contains(cell)) << n << body;
    }
  }
  return claimed;
}

std::string nest(const char* first, const char* write, const char* second, const char* read) {
  return fmt::format("  for i < {}:\n    t[{}] = 1.0\n  for k < {}:\n    y[0] = t[{}]\n", first, write, second, read);
}

TEST(Covers, OneLoop) {
  EXPECT_TRUE(claims(nest("N", "i, 0", "N", "k, 0")));
  EXPECT_TRUE(claims(nest("N", "0, 2*i + 1", "N", "0, 2*k + 1")));
  EXPECT_TRUE(claims(nest("N", "i, i", "N", "k, k")));
  EXPECT_TRUE(claims(nest("N", "i, 3", "7", "0, 3")));
  EXPECT_TRUE(claims(nest("N + 1", "i, 0", "N", "k, 0")));
  EXPECT_TRUE(claims(nest("4", "5, 5", "N", "5, 5")));
  EXPECT_TRUE(claims(nest("N", "i, 0", "N", "max(0, k - 3), 0")));
  EXPECT_TRUE(claims(nest("N", "i, 0", "min(7, N)", "k + max(0, N - 7 - k), 0")));
  EXPECT_FALSE(claims(nest("N", "i, 0", "N", "max(1, k), 0")));
  EXPECT_FALSE(claims(nest("N", "i + 1, 0", "N", "max(0, k - 3), 0")));
  EXPECT_FALSE(claims(nest("N - 1", "5, 5", "N", "5, 5")));  // may not run
  EXPECT_FALSE(claims(nest("N - 1", "i, 0", "N", "k, 0")));
  EXPECT_FALSE(claims(nest("N", "i, i", "N", "k, 0")));
  EXPECT_FALSE(claims(nest("N", "i, 0", "N", "0, k")));
  EXPECT_FALSE(claims(nest("N", "2*i, 0", "N", "k, 0")));
  EXPECT_FALSE(claims(nest("N", "i + 1, 0", "N", "k, 0")));
}

// for o: { for a, b: t = 1;  for c, d, e: .. = t }
std::string tiles(const char* a, const char* b, const char* write, const char* c, const char* d, const char* read) {
  return fmt::format(
      "  for o < ceildiv(N, 16):\n    for a < {}:\n      for b < {}:\n        t[{}] = 1.0\n    for e < 3:\n      for c "
      "< {}:\n"
      "        for d < {}:\n          y[0] = t[{}]\n",
      a, b, write, c, d, read);
}

TEST(Covers, Tiles) {
  const char *left_a = "min(16, N - 16*o)", *vectors = "ceildiv(min(16, N - 16*o), 8)";
  EXPECT_TRUE(claims(tiles(left_a, "8", "a, b", left_a, "8", "c, d")));
  EXPECT_TRUE(claims(tiles("8", left_a, "b, a", left_a, "8", "c, d")));
  EXPECT_TRUE(claims(tiles(left_a, "8", "o, 8*a + b", left_a, "8", "o, 8*c + d")));
  EXPECT_TRUE(claims(tiles(vectors, "min(8, min(16, N - 16*o) - 8*a)", "o, 8*a + b", vectors,
                           "min(8, min(16, N - 16*o) - 8*c)", "o, 8*c + d")));
  EXPECT_TRUE(claims(tiles("2", "8", "o, 8*a + b", vectors, "min(8, min(16, N - 16*o) - 8*c)", "o, 8*c + d")));
  EXPECT_TRUE(claims(tiles("3", left_a, "b, 0", "1", left_a, "d, 0")));
  EXPECT_FALSE(claims(tiles(left_a, "8", "a, b", left_a, "9", "c, d")));
  EXPECT_FALSE(claims(tiles(left_a, "8", "a, b", "16", "8", "c, d")));
  EXPECT_FALSE(claims(tiles(left_a, "8", "a, b", left_a, "8", "o, d")));
  EXPECT_TRUE(claims(tiles("N - 20", left_a, "b, 0", "N - 20", left_a, "d, 0")));   // scope a runs where c does
  EXPECT_FALSE(claims(tiles("N - 20", left_a, "b, 0", "N - 19", left_a, "d, 0")));  // it may not run
  EXPECT_FALSE(claims(tiles("N - 20", left_a, "b, 0", "2", left_a, "d, 0")));
  EXPECT_FALSE(claims(tiles("N - 20", left_a, "b, 0", "20 - N", left_a, "d, 0")));
  EXPECT_FALSE(claims(tiles(vectors, "min(8, min(16, N - 16*o) - 8*a)", "o, 8*a + b", vectors, "8", "o, 8*c + d")));
}

// What a loop's length is read from may be another when it is read again.
TEST(Covers, LoopsThatAreReadAgain) {
  const auto of = [](const char* place, const char* first, const char* second) {
    const Result<Kernel> k = parse_kernel(fmt::format(
        "kernel t(n: i64[1] in, y: f32[9] out)\n  q: i64[1] heap\n  t: f32[9] heap\n  {}for i < min(9, {}[0]):\n"
        "    t[i] = 1.0\n  {}for k < min(9, {}[0]):\n    y[0] = t[k]\n",
        first, place, second, place));
    EXPECT_TRUE(k.ok()) << k.status().to_string();
    const std::string name = "t";
    const std::vector<Access> accesses = k.ok() ? collect_accesses(k->body, {}, &name) : std::vector<Access>(2);
    return covers(*k, accesses[0], accesses[1], 0);
  };
  EXPECT_TRUE(of("n", "", ""));
  EXPECT_FALSE(of("q", "q[0] = 1\n  ", "q[0] = 2\n  "));
}

}  // namespace
}  // namespace lathe::search
