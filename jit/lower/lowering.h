// The lowering in progress: one object per lower_leaf() call, its methods split over lower_scan
// (what the statements do), lower_scopes (loops, unrolled and vector scopes, tails), lower_hoist (what loops need not
// repeat), lower_assign
// (statements, reductions, register buffers), lower_expr (values), lower_convert (other types than
// f32), lower_tensor (mma, transpose), lower_dot (dot4_u8s8, decode4_u8, mma_u8s8) and lower_pairs (dot2_bf16). Private
// to them.
#pragma once
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/base/target.h"
#include "ir/core/kernel.h"
#include "jit/lower/lower_emit.h"
#include "jit/lower/lower_index.h"

namespace lathe::jit {

inline bool is_prefetch(const ir::Stmt& s) { return s.kind == ir::Stmt::Kind::prefetch; }

class Lowering {
 public:
  // What is kept in tables goes all at once: memory that frees little before serves best.
  Lowering(const ir::Kernel& leaf, const ir::Target& target, LeafProgram* program, std::pmr::memory_resource* memory)
      : leaf_(leaf), lanes_(target.lanes), memory_(memory), e_(program, memory), ranks_(memory) {
    env_.reserve(12);
    ranks_.reserve(leaf.buffers.size());
    for (const ir::Buffer& b : leaf.buffers) {
      const auto before = [&](const ir::Buffer& o) { return o.name < b.name; };
      ranks_.push_back(static_cast<int>(std::count_if(leaf.buffers.begin(), leaf.buffers.end(), before)));
    }
  }
  ir::Status run();

 private:
  using Body = std::vector<ir::Stmt>;

  // The vector scope being lowered: lanes base .. base + lanes_ - 1 of `iter`.
  struct Lane {
    std::string iter;
    int mask = -1;
    std::string signature;  // of the mask: equal text, equal lanes
  };
  // One element, or one vector of elements, of a reg buffer. In the order of names.
  struct CellKey {
    int rank = -1;  // of the buffer among all names in order
    bool vector = false;
    uint8_t dims = 0;
    std::array<int32_t, 6> index{};
    bool operator<(const CellKey& o) const {
      if (rank != o.rank) return rank < o.rank;
      for (int d = 0; d < dims; ++d) {
        if (index[d] != o.index[d]) return index[d] < o.index[d];
      }
      return vector < o.vector;
    }
    bool operator==(const CellKey&) const = default;
  };
  struct Cell {
    int reg = -1;
    bool home = false;      // reg is this cell's own: updated in place
    std::string signature;  // of the mask it was last written under
  };
  using Cells = std::pmr::map<CellKey, Cell>;
  // What a statement writes: a cell, or memory.
  struct Place {
    const ir::Buffer* buffer = nullptr;
    bool cell = false;
    bool whole = false;  // memory of every lane is the operand's, also where a mask is off
    CellKey key;
    Access access;
    bool uniform() const { return cell ? !key.vector : access.uniform(); }
  };
  // A buffer reduced across lanes by the statements being lowered: partials per cell and unrolled
  // copy.
  struct Reduction {
    std::string buffer;
    ir::AssignOp op;
    int level;
    const Body* list;
    size_t last;  // statement of the list after which partials are combined
    struct Target {
      Place place;
      std::vector<std::pair<std::vector<int64_t>, int>> partials;
    };
    std::vector<Target> targets;
  };

  // A sum that later statements of the vector scope read (ir/analysis/dependence.h): what each lane reads.
  struct RunningSum {
    std::string buffer;
    int lanes = -1;
  };

  int fail(ir::Status status) { return e_.fail(std::move(status)); }

  // lower_scan.cc
  ir::Status check_leaf() const;
  void find_reductions(const Body& body, size_t at);
  bool reduces_only(const ir::Stmt& stmt, const std::string& buffer, ir::AssignOp op, bool* found) const;
  bool lanes_are_regular(const ir::Stmt& scope);
  int slot_of(const std::string& buffer) const;
  int rank_of(int slot) const { return ranks_[static_cast<size_t>(slot)]; }
  size_t likely_size(const Body& list) const;  // instructions, about
  const std::vector<std::pair<std::string, ir::AssignOp>>& candidates(const ir::Stmt& s);

