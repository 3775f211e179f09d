// Products with weights of few bits in integers: activations become bytes (move quantize_activations), four products of
// bytes are one instruction (dot4_u8s8), each group of weights ends with its scale.
//
//   m rows { max | groups { bytes, sums } }
//   n0 panels { m0 tile { c = 0 | g { s = start | kq { s += 4 bytes } | c += f32(s) * factor } | y = f(c) } }
//
// Groups that share a scale of the activations have a sum of their own in floats, which meets that scale once:
//
//   c = 0 | h { u = 0 | g { s = start | kq { s += 4 bytes } | u += f32(s) * factor } | c += u * scale } | y = f(c)
//
// Fields that hold bytes lie as [n / nr, ..., k / 4, n % nr, k % 4]: a vector of lanes is one load. Used where the
// caller allows quantised activations.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/analysis/dependence.h"
#include "search/quantised/dots_sketch.h"
#include "search/quantised/field_prefetch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kHurriedRows = 4, kFewRows = 4;
constexpr int64_t kNextRows = 8;  // taller tiles fetch no faster
constexpr int64_t kNarrowStreams = 4;
constexpr int64_t kFewFields = 3, kFewFieldsAlone = 4;      // more streams are lost
constexpr double kDots = 2, kIssue = 3.5;                   // a cycle
constexpr double kEnds = 12, kCrowded = 1.5, kStore = 0.1;  // sums that end together; cycles of one more, of a store
constexpr double kShown = 0.3, kShownNext = 0.1;            // of what waits behind memory, or the reverse
constexpr double kNextRate = 0.75;                          // of memory's, for lines far from those in use
// The same where the core's prefetcher keeps up alone: slower, and hidden until it takes most of the arithmetic's time.
constexpr double kAloneNextRate = 0.31, kAloneShown = 0.5, kAloneHidden = 0.2;
constexpr double kNear = 70;                           // bytes a cycle from the second cache, not hidden
constexpr double kTurnsIssue = 4.6, kTurnsNear = 400;  // what these reach of kIssue and kNear
constexpr int64_t kGroupRegisters = 4;                 // of what is in the making
constexpr int64_t kMostBytes = 18 << 10;

}  // namespace

const std::vector<KnobRow<DotsSketch>>& DotsSketch::table() {
  using Values = std::vector<int64_t>;
  using S = const DotsSketch&;
  static const std::vector<KnobRow<DotsSketch>> kTable = {
      {"tile_rows", "mr", "rows of a tile", &Setting::tile_rows, 1, kAnySize, true,
       [](S s) {
         Values v = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12};
         const int64_t most = interval(s.p_.m->extent, Ranges(s.problem_.kernel)).hi;
         if (s.has_tiles() && most > kTileRows / 2) v.push_back(kTileRows / 2);
         if (s.has_tiles() && most > v.back()) v.push_back(std::min(most, kTileRows));
         std::erase_if(v, [&](int64_t rows) { return rows > std::max<int64_t>(most, 1); });
         return v;
       }},
      {"panel_columns", "nr", "columns of a panel: the packed width of the fields", &Setting::panel_columns, 1,
       kAnySize, true, [](S s) { return Values{s.panel()}; }},
      {"streams", "st", "panels that a tile walks side by side", &Setting::streams, 1, 4, true,
       [](S) { return Values{1, 2, 4}; }},
      {"prefetch", "pf",
       "bytes that the largest field is prefetched ahead; 0: not; -1: the next panel instead, spread over the tiles",
       &Setting::prefetch, -1, kAnySize, true,
       [](S s) {
         Values v = {0, 2048, 4096, 6144, 8192, 16384};
         if (s.m_ > 1) v.insert(v.begin(), -1);
         return v;
       }},
      {"start", "ps",
       "1: a line of each step of the largest field is also prefetched twice as far, where the core's prefetcher "
       "starts",
       &Setting::start, 0, 1, false, [](S) { return Values{0, 1}; }},
      {"scale", "sc",
       "activations that share a scale, where sums of their groups find registers; else those of a group do",
       &Setting::scale, kLeastScale, kMostScale, true, [](S s) { return s.scales(); }},
      {"tiles", "ti", "1: sums wait in tiles of the CPU's own, which read weights as bytes", &Setting::tiles, 0, 1,
       true, [](S s) { return s.has_tiles() ? Values{0, 1} : Values{}; }},
      {"parallel", "parallel", "1: rows and panels are shared out", &Setting::parallel, 0, 1, true,
       [](S s) { return Values{s.problem_.threads > 1 ? 1 : 0}; }}};
  return kTable;
}

