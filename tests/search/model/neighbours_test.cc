// Kernels that no recipe knows: Schedules by general rules and their neighbours keep the values of the Kernel (marked
// scopes run backwards), replay, and cut into leaves; there are enough of them to search.
#include "search/model/neighbours.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "ir/core/text_form.h"
#include "search/cut/cut.h"
#include "search/sketches/generic_schedules.h"
#include "tests/common/machines.h"
#include "tests/search/moves/walk.h"

namespace lathe::search {
namespace {

using Symbols = ir::SymbolValues;

ir::Target target_of(ir::IsaLevel level) {
  ir::Target t;
  t.level = level;
  t.lanes = level == ir::IsaLevel::avx512 ? 16 : 8;
  t.vector_registers = level == ir::IsaLevel::avx512 ? 32 : 16;
  t.mask_registers = level == ir::IsaLevel::avx512 ? 7 : 0;
  return t;
}

ir::Kernel read_kernel(const std::string& name) {
  std::ifstream in(std::filesystem::path(LATHE_SOURCE_DIR) / "tests/search/no_recipe" / (name + ".lir"));
  std::stringstream text;
  text << in.rdbuf();
  ir::Result<ir::Kernel> kernel = ir::parse_kernel(text.str());
  EXPECT_TRUE(kernel.ok()) << name << ": " << kernel.status().to_string();
  return kernel.ok() ? *kernel : ir::Kernel{};
}

struct Case {
  const char* name;
  std::vector<Symbols> shapes;
  std::vector<std::string> moves;  // the first Schedule has them
};
const Case kCases[] = {
    {"matmul", {{{"M", 3}}, {{"M", 17}}}, {"tensorize", "unroll_scope", "move_to_register"}},
    {"softmax", {{{"R", 2}, {"C", 5}}, {{"R", 5}, {"C", 130}}}, {"vectorize_scope", "move_to_register"}},
    {"layernorm", {{{"R", 2}, {"C", 5}}, {{"R", 5}, {"C", 130}}}, {"vectorize_scope", "move_to_register"}},
    {"rmsnorm", {{{"R", 2}, {"C", 5}}, {{"R", 5}, {"C", 130}}}, {"vectorize_scope", "move_to_register"}},
    {"transpose", {{{"P", 5}, {"Q", 33}}}, {"tensorize"}},
    {"chain", {{{"R", 2}, {"C", 5}}, {{"R", 5}, {"C", 130}}}, {"join_scopes", "inline_temporary", "vectorize_scope"}},
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// The matmul is too long for the interpreter as it stands.
ir::Kernel small(ir::Kernel kernel) {
  std::string text = ir::print(kernel);
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"896", "13"}, {"512", "40"}}) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  }
  return *ir::parse_kernel(text);
}

void expect_values(const ir::Kernel& kernel, const Schedule& schedule, const Symbols& shape, const Tensors& inputs,
                   const Tensors& want) {
  const ir::Result<ir::Kernel> scheduled = replay(kernel, schedule);
  ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string() << "\n" << to_text(schedule);
  EXPECT_EQ(scheduled->numeric, schedule.numeric);
  EXPECT_TRUE(cut(*scheduled).ok());
  const ir::Result<Tensors> got = outputs(reversed(*scheduled), shape, inputs);
  ASSERT_TRUE(got.ok()) << got.status().to_string() << "\n" << ir::print(*scheduled);
  EXPECT_EQ(difference(want, *got, 1e-4), "") << to_text(schedule) << ir::print(*scheduled);
}

class NoRecipe : public testing::TestWithParam<Case> {};

