// What code may be made of: accesses that are proven inside, parameters as they were declared, layouts of a sane size.
// Each rule objects.
#include "search/cut/safe_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/analysis/verifier.h"
#include "ir/core/text_form.h"
#include "search/cut/cut.h"
#include "search/moves/schedule.h"

namespace lathe::search {
namespace {

using testing::HasSubstr;

const char* const kNaive = R"(kernel scale(x: f32[M, 21] in, w: f32[21] const, y: f32[M, 21] out) where M in 1..64
  t: f32[21] heap
  for m < M:
    for n < 21:
      y[m, n] = x[m, n] * w[n]
  for u < 21:
    t[u] = w[u]
)";

ir::Kernel parsed(const std::string& text) {
  ir::Result<ir::Kernel> kernel = ir::parse_kernel(text);
  EXPECT_TRUE(kernel.ok()) << kernel.status().to_string() << "\n" << text;
  return kernel.ok() ? *kernel : ir::Kernel{};
}
ir::Kernel changed(const std::string& from, const std::string& to) {
  std::string text = kNaive;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return parsed(text.replace(at, from.size(), to));
}

TEST(SafeKernel, WhatIsProvenPasses) {
  const ir::Kernel naive = parsed(kNaive);
  EXPECT_TRUE(check_safe(naive, naive).ok());
  for (const char* moves :
       {"tile_scope n 8 tail=mask as a,b", "tile_scope n 8 tail=peel as a,b,c", "tile_scope n 8 tail=clamp as a,b",
        "tile_scope m 5 tail=mask as a,b; tile_scope b 2 tail=mask as c,d", "increment_padding w 0 32",
        "tile_buffer t 0 8", "tile_buffer w 0 16; swap_dims w 0 1"}) {
    std::string text = "schedule 1 family any class exact\n";
    for (const char c : std::string(moves)) text += c == ';' ? '\n' : c;
    const ir::Result<ir::Kernel> scheduled = replay(naive, parse_schedule(text).value());
    ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
    EXPECT_TRUE(check_safe(naive, *scheduled).ok()) << moves << ": " << check_safe(naive, *scheduled).to_string();
  }
}

TEST(SafeKernel, WhatLeavesItsBufferOrIsNotProvenToStayIsRefused) {
  const ir::Kernel naive = parsed(kNaive);
  const auto refusal = [&](const ir::Kernel& k) {
    const ir::Status s = check_safe(naive, k);
    EXPECT_EQ(s.code(), ir::Code::kUNSUPPORTED) << ir::print(k);
    return s.message();
  };
  EXPECT_THAT(refusal(changed("x[m, n] * w[n]", "x[m, n] * w[n + 1]")), HasSubstr("buffer w: dimension 0"));
  EXPECT_THAT(refusal(changed("y[m, n] = ", "y[m + 1, n] = ")), HasSubstr("buffer y: dimension 0"));
  EXPECT_THAT(refusal(changed("for u < 21:\n    t[u] = w[u]", "for u < 22:\n    t[u] = w[0]")),
              HasSubstr("buffer t: dimension 0"));
  // Legal under a select, where code would load it all the same.
  const ir::Kernel guarded = changed("x[m, n] * w[n]", "x[m, n] * select(n < 20, w[n + 1], 0.0)");
  EXPECT_TRUE(ir::verify(guarded).ok());
  EXPECT_THAT(refusal(guarded), HasSubstr("buffer w: dimension 0"));
  // What the first scope's body may take for granted, M >= 1, says nothing of the one after it.
  std::string after = kNaive;
  after.replace(after.find("1..64"), 5, "0..64");
  const std::string last = "for u < 21:\n    t[u] = w[u]";
  after.replace(after.find(last), last.size(), "for u < 1:\n    y[M - 1, 0] = w[0]");
  EXPECT_THAT(refusal(parsed(after)), HasSubstr("buffer y: dimension 0"));
  // True for every value, and beyond the prover.
  const ir::Kernel odd = changed("x[m, n] * w[n]", "x[m, n] * w[(n * n + 20) // (n + 20)]");
  EXPECT_TRUE(ir::verify(odd).ok());
  EXPECT_THAT(refusal(odd), HasSubstr("not proven"));
}

// What never runs touches nothing, and what a scope's extent says of symbols is used.
TEST(SafeKernel, EmptyRangesAndScopesThatRunAreUnderstood) {
  const ir::Kernel empty = parsed(
      "kernel none(x: f32[4, 0] in, y: f32[4, 1] out)\n  for m < 4:\n    y[m, 0] = 0.0\n    for n < 0:\n      y[m, 0] "
      "+= x[m, n]\n");
  EXPECT_TRUE(check_safe(empty, empty).ok()) << check_safe(empty, empty).to_string();
  const ir::Kernel tail = parsed(R"(kernel tail(x: f32[N] in, y: f32[N] out) where N in 65..128
  for a < N // 128:
    for b < 128:
      y[b] = x[b]
  for c < ceildiv(N % 128, 8):
    for d < min(8, N % 128 - 8*c):
      y[d + 8*c + 128*(N // 128)] = x[d + 8*c + 128*(N // 128)]
)");
  EXPECT_TRUE(check_safe(tail, tail).ok()) << check_safe(tail, tail).to_string();
}

// A GPU stores zeros in place of what such a select would load; of any other it loads both values.
TEST(SafeKernel, ALaunchLoadsOnlyWhatItDoesNotFill) {
  const auto launched = [](const std::string& value) {
    return parsed("kernel fill(x: f32[9] in, y: f32[12] out)\n  for i < 12 @grid:\n    y[i] = " + value + "\n");
  };
  const ir::Kernel filled = launched("select(i < 9, x[i], 0.0)");
  EXPECT_TRUE(check_safe(filled, filled).ok()) << check_safe(filled, filled).to_string();
  for (const char* value : {"2.0 * select(i < 9, x[i], 0.0)", "select(i < 9, x[i], 1.0)", "select(i < 10, x[i], 0.0)",
                            "select(i < 11, select(i < 9, x[i], 0.0), 0.0)", "select(i < 9, x[i + 1], 0.0)"}) {
    const ir::Kernel other = launched(value);
    EXPECT_THAT(check_safe(other, other).message(), HasSubstr("buffer x: dimension 0")) << value;
  }
}

// Six scopes of a product on groups of warps, whose tiles go eight below each other.
TEST(SafeKernel, TilesInTilesStayInside) {
  const ir::Kernel tiles = parsed(R"(kernel tiles(x: f32[1] in, y: f32[D] out) where D in 1..1099511627776
  for g < ceildiv(D, 1024):
    for h < min(8, ceildiv(D, 128) - 8*g):
      for w < ceildiv(min(128, D - 1024*g - 128*h), 64):
        for q < ceildiv(min(64, min(128, D - 1024*g - 128*h) - 64*w), 16):
          for o < ceildiv(min(16, min(64, min(128, D - 1024*g - 128*h) - 64*w) - 16*q), 8):
            for l < min(8, min(16, min(64, min(128, D - 1024*g - 128*h) - 64*w) - 16*q) - 8*o):
              y[1024*g + 128*h + 64*w + 16*q + 8*o + l] = x[0]
)");
  EXPECT_TRUE(check_safe(tiles, tiles).ok()) << check_safe(tiles, tiles).to_string();
}

// What an input may hold is what proofs know of it, and all that they know.
TEST(SafeKernel, LoadedIndicesStayInsideByTheirRange) {
  const std::string rows =
      R"(kernel rows(t: f32[P, 8] in, ids: i32[T] in values 0..P - 1, y: f32[T, 8] out) where P in 0..50000, T in 0..64
  for i < T:
    for j < 8:
      y[i, j] = t[i64(ids[i]), j]
)";
  const ir::Kernel naive = parsed(rows);
  EXPECT_TRUE(check_safe(naive, naive).ok()) << check_safe(naive, naive).to_string();
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string text = rows;
    text.replace(text.find(from), from.size(), to);
    const ir::Kernel mutant = parsed(text);
    const ir::Status s = check_safe(mutant, mutant);
    EXPECT_EQ(s.code(), ir::Code::kUNSUPPORTED) << text;
    return s.message();
  };
  EXPECT_THAT(refusal(" values 0..P - 1", ""), HasSubstr("buffer t: dimension 0: index i64(ids[i]) is not proven"));
  EXPECT_THAT(refusal("0..P - 1", "0..P"), HasSubstr("buffer t: dimension 0: index i64(ids[i]) reaches"));
  EXPECT_THAT(refusal("0..P - 1", "-1..P - 1"), HasSubstr("buffer t: dimension 0: index i64(ids[i]) reaches -1"));
  EXPECT_THAT(refusal("0..P - 1", "0..49999"), HasSubstr("buffer t: dimension 0"));
  EXPECT_THAT(refusal("i64(ids[i])", "i64(ids[i]) + 1"), HasSubstr("buffer t: dimension 0"));
  EXPECT_THAT(refusal("ids[i])", "ids[i + 1])"), HasSubstr("buffer ids: dimension 0"));
  // A Schedule may not promise more than the caller is held to.
  std::string promised = rows;
  promised.replace(promised.find("0..P - 1"), 8, "0..P - 2");
  EXPECT_THAT(check_safe(naive, parsed(promised)).message(), HasSubstr("operand ids"));
}

TEST(SafeKernel, LoadedExtentsStayInsideByTheirRange) {
  const std::string sums =
      R"(kernel sums(x: f32[B, L] in, len: i64[B] in values 0..L, y: f32[B] out) where B in 1..64, L in 0..4096
  for b < B:
    y[b] = 0.0
    for l < len[b]:
      y[b] += x[b, l]
)";
  const ir::Kernel naive = parsed(sums);
  EXPECT_TRUE(check_safe(naive, naive).ok()) << check_safe(naive, naive).to_string();
  std::string longer = sums;
  longer.replace(longer.find("0..L"), 4, "0..L + 1");
  EXPECT_THAT(check_safe(parsed(longer), parsed(longer)).message(), HasSubstr("buffer x: dimension 1"));
}

