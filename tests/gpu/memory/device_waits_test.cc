// The verifier finds what a missing barrier makes wrong, in programs that Schedules make and in programs made for it.
#include "jit/cuda/device_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/thread_values.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/general_kernel.h"
#include "search/gpu/product_schedule.h"
#include "search/gpu/rows/transpose_schedule.h"
#include "search/gpu/tensor/tensor_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/emulated.h"
#include "tests/gpu/memory/mutations.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using ::testing::HasSubstr;
using Kind = DeviceStmt::Kind;

const char kTurn[] =
    "kernel turn(s: f32[A, B] in, d: f32[B, A] out) family transpose where A in 0..999, B in 0..999\n"
    "  for i < B [row]:\n    for j < A [col]:\n      d[i, j] = s[j, i]\n";

DeviceProgram lowered(const ir::Kernel& scheduled) {
  const auto cut = search::cut_launches(scheduled);
  EXPECT_TRUE(cut.ok()) << cut.status().to_string();
  auto program = jit::lower_device(cut->leaves[0]);
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  return std::move(*program);
}

// Each barrier left out: found without running it.
void expect_every_barrier_needed(const ir::Kernel& scheduled, int least) {
  const DeviceProgram whole = lowered(scheduled);
  const int barriers = count_of(whole, Kind::barrier);
  EXPECT_GE(barriers, least) << print(whole);
  for (int b = 0; b < barriers; ++b)
    EXPECT_THAT(verify(without(whole, Kind::barrier, b)).message(),
                ::testing::AnyOf(HasSubstr("no barrier is between them"), HasSubstr("before its copy has arrived")))
        << b << "\n"
        << print(whole);
}

TEST(DeviceWaits, ProductsNeedEveryBarrier) {
  for (const char* text : {kProduct, kTurnedProduct}) {
    const auto general = search::general_kernel(kernel_of(text));
    for (const search::ProductTile& tile :
         {search::ProductTile{128, 128, 8, 8, 8}, {64, 64, 16, 4, 4}, {16, 64, 32, 2, 4}})
      expect_every_barrier_needed(search::product_schedule(general, tile)->kernel, 4);
  }
}

TEST(DeviceWaits, EveryTileWaitsEnough) {
  const auto general = search::general_kernel(kernel_of(kProduct));
  for (const search::ProductTile& tile : search::product_tiles())
    (void)lowered(search::product_schedule(general, tile)->kernel);
}

// What is staged by registers and read by warps; the last terms are staged once more.
TEST(DeviceWaits, TensorProductsNeedEveryBarrier) {
  for (const bool turned : {false, true}) {
    const auto general = search::general_kernel(kernel_of(tensor_product("bf16", turned, !turned)));
    for (const search::TensorTile& tile : {search::TensorTile{32, 32, 32, 16, 32}, {128, 128, 32, 64, 32}})
      expect_every_barrier_needed(search::tensor_schedule(general, tile)->kernel, 2);
  }
}

TEST(DeviceWaits, TransposesNeedEveryBarrier) {
  const auto general = search::general_kernel(kernel_of(kTurn));
  expect_every_barrier_needed(search::transpose_schedule(general, {})->kernel, 1);
}

// A program of 64 threads with one shared memory of 64 elements.
struct Made {
  DeviceProgram program;
  Made() {
    program.name = "made";
    program.threads = 64;
    program.shared = {{"s0", 64}};
    program.sizes = {"e0"};
  }
  static DeviceStmt store(const ir::Expr& at) {
    DeviceStmt s;
    s.kind = Kind::store;
    s.places = {{jit::DevicePlace::Space::shared, 0, at}};
    s.operands = {{-1, 1.0f}};
    return s;
  }
  static DeviceStmt load(const ir::Expr& at, int value) {
    DeviceStmt s = store(at);
    s.kind = Kind::load;
    s.operands.clear();
    s.value = value;
    return s;
  }
  static DeviceStmt barrier() {
    DeviceStmt s;
    s.kind = Kind::barrier;
    return s;
  }
  static DeviceStmt body(Kind kind, const ir::Expr& integer, std::vector<DeviceStmt> inside) {
    DeviceStmt s;
    s.kind = kind;
    s.name = kind == Kind::loop ? "i" : "";
    s.integer = integer;
    s.body = std::move(inside);
    return s;
  }
  std::string why(std::vector<DeviceStmt> list) {
    program.body = std::move(list);
    return std::string(jit::check_waits(program).message());
  }
};

