// The maker of one leaf group, as four files see it: leaf_form.cc decides whether the statements are in leaf form and
// collects what they touch, leaf_loops.cc looks at their loops, leaf_build.cc writes the canonical Kernel of each
// variant, leaf_streams.cc what it prefetches. Private to them; one object makes one group.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/analysis/analysis.h"
#include "search/cut/leaf_form.h"

namespace lathe::search {

inline constexpr int kMaxVariants = 32;

// A sum as signed addends; the constant is folded.
struct Addends {
  std::vector<ir::Expr> terms;  // with their factors
  int64_t constant = 0;
};
// An index of the nest, as a value of a leaf.
bool is_index(const ir::Expr& value);
void flatten_addends(const ir::Expr& e, int64_t factor, Addends& out);
ir::Expr sum_addends(const std::vector<ir::Expr>& terms, int64_t constant);

// One operand slot while it is being collected.
struct LeafSlot {
  int buffer = -1;              // index into kernel.buffers
  std::vector<ir::Expr> outer;  // per physical dimension
  std::vector<bool> indexed;    // per physical dimension: some access uses leaf iterators or constants there
  bool written = false;
  std::vector<const ir::Stmt*> loops;  // innermost loops that use it
};

// f with the ranges inside the scope; they come back as they were.
template <class F>
auto inside_scope(ir::Ranges& ranges, const ir::Stmt& scope, F&& f) {
  if (ranges.find(scope.iter)) {
    ir::Ranges inner = ranges;
    inner.enter(scope);
    return f(inner);
  }
  ranges.enter(scope);
  auto out = f(ranges);
  ranges.leave();
  return out;
}

// What slot_of() made of an access of a statement.
struct LeafAccess {
  int slot = -1;
  std::vector<ir::Expr> inner;  // per physical dimension; null: none
};

// One access through a slot: the scopes of the leaf around it.
struct LeafUse {
  int slot = -1;
  bool write = false;
  std::vector<const ir::Stmt*> scopes;
};

// What chooses among the leaves of a call: an unrolled scope's extent, or the columns of a tile that vectors walk.
struct LeafVariant {
  struct Range {
    int64_t lo, hi;
    bool operator<(const Range& o) const { return lo != o.lo ? lo < o.lo : hi < o.hi; }
  };
  ir::NestCall::Variant of;
  int64_t lanes = 0;  // of a vector that walks the columns; 0: an unrolled scope
  int64_t rest = -1;  // of constant columns, those of the last tile: the others are whole; -1: any value
  bool takes(int64_t value) const { return rest < 0 || value == of.count || value == rest; }
  Range leaf_of(int64_t value) const;            // the values that share a leaf with this one
  bool is_extent(const ir::Expr& extent) const;  // of a scope that ends with these values
};

// An extent slot: what it holds, and what that is known to be a multiple of, as far as it leaves out code.
struct LeafExtent {
  ir::Expr value;
  int64_t multiple_of = 1;
};

class LeafBuilder {
 public:
  LeafBuilder(const ir::Kernel& kernel, const std::vector<const ir::Stmt*>& outer);
  ir::Result<LeafGroup> run(const ir::Stmt* first, const ir::Stmt* last);

 private:
  bool is_inside(const std::string& name) const;
  bool outside_only(const ir::Expr& e) const;
  // leaf_loops.cc
  ir::Status check_loops(std::span<const ir::Stmt> body, int depth, std::vector<const ir::Stmt*>& around, bool alone);
  ir::Status check_tile_loop(const ir::Stmt& sum, const std::vector<const ir::Stmt*>& around, bool alone) const;
  static bool only_vectors_below(const ir::Stmt& s);
  ir::Status find_variants(std::vector<ir::Stmt>& body, ir::Ranges& ranges, bool in_tile);
  void add_variant(const ir::Expr& extent, int64_t count, int64_t lanes);
  void drop_columns(std::vector<ir::Stmt>& body);
  int64_t count_leaves() const;
  std::vector<ir::Expr> physical_index(const ir::Buffer& b, const std::vector<ir::Expr>& index,
                                       const ir::Ranges& ranges) const;
  ir::Status split(const ir::Expr& e, ir::Expr& inner, ir::Expr& outer) const;
  bool serves(const LeafSlot& slot, const std::vector<ir::Expr>& outer, std::vector<ir::Expr>& inner) const;
  ir::Result<const LeafAccess*> slot_of(const std::string& name, const std::vector<ir::Expr>& index,
                                        const ir::Ranges& ranges);
  ir::Status collect_access(const std::string& name, const std::vector<ir::Expr>& index, const ir::Ranges& ranges,
                            bool write, const std::vector<const ir::Stmt*>& scopes);
  ir::Status collect_loads(const ir::Expr& e, const ir::Ranges& ranges, const std::vector<const ir::Stmt*>& scopes);
  ir::Status collect_slots(const std::vector<ir::Stmt>& body, ir::Ranges& ranges, std::vector<const ir::Stmt*>& scopes);
  ir::Status collect_all(const std::vector<ir::Stmt>& group);
  bool reads_old_value(const LeafUse& write) const;
  ir::Status order_slots();
  ir::NestOperand operand(const LeafSlot& slot) const;

