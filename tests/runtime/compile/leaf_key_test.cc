// What a leaf's key says of the target: the name of its row, as stores have it, and those features beside it that make
// the leaf's code another.
#include <gtest/gtest.h>

#include "ir/core/text_form.h"
#include "jit/lower/lower.h"
#include "runtime/compile/leaf_cache.h"
#include "runtime/store/key.h"
#include "search/cut/cut.h"
#include "tests/common/machines.h"

namespace lathe::runtime {
namespace {

ir::CutKernel cut_of(const std::string& from, const std::string& to, const std::string& value) {
  const std::string text = "kernel k(x: " + from + "[64] in, y: " + to +
                           "[64] out) family elementwise\n  for i < 64 [i]:\n    y[i] = " + value + "\n";
  return search::cut(ir::parse_kernel(text).value()).value();
}

std::string key_of(const ir::CutKernel& cut, const ir::Target& target) {
  LeafCache cache({}, nullptr, nullptr);
  LeafPolicy policy;
  policy.forced = true;
  policy.backend = jit::Backend::portable;
  return cache.get(cut.leaves[0], target, policy).value()->key;
}

std::string key_with(const ir::CutKernel& cut, const std::string& isa) {
  LeafFields fields;
  fields.text = cut.leaves[0].text;
  fields.backend = "portable";
  fields.isa = isa;
  fields.lanes = 16;
  fields.vector_registers = 32;
  return leaf_key(fields).hash;
}

const ir::Target& zen5() { return test::find_machine("zen5")->target; }
const ir::Target& without(const std::string& feature) { return test::find_machine("zen5-" + feature)->target; }

TEST(LeafKey, features_that_change_no_code_are_not_in_it) {
  for (const ir::CutKernel& cut : {cut_of("f32", "f32", "x[i] + x[i]"), cut_of("bf16", "bf16", "x[i]"),
                                   cut_of("bf16", "f32", "f32(x[i])"), cut_of("f32", "f16", "f16(x[i])")}) {
    SCOPED_TRACE(cut.leaves[0].text);
    EXPECT_EQ(key_of(cut, zen5()), key_with(cut, "avx512")) << "as stores have it";
    EXPECT_EQ(key_of(cut, without("avx512bf16")), key_with(cut, "avx512"));
    EXPECT_EQ(key_of(cut, without("avx512vnni")), key_with(cut, "avx512"));
  }
}

TEST(LeafKey, rounding_to_bf16_is_other_code_with_avx512_bf16) {
  const ir::CutKernel cut = cut_of("f32", "bf16", "bf16(x[i])");
  EXPECT_EQ(jit::code_features(cut.leaves[0].kernel, zen5()), uint64_t{ir::kCpu_avx512bf16});
  EXPECT_EQ(key_of(cut, zen5()), key_with(cut, "avx512 avx512bf16"));
  EXPECT_EQ(key_of(cut, without("avx512bf16")), key_with(cut, "avx512"));
  EXPECT_EQ(key_of(cut, without("avx512vnni")), key_of(cut, zen5()));
  EXPECT_EQ(key_of(cut, zen5().cap(ir::IsaLevel::avx2)), key_of(cut, without("avx512bw")));
}

// With either VNNI a leaf marked with the instruction is other code than without; a program may use what its key names
// and nothing else.
TEST(LeafKey, dot_products_of_bytes_are_other_code_with_vnni) {
  ir::Kernel leaf = cut_of("f32", "f32", "x[i] + x[i]").leaves[0].kernel;
  EXPECT_EQ(jit::lower_leaf(leaf, zen5())->extra, 0u);
  leaf.body[0].mark = ir::Mark::tensor;
  leaf.body[0].intrinsic = "dot4_u8s8";
  EXPECT_EQ(jit::code_features(leaf, zen5()), uint64_t{ir::kCpu_avx512vnni});
  EXPECT_EQ(jit::code_features(leaf, without("avx512vnni")), 0u);
  EXPECT_EQ(jit::code_features(leaf, zen5().cap(ir::IsaLevel::avx2)), uint64_t{ir::kCpu_avx_vnni});
  EXPECT_EQ(jit::code_features(leaf, test::find_machine("laptop")->target), 0u);
  leaf.body[0].intrinsic = "dot2_bf16";
  EXPECT_EQ(jit::code_features(leaf, zen5()), uint64_t{ir::kCpu_avx512bf16});
  EXPECT_EQ(jit::code_features(leaf, zen5().cap(ir::IsaLevel::avx2)), 0u);
  leaf.body[0].intrinsic = "mma";
  EXPECT_EQ(jit::code_features(leaf, zen5()), 0u);
  const ir::CutKernel rounds = cut_of("f32", "bf16", "bf16(x[i])");
  EXPECT_EQ(jit::lower_leaf(rounds.leaves[0].kernel, zen5())->extra, uint64_t{ir::kCpu_avx512bf16});
}

}  // namespace
}  // namespace lathe::runtime