TEST(DeviceWaits, WhatThreadsMayTouch) {
  using ir::Expr;
  const Expr t = ir::iter("thread"), i = ir::iter("i"), n = ir::symbol("e0");
  const auto next = ir::mod(t + Expr(1), Expr(64));
  const auto store = Made::store;
  const auto load = Made::load;
  const auto body = Made::body;
  Made m;
  const auto wrong = HasSubstr("no barrier is between them");
  EXPECT_EQ(m.why({store(t), load(t, 0)}), "");
  EXPECT_EQ(m.why({store(t), load(next, 0)}),
            "wait: threads 1 and 0 may touch s0[1], one of them stores it, and no barrier is between them");
  EXPECT_EQ(m.why({store(t), Made::barrier(), load(next, 0)}), "");
  // What is read is stored again.
  EXPECT_THAT(m.why({load(next, 0), store(t)}), wrong);
  // Two threads store one element; but where a condition leaves one of each warp.
  EXPECT_THAT(m.why({store(ir::floordiv(t, Expr(32)))}), wrong);
  const Expr first = ir::make(ir::Op::k_eq, {ir::mod(t, Expr(32)), Expr(0)});
  EXPECT_EQ(m.why({body(Kind::when, first, {store(ir::floordiv(t, Expr(32)))})}), "");
  // A place that depends on a size may be any.
  EXPECT_THAT(m.why({store(n - t)}), wrong);
  // The next turn stores what this one reads.
  EXPECT_THAT(m.why({body(Kind::loop, n, {store(t), Made::barrier(), load(next, 0)})}), wrong);
  EXPECT_EQ(m.why({body(Kind::loop, n, {store(t), Made::barrier(), load(next, 0), Made::barrier()})}), "");
  // One barrier a turn: enough for two halves that take turns, not for one.
  const auto half = [&](const Expr& which, const Expr& at) { return which * Expr(32) + ir::mod(at, Expr(32)); };
  const auto turns = [&](const Expr& which) {
    return m.why({body(Kind::loop, n,
                       {body(Kind::when, ir::make(ir::Op::k_lt, {t, Expr(32)}), {store(half(which, t))}),
                        Made::barrier(), load(half(which, next), 0)})});
  };
  EXPECT_EQ(turns(ir::mod(i, Expr(2))), "");
  EXPECT_THAT(turns(Expr(0)), wrong);
  // A loop that may not run leaves what was there.
  EXPECT_THAT(m.why({store(t), body(Kind::loop, n, {Made::barrier()}), load(next, 0)}), wrong);
  EXPECT_EQ(m.why({store(t), body(Kind::loop, Expr(1), {Made::barrier()}), load(next, 0)}), "");
  // Of two alternatives that all threads choose alike, either may have run.
  DeviceStmt either = body(Kind::when, ir::make(ir::Op::k_lt, {n, Expr(9)}), {Made::barrier()});
  EXPECT_THAT(m.why({store(t), either, load(next, 0)}), wrong);
  either.otherwise = {Made::barrier()};
  EXPECT_EQ(m.why({store(t), either, load(next, 0)}), "");
}

