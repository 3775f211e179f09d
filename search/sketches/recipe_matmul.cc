// The matmul recipe: register tiles of MR x NR under panels of B, panel-outer.
//
//   [pack A] [mc] n0 panel { [k0 block] { m0 tile { c = 0 | k: c += a * b (tensor) | y = epilogue(c) } } }
//
// B constant: packed once in panels. B with unit-stride k (transposed): each panel is transposed into scratch.
#include <algorithm>
#include <limits>

#include "ir/analysis/analysis.h"
#include "search/cut/leaf_builder.h"
#include "search/sketches/matmul_dots.h"
#include "search/sketches/matmul_model.h"
#include "search/sketches/matmul_sketch.h"
#include "search/sketches/structure.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kMaxStreamed = 32;   // rows up to which several streams from memory can help
constexpr int64_t kMaxOwnStream = 64;  // rows up to which B's own stream is prefetched
constexpr int64_t kDeepest = 8192;     // K beyond which a panel leaves the caches before the next rows need it

bool matches(const Problem& problem) { return problem.kernel.family == "matmul" && matmul_parts(problem.kernel).valid; }

// One packed width per weight for every M (it must not change with the range): two vectors where M varies.
std::vector<int64_t> widths(const Problem& problem, Panels panels, const Target& t) {
  if (panels == Panels::packed && problem.one_layout) return {2 * t.lanes};
  return {2 * t.lanes, 3 * t.lanes, 4 * t.lanes, t.lanes};
}

// A value where it may be accepted at all; the first one where it may not.
std::vector<int64_t> if_any(bool any, std::vector<int64_t> values) {
  if (!any) values.resize(1);
  return values;
}

constexpr int64_t kFunctionCode = 24;  // instructions of a function, about

// Calls of a leaf tell where sums are short.
constexpr int64_t kShortSums = 128, kMostJoined = 4;
bool may_join(const MatmulParts& p, const MatmulSizes& s) {
  return s.k <= kShortSums && s.m > 1 && is_const_int(p.m->extent) && is_const_int(p.k->extent);
}

// A function for each sum would be code for each.
bool may_dot(const MatmulParts& p, const Problem& problem, const Target& t) {
  return epilogue_registers(p) < kFunctionRegisters && matmul_dots(p, problem, t).columns != 0;
}

std::vector<KnobDomain> knobs(const Problem& problem, const Target& t) {
  const MatmulParts p = matmul_parts(problem.kernel);
  const Panels panels = panels_of(p, problem.kernel);
  const MatmulSizes s = matmul_sizes(p, problem);
  const bool packed = panels == Panels::packed;
  std::vector<int64_t> mr = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 20, 24, 28},
                       kc = {0, 256, 512, 1024, 2048}, mc = {0, 96, 192, 384};
  std::erase_if(mr, [&](int64_t v) { return v > std::max<int64_t>(s.m_max, 1); });
  std::erase_if(kc, [&](int64_t v) { return v >= s.k && v != 0; });
  std::erase_if(mc, [&](int64_t v) { return 2 * v >= s.m && v != 0; });
  std::vector<KnobDomain> out = {
      {"mr", mr},
      {"nr", widths(problem, panels, t)},
      {"st", !packed               ? std::vector<int64_t>{1}
             : s.m <= kMaxStreamed ? std::vector<int64_t>{1, 2, 4}
                                   : if_any(problem.one_layout, {1, 2})},
      {"kc", kc},
      {"mc", mc},
      {"pa", if_any(rows_packable(p, problem.kernel) && s.m > 1, {0, 1})},
      {"pf", if_any(packed, s.m <= kMaxOwnStream ? std::vector<int64_t>{0, 4096, 8192, 16384, 32768, -1}
                                                 : std::vector<int64_t>{0, -1})}};
  if (epilogue_registers(p) >= kFunctionRegisters) out.push_back({"ep", {0, 1}});
  if (may_join(p, s)) out.push_back({"mu", {0, 1}});
  if (panels == Panels::in_place) out.push_back({"pb", {0, 1}});
  if (panels != Panels::packed && !p.sharing.empty()) out.push_back({"gh", {0, 1}});
  if (may_dot(p, problem, t)) out.push_back({"dk", {0, 1}});
  return out;
}

