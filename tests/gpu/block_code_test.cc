// What the threads of a block do together: shared memory, barriers where cells go from one thread to another, and
// reductions that all of them take part in. Run on the emulator against the interpreter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "search/cut/launch_cut.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using ::testing::HasSubstr;
using Kind = DeviceStmt::Kind;

// Rows turned round, by a tile in shared memory with a column of padding.
const char kTurned[] =
    "kernel turned(x: f32[M, N] in, y: f32[M, N] out) family row where M in 0..100, N in 0..64\n"
    "  s: f32[64] shared pad [1]\n"
    "  for b < M @grid:\n"
    "    for t < min(64, N) @block:\n"
    "      s[t] = x[b, t]\n"
    "    for t1 < min(64, N) @block:\n"
    "      y[b, t1] = s[N - 1 - t1]\n";

// A tile again and again: what is read must be read before the next turn stores.
const char kTurns[] =
    "kernel turns(x: f32[M, N] in, y: f32[M, 32] out) family row where M in 0..100, N in 0..1000\n"
    "  s: f32[8, 4] shared layout [1, 0]\n"
    "  a: f32[32] reg\n"
    "  for b < M @grid:\n"
    "    for t < 32 @block:\n"
    "      a[t] = 0.0\n"
    "    for k < N // 32:\n"
    "      for p < 8 @block:\n"
    "        for q < 4 @block:\n"
    "          s[p, q] = x[b, 32*k + 4*p + q]\n"
    "      for t1 < 32 @block:\n"
    "        for i < 4:\n"
    "          a[t1] += s[i + (t1 % 5), 3 - i]\n"
    "    for t2 < 32 @block:\n"
    "      y[b, t2] = a[t2]\n";

// The first thread of several adds something of its own to what all of them have.
const char kOneOfSeveral[] =
    "kernel first(x: f32[M, 9] in, y: f32[M, 8] out) family row where M in 0..100 numeric reassociate\n"
    "  a: f32[] reg\n"
    "  for b < M @grid:\n"
    "    a[] = 0.0\n"
    "    for t < 1 @block:\n"
    "      for i < 2:\n"
    "        a[] += x[b, i]\n"
    "    for t1 < 4 @block:\n"
    "      a[] += x[b, t1 + 2]\n"
    "    for t2 < 8 @block:\n"
    "      y[b, t2] = x[b, t2] - a[]\n";

// A softmax: rows go round the threads, which keep what they read; 8 vectors at most.
std::string softmax(int64_t threads, int64_t rows) {
  const std::string n = std::to_string(threads), v = std::to_string(4 * threads), r = std::to_string(rows);
  const auto pass = [&](const std::string& k, const std::string& body) {
    return "      for t" + k + " < min(" + n + ", ceildiv(N, 4)) @block:\n        for i" + k +
           " < ceildiv(ceildiv(N, 4) - t" + k + ", " + n + ") @unroll:\n          for v" + k + " < min(4, N - " + v +
           "*i" + k + " - 4*t" + k + ") @vector:\n" + body;
  };
  const auto at = [&](const std::string& k) { return v + "*i" + k + " + 4*t" + k + " + v" + k; };
  return "kernel softmax(x: f32[M, N] in, y: f32[M, N] out) family row where M in 0..100, N in 1.." +
         std::to_string(32 * threads) +
         " numeric reassociate\n"
         "  e: f32[" +
         std::to_string(32 * threads) +
         "] reg\n  m: f32[] reg\n  a: f32[] reg\n"
         "  for b < ceildiv(M, " +
         r + ") @grid:\n    for w < min(" + r + ", M - " + r + "*b) @block:\n      m[] = -inf\n" +
         pass("1", "            e[" + at("1") + "] = x[" + r + "*b + w, " + at("1") + "]\n            m[] fmax= e[" +
                       at("1") + "]\n") +
         "      a[] = 0.0\n" +
         pass("2", "            e[" + at("2") + "] = exp(e[" + at("2") + "] - m[])\n            a[] += e[" + at("2") +
                       "]\n") +
         pass("3", "            y[" + r + "*b + w, " + at("3") + "] = e[" + at("3") + "] / a[]\n");
}

