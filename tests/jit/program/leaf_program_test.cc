// Leaf programs by hand: text, bytes there and back, malformed bytes, what verify_program refuses,
// and loops, segments and streams under the portable executor. One instruction at a time is
// x64_ops_test.cc; lowering has tests of its own.
#include "jit/program/leaf_program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

namespace lathe::jit {
namespace {

Node inst(Inst i) {
  Node n;
  n.inst = i;
  return n;
}
Inst load(int dst, int ptr, int var = -1, int mask = -1) {
  Inst i{LeafOp::k_load, dst};
  i.mask = mask;
  i.mem.ptr = ptr;
  if (var >= 0) {
    i.mem.index_kind = Mem::Index::var;
    i.mem.index = var;
    i.mem.scale = 4;
  }
  return i;
}
Inst store(int src, int ptr, int var, int mask = -1) {
  Inst i = load(-1, ptr, var, mask);
  i.op = LeafOp::k_store;
  i.src[0] = src;
  return i;
}

// y[i] = x[i] + x[i] for i < e0: vectors, then a masked tail.
LeafProgram doubler(int lanes) {
  LeafProgram p;
  p.name = "lathe_elementwise_f32_x_test_0";
  p.level = ir::IsaLevel::avx512;
  p.lanes = lanes;
  p.num_vregs = 4;
  p.num_masks = 1;
  p.num_vars = 1;
  p.ptrs.resize(2);
  p.ptrs[0].slot = 0;
  p.ptrs[1].slot = 1;
  Node loop;
  loop.kind = Node::Kind::loop;
  loop.var = 0;
  loop.step = lanes;
  loop.extent.arg = 0;
  loop.body = {inst(load(0, 0, 0)), inst({LeafOp::k_add, 1, {0, 0, -1}}), inst(store(1, 1, 0))};
  Node tail;
  tail.kind = Node::Kind::if_less;
  tail.var = 0;
  tail.extent.arg = 0;
  Inst mask{LeafOp::k_mask_tail, 0};
  mask.var = 0;
  mask.extent.arg = 0;
  tail.body = {inst(mask), inst(load(2, 0, 0, 0)), inst({LeafOp::k_add, 3, {2, 2, -1}}), inst(store(3, 1, 0, 0))};
  p.body = {loop, tail};
  return p;
}

// y = |x| for whole vectors, by a branch for those that hold a negative number.
LeafProgram size_of(int lanes) {
  LeafProgram p = doubler(lanes);
  p.num_vregs = 5;
  Inst negative{LeafOp::k_cmp_lt, 0, {0, 4, -1}}, choice{LeafOp::k_blend, 0, {0, 3, -1}};
  choice.mask = 0;
  Node branch;
  branch.kind = Node::Kind::if_any;
  branch.mask = 0;
  branch.body = {inst({LeafOp::k_sub, 3, {4, 0, -1}}), inst(choice)};
  p.body[0].body = {inst(load(0, 0, 0)), inst(negative), branch, inst(store(0, 1, 0))};
  p.body.erase(p.body.begin() + 1);
  p.body.insert(p.body.begin(), inst({LeafOp::k_constant, 4}));
  return p;
}

// y[lanes] = sum over segments and k of a[k] * b[k, lanes].
LeafProgram dot(int lanes) {
  LeafProgram p;
  p.lanes = lanes;
  p.num_vregs = 3;
  p.num_vars = 1;
  p.ptrs.resize(6);
  for (int i = 0; i < 3; ++i) p.ptrs[i].slot = i;
  p.ptrs[5].stream = 0;
  Node loop;
  loop.kind = Node::Kind::loop;
  loop.var = 0;
  loop.extent.arg = Extent::kSegLen;
  Inst a = load(1, 3);
  a.op = LeafOp::k_load_bcast;
  Inst touch{LeafOp::k_prefetch};
  touch.mem.ptr = 5;
  Node stream;
  stream.kind = Node::Kind::add_stream;
  stream.from = 0;
  stream.steps = {{5, 0, {}}};
  loop.body = {inst(load(2, 4)), inst(a), inst({LeafOp::k_fma, 0, {1, 2, 0}}), inst(touch), stream};
  loop.steps = {{3, 4, {}}, {4, 0, {{1 * ir::kMaxLeafStrides + 0, 1}}}};
  Node segments;
  segments.kind = Node::Kind::segments;
  segments.seg_ptr_a = 3;
  segments.seg_base_a = 0;
  segments.seg_ptr_b = 4;
  segments.seg_base_b = 1;
  segments.body = {loop};
  p.body = {inst({LeafOp::k_constant, 0}), segments, inst(store(0, 2, -1))};
  return p;
}

TEST(LeafProgram, LoopAndMaskedTailTouchNothingElse) {
  for (int lanes : {8, 16}) {
    const LeafProgram p = doubler(lanes);
    ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string();
    for (int n = 0; n <= 40; ++n) {
      std::vector<float> x(n + 64), y(n + 64, -1.0f);
      std::iota(x.begin(), x.end(), 1.0f);
      ir::LeafArgs args{};
      args.op[0].ptr = reinterpret_cast<char*>(x.data());
      args.op[1].ptr = reinterpret_cast<char*>(y.data());
      args.extent[0] = n;
      execute_portable(p, args);
      for (int i = 0; i < n + 64; ++i) ASSERT_EQ(y[i], i < n ? 2 * x[i] : -1.0f) << lanes << " " << n << " " << i;
    }
  }
}

TEST(LeafProgram, BranchIsTakenWhereALaneNeedsIt) {
  for (int lanes : {8, 16}) {
    const LeafProgram p = size_of(lanes);
    ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string();
    EXPECT_NE(to_text(p).find("if any k0\n      v3 = sub v4, v0\n"), std::string::npos) << to_text(p);
    std::vector<float> x(static_cast<size_t>(4 * lanes), 2.0f), y(x.size());
    x[1] = x.back() = -3.0f;
    ir::LeafArgs args{};
    args.op[0].ptr = reinterpret_cast<char*>(x.data());
    args.op[1].ptr = reinterpret_cast<char*>(y.data());
    args.extent[0] = 4 * lanes;
    execute_portable(p, args);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], std::abs(x[i])) << i;
  }
}

