// The matmul recipe: register tiles under panels of B, panel-outer.
//
//   [compute operands] [pack A]
//   [row block] n0 panels { [k0 block] { m0 tile { c = 0 | k: c += a * b (tensor) | y = epilogue(c) } } }
//
// B that lies row-major may be walked in blocks of K under a block of columns, so that its rows are read along:
//   n outer { k0 block { n0 panels { m0 tile { .. } } } }
// B constant: packed once in panels. B with unit-stride k (transposed): each panel is transposed into scratch. The few
// columns beyond whole vectors, or the only ones, may be summed along K instead (search/sketches/matmul_dots.h). Where
// the caller allows bf16_dots, products of bf16 are two a step, of panels that hold pairs; those of bytes are four a
// step (matmul_tiles.cc).
#pragma once
#include <functional>

#include "search/sketches/matmul_dots.h"
#include "search/sketches/matmul_model.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

// Products of a step: of bf16 two where the caller and the target allow it, of an unsigned and a signed byte four. They
// are those of a constant's panels, which can hold them together; 1: there is nothing of the kind.
int64_t matmul_step(const MatmulParts& parts, const Problem& problem, const ir::Target& target);
bool matmul_of_integers(const MatmulParts& parts, const ir::Kernel& kernel);

// The columns of a tile: panels and vectors unrolled.
void vectorize_tile(Script& s, const std::string& n, int64_t nr, int64_t panels, int64_t lanes, const char* tail);

class MatmulSketch {
 public:
  enum : int64_t { kSingle = 0, kSteps = 1, kTiles = 2 };                       // values of `dots`
  enum : int64_t { kCopyPanel = 1, kCopyFirst = 2 };                            // values of `copy_panels`
  static constexpr int64_t kTileRows = 32, kTileColumns = 32, kTileLanes = 16;  // four tiles of sums, a step of K
  int64_t tile_depth() const { return kTileLanes * step_; }
  static constexpr int64_t kMaxOwnStream = 64;  // rows up to which B's own stream is prefetched
  static constexpr int64_t kDeepest = 8192;     // K beyond which a panel leaves the caches before the next rows need it
  static constexpr int64_t kMostParts = 64;
  // Bytes that rows which are summed along K are prefetched ahead; the fewer for a single row of narrow elements.
  static constexpr int64_t kRowsAhead = 2048, kNarrowAhead = 1024;
  struct Setting {
    int64_t tile_rows = 0, panel_columns = 0, streams = 1, depth_block = 0, row_block = 0, pack_rows = 0, prefetch = 0,
            function_pass = 0, join_tiles = 0, copy_panels = 0, share_heads = 0, depth_sums = 0, dots = 0,
            column_block = 0, depth_parts = 1, row_lanes = 0;
    bool operator==(const Setting&) const = default;
    int64_t tile_columns() const { return panel_columns * streams; }
    bool blocked() const { return depth_block != 0 || function_pass != 0; }  // sums pass through scratch
    // An outer block of rows is whole tiles; 0: there is none.
    int64_t block_rows() const { return (row_block + tile_rows - 1) / tile_rows * tile_rows; }
  };
  MatmulSketch(const Problem& problem, const ir::Target& target);

  static bool matches(const Problem& problem);
  static const std::vector<KnobRow<MatmulSketch>>& table();
  ir::Status accepts(const Setting& k) const;
  std::optional<Setting> standard() const;
  std::vector<Setting> simpler(const Setting& standard) const;
  ir::Status write(Script& s, const Setting& k) const;
  double estimate(const Setting& k) const;
  Structure structure(const Setting& k, const ProblemFacts& facts) const;

