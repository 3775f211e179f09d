// See attention_tiles.h.
#include "search/gpu/attention/attention_tiles.h"

#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"
#include "search/gpu/attention/attention_schedule.h"
#include "search/gpu/attention/few_keys.h"
#include "search/gpu/tile_rounds.h"
#include "search/gpu/workspace.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kSquare = 16, kGroupRows = 64;
constexpr int kHopper = 90;  // compute capability
constexpr int64_t kMostThreadRegisters = 248;
constexpr int64_t kLeastPart = 64, kMostParts = 1024;  // keys of a part, and parts of a row
constexpr int64_t kLeastOfHeads = 16;                  // of one without tensor cores
constexpr int64_t kManyBlocks = 8;                     // of a multiprocessor, whose keys need no parts
constexpr double kMemoryBytes = 2500;                  // in a cycle of the GPU
constexpr double kLaunch = 2500;                       // from the end of one launch to the work of the next

int64_t registers(const AttentionTile& t, int64_t depth, int64_t columns, bool masked) {
  const int64_t queries = keeps_queries(depth) ? depth / 4 : 8, weights = t.keys / 4 * (t.split ? 3 : 1);
  if (t.groups) return columns / 2 + queries + t.keys / 2 + weights + (masked ? t.keys / 2 : 0) + 24;
  return columns / 2 + queries + t.keys * 3 / 4 + weights + std::min<int64_t>(columns / 4, 32) +
         (masked ? t.keys / 2 : 0) + 40;
}

// What calls have at those sizes.
struct Work {
  double heads = 1, rows = 1, keys = 1;  // keys that a query sees, on average
  bool moves = false;                    // each query begins at a key of its own
  int64_t group = 1;                     // heads that share keys
  int64_t most_keys = 1, called = 1;     // that the Kernel may have, and calls
  double most_rows = 1;                  // of all heads, in any call
  int64_t room = 1;                      // keys for which parts have places
  int64_t depth = 1, columns = 1;
  bool short_room = false;             // for fewer keys than the usual blocks have
  bool masked = false;                 // scores have a mask added to them
  double element = 2;                  // bytes of keys and values
  double sequences = 0, all_rows = 0;  // of unequal lengths; 0: their lengths are equal
  int64_t page = 0;                    // keys of a page; 0: they are in no pages
  // Whether keys may be divided into parts of so many.
  bool parts_fit(int64_t part) const {
    return ceil_div(called, part) <= kMostParts && has_room(most_rows, ceil_div(room, part), columns + 2);
  }
  // Bytes of keys and values that are read once.
  double bytes() const {
    return heads / static_cast<double>(group) * keys * static_cast<double>(depth + columns) * element;
  }
};

Work work_of(const GeneralKernel& general, const AttentionParts& p, const SymbolValues& sizes) {
  const Kernel& kernel = general.kernel;
  const auto at = [&](const Expr& e) {
    return static_cast<double>(std::max<int64_t>(evaluate(e, sizes).value_or(1), 1));
  };
  Work w;
  for (const Stmt* t : p.heads) w.heads *= at(t->extent);
  w.rows = at(p.row->extent);
  if (!p.clear.empty()) {  // as if they were equal
    w.sequences = at(p.heads.front()->extent);
    w.all_rows = at(kernel.find_buffer("q")->dims[0]);
    w.rows = std::ceil(w.all_rows / w.sequences);
  }
  const std::vector<Expr>& powered = kernel.find_buffer(p.powered())->dims;
  w.keys = at(powered.back());
  const auto largest = [&](const Expr& e) { return std::max<int64_t>(evaluate(e, general.most).value_or(1), 1); };
  for (auto d = powered.begin(); d + 1 < powered.end(); ++d) w.most_rows *= static_cast<double>(largest(*d));
  w.room = largest(powered.back());
  if (uses(p.scores->extent, p.row->iter)) w.keys = std::max(w.keys - w.rows / 2, 1.0);
  w.keys = std::min(w.keys, static_cast<double>(most_keys_seen(kernel, p)));
  w.moves = uses(p.scores->body[0].index.back(), p.row->iter);
  w.masked = static_cast<bool>(load_of_mask(kernel, p));
  w.group = heads_of_group(p);
  w.page = page_of(p);
  w.short_room = most_room(kernel, p) < 2 * kSquare;
  w.most_keys = std::min(most_keys_seen(kernel, p), most_room(kernel, p));
  w.called = std::min(w.most_keys, most_keys_seen(kernel, p, general.most));
  w.depth = p.depth->extent->ival;
  w.columns = p.columns->extent->ival;
  w.element = dtype_bytes(kernel.find_buffer("k")->type);
  return w;
}