  // lower_scopes.cc
  void body(const Body& list);
  void statement(const ir::Stmt& s);
  bool whole_steps(const Extent& extent, int64_t width) const;
  void loop(const ir::Stmt& s);
  void counted_loop(const ir::Stmt& s);
  int waits_for_memory(const ir::Stmt& s) const;
  void prefetches(const ir::Stmt& scope);
  void prefetch(const ir::Stmt& p, const ir::Stmt& scope);
  struct PrefetchStream {
    int ptr, number, lines, cache;  // that many a step, to this level
  };
  std::pmr::vector<PrefetchStream> open_streams(const ir::Stmt& scope);
  void step_stream(const PrefetchStream& stream);
  void unrolled(const ir::Stmt& s);
  bool reads_what_it_writes(const Body& list) const;
  void vector_scope(const ir::Stmt& s);
  void lane_by_lane(const ir::Stmt& s, const VectorExtent& extent);
  // inside(), under the run-time conditions that put `lane` within the bounds; `list` is what it
  // may write.
  void guarded(const std::vector<LaneBound>& bounds, size_t at, int64_t lane, const Body& list,
               const std::function<void()>& inside);
  int lane_mask(const VectorExtent& extent, int64_t base, std::string* signature);
  // Register buffers that `inside` writes get homes first, and hold their values in them after it.
  Cells open_block(const Body& inside);
  void close_block(const Cells& before);

  // lower_hoist.cc
  bool makes_weights();
  size_t most_hoisted();
  bool stays(const ir::Expr& e, const std::vector<std::string>& loops) const;
  void hoist(const ir::Expr& e, const std::vector<std::string>& loops);
  void hoist(const Body& list, std::vector<std::string>& loops);
  void read_again();
  bool always_runs(const ir::Stmt& s) const;
  void hoist_loop(const ir::Stmt& s, std::vector<std::string>& loops);
  void hoist_loop(const ir::Stmt& s);
  bool hoists(const ir::Stmt& s);

  // lower_assign.cc
  // The access `index` of the kernel itself (not a copy): it is read once.
  struct KnownAccess {
    int slot = -1;
    PlainAccess plain;
  };
  KnownAccess& known_access(const std::string& buffer, const std::vector<ir::Expr>& index);
  std::optional<Place> place(const std::string& buffer, const std::vector<ir::Expr>& index);
  bool lies_within(const ir::Buffer& buffer, const Affine& last) const;
  bool has_room(const ir::Buffer& target, const ir::Expr& index, const std::string& row, int64_t row0);
  void assign(const ir::Stmt& s);
  void reduce_lanes(const ir::Stmt& s, const Place& target);
  void running_sum(RunningSum& r, const ir::Stmt& s, const Place& target);
  void finish_reduction(Reduction& r);
  int read(const Place& p);
  void write(const Place& p, int value);
  // The register that a cell is updated in; -1: it gets another.
  int in_place(const Place& p) const;
  int combine(ir::AssignOp op, int old, const ir::Expr& e, int into = -1);
  int combine_values(ir::AssignOp op, int old, int value);

  // lower_convert.cc
  int as_f32(const ir::Expr& e);
  int as_i32(const ir::Expr& e);
  int integer(const ir::Expr& e);
  int convert(const ir::Expr& cast);
  int index_number(const ir::Expr& e);
  void update_i32(const ir::Stmt& s, const Place& to, LeafOp op);
  void assign_converted(const ir::Stmt& s, Place& to);

  // lower_expr.cc
  int value(const ir::Expr& e);
  int index_value(const ir::Expr& e);
  int condition(const ir::Expr& e);
  int choose(const ir::Expr& c, const ir::Expr& x, const ir::Expr& y);
  std::optional<bool> decided(const ir::Expr& c) const;

  // lower_tensor.cc
  // Rows of intrinsics.def.
  void tensor(const ir::Stmt& s);
  void mma(const ir::Stmt& s);
  int pointer_in_loops(const ir::Stmt& s, const ir::Expr& load);
  bool in_loop() const;
  void transpose(const ir::Stmt& s);
  void dot4_u8s8(const ir::Stmt& s);   // lower_dot.cc
  void decode4_u8(const ir::Stmt& s);  // lower_dot.cc
  void mma_u8s8(const ir::Stmt& s);
  void dot2_bf16(const ir::Stmt& s);        // lower_pairs.cc
  void transpose_pairs(const ir::Stmt& s);  // lower_pairs.cc
  void transpose_line(const ir::Stmt& copy, const ir::Stmt& one, const ir::Stmt& run);
  void transpose_tile(const ir::Stmt& assign, const std::string& row, const std::string& col, const VectorExtent& rows,
                      const VectorExtent& cols, int64_t row0, int64_t col0);