Status DotsSketch::accepts(const Setting& k) const {
  if (k.panel_columns < t_.lanes || k.panel_columns % t_.lanes != 0)
    return unsupported("nr {}: whole vectors of packed fields", k.panel_columns);
  if (k.streams > 1 && !proves_divisible(p_.n->extent, k.panel_columns * k.streams, Ranges(problem_.kernel)))
    return unsupported("st {}: {} columns are not whole panels side by side", k.streams, n_);
  if (k.prefetch == -1 && m_ <= k.tile_rows) return unsupported("pf next: a single tile has nothing to share it with");
  if (k.tiles != 0) return accepts_tiles(k);
  // What makes the weights of a group needs some more beside its sums than what has one group only.
  const int64_t of_group = g_.group == k_ ? 0 : std::max(kGroupRegisters, block_registers(k, in_parts(k)));
  // A constant that AVX-512 repeats from memory takes a register without it.
  const int64_t constants = t_.vector_registers < 32 && block_registers(k, in_parts(k)) > 0 && g_.weight.rest ? 1 : 0;
  const int64_t scratch = kScratchRegisters + of_group + constants + (g_.sources - 1) * vectors(k);
  if ((k.tile_rows + 1) * vectors(k) + scratch > t_.vector_registers && (k.tile_rows > 1 || k.streams > 1))
    return unsupported("mr {} by {} vectors: more than the registers", k.tile_rows, vectors(k));
  if (end_bytes(p_, vectors(k) * k.tile_rows) > kMostEndBytes && (k.tile_rows > 1 || k.streams > 1))
    return unsupported("mr {} and st {}: too much code of what follows the sums", k.tile_rows, k.streams);
  if (code_bytes(k) > kMostBytes && (k.tile_rows > 1 || k.streams > 1))
    return unsupported("mr {} and st {}: some {} bytes of code, expected at most {}", k.tile_rows, k.streams,
                       code_bytes(k), kMostBytes);
  return {};
}

// Cycles of a group for a tile of so many rows.
double DotsSketch::group_cycles(const Setting& k, int64_t tile_rows) const {
  if (k.tiles != 0) return tile_cycles(tile_rows);
  Setting tile = k;
  tile.tile_rows = tile_rows;
  const double rows = static_cast<double>(tile_rows), v = static_cast<double>(vectors(k));
  const double quads = static_cast<double>(g_.quads()), group = static_cast<double>(g_.group);
  const double dots = quads * v * rows + v * rows * ((g_.weight.rest ? 2 : 1) + scale_operations(k));
  // Sums wait for each other where there are few.
  const double chain = quads * 4, crowd = std::max(0.0, v * rows - kEnds) * kCrowded,
               stores = sums_fit(k) ? 0 : v * rows * kStore / static_cast<double>(in_one(k));
  const double weights = bytes_.total / static_cast<double>(n_) / static_cast<double>(k_) * group * v * t_.lanes;
  const double issue = takes_turns(tile) ? kTurnsIssue : kIssue, near = takes_turns(tile) ? kTurnsNear : kNear;
  const double reads = (weights + rows * group) / near;
  const double pipes = t_.halves() * std::max(dots / kDots, group_operations(tile) / issue);
  return std::max(pipes, chain) + crowd + stores + reads;
}

double DotsSketch::estimate(const Setting& k) const {
  const double v = static_cast<double>(vectors(k)), groups = static_cast<double>(k_) / static_cast<double>(g_.group);
  const int64_t whole = m_ / k.tile_rows, rest = m_ % k.tile_rows;
  const double tiles = static_cast<double>(whole + (rest != 0));
  const double panels = std::ceil(static_cast<double>(n_) / (v * t_.lanes));
  const double memory = problem_.cold ? bytes_.total / t_.memory_rate : 0;
  const double ends = tiles * panels * 20;
  if (k.prefetch == -1) {
    // Each tile reads a share of the next panel.
    const auto tile = [&](int64_t rows) {
      const double rate = t_.prefetches_alone ? kAloneNextRate : kNextRate;
      const double cycles = panels * groups * group_cycles(k, rows), share = memory / rate / tiles;
      const double more = std::max(cycles, share), less = std::min(cycles, share);
      const double shown = t_.prefetches_alone ? std::max(0.0, kAloneShown * less / more - kAloneHidden) : kShownNext;
      return more + shown * less;
    };
    return static_cast<double>(whole) * tile(k.tile_rows) + (rest != 0 ? tile(rest) : 0) + ends;
  }
  // The first tile of a panel reads it from memory.
  const double first = panels * groups * group_cycles(k, whole > 0 ? k.tile_rows : rest);
  double others = static_cast<double>(std::max<int64_t>(whole - 1, 0)) * group_cycles(k, k.tile_rows);
  if (whole > 0 && rest != 0) others += group_cycles(k, rest);
  return std::max(first, memory) + kShown * std::min(first, memory) + panels * groups * others + ends;
}

