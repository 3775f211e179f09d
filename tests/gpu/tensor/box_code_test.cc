// Boxes of tensors that the hardware copies to rings: the device program says what fills a place, what waits for it and
// for which time, its verifier refuses what goes wrong for some sizes, and the emulator finds mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "jit/cuda/text/cuda_text.h"
#include "tests/gpu/tensor/group_programs.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Kind = DeviceStmt::Kind;

GroupProgram made(bool turn_a, bool turn_b, const search::GroupTile& tile = {128, 128, 64, 3}) {
  return group_program(turn_a, turn_b, tile);
}

template <class F>
void change_all(DeviceProgram& p, Kind kind, const F& f) {
  visit(p.body, kind, [&](std::vector<DeviceStmt>& list, size_t i) { f(list[i]); });
}

TEST(BoxCode, IsWrittenOut) {
  const GroupProgram m = made(false, true, {128, 64, 64, 4});
  const std::string text = print(m.program);
  EXPECT_THAT(text, HasSubstr("(p0: bf16 in, p1: bf16 in, p2: bf16 out, e0, e1, e2, mapped)\n"));
  EXPECT_THAT(text,
              HasSubstr("  map m0 of p1 [e2, e1 by e2] box 64 x 64\n  map m1 of p0 [e2, e0 by e2] box 64 x 128\n"));
  EXPECT_THAT(text, HasSubstr("  ring f0[4] arrivals "));
  EXPECT_THAT(text, HasSubstr("  open rings\n  barrier\n"));
  EXPECT_THAT(text,
              ContainsRegex("      if thread == 0:\n        expect 24576 bytes in f0\\[\\(i[0-9]+ \\+ 3\\) % 4\\]\n"
                            "        box s3\\[.*\\] m0\\[.*\\] in f0"));
  EXPECT_THAT(text, ContainsRegex("    await f0\\[i[0-9]+ % 4\\] parity i[0-9]+ // 4 % 2\n"));
  const std::string code = jit::cuda_text(m.program, "lathe_leaf");
  for (const char* line :
       {"  lt_int mapped;\n  lt_map m0;\n  lt_map m1;\n};", "lt_ring* const f0 = (lt_ring*)(lt_all + ",
        "lt_open_ring(f0 + i, (int)(", "lt_expect(f0 + ", "lt_box2(s1 + ", "lt_await_ring(f0 + ", "lt_arrive(f0 + "})
    EXPECT_THAT(code, HasSubstr(line));
  // Rows last: 64 of them in a box, of which two make 128.
  EXPECT_EQ(count_of(made(true, false).program, Kind::box), 2 * 4);
  EXPECT_THAT(print(made(true, false).program), HasSubstr("  map m1 of p0 [e0, e2 by e0] box 64 x 64\n"));
}