// Of the launch that puts parts together, and of what goes through memory for it.
double merge_cycles(const Work& w, int64_t parts) {
  constexpr double kLatency = 700;
  constexpr int64_t kAtOnce = 16;  // parts that a thread loads
  if (parts == 1) return 0;
  return kLaunch + static_cast<double>(ceil_div(parts, kAtOnce)) * kLatency +
         2 * w.heads * w.rows * static_cast<double>(parts * (w.columns + 2)) * 4 / kL2Bytes;
}

// Of blocks that find that their sequence has no such tile: each sequence has as many as all rows together.
double idle_cycles(const AttentionTile& t, const Work& w, const GpuTarget& gpu, int64_t busy) {
  constexpr double kBlock = 60;  // of a multiprocessor that runs many
  if (w.sequences == 0) return 0;
  const double heads = w.heads / w.sequences, along = t.heads ? w.all_rows / static_cast<double>(w.group) *
                                                                    static_cast<double>(ceil_div(w.group, t.rows))
                                                              : std::ceil(w.all_rows / static_cast<double>(t.rows));
  const double idle = std::max(w.sequences * heads * along - static_cast<double>(busy), 0.0);
  return idle * kBlock / std::max(gpu.multiprocessors, 1);
}

// Of blocks of few rows, whose keys come from memory. As many as fit run at once, and the next ones when these are
// done. Where they are few, the instructions of a step, one after another, take the time.
struct Step {
  double bytes, instructions, turns;  // of a block; of a warp; of loads to registers, where nothing is copied ahead
};
double waves(const TileWork& work, const Work& w, const Step& step, const GpuTarget& gpu) {
  constexpr double kEach = 3.2, kIssue = 3.3;       // cycles of an instruction of a warp alone; instructions in a cycle
  constexpr double kLatency = 1200, kStart = 2000;  // from a copy to its use; of a block
  constexpr double kHidden = 0.05, kHiddenIssue = 0.2;  // of cycles that are hidden behind memory
  constexpr int64_t kMostBlocks = 32;
  const auto processors = std::max<int64_t>(gpu.multiprocessors, 1);
  const int64_t resident = std::min(resident_blocks(work, gpu), kMostBlocks), each = ceil_div(work.tiles, processors);
  const auto steps = static_cast<double>(work.steps), warps = static_cast<double>(work.threads) / 32;
  const double chain = step.instructions * kEach, ahead = static_cast<double>(work.stages - 1);
  const double alone = ahead == 0 ? step.turns * kLatency + chain : std::max(kLatency / ahead, chain);
  const double all_bytes = static_cast<double>(work.tiles) * steps * step.bytes;
  const double byte_cycles = std::max(w.bytes() / all_bytes / kMemoryBytes, 1 / kL2Bytes);
  const auto wave = [&](int64_t blocks) {
    if (blocks == 0) return 0.0;
    const auto many = static_cast<double>(blocks);
    const double issue = steps * many * warps * step.instructions / kIssue;
    const double latency = kStart + std::max(steps * alone, issue);
    const double memory = many * static_cast<double>(processors) * steps * step.bytes * byte_cycles;
    return std::max(memory, latency) + kHidden * latency + kHiddenIssue * issue + kStart / 2;
  };
  return static_cast<double>(each / resident) * wave(resident) + wave(each % resident);
}