 private:
  // The last tile's columns, if they are no whole tile: what its leaves take of vectors and of masks, which are vectors
  // where there are no mask registers.
  struct Tail {
    int64_t vectors = 0, masks = 0;
  };
  bool packed() const { return panels_ == Panels::packed; }
  bool in_place() const { return panels_ == Panels::in_place; }
  bool rows_apart() const;              // those of a B that lies row-major, by a page at least
  int64_t columns_of_a_thread() const;  // in whole panels, 0: too few
  bool shares_panels() const;           // of experts: matmul_parts.h
  bool functions() const { return epilogue_ >= kFunctionRegisters; }
  bool may_join() const;
  bool sums_along_depth(const Setting& k) const { return k.depth_sums != 0 && dots_.columns != 0; }
  // matmul_tiles.cc
  ir::Status accepts_step(const Setting& k) const;
  int64_t step_registers() const;
  void write_operand_sums(Script& s) const;
  ir::Status accepts_tiles(const Setting& k) const;
  bool has_tiles() const;
  MatmulCycles tile_cycles(const MatmulWork& w) const;
  void each_tile_setting(const std::function<void(const Setting&)>& visit) const;
  ir::Status accepts_columns(const Setting& k) const;
  Setting next_blocks(const Setting& best) const;
  // Rows of B that a core whose prefetcher follows them reads along together; bytes from one to that of the next block.
  static constexpr int64_t kDepthAlone = 8;
  int64_t next_rows() const { return kDepthAlone * n_ * b_bytes_; }
  // Parts of K: the names of what split_depth() makes, and what is decided of them (matmul_script.cc).
  static constexpr const char *kPartScope = "ks", *kPartRows = "mp", *kPartColumns = "np", *kPartDepth = "kd",
                              *kPartSums = "cp";
  // The scope of K in which a panel is copied.
  static constexpr const char* kCopyScope = "bp_0";
  std::vector<int64_t> parts_worth_trying() const;
  ir::Status accepts_parts(const Setting& k) const;
  // Of K that is summed in one go: all of it, or a part.
  int64_t part_depth(const Setting& k) const {
    return k.depth_parts > 1 ? matmul_block_depth((k_ + k.depth_parts - 1) / k.depth_parts, k_) : k_;
  }
  double joining_cycles(const Setting& k) const;
  void split_depth(Script& s, const Setting& k) const;
  // matmul_lanes.cc
  bool has_row_lanes() const;
  bool row_lanes_pay() const;
  ir::Status accepts_row_lanes(const Setting& k) const;
  MatmulWork row_lanes_work(const Setting& k) const;
  MatmulCycles row_lanes_cycles(const MatmulWork& w) const;
  Setting standard_row_lanes() const;
  void write_row_lanes(Script& s, const Setting& k) const;
  MatmulCycles cycles(const MatmulWork& work, const Setting& k) const;
  bool only_dots(const Setting& k) const { return sums_along_depth(k) && dots_.whole == 0; }
  // Columns of the panels.
  ir::Expr columns(const Setting& k) const { return sums_along_depth(k) ? ir::Expr(dots_.whole) : p_.n->extent; }
  int64_t n(const Setting& k) const { return sums_along_depth(k) ? dots_.whole : n_; }
  int64_t vectors(const Setting& k) const { return (k.tile_columns() + t_.lanes - 1) / t_.lanes; }
  Tail last_tile(const Setting& k) const;
  ir::Status is_setting(const Setting& k) const;
  ir::Status accepts_only_dots(const Setting& k) const;
  double imbalance(const Setting& k) const;
  bool loops_in_leaf(const Setting& k) const;
  int64_t code_of(const Setting& k) const;
  // What the model is asked for a setting: of the panels, and of the columns that are summed along K.
  MatmulWork work(const Setting& k, int64_t block_rows) const;
  double depth_sum_cycles(const Setting& k) const;
  int64_t lines_of_block(const Setting& k) const;
  void write_panels(Script& s, const Setting& k, const char* at, const char* tail) const;
  void write_tile(Script& s, const Setting& k, const char* tail) const;
  void write_whole_tile(Script& s, const Setting& k) const;
  void write_blocked_tile(Script& s, const Setting& k, const std::string& steps, const char* tail) const;
  void copy_with_first(Script& s, const std::string& steps, const char* tail) const;
  void gather_sums(Script& s, const Setting& k) const;
  void write_sums(Script& s, const Setting& k, const char* at, const std::string& steps, const char* tail) const;

  const Problem& problem_;
  const ir::Target& t_;
  const MatmulParts p_;
  const Panels panels_;
  const int64_t m_, n_, k_, m_max_;
  const bool rows_pack_;
  const int64_t epilogue_;                       // registers
  const int64_t function_bytes_;                 // of one vector of sums
  const int64_t a_bytes_, b_bytes_, row_bytes_;  // of elements, and between rows of A
  const std::vector<int64_t> widths_;
  const Dots dots_;
  const int64_t step_;   // products that may be one step
  const bool integers_;  // of bytes, whose sums are i32
  const bool tiles_;     // products of a tile may be one instruction
};

}  // namespace lathe::search