TEST_P(NoRecipe, GenericSchedulesKeepTheValues) {
  const ir::Kernel kernel = small(read_kernel(GetParam().name));
  for (const ir::IsaLevel level : {ir::IsaLevel::avx512, ir::IsaLevel::avx2}) {
    for (const Symbols& shape : GetParam().shapes) {
      const Problem problem{kernel, shape, 2, false};
      ASSERT_EQ(find_recipe(problem), nullptr);
      const Tensors inputs = whole_inputs(kernel, shape);
      const ir::Result<Tensors> want = outputs(kernel, shape, inputs);
      ASSERT_TRUE(want.ok()) << want.status().to_string();
      const std::vector<Schedule> schedules = generic_schedules(problem, target_of(level), 10);
      ASSERT_FALSE(schedules.empty());
      for (const std::string& move : GetParam().moves)
        EXPECT_NE(to_text(schedules[0]).find(move + " "), std::string::npos) << to_text(schedules[0]);
      std::set<std::string> texts;
      for (const Schedule& s : schedules) {
        EXPECT_TRUE(texts.insert(to_text(s)).second);
        expect_values(kernel, s, shape, inputs, *want);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(NoRecipe, NeighboursKeepTheValues) {
  const ir::Kernel kernel = small(read_kernel(GetParam().name));
  const Symbols& shape = GetParam().shapes.back();
  const ir::Target target = test::this_machine().target;
  const Problem problem{kernel, shape, 2, false};
  const Tensors inputs = whole_inputs(kernel, shape);
  const ir::Result<Tensors> want = outputs(kernel, shape, inputs);
  ASSERT_TRUE(want.ok());
  const std::vector<Schedule> start = generic_schedules(problem, target, 1);
  ASSERT_EQ(start.size(), 1u);
  const std::vector<Neighbour> around = neighbours(problem, target, start[0], 16, 7);
  EXPECT_GE(around.size(), 3u);
  std::set<std::string> texts = {to_text(start[0])};
  for (const Neighbour& n : around) {
    EXPECT_FALSE(n.why.empty());
    EXPECT_TRUE(texts.insert(to_text(n.schedule)).second);
    expect_values(kernel, n.schedule, shape, inputs, *want);
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(All, NoRecipe, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Neighbours, AreOfNoRecipe) {
  const Problem problem{small(read_kernel("chain")), {{"R", 5}, {"C", 130}}, 1, false};
  Schedule from = generic_schedules(problem, target_of(ir::IsaLevel::avx2), 1).at(0);
  from.recipe = "rows.2";
  from.knobs = {{"unroll", 4}};
  const std::vector<Neighbour> around = neighbours(problem, target_of(ir::IsaLevel::avx2), from, 8, 1);
  ASSERT_FALSE(around.empty());
  for (const Neighbour& n : around) EXPECT_TRUE(n.schedule.recipe.empty() && n.schedule.knobs.empty()) << n.why;
}

// Past the caches pays for what they do not hold, and whoever reads the result next pays for it.
TEST(Neighbours, ResultsGoPastTheCachesOnlyWhereTheyExceedThem) {
  const Problem problem{small(read_kernel("chain")), {{"R", 64}, {"C", 1024}}, 1, false};
  ir::Target target = target_of(ir::IsaLevel::avx512);
  const auto streams = [&] {
    int n = 0;
    for (const Schedule& from : generic_schedules(problem, target, 4)) {
      for (const Neighbour& x : neighbours(problem, target, from, 200, 1)) n += x.why.find("+ stream_stores") == 0;
    }
    return n;
  };
  target.l3_bytes = 32 << 20;
  EXPECT_EQ(streams(), 0);
  target.l3_bytes = 64 << 10;
  EXPECT_GT(streams(), 0);
}

TEST(Neighbours, AreThoseOfTheSeedAndAtMostAsManyAsAskedFor) {
  const Problem problem{small(read_kernel("chain")), {{"R", 5}, {"C", 130}}, 1, false};
  const ir::Target target = target_of(ir::IsaLevel::avx2);
  const Schedule from = generic_schedules(problem, target, 1).at(0);
  const auto texts = [&](int n, uint64_t seed) {
    std::string all;
    for (const Neighbour& x : neighbours(problem, target, from, n, seed)) all += x.why + "\n" + to_text(x.schedule);
    return all;
  };
  EXPECT_EQ(texts(6, 1), texts(6, 1));
  EXPECT_NE(texts(6, 1), texts(6, 2));
  EXPECT_EQ(neighbours(problem, target, from, 3, 1).size(), 3u);
  EXPECT_TRUE(neighbours(problem, target, from, 0, 1).empty());
  Schedule broken = from;
  broken.moves.push_back({"unroll_scope", {"nowhere"}, {}, {}});
  EXPECT_TRUE(neighbours(problem, target, broken, 3, 1).empty());
}

}  // namespace
}  // namespace lathe::search