// What all settings of a problem share, looked at once.
struct Context {
  Context(const Problem& problem_in, const Target& target)
      : problem(problem_in),
        t(target),
        p(matmul_parts(problem.kernel)),
        panels(panels_of(p, problem.kernel)),
        s(matmul_sizes(p, problem)),
        rows_pack(rows_packable(p, problem.kernel)),
        epilogue(epilogue_registers(p)),
        w(widths(problem, panels, t)),
        dots(may_dot(p, problem, t) ? matmul_dots(p, problem, t) : Dots{}) {}
  // Columns of the panels.
  Expr columns(const MatmulSetting& k) const { return k.dk ? Expr(dots.whole) : p.n->extent; }
  int64_t n(const MatmulSetting& k) const { return k.dk ? dots.whole : s.n; }
  const Problem& problem;
  const Target& t;
  MatmulParts p;
  Panels panels;
  MatmulSizes s;
  bool rows_pack;
  int64_t epilogue;
  std::vector<int64_t> w;
  Dots dots;
};

// The last tile's columns, if they are no whole tile: what its leaves take of vectors and of masks, which are vectors
// where there are no mask registers. Too many leaves are one that masks every vector (search/cut/leaf_form.cc).
struct Tail {
  int64_t vectors = 0, masks = 0;
};
Tail last_tile(const Context& c, const MatmulSetting& k) {
  const int64_t columns = k.nr * k.st, vectors = columns / c.t.lanes;
  if (proves_divisible(c.columns(k), columns, Ranges(c.problem.kernel))) return {};
  const bool fixed = is_const_int(c.p.n->extent), few_rows = is_const_int(c.p.m->extent) && k.mc == 0;
  const bool own = (few_rows ? 2 : k.mr) * (fixed ? 2 : 3) <= kMaxVariants;
  const int64_t rest = fixed ? c.n(k) % columns : columns - 1,
                live = own ? (rest + c.t.lanes - 1) / c.t.lanes : vectors;
  // A packed panel is read whole: only what is stored has a mask. Of constant columns the last vector has one.
  const int64_t masks = own && (fixed || c.panels == Panels::packed) ? (rest % c.t.lanes != 0) : live;
  return {live, c.t.mask_registers == 0 ? masks : 0};
}

// All columns are: what makes tiles and panels has one value.
Status accepts_only_dots(const Context& c, const MatmulSetting& k) {
  const MatmulSetting one{1, c.w.front(), 1, 0, k.mc, 0, false, false, false, false, false, true};
  if (k != one) return unsupported("dk 1: there are no tiles and panels to choose");
  if (k.mc != 0 && c.s.m <= 2 * k.mc) return unsupported("mc {}: m is {}", k.mc, c.s.m);
  return {};
}

