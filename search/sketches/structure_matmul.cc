// The Structure of the matmul recipe's configurations: the naive nest's axes cut into the recipe's loops. See
// structure.h.
//
//   [batch] [mc] n0 { [k0] { m0 { k1 { m1 { n1 } } | write-back } } }
#include <algorithm>
#include <cmath>

#include "search/sketches/matmul_dots.h"
#include "search/sketches/matmul_model.h"
#include "search/sketches/structure.h"

namespace lathe::search {

namespace {

struct Tiles {
  double m, n, k, batch, mr, nr, nv, kc, mc;  // nr: of a tile, which may walk several panels of `width` columns
  double width;
  bool transposes = false;
  bool scratch_sums = false;
  bool joined = false;     // all tiles under a panel are one leaf
  bool piecewise = false;  // B is not packed, and a panel is part of its rows
  bool in_place = false;   // such a panel is rows as they lie
  bool copied = false;     // but for a copy of it
  double sharing = 1;      // products that walk a panel before the next one
  double dots = 0;         // columns that are summed along K
};

// The loops that stand for one of the naive nest's, with the elements one iteration covers.
struct Parts {
  std::array<Structure::Term, 3> terms;
  int count = 0;
  void add(int loop, double step) { terms[static_cast<size_t>(count++)] = {loop, step}; }
};

class Builder {
 public:
  explicit Builder(const ProblemFacts& facts) : naive_(facts.naive) { s_.buffers = naive_.buffers; }

  int loop(int parent, double trips, Axis axis) {
    s_.loops.push_back({parent, std::max(trips, 1.0), axis});
    return static_cast<int>(s_.loops.size()) - 1;
  }
  // An access of the naive nest at the place `at`, each axis walked by the parts given for it.
  void place(const Structure::Access& naive, int at, const std::array<Parts, 5>& by_axis,
             const std::vector<std::pair<int, int>>& batch) {
    Structure::Access a = naive;
    a.loop = at;
    for (int d = 0; d < a.rank; ++d) {
      Structure::Dim& dim = a.dims[static_cast<size_t>(d)];
      const Structure::Dim before = dim;
      dim.count = 0;
      for (int t = 0; t < before.count; ++t) {
        const Structure::Term& term = before.terms[static_cast<size_t>(t)];
        if (term.loop < 0) continue;
        for (const auto& [old_loop, new_loop] : batch) {
          if (old_loop == term.loop) dim.add(new_loop, term.step);
        }
        const Parts& parts = by_axis[static_cast<size_t>(naive_.loops[static_cast<size_t>(term.loop)].axis)];
        for (int p = 0; p < parts.count; ++p)
          dim.add(parts.terms[static_cast<size_t>(p)].loop, term.step * parts.terms[static_cast<size_t>(p)].step);
      }
    }
    s_.accesses.push_back(a);
  }
  bool walks(const Structure::Access& a, int loop) const {
    return std::any_of(a.dims.begin(), a.dims.begin() + a.rank, [&](const Structure::Dim& dim) {
      return std::any_of(dim.terms.begin(), dim.terms.begin() + dim.count,
                         [&](const Structure::Term& t) { return t.loop == loop; });
    });
  }
  bool walks(const Structure::Access& a, Axis axis) const {
    for (int d = 0; d < a.rank; ++d) {
      const Structure::Dim& dim = a.dims[static_cast<size_t>(d)];
      for (int t = 0; t < dim.count; ++t) {
        const int loop = dim.terms[static_cast<size_t>(t)].loop;
        if (loop >= 0 && naive_.loops[static_cast<size_t>(loop)].axis == axis) return true;
      }
    }
    return false;
  }

