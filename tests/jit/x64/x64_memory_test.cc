// Loads, stores, masks and constants of the x64 generator against the portable executor; loads folded into arithmetic
// stay on their side of stores and pointer changes.
#include "tests/jit/x64/x64_test_util.h"

namespace lathe::jit {
namespace {
using namespace x64_test;

class X64Memory : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!can_run(shape())) GTEST_SKIP() << "the machine lacks " << ir::isa_name(shape().level);
  }
  Shape shape() const { return all_shapes()[static_cast<size_t>(GetParam())]; }
  LeafProgram program(const std::string& name) const {
    LeafProgram p = empty_program(shape(), name, 3);
    p.vector_registers = ir::isa_row(shape().level).vector_registers;
    return p;
  }
  Operands operands() const {
    Operands in;
    std::mt19937 random(3);
    for (int s = 0; s < 3; ++s) in.data.push_back(test_values(random, 4096));
    in.stride.assign(ir::kMaxLeafOperands * ir::kMaxLeafStrides, 0);
    in.stride[0] = 20;
    in.stride[1] = 64;
    return in;
  }
  static Inst at(LeafOp op, int reg, int ptr, int disp) {
    Inst i = leaf_op_kind(op) == LeafOpKind::kLoad ? load(reg, ptr) : store(reg, ptr);
    i.op = op;
    i.mem.disp = disp;
    return i;
  }
};

TEST_P(X64Memory, AddressesOfEveryForm) {
  const std::pair<LeafOp, MemType> forms[] = {{LeafOp::k_load, MemType::b32}, {LeafOp::k_load_bcast, MemType::b32},
                                              {LeafOp::k_load, MemType::u8},  {LeafOp::k_load_bcast, MemType::u8},
                                              {LeafOp::k_load, MemType::u16}, {LeafOp::k_load_bcast, MemType::b64}};
  for (const auto& [op, type] : forms) {
    for (const int scale : {1, 2, 4, 8}) {
      for (const int disp : {0, 4, 124, -4, 1000, 4096}) {
        LeafProgram p = program("address");
        p.ptrs[0].bytes = 64;
        p.ptrs[1].terms = {{1, 3}, {0, -2}};
        Inst strided = at(op, 0, 0, disp);
        strided.type = type;
        strided.mem.index_kind = Mem::Index::stride;
        strided.mem.index = 0;
        strided.mem.scale = scale;
        Inst indexed = at(op, 1, 1, disp);
        indexed.type = type;
        indexed.mem.index_kind = Mem::Index::var;
        indexed.mem.index = 1;
        indexed.mem.scale = scale;
        Node loop;
        loop.kind = Node::Kind::loop;
        loop.var = 1;
        loop.step = 4;
        loop.extent = {Extent::kConst, 21};
        loop.body = {inst(strided), inst(indexed), inst(arith(LeafOp::k_bit_xor, 2, 0, 1)), inst(store(2, 2, 1))};
        p.body = {loop};
        Operands in = operands();
        for (auto& d : in.data) d.insert(d.begin(), 64, 1.0f);
        if (disp < 0) p.ptrs[1].bytes = 16;
        expect_equal(p, in, fmt::format("{} scale {} disp {}", leaf_op_name(op), scale, disp));
      }
    }
  }
}

// One element in all lanes: with AVX-512 by the integer instruction, which takes a load port only, whereas the one for
// floats takes a shuffle as well where vectors are worked on in halves.
TEST_P(X64Memory, ElementsRepeatedWithoutAShuffle) {
  if (disassemble({0xc3}).empty()) GTEST_SKIP() << "needs a disassembler";
  LeafProgram p = program("repeated");
  p.body = {inst(at(LeafOp::k_load_bcast, 0, 0, 4)), inst(store(0, 2)), inst(at(LeafOp::k_store, 0, 2, 64))};
  const auto image = compile_xbyak(p);
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  const std::string text = disassemble({image->code.begin(), image->code.begin() + image->text_bytes});
  const bool wide = shape().level == ir::IsaLevel::avx512;
  EXPECT_EQ(text.find("vpbroadcastd") != std::string::npos, wide) << text;
  EXPECT_EQ(text.find("vbroadcastss") == std::string::npos, wide) << text;
}

TEST_P(X64Memory, StoresOfEveryKind) {
  LeafProgram p = program("stores");
  p.body = {inst(load(0, 0)),
            inst(at(LeafOp::k_store, 0, 2, 4)),
            inst(at(LeafOp::k_store_lane0, 0, 2, 1024)),
            inst(at(LeafOp::k_store_stream, 0, 2, 2048)),
            inst(arith(LeafOp::k_constant, 1, -1, -1, -1, 0x40490fdb)),
            inst(at(LeafOp::k_store, 1, 2, 4096)),
            inst(at(LeafOp::k_store_lane0, 1, 2, 5000))};
  expect_equal(p, operands(), shape().name());
}

