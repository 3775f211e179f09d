// Whole programs through LLVM against the portable executor: tiles with segments and streams, rows
// with masks and reductions; what the images look like; dumps. Single instructions are
// llvm_ops_test.cc, random programs llvm_fuzz_test.cc.
#include "tests/jit/llvm/llvm_programs.h"

namespace lathe::jit {
namespace {
using namespace llvm_test;

TEST(LlvmPrograms, MatmulTilesEqualPortable) {
  LATHE_NEEDS_LLVM();
  for (const Shape& shape : all_shapes()) {
    const int vectors = shape.lanes == 16 ? 3 : shape.level == ir::IsaLevel::avx2 ? 2 : 4;
    for (int rows : {1, 2, 5, shape.level == ir::IsaLevel::avx2 ? 6 : shape.lanes == 16 ? 8 : 6}) {
      const LeafProgram p = matmul_tile(shape, rows, vectors);
      ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string();
      const auto image = compile_llvm(p, "");
      ASSERT_TRUE(image.ok()) << image.status().to_string();
      EXPECT_EQ(image->symbol, p.name);
      if (!host_runs(shape)) continue;
      const Loaded code(*image);
      for (int k : {0, 1, 7, 64}) {
        for (int pieces : {1, 3}) {
          TileArgs want(rows, vectors * shape.lanes, k, pieces, 5), got(rows, vectors * shape.lanes, k, pieces, 5);
          execute_portable(p, want.args);
          code(got.args);
          ASSERT_EQ(difference(want.c, got.c), -1) << shape.name() << " rows " << rows << " k " << k;
        }
      }
      TileArgs none(rows, vectors * shape.lanes, 4, 1, 5);
      none.args.nseg = 0;
      code(none.args);
      EXPECT_EQ(none.c[0], 0.0f) << "no segments: the sum is its start";
    }
  }
}

TEST(LlvmPrograms, RowsEqualPortableAndTouchNothingElse) {
  LATHE_NEEDS_LLVM();
  for (const Shape& shape : all_shapes()) {
    const LeafProgram p = row_program(shape);
    ASSERT_TRUE(verify_program(p).ok()) << verify_program(p).to_string();
    const auto image = compile_llvm(p, "");
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    if (!host_runs(shape)) continue;
    const Loaded code(*image);
    std::mt19937 random(3);
    for (int n = 0; n < 50; ++n) {
      const int rows = n % 4, pitch = n + 9;
      const auto values = test_values(random, static_cast<size_t>(rows * pitch + 64));
      std::vector<float> result[2];
      for (int who = 0; who < 2; ++who) {
        result[who].assign(values.size(), -3.0f);
        ir::LeafArgs args{};
        args.op[0] = {reinterpret_cast<char*>(const_cast<float*>(values.data())), {pitch * 4}};
        args.op[1] = {reinterpret_cast<char*>(result[who].data()), {pitch * 4}};
        args.extent[0] = rows;
        args.extent[1] = n;
        who == 0 ? execute_portable(p, args) : code(args);
      }
      ASSERT_EQ(difference(result[0], result[1]), -1) << shape.name() << " " << n;
    }
  }
}

// The largest tile of a level keeps its accumulators in registers: the inner loop has no spill, the
// leaf no frame.
TEST(LlvmPrograms, TilesStayInRegisters) {
  LATHE_NEEDS_LLVM();
  const std::vector<std::pair<Shape, std::pair<int, int>>> tiles = {{{ir::IsaLevel::avx512, 16}, {8, 3}},
                                                                    {{ir::IsaLevel::avx512, 16}, {6, 4}},
                                                                    {{ir::IsaLevel::avx512, 8}, {6, 4}},
                                                                    {{ir::IsaLevel::avx2, 8}, {6, 2}}};
  for (const auto& [shape, tile] : tiles) {
    const auto image = compile_llvm(matmul_tile(shape, tile.first, tile.second), "");
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    const auto text = llvm_disassemble(*image, "");
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    EXPECT_LE(image->stack_bytes, 128u) << *text;
    EXPECT_EQ(text->find("vmovups ymmword ptr [rsp"), std::string::npos) << *text;
    EXPECT_EQ(text->find("vmovups zmmword ptr [rsp"), std::string::npos) << *text;
    EXPECT_EQ(text->find("vzeroupper"), std::string::npos) << "vzeroupper is the walker's";
  }
}

// An image asks for its level's features and holds nothing beyond them.
TEST(LlvmPrograms, ImagesHoldTheirLevelOnly) {
  LATHE_NEEDS_LLVM();
  for (const Shape& shape : all_shapes()) {
    for (const LeafProgram& p : {matmul_tile(shape, 4, 2), row_program(shape)}) {
      const auto image = compile_llvm(p, "");
      ASSERT_TRUE(image.ok()) << image.status().to_string();
      EXPECT_EQ(image->features, ir::isa_features(shape.level));
      const auto text = llvm_disassemble(*image, "");
      ASSERT_TRUE(text.ok()) << text.status().to_string();
      const bool wide = text->find("zmm") != std::string::npos, masks = text->find("{k") != std::string::npos;
      if (shape.level == ir::IsaLevel::avx2) {
        EXPECT_FALSE(wide || masks) << *text;
      }
      EXPECT_EQ(wide, shape.lanes == 16) << *text;
      EXPECT_EQ(text->find("call"), std::string::npos) << *text;
    }
  }
}

// Every branch goes to an instruction, every operand relative to RIP to a constant.
TEST(LlvmPrograms, DisassemblyNamesItsTargets) {
  LATHE_NEEDS_LLVM();
  const auto image = compile_llvm(row_program({ir::IsaLevel::avx512, 16}), "");
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  const auto text = llvm_disassemble(*image, "");
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  int branches = 0, constants = 0;
  for (size_t at = 0; (at = text->find(": j", at)) != std::string::npos; ++at, ++branches) {
    const uint64_t target = std::stoull(text->substr(text->find("0x", at) + 2), nullptr, 16);
    EXPECT_NE(("\n" + *text).find(fmt::format("\n{:5x}:", target)), std::string::npos)
        << fmt::format("{:x}\n", target) << *text;
  }
  for (size_t at = 0; (at = text->find("; -> ", at)) != std::string::npos; at += 5, ++constants) {
    const uint64_t target = std::stoull(text->substr(at + 5), nullptr, 16);
    EXPECT_GE(target, image->text_bytes);
    EXPECT_LT(target, image->code.size());
  }
  EXPECT_GT(branches, 4);
  EXPECT_GT(constants, 1);
}

TEST(LlvmPrograms, IrTextIsTheModuleAsBuilt) {
  LATHE_NEEDS_LLVM();
  const auto text = llvm_ir_text(matmul_tile({ir::IsaLevel::avx2, 8}, 2, 2), "");
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  EXPECT_NE(text->find("define dso_local void @lathe_test_tile_2x16_avx2(ptr"), std::string::npos) << *text;
  EXPECT_NE(text->find("call <8 x float> @llvm.fma.v8f32"), std::string::npos);
  EXPECT_EQ(text->find(" fast "), std::string::npos);
  EXPECT_EQ(text->find("contract"), std::string::npos);
}

// A mask whose lanes are known is a constant: bytes under one that is not become a branch each.
TEST(LlvmPrograms, KnownTailsAreConstants) {
  LATHE_NEEDS_LLVM();
  for (const bool known : {true, false}) {
    LeafProgram p = empty_program({ir::IsaLevel::avx2, 8}, "tail", 2);
    Inst tail{LeafOp::k_mask_tail, 0};
    tail.extent = known ? Extent{Extent::kConst, 4} : Extent{0, 0};
    Inst from = load(0, 0, -1, 0), to = store(0, 1, -1, 0);
    from.type = to.type = MemType::u8;
    p.body = {inst(tail), inst(from), inst(to)};
    const auto text = llvm_ir_text(p, "");
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    EXPECT_EQ(text->find("<8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 false") != std::string::npos, known)
        << *text;
    EXPECT_EQ(text->find("icmp") == std::string::npos, known) << *text;
  }
}

TEST(LlvmPrograms, CompilingTwiceGivesTheSameBytes) {
  LATHE_NEEDS_LLVM();
  const LeafProgram p = row_program({ir::IsaLevel::avx512, 16});
  const auto once = compile_llvm(p, ""), again = compile_llvm(p, "");
  ASSERT_TRUE(once.ok() && again.ok());
  EXPECT_EQ(once->code, again->code);
  EXPECT_EQ(once->entry, again->entry);
}

TEST(LlvmPrograms, MalformedProgramsAreRefused) {
  LATHE_NEEDS_LLVM();
  LeafProgram p = row_program({ir::IsaLevel::avx2, 8});
  p.body[0].inst.src[0] = 77;
  p.body[0].inst.op = LeafOp::k_move;
  EXPECT_FALSE(compile_llvm(p, "").ok());
  p = row_program({ir::IsaLevel::avx2, 8});
  p.lanes = 16;
  EXPECT_EQ(compile_llvm(p, "").status().code(), ir::Code::kUNSUPPORTED);
}

}  // namespace
}  // namespace lathe::jit