  // Building one variant: leaf_build.cc.
  size_t extent_number(const ir::Expr& value);
  ir::Expr slot_for_extent(const ir::Expr& value);
  ir::Expr slot_for_side(const ir::Expr& value);
  ir::Expr rename(const ir::Expr& e) const;
  ir::Result<ir::Expr> leaf_extent(const ir::Expr& e);
  bool split_mask(const ir::Stmt& vector, const std::string& i, const ir::Ranges& ranges, ir::Expr& r,
                  int64_t& v) const;
  bool masks_vectors(const ir::Stmt& loop, const ir::Ranges& ranges);
  ir::Result<ir::Expr> vector_extent(const ir::Stmt& s, const ir::Stmt* parent, const ir::Ranges& ranges,
                                     const std::vector<LeafVariant::Range>& values);
  ir::Expr variant_extent(size_t v, int64_t value) const;
  ir::Result<ir::Expr> leaf_value(const ir::Expr& e, const ir::Ranges& ranges);
  ir::Result<ir::Expr> leaf_choice(const ir::Expr& e, const ir::Ranges& ranges);
  ir::Result<ir::Expr> leaf_index(const ir::Expr& e, const ir::Ranges& ranges);
  ir::Result<std::string> leaf_access(const std::string& name, const std::vector<ir::Expr>& index,
                                      const ir::Ranges& ranges, std::vector<ir::Expr>& out);
  ir::Result<std::vector<ir::Stmt>> build_body(const std::vector<ir::Stmt>& body,
                                               const std::vector<LeafVariant::Range>& values, ir::Ranges& ranges,
                                               const ir::Stmt* parent);
  ir::Status build_scope(const ir::Stmt& s, const std::vector<LeafVariant::Range>& values, const ir::Ranges& inner,
                         const ir::Stmt* parent, ir::Stmt& t);
  // leaf_streams.cc
  struct Block;
  ir::Result<Block> next_block(const std::string& buffer, size_t scope) const;
  static ir::Expr most(const ir::Expr& extent, const ir::Ranges& ranges);
  ir::Expr shares_before(const ir::Stmt& s, const std::string& tensor, const ir::Stmt& around) const;
  ir::Status add_block(const ir::Stmt& s, const ir::Expr& turns, size_t scope, const std::string& tensor);
  ir::Result<int> operand_read_by(const ir::Stmt& loop, const std::string& buffer) const;
  ir::Status add_share(const ir::Stmt& s, int operand);
  ir::Status add_loop_stream(const ir::Stmt& s, ir::Stmt& leaf);
  // Bytes that a step of a tensor scope moves what it reads of a buffer by; null: it does not read it along its steps.
  ir::Expr step_bytes(const std::string& buffer, const ir::Stmt& tensor, const ir::Ranges& ranges) const;
  // Steps read rows that lie at least a page apart: each step prefetches of its own row.
  bool follows_rows(const ir::Stmt& prefetch, const ir::Stmt& tensor, const ir::Ranges& ranges) const;
  ir::Status add_stream(const ir::Stmt& s, const ir::Stmt& tensor, const ir::Ranges& ranges, ir::Stmt& leaf);
  ir::Result<ir::Leaf> build(const std::vector<ir::Stmt>& group, const std::vector<LeafVariant::Range>& values);
  bool reaches_past_end(const ir::Buffer& b, size_t d) const;
  bool has_room_past_end(const ir::Buffer& b, size_t d) const;
  static bool is_baked(const ir::Buffer& b, const ir::Expr& stride);
  ir::Buffer leaf_operand(const LeafSlot& slot, int number) const;
  ir::Status add_registers(ir::Kernel& k, const std::vector<LeafVariant::Range>& values);
  bool dim_is_variant(size_t reg, size_t dim, size_t v);

  const ir::Kernel& kernel_;
  const std::vector<const ir::Stmt*>& outer_;  // the scopes around the group
  ir::Ranges ranges_;
  std::vector<std::string> inside_;   // iterators of the group
  uint64_t holds_inside_ = 0;         // bits of an expression that holds one
  std::vector<std::string> written_;  // buffers it writes
  bool near_ = false;                 // one slot serves accesses to such a buffer at constant distances
  std::vector<LeafVariant> variants_;
  std::vector<LeafSlot> slots_;
  std::vector<LeafUse> uses_;     // in the order of the statements
  const ir::Stmt* at_ = nullptr;  // the statement whose accesses are looked at
  std::map<std::pair<const ir::Stmt*, const void*>, LeafAccess> accesses_;  // by statement and index
  std::vector<LeafExtent> extents_;
  std::vector<ir::NestStream> streams_;
  bool copies_ = false;                  // inside a tensor scope that sums nothing
  std::vector<const ir::Stmt*> around_;  // scopes of the leaf around what is built
  ir::Expr tensor_steps_;
  bool building_streams_ = false;
  ir::Expr masked_by_;
  int64_t masked_width_ = 0;
  std::vector<std::pair<std::string, std::string>> iter_names_;
  // What all variants have in common, of the first one that was built.
  std::map<const ir::Stmt*, ir::Stmt> statements_;
  std::vector<std::string> regs_;
  std::map<std::array<size_t, 3>, bool> variant_dims_;  // by register, dimension and variant
  std::vector<ir::Buffer> operands_;
};

}  // namespace lathe::search