// Masks whose lanes are constant, one that has them on two paths, and one that has others there.
TEST_P(X64Memory, StoresOfConstantMasks) {
  for (int lanes = -1; lanes <= shape().lanes + 1; ++lanes) {
    LeafProgram p = program("constant_masks");
    p.body = {inst(load(0, 0))};
    for (int m = 0; m < 3; ++m) {
      Inst tail{LeafOp::k_mask_tail, m};
      tail.var_add = 100;
      tail.extent = {Extent::kConst, 100 + lanes};
      p.body.push_back(inst(tail));
    }
    Node often;
    often.kind = Node::Kind::if_less;
    often.var = 0;
    often.extent = {Extent::kConst, 1};
    for (int m = 1; m < 3; ++m) {
      Inst tail{LeafOp::k_mask_tail, m};
      tail.extent = {Extent::kConst, m == 1 ? std::clamp(lanes, 0, shape().lanes) : 2};
      often.body.push_back(inst(tail));
    }
    Node zero;
    zero.kind = Node::Kind::set_var;
    zero.var = 0;
    p.body.push_back(zero);
    p.body.push_back(often);
    for (int m = 0; m < 3; ++m) {
      Inst out = store(0, 2, -1, m);
      out.mem.disp = 4 + 512 * m;
      p.body.push_back(inst(out));
      Inst in = load(1, 1);
      in.mask = m;
      p.body.push_back(inst(in));
      p.body.push_back(inst(at(LeafOp::k_store, 1, 2, 2048 + 512 * m)));
    }
    expect_equal(p, operands(), fmt::format("{} lanes", lanes));
  }
}

// The first lanes that are a vector of their own are read and written as one.
TEST_P(X64Memory, FirstLanesAsShorterVectors) {
  if (disassemble({0xc3}).empty()) GTEST_SKIP() << "needs a disassembler";
  for (const int lanes : {3, 4, 8, 9}) {
    LeafProgram p = program("first_lanes");
    Inst tail{LeafOp::k_mask_tail, 0};
    tail.extent = {Extent::kConst, lanes};
    Inst in = load(0, 0);
    in.mask = 0;
    p.body = {inst(tail), inst(in), inst(store(0, 2, -1, 0))};
    const auto image = compile_xbyak(p);
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    const std::string text = disassemble({image->code.begin(), image->code.begin() + image->text_bytes});
    const bool shorter = lanes < shape().lanes && (lanes == 4 || lanes == 8);
    if (shape().level == ir::IsaLevel::avx512) {
      EXPECT_EQ(text.find("{k") == std::string::npos, shorter) << text;
    }
    EXPECT_EQ(text.find(lanes == 4 ? "XMMWORD" : "YMMWORD") != std::string::npos, shorter || shape().lanes == 8)
        << text;
  }
}