Status accepts_in(const Context& c, const MatmulSetting& setting) {
  const auto [mr, nr, st, kc, mc, pf, pa, ep, mu, pb, gh, dk] = setting;
  const bool blocked = setting.blocked();
  const Target& t = c.t;
  const MatmulSizes& s = c.s;
  const int64_t nv = nr / t.lanes * st;
  if (dk && c.dots.columns == 0) return unsupported("dk 1: no columns to be summed along K");
  if (dk && (gh || (pa && mc == 0)))
    return unsupported("dk 1: what heads share, and rows that are packed at once, are all columns'");
  const bool all_dots = dk && c.dots.whole == 0;
  if (c.dots.columns != 0 && c.dots.whole == 0 && c.panels == Panels::packed && c.problem.one_layout &&
      dk != (s.k >= t.lanes)) {
    return unsupported("dk {}: not the layout of this weight", dk);
  }
  if (all_dots) return accepts_only_dots(c, setting);
  if (ep && (c.epilogue < kFunctionRegisters || kc != 0 || !is_const_int(c.p.k->extent)))
    return unsupported("ep 1: no functions, or K in blocks, or K varies");
  if (st > 1 && kc != 0) return unsupported("st {}: a K block is one panel's", st);
  if (st > 1 && (pf == -1 || (pf != 0 && st > 2)))
    return unsupported("pf {}: a tile prefetches two streams at most", pf);
  if (mr > s.m_max) return unsupported("mr {}: more than m ever is ({})", mr, s.m_max);
  const Tail tail = last_tile(c, setting);
  const bool partial = tail.vectors != 0;
  for (const auto& [vectors, masks] : {Tail{nv, 0}, tail}) {
    if (mr * vectors + vectors + 1 + masks > t.vector_registers) return unsupported("mr {}: registers", mr);
    if (!blocked && mr * vectors + masks + c.epilogue > t.vector_registers)
      return unsupported("mr {}: registers of the epilogue", mr);
  }
  if (std::find(c.w.begin(), c.w.end(), nr) == c.w.end()) return unsupported("nr {}: not a width of this weight", nr);
  if (st > 1 && (c.panels != Panels::packed || partial)) return unsupported("st {}: whole packed panels only", st);
  if (st > 1 && s.m > kMaxStreamed && (st > 2 || !c.problem.one_layout))
    return unsupported("st {}: m is {}, and the weight may be packed wider", st, s.m);
  // One vector that may be cut short: that the last of so many columns is not empty cannot be proved.
  if (partial && nr * st == t.lanes && !is_const_int(c.p.n->extent))
    return unsupported("nr {}: one vector, and n varies", nr);
  // A masked vector of a block is a leaf of its own for each row count.
  if (blocked && partial && mr * nv > kMaxVariants)
    return unsupported("kc {}: more than {} leaf variants", kc, kMaxVariants);
  if (blocked && mr < 2) return unsupported("kc {}: partial sums of one row", kc);
  if (kc != 0 && kc >= s.k) return unsupported("kc {}: K is {}", kc, s.k);
  if (kc == 0 && s.k > kDeepest && s.m > 8) return unsupported("kc 0: a panel of K {} leaves the caches", s.k);
  if (mc != 0 && (s.m <= 2 * mc || mc < mr)) return unsupported("mc {}: m is {}, mr {}", mc, s.m, mr);
  if (pa && (!c.rows_pack || mr < 2 || s.k < 2))
    return unsupported("pa 1: rows of A do not lie in one piece, or there is one");
  if (pf != 0 && is_const_int(c.p.k->extent, 1)) return unsupported("pf {}: sums of one term read B once", pf);
  if (pf != 0 && c.panels != Panels::packed) return unsupported("pf {}: B is not packed", pf);
  if (pf == -1 && s.m <= mr) return unsupported("pf next: a single tile has nothing to share it with");
  if (mu &&
      (!may_join(c.p, s) || blocked || mc != 0 || pf != 0 || s.m % mr != 0 || s.m <= mr || s.m > kMostJoined * mr)) {
    return unsupported("mu 1: not two to {} whole tiles with short sums", kMostJoined);
  }
  if (pb && c.panels != Panels::in_place) return unsupported("pb 1: B does not lie row-major");
  const bool one_panel = is_const_int(c.p.n->extent) && c.n(setting) <= nr, one_row = is_const_int(c.p.k->extent, 1);
  if (pb && (s.m <= mr || one_panel || one_row))
    return unsupported("pb 1: one tile walks a panel, or a panel is all of B or one row");
  if (gh && (c.p.sharing.empty() || !(pb || c.panels == Panels::transposed)))
    return unsupported("gh 1: no heads share panels that are transposed or copied");
  if (gh && (blocked || mc != 0 || pa))
    return unsupported("gh 1: blocks of K or of rows, or packed rows, are one head's");
  if (pf > 0 && s.m > kMaxOwnStream) return unsupported("pf {}: own stream is for skinny shapes, m is {}", pf, s.m);
  return {};
}