TEST(SafeKernel, TheCallersOperandsStayAsTheyWereDeclared) {
  const ir::Kernel naive = parsed(kNaive);
  const std::pair<const char*, const char*> kChanges[] = {{"x: f32[M, 21] in", "x: f32[M, 21] in pad [0, 11]"},
                                                          {"y: f32[M, 21] out", "y: f32[M, 21] out layout [1, 0]"},
                                                          {"w: f32[21] const", "w: f32[22] const"},
                                                          {"w: f32[21] const", "w: f32[21] in"},
                                                          {"x: f32[M, 21] in", "x: f32[M, 21] in strides [32, 1]"}};
  for (const auto& [from, to] : kChanges) {
    const ir::Status s = check_safe(naive, changed(from, to));
    EXPECT_EQ(s.code(), ir::Code::kUNSUPPORTED) << to;
    EXPECT_THAT(s.message(), HasSubstr("operand")) << to;
  }
}

TEST(SafeKernel, LayoutsOfGigabytesAreRefused) {
  const ir::Kernel naive = parsed(kNaive);
  for (const char* to : {"w: f32[21] const pad [1000000]", "w: f32[21] const layout [0/1048576, 0%1048576]"}) {
    EXPECT_THAT(check_safe(naive, changed("w: f32[21] const", to)).message(), HasSubstr("buffer w: layout and padding"))
        << to;
  }
  const ir::Status far = check_safe(naive, changed("w: f32[21] const", "w: f32[21] const layout [0:1000000000]"));
  EXPECT_THAT(far.message(), HasSubstr("buffer w: its steps would take"));
}