TEST_P(X64Memory, MaskTailsOfEveryLength) {
  LeafProgram p = program("masks");
  Node loop;
  loop.kind = Node::Kind::loop;
  loop.var = 0;
  loop.step = 3;
  loop.extent = {Extent::kConst, 60};
  for (int m = 0; m < 3; ++m) {
    Inst tail{LeafOp::k_mask_tail, m};
    tail.var = m == 1 ? -1 : 0;
    tail.var_add = m * 5 - 2;
    tail.extent.arg = m;
    tail.extent.add = m - 1;
    loop.body.push_back(inst(tail));
  }
  loop.body.push_back(inst(load(0, 0, 0, 0)));
  loop.body.push_back(inst(load(1, 1, 0, 1)));
  loop.body.push_back(inst(arith(LeafOp::k_bit_xor, 2, 0, 1)));
  loop.body.push_back(inst(store(2, 2, 0, 2)));
  Inst pick = arith(LeafOp::k_blend, 3, 0, 2);
  pick.mask = 1;
  loop.body.push_back(inst(pick));
  Inst out = store(3, 2, 0);
  out.mem.disp = 4096;
  loop.body.push_back(inst(out));
  Inst bytes = at(LeafOp::k_load, 4, 0, 3);
  bytes.type = MemType::u8;
  bytes.mask = 0;
  loop.body.push_back(inst(bytes));
  loop.body.push_back(inst(at(LeafOp::k_store, 4, 2, 8192)));
  p.body = {loop};
  Operands in = operands();
  const int64_t ends[] = {-5000000000, -3, 0, 1, 7, 8, 9, 15, 16, 17, 40, 255, 256, 257, 4294967296, 5000000000};
  for (const int64_t e : ends) {
    for (const int64_t f : ends) {
      in.args.extent[0] = e;
      in.args.extent[1] = f;
      in.args.extent[2] = e < 0 ? f : e;
      expect_equal(p, in, fmt::format("{} extents {} {}", shape().name(), e, f));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(X64Memory, IndicesOfLoopsAndLanes) {
  LeafProgram p = program("indices");
  Node loop;
  loop.kind = Node::Kind::loop;
  loop.var = 0;
  loop.step = 5;
  loop.extent = {Extent::kConst, 40};
  for (int v = 0; v < 24; ++v) {
    Inst index{LeafOp::k_index_i32, 1};
    index.var = v % 2 - 1;
    index.imm = static_cast<uint32_t>(v / 2 % 2);
    index.extent = {v / 4 % 3 - 1, v < 12 ? 0 : -77};
    loop.body.push_back(inst(index));
    Inst out = store(1, 2, 0);
    out.mem.disp = 512 * v;
    loop.body.push_back(inst(out));
  }
  p.body = {loop};
  Operands in = operands();
  in.args.extent[0] = 1000;
  in.args.extent[1] = -(int64_t{1} << 40) + 5;
  expect_equal(p, in, shape().name());
}

TEST_P(X64Memory, ConstantsAndExtents) {
  LeafProgram p = program("constants");
  const uint32_t bits[] = {0, 0x80000000, 0x3f800000, 0xffffffff, 0x7fc00000, 1};
  int disp = 0;
  for (const uint32_t b : bits) {
    p.body.push_back(inst(arith(LeafOp::k_constant, 1, -1, -1, -1, b)));  // defined several times: no pool constant
    p.body.push_back(inst(at(LeafOp::k_store, 1, 2, disp += 64)));
  }
  for (int e = 0; e < 4; ++e) {
    Inst extent{LeafOp::k_extent_f32, 2};
    extent.extent.arg = e - 1;
    extent.extent.add = 3 * e;
    p.body.push_back(inst(extent));
    p.body.push_back(inst(at(LeafOp::k_store, 2, 2, disp += 64)));
  }
  Operands in = operands();
  in.args.extent[0] = 16777217;
  in.args.extent[1] = -9;
  in.args.extent[2] = int64_t{1} << 40;
  expect_equal(p, in, shape().name());
}

TEST_P(X64Memory, PrefetchTouchesNothing) {
  // 0f 18 with 1 in the middle field of what follows is prefetcht0, with 2 prefetcht1.
  for (const auto& [op, level] : {std::pair(LeafOp::k_prefetch, 1), std::pair(LeafOp::k_prefetch_l2, 2)}) {
    LeafProgram p = program("prefetch");
    p.ptrs.push_back({});
    p.ptrs[3].stream = 1;
    Inst touch = load(-1, 3);
    touch.op = op;
    Node move;
    move.kind = Node::Kind::add_stream;
    move.from = 1;
    move.steps = {{3, 0, {}}};
    p.body = {inst(touch), move, inst(touch), inst(load(0, 0)), inst(store(0, 2))};
    Operands in = operands();
    in.args.stream[1].ptr = nullptr;  // a hint never faults
    in.args.stream[1].step = 0x1234567890;
    expect_equal(p, in, shape().name());
    const auto image = compile_xbyak(p);
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    int found = 0;
    for (size_t i = 0; i + 2 < image->text_bytes; ++i)
      found += image->code[i] == 0x0f && image->code[i + 1] == 0x18 && (image->code[i + 2] >> 3 & 7) == level;
    EXPECT_EQ(found, 2) << shape().name();
  }
}

// v0 = load x; [something]; v2 = v1 + v0: the load may only move to its use where nothing in between changes what it
// reads.
TEST_P(X64Memory, FoldedLoadsStayBeforeStoresAndPointerChanges) {
  for (int between = 0; between < 5; ++between) {
    LeafProgram p = program("fold");
    p.ptrs.push_back({});
    Node change;
    switch (between) {
      case 0:
        change = inst(store(1, 0));
        break;
      case 1:
        change = inst(at(LeafOp::k_store_lane0, 1, 0, 0));
        break;
      case 2:
        change.kind = Node::Kind::set_ptr;
        change.from = 1;
        change.steps = {{0, 64, {}}};
        break;
      case 3:
        change.kind = Node::Kind::loop;
        change.var = 2;
        change.extent = {Extent::kConst, 2};
        change.body = {inst(arith(LeafOp::k_move, 5, 1))};
        change.steps = {{0, 64, {}}};
        break;
      default:
        change.kind = Node::Kind::set_var;
        change.var = 1;
        break;
    }
    Inst from = load(0, 0, between == 4 ? 1 : -1);
    Node loop;
    loop.kind = Node::Kind::loop;
    loop.var = 1;
    loop.step = 16;
    loop.extent = {Extent::kConst, 16};
    Node zero;
    zero.kind = Node::Kind::set_var;
    zero.var = 1;
    p.body = {inst(load(1, 1)),
              zero,
              inst(from),
              change,
              inst(arith(LeafOp::k_add, 2, 1, 0)),
              inst(store(2, 2)),
              inst(at(LeafOp::k_store, 1, 2, 64))};
    if (between == 4) {  // the variable is not 0 when the load runs
      loop.body = {inst(arith(LeafOp::k_move, 5, 1))};
      p.body.insert(p.body.begin() + 2, loop);
    }
    expect_equal(p, operands(), fmt::format("{} between {}", shape().name(), between));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, X64Memory, testing::Range(0, 3),
                         [](const auto& info) { return all_shapes()[static_cast<size_t>(info.param)].name(); });

}  // namespace
}  // namespace lathe::jit