// The largest share of a thread over the mean one: panels, or blocks of rows where mc is set, are dealt out whole.
double imbalance(const Context& c, const MatmulSetting& k, int threads) {
  if (threads <= 1) return 1;
  const int64_t unit = k.mc != 0 ? k.block_rows() : k.nr * k.st, total = k.mc != 0 ? c.s.m : c.n(k);
  const int64_t blocks = (total + unit - 1) / unit, most = (blocks + threads - 1) / threads;
  return static_cast<double>(std::min(most * unit, total)) * threads / static_cast<double>(std::max<int64_t>(total, 1));
}

double estimate_in(const Context& c, const MatmulSetting& k) {
  const MatmulSizes& s = c.s;
  MatmulWork w;
  w.m = static_cast<double>(s.m);
  w.n = static_cast<double>(c.n(k));
  w.b_columns = static_cast<double>(s.n);
  w.k = static_cast<double>(s.k);
  w.mr = static_cast<double>(std::min(k.mr, s.m));
  w.vectors = static_cast<double>(k.nr / c.t.lanes * k.st);
  w.width = static_cast<double>(k.nr);
  w.panels = static_cast<double>(k.st);
  w.kc = static_cast<double>(matmul_block_depth(k.kc, s.k));
  w.mc = static_cast<double>(k.mc != 0 ? k.block_rows() : 0);
  w.prefetch = k.pf;
  w.scratch_sums = k.ep;
  w.packs_rows = k.pa;
  w.transposes = c.panels == Panels::transposed;
  w.piecewise = c.panels != Panels::packed && !k.pb && k.nr < s.n;
  w.copies = k.pb;
  for (const Stmt* s : c.p.sharing) w.sharing *= k.gh ? static_cast<double>(extent_at(s->extent, c.problem)) : 1;
  w.in_place = c.panels == Panels::in_place && !k.pb && k.nr < s.n;
  w.split_lines = w.in_place ? matmul_split_lines(s.n, k.nr) : 0;
  w.joined = k.mu;
  w.row_bytes = w.k * 4;
  w.cold = c.problem.cold && c.panels == Panels::packed;
  w.threads = c.problem.threads;
  double dots = 0;
  const bool copied = (c.panels == Panels::packed && c.dots.whole != 0) || dots_copy(c.p, c.problem.kernel);
  if (k.dk) dots = dots_cycles({w.m, static_cast<double>(c.dots.columns), w.k, copied, w.b_columns * w.k * 4}, c.t);
  const double spread = imbalance(c, k, c.problem.threads);
  if (k.dk && c.dots.whole == 0) return dots * (k.mc != 0 ? spread : c.problem.threads);
  return matmul_cycles(w, c.t).total * spread + dots * c.problem.threads;  // one thread's
}

// Of a default where M varies. Four rows by two vectors keep two pipes of latency four busy. A B that every call
// transposes is worth more code: each panel that a call adds reads all rows of A again.
constexpr int64_t kMostRows = 4, kMostCode = 660, kMostTransposingCode = 1070;

// Instructions to be made for a tile and all lower ones, about: for each sum its start, four steps and the rest of K,
// and its way out; and for moving B, 64 of a square: one for each vector of a panel that is transposed, one for whole
// and one for cut panels that are packed; a copied panel has a load and a store of each vector, whole and cut.
int64_t code_of(const Context& c, const MatmulSetting& k) {
  const int64_t whole = k.nr / c.t.lanes * k.st, counts = k.mr * (k.mr + 1) / 2, tail = last_tile(c, k).vectors;
  const int64_t vectors = whole + (is_const_int(c.p.n->extent) || tail == 0 ? tail : tail + (tail + 1) / 2);
  const int64_t out = k.ep ? 2 : c.epilogue >= kFunctionRegisters ? kFunctionCode : c.epilogue;
  const int64_t copy = c.panels == Panels::in_place ? (k.pb ? 4 * whole : 0)
                       : c.panels == Panels::packed ? 2 * 64
                                                    : 64 * k.nr / c.t.lanes;
  return counts * vectors * (6 + out) + 5 * (counts + k.mr * vectors) + 10 * k.mr + copy;
}