// All threads of a warp read what one of them asks for: even its own element needs a barrier.
TEST(DeviceWaits, WhatWarpsRead) {
  using ir::Expr;
  const Expr t = ir::iter("thread"), n = ir::symbol("e0"), own = Expr(8) * ir::mod(t, Expr(8));
  Made m;
  m.program.shared[0].type = ir::DType::bf16;
  m.program.locals = {{"r0", 8, ir::DType::bf16}};
  const auto squares = [](const Expr& rows) {
    DeviceStmt s;
    s.kind = Kind::warp;
    s.warp = jit::WarpOp::k_ldmatrix;
    for (int i = 0; i < 4; ++i) s.places.push_back({jit::DevicePlace::Space::local, 0, Expr(2 * i)});
    s.places.push_back({jit::DevicePlace::Space::shared, 0, rows});
    return s;
  };
  const auto when = [](const Expr& a, const Expr& b, DeviceStmt s) {
    return Made::body(Kind::when, ir::make(ir::Op::k_lt, {a, b}), {std::move(s)});
  };
  const DeviceStmt store = Made::store(t);
  EXPECT_EQ(m.why({squares(own)}), "");
  EXPECT_EQ(m.why({squares(own), squares(own)}), "");
  EXPECT_EQ(m.why({store, Made::barrier(), squares(own)}), "");
  EXPECT_EQ(m.why({squares(own), Made::barrier(), store}), "");
  EXPECT_EQ(m.why({squares(own), store}),
            "wait: thread 0 and others may touch s0[0], one of them stores it, and no barrier is between them");
  EXPECT_THAT(m.why({store, squares(own)}), HasSubstr("thread 0 and others may touch s0[0]"));
  // The first 8 elements only: the others may be stored to. Eight elements from there, no more.
  const auto behind = [&](int64_t from) { return when(Expr(from - 1), t, store); };
  EXPECT_EQ(m.why({squares(Expr(0)), behind(8)}), "");
  EXPECT_THAT(m.why({squares(Expr(0)), behind(7)}), HasSubstr("may touch s0[7]"));
  // Rows that depend on a size may be any.
  EXPECT_THAT(m.why({squares(Expr(8) * n), behind(63)}), HasSubstr("may touch s0[63]"));
  EXPECT_EQ(m.why({squares(Expr(8) * ir::mod(n, Expr(2))), behind(16)}), "");
  // One thread stored it, or another, as a size says.
  DeviceStmt either = when(n, Expr(9), when(t, Expr(1), Made::store(Expr(0))));
  either.otherwise = {when(Expr(62), t, Made::store(Expr(0)))};
  EXPECT_EQ(m.why({either, squares(own)}),
            "wait: several threads may touch s0[0], one of them stores it, and no barrier is between them");
}

TEST(ThreadValues, FollowTheArithmetic) {
  using ir::Expr;
  jit::ThreadNames names;
  names.set("t", {{0, 0}, {1, 1}, {5, 5}});
  names.set("n", {{0, INT64_MAX}});
  names.set("i", {{2, 3}});
  const Expr t = ir::iter("t"), n = ir::symbol("n"), i = ir::iter("i");
  const auto text = [&](const Expr& e) {
    std::string out;
    for (const ir::Interval& v : names.of(e))
      out += (v.lo == INT64_MIN ? "-" : std::to_string(v.lo)) + ".." +
             (v.hi == INT64_MAX ? "-" : std::to_string(v.hi)) + " ";
    return out;
  };
  EXPECT_EQ(text(Expr(4) * t + i), "2..3 6..7 22..23 ");
  EXPECT_EQ(text(n - t), "0..- -1..- -5..- ");
  EXPECT_EQ(text(ir::min(Expr(4), n - t)), "0..4 -1..4 -5..4 ");
  EXPECT_EQ(text(ir::floordiv(t - Expr(3), Expr(2))), "-2..-2 -1..-1 1..1 ");
  EXPECT_EQ(text(ir::mod(t - Expr(3), Expr(4))), "1..1 2..2 2..2 ");
  EXPECT_EQ(text(ir::mod(Expr(2) * i, Expr(4))), "0..2 ");
  EXPECT_EQ(text(ir::ceildiv(t, Expr(2))), "0..0 1..1 3..3 ");
  EXPECT_EQ(text(ir::make(ir::Op::k_lt, {t, i})), "1..1 1..1 0..0 ");
  EXPECT_EQ(text(ir::make(ir::Op::k_lt, {t, ir::min(Expr(2), n)})), "0..1 0..1 0..0 ");
  EXPECT_EQ(text(ir::make(ir::Op::k_le, {i, Expr(2)})), "0..1 ");
  EXPECT_EQ(text(n * i), "0..- ");
  EXPECT_EQ(text(-t), "0..0 -1..-1 -5..-5 ");
  EXPECT_EQ(text(ir::iter("other")), "-..- ");
  EXPECT_EQ(text(ir::make(ir::Op::k_select, {ir::make(ir::Op::k_lt, {t, Expr(1)}), i, n})), "2..3 0..- 0..- ");
}

}  // namespace
}  // namespace lathe::test
