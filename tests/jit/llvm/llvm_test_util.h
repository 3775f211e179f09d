// What the LLVM tests share: small programs by hand, loading, and comparison with the portable
// executor.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "jit/host/host_cpu.h"
#include "jit/host/llvm_loader.h"
#include "jit/image/exec_memory.h"
#include "jit/program/backend.h"
#include "jit/program/leaf_program.h"

namespace lathe::jit::llvm_test {

// Skips the test where the plug-in is not part of the build; fails where it is and does not open.
#ifdef LATHE_LLVM_BUILT
#define LATHE_NEEDS_LLVM()
#else
#define LATHE_NEEDS_LLVM() GTEST_SKIP() << "LLVM 19 is not installed: the plug-in is not built"
#endif

struct Shape {
  ir::IsaLevel level;
  int lanes;
  uint64_t extra = 0;  // features beside those of the level
  uint64_t features() const { return ir::isa_features(level) | extra; }
  std::string name() const {
    return fmt::format("{}x{}{}{}", ir::isa_name(level), lanes, extra != 0 ? "_" : "", feature_names(extra));
  }
};
inline const std::vector<Shape>& all_shapes() {
  static const std::vector<Shape> kShapes = {
      {ir::IsaLevel::avx2, 8}, {ir::IsaLevel::avx512, 8}, {ir::IsaLevel::avx512, 16}};
  return kShapes;
}
// The same, and each with the feature that makes dot4_u8s8 one instruction.
inline std::vector<Shape> dot4_shapes() {
  std::vector<Shape> shapes = all_shapes();
  for (const Shape& s : all_shapes()) {
    const uint64_t extras = ir::extras_with(s.features());
    shapes.push_back({s.level, s.lanes, dot4_feature(s.features() | extras)});
  }
  return shapes;
}
// Those that have dot2_bf16.
inline std::vector<Shape> dot2_shapes() {
  return {{ir::IsaLevel::avx512, 8, kCpu_avx512bf16}, {ir::IsaLevel::avx512, 16, kCpu_avx512bf16}};
}
inline std::vector<Shape> shapes_of(LeafOp op) {
  return op == LeafOp::k_dot4_u8s8 ? dot4_shapes() : op == LeafOp::k_dot2_bf16 ? dot2_shapes() : all_shapes();
}
inline bool host_runs(const Shape& s) { return (s.features() & ~host_features()) == 0; }

// An image made callable by the real loader; the calls clear the upper halves afterwards, as the
// walker does.
class Loaded {
 public:
  explicit Loaded(const CodeImage& image) {
    static ExecMemory memory(ExecMode::automatic);
    auto code = memory.load(image);
    EXPECT_TRUE(code.ok()) << code.status().to_string();
    if (code.ok()) entry_ = code->entry;
  }
  __attribute__((target("avx"))) void operator()(const ir::LeafArgs& args) const {
    entry_(&args);
    __builtin_ia32_vzeroupper();
  }

 private:
  ir::LeafFn entry_ = nullptr;
};

inline Node inst(Inst i) {
  Node n;
  n.inst = i;
  return n;
}
inline Inst arith(LeafOp op, int dst, int a = -1, int b = -1, int c = -1, uint32_t imm = 0) {
  Inst i{op, dst, {a, b, c}};
  i.imm = imm;
  return i;
}
inline Inst load(int dst, int ptr, int var = -1, int mask = -1) {
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
inline Inst store(int src, int ptr, int var = -1, int mask = -1) {
  Inst i = load(-1, ptr, var, mask);
  i.op = LeafOp::k_store;
  i.src[0] = src;
  return i;
}
inline LeafProgram empty_program(const Shape& s, const std::string& name, int slots) {
  LeafProgram p;
  p.name = "lathe_test_" + name + "_" + ir::isa_name(s.level);
  p.level = s.level;
  p.extra = s.extra;
  p.lanes = s.lanes;
  p.vector_registers = ir::isa_row(s.level).vector_registers;
  p.mask_registers = ir::isa_row(s.level).mask_registers;
  p.num_vregs = 16;
  p.num_masks = 4;
  p.num_vars = 4;
  p.ptrs.resize(static_cast<size_t>(slots));
  for (int i = 0; i < slots; ++i) p.ptrs[static_cast<size_t>(i)].slot = i;
  return p;
}

// Values where f32 instructions differ if anything does, then random ones, `count` in all.
inline std::vector<float> test_values(std::mt19937& random, size_t count) {
  const float inf = INFINITY, nan = NAN;
  std::vector<float> values = {
      0.0f,       -0.0f,           1.0f,          -1.0f,          0.5f,          -0.5f,          1.5f,
      2.5f,       -2.5f,           inf,           -inf,           nan,           -nan,           1e-40f,
      -1e-40f,    1.17549435e-38f, 3.4028235e38f, -3.4028235e38f, 2147483648.0f, -2147483648.0f, 2147483520.0f,
      8388609.0f, 127.5f,          -149.5f,       400.0f};
  std::uniform_int_distribution<uint32_t> bits;
  std::uniform_real_distribution<float> near(-40.0f, 40.0f);
  while (values.size() < count) {
    values.push_back(near(random));
    const uint32_t b = bits(random);
    float f;
    std::memcpy(&f, &b, 4);
    values.push_back(f);
  }
  std::shuffle(values.begin(), values.end(), random);
  values.resize(count);
  return values;
}

inline uint32_t bits_of(float f) {
  uint32_t b;
  std::memcpy(&b, &f, 4);
  return b;
}
// Equal bits; which NaN an operation on NaNs gives is nobody's promise.
inline bool same(float a, float b) { return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b)); }

// First difference, or -1.
inline int64_t difference(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same(a[i], b[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace lathe::jit::llvm_test
