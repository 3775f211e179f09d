// Index arithmetic of the lowering: what an index expression is once unrolled iterators are
// numbers, and what an access is once the strides of its operand are known. Nothing here emits.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/core/kernel.h"
#include "ir/leaf_abi.h"
#include "jit/program/leaf_program.h"

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

// A map of at most N entries, kept in key order inside the object. Entries beyond its size are never
// touched: most maps are empty.
template <class K, class V, int N, class Less = std::less<K>>
class FixedMap {
 public:
  struct Entry {
    K first;
    V second;
    bool operator==(const Entry&) const = default;
  };
  static_assert(std::is_trivially_copyable_v<Entry>);
  FixedMap() : size_(0) {}
  FixedMap(const FixedMap& o) : size_(o.size_) { std::copy(o.begin(), o.end(), entries_); }
  FixedMap& operator=(const FixedMap& o) {
    size_ = o.size_;
    std::copy(o.begin(), o.end(), entries_);
    return *this;
  }
  const Entry* begin() const { return entries_; }
  const Entry* end() const { return entries_ + size_; }
  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const V* find(const K& key) const {
    for (const Entry& e : *this) {
      if (!Less()(e.first, key) && !Less()(key, e.first)) return &e.second;
    }
    return nullptr;
  }
  // The value of `key`, made if new; null if that would be one entry too many.
  V* get(const K& key) {
    int at = 0;
    while (at < size_ && Less()(entries_[at].first, key)) ++at;
    if (at < size_ && !Less()(key, entries_[at].first)) return &entries_[at].second;
    if (size_ == N) return nullptr;
    for (int i = size_++; i > at; --i) entries_[i] = entries_[i - 1];
    entries_[at] = {key, V{}};
    return &entries_[at].second;
  }
  template <class F>
  void erase_if(F&& f) {
    size_ = static_cast<int>(std::remove_if(entries_, entries_ + size_, f) - entries_);
  }
  bool operator==(const FixedMap& o) const { return std::equal(begin(), end(), o.begin(), o.end()); }

 private:
  union {
    Entry entries_[N];
  };
  int size_;
};

// Loops around one access, symbols of one extent: more is not a leaf.
inline constexpr int kMaxAffineTerms = 6;
struct NameLess {
  bool operator()(const std::string* a, const std::string* b) const { return *a < *b; }
};

// constant + sum of loops' iterations + sum of symbols + lane_coeff * lane.
struct Affine {
  int64_t constant = 0;
  int64_t lane = 0;
  FixedMap<const LoopContext*, int64_t, kMaxAffineTerms> loops;
  FixedMap<const std::string*, int64_t, kMaxAffineTerms, NameLess> symbols;
  bool is_constant() const { return lane == 0 && loops.empty() && symbols.empty(); }
};
// Null if e is not affine in its iterators (// and % are resolved where the divisor separates the
// terms). The names of its symbols are those in e.
std::optional<Affine> affine(const ir::Expr& e, const Environment& env);
std::optional<int64_t> constant_value(const ir::Expr& e, const Environment& env);

// bytes + multiples of the run-time strides of one operand: stride number operand * kMaxLeafStrides
// + dim.
struct Linear {
  int64_t bytes = 0;
  int first = 0;  // the operand's stride number 0
  std::array<int64_t, ir::kMaxLeafStrides> strides{};
  bool constant() const {
    int64_t any = 0;
    for (const int64_t s : strides) any |= s;
    return any == 0;
  }
  bool zero() const { return bytes == 0 && constant(); }
  bool step(int64_t element) const { return bytes == element && constant(); }
  void add(const Linear& other, int64_t times);
  bool operator==(const Linear& o) const {
    return bytes == o.bytes && strides == o.strides && (first == o.first || constant());
  }
};

// Where an operand is accessed: base + per iteration of each loop + lane bytes.
struct Access {
  int slot = -1;
  int element = 4;  // bytes
  MemType type = MemType::b32;
  Linear base;
  FixedMap<const LoopContext*, Linear, kMaxAffineTerms> loops;
  Linear lane;
  bool uniform() const { return lane.zero(); }
  bool unit() const { return lane.step(element); }
  bool operator==(const Access&) const = default;
};
// As its elements are: their bits, signed bytes as numbers. Halves are converted where the lowering says so.
MemType mem_type(ir::DType type);
inline bool is_half(ir::DType type) { return type == ir::DType::f16 || type == ir::DType::bf16; }
inline MemType half_type(ir::DType type) { return type == ir::DType::f16 ? MemType::f16 : MemType::bf16; }
// Null if an index is not affine or names a symbol.
std::optional<Access> access(const ir::Buffer& buffer, int slot, const std::vector<ir::Expr>& index,
                             const Environment& env);

// Sums of constant multiples of iterators: an index that needs no thought each time it is met.
struct PlainIndex {
  struct Term {
    const std::string* iter = nullptr;
    int64_t coefficient = 0;
    int depth = -1;  // of the iterator in the environment, once met there
  };
  static constexpr size_t kMaxTerms = 4;
  int64_t constant = 0;
  size_t count = 0;
  std::array<Term, kMaxTerms> list;
  std::span<Term> terms() { return {list.data(), count}; }
};
// Null if e is anything else.
std::optional<PlainIndex> plain_index(const ir::Expr& e);

// An access of the leaf, read once: what plain_index() said of each index, and the strides. Always
// asked in environments of one shape: the scopes around it.
struct PlainAccess {
  bool plain = false;  // else: only access() knows
  int element = 4;
  MemType type = MemType::b32;
  std::pmr::vector<PlainIndex> index;
  std::pmr::vector<Linear> units;  // operands: one step of each index
  std::optional<Affine> at(size_t dim, const Environment& env);
  std::optional<Access> access(int slot, const Environment& env);
  // Whether lanes of `iter` are one element, or adjacent ones.
  bool regular(const std::string& iter, bool cell);
};
PlainAccess plain_access(const ir::Buffer& buffer, int slot, const std::vector<ir::Expr>& index,
                         std::pmr::memory_resource* memory);

// One bound on the lanes of a vector scope beyond its constant one: lane < extent + add - var (var
// may be null).
struct LaneBound {
  Extent extent;
  const LoopContext* loop = nullptr;
  int64_t least = 0;               // of extent, as its symbol says
  bool holds(int64_t lane) const;  // known where the loop runs full, or below the least
};
// The extent of a vector scope (or of a transpose's sides): at most `max` lanes and within every
// bound. max < 0: unbounded.
struct VectorExtent {
  int64_t max = -1;
  std::vector<LaneBound> bounds;
};
std::optional<VectorExtent> vector_extent(const ir::Expr& e, const Environment& env, const ir::Kernel& leaf);
// "e3" -> 3, "seglen" -> kSegLen; null for other names.
std::optional<int> extent_slot(const std::string& symbol);
// symbol + constant, or a constant.
std::optional<Extent> plain_extent(const ir::Expr& e, const Environment& env);

}  // namespace lathe::jit