TEST(BoxCode, EveryRuleRefuses) {
  struct Case {
    const char* message;
    std::function<void(DeviceProgram&)> change;
  };
  const auto apart = [](DeviceStmt& s) {
    DeviceStmt when;
    when.kind = Kind::when;
    when.integer = ir::make(ir::Op::k_lt, {ir::iter("thread"), ir::Expr(128)});
    when.body = {s};
    s = when;
  };
  const Case cases[] = {
      {"rings: f0 has 9 places, expected 2..8", [](DeviceProgram& p) { p.rings[0].places = 9; }},
      {"rings: it is not known how many threads f0 waits for",
       [](DeviceProgram& p) { p.rings[0].arrivals = ir::symbol("x"); }},
      {"rings: s1 is not the swizzled places of a ring", [](DeviceProgram& p) { p.rings[0].places = 5; }},
      {"rings: m0 is no map of elements of 2 bytes that are only read", [](DeviceProgram& p) { p.maps[0].param = 2; }},
      {"rings: m0 has 1 dimensions, expected 1..5", [](DeviceProgram& p) { p.maps[0].box.pop_back(); }},
      {"rings: m0 has boxes of 512, expected 1..256", [](DeviceProgram& p) { p.maps[0].box[1] = 512; }},
      {"rings: m0 has boxes of 40 neighbours, expected 32, 64 or 128 bytes",
       [](DeviceProgram& p) { p.maps[0].box[0] = 40; }},
      {"rings: a box of 32 neighbours goes to s3, expected lines of 128 bytes",
       [](DeviceProgram& p) { p.maps[0].box[0] = 32; }},
      {"rings: sizes of m0 are not known", [](DeviceProgram& p) { p.maps[0].sizes[0] = ir::iter("thread"); }},
      {"rings: there is no ring 1", [](DeviceProgram& p) { find(p, Kind::expect, 0)->ring = 1; }},
      {"rings: there is no map 7", [](DeviceProgram& p) { find(p, Kind::box, 0)->map = 7; }},
      {"rings: a box of m0 at 1 numbers, expected 2", [](DeviceProgram& p) { find(p, Kind::box, 0)->at.pop_back(); }},
      {"rings: a box of m0 goes to shared memory", [](DeviceProgram& p) { find(p, Kind::box, 0)->places.clear(); }},
      {"is no place of f0 for a box of m0", [](DeviceProgram& p) { find(p, Kind::box, 0)->places[0].index = 1; }},
      {"nothing says that it begins at a multiple of 1024 bytes",
       [](DeviceProgram& p) { add(find(p, Kind::box, 0)->places[0].offset, 64); }},
      {"lies in no place of its ring", [](DeviceProgram& p) { add(find(p, Kind::box, 0)->places[0].offset, 1 << 20); }},
      {"rings: a wait that not all threads reach", [&](DeviceProgram& p) { apart(*find(p, Kind::await_ring, 0)); }},
      {"rings: all threads wait for them to be made", [&](DeviceProgram& p) { apart(*find(p, Kind::open_rings, 0)); }},
      {"rings: place 3 of f0, which has 3",
       [](DeviceProgram& p) { find(p, Kind::await_ring, 0)->integer = ir::Expr(3); }},
      {"rings: a box goes to place 0 of s3, and arrives at place 2",
       [](DeviceProgram& p) { find(p, Kind::box, 0)->integer = ir::Expr(2); }},
      {"rings: f0 is used before threads know that it was made",
       [](DeviceProgram& p) { p = without(p, Kind::open_rings, 0); }},
      {"rings: f0 is used before threads know that it was made",
       [](DeviceProgram& p) { p = without(p, Kind::barrier, 0); }},
      {"rings: threads wait for what never comes", [](DeviceProgram& p) { p = without(p, Kind::expect, 0); }},
      {"products: wgmma_bf16 reads s1, which no fence and barrier have handed over",
       [](DeviceProgram& p) { p = without(p, Kind::await_ring, 0); }},
      {"rings: ", [](DeviceProgram& p) { add(find(p, Kind::await_ring, 0)->step, 1); }},
      {"rings: ",
       [](DeviceProgram& p) { change_all(p, Kind::await_ring, [](DeviceStmt& s) { s.step = ir::Expr(0); }); }},
      {"rings: ", [](DeviceProgram& p) { find(p, Kind::expect, 1)->bytes += 16; }},
      {"is filled while products may read it", [](DeviceProgram& p) { p.rings[0].arrivals = ir::Expr(1); }},
      {"rings: more threads arrive at f0 than it waits for",
       [](DeviceProgram& p) {
         const ir::Expr all = p.rings[0].arrivals;
         p.rings[0].arrivals = ir::select(ir::make(ir::Op::k_lt, {ir::Expr(1), all}), all - ir::Expr(1), all);
       }},
      {"rings: ", [](DeviceProgram& p) { p = without(p, Kind::barrier, 1); }},
  };
  const DeviceProgram sound = made(false, true).program;
  ASSERT_TRUE(verify(sound).ok()) << verify(sound).to_string();
  for (const Case& c : cases) {
    DeviceProgram broken = sound;
    c.change(broken);
    const ir::Status found = verify(broken);
    EXPECT_THAT(std::string(found.message()), HasSubstr(c.message));
  }
}

