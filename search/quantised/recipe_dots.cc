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
#include <numeric>

#include "ir/analysis/dependence.h"
#include "search/quantised/activation_rows.h"
#include "search/quantised/field_prefetch.h"
#include "search/quantised/groups.h"
#include "search/quantised/parts.h"
#include "search/sketches/sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kBeside = 4;  // quads of a loop's step, vectors or groups side by side
constexpr int64_t kHurriedRows = 4, kFewRows = 4;
constexpr int64_t kNextRows = 8;  // taller tiles fetch no faster
constexpr int64_t kNarrowStreams = 4;
constexpr int64_t kFewFields = 3, kFewFieldsAlone = 4;  // more streams are lost
constexpr int64_t kFarPart = 4;  // of L2: beyond it results and what is read like them leave it between panels
constexpr double kDots = 2, kIssue = 3.5;                   // a cycle
constexpr double kEnds = 12, kCrowded = 1.5, kStore = 0.1;  // sums that end together; cycles of one more, of a store
constexpr double kShown = 0.3, kShownNext = 0.1;            // of what waits behind memory, or the reverse
constexpr double kNextRate = 0.75;                          // of memory's, for lines far from those in use
// The same where the core's prefetcher keeps up alone: slower, and hidden until it takes most of the arithmetic's time.
constexpr double kAloneNextRate = 0.31, kAloneShown = 0.5, kAloneHidden = 0.2;
constexpr double kNear = 70;                           // bytes a cycle from the second cache, not hidden
constexpr int64_t kLeastTurns = 5, kMostTurns = 11;    // sums of groups that take turns
constexpr double kTurnsIssue = 4.6, kTurnsNear = 400;  // what these reach of kIssue and kNear
constexpr int64_t kScratchRegisters = 6, kGroupRegisters = 4, kWeightRegisters = 2;  // of what is in the making
constexpr int64_t kOperationBytes = 8, kMostBytes = 18 << 10;

}  // namespace

class DotsSketch {
 public:
  struct Setting {
    int64_t tile_rows = 1, panel_columns = 0, streams = 1, prefetch = 0, start = 0, parallel = 0, scale = kLeastScale;
    bool operator==(const Setting&) const = default;
  };
  DotsSketch(const Problem& problem, const Target& target)
      : problem_(problem),
        t_(target),
        p_(quantised_parts(problem.kernel)),
        g_(groups_of(p_, Ranges(problem.kernel))),
        m_(rows_of_product(p_, problem)),
        n_(extent_at(p_.n->extent, problem)),
        k_(p_.k->extent->ival),
        bytes_(field_bytes(p_, problem)),
        together_(lie_in_turn(p_, problem.kernel, bytes_.largest, g_.group)) {}

  static bool matches(const Problem& problem) {
    if ((problem.allowed & kQuantisedActivations) == 0 || problem.kernel.family != "quantised") return false;
    const QuantisedParts p = quantised_parts(problem.kernel);
    return p.weight && p.m != nullptr && p.packed && is_const_int(p.k->extent) &&
           groups_of(p, Ranges(problem.kernel)).group > 0;
  }
  static const std::vector<KnobRow<DotsSketch>>& table();
  // A language model's logits bear 64, not 128 (docs/decoder_loop.md). Short groups share 32 anyway.
  std::vector<int64_t> scales() const {
    Setting wide;
    wide.scale = kUsualScale;
    if (g_.group < kLeastScale || widest_scale(wide) == g_.group) return {kLeastScale};
    return {kLeastScale, kUsualScale};
  }
  Status accepts(const Setting& k) const;
  std::optional<Setting> standard() const;
  std::vector<Setting> simpler(const Setting&) const {
    return {{.panel_columns = panel(), .parallel = problem_.threads > 1}};
  }
  Status write(Script& s, const Setting& k) const;
  double estimate(const Setting& k) const;
  Structure structure(const Setting& k, const ProblemFacts& facts) const;

