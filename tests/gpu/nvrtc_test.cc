// The real compiler, where it is: chains of every kind compile for every GPU of the table, without spills or frames,
// with accesses of 16 bytes. And the reader of cubins, on files that are none.
#include "jit/cuda/compile/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "bench/gpu/bare_loops.h"
#include "bench/gpu/op_chains.h"
#include "ir/analysis/analysis.h"
#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/choice/device_schedules.h"
#include "search/gpu/product_schedule.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/fakes/fake_cubin.h"
#include "tests/gpu/real_nvrtc.h"
#include "tests/gpu/rows.h"

namespace lathe::jit {
namespace {

using ::testing::HasSubstr;

std::string leaf_of(const std::string& text, const ir::SymbolValues& symbols) {
  const search::GeneralKernel general = search::general_kernel(test::kernel_of(text));
  ir::SymbolValues sizes;
  for (const auto& [name, size] : general.sizes) sizes.emplace_back(name, ir::evaluate(size, symbols).value());
  const auto scheduled = search::device_schedule(general, sizes, *ir::find_gpu_target("h200"));
  EXPECT_TRUE(scheduled.ok()) << scheduled.status().to_string();
  return search::cut_launches(scheduled->kernel)->leaves[0].text;
}

DeviceProgram program_of(const std::string& leaf) {
  auto made = lower_device({test::kernel_of(leaf), leaf});
  EXPECT_TRUE(made.ok()) << made.status().to_string() << "\n" << leaf;
  return made.value();
}

using bench::chain_of;

class RealCompiler : public test::WithNvrtc<testing::Test> {
 protected:
  void SetUp() override {
    WithNvrtc::SetUp();
    if (nvrtc) RecordProperty("nvrtc", nvrtc->version());
  }
  ir::Result<CompiledKernel> compile(const std::string& leaf, const char* gpu) const {
    return nvrtc->compile(program_of(leaf), "lathe_leaf", ir::find_gpu_target(gpu).value());
  }
};

TEST_F(RealCompiler, EveryFunction) {
  int kernels = 0;
  for (const DeviceOpRow& row : bench::kDeviceOps) {
    const auto made = compile(leaf_of(chain_of(row), {{"N", 100000}}), "h200");
    ASSERT_TRUE(made.ok()) << row.name << ": " << made.status().message();
    EXPECT_EQ(made->log, "") << row.name;
    EXPECT_EQ(made->info.local, 0) << row.name;
    EXPECT_GT(made->info.loads.bits128, 0) << row.name;
    EXPECT_EQ(made->info.stores.bits128, 1) << row.name;
    EXPECT_GT(made->info.registers, 0);
    EXPECT_LE(made->info.registers, 64) << row.name;
    ++kernels;
  }
  RecordProperty("kernels", kernels);
}

TEST_F(RealCompiler, EveryFormOnEveryGpu) {
  int kernels = 0;
  for (const std::string_view gpu : ir::gpu_target_names()) {
    const std::string name(gpu);
    const auto flat = compile(leaf_of(test::kFlat, {{"N", 100000}}), name.c_str());
    ASSERT_TRUE(flat.ok()) << name << ": " << flat.status().message();
    // Whole vectors by one access each, the rest by a loop.
    EXPECT_EQ(flat->info.loads.bits128, 1) << name;
    EXPECT_EQ(flat->info.stores.bits128, 1) << name;
    EXPECT_EQ(flat->info.sm, ir::find_gpu_target(gpu)->sm);
    const auto rows = compile(leaf_of(test::kRows, {{"M", 1000}}), name.c_str());
    ASSERT_TRUE(rows.ok()) << name << ": " << rows.status().message();
    EXPECT_EQ(rows->info.loads.bits128, 2) << name;
    EXPECT_EQ(rows->info.stores.bits128, 1) << name;
    const auto turned = compile(leaf_of(test::kTurned, {{"A", 100}, {"B", 100}, {"C", 100}}), name.c_str());
    ASSERT_TRUE(turned.ok()) << name << ": " << turned.status().message();
    EXPECT_EQ(turned->info.loads.bits128, 0) << name;
    EXPECT_EQ(turned->info.stores.bits128, 2) << name;
    kernels += 3;
  }
  RecordProperty("kernels", kernels);
}

// Narrow types, integers that choose rows, and rope's two loops in a row.
TEST_F(RealCompiler, CopiesOnEveryGpu) {
  const std::string halves =
      "kernel silu(e0: T[N] in, y: T[N] out) family elementwise where N in 0..1000000\n"
      "  for j < N:\n    y[j] = T(f32(e0[j]) * sigmoid(f32(e0[j])))\n";
  const std::string turned =
      "kernel turn(s: T[M, N] in, d: T[N, M] out) family transpose where M in 0..9999, N in 0..9999\n"
      "  for i < N:\n    for j < M:\n      d[i, j] = s[j, i]\n";
  const std::string gathered =
      "kernel gather(s: f32[V, N] in, ids: T[M] in values 0..V - 1, d: f32[M, N] out) family gather where V in "
      "0..9999, "
      "M in 0..9999, N in 0..9999\n"
      "  for i < M:\n    for j < N:\n      d[i, j] = s[i64(ids[i]), j]\n";
  const std::string rope =
      "kernel rope(s: f32[T, 2, 128] in, co: f32[P, 32] in, at: i32[T] in values 0..P - 1, d: f32[T, 2, 128] out) "
      "family rope where T in 0..9999, P in 1..9999\n"
      "  for t < T:\n    for h < 2:\n      for p < 32:\n"
      "        d[t, h, p] = s[t, h, p] * co[i64(at[t]), p] - s[t, h, p + 32]\n"
      "        d[t, h, p + 32] = s[t, h, p + 32] * co[i64(at[t]), p] + s[t, h, p]\n"
      "      for q < 64:\n        d[t, h, q + 64] = s[t, h, q + 64]\n";
  const auto of_type = [](const std::string& text, const char* type) {
    return std::regex_replace(text, std::regex("\\bT(?=[(\\[])"), type);
  };
  const ir::SymbolValues sizes = {{"N", 4000}, {"M", 500}, {"V", 900}, {"P", 700}, {"T", 600}};
  std::vector<std::string> leaves = {leaf_of(rope, sizes)};
  for (const char* type : {"bf16", "f16"}) leaves.push_back(leaf_of(of_type(halves, type), sizes));
  for (const char* type : {"f32", "bf16", "i32"}) leaves.push_back(leaf_of(of_type(turned, type), sizes));
  for (const char* type : {"i32", "i64"}) leaves.push_back(leaf_of(of_type(gathered, type), sizes));
  int kernels = 0;
  for (const std::string_view gpu : ir::gpu_target_names()) {
    for (const std::string& leaf : leaves) {
      const auto made = compile(leaf, std::string(gpu).c_str());
      ASSERT_TRUE(made.ok()) << gpu << ": " << made.status().message() << "\n" << leaf;
      EXPECT_EQ(made->info.local, 0) << leaf;
      EXPECT_LE(made->info.registers, 64) << leaf;
      ++kernels;
    }
  }
  RecordProperty("kernels", kernels);
}

// Rows in registers, of part of a warp, of one and of many, and in loops: nothing spills, and what is aligned goes by
// 16 bytes.
TEST_F(RealCompiler, RowsOnEveryGpu) {
  struct Case {
    std::string text;
    int64_t columns;
    int loads;  // of 16 bytes
  };
  const Case cases[] = {{test::softmax_rows("128"), 128, 4},      {test::softmax_rows("1000"), 1000, 8},
                        {test::softmax_rows("1024"), 1024, 8},    {test::softmax_rows("8192"), 8192, 8},
                        {test::softmax_rows("32768"), 32768, 8},  {test::softmax_rows("N"), 70000, 3},
                        {test::layernorm_rows("1024"), 1024, 24}, {test::layernorm_rows("4097"), 4097, 24},
                        {test::layernorm_rows("N"), 1000, 5},     {test::kSumRows, 5000, 1}};
  int kernels = 0;
  for (const std::string_view gpu : ir::gpu_target_names()) {
    for (const Case& c : cases) {
      const auto made = compile(leaf_of(c.text, {{"B", 1000}, {"N", c.columns}}), std::string(gpu).c_str());
      ASSERT_TRUE(made.ok()) << gpu << ": " << made.status().message() << "\n" << c.text;
      EXPECT_EQ(made->info.local, 0) << c.text;
      EXPECT_EQ(made->info.loads.bits128, c.loads) << gpu << c.text << made->info.registers;
      ++kernels;
    }
  }
  RecordProperty("kernels", kernels);
}

// The operands of a step's products come from shared memory by 16 bytes, those of a tile from memory, and each product
// is one instruction.
TEST_F(RealCompiler, ProductsOnEveryGpu) {
  const search::GeneralKernel plain = search::general_kernel(test::kernel_of(test::kProduct)),
                              turned = search::general_kernel(test::kernel_of(test::kTurnedProduct));
  int kernels = 0;
  const auto compiled = [&](const ir::Result<search::Scheduled>& scheduled, const std::string& gpu) {
    EXPECT_TRUE(scheduled.ok()) << scheduled.status().to_string();
    const auto made = compile(search::cut_launches(scheduled->kernel)->leaves[0].text, gpu.c_str());
    EXPECT_TRUE(made.ok()) << gpu << ": " << made.status().message() << "\n" << print(scheduled->kernel);
    ++kernels;
    return made.ok() ? made->info : CubinInfo{};
  };
  const auto check_tile = [&](const search::GeneralKernel& of, const search::ProductTile& t, const std::string& gpu) {
    const auto scheduled = search::product_schedule(of, t);
    const CubinInfo info = compiled(scheduled, gpu);
    const int64_t sums = t.thread_rows * t.thread_columns, vectors = (t.thread_rows + t.thread_columns) / 4;
    EXPECT_EQ(info.local, 0);
    EXPECT_GE(info.fma, sums * (t.depth + 1)) << "all steps and the last terms";
    // All of them; beside them ptxas 13.0 now and then reads one element again instead of keeping it, and for sm_120a
    // ptxas writes turns of a loop out. 13.5 reads one of them in two halves.
    const bool written_out = gpu == "rtx5090";
    EXPECT_LE(info.shared_loads.narrow, written_out ? 16 : 1) << gpu;
    EXPECT_LE(info.shared_loads.bits64, 2) << gpu;
    // Of a step, of the last steps where others are ahead, which a loop goes through, and of the last terms; beside
    // them a loop through a step of a tile that is not whole.
    const bool staged = scheduled->schedule.knobs.count("stages") != 0;
    const int64_t wide = vectors * (t.depth + (staged ? 2 : 1));
    EXPECT_GE(info.shared_loads.bits128 + info.shared_loads.bits64 / 2, wide) << gpu;
    EXPECT_LE(info.shared_loads.bits128, written_out ? 2 * wide : wide + 2 * vectors) << gpu;
    EXPECT_EQ(info.async_copies > 0, staged);
    EXPECT_GE(info.loads.bits128, 2);
    EXPECT_EQ(info.stores.bits128, sums / 4);
    EXPECT_GE(info.barriers, 4);
    EXPECT_LE(info.registers, 168) << gpu;
  };
  for (const std::string_view gpu : ir::gpu_target_names()) {
    check_tile(plain, {128, 128, 16, 8, 8}, std::string(gpu));
    check_tile(turned, {64, 64, 16, 4, 4}, std::string(gpu));
  }
  for (const search::ProductTile& t :
       {search::ProductTile{128, 128, 8, 8, 8}, {128, 64, 16, 8, 8}, {32, 32, 32, 4, 4}}) {
    check_tile(plain, t, "h200");
    check_tile(turned, t, "h200");
  }
  RecordProperty("kernels", kernels);
}

// The ceilings that scripts/gpu.sh measures: a loop has its instructions once, in registers.
TEST_F(RealCompiler, BareLoopsAreNothingElse) {
  const auto made = [&](const bench::BareLoop& loop, const char* gpu) {
    const auto code = nvrtc->compile(bench::text_of(loop), loop.name, ir::find_gpu_target(gpu).value());
    EXPECT_TRUE(code.ok()) << gpu << ": " << code.status().message();
    return code.ok() ? code->info : CubinInfo{};
  };
  for (const char* gpu : {"a100", "h200", "rtx5090"}) {
    EXPECT_GT(made(bench::kNothing, gpu).instructions, 0);
    EXPECT_EQ(made(bench::kTensorLoops[0], gpu).mma, 8) << gpu;
  }
  EXPECT_EQ(made(bench::kTensorLoops[1], "h200").group_mma, 4);
  RecordProperty("kernels", 7);
}

TEST_F(RealCompiler, EqualTextsGiveEqualBytes) {
  const auto compiler = Nvrtc::open(test::real_nvrtc_path()).value();
  const DeviceProgram program = program_of(leaf_of(test::kFlat, {{"N", 100000}}));
  const auto cubin = [&] { return compiler->compile(program, "lathe_leaf", *ir::find_gpu_target("h200"))->cubin; };
  EXPECT_EQ(cubin(), cubin());
}

TEST_F(RealCompiler, WhatDoesNotCompileIsAnError) {
  const auto made = nvrtc->compile("int f( {", "f", ir::find_gpu_target("h200").value());
  EXPECT_EQ(made.status().code(), ir::Code::kINTERNAL);
  EXPECT_THAT(made.status().message(), HasSubstr("does not compile f"));
}

// An array that is indexed at run time is no registers.
TEST_F(RealCompiler, LocalMemoryIsRefused) {
  const auto made = nvrtc->compile(
      "#include \"lathe_prelude.h\"\n"
      "struct lt_args { float* p; lt_int n; };\n"
      "LT_KERNEL(f, 32, 1, lt_args, a) {\n"
      "  float t[64];\n"
      "  for (int i = 0; i < 64; ++i) t[i] = a.p[i];\n"
      "  for (int i = 0; i < 64; ++i) a.p[i] = t[(i * a.n) & 63];\n"
      "}\n",
      "f", ir::find_gpu_target("h200").value());
  EXPECT_EQ(made.status().code(), ir::Code::kUNSUPPORTED);
  EXPECT_THAT(made.status().message(), HasSubstr("f: "));
}

TEST(Cubin, AnyBytesGiveAnAnswer) {
  const std::string file = test::write_fake_cubin(90, "f", 24, std::string(100, 'x'));
  const auto whole = read_cubin(file, "f");
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(whole->sm, 90);
  EXPECT_EQ(whole->registers, 24);
  EXPECT_EQ(whole->instructions, 0) << "a fake one shows none";
  EXPECT_THAT(read_cubin(file, "g").status().message(), HasSubstr("no kernel g in it"));
  EXPECT_THAT(read_cubin("not at all", "f").status().message(), HasSubstr("no ELF file"));
  std::string host = file;
  host[18] = 62;
  EXPECT_THAT(read_cubin(host, "f").status().message(), HasSubstr("an ELF file for machine 62, expected a GPU"));
  for (size_t n = 0; n < file.size(); ++n) EXPECT_FALSE(read_cubin(std::string_view(file).substr(0, n), "f").ok()) << n;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string flipped = file;
    for (int k = 0; k < 3; ++k) flipped[random() % flipped.size()] ^= static_cast<char>(1 << random() % 8);
    (void)read_cubin(flipped, "f");
  }
}

}  // namespace
}  // namespace lathe::jit
