// Warps of a block that only ask for boxes, and groups that only multiply (the mark @role): the device program says who
// does what, its verifier knows what only some threads reach, and the emulator finds mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "jit/cuda/text/cuda_text.h"
#include "tests/gpu/tensor/group_programs.h"

namespace lathe::test {
namespace {

using jit::DeviceProgram;
using jit::DeviceStmt;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Kind = DeviceStmt::Kind;

GroupProgram made(bool turn_a, bool turn_b, const search::GroupTile& tile = {128, 64, 64, 3, 0, true}) {
  return group_program(turn_a, turn_b, tile);
}

// Of those on the ring of that number.
template <class F>
void change_all(DeviceProgram& p, Kind kind, int ring, const F& f) {
  visit(p.body, kind, [&](std::vector<DeviceStmt>& list, size_t i) {
    if (list[i].ring == ring) f(list[i]);
  });
}
constexpr int kFilled = 0, kRead = 1;

TEST(RoleCode, IsWrittenOut) {
  const GroupProgram m = made(false, true, {128, 256, 256, 4, 0, true});
  const std::string text = print(m.program);
  EXPECT_THAT(text, HasSubstr("program leaf threads 384 "));
  EXPECT_THAT(text, HasSubstr("  ring f0[4] arrivals select(mapped != 0, 1, 128)\n  ring e0[4] arrivals 8 read f0\n"));
  EXPECT_THAT(text, HasSubstr("  last 128 threads with 40 registers:\n    if mapped != 0:\n      if thread == 256:\n"));
  EXPECT_THAT(text, ContainsRegex("          await e0\\[.*\\] parity .*\n          expect 49152 bytes in f0\\[.*\\]\n"
                                  "          box s"));
  EXPECT_THAT(text, HasSubstr("  others with 232 registers:\n"));
  EXPECT_THAT(text, ContainsRegex("await products 1\n      if .*thread % 32 == 0.*:\n        arrive e0\\["));
  EXPECT_EQ(count_of(m.program, Kind::barrier), 1);
  const std::string code = jit::cuda_text(m.program, "lathe_leaf");
  for (const char* line : {"if (lt_thread() >= 256) {\n    lt_fewer_registers<40>();", "lt_more_registers<232>();"})
    EXPECT_THAT(code, HasSubstr(line));
  // One group has all registers from the start.
  EXPECT_THAT(jit::cuda_text(made(false, true, {64, 64, 64, 3, 0, true}).program, "lathe_leaf"),
              ::testing::Not(HasSubstr("_registers<")));
}

TEST(RoleCode, EveryRuleRefuses) {
  struct Case {
    const char* message;
    std::function<void(DeviceProgram&)> change;
  };
  const auto roles = [](DeviceProgram& p) -> DeviceStmt& { return *find(p, Kind::roles, 0); };
  const auto made_of = [](Kind kind) {
    DeviceStmt s;
    s.kind = kind;
    return s;
  };
  const Case cases[] = {
      {"roles: 0 threads fill places of rings", [](DeviceProgram& p) { p.roles.fillers = 0; }},
      {"roles: 64 and 320 threads, expected whole groups", [](DeviceProgram& p) { p.roles.fillers = 64; }},
      {"roles: 36 registers, expected 24..256, by 8", [](DeviceProgram& p) { p.roles.filler_registers = 36; }},
      {"roles: 264 registers, expected 24..256", [](DeviceProgram& p) { p.roles.reader_registers = 264; }},
      {"roles: 176 and 232 registers, expected fewer and more than 168",
       [](DeviceProgram& p) { p.roles.filler_registers = 176; }},
      {"roles: 40 and 160 registers, expected fewer and more",
       [](DeviceProgram& p) { p.roles.reader_registers = 160; }},
      {"roles: 128 threads with 40 registers and 256 with 240, more than 384 with 168",
       [](DeviceProgram& p) { p.roles.reader_registers = 240; }},
      {"roles: threads of a role wait for all of the block",
       [&](DeviceProgram& p) { roles(p).otherwise.push_back(made_of(Kind::barrier)); }},
      {"roles: threads of a role copy to shared memory",
       [&](DeviceProgram& p) { roles(p).body.push_back(made_of(Kind::commit)); }},
      {"roles: something follows threads that have gone apart",
       [&](DeviceProgram& p) { p.body.push_back(made_of(Kind::barrier)); }},
      {"roles: not all threads of the block go apart",
       [&](DeviceProgram& p) {
         DeviceStmt when = made_of(Kind::when);
         when.integer = ir::make(ir::Op::k_lt, {ir::iter("thread"), ir::Expr(128)});
         when.body = {roles(p)};
         roles(p) = when;
       }},
      {"roles: roles inside of a role", [&](DeviceProgram& p) { roles(p).body.push_back(made_of(Kind::roles)); }},
      {"rings: e0 says what is read of no ring of 3 places", [](DeviceProgram& p) { p.rings[kRead].read = 7; }},
      {"rings: e0 says what is read of no ring of 2 places", [](DeviceProgram& p) { p.rings[kRead].places = 2; }},
      {"is not the swizzled places of a ring",
       [](DeviceProgram& p) {
         for (auto& s : p.shared) s.ring = s.ring >= 0 ? kRead : s.ring;
       }},
      {"rings: bytes arrive at e0, which says what is read",
       [](DeviceProgram& p) { find(p, Kind::expect, 0)->ring = kRead; }},
      {"rings: ",
       [](DeviceProgram& p) { change_all(p, Kind::await_ring, kRead, [](DeviceStmt& s) { add(s.step, 1); }); }},
      {"rings: threads wait for what never comes", [](DeviceProgram& p) { add(p.rings[kRead].arrivals, 1); }},
      {"rings: ", [](DeviceProgram& p) { p.rings[kRead].arrivals = ir::Expr(4); }},
      {"rings: a wait that not all threads reach",
       [&](DeviceProgram& p) {
         change_all(p, Kind::await_ring, kFilled, [&](DeviceStmt& s) {
           DeviceStmt when = made_of(Kind::when);
           when.integer = ir::make(ir::Op::k_lt, {ir::iter("thread"), ir::Expr(128)});
           when.body = {s};
           s = when;
         });
       }},
      {"products: threads arrive at f0 before a fence",
       [](DeviceProgram& p) { std::swap(*find(p, Kind::fence_shared, 0), *find(p, Kind::arrive, 0)); }},
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
  const GroupProgram sound = made(true, false);
  PlantedBugs bugs;
  bugs.leave_out(sound.program, kinds, [&](const DeviceProgram& p) { return ring_failure(p, sound.kernel); });
}
TEST(RoleCode, EveryStatementOnRingsIsNeeded) {
  expect_needed({Kind::open_rings, Kind::expect, Kind::arrive, Kind::await_ring, Kind::box});
}
TEST(RoleCode, EveryOtherSynchronisationIsNeeded) {
  expect_needed({Kind::fence_sums, Kind::fence_shared, Kind::commit_products, Kind::await_products, Kind::barrier});
}

// Mistakes between roles, which stop the emulator or show in results; the verifier finds all of them, too.
TEST(RoleCode, PlantedMistakesAreFound) {
  const GroupProgram sound = made(true, false);
  const std::pair<const char*, std::function<void(DeviceProgram&)>> mistakes[] = {
      {"one arrival of readers too many", [](DeviceProgram& p) { add(p.rings[kRead].arrivals, 1); }},
      {"readers of one group count", [](DeviceProgram& p) { p.rings[kRead].arrivals = ir::Expr(4); }},
      {"fillers wait for nothing",
       [](DeviceProgram& p) { change_all(p, Kind::await_ring, kRead, [](DeviceStmt& s) { add(s.step, 1); }); }},
      {"the phase of what is read never flips",
       [](DeviceProgram& p) { change_all(p, Kind::await_ring, kRead, [](DeviceStmt& s) { s.step = ir::Expr(1); }); }},
      {"the phase of what is filled never flips",
       [](DeviceProgram& p) { change_all(p, Kind::await_ring, kFilled, [](DeviceStmt& s) { s.step = ir::Expr(0); }); }},
      {"a place is handed back before its products are done",
       [](DeviceProgram& p) {
         bool done = false;
         visit(p.body, Kind::await_products, [&](std::vector<DeviceStmt>& list, size_t i) {
           if (!std::exchange(done, true)) std::swap(list[i], list[i + 1]);
         });
       }},
      {"products are still on their way", [](DeviceProgram& p) { ++find(p, Kind::await_products, 0)->groups; }},
      {"too few bytes", [](DeviceProgram& p) { find(p, Kind::expect, 0)->bytes /= 2; }},
      {"half of the fillers arrive",
       [](DeviceProgram& p) {
         p.rings[kFilled].arrivals = ir::simplify(ir::floordiv(p.rings[kFilled].arrivals + ir::Expr(1), ir::Expr(2)));
       }},
  };
  PlantedBugs bugs;
  bugs.make_each(sound.program, mistakes, [&](const DeviceProgram& p) { return ring_failure(p, sound.kernel); });
  for (const auto& [name, plant] : mistakes) {
    DeviceProgram broken = sound.program;
    plant(broken);
    EXPECT_FALSE(verify(broken).ok()) << name;
  }
}

TEST(RoleCode, NoConflictsOfBanks) {
  for (const bool turned : {false, true}) {
    const BankCounts counts = bank_conflicts(made(turned, !turned).kernel, {{"D0", 128}, {"D1", 64}, {"D2", 200}});
    EXPECT_EQ(counts.accesses, 0);
    EXPECT_EQ(counts.conflicts, 0);
  }
}

}  // namespace
}  // namespace lathe::test