double cycles(const AttentionTile& t, const Work& w, const GpuTarget& gpu) {
  constexpr double kProducts = 1024, kGroupProducts = 2048, kSharedCycle = 128, kIssue = 4;  // in a cycle
  const double element = t.split ? 20 : 12;                                                  // instructions for a score
  const double sums = static_cast<double>(w.columns) * (t.split ? 3 : 1), factors = static_cast<double>(w.depth) + sums;
  const auto keys = static_cast<double>(t.keys), rows = static_cast<double>(t.rows),
             line = static_cast<double>(w.depth + w.columns), warps = rows / kSquare;
  // What makes numbers of bytes.
  constexpr double kMade = 2.5;  // instructions of a thread for each
  const double made = w.element < 2 ? keys * line * kMade / 32 / kIssue : 0;
  // Those who read a block of keys out of shared memory, and what brings it there.
  const double readers = (t.groups ? rows / kGroupRows : warps) + 1;
  const double products = rows * keys * factors / (t.groups ? kGroupProducts : kProducts),
               shared = readers * keys * line * 2 / kSharedCycle;
  const double copied = keys * factors / 128 + keys * line / 256 + keys * line / 8 / rows * 2;  // and multiplied
  const double of_warp = keys / 2 * element + static_cast<double>(w.columns) / 2 + (t.groups ? 0 : copied);
  const auto all_rows = static_cast<int64_t>(w.rows), all_heads = static_cast<int64_t>(w.heads);
  const int64_t all_keys = static_cast<int64_t>(w.keys) + (w.moves && !t.heads ? std::min(t.rows, all_rows) : 0),
                part = t.part > 0 ? std::min(t.part, all_keys) : all_keys, parts = ceil_div(all_keys, part);
  TileWork work;
  work.tiles =
      t.heads ? all_heads / w.group * all_rows * ceil_div(w.group, t.rows) : all_heads * ceil_div(all_rows, t.rows);
  work.tiles *= parts;
  work.steps = ceil_div(part, t.keys);
  work.threads = t.threads();
  work.registers = registers(t, w.depth, w.columns, w.masked);
  work.shared = shared_bytes(t, w.depth, w.columns);
  work.stages = t.stages;
  work.step = std::max({products, shared, warps * of_warp / kIssue + made});
  work.rest = rows * line / 16;
  // Products of a group wait for those before and for what is made of them.
  work.chain = t.groups ? keys * factors / 16 + 400 : line / kSquare * 20 + 400;
  if (t.heads) {
    const double at_once = t.split ? 8 : 16;  // loads of a thread, of keys and then of values
    constexpr double kBeside = 150;           // instructions of a step, of however many keys
    constexpr double kPages = 3.5;            // times as many where each key is looked for in its page
    const double all = of_warp + made * kIssue / warps + kBeside;
    const Step step = {keys * line * w.element, w.page > 0 && t.keys > w.page ? all * kPages : all,
                       2 * std::ceil(keys * line / 16 / static_cast<double>(t.threads()) / at_once)};
    return waves(work, w, step, gpu) + idle_cycles(t, w, gpu, work.tiles) + (t.part > 0 ? merge_cycles(w, parts) : 0);
  }
  const double busy = busy_cycles(work, gpu);
  const double read = static_cast<double>(work.tiles * work.steps) * keys * line * w.element;
  return std::max({busy, w.bytes() / kMemoryBytes, read / kL2Bytes}) + kWorth * busy +
         idle_cycles(t, w, gpu, work.tiles) + (t.part > 0 ? merge_cycles(w, parts) : 0);
}
// Of blocks of 128 threads that do without them, each with all keys of a query of some heads, or with a part of them.
double cycles_of_heads(const Work& w, const HeadsStep& s, int64_t part, const GpuTarget& gpu) {
  constexpr double kPages = 2, kPageTurn = 0.5;  // times as many instructions; turns more, to find a page
  const int64_t keys = std::max<int64_t>(static_cast<int64_t>(w.keys), 1), own = part > 0 ? std::min(part, keys) : keys,
                parts = ceil_div(keys, own);
  TileWork work;
  work.tiles = std::max<int64_t>(static_cast<int64_t>(w.heads * w.rows) / s.rows, 1) * parts;
  work.steps = ceil_div(own, s.keys);
  work.threads = 128;
  work.registers = s.registers;
  work.shared = s.shared;
  const bool paged = w.page > 0;
  const Step step = {static_cast<double>(s.keys * (w.depth + w.columns)) * w.element,
                     s.instructions * (paged && w.page < s.keys ? kPages : 1),
                     static_cast<double>(s.turns) * (paged ? 1 + kPageTurn : 1)};
  return waves(work, w, step, gpu) + merge_cycles(w, parts);
}
// The least of them where queries are tiles, of which each block has but one: what it reads again comes from the L2
// cache.
double cycles_without(const Work& w, const GpuTarget& gpu) {
  constexpr double kProducts = 48;
  constexpr int64_t kMostHeads = 8, kAtOnce = 64, kLeast = 256;  // keys at a time; of a part
  const int64_t rows = std::min(w.group, kMostHeads), keys = std::max<int64_t>(static_cast<int64_t>(w.keys), 1);
  double out = 0;
  // Many queries of unequal sequences need no parts.
  for (int64_t part = w.sequences > 0 ? keys : kLeast; out == 0 || part < 2 * keys; part *= 2) {
    if (part < keys && !w.parts_fit(part)) continue;
    const int64_t own = std::min(part, keys), parts = ceil_div(keys, own);
    TileWork work;
    work.tiles = static_cast<int64_t>(w.heads * w.rows) / rows * parts;
    work.steps = ceil_div(own, kAtOnce);
    work.threads = work.registers = 128;
    work.shared = rows * (w.columns * 64 + kAtOnce * 4);
    work.step = static_cast<double>(rows * kAtOnce * (w.depth + w.columns)) / kProducts;
    work.chain = 400;
    const double busy = busy_cycles(work, gpu);
    const double cycles = merge_cycles(w, parts) + std::max(busy, w.bytes() / kMemoryBytes) + kWorth * busy;
    if (out == 0 || cycles < out) out = cycles;
  }
  return out;
}