TEST(BlockCode, SharedMemory) {
  for (const int64_t n : {0, 1, 31, 33, 64}) expect_as_interpreted(kernel_of(kTurned), {{"M", 3}, {"N", n}});
  for (const int64_t n : {0, 31, 32, 97, 160}) expect_as_interpreted(kernel_of(kTurns), {{"M", 3}, {"N", n}}, 1e-6);
}

TEST(BlockCode, Reductions) {
  for (const auto& [threads, rows] :
       {std::pair<int64_t, int64_t>{1, 1}, {2, 64}, {32, 8}, {64, 2}, {256, 1}, {128, 4}}) {
    const ir::Kernel kernel = kernel_of(softmax(threads, rows));
    for (const int64_t m : {1, 3, 9}) {
      for (const int64_t n : {1, 2, 3, 4, 5, 31, 32}) expect_as_interpreted(kernel, {{"M", m}, {"N", n}}, 1e-6);
      expect_as_interpreted(kernel, {{"M", m}, {"N", 32 * threads}}, 1e-6);
      expect_as_interpreted(kernel, {{"M", m}, {"N", 31 * threads - 1}}, 1e-6);
    }
  }
}

// What one of four threads adds, the four of them would.
TEST(BlockCode, WhatSeveralAddTogetherIsRefused) {
  const std::string text =
      "kernel first(x: f32[M, 9] in, y: f32[M, 8] out) family row where M in 0..100 numeric reassociate\n"
      "  a: f32[] reg\n"
      "  for b < M @grid:\n"
      "    a[] = 0.0\n"
      "    for t < 1 @block:\n"
      "      a[] += x[b, 0]\n"
      "      for u < 4 @block:\n"
      "        y[b, u] = x[b, u]\n"
      "    for t2 < 8 @block:\n"
      "      y[b, t2] = x[b, t2] - a[]\n";
  const auto cut = search::cut_launches(kernel_of(text));
  ASSERT_TRUE(cut.ok()) << cut.status().to_string();
  const auto program = jit::lower_device(cut->leaves[0]);
  ASSERT_FALSE(program.ok()) << print(*program);
  EXPECT_THAT(program.status().message(), ::testing::HasSubstr("threads of "));
}

TEST(BlockCode, WhatOneThreadAddsAllHave) { expect_as_interpreted(kernel_of(kOneOfSeveral), {{"M", 5}}, 1e-6); }

DeviceProgram lowered(const std::string& text) {
  const auto cut = search::cut_launches(kernel_of(text));
  return jit::lower_device(cut.value().leaves[0]).value();
}

// Each barrier that was derived, left out: some order of the threads shows it.
TEST(BlockCode, EveryBarrierIsNeeded) {
  struct Case {
    std::string text;
    ir::SymbolValues symbols;
    int barriers;
  };
  PlantedBugs bugs;
  for (const Case& c : {Case{kTurned, {{"M", 2}, {"N", 64}}, 1}, Case{kTurns, {{"M", 2}, {"N", 96}}, 2},
                        Case{softmax(64, 2), {{"M", 3}, {"N", 512}}, 2}}) {
    const DeviceProgram whole = lowered(c.text);
    const int barriers = count_of(whole, Kind::barrier);
    EXPECT_EQ(barriers, c.barriers) << print(whole);
    EXPECT_EQ(failure_of(whole, kernel_of(c.text), c.symbols), "");
    for (int b = 0; b < barriers; ++b) {
      const DeviceProgram broken = without(whole, Kind::barrier, b);
      const std::string why = failure_of(broken, kernel_of(c.text), c.symbols), found = verify(broken).message();
      EXPECT_THAT(why, HasSubstr("no barrier is between them")) << b;
      EXPECT_THAT(found, HasSubstr("no barrier is between them")) << b;
      bugs.plant(fmt::format("barrier {}", b), !why.empty() && !found.empty());
    }
  }
}