TEST(LeafProgram, OneSegmentEqualsThree) {
  const LeafProgram p = dot(8);
  ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string();
  const int k = 11, ldb = 12;
  std::vector<float> a(k), b(k * ldb), one(8), three(8);
  for (int i = 0; i < k; ++i) a[i] = static_cast<float>(i % 5 - 2);
  for (int i = 0; i < k * ldb; ++i) b[i] = static_cast<float>(i % 7 - 3);
  const auto run = [&](std::vector<float>& y, std::vector<ir::LeafSeg> segs) {
    ir::LeafArgs args{};
    args.op[0].ptr = reinterpret_cast<char*>(a.data());
    args.op[1].ptr = reinterpret_cast<char*>(b.data());
    args.op[1].stride[0] = 4 * ldb;
    args.op[2].ptr = reinterpret_cast<char*>(y.data());
    args.nseg = static_cast<int64_t>(segs.size());
    args.seg = segs.data();
    args.stream[0] = {nullptr, 64, 0, nullptr};
    execute_portable(p, args);
  };
  run(one, {{0, 0, k, 0, 0}});
  run(three, {{0, 0, 4, 0, 0}, {16, 4 * 4 * ldb, 0, 0, 0}, {16, 4 * 4 * ldb, 7, 0, 0}});
  for (int n = 0; n < 8; ++n) {
    float want = 0;
    for (int i = 0; i < k; ++i) want += a[i] * b[i * ldb + n];
    EXPECT_EQ(one[n], want);
    EXPECT_EQ(three[n], want);
  }
}

