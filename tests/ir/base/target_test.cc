// Targets are rows of features: what a row has, what is left when features are taken away, and that names and texts
// stay what keys and stores hold.
#include "ir/base/target.h"

#include <gtest/gtest.h>

#include "ir/base/options.h"
#include "ir/base/target_text.h"

namespace lathe::ir {
namespace {

const IsaLevel kLevels[] = {
#define LATHE_TARGET(id, base, features, vectors, bytes, registers, masks) IsaLevel::id,
#define LATHE_TARGET_EXTRA(word, base, feature)
#include "ir/base/targets.def"
};

Target zen5() {
  Target t = bare_target(IsaLevel::avx512);
  t.extra = kCpu_avx512bf16 | kCpu_avx512vnni;
  t.l2_bytes = 12345;
  return t;
}

TEST(Target, rows_keep_their_names_and_registers) {
  struct Want {
    IsaLevel level;
    const char* text;
  };
  for (const Want& w : {Want{IsaLevel::portable, "portable lanes 8 registers 16 masks 0"},
                        Want{IsaLevel::avx2, "avx2 lanes 8 registers 16 masks 0"},
                        Want{IsaLevel::avx512, "avx512 lanes 16 registers 32 masks 7"},
                        Want{IsaLevel::amx, "amx lanes 16 registers 32 masks 7"}}) {
    EXPECT_EQ(bare_target(w.level).to_string(),
              std::string(w.text) + " l1 32768 ways 8 l2 1048576 l3 16777216 cores 1 memory 12 pipes 64 alone 0");
    EXPECT_EQ(bare_target(w.level).level, w.level);
  }
  EXPECT_EQ(static_cast<int>(IsaLevel::amx), 3) << "leaf programs hold the number";
}

TEST(Target, every_row_may_be_asked_for) {
  std::string domain = "host";
  for (const IsaLevel level : kLevels) domain += std::string("|") + isa_name(level);
  EXPECT_EQ(find_option("max_isa")->domain, domain);
}

TEST(Target, a_row_has_what_its_base_has) {
  EXPECT_TRUE(bare_target(IsaLevel::amx).has(IsaLevel::avx2));
  EXPECT_TRUE(bare_target(IsaLevel::avx512).has(kCpu_fma | kCpu_avx512vl));
  EXPECT_FALSE(bare_target(IsaLevel::avx2).has(kCpu_avx512f));
  EXPECT_FALSE(bare_target(IsaLevel::avx512).has(kCpu_avx512bf16)) << "some have it";
  EXPECT_TRUE(zen5().has(kCpu_avx512bf16));
  for (const IsaLevel level : kLevels) {
    EXPECT_TRUE(bare_target(level).has(IsaLevel::portable));
    EXPECT_TRUE(bare_target(level).has(isa_row(level).vectors));
    EXPECT_TRUE(is_vector_bytes(isa_row(level).vector_bytes));
    EXPECT_EQ(parse_isa(isa_name(level)), level);
  }
  EXPECT_FALSE(is_vector_bytes(16));
}

TEST(Target, pipes_and_the_prefetcher_travel) {
  Target t = zen5();
  EXPECT_EQ(t.halves(), 1);
  t.pipe_bytes = 32;
  t.prefetches_alone = true;
  EXPECT_EQ(t.halves(), 2);
  EXPECT_EQ(t.cap(IsaLevel::avx2).halves(), 1) << "a pipe takes a whole vector of 256 bits";
  const Result<Target> back = parse_target(t.to_string());
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->to_string(), t.to_string());
  for (const std::string& wrong : {std::string(" pipes 0 alone 1"), std::string(" pipes 32 alone 2"),
                                   std::string(" pipes 32"), std::string(" alone 1 pipes 32")}) {
    std::string text = t.to_string();
    text.replace(text.find(" pipes"), std::string(" pipes 32 alone 1").size(), wrong);
    EXPECT_EQ(parse_target(text).status().code(), Code::kINVALID) << text;
  }
}

TEST(Target, a_machine_goes_by_the_last_row_it_has) {
  EXPECT_EQ(Target().with(0).level, IsaLevel::portable);
  EXPECT_EQ(Target().with(isa_features(IsaLevel::avx2) | kCpu_avx512f).level, IsaLevel::avx2);
  EXPECT_EQ(Target().with(~uint64_t{0}).level, kLevels[kIsaLevels - 1]);
  const Target plain = zen5().without(kCpu_avx512bf16);
  EXPECT_EQ(plain.level, IsaLevel::avx512);
  EXPECT_EQ(plain.extra, uint64_t{kCpu_avx512vnni});
  EXPECT_EQ(plain.l2_bytes, 12345);
  const Target narrow = zen5().without(kCpu_avx512vl);
  EXPECT_EQ(narrow.level, IsaLevel::avx2);
  EXPECT_EQ(narrow.extra, 0u) << "what comes with AVX-512 goes with it";
  EXPECT_EQ(narrow.vector_bytes(), 32);
  Target with_both = zen5();
  with_both.extra |= kCpu_avx_vnni;
  EXPECT_EQ(with_both.without(kCpu_avx512vl).extra, uint64_t{kCpu_avx_vnni}) << "AVX2 machines have it, too";
  EXPECT_EQ(with_both.cap(IsaLevel::portable).features(), 0u);
}

TEST(Target, a_cap_takes_only_what_the_level_may_not_have) {
  EXPECT_EQ(zen5().cap(IsaLevel::amx).to_string(), zen5().to_string());
  EXPECT_EQ(zen5().cap(IsaLevel::avx512).to_string(), zen5().to_string());
  Target amx = zen5();
  amx.level = IsaLevel::amx;
  EXPECT_EQ(amx.cap(IsaLevel::avx512).to_string(), zen5().to_string());
  EXPECT_EQ(amx.cap(IsaLevel::avx2).level, IsaLevel::avx2);
  EXPECT_EQ(amx.cap(IsaLevel::portable).features(), 0u);
  EXPECT_EQ(bare_target(IsaLevel::avx2).cap(IsaLevel::avx512).level, IsaLevel::avx2);
}

TEST(Target, features_travel_as_words) {
  const std::string text = zen5().to_string();
  EXPECT_TRUE(text.ends_with(" cores 1 memory 12 pipes 64 alone 0 bf16 vnni"));
  const Result<Target> back = parse_target(text);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->features(), zen5().features());
  EXPECT_TRUE(parse_target(bare_target(IsaLevel::avx2).to_string() + " avx_vnni")->has(kCpu_avx_vnni));
  EXPECT_EQ(parse_target(bare_target(IsaLevel::avx2).to_string() + " bf16").status().code(), Code::kINVALID)
      << "AVX2 machines have no AVX512_BF16";
}

}  // namespace
}  // namespace lathe::ir