TEST(BlockCode, IsWrittenOut) {
  EXPECT_EQ(print(lowered(kTurned)),
            "program leaf threads 64 (p0: in, p1: out, e0, e1)\n"
            "  shared s0[65]\n"
            "  let i0 = block\n"
            "  let i1 = thread\n"
            "  if i1 < e1:\n"
            "    v0 = load p0[e1*i0 + i1]\n"
            "    store s0[i1] v0\n"
            "  barrier\n"
            "  let i2 = thread\n"
            "  if i2 < e1:\n"
            "    v1 = load s0[e1 - i2 - 1]\n"
            "    store p1[e1*i0 + i2] v1\n");
  EXPECT_EQ(print(lowered(softmax(64, 2))),
            "program leaf threads 128 (p0: in, p1: out, e0, e1)\n"
            "  local r0[32]\n"
            "  local r1[1]\n"
            "  local r2[1]\n"
            "  local r1_3[1]\n"
            "  local r2_4[1]\n"
            "  shared x0[4]\n"
            "  shared x1[4]\n"
            "  let i0 = block\n"
            "  let i1 = thread // 64\n"
            "  if i1 < e0 - 2*i0:\n"
            "    store r1[0] -inf\n"
            "  let i2 = thread % 64\n"
            "  store r1_3[0] -inf\n"
            "  if i1 < e0 - 2*i0 and 4*i2 < e1:\n"
            "    for i3 < 8 unrolled 8:\n"
            "      if 64*i3 < ceildiv(e1, 4) - i2:\n"
            "        if 3 < e1 - 256*i3 - 4*i2 and aligned x4 p0[2*e1*i0 + e1*i1 + 4*i2 + 256*i3]:\n"
            "          v4 = load x4 p0[2*e1*i0 + e1*i1 + 4*i2 + 256*i3]\n"
            "          store x4 r0[4*i3] v4\n"
            "          v5 = load x4 r0[4*i3]\n"
            "          v6 = load r1_3[0]\n"
            "          v7 = fold fmax v5 v6\n"
            "          store r1_3[0] v7\n"
            "        else:\n"
            "          for i4 < 4 unrolled 4:\n"
            "            if i4 < e1 - 256*i3 - 4*i2:\n"
            "              v0 = load p0[2*e1*i0 + e1*i1 + 4*i2 + 256*i3 + i4]\n"
            "              store r0[4*i3 + i4] v0\n"
            "              v1 = load r0[4*i3 + i4]\n"
            "              v2 = load r1_3[0]\n"
            "              v3 = fmax v1 v2\n"
            "              store r1_3[0] v3\n"
            "  v8 = load r1_3[0]\n"
            "  v9 = shuffle 16 v8\n"
            "  v10 = fmax v9 v8\n"
            "  v11 = shuffle 8 v10\n"
            "  v12 = fmax v11 v10\n"
            "  v13 = shuffle 4 v12\n"
            "  v14 = fmax v13 v12\n"
            "  v15 = shuffle 2 v14\n"
            "  v16 = fmax v15 v14\n"
            "  v17 = shuffle 1 v16\n"
            "  v18 = fmax v17 v16\n"
            "  if thread % 32 == 0:\n"
            "    store x0[thread // 32] v18\n"
            "  barrier\n"
            "  v19 = load x0[2*(thread // 64) + thread % 2]\n"
            "  v20 = shuffle 1 v19\n"
            "  v21 = fmax v20 v19\n"
            "  if i1 < e0 - 2*i0:\n"
            "    v22 = load r1[0]\n"
            "    v23 = fmax v21 v22\n"
            "    store r1[0] v23\n"
            "  if i1 < e0 - 2*i0:\n"
            "    store r2[0] 0.0\n"
            "  let i5 = thread % 64\n"
            "  store r2_4[0] 0.0\n"
            "  if i1 < e0 - 2*i0 and 4*i5 < e1:\n"
            "    for i6 < 8 unrolled 8:\n"
            "      if 64*i6 < ceildiv(e1, 4) - i5:\n"
            "        if 3 < e1 - 256*i6 - 4*i5:\n"
            "          v31 = load x4 r0[4*i6]\n"
            "          v32 = load r1[0]\n"
            "          v33 = sub v31 v32\n"
            "          v34 = exp v33\n"
            "          store x4 r0[4*i6] v34\n"
            "          v35 = load x4 r0[4*i6]\n"
            "          v36 = load r2_4[0]\n"
            "          v37 = fold add v36 v35\n"
            "          store r2_4[0] v37\n"
            "        else:\n"
            "          for i7 < 4 unrolled 4:\n"
            "            if i7 < e1 - 256*i6 - 4*i5:\n"
            "              v24 = load r0[4*i6 + i7]\n"
            "              v25 = load r1[0]\n"
            "              v26 = sub v24 v25\n"
            "              v27 = exp v26\n"
            "              store r0[4*i6 + i7] v27\n"
            "              v28 = load r0[4*i6 + i7]\n"
            "              v29 = load r2_4[0]\n"
            "              v30 = add v29 v28\n"
            "              store r2_4[0] v30\n"
            "  v38 = load r2_4[0]\n"
            "  v39 = shuffle 16 v38\n"
            "  v40 = add v39 v38\n"
            "  v41 = shuffle 8 v40\n"
            "  v42 = add v41 v40\n"
            "  v43 = shuffle 4 v42\n"
            "  v44 = add v43 v42\n"
            "  v45 = shuffle 2 v44\n"
            "  v46 = add v45 v44\n"
            "  v47 = shuffle 1 v46\n"
            "  v48 = add v47 v46\n"
            "  if thread % 32 == 0:\n"
            "    store x1[thread // 32] v48\n"
            "  barrier\n"
            "  v49 = load x1[2*(thread // 64) + thread % 2]\n"
            "  v50 = shuffle 1 v49\n"
            "  v51 = add v50 v49\n"
            "  if i1 < e0 - 2*i0:\n"
            "    v52 = load r2[0]\n"
            "    v53 = add v51 v52\n"
            "    store r2[0] v53\n"
            "  if i1 < e0 - 2*i0:\n"
            "    let i8 = thread % 64\n"
            "    if 4*i8 < e1:\n"
            "      for i9 < 8 unrolled 8:\n"
            "        if 64*i9 < ceildiv(e1, 4) - i8:\n"
            "          if 3 < e1 - 256*i9 - 4*i8 and aligned x4 p1[2*e1*i0 + e1*i1 + 4*i8 + 256*i9]:\n"
            "            v57 = load x4 r0[4*i9]\n"
            "            v58 = load r2[0]\n"
            "            v59 = div v57 v58\n"
            "            store x4 p1[2*e1*i0 + e1*i1 + 4*i8 + 256*i9] v59\n"
            "          else:\n"
            "            for i10 < 4 unrolled 4:\n"
            "              if i10 < e1 - 256*i9 - 4*i8:\n"
            "                v54 = load r0[i10 + 4*i9]\n"
            "                v55 = load r2[0]\n"
            "                v56 = div v54 v55\n"
            "                store p1[2*e1*i0 + e1*i1 + i10 + 4*i8 + 256*i9] v56\n");
}