// The cheapest predicted, of what is made quickly where M varies: each row count is a leaf of its own then, K blocks
// and packed rows have leaves besides, and all of that has to be made while the first call waits. Looks at what can win
// only: of as many tiles the most even ones, and the middle of what the search varies more finely.
Knobs defaults(const Problem& problem, const Target& t) {
  const Context c(problem, t);
  const bool varies = !is_const_int(c.p.m->extent), functions = c.epilogue >= kFunctionRegisters;
  const int64_t most_rows = varies ? kMostRows : t.vector_registers;
  const int64_t most_code = c.panels == Panels::transposed ? kMostTransposingCode : kMostCode;
  const auto tiles = [&](int64_t mr) { return (c.s.m + mr - 1) / mr; };
  std::map<std::string, std::vector<int64_t>> v;
  for (KnobDomain& d : knobs(problem, t)) {
    if (d.values.size() > 1)
      std::erase_if(d.values, [&](int64_t x) { return x == 256 || x == 384 || x == 2048 || x == 32768; });
    v[d.name] = std::move(d.values);
  }
  MatmulSetting best{};
  double least = std::numeric_limits<double>::infinity();
  const auto visit = [&](const MatmulSetting& k) {
    if (varies && ((k.kc != 0 && c.s.k <= kDeepest) || k.pa)) return;
    const double cycles = estimate_in(c, k);
    if (cycles >= least || !accepts_in(c, k).ok()) return;
    least = cycles;
    best = k;
  };
  std::vector<std::pair<bool, bool>> copies = {{false, false}};  // pb, gh
  if (c.panels == Panels::in_place) copies.emplace_back(true, false);
  if (c.panels != Panels::packed && !c.p.sharing.empty()) copies.emplace_back(c.panels == Panels::in_place, true);
  const auto look = [&](bool ep) {
    int64_t shorter = 0;
    for (const int64_t mr : v["mr"]) {
      if (mr > most_rows || (shorter != 0 && tiles(shorter) == tiles(mr))) continue;
      shorter = mr;
      for (const int64_t nr : v["nr"]) {
        for (const int64_t st : v["st"]) {
          if ((mr + 1) * (nr / t.lanes) * st >= t.vector_registers) break;
          if (varies && code_of(c, {mr, nr, st, 0, 0, 0, false, ep, false, false, false}) > most_code) break;
          for (const int64_t pa : v["pa"]) {
            for (const int64_t pf : v["pf"]) {
              for (const int64_t mc : v["mc"]) {
                for (const int64_t kc : v["kc"]) {
                  for (const auto& [pb, gh] : copies) {
                    if (kc == 0 || st == 1) visit({mr, nr, st, kc, mc, pf, pa != 0, ep && kc == 0, false, pb, gh});
                    if (kc == 0 && may_join(c.p, c.s)) visit({mr, nr, st, kc, mc, pf, pa != 0, ep, true, pb, gh});
                  }
                }
              }
            }
          }
        }
      }
    }
  };
  if (varies && functions) look(true);
  if (best.mr == 0) look(false);
  // With columns summed along K: other tiles, the rest as it is best without.
  const MatmulSetting tiles_only = best;
  for (const int64_t mr : c.dots.whole != 0 ? v["mr"] : std::vector<int64_t>{}) {
    for (const int64_t nr : v["nr"]) {
      for (const bool mu : {false, true})
        visit({mr, nr, tiles_only.st, tiles_only.kc, tiles_only.mc, tiles_only.pf, false, false, mu, tiles_only.pb,
               false, true});
    }
  }
  if (c.dots.columns != 0 && c.dots.whole == 0) {
    for (const int64_t mc : v["mc"]) visit({1, c.w.front(), 1, 0, mc, 0, false, false, false, false, false, true});
  }
  if (best.mr == 0) return {};
  Knobs out = {{"mr", best.mr}, {"nr", best.nr}, {"st", best.st}, {"kc", best.kc},
               {"mc", best.mc}, {"pa", best.pa}, {"pf", best.pf}};
  if (functions) out["ep"] = best.ep;
  if (may_join(c.p, c.s)) out["mu"] = best.mu;
  if (c.panels == Panels::in_place) out["pb"] = best.pb;
  if (c.panels != Panels::packed && !c.p.sharing.empty()) out["gh"] = best.gh;
  if (c.dots.columns != 0) out["dk"] = best.dk;
  return out;
}