// A constant that is only padded is packed like one in another order.
TEST(SafeKernel, APaddedConstantHasAPackingOfItsOwn) {
  const ir::Kernel padded = changed("w: f32[21] const", "w: f32[21] const pad [11]");
  EXPECT_TRUE(is_packed(*padded.find_buffer("w")));
  EXPECT_FALSE(is_packed(*parsed(kNaive).find_buffer("w")));
  const ir::Result<ir::Kernel> pack = pack_kernel(padded, "w");
  ASSERT_TRUE(pack.ok()) << pack.status().to_string();
  EXPECT_EQ(ir::print(*pack), R"(kernel pack_w(src: f32[21] in, dst: f32[32] out) family pack
  for z0 < 32 [col]:
    dst[z0] = 0.0
  for d0 < 21 [col]:
    dst[d0] = src[d0]
)");
}

TEST(SafeKernel, AReplayHasItsLimits) {
  const ir::Kernel wide = changed("M in 1..64", "M in 1..1099511627776");
  const auto refusal = [&](const std::string& moves) {
    const ir::Result<ir::Kernel> k =
        replay(wide, parse_schedule("schedule 1 family any class exact\n" + moves).value());
    EXPECT_EQ(k.status().code(), ir::Code::kUNSUPPORTED);
    return k.status().message();
  };
  std::string many, temporaries, copies;
  for (int i = 0; i < 300; ++i) many += "unroll_scope m\n";
  EXPECT_THAT(refusal(many), HasSubstr("300 moves, at most 256"));
  for (int i = 0; i < 100; ++i) temporaries += fmt::format("create_temporary w t{} at=u\n", i);
  EXPECT_THAT(refusal("create_temporary w a at=u\n" + temporaries), HasSubstr("allowed"));
  for (int i = 0; i < 4; ++i)
    copies +=
        fmt::format("tile_scope {} 2 tail=peel as a{},b{},c{}\n", i == 0 ? "n" : fmt::format("a{}", i - 1), i, i, i);
  for (int i = 0; i < 60; ++i)
    copies +=
        fmt::format("tile_scope {} 2 tail=peel as p{},q{},r{}\n", i == 0 ? "m" : fmt::format("p{}", i - 1), i, i, i);
  EXPECT_FALSE(refusal(copies).empty());
}

}  // namespace
}  // namespace lathe::search
