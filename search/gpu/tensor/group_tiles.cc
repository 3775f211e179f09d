// See group_tiles.h.
#include "search/gpu/tensor/group_tiles.h"

#include <algorithm>

#include "search/gpu/tensor/staged_results.h"
#include "search/gpu/tile_rounds.h"

namespace lathe::search {

namespace {

constexpr int64_t kRows = 64, kColumns = 8;                // of one instruction, and between its numbers of columns
constexpr int64_t kDepth = GroupTile::depth, kPlaces = 2;  // of a step; steps in shared memory
constexpr int64_t kTerms = 16, kMostColumns = 256, kPadding = 8;
constexpr int64_t kMostSwapped = 512, kMostParts = 4;  // rows of a result that are columns, in so many tiles
constexpr int64_t kMostThreads = 1024, kMostThreadRegisters = 232, kMostShared = 227 * 1024;
constexpr int64_t kGroup = 128, kMostGroups = 3, kOfThreeGroups = 152;  // threads; beside others of a role; registers
constexpr int64_t kRing = 8;  // bytes of shared memory that say whether a step is there
constexpr int64_t kLeastStages = 3, kMostStages = 8, kMostBox = 256;
constexpr double kSharedCycle = 128;  // bytes of shared memory in a cycle of a multiprocessor
constexpr double kProducts = 2048;    // in a cycle of its tensor cores
constexpr double kBoxBytes = 7000;    // of the L2 cache, in a cycle of the GPU, that boxes are of
constexpr double kShared = 0.2;       // of what the L2 cache takes, which is not hidden behind anything
constexpr double kBegin = 1000;       // cycles from the end of a block to the first products of the next one
constexpr double kAnswer = 460;       // cycles of a step in which groups wait for boxes and say that they are read
constexpr double kTogether = 15000;   // that blocks of a cluster wait for each other in a tile that others follow
constexpr double kMeet = 100;         // and in the last one

int64_t sums(const GroupTile& t) { return kRows * t.group_columns / 128; }
int64_t result_rows(const GroupTile& t) { return t.swapped ? t.columns : t.rows; }
int64_t result_columns(const GroupTile& t) { return t.swapped ? t.rows : t.columns; }
// Of a block. Where there are roles it has all registers, and warps that multiply get what others leave.
int64_t block_threads(const GroupTile& t) { return t.threads() + (t.roles ? kGroup : 0); }
int64_t most_registers(const GroupTile& t) {
  if (t.roles && t.threads() > 2 * kGroup) return kOfThreeGroups;
  return std::min(kMostThreadRegisters, kRegisters / t.threads());
}
int64_t registers(const GroupTile& t) {
  const int64_t staged = t.stages > 0 ? 0 : (t.rows + t.columns) * kDepth / 2 / t.threads();
  return sums(t) + staged + 48;
}
int64_t places(const GroupTile& t) { return t.stages > 0 ? t.stages : kPlaces; }
int64_t shared_bytes(const GroupTile& t) {
  const auto tail = [](int64_t lines) {
    return 2 * std::max(lines * (kTerms + kPadding), kTerms * (lines + kPadding));
  };
  const int64_t step = 2 * kDepth * (t.rows + t.columns) + (t.roles ? 2 : 1) * kRing;
  return step * places(t) + (t.roles ? 0 : tail(t.rows) + tail(t.columns)) + (t.staged ? staged_bytes(t.threads()) : 0);
}

}  // namespace

ir::Status check_tile(const GroupTile& t) {
  for (const int64_t part : {t.rows, t.columns, t.group_columns}) {
    if (part < 1) return ir::invalid("a tile without elements");
  }
  if (t.rows % kRows != 0) return ir::invalid("{} rows, expected a multiple of {}", t.rows, kRows);
  if (t.group_columns % kColumns != 0 || t.group_columns > kMostColumns)
    return ir::invalid("{} columns of a group, expected a multiple of {}, at most {}", t.group_columns, kColumns,
                       kMostColumns);
  if (t.columns % t.group_columns != 0)
    return ir::invalid("{} columns, which {} of a group do not divide", t.columns, t.group_columns);
  if (t.stages == 0 && t.group_columns % kDepth != 0 && kDepth % t.group_columns != 0)
    return ir::invalid("{} columns of a group, expected lines of {}", t.group_columns, kDepth);
  if (t.raster < 0 || t.raster > kMostRaster)
    return ir::invalid("{} tiles below each other, expected at most {}", t.raster, kMostRaster);
  if (t.stages != 0 && (t.stages < kLeastStages || t.stages > kMostStages))
    return ir::invalid("{} stages, expected none or {}..{}", t.stages, kLeastStages, kMostStages);
  if (t.stages != 0 && (t.rows > kMostBox || t.columns > kMostBox))
    return ir::invalid("boxes of {} rows and {} columns, expected at most {}", t.rows, t.columns, kMostBox);
  if (t.roles && (t.stages == 0 || t.threads() > kMostGroups * kGroup))
    return ir::invalid("roles of {} groups with {} stages, expected at most {}, and boxes", t.threads() / kGroup,
                       t.stages, kMostGroups);
  if (t.staged && t.group_columns % kStagedColumns != 0)
    return ir::invalid("results of {} columns of a group are staged, expected a multiple of {}", t.group_columns,
                       kStagedColumns);
  if (t.pairs == TilePairs::below && t.raster % 2 != 0)
    return ir::invalid("{} tiles below each other, expected whole pairs", t.raster);
  if ((t.swapped || t.terms > 0) && (!t.roles || t.staged))
    return ir::invalid("a swapped tile, or parts of sums, expected roles, and results that are stored as they are");
  LATHE_RETURN_IF_ERROR(check_terms(t, t.stages));
  if (t.pairs != TilePairs::none && !t.roles) return ir::invalid("blocks that share boxes, expected roles in them");
  if (t.persistent && !t.roles) return ir::invalid("blocks that go through several tiles, expected roles in them");
  if (t.threads() > kMostThreads) return ir::invalid("{} threads, expected at most {}", t.threads(), kMostThreads);
  if (registers(t) > most_registers(t))
    return ir::invalid("{} registers of a thread, expected at most {}", registers(t), most_registers(t));
  if (shared_bytes(t) > kMostShared)
    return ir::invalid("{} bytes of shared memory, expected at most {}", shared_bytes(t), kMostShared);
  return {};
}

const std::vector<GroupTile>& group_tiles() {
  static const std::vector<GroupTile> tiles = [] {
    std::vector<GroupTile> out;
    // Of tiles that are as good the first one is the better. With roles they have as many stages as fit beside results.
    for (const GroupTile& t : {GroupTile{128, 256, 256, 4, 0, true},
                               {128, 224, 224, 4, 0, true},
                               {128, 192, 192, 5, 0, true},
                               {192, 128, 128, 4, 0, true},
                               {128, 160, 160, 5, 0, true},
                               {128, 128, 128, 6, 0, true},
                               {128, 96, 96, 7, 0, true},
                               {128, 64, 64, 8, 0, true},
                               {64, 256, 256, 5, 0, true},
                               {64, 128, 128, 4, 0, true},
                               {64, 64, 64, 6, 0, true},
                               {128, 256, 256, 4},
                               {256, 128, 128, 4},
                               {128, 128, 128, 3},
                               {128, 64, 64, 4},
                               {64, 64, 64, 4},
                               {128, 256, 256},
                               {128, 192, 192},
                               {192, 128, 128},
                               {128, 128, 128},
                               {128, 64, 64},
                               {64, 256, 128},
                               {64, 128, 128},
                               {64, 64, 64}}) {
      if (check_tile(t).ok()) out.push_back(t);
    }
    return out;
  }();
  return tiles;
}

std::vector<GroupTile> swapped_tiles(const ProductShape& shape) {
  std::vector<GroupTile> out;
  if (shape.rows > kMostSwapped) return out;
  for (int64_t parts = 1; parts <= kMostParts; ++parts) {
    const int64_t columns = ceil_div(ceil_div(std::max<int64_t>(shape.rows, 1), parts), kColumns) * kColumns;
    if (columns > kMostColumns || (!out.empty() && out.back().columns == columns)) continue;
    for (const int64_t rows : {128, 64}) {
      GroupTile t{rows, columns, columns, kMostStages, 0, true};
      t.swapped = true;
      while (t.stages > kLeastStages && !check_tile(t).ok()) --t.stages;
      if (check_tile(t).ok()) out.push_back(t);
    }
  }
  return out;
}

double group_cycles(const GroupTile& t, const ProductShape& s, const ir::GpuTarget& gpu) {
  const SumParts parts(t, s);
  const int64_t below = t.pairs == TilePairs::below ? 2 : 1, beside = t.pairs == TilePairs::beside ? 2 : 1;
  const auto area = static_cast<double>(t.rows * t.columns), lines = static_cast<double>(t.rows + t.columns);
  // Factors are read by each group; both are stored once.
  const auto groups = static_cast<double>(t.threads()) / 128,
             reads = groups * static_cast<double>(kRows + t.group_columns);
  TileWork work;
  const auto along = [](int64_t size, int64_t tile, int64_t pairs) {
    return ceil_div(std::max<int64_t>(size, 1), tile * pairs) * pairs;
  };
  work.tiles =
      parts.count * s.batch * along(s.rows, result_rows(t), below) * along(s.columns, result_columns(t), beside);
  const int64_t rounds = ceil_div(work.tiles, std::max(gpu.multiprocessors, 1));
  work.steps = ceil_div(parts.depth, kDepth);
  work.threads = block_threads(t);
  // Roles of several groups share out all registers.
  work.registers = t.roles && t.threads() > kGroup ? kRegisters / block_threads(t) : registers(t);
  if (t.roles) work.meeting = 0;
  if (t.stages > 0) work.chain = kAnswer;
  work.shared = shared_bytes(t);
  work.stages = places(t);
  work.step = static_cast<double>(kDepth) * std::max(area / kProducts, (reads + lines) * 2 / kSharedCycle);
  work.rest = area * 2 / 32 * (t.staged ? kStagedRest : t.swapped ? kHalfSectors : 1);
  const double results = t.staged ? area : kHalfSectors * area;
  // A pair reads what both need once.
  const auto read = static_cast<double>(t.rows / beside + t.columns / below);
  const double l2 = static_cast<double>(work.tiles) * (static_cast<double>(parts.depth) * read + results) * 2 /
                    (t.stages > 0 ? kBoxBytes : kL2Bytes);
  // A block that follows another one begins with an empty ring; one that goes on has the first steps of its next tile.
  const double begin = t.roles && !t.persistent ? kBegin * static_cast<double>(rounds - 1) : 0;
  const double together = below * beside > 1 ? kTogether * static_cast<double>(rounds - 1) + kMeet : 0;
  const double busy = busy_cycles(work, gpu);
  return std::max({busy, l2, memory_cycles(s, 2)}) + kWorth * busy + kShared * l2 + begin + together + parts.cycles;
}

// Whether there are tiles for two blocks each way, about as many of them as run at once, and multiprocessors for pairs.
static bool is_worth_pairs(const GroupTile& t, TilePairs pairs, const ProductShape& s, const ir::GpuTarget& gpu) {
  const int64_t rows = ceil_div(s.rows, t.rows), columns = ceil_div(s.columns, t.columns);
  return t.roles && !t.swapped && ir::has_clusters(gpu) && gpu.multiprocessors % 2 == 0 &&
         (pairs == TilePairs::below ? rows : columns) >= 2 && 2 * s.batch * rows * columns > gpu.multiprocessors;
}

std::vector<GroupTile> ranked_group_tiles(const ProductShape& shape, const ir::GpuTarget& gpu) {
  const auto others = [&](GroupTile t) {
    std::vector<GroupTile> out;
    for (const TilePairs pairs : {TilePairs::none, TilePairs::below, TilePairs::beside}) {
      if (pairs != TilePairs::none && !is_worth_pairs(t, pairs, shape, gpu)) continue;
      t.pairs = pairs;
      for (const bool persistent : {false, true}) {
        for (const bool staged : {false, true}) {
          t.persistent = persistent;
          t.staged = staged;
          if ((!persistent || t.roles) && (!staged || (shape.lines && !t.swapped))) out.push_back(t);
        }
      }
    }
    t.pairs = TilePairs::none;
    t.persistent = t.staged = false;
    if (!t.roles) return out;
    const int64_t blocks =
        shape.batch * ceil_div(shape.rows, result_rows(t)) * ceil_div(shape.columns, result_columns(t));
    for (const int64_t terms : shared_terms(blocks, shape, kDepth, gpu)) {
      t.terms = terms;
      out.push_back(t);
    }
    return out;
  };
  std::vector<GroupTile> tiles = group_tiles();
  for (const GroupTile& t : swapped_tiles(shape)) tiles.push_back(t);
  return ranked_at_best(std::move(tiles), others, [&](const GroupTile& t) { return group_cycles(t, shape, gpu); });
}

}  // namespace lathe::search