TEST(BlockCode, EveryRuleRefuses) {
  struct Change {
    const char* message;
    void (*change)(DeviceProgram&);
  };
  const Change changes[] = {
      {"shared: s0 has 0 elements", [](DeviceProgram& p) { p.shared[0].count = 0; }},
      {"shared: 232464 bytes, expected at most 232448", [](DeviceProgram& p) { p.shared[0].count = 58113; }},
  };
  const DeviceProgram sound = lowered(kTurned);
  for (const Change& c : changes) {
    DeviceProgram broken = sound;
    c.change(broken);
    EXPECT_EQ(verify(broken).message(), c.message);
  }
  static const auto& first = *new auto([](DeviceProgram& p, Kind kind) {
    return std::find_if(p.body.begin(), p.body.end(), [&](const DeviceStmt& s) { return s.kind == kind; });
  });
  // Into the body of a condition on the thread.
  static const auto& hide = *new auto([](DeviceProgram& p, Kind kind) {
    const auto at = first(p, kind);
    DeviceStmt when;
    when.kind = Kind::when;
    when.integer = ir::make(ir::Op::k_lt, {ir::iter("thread"), ir::Expr(32)});
    when.body = {*at};
    *at = std::move(when);
  });
  const Change waits[] = {
      {"wait: a barrier that not all threads reach", [](DeviceProgram& p) { hide(p, Kind::barrier); }},
      {"wait: a shuffle that not all threads reach", [](DeviceProgram& p) { hide(p, Kind::shuffle); }},
      {"values: a shuffle over 3 threads", [](DeviceProgram& p) { first(p, Kind::shuffle)->distance = 3; }},
      {"values: a shuffle over 32 threads", [](DeviceProgram& p) { first(p, Kind::shuffle)->distance = 32; }},
      {"values: a shuffle has 0 operands", [](DeviceProgram& p) { first(p, Kind::shuffle)->operands.clear(); }},
      {"shared: x0 is loaded before anything is stored to it",
       [](DeviceProgram& p) {
         std::erase_if(p.body, [](const DeviceStmt& s) {
           return s.kind == Kind::when && s.body.size() == 1 && s.body[0].kind == Kind::store &&
                  s.body[0].places[0].space == jit::DevicePlace::Space::shared;
         });
       }},
  };
  const DeviceProgram reduces = lowered(softmax(64, 2));
  for (const Change& c : waits) {
    DeviceProgram broken = reduces;
    c.change(broken);
    EXPECT_EQ(verify(broken).message(), c.message);
  }
}