// Parts of keys without tensor cores, the best first, and what each takes.
struct RankedParts {
  std::vector<int64_t> parts;
  double least = 0;
};
Result<RankedParts> parts_of_heads(const GeneralKernel& general, const Work& w, const GpuTarget& gpu) {
  RankedParts out;
  std::vector<double> all;
  const auto add = [&](int64_t part) -> Status {
    LATHE_ASSIGN(const HeadsStep step, heads_step(general, part));
    out.parts.push_back(part);
    all.push_back(cycles_of_heads(w, step, part, gpu));
    return {};
  };
  LATHE_RETURN_IF_ERROR(add(0));
  LATHE_ASSIGN(const HeadsStep whole, heads_step(general, 0));
  const bool many = w.heads * w.rows >= static_cast<double>(kManyBlocks * gpu.multiprocessors * whole.rows);
  const int64_t keys = many ? 0 : std::min(static_cast<int64_t>(w.keys), w.called);
  for (int64_t part = kLeastOfHeads; part < keys; part *= 2) {
    if (w.parts_fit(part)) LATHE_RETURN_IF_ERROR(add(part));
  }
  out.least = *std::min_element(all.begin(), all.end());
  out.parts = ranked(std::move(out.parts), all);
  return out;
}

double cycles(const FloatTile& t, const Work& w, const GpuTarget& gpu) {
  constexpr double kProducts = 128;             // in a cycle
  constexpr double kLoop = 0.04;                // instructions of loops, for a product
  constexpr double kSoftmax = 12;               // for a score
  constexpr double kStored = 3;                 // for an element of keys or values
  constexpr int64_t kBeside = 90, kVector = 4;  // registers beside sums and scores of a thread; elements of an access
  constexpr double kWaits = 1.6;                // times as long as instructions take to issue, where two blocks run
  const auto rows = static_cast<double>(t.rows), keys = static_cast<double>(t.keys),
             line = static_cast<double>(w.depth + w.columns);
  const auto all_rows = static_cast<int64_t>(w.rows);
  TileWork work;
  work.tiles = static_cast<int64_t>(w.heads) * ceil_div(all_rows, t.rows);
  work.steps = ceil_div(static_cast<int64_t>(w.keys) + (w.moves ? std::min(t.rows, all_rows) : 0), t.keys);
  work.threads = t.threads;
  work.registers = kBeside + t.rows * (w.columns + t.keys) / t.threads;
  work.shared = shared_bytes(t, w.depth, w.columns);
  // A thread reads so many of its rows, and of its keys or columns, for the products of all of them.
  const auto with_reads = [&](int64_t across) {
    const auto own = static_cast<double>(across / t.lanes());
    return 1 + kLoop + (FloatTile::thread_rows + own) / (FloatTile::thread_rows * kVector * own);
  };
  const double products =
      static_cast<double>(w.depth) * with_reads(t.keys) + static_cast<double>(w.columns) * with_reads(w.columns);
  work.step = (rows * keys * (products + kSoftmax) + keys * line * kStored) / kProducts * kWaits;
  work.rest = rows * line / 8;
  const double busy = busy_cycles(work, gpu);
  const double read = static_cast<double>(work.tiles * work.steps) * keys * line * w.element;
  return std::max({busy, w.bytes() / kMemoryBytes, read / kL2Bytes}) + kWorth * busy;
}

