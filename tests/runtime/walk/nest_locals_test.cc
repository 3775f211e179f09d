// What a nest reads of its arguments: extents of parallel loops that differ, and where elements are read.
#include "tests/runtime/walk/nest_case.h"

namespace lathe::runtime {
namespace {

// Iterations of the innermost parallel loop are shared out, also where there are not equally many in each outer one.
TEST(Nest, ParallelLoopsOfUnequalExtentsAreOneSpace) {
  const Expr b = iter("b"), h = iter("h"), p = iter("p");
  NestCall c;
  c.leaves = {0};
  c.operands = {{0, ir::DType::f32, b * 1000 + h * 100 + p, {}}};
  const auto nest = [&](const Expr& outer) {
    auto cut = cut_of(
        {loop("b", outer, {loop("h", N, {loop("p", ir::max(read(mod(b, 6)), 0), {call(c)}, true)}, true)}, true)}, 3, 1,
        {{"M", 1, 100}, {"N", 1, 100}});
    cut.kernel.buffers = read_parameters();
    return cut;
  };
  const RecordingLeaf shape{nullptr, 0, 1, 0, 0, 0, false};
  for (const int64_t n : {1, 2, 7}) {
    check(nest(M), {{"M", 1}, {"N", n}}, shape);
    check(nest(M), {{"M", 6}, {"N", n}}, shape);
    check(nest(read(Expr(3))), {{"M", 6}, {"N", n}}, shape);
    check(nest(read(Expr(1))), {{"M", 6}, {"N", n}}, shape);
  }
  const auto bound = bind_nest(nest(M), {{"M", 6}, {"N", 2}}, {}, 2);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->phases[0].parallel_loops, 3);
  // 3, 0, 0, 5, 1, 4 iterations, twice each: 13 of 26 for each thread.
  Recorder recorder;
  RecordingLeaf leaf = shape;
  leaf.recorder = &recorder;
  const LeafRef ref{nullptr, record, &leaf};
  void* args[] = {nullptr, nullptr, read_values};
  walk(*bound, &ref, args, nullptr, nullptr);
  EXPECT_EQ(recorder.records.size(), 26u);
}

// Iterations that have whole pieces of what they share count more than those of a rest.
TEST(Nest, PiecesAreSharedOutByTheirElements) {
  const Expr b = iter("b"), p = iter("p");
  NestCall c;
  c.leaves = {0};
  c.operands = {{0, ir::DType::f32, b * 100 + p, {}}};
  const auto nest = [&](int64_t times) {
    const Expr size = ir::max(read(mod(b, 6)), 0) * Expr(times);
    auto cut =
        cut_of({loop("b", M, {loop("p", ir::ceildiv(size, Expr(8)), {call(c)}, true)}, true)}, 3, 1, {{"M", 1, 100}});
    cut.kernel.buffers = read_parameters();
    return cut;
  };
  const RecordingLeaf shape{nullptr, 0, 1, 0, 0, 0, false};
  for (const int64_t times : {1, 3, 8, 20}) {
    for (const int64_t m : {1, 2, 5, 6, 12}) check(nest(times), {{"M", m}}, shape);
  }
  // 97, 49 and six times 1 elements in 13 + 7 + 6 pieces: the first thread has the 10 that start before the 76th.
  auto cut =
      cut_of({loop("b", M, {loop("p", ir::ceildiv(ir::max(Expr(97) - b * 48, 1), Expr(8)), {call(c)}, true)}, true)}, 3,
             1, {{"M", 1, 100}});
  cut.kernel.buffers = read_parameters();
  const auto bound = bind_nest(cut, {{"M", 8}}, {}, 2);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(bound->phases[0].parallel_loops, 2);
  struct Parts {
    Recorder recorder;
    std::vector<size_t> after;
  } parts;
  RecordingLeaf leaf = shape;
  leaf.recorder = &parts.recorder;
  const LeafRef ref{nullptr, record, &leaf};
  const HostPool pool{.user = &parts,
                      .num_threads = [](void*) { return 2; },
                      .parallel_for =
                          [](void* user, int count, TaskFn task, void* context) {
                            auto& p = *static_cast<Parts*>(user);
                            for (int i = 0; i < count; ++i) {
                              task(context, i);
                              p.after.push_back(p.recorder.records.size());
                            }
                          }};
  ThreadTeam team(pool);
  void* args[] = {nullptr, nullptr, read_values};
  walk(*bound, &ref, args, nullptr, &team);
  EXPECT_EQ(parts.after, (std::vector<size_t>{10, 26}));
}

// What the nest reads is read once in each iteration of the loop that it follows, and only there if it is proven to be
// there whatever runs inside.
TEST(Nest, IntegersAreReadWhereTheirLoopRuns) {
  const Expr i = iter("i"), j = iter("j");
  NestCall c;
  c.leaves = {0};
  c.operands = {{0, ir::DType::f32, read(i) * 7 + j, {}}, {1, ir::DType::i8, read(i) + read(i + j) * 3, {}}};
  const auto nest = [&](const Expr& inner) {
    auto cut = cut_of({loop("i", M, {loop("j", inner, {call(c)})})}, 3, 1, {{"M", 1, 9}});
    cut.kernel.buffers = read_parameters();
    return cut;
  };
  const RecordingLeaf shape{nullptr, 0, 2, 0, 0, 0, false};
  // i + j stays below 6 by i's extent alone, or only where j runs.
  const auto even = bind_nest(nest(Expr(2)), {{"M", 5}}, {}, 1),
             uneven = bind_nest(nest(Expr(6) - i), {{"M", 9}}, {}, 1);
  ASSERT_TRUE(even.ok() && uneven.ok());
  EXPECT_EQ(even->locals.size(), 2u);
  EXPECT_EQ(uneven->locals.size(), 0u);
  check(nest(Expr(2)), {{"M", 5}}, shape);
  for (const int64_t m : {6, 9}) check(nest(Expr(6) - i), {{"M", m}}, shape);
}

}  // namespace
}  // namespace lathe::runtime
