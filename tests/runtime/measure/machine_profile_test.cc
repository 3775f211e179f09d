// Probes: ordering only, never absolutes; the text form both ways.
#include "runtime/measure/machine_profile.h"

#include <gtest/gtest.h>

#include "jit/host/host_cpu.h"
#include "runtime/walk/threads.h"

namespace lathe::runtime {
namespace {

TEST(MachineProfile, WiderAndNearerIsNotSlower) {
  MachineProbe probe;
  const ir::Target& target = jit::host_target();
  const double portable = probe.fma_peak_gflops(ir::IsaLevel::portable);
  EXPECT_GT(portable, 0);
  if (target.has(ir::IsaLevel::avx2)) {
    EXPECT_GT(probe.fma_peak_gflops(ir::IsaLevel::avx2), portable);
  }
  if (target.has(ir::IsaLevel::avx512)) {
    EXPECT_GT(probe.fma_peak_gflops(ir::IsaLevel::avx512), 0.5 * probe.fma_peak_gflops(ir::IsaLevel::avx2));
  } else {
    EXPECT_EQ(probe.fma_peak_gflops(ir::IsaLevel::avx512), 0);
  }
  const double memory = probe.read_gbs(std::max<int64_t>(2 * target.l3_bytes, int64_t{64} << 20));
  EXPECT_GT(memory, 0);
  EXPECT_GE(probe.read_gbs(target.l1_bytes / 2), 0.8 * memory);
  EXPECT_GT(probe.copy_gbs(target.l2_bytes / 2), 0);
}

// Pairs and quads of each level that the host has are faster than f32 of the same; what a level lacks is f32's.
TEST(MachineProfile, PeaksAreOfTheBestInstructionOfALevel) {
  MachineProbe probe;
  const ir::Target portable = ir::bare_target(ir::IsaLevel::portable);
  EXPECT_STREQ(probe.peak(ir::DType::i8, portable).instruction, "fma");
  EXPECT_EQ(probe.peak(ir::DType::i8, portable).factors, ir::DType::f32);
  const ir::Target& host = jit::host_target();
  for (const ir::DType factors : {ir::DType::bf16, ir::DType::i8}) {
    const PeakProbe best = probe.peak(factors, host);
    EXPECT_GT(best.gflops, 0);
    if (best.factors != factors) continue;
    EXPECT_GT(best.gflops, 0.8 * probe.fma_peak_gflops(host.level)) << best.instruction;
    EXPECT_GT(probe.peak(factors, host, false).instructions, 0) << "no tiles";
    EXPECT_EQ(best.instructions == 0, best.instruction[0] == 't');
  }
  if (!host.has(ir::IsaLevel::avx2)) GTEST_SKIP() << "no AVX2";
  const ir::Target avx2 = ir::bare_target(ir::IsaLevel::avx2);
  EXPECT_STREQ(probe.peak(ir::DType::i8, avx2).instruction, "vpmaddubsw");
  EXPECT_EQ(probe.peak(ir::DType::i8, avx2).instructions, 3);
  EXPECT_STREQ(probe.peak(ir::DType::bf16, avx2).instruction, "fma");
  if (host.has(ir::isa_features(ir::IsaLevel::avx512) | ir::kCpu_avx512vnni | ir::kCpu_avx512bf16) &&
      host.level == ir::IsaLevel::avx512) {
    EXPECT_STREQ(probe.peak(ir::DType::i8, host).instruction, "vpdpbusd");
    EXPECT_STREQ(probe.peak(ir::DType::bf16, host).instruction, "vdpbf16ps");
  }
}

TEST(MachineProfile, ColdBytesAreEightCachesUpToAGibibyte) {
  ir::Target target;
  constexpr int64_t kMib = int64_t{1} << 20;
  for (const auto& [l3, bytes] : {std::pair{32 * kMib, 256 * kMib},
                                  {128 * kMib, 1024 * kMib},
                                  {300 * kMib, 1024 * kMib},
                                  {1024 * kMib, 2048 * kMib}}) {
    target.l3_bytes = l3;
    EXPECT_EQ(cold_bytes(target), bytes);
  }
}

// A part each, down to a footprint of less than a line for each of them; the buffer ends with the last part.
TEST(MachineProfile, ATeamReadsAndCopiesAtOnce) {
  TeamOptions options;
  options.threads = 3;
  ThreadTeam team(options);
  MachineProbe probe;
  for (const int64_t bytes : {int64_t{1}, int64_t{4096}, int64_t{100'000}, int64_t{3} << 20}) {
    for (const int slices : {1, 2, 16}) {
      EXPECT_GT(probe.read_gbs(bytes, &team, 3, slices), 0) << bytes << " in " << slices;
      EXPECT_GT(probe.copy_gbs(bytes, &team, 3, slices), 0) << bytes << " in " << slices;
    }
  }
}

TEST(MachineProfile, TextBothWays) {
  MachineProfile p;
  p.values = {{"fma_avx2", 118.2}, {"read_memory", 30.5}};
  const ir::Result<MachineProfile> back = parse_profile(to_text(p));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->values, p.values);
  EXPECT_EQ(back->get("read_memory"), 30.5);
  EXPECT_EQ(back->get("nothing"), 0);
  for (const char* bad : {"x", "x y", "x 1 2", "x -1", " 1", "x nan", "x 1e300"})
    EXPECT_FALSE(parse_profile(bad).ok()) << bad;
}

}  // namespace
}  // namespace lathe::runtime
