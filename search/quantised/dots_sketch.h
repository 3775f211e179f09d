// The sketch of products with weights of few bits in integers, as its files see it: recipe_dots.cc has the knobs and
// the default, dots_script.cc the moves, dots_tiles.cc what sums in tiles of the CPU's own are and cost.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "search/quantised/groups.h"
#include "search/quantised/parts.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

class DotsSketch {
 public:
  struct Setting {
    int64_t tile_rows = 1, panel_columns = 0, streams = 1, prefetch = 0, start = 0, parallel = 0, scale = kLeastScale,
            tiles = 0;
    bool operator==(const Setting&) const = default;
  };
  DotsSketch(const Problem& problem, const ir::Target& target)
      : problem_(problem),
        t_(target),
        p_(quantised_parts(problem.kernel)),
        g_(groups_of(p_, ir::Ranges(problem.kernel))),
        m_(rows_of_product(p_, problem)),
        n_(extent_at(p_.n->extent, problem)),
        k_(p_.k->extent->ival),
        bytes_(field_bytes(p_, problem)),
        together_(lie_in_turn(p_, problem.kernel, bytes_.largest, g_.group)) {}

  static bool matches(const Problem& problem) {
    if ((problem.allowed & ir::kQuantisedActivations) == 0 || problem.kernel.family != "quantised") return false;
    const QuantisedParts p = quantised_parts(problem.kernel);
    return p.weight && p.m != nullptr && p.packed && ir::is_const_int(p.k->extent) &&
           groups_of(p, ir::Ranges(problem.kernel)).group > 0;
  }
  static const std::vector<KnobRow<DotsSketch>>& table();
  // A language model's logits bear 64, not 128 (docs/decoder_loop.md). Short groups share 32 anyway.
  std::vector<int64_t> scales() const {
    Setting wide;
    wide.scale = kUsualScale;
    if (g_.group < kLeastScale || widest_scale(wide) == g_.group) return {kLeastScale};
    return {kLeastScale, kUsualScale};
  }
  ir::Status accepts(const Setting& k) const;
  std::optional<Setting> standard() const;
  std::vector<Setting> simpler(const Setting&) const {
    return {{.panel_columns = panel(), .parallel = problem_.threads > 1}};
  }
  ir::Status write(Script& s, const Setting& k) const;
  double estimate(const Setting& k) const;
  Structure structure(const Setting& k, const ProblemFacts& facts) const;