// From memory one stream that is prefetched, or two that the core fetches.
std::optional<DotsSketch::Setting> DotsSketch::standard() const {
  if (const std::optional<Setting> tiles = standard_tiles()) return tiles;
  std::optional<Setting> best;
  double least = std::numeric_limits<double>::infinity();
  const bool hurried = !problem_.unhurried && !is_const_int(p_.m->extent);
  const std::vector<Choice<Setting>> choices = {{&Setting::tile_rows, values_of(*this, &Setting::tile_rows)},
                                                {&Setting::panel_columns, values_of(*this, &Setting::panel_columns)},
                                                {&Setting::streams, values_of(*this, &Setting::streams)},
                                                {&Setting::scale, scales()}};
  const bool few_fields = std::ssize(p_.fields) <= (t_.prefetches_alone ? kFewFieldsAlone : kFewFields);
  const bool shares = problem_.cold && few_fields && m_ >= kNextRows;
  std::vector<int64_t> prefetches;
  const bool one_field = byte_fields() == 1 && (g_.group < k_ || t_.prefetches_alone);
  if (!shares || m_ == kNextRows || one_field) prefetches.push_back(0);
  if (shares) prefetches.push_back(-1);
  // Two rows use up bytes that are weights as they lie faster than one stream of them is kept on its way.
  const bool plain = g_.unpacking <= 2;  // a load, and what takes a sign
  int64_t streams = plain && g_.group < k_ && m_ == 2 && t_.prefetches_alone ? 2 : 1;
  // One row of narrow panels has too few sums that do not wait for each other.
  if (narrow() && m_ == 1 && t_.prefetches_alone) streams = kNarrowStreams;
  const Setting base{.parallel = problem_.threads > 1};
  const auto look = [&](Setting k) {
    if ((hurried && k.tile_rows > kHurriedRows) || (problem_.cold && k.streams != streams)) return;
    if (narrow() && k.tile_rows > 1 && !sums_fit(k)) return;
    // Few rows wait for memory, not for the arithmetic that a shared scale saves, and bursts of longer code come later.
    if (problem_.cold && m_ <= kFewRows && k.scale > kLeastScale) return;
    for (const int64_t prefetch : prefetches) {
      k.prefetch = prefetch;
      // Weights made of several fields leave no slots for sums in memory as well; two tiles are late but for turns.
      const bool late = m_ == kNextRows && !takes_turns(k);
      if (prefetch == -1 && (k.tile_rows > kNextRows || late || (byte_fields() > 1 && !sums_fit(k)))) continue;
      const double cycles = estimate(k);
      if (cycles >= least || !accepts(k).ok()) continue;
      least = cycles;
      best = k;
    }
  };
  for (; streams > 0 && !best; --streams) each_setting(base, choices, look);
  if (!best || !problem_.cold || best->prefetch != 0) return best;
  const bool few = m_ <= best->tile_rows && best->tile_rows <= kFewRows;
  best->prefetch = usual_distance(t_, few ? m_ : kAnySize, plain, g_.block > 1 && (byte_fields() > 1 || narrow()));
  // It gains where a byte has up to two products, and costs where it has more.
  const bool starts = few && few_fields && !t_.prefetches_alone;
  best->start = starts && static_cast<double>(m_ * n_ * k_) <= 2 * bytes_.of.at(bytes_.largest) ? 1 : 0;
  return best;
}

Structure DotsSketch::structure(const Setting& k, const ProblemFacts& facts) const {
  Structure s = facts.naive;
  const double columns = static_cast<double>(std::max<int64_t>(k.panel_columns * k.streams, 1));
  s.tile_rows = static_cast<double>(k.tile_rows);
  s.tile_vectors = static_cast<double>(std::max<int64_t>(vectors(k), 1));
  s.unroll = static_cast<double>(g_.straight() ? g_.quads() : kBeside);
  s.registers = (2 * s.tile_rows + 1) * s.tile_vectors + kScratchRegisters;
  s.block_columns = columns;
  s.packs_columns = true;
  const double panels = std::ceil(static_cast<double>(n_) / columns);
  s.calls = panels * std::ceil(static_cast<double>(m_) / s.tile_rows);
  s.slowdown = estimate(k) / std::max(s.flops / 2 / t_.lanes / 2, 1.0);
  s.parallel = Axis::columns;
  s.tasks = panels;
  s.imbalance = imbalance_of(panels, facts.threads);
  return s;
}

const Recipe kDotsRecipe = {"dots", 1, DotsSketch::matches, knob_table<DotsSketch>,
                            make_sketch<DotsSketch, kDotsRecipe>};

}  // namespace lathe::search
