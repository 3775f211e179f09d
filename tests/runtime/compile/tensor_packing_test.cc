// The packed form of a constant that several parameters read: its parts, or a refusal where only some are packed.
#include "runtime/compile/tensor_packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "ir/base/hash.h"
#include "ir/core/text_form.h"
#include "ops/manifest.h"
#include "search/sketches/recipe.h"

namespace lathe::runtime {
namespace {

// Blocks of 18 bytes: a half, then 16 bytes; 40 rows of two blocks.
ops::LoweredKernel nibbles() {
  ops::LoweredKernel out;
  out.kernel = *ir::parse_kernel(
      "kernel t(a: f32[1, 64] in, d: f16[40, 2] const strides [18, 9], q: u8[40, 2, 16] const strides [36, 18, 1], y: "
      "f32[1, 40] out) family quantised\n"
      "  c: f32[1, 40] heap\n  for m < 1 [m]:\n    for n < 40 [n]:\n      c[m, n] = 0.0\n      for k < 64 [k]:\n"
      "        c[m, n] += a[m, k] * (f32(d[n, k // 32]) * f32(i32(q[n, k // 32, k % 16]) >> 4*(k % 32 // 16) & "
      "15:i32))\n      y[m, n] = c[m, n]\n");
  out.params = {{0}, {1, 0, true}, {1, 2, true}, {2}};
  return out;
}

ir::Result<Stage> stage_of(const ops::LoweredKernel& k, LeafCache& cache, const std::string& layouts) {
  LATHE_ASSIGN(const search::Schedule schedule,
               search::parse_schedule("schedule 1 family quantised class exact\ntile_scope k 32 tail=exact as k0,k1\n"
                                      "tile_scope k1 16 tail=exact as ko,kj\nunroll_scope ko\n" +
                                      layouts + "move_to_register c n\n"));
  return build_stage(k.kernel, schedule, ir::Target{}, cache, {});
}

TEST(TensorPacking, PartsLieOneAfterAnother) {
  const ops::LoweredKernel k = nibbles();
  LeafCache cache({}, nullptr, nullptr);
  const auto stage = stage_of(k, cache, "tile_buffer d 0 16\ntile_buffer q 0 16\n");
  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
  const auto packing = tensor_packing(k, *stage, 1, {});
  ASSERT_TRUE(packing.ok()) << packing.status().to_string();
  ASSERT_EQ(packing->parts.size(), 2u);
  EXPECT_EQ(packing->parts[0].at, 0);
  EXPECT_EQ(packing->parts[0].from, 0);
  EXPECT_EQ(packing->parts[1].at, 192) << "48 rows of two halves, at a multiple of 64";
  EXPECT_EQ(packing->parts[1].from, 2);
  EXPECT_EQ(packing->bytes, 192 + 48 * 32);
  EXPECT_NE(packing->layout_id, packing->parts[0].packed->layout_id);
  const uint64_t second = packing->parts[1].packed->layout_id;
  EXPECT_NE(packing->layout_id, ir::hash_bytes(&second, sizeof(second), packing->parts[0].packed->layout_id))
      << "bytes that lie elsewhere than those of an earlier version are told apart";
  std::vector<uint8_t> source(40 * 36), out(static_cast<size_t>(packing->bytes), 0xee);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 31 + i / 36);
  ASSERT_TRUE(run_pack(*packing, {}, source.data(), out.data(), nullptr).ok());
  for (int64_t n = 0; n < 40; ++n) {
    for (int64_t block = 0; block < 2; ++block) {
      EXPECT_EQ(std::memcmp(&out[static_cast<size_t>(4 * n + 2 * block)],
                            &source[static_cast<size_t>(36 * n + 18 * block)], 2),
                0);
      EXPECT_EQ(std::memcmp(&out[static_cast<size_t>(192 + 32 * n + 16 * block)],
                            &source[static_cast<size_t>(36 * n + 18 * block + 2)], 16),
                0);
    }
  }
  EXPECT_TRUE(tensor_packing(k, *stage, 0, {})->parts.empty());
}

// Of 16 rows a block: 32 bytes of halves, then 256 of nibbles; or room that nobody fills behind them.
TEST(TensorPacking, PiecesLieBetweenThoseOfOtherParts) {
  const ops::LoweredKernel k = nibbles();
  for (const int64_t step : {288, 320}) {
    LeafCache cache({}, nullptr, nullptr);
    const auto stage =
        stage_of(k, cache,
                 fmt::format("tile_buffer d 0 16\nswap_dims d 1 2\nspace_dim d 1 {}\ntile_buffer q 0 16\n"
                             "swap_dims q 1 2\nswap_dims q 2 3\nspace_dim q 1 {}\n",
                             step / 2, step));
    ASSERT_TRUE(stage.ok()) << stage.status().to_string();
    const auto packing = tensor_packing(k, *stage, 1, {});
    ASSERT_TRUE(packing.ok()) << packing.status().to_string();
    ASSERT_EQ(packing->parts.size(), 2u);
    EXPECT_EQ(packing->parts[0].at, 0);
    const int64_t nibbles_at = step % 64 == 0 ? 64 : 32;  // as aligned as the steps leave them
    EXPECT_EQ(packing->parts[1].at, nibbles_at);
    EXPECT_EQ(packing->bytes, 5 * step + nibbles_at + 256) << "three panels of two blocks";
    std::vector<uint8_t> source(40 * 36), out(static_cast<size_t>(packing->bytes), 0xee);
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 31 + i / 36);
    ASSERT_TRUE(run_pack(*packing, {}, source.data(), out.data(), nullptr).ok());
    std::vector<uint8_t> expected(out.size(), 0);
    for (int64_t n = 0; n < 40; ++n) {
      for (int64_t block = 0; block < 2; ++block) {
        const int64_t to = (n / 16 * 2 + block) * step, from = 36 * n + 18 * block;
        for (int64_t i = 0; i < 2; ++i)
          expected[static_cast<size_t>(to + n % 16 * 2 + i)] = source[static_cast<size_t>(from + i)];
        for (int64_t i = 0; i < 16; ++i)
          expected[static_cast<size_t>(to + nibbles_at + i * 16 + n % 16)] = source[static_cast<size_t>(from + 2 + i)];
      }
    }
    EXPECT_EQ(out, expected);
  }
}