// Each statement that synchronises left out, found by the emulator and without it.
void expect_needed(std::initializer_list<Kind> kinds) {
  const GroupProgram sound = made(true, false, {128, 64, 64, 3});
  PlantedBugs bugs;
  bugs.leave_out(sound.program, kinds, [&](const DeviceProgram& p) { return ring_failure(p, sound.kernel); });
}
TEST(BoxCode, EveryStatementOnRingsIsNeeded) {
  expect_needed({Kind::open_rings, Kind::expect, Kind::arrive, Kind::await_ring, Kind::box});
}
TEST(BoxCode, EveryOtherSynchronisationIsNeeded) {
  expect_needed({Kind::fence_sums, Kind::fence_shared, Kind::commit_products, Kind::await_products, Kind::barrier});
}

// Mistakes in rings and boxes, which show in results or stop the emulator.
TEST(BoxCode, PlantedMistakesAreFound) {
  const GroupProgram sound = made(true, false);
  const std::pair<const char*, std::function<void(DeviceProgram&)>> mistakes[] = {
      {"too few bytes", [](DeviceProgram& p) { change_all(p, Kind::expect, [](DeviceStmt& s) { s.bytes /= 2; }); }},
      {"too many bytes", [](DeviceProgram& p) { find(p, Kind::expect, 0)->bytes += 16; }},
      {"the phase never flips",
       [](DeviceProgram& p) { change_all(p, Kind::await_ring, [](DeviceStmt& s) { s.step = ir::Expr(0); }); }},
      {"the other phase", [](DeviceProgram& p) { add(find(p, Kind::await_ring, 0)->step, 1); }},
      {"waits for the place before",
       [](DeviceProgram& p) {
         ir::Expr& e = find(p, Kind::await_ring, 0)->integer;
         e = ir::mod(e + ir::Expr(2), ir::Expr(3));
       }},
      {"boxes go beyond the ring", [](DeviceProgram& p) { add(find(p, Kind::box, 0)->places[0].offset, 3 * 8192); }},
      {"panels exchanged",
       [](DeviceProgram& p) {
         std::swap(find(p, Kind::box, 0)->at, find(p, Kind::box, 1)->at);
         std::swap(find(p, Kind::box, 4)->at, find(p, Kind::box, 5)->at);
       }},
      {"a step of terms too far", [](DeviceProgram& p) { add(find(p, Kind::box, 4)->at[1], 64); }},
      {"the other operand's map", [](DeviceProgram& p) { find(p, Kind::box, 0)->map = 1; }},
      {"one arrival too many", [](DeviceProgram& p) { add(p.rings[0].arrivals, 1); }},
      {"boxes ahead of the wait for products", [](DeviceProgram& p) { find(p, Kind::await_products, 0)->groups = 2; }},
      {"the barrier behind the boxes",
       [](DeviceProgram& p) {
         visit(p.body, Kind::barrier, [](std::vector<DeviceStmt>& list, size_t i) {
           if (i + 1 < list.size() && list[i + 1].kind == Kind::when && !list[i + 1].body.empty() &&
               list[i + 1].otherwise.size() > 1)
             std::swap(list[i], list[i + 1]);
         });
       }},
  };
  PlantedBugs bugs;
  bugs.make_each(sound.program, mistakes, [&](const DeviceProgram& p) { return ring_failure(p, sound.kernel); });
  // What runs ahead of products shows without running, too.
  for (const auto& [name, plant] : mistakes) {
    DeviceProgram broken = sound.program;
    plant(broken);
    EXPECT_FALSE(verify(broken).ok() && std::string(name).find("ahead") != std::string::npos) << name;
  }
}

// Of whole steps no thread touches shared memory.
TEST(BoxCode, NoConflictsOfBanks) {
  for (const bool turned : {false, true}) {
    const BankCounts counts = bank_conflicts(made(turned, !turned).kernel, {{"D0", 128}, {"D1", 64}, {"D2", 256}});
    EXPECT_EQ(counts.accesses, 0);
    EXPECT_EQ(counts.conflicts, 0);
  }
}

}  // namespace
}  // namespace lathe::test