// groups: whether those of four warps multiply.
std::vector<AttentionTile> tiles_for(const Work& w, bool split, bool groups) {
  std::vector<AttentionTile> out;
  for (const int64_t stages : {2, 3}) {
    if (groups) out.push_back({kGroupRows, kGroupRows, stages, split, false, 0, true});
  }
  for (const int64_t keys : {64, 32, 128, 16}) {
    for (const int64_t stages : {2, 3, 1, 4}) {
      for (const int64_t rows : {128, 64, 32, 16}) {
        if (stages < 4 && (keys > kSquare || w.short_room)) out.push_back({rows, keys, stages, split});
        const bool packed = w.group > 1 && (rows == kSquare || rows / 2 < w.group);
        if (!packed) continue;
        out.push_back({rows, keys, stages, split, true});
        for (int64_t part = kLeastPart; part < std::min(static_cast<int64_t>(w.keys), w.called); part *= 2) {
          if (w.parts_fit(part)) out.push_back({rows, keys, stages, split, true, part});
        }
      }
    }
  }
  return out;
}

}  // namespace

Result<std::vector<AttentionTile>> attention_tiles_of(const GeneralKernel& general, const SymbolValues& sizes,
                                                      const GpuTarget& target, uint32_t allowed) {
  LATHE_ASSIGN(const AttentionParts p, tensor_parts(general));
  const bool split = (allowed & kBf16Dots) == 0;
  if (split && general.kernel.find_buffer("q")->type != DType::bf16)
    return unsupported("weights of {} may not be rounded to f16", general.kernel.name);
  if (few_keys(general.kernel, p) == 1) return std::vector<AttentionTile>{};
  const Work work = work_of(general, p, sizes);
  LATHE_ASSIGN(const RankedParts few, parts_of_heads(general, work, target));
  const double without = cycles_without(work, target), without_few = few.least;
  std::vector<AttentionTile> tiles;
  std::vector<double> all;
  for (const AttentionTile& tile : tiles_for(work, split, target.sm == kHopper)) {
    // A ring of as many blocks as there are keys is none: all loads would be in one run of code.
    if (tile.stages > 1 && work.most_keys <= tile.keys * tile.stages) continue;
    const bool fits = check_tile(tile, general.kernel, p).ok() &&
                      shared_bytes(tile, work.depth, work.columns) <= most_shared(target) &&
                      registers(tile, work.depth, work.columns, work.masked) <= kMostThreadRegisters;
    if (!fits) continue;
    const double least = cycles(tile, work, target);
    if (least >= (tile.heads ? without_few : without)) continue;
    tiles.push_back(tile);
    all.push_back(least);
  }
  return ranked(tiles, all);
}

Result<std::vector<FloatTile>> float_tiles_of(const GeneralKernel& general, const SymbolValues& sizes,
                                              const GpuTarget& target) {
  LATHE_ASSIGN(const AttentionParts p, float_parts(general));
  const Work work = work_of(general, p, sizes);
  LATHE_ASSIGN(const RankedParts few, parts_of_heads(general, work, target));
  std::vector<FloatTile> tiles;
  std::vector<double> all;
  for (const int64_t rows : {64, 32}) {
    if (static_cast<double>(rows) >= 2 * work.rows) continue;  // more than half of a tile would be idle
    for (const auto& [keys, threads] : {std::pair<int64_t, int64_t>{64, 128}, {64, 256}, {32, 128}}) {
      const FloatTile tile = {rows, keys, threads};
      if (!check_tile(tile, p).ok() || shared_bytes(tile, work.depth, work.columns) > most_shared(target)) continue;
      const double least = cycles(tile, work, target);
      if (least >= few.least) continue;
      tiles.push_back(tile);
      all.push_back(least);
    }
  }
  return ranked(tiles, all);
}

Result<std::vector<int64_t>> key_parts(const GeneralKernel& general, const SymbolValues& sizes,
                                       const GpuTarget& target) {
  const AttentionParts p = attention_parts(general.kernel);
  LATHE_RETURN_IF_ERROR(heads_step(general, 0).status());
  LATHE_ASSIGN(RankedParts ranked, parts_of_heads(general, work_of(general, p, sizes), target));
  return std::move(ranked.parts);
}

}  // namespace lathe::search