  const Structure& naive_;
  Structure s_;
};

// A panel of B that lies together: [panel, depth, column].
void place_panel(Builder& b, int buffer, int at, const std::array<Parts, 5>& by_axis, int n0, const Tiles& t) {
  Structure::Access a;
  a.loop = at;
  a.buffer = buffer;
  a.packed = true;
  a.rank = 3;
  a.dims[0].extent = std::ceil(t.n / t.nr);
  a.dims[0].add(n0, 1);
  a.dims[1].extent = t.k;
  for (int p = 0; p < by_axis[4].count; ++p)
    a.dims[1].add(by_axis[4].terms[static_cast<size_t>(p)].loop, by_axis[4].terms[static_cast<size_t>(p)].step);
  a.dims[2].extent = t.nr;
  a.dims[2].add(by_axis[3].terms[static_cast<size_t>(by_axis[3].count - 1)].loop, 1);
  b.s_.accesses.push_back(a);
}

void counts(Structure& s, const Tiles& t, const ProblemFacts& facts, int64_t prefetch, const ir::Target& target) {
  MatmulWork w;
  w.m = t.m;
  w.n = t.n - t.dots;
  w.b_columns = t.n;
  w.k = t.k;
  w.mr = t.mr;
  w.vectors = t.nv;
  w.width = t.width;
  w.panels = t.nr / t.width;
  w.kc = t.kc;
  w.mc = t.mc;
  w.prefetch = prefetch;
  w.packs_rows = s.packs_rows;
  w.scratch_sums = t.scratch_sums;
  w.transposes = t.transposes;
  w.joined = t.joined;
  w.piecewise = t.piecewise;
  w.copies = t.copied;
  w.sharing = t.sharing;
  w.in_place = t.in_place && t.piecewise;
  w.split_lines = w.in_place ? matmul_split_lines(static_cast<int64_t>(t.n), static_cast<int64_t>(t.width)) : 0;
  w.row_bytes = facts.naive.row_stride_bytes;
  w.cold = facts.cold && !t.transposes && !t.in_place;
  w.threads = facts.threads;
  const double full = std::floor(t.m / t.mr), rest = t.m - full * t.mr, panels = std::ceil(t.n / t.nr);
  const double ideal = t.m * t.n / static_cast<double>(target.lanes) / 2;
  MatmulCycles c;
  if (w.n > 0) c = matmul_cycles(w, target);
  if (t.dots > 0) {
    const double dots = dots_cycles({t.m, t.dots, t.k, w.n > 0 && !t.transposes, t.n * t.k * 4}, target);
    c.compute += dots;
    c.total += dots;
  }
  s.slowdown = (c.memory > 0 ? c.compute : c.total) / std::max(ideal * t.k, 1.0);
  // So that the analytic stage comes to the model's total: max(compute, memory) + kExposed min(compute, memory).
  if (c.memory > 0)
    s.stream = std::max(0.1 * c.memory, c.total > (1 + kExposed) * c.compute ? c.total - kExposed * c.compute
                                                                             : (c.total - c.compute) / kExposed) /
               c.memory;
  const double whole = std::floor(w.n / t.nr) * t.nr, lanes = static_cast<double>(target.lanes);
  s.padded = (whole + std::ceil((w.n - whole) / lanes) * lanes + t.dots) / std::max(t.n, 1.0);
  s.flops = facts.naive.flops;
  s.rows = t.m;
  s.columns = t.n;
  s.depth = t.k;
  s.tile_rows = t.mr;
  s.tile_vectors = t.nv;
  s.registers = t.mr * t.nv + t.nv + 1;
  s.block_rows = t.mc;
  s.block_columns = t.width;
  s.block_depth = t.kc;
  const double tiles = full + (rest > 0), steps = t.kc > 0 ? std::ceil(t.k / t.kc) : 1;
  s.calls = panels * (t.joined ? 1 : tiles) * steps * t.batch;
  s.parallel = t.batch > 1 ? Axis::batch : t.mc > 0 ? Axis::rows : Axis::columns;
  s.tasks = t.batch > 1 ? t.batch : t.mc > 0 ? std::ceil(t.m / t.mc) : panels;
  s.imbalance = imbalance_of(s.tasks, facts.threads);
  s.prefetch_bytes = static_cast<double>(std::max<int64_t>(prefetch, 0));
  s.prefetch_next = prefetch < 0;
  s.row_stride_bytes = facts.naive.row_stride_bytes;
  s.innermost_stride = facts.naive.innermost_stride;
}

}  // namespace

Structure matmul_structure(const Knobs& knobs, const ProblemFacts& facts, const ir::Target& target) {
  const Structure& naive = facts.naive;
  Tiles t{};
  t.m = naive.rows;
  t.n = naive.columns;
  t.k = naive.depth;
  t.batch = 1;
  t.mr = static_cast<double>(std::max<int64_t>(1, knob_of(knobs, "mr", 4)));
  t.width = static_cast<double>(std::max<int64_t>(1, knob_of(knobs, "nr", 2 * target.lanes)));
  t.nr = t.width * static_cast<double>(std::max<int64_t>(1, knob_of(knobs, "st", 1)));
  t.mr = std::min(t.mr, t.m);
  t.nv = std::ceil(t.nr / target.lanes);
  t.kc = static_cast<double>(matmul_block_depth(knob_of(knobs, "kc", 0), static_cast<int64_t>(t.k)));
  t.scratch_sums = knob_of(knobs, "ep", 0) != 0;
  if (t.scratch_sums) t.kc = t.k;
  t.joined = knob_of(knobs, "mu", 0) != 0;
  t.copied = knob_of(knobs, "pb", 0) != 0;
  const bool share = knob_of(knobs, "gh", 0) != 0;
  if (knob_of(knobs, "dk", 0) != 0) t.dots = t.n == 1 ? 1 : std::fmod(t.n, target.lanes);
  t.mc = static_cast<double>(knob_of(knobs, "mc", 0));
  if (t.mc >= t.m || t.mc < 0) t.mc = 0;
  const int64_t prefetch = knob_of(knobs, "pf", 0);

  Builder b(facts);
  std::vector<std::pair<int, int>> batch;
  int at = -1;
  for (size_t l = 0; l < naive.loops.size(); ++l) {
    if (naive.loops[l].axis != Axis::batch) continue;
    at = b.loop(at, naive.loops[l].trips, Axis::batch);
    batch.emplace_back(static_cast<int>(l), at);
    t.batch *= naive.loops[l].trips;
  }
  std::array<Parts, 5> tile{};  // by Axis
  Parts &m = tile[2], &n = tile[3], &k = tile[4];
  const double rows = t.mc > 0 ? t.mc : t.m, steps = t.kc > 0 ? t.kc : t.k;
  if (t.mc > 0) m.add(at = b.loop(at, std::ceil(t.m / t.mc), Axis::rows), t.mc);
  const int n0 = at = b.loop(at, std::ceil(t.n / t.nr), Axis::columns);
  n.add(n0, t.nr);
  std::array<Parts, 5> store = tile;  // the write-back walks rows and columns of its own
  if (t.kc > 0) k.add(at = b.loop(at, std::ceil(t.k / t.kc), Axis::depth), t.kc);
  const int m0 = at = b.loop(at, std::ceil(rows / t.mr), Axis::rows);
  m.add(m0, t.mr);
  store[2].add(m0, t.mr);
  k.add(at = b.loop(at, steps, Axis::depth), 1);
  m.add(at = b.loop(at, t.mr, Axis::rows), 1);
  n.add(at = b.loop(at, t.nr, Axis::columns), 1);
  const int leaf = at;
  const int store_rows = b.loop(m0, t.mr, Axis::rows), store_at = b.loop(store_rows, t.nr, Axis::columns);
  store[2].add(store_rows, 1);
  store[3].add(store_at, 1);

  for (const Structure::Access& a : naive.accesses) {
    const bool by_depth = b.walks(a, Axis::depth), by_columns = b.walks(a, Axis::columns);
    Structure::Buffer& buffer = b.s_.buffers[static_cast<size_t>(a.buffer)];
    if (!by_depth) {
      // Partial sums stay in registers unless the depth is cut.
      if (!buffer.scratch || t.kc > 0) b.place(a, store_at, store, batch);
      continue;
    }
    if (by_columns && !buffer.constant) t.piecewise = !t.copied && t.width < t.n;
    const bool columns_last =
        by_columns && a.rank > 0 && a.dims[static_cast<size_t>(a.rank - 1)].count > 0 &&
        naive.loops[static_cast<size_t>(std::max(0, a.dims[static_cast<size_t>(a.rank - 1)].terms[0].loop))].axis ==
            Axis::columns;
    if (by_columns && !buffer.constant) t.in_place = columns_last;
    for (size_t l = batch.size(); by_columns && share && l > 0 && !b.walks(a, batch[l - 1].first); --l)
      t.sharing *= naive.loops[static_cast<size_t>(batch[l - 1].first)].trips;
    if (by_columns && buffer.constant) {
      place_panel(b, a.buffer, leaf, tile, n0, t);
      b.s_.packs_columns = true;
    } else if (by_columns && (t.copied || !columns_last)) {
      // Read once per panel, into scratch that the tiles read.
      b.place(a, leaf, tile, batch);
      b.s_.accesses.back().packed = true;
      b.s_.packs_columns = true;
      t.transposes = !columns_last;
    } else {
      b.place(a, leaf, tile, batch);
    }
  }
  b.s_.packs_rows = knob_of(knobs, "pa", 0) != 0;
  counts(b.s_, t, facts, prefetch, target);
  return std::move(b.s_);
}

}  // namespace lathe::search
