// Index arithmetic of the lowering: what an index expression is once unrolled iterators are
// numbers, and what an access is once the strides of its operand are known. Nothing here emits.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "ir/leaf_abi.h"
#include "jit/leaf_program.h"

namespace lathe::jit {

struct LoopContext;

// What an iterator in scope stands for: a number, a number of iterations of a loop plus `value`, or
// `value` plus the lane.
struct Binding {
  enum class Kind : uint8_t { number, loop, lane };
  std::string iter;
  Kind kind = Kind::number;
  int64_t value = 0;
  int64_t count = 0;  // number: extent of its scope; lane: lanes in use at most
  LoopContext* loop = nullptr;
};
using Environment = std::vector<Binding>;
const Binding* find_binding(const Environment& env, const std::string& iter);

// constant + sum of loops' iterations + sum of symbols + lane_coeff * lane.
struct Affine {
  int64_t constant = 0;
  int64_t lane = 0;
  std::map<const LoopContext*, int64_t> loops;
  std::map<std::string, int64_t> symbols;
  bool is_constant() const { return lane == 0 && loops.empty() && symbols.empty(); }
};
// Null if e is not affine in its iterators (// and % are resolved where the divisor separates the
// terms).
std::optional<Affine> affine(const ir::Expr& e, const Environment& env);
std::optional<int64_t> constant_value(const ir::Expr& e, const Environment& env);

// bytes + sum over strides (slot * kMaxLeafStrides + dim) of a multiple.
struct Linear {
  int64_t bytes = 0;
  std::map<int, int64_t> strides;
  bool zero() const { return bytes == 0 && strides.empty(); }
  void add(const Linear& other, int64_t times);
  bool operator==(const Linear&) const = default;
};

// Where an operand is accessed: base + per iteration of each loop + lane bytes.
struct Access {
  int slot = -1;
  Linear base;
  std::map<const LoopContext*, Linear> loops;
  Linear lane;
  bool uniform() const { return lane.zero(); }
  bool unit() const { return lane.bytes == 4 && lane.strides.empty(); }
  bool operator==(const Access&) const = default;
};
// Null if an index is not affine or names a symbol.
std::optional<Access> access(const ir::Buffer& buffer, int slot, const std::vector<ir::Expr>& index,
                             const Environment& env);

// One bound on the lanes of a vector scope beyond its constant one: lane < extent + add - var (var
// may be null).
struct LaneBound {
  Extent extent;
  const LoopContext* loop = nullptr;
  bool holds(int64_t lane) const;  // known where the loop runs full
};
// The extent of a vector scope (or of a transpose's sides): at most `max` lanes and within every
// bound. max < 0: unbounded.
struct VectorExtent {
  int64_t max = -1;
  std::vector<LaneBound> bounds;
};
std::optional<VectorExtent> vector_extent(const ir::Expr& e, const Environment& env,
                                          const ir::Kernel& leaf);
// "e3" -> 3, "seglen" -> kSegLen; null for other names.
std::optional<int> extent_slot(const std::string& symbol);
// symbol + constant, or a constant.
std::optional<Extent> plain_extent(const ir::Expr& e, const Environment& env);

}  // namespace lathe::jit