std::vector<Knob> table() {
  constexpr int64_t kAny = INT64_MAX;
  return {{"tile_rows", "mr", "rows of a tile", 0, 1, kAny, true},
          {"panel_columns", "nr", "columns of a panel of B: the packed width of a constant one", 0, 1, kAny, true},
          {"streams", "st", "panels that a tile walks side by side", 1, 1, kAny, true},
          {"depth_block", "kc", "block of K; 0: all of it", 0, 0, kAny, true},
          {"row_block", "mc", "rows of an outer block; 0: all of them", 0, 0, kAny, true},
          {"pack_rows", "pa", "1: A is copied to [tile][k][row] first", 0, 0, 1, true},
          {"prefetch", "pf", "bytes that B is prefetched ahead; -1: its next block; 0: not", 0, -1, kAny, true},
          {"function_pass", "ep", "1: functions of the result are a pass of their own", 0, 0, 1, true},
          {"join_tiles", "mu", "1: two to four tiles of short sums are one leaf", 0, 0, 1, true},
          {"copy_panels", "pb", "1: each panel of a row-major B is copied together", 0, 0, 1, true},
          {"share_heads", "gh", "1: heads that share B run under each panel", 0, 0, 1, true},
          {"depth_sums", "dk", "1: the few columns beyond whole vectors are summed along K", 0, 0, 1, true}};
}

class MatmulSketch final : public Sketch {
 public:
  MatmulSketch(const Problem& problem, const Target& target) : problem_(problem), t_(target), c_(problem, target) {}
  std::vector<KnobDomain> domains() const override { return knobs(problem_, t_); }
  Status accepts(const Knobs& k) const override {
    LATHE_ASSIGN(const MatmulSetting setting, matmul_setting(k, t_));
    return accepts_in(c_, setting);
  }
  Knobs defaults() const override { return search::defaults(problem_, t_); }
  std::vector<Knobs> simpler() const override {
    Knobs k = defaults();
    if (knob_of(k, "dk") == 0) return {};
    k["dk"] = 0;
    return accepts(k).ok() ? std::vector<Knobs>{k} : std::vector<Knobs>{};
  }
  Result<Scheduled> script(const Knobs& k) const override { return matmul_script(k, problem_, t_); }
  double estimate(const Knobs& k) const override {
    const Result<MatmulSetting> setting = matmul_setting(k, t_);
    return setting.ok() ? estimate_in(c_, *setting) : std::numeric_limits<double>::infinity();
  }
  Structure structure(const Knobs& k, const ProblemFacts& facts) const override {
    return matmul_structure(k, facts, t_);
  }

 private:
  const Problem& problem_;
  const Target& t_;
  const Context c_;
};

}  // namespace

const Recipe kMatmulRecipe = {"panel", 1, matches, table, [](const Problem& p, const Target& t) {
                                return std::unique_ptr<Sketch>(std::make_unique<MatmulSketch>(p, t));
                              }};

}  // namespace lathe::search