TEST(BlockCode, RefusesWhatThreadsCannotDivide) {
  const auto why = [](const std::string& body) {
    const std::string text =
        "kernel k(x: f32[256] in, y: f32[256] out) family row\n  r: f32[256] reg\n  for b < 1 @grid:\n" + body;
    const auto cut = search::cut_launches(kernel_of(text));
    EXPECT_TRUE(cut.ok()) << cut.status().to_string();
    return jit::lower_device(cut->leaves[0]).status().message();
  };
  const std::string store = "    for t < 64 @block:\n      for i < 4:\n        r[4*t + i] = x[4*t + i]\n";
  EXPECT_EQ(why(store + "    for u < 64 @block:\n      y[u] = r[4*u]\n"), "");
  EXPECT_EQ(why(store + "    for u < 64 @block:\n      y[u] = r[u]\n"), "r0 is divided among threads in two ways");
  EXPECT_EQ(why(store + "    for u < 128 @block:\n      y[u] = r[2*u]\n"), "r0 is divided among threads in two ways");
  EXPECT_EQ(why(store + "    for u < 64 @block:\n      y[u] = r[4*u + 4]\n"),
            "r0[4*i3 + 4] does not belong to thread i3 alone");
}

// The first 32 threads of all have a value that the first 32 of each half would read.
TEST(BlockCode, FirstThreadsOfAPartAreNotTheFirstOfAll) {
  const auto why = [](const char* half) {
    const std::string text = fmt::format(
        "kernel k(x: f32[M, 32] in, y: f32[M, 32] out, v: f32[M, 2, 64] out, z: f32[M, 2, 32] out) family row "
        "where M in 0..9\n"
        "  r: f32[] reg\n"
        "  for b < M @grid:\n"
        "    for o < 1 @block:\n"
        "      r[] = x[b, 0]\n"
        "      for t < 32 @block:\n"
        "        y[b, t] = r[] + x[b, t]\n"
        "    for w < 2 @block:\n"
        "      for t1 < 64 @block:\n"
        "        v[b, w, t1] = 1.0\n"
        "{}",
        half);
    const auto cut = search::cut_launches(kernel_of(text));
    EXPECT_TRUE(cut.ok()) << cut.status().to_string();
    return std::string(jit::lower_device(cut->leaves[0]).status().message());
  };
  EXPECT_EQ(why("      for p < 1 @block:\n        for t2 < 32 @block:\n          z[b, w, t2] = x[b, t2]\n"), "");
  EXPECT_THAT(why("      for p < 1 @block:\n        for t2 < 32 @block:\n          z[b, w, t2] = r[]\n"),
              HasSubstr("leave values of their own in r0"));
}

}  // namespace
}  // namespace lathe::test