// What a group of weights needs lies together, nothing between it and the next group. Blocks that all but fill their
// last line do. They lie in the order in which code reads them: what a block has once, the products' bytes, then the
// scales of a group; those of several groups before their bytes.
TEST(TensorPacking, FieldsOfABlockAreOneStream) {
  struct Format {
    const char* name;
    int64_t block, given, bytes;  // of a block, in the caller's memory and packed
    const char* order;            // of the fields in memory
  };
  for (const auto& [format, block, given, bytes, order] :
       {Format{"q4_0", 32, 18, 18, "10"}, Format{"q4_1", 32, 20, 20, "10"}, Format{"q5_0", 32, 22, 22, "120"},
        Format{"q5_1", 32, 24, 24, "120"}, Format{"q8_0", 32, 34, 34, "10"}, Format{"q4_k", 256, 144, 148, "0132"},
        Format{"q5_k", 256, 176, 180, "01342"}, Format{"q6_k", 256, 210, 210, "210"}}) {
    SCOPED_TRACE(format);
    const auto workloads = ops::parse_manifest(fmt::format(
        R"({{"name":"q","graph":{{"tensors":{{"a":{{"dtype":"f32","dims":[2,512]}},"w":{{"dtype":"u8","dims":[64,{}],)"
        R"("const":true}}}},"nodes":[{{"op":"quantized_matmul","in":["a","w"],"out":"y","attrs":{{"format":"{}"}}}}],)"
        R"("outputs":["y"]}},"dims":{{}},"allowed":["reassociate","contract","quantised_activations"]}})"
        "\n",
        512 / block * given, format));
    ASSERT_TRUE(workloads.ok()) << workloads.status().to_string();
    const auto lowered = ops::lower(*ops::finish((*workloads)[0].graph));
    ASSERT_TRUE(lowered.ok()) << lowered.status().to_string();
    const ops::LoweredKernel& k = lowered->kernels[0];
    search::Problem problem;
    problem.kernel = k.kernel;
    problem.allowed = (*workloads)[0].allowed;
    for (const ir::IsaLevel level : {ir::IsaLevel::avx2, ir::IsaLevel::avx512}) {
      const ir::Target target = ir::bare_target(level);
      LeafCache cache({}, nullptr, nullptr);
      const auto stage = build_stage(k.kernel, search::default_scheduled(problem, target), target, cache,
                                     {.llvm = false, .portable = true});
      ASSERT_TRUE(stage.ok()) << stage.status().to_string();
      const auto packing = tensor_packing(k, *stage, 1, {});
      ASSERT_TRUE(packing.ok()) << packing.status().to_string();
      const bool fills = level == ir::IsaLevel::avx2 && format == std::string("q6_k");  // 53 lines of 16 columns
      EXPECT_EQ(packing->bytes, 64 * (512 / block) * (fills ? 212 : bytes));
      if (level != ir::IsaLevel::avx512) continue;
      // All begin in the first block, groups behind what the whole block has.
      const auto in_first = [&](const TensorPacking::Part& p) { return p.at < 32 * bytes; };
      EXPECT_TRUE(std::all_of(packing->parts.begin(), packing->parts.end(), in_first));
      std::string lie = "01234";
      lie.resize(packing->parts.size());
      std::sort(lie.begin(), lie.end(), [&](char a, char b) {
        return packing->parts[static_cast<size_t>(a - '0')].at < packing->parts[static_cast<size_t>(b - '0')].at;
      });
      EXPECT_EQ(lie, order);
    }
  }
}

TEST(TensorPacking, SomePartsAloneAreRefused) {
  const ops::LoweredKernel k = nibbles();
  LeafCache cache({}, nullptr, nullptr);
  const auto stage = stage_of(k, cache, "tile_buffer q 0 16\n");
  ASSERT_TRUE(stage.ok()) << stage.status().to_string();
  EXPECT_NE(tensor_packing(k, *stage, 1, {}).status().to_string().find("both packed and as it lies"),
            std::string::npos);
  EXPECT_FALSE(all_parts_packed(k, *stage, 1).ok());
  EXPECT_TRUE(all_parts_packed(k, *stage, 0).ok());
}

}  // namespace
}  // namespace lathe::runtime