  // lower_dot.cc
  struct Bytes {
    int reg = 0;            // four in each lane
    uint32_t most = 0;      // of each
    bool negative = false;  // signed bytes
    bool rough = false;     // bits that numbers up to `most` do not have are anything
  };
  void add_bytes(const ir::Stmt& s);
  void store_bytes(const ir::Stmt& s);
  std::optional<Access> one_lane(const std::string& name, const std::vector<ir::Expr>& index, int64_t parts);
  std::optional<int64_t> same_number(const ir::Expr& e);
  std::optional<bool> same_choice(const ir::Expr& c);
  std::optional<Bytes> moved_bits(const ir::Expr& e, std::optional<int64_t> left);
  Bytes bytes(const ir::Expr& e, bool rough);
  static bool sums_bytes(const Body& list);
  bool comes_ahead(const Body& list) const;
  template <class F>
  auto at_part(int64_t part, F&& f);

  // lower_tiles.cc
  void tile_bf16(const ir::Stmt& s);
  void tile_u8s8(const ir::Stmt& s);
  void tile_s8s8(const ir::Stmt& s);
  void tile_u8s8_32(const ir::Stmt& s);
  void tile_product(const ir::Stmt& s, int64_t parts, int lines);
  struct Tiles;
  std::optional<Access> tile_at(const Tiles& t, const ir::Expr* load, int64_t m, int64_t n, int64_t k);
  // before: what comes before operation number `at` of `of`.
  void tile_step(const std::function<void(int at, int of)>& before);
  static bool fills_with_zeros(const ir::Stmt& s);
  bool starts_tiles(const ir::Stmt& fill, const ir::Stmt& next);
  bool fills(const Tiles& t, const ir::Stmt& fill, const Access& sums);

  // lower_pairs.cc
  void mma_in_parts(const ir::Stmt& s, int64_t parts);
  void add_pairs(const ir::Stmt& s);
  int pairs(const ir::Expr& e);
  int half(int pair, bool odd);
  bool pair_rows(const ir::Stmt& copy, const ir::Stmt& row, const ir::Stmt& col, const VectorExtent& cols);

  const ir::Kernel& leaf_;
  const int lanes_;
  std::pmr::memory_resource* const memory_;
  Emitter e_;
  Environment env_;
  std::optional<Lane> lane_;
  std::string part_iter_;         // that tells apart what shares a lane of the dot product around; empty: there is none
  const Tiles* tiles_ = nullptr;  // of the tile product around
  const ir::Stmt* start_of_tiles_ = nullptr;  // zeros before the next one, not made yet
  bool pairs_ = false;                        // its parts are pairs of bf16, not bytes
  bool pair_elements_ = false;                // of the transpose around: an element is two of two bytes
  Cells cells_{memory_};
  std::vector<Reduction> reductions_;
  std::vector<RunningSum> running_;  // of the vector scope being lowered
  std::pmr::vector<int> ranks_;      // of each buffer, among all in order of their names
  // What was found of the kernel's own statements and indices, by their place in it.
  std::pmr::unordered_map<const ir::Expr*, KnownAccess> accesses_{memory_};
  std::pmr::unordered_map<const ir::Stmt*, bool> regular_{memory_};
  std::pmr::unordered_map<const ir::Stmt*, std::vector<std::pair<std::string, ir::AssignOp>>> candidates_{memory_};
  std::vector<std::unique_ptr<ir::Stmt>>
      made_;  // statements that are not the kernel's: the tables above know their places, too
  std::pmr::vector<size_t>* copies_ =
      nullptr;                   // the unrolled scope below adds where its copies begin; null: it is the outermost
  std::optional<bool> weights_;  // makes_weights(), once it was asked
  bool hoists_ = false, only_looks_ = false;  // hoist() found something; it computes nothing
  std::optional<size_t> most_hoisted_;        // most_hoisted(), once it was asked
  std::vector<int> hoisted_;                  // values that hoist() computed
  int streams_ = 0;                           // of prefetches, so far
  std::vector<int> ahead_;                    // operands prefetched from ahead of what loops read, so far
  bool after_mma_ = false;
  int anew_ = -1;  // operand whose whole vectors are loaded for each use; -1: none
};

// lower_sums.cc: sums across lanes that are stored side by side, together.
void batch_sums(LeafProgram& program);
// lower_finish.cc: removes instructions nobody uses, shares pointer and variable numbers, and names
// the program.
void tidy(LeafProgram& program);
std::string program_name(const ir::Kernel& leaf, const ir::Target& target, std::string_view text);

}  // namespace lathe::jit