 private:
  static constexpr int64_t kBeside = 4;                       // quads of a loop's step, vectors or groups side by side
  static constexpr int64_t kLeastTurns = 5, kMostTurns = 11;  // sums of groups that take turns
  static constexpr int64_t kScratchRegisters = 6, kWeightRegisters = 2;  // of what is in the making
  static constexpr int64_t kOperationBytes = 8;
  static constexpr int64_t kTileRows = 32;    // of what waits in tiles
  static constexpr const char* kHeld = "kw";  // the bytes of a group's weights
  // Two vectors share what lanes have in common; of short groups, whose sums end often, one leaves registers for those
  // of taller tiles, if products take their pipe so long that loads keep up.
  bool narrow() const { return g_.group < kLeastScale && t_.halves() > 1; }
  int64_t panel() const { return narrow() ? t_.lanes : 2 * t_.lanes; }
  int64_t vectors(const Setting& k) const { return k.panel_columns * k.streams / t_.lanes; }
  // Fields that the bits of a weight come from.
  int64_t byte_fields() const {
    return std::count_if(p_.fields.begin(), p_.fields.end(),
                         [&](const QuantisedField& f) { return ir::uses(g_.weight.byte, f.name); });
  }
  // Activations that may share a scale where their groups are summed before it: so many as the knob says, if they make
  // up the depth.
  int64_t widest_scale(const Setting& k) const {
    int64_t scale = g_.group;
    while (scale < k.scale && k_ % (2 * scale) == 0 && (g_.block > 1 || g_.straight())) scale *= 2;
    return scale;
  }
  // Groups of a block, or of its code, that are some of those which share a scale.
  int64_t of_block(const Setting& k, int64_t groups, bool parts) const {
    return g_.block > 1 && parts ? std::max(groups, widest_scale(k) / g_.group) : groups;
  }
  // Registers of what stays while a loop goes through the groups of a block: its scales, and its minima.
  int64_t block_registers(const Setting& k, bool parts) const {
    const bool loop = of_block(k, g_.block, parts) > of_block(k, g_.unrolled, parts);
    return loop ? vectors(k) * (g_.weight.rest ? 2 : 1) : 0;
  }
  // Of the sums of a tile - integers of a group, floats of those that share a scale, floats of all - so many fit.
  int64_t sums_that_fit(const Setting& k, bool parts) const {
    const int64_t of_block = block_registers(k, parts), v = vectors(k);
    const int64_t weights = kWeightRegisters + (g_.sources - 1) * v + of_block;
    const int64_t products = parts && (of_block > 0 || g_.weight.rest) ? v : 0;
    return (t_.vector_registers - v - std::max(kScratchRegisters, weights) - products) / (k.tile_rows * v);
  }
  // Whether groups that share a scale are summed before it: those sums need registers.
  bool in_parts(const Setting& k) const {
    const int64_t scale = widest_scale(k);
    return scale > g_.group && scale < k_ && sums_that_fit(k, true) >= 2;
  }
  bool sums_fit(const Setting& k) const { return sums_that_fit(k, in_parts(k)) > (in_parts(k) ? 2 : 1); }
  int64_t block(const Setting& k) const { return of_block(k, g_.block, in_parts(k)); }
  int64_t unrolled(const Setting& k) const { return of_block(k, g_.unrolled, in_parts(k)); }
  // Activations that share a scale. Short groups do in pairs that the code tells apart.
  int64_t scale(const Setting& k) const {
    if (in_parts(k)) return widest_scale(k);
    return g_.group < kLeastScale && g_.block > 1 ? kLeastScale : g_.group;
  }
  // Whether the code takes two groups of a part in turns, which hides how long sums take (lower_interleave.cc), or sums
  // of vectors in halves need no turns.
  bool takes_turns(const Setting& k) const {
    const int64_t sums = k.tile_rows * vectors(k), prefetched = problem_.cold ? -1 : 0;
    const bool halves = byte_fields() == 1 && bytes_.of.at(bytes_.largest) * 2 <= static_cast<double>(n_ * k_);
    return halves && in_parts(k) && sums_fit(k) && !g_.weight.rest && sums >= kLeastTurns &&
           (k.prefetch == prefetched || t_.halves() > 1) && sums <= kMostTurns;
  }
  // Groups for each multiplication with a scale of the activations.
  int64_t in_one(const Setting& k) const { return in_parts(k) ? scale(k) / g_.group : 1; }
  // Instructions that bring in the activations' scale, for a group, vector and row.
  double scale_operations(const Setting& k) const { return scale(k) == k_ ? 0 : 1 / static_cast<double>(in_one(k)); }
  // Instructions of a group, for one tile.
  double group_operations(const Setting& k) const {
    const double v = static_cast<double>(vectors(k)), rows = static_cast<double>(k.tile_rows);
    return static_cast<double>(g_.quads()) * v * (g_.unpacking + rows) +
           v * static_cast<double>(operations(g_.weight.factor) + operations(g_.weight.rest)) +
           v * rows * ((g_.weight.rest ? 4 : 3) + scale_operations(k));
  }
  double group_cycles(const Setting& k, int64_t tile_rows) const;
  int64_t code_bytes(const Setting& k) const {
    const double share = g_.straight() ? 1 : static_cast<double>(kBeside) / static_cast<double>(g_.quads());
    const int64_t copies = std::max(unrolled(k), in_one(k));
    return static_cast<int64_t>(group_operations(k) * share) * copies * kOperationBytes;
  }
  void cut_quads(Script& s, const std::string& depth) const;
  void write_products(Script& s, const Setting& k) const;
  // dots_tiles.cc
  bool has_tiles() const;
  bool holds_bytes() const;  // of a group, which tiles read
  bool reads_panels(const Setting& k) const { return k.tiles != 0 && g_.whole_tiles(); }
  ir::Status accepts_tiles(const Setting& k) const;
  std::optional<Setting> standard_tiles() const;
  double tile_cycles(int64_t rows) const;
  void write_held(Script& s) const;
  void write_tile(Script& s, const Setting& k, const std::string& depth) const;
  void prefetch_panels(Script& s, const Setting& k) const;

  const Problem& problem_;
  const ir::Target& t_;
  const QuantisedParts p_;
  const Groups g_;
  const int64_t m_, n_, k_;
  const FieldBytes bytes_;
  const bool together_;  // fields are one packed stream
};

}  // namespace lathe::search