TEST(LeafProgram, TextShowsLoopsAndMasks) {
  const std::string text = to_text(doubler(16));
  EXPECT_NE(text.find("loop x0 = 0; x0 + 16 <= e0; x0 += 16\n    v0 = load [ptr 0 + x0 * 4]\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("k0 = mask_tail x0, e0\n    v2 = load [ptr 0 + x0 * 4] {k0}\n"), std::string::npos) << text;
  EXPECT_NE(to_text(dot(8)).find("ptr 4 += + stride1.0 * 1"), std::string::npos) << to_text(dot(8));
}

TEST(LeafProgram, BytesThereAndBack) {
  for (const LeafProgram& p : {doubler(16), dot(8), size_of(8)}) {
    const std::vector<uint8_t> bytes = serialise(p);
    auto back = deserialise(bytes.data(), bytes.size());
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(to_text(*back), to_text(p));
    EXPECT_EQ(serialise(*back), bytes);
  }
}

TEST(LeafProgram, MalformedBytesAreRefusedNotFollowed) {
  const std::vector<uint8_t> good = serialise(dot(16));
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(deserialise(good.data(), n).ok()) << n;
  std::vector<uint8_t> longer = good;
  longer.push_back(0);
  EXPECT_FALSE(deserialise(longer.data(), longer.size()).ok());
  std::mt19937 rng(1);
  int refused = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<uint8_t> bytes = good;
    for (int e = 0; e <= trial % 4; ++e) bytes[rng() % bytes.size()] = static_cast<uint8_t>(rng());
    auto r = deserialise(bytes.data(), bytes.size());
    if (r.ok()) {
      EXPECT_TRUE(verify_program(*r).ok());
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
}

TEST(LeafProgram, VerifierRefuses) {
  const auto refused = [](LeafProgram p, auto edit, const char* why) {
    edit(p);
    const ir::Status s = verify_program(p);
    EXPECT_FALSE(s.ok()) << why;
    EXPECT_NE(s.message().find(why), std::string::npos) << s.to_string();
  };
  const LeafProgram p = doubler(16);
  refused(p, [](LeafProgram& q) { q.lanes = 7; }, "lanes 7");
  refused(p, [](LeafProgram& q) { q.body[0].body[1].inst.src[0] = 1; }, "used before it is defined");
  refused(
      p, [](LeafProgram& q) { q.body[1].body[3].inst.src[0] = 1; },
      "used before it is defined");  // only set in the loop
  refused(p, [](LeafProgram& q) { q.body[0].body[0].inst.dst = 9; }, "out of range");
  refused(p, [](LeafProgram& q) { q.body[0].step = 0; }, "loop step");
  refused(p, [](LeafProgram& q) { q.body[0].extent.arg = Extent::kSegLen; }, "seglen outside segments");
  refused(p, [](LeafProgram& q) { q.body[0].extent.arg = 8; }, "extent 8");
  refused(p, [](LeafProgram& q) { q.body[0].body[0].inst.mem.scale = 3; }, "scale 3");
  refused(p, [](LeafProgram& q) { q.body[0].body[0].inst.mem.ptr = 2; }, "pointer 2");
  refused(p, [](LeafProgram& q) { q.ptrs[1].slot = -1; }, "pointer 1 used before");
  refused(p, [](LeafProgram& q) { q.ptrs[1].slot = 12; }, "operand 12");
  refused(p, [](LeafProgram& q) { q.body[0].body[1].inst.op = LeafOp::k_blend; }, "blend without a mask");
  refused(p, [](LeafProgram& q) { q.body[1].body[2].inst.mask = 0; }, "cannot be masked");
  refused(p, [](LeafProgram& q) { q.body[1].body[0].inst.dst = 1; }, "mask 1");
  refused(
      size_of(8), [](LeafProgram& q) { std::swap(q.body[1].body[1], q.body[1].body[2]); },
      "mask 0 used before it is defined");
  refused(p, [](LeafProgram& q) { q.body[0].body.push_back(q.body[0]); }, "enclosing loop");
  refused(
      p,
      [](LeafProgram& q) {
        q.level = ir::IsaLevel::avx2;
        q.body[0].body[1].inst.op = LeafOp::k_scalef;
      },
      "scalef at level avx2");
  refused(
      p,
      [](LeafProgram& q) {
        q.level = ir::IsaLevel::avx2;
        q.extra = ir::kCpu_avx512bf16;
      },
      "features that come with no avx2");
  refused(p, [](LeafProgram& q) { q.level = static_cast<ir::IsaLevel>(ir::kIsaLevels); }, "unknown level");
  LeafProgram d = dot(8);
  refused(d, [](LeafProgram& q) { q.body[1].seg_base_a = 4; }, "pointer 4 used before");
  refused(d, [](LeafProgram& q) { q.body[1].body.push_back(q.body[1]); }, "nested segments");
  refused(d, [](LeafProgram& q) { q.body[1].body[0].body[4].from = 2; }, "stream 2");
}

}  // namespace
}  // namespace lathe::jit