 private:
  // Two vectors share what lanes have in common; of short groups, whose sums end often, one leaves registers for those
  // of taller tiles, if products take their pipe so long that loads keep up.
  bool narrow() const { return g_.group < kLeastScale && t_.halves() > 1; }
  int64_t panel() const { return narrow() ? t_.lanes : 2 * t_.lanes; }
  int64_t vectors(const Setting& k) const { return k.panel_columns * k.streams / t_.lanes; }
  // Fields that the bits of a weight come from.
  int64_t byte_fields() const {
    return std::count_if(p_.fields.begin(), p_.fields.end(),
                         [&](const QuantisedField& f) { return uses(g_.weight.byte, f.name); });
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
  void write_tiles(Script& s, const Setting& k) const;

  const Problem& problem_;
  const Target& t_;
  const QuantisedParts p_;
  const Groups g_;
  const int64_t m_, n_, k_;
  const FieldBytes bytes_;
  const bool together_;  // fields are one packed stream
};

const std::vector<KnobRow<DotsSketch>>& DotsSketch::table() {
  using Values = std::vector<int64_t>;
  using S = const DotsSketch&;
  static const std::vector<KnobRow<DotsSketch>> kTable = {
      {"tile_rows", "mr", "rows of a tile", &Setting::tile_rows, 1, kAnySize, true,
       [](S s) {
         Values v = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12};
         const int64_t most = interval(s.p_.m->extent, Ranges(s.problem_.kernel)).hi;
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

Status DotsSketch::write(Script& s, const Setting& k) const {
  const char* sums = in_parts(k) ? " sums=scales" : "";
  s.move("quantize_activations {} group={} scale={}{} as kg", p_.k->iter, g_.group, scale(k), sums);
  write_activation_rows(
      s, {.lanes = t_.lanes, .depth = k_, .scale = scale(k), .group = g_.group, .parallel = k.parallel != 0});
  write_prologues(s, p_.clears, problem_, t_.lanes);
  write_tiles(s, k);
  return {};
}

void DotsSketch::write_tiles(Script& s, const Setting& k) const {
  if (!s.ok()) return;
  const std::string m = p_.m->iter, n = p_.n->iter, depth = p_.k->iter, sums = p_.k->body[0].target;
  const std::string integers = find_scope(s.kernel(), "kg")->body[0].target;
  const std::string sums_of_part = in_parts(k) ? find_scope(s.kernel(), "kg_s")->body[0].target : "";
  std::string part;
  const int64_t columns = k.panel_columns * k.streams;
  const char* tail = tail_of(p_.n->extent, columns, problem_.kernel);
  s.move("tile_scope {} {} tail={} as m0,m1", m, k.tile_rows, tail_of(p_.m->extent, k.tile_rows, problem_.kernel));
  s.move("tile_scope {} {} tail={} as n0,n1", n, columns, tail);
  s.move("swap_scopes m1 n0");
  s.move("swap_scopes m0 n0");
  const std::string outermost = outermost_scope(s, p_, problem_);
  // Start, groups, end; in each group its start, sums and end.
  const auto split = [&](const std::string& from, const std::string& to) {
    for (const char* scope : {"n", "m"}) s.move("split_scope {}{} after=0 as {}{}", scope, from, scope, to);
  };
  std::string piece = "_groups";
  const auto inside = [&](const std::string& around) {
    for (const char* scope : {"n", "m"}) s.move("swap_scopes {}{} {}", scope, piece, around);
  };
  split("1", piece);
  split(piece, "_end");
  // Those groups of a block that are not alike by the binary digits of their number, of which indices are sums.
  std::vector<std::string> digits;
  std::string group = in_parts(k) ? "kg_s" : "kg", prefix = in_parts(k) ? "kh" : "kg";
  const auto divide = [&](int64_t by, const std::string& outer) {
    const std::string inner = fmt::format("{}{}", prefix, by);
    s.move("tile_scope {} {} tail=exact as {},{}", group, by, outer, inner);
    inside(outer);
    group = inner;
  };
  const auto divide_in_digits = [&](int64_t all, int64_t of_one) {
    for (int64_t half = all / 2; half > 1; half /= 2) {
      digits.push_back(fmt::format("kd{}", half * of_one));
      divide(half, digits.back());
    }
  };
  const int64_t one = in_one(k), block = this->block(k) / one, unrolled = this->unrolled(k) / one;
  if (block > 1) divide(block, "kb");
  if (unrolled > 1 && unrolled < block) divide(unrolled, "kl");
  divide_in_digits(unrolled, one);
  inside(group);
  if (unrolled > 1) digits.push_back(group);
  if (in_parts(k)) {
    part = group;
    prefix = "kg";
    split(piece, "_parts");
    piece = "_parts";
    split(piece, "_part_scale");
    group = "kg";
    divide_in_digits(one, 1);
    inside(group);
    digits.push_back(group);
  }
  split(piece, "_quads");
  split("_quads", "_scale");
  piece = "_quads";
  inside(depth);
  // The depth of a group: periods, quads, in each the parts that share bytes.
  std::string rest = depth;
  std::vector<std::string> loops;
  if (g_.period < g_.group) {
    s.move("tile_scope {} {} tail=exact as ks,kr", rest, g_.period);
    loops.emplace_back("ks");
    rest = "kr";
  }
  if (g_.part < g_.period) {
    s.move("tile_scope {} {} tail=exact as kp,ki", rest, g_.part);
    rest = "ki";
  }
  s.move("tile_scope {} {} tail=exact as kq,kj", rest, kQuad);
  loops.emplace_back("kq");
  if (g_.part < g_.period) {
    if (g_.parts_share) s.move("swap_scopes kp kq");
    s.move("unroll_scope kp");
  }
  // What is too long for straight code is a loop: periods, or quads some beside each other.
  if (!g_.straight()) {
    const std::string loop = loops.front();
    loops.erase(loops.begin());
    const int64_t each = loop == "ks" ? g_.period / kQuad : g_.period / g_.part;
    const int64_t beside =
        std::gcd(loop == "ks" ? g_.group / g_.period : g_.part / kQuad, std::max<int64_t>(kBeside / each, 1));
    if (beside > 1) s.move("tile_scope {} {} tail=exact as {}o,ku", loop, beside, loop);
    if (beside > 1) s.move("unroll_scope ku");
  }
  for (const std::string& scope : loops) s.move("unroll_scope {}", scope);
  for (const std::string& scope : digits) s.move("unroll_scope {}", scope);
  for (const QuantisedField& f : p_.fields) {
    int quads = -1;
    for_each_node(g_.weight.byte, [&](const ExprNode& load) {
      if (load.op != Op::k_load || load.name != f.name) return;
      for (size_t d = 0; d < load.args.size(); ++d) {
        if (uses(load.args[d], depth)) quads = static_cast<int>(d);
      }
    });
    pack_field(s, f, k.panel_columns, quads);
  }
  if (together_) interleave_fields(s, p_, bytes_.largest);
  std::vector<std::string> pieces = {"1", "_groups", "_quads", "_scale", "_end"};
  if (in_parts(k)) pieces.insert(pieces.end(), {"_parts", "_part_scale"});
  for (const std::string& piece : pieces) {
    s.move("unroll_scope m{}", piece);
    std::string scope = fmt::format("n{}", piece);
    if (k.streams > 1) {
      s.move("tile_scope {} {} tail=exact as {}s,{}p", scope, k.panel_columns, scope, scope);
      s.move("unroll_scope {}s", scope);
      scope += "p";
    }
    s.move("tile_scope {} {} tail={} as {}v,{}l", scope, t_.lanes, tail, scope, scope);
    s.move("unroll_scope {}v", scope);
    s.move("vectorize_scope {}l", scope);
  }
  s.move("tensorize kj dot4_u8s8");
  s.move("{} {} m0", sums_fit(k) ? "move_to_register" : "move_to_stack", sums);
  if (in_parts(k)) s.move("move_to_register {} {}", sums_of_part, part);
  s.move("move_to_register {} {}", integers, group);
  FieldPrefetch prefetch{
      .ahead = k.prefetch > 0 ? k.prefetch : far_ahead(t_), .start = k.start != 0, .group = g_.group};
  prefetch.weights = static_cast<double>(n_) * static_cast<double>(k_);
  prefetch.columns = columns;
  prefetch.together = together_;
  prefetch.depth = k_;
  if (k.prefetch == -1) prefetch.tiles = (m_ + k.tile_rows - 1) / k.tile_rows;
  if (m_ > k.tile_rows && m_ * n_ * 4 > t_.l2_bytes / kFarPart) prefetch.rows = k.tile_rows;
  for (size_t f = 0; k.prefetch != 0 && s.ok() && f < p_.fields.size(); ++f)
    prefetch_field(s, p_.fields[f], bytes_, prefetch);
  if (k.parallel != 0) s.move("parallelize {}", outermost);
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
