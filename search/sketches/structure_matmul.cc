// What the cost model sees of a setting of the matmul recipe: the naive nest's axes cut into the recipe's loops. See
// matmul_sketch.h.
//
//   [batch] [row block] n0 { [k0] { m0 { k1 { m1 { n1 } } | write-back } } }
#include <algorithm>
#include <cmath>

#include "search/sketches/matmul_sketch.h"

namespace lathe::search {

namespace {

// The loops that stand for one of the naive nest's, with the elements one iteration covers.
struct Parts {
  std::array<Structure::Term, 3> terms;
  int count = 0;
};

// The loops around a place, outermost first.
struct Path {
  int at = -1;                             // the innermost
  std::array<Parts, 5> by_axis{};          // those that cut an axis
  std::array<double, 5> piece{};           // what one iteration of the last of them covers
  std::vector<std::pair<int, int>> batch;  // the naive nest's, and here
};

size_t index_of(Axis axis) { return static_cast<size_t>(axis); }

int add_loop(Structure* s, Path* path, double trips, Axis axis) {
  s->loops.push_back({path->at, std::max(trips, 1.0), axis});
  return path->at = static_cast<int>(s->loops.size()) - 1;
}

// A loop more, whose iterations cover `step` elements of the axis each.
void cut_axis(Structure* s, Path* path, Axis axis, double step) {
  Parts& parts = path->by_axis[index_of(axis)];
  double& piece = path->piece[index_of(axis)];
  add_loop(s, path, std::ceil(piece / step), axis);
  parts.terms[static_cast<size_t>(parts.count++)] = {path->at, step};
  piece = step;
}

// An access of the naive nest inside the path.
void place(Structure* s, const Structure& naive, const Structure::Access& access, const Path& path, bool packed) {
  Structure::Access a = access;
  a.loop = path.at;
  a.packed |= packed;
  for (int d = 0; d < a.rank; ++d) {
    Structure::Dim& dim = a.dims[static_cast<size_t>(d)];
    const Structure::Dim before = dim;
    dim.count = 0;
    for (int t = 0; t < before.count; ++t) {
      const Structure::Term& term = before.terms[static_cast<size_t>(t)];
      if (term.loop < 0) continue;
      for (const auto& [old_loop, new_loop] : path.batch) {
        if (old_loop == term.loop) dim.add(new_loop, term.step);
      }
      const Parts& parts = path.by_axis[index_of(naive.loops[static_cast<size_t>(term.loop)].axis)];
      for (int p = 0; p < parts.count; ++p)
        dim.add(parts.terms[static_cast<size_t>(p)].loop, term.step * parts.terms[static_cast<size_t>(p)].step);
    }
  }
  s->accesses.push_back(a);
}

// A panel of B that lies together: [panel, depth, column].
void place_panel(Structure* s, int buffer, const Path& path, double panels, double depth, double columns) {
  const Parts &by_columns = path.by_axis[index_of(Axis::columns)], &by_depth = path.by_axis[index_of(Axis::depth)];
  Structure::Access a;
  a.loop = path.at;
  a.buffer = buffer;
  a.packed = true;
  a.rank = 3;
  a.dims[0].extent = panels;
  a.dims[0].add(by_columns.terms[0].loop, 1);
  a.dims[1].extent = depth;
  for (int p = 0; p < by_depth.count; ++p)
    a.dims[1].add(by_depth.terms[static_cast<size_t>(p)].loop, by_depth.terms[static_cast<size_t>(p)].step);
  a.dims[2].extent = columns;
  a.dims[2].add(by_columns.terms[static_cast<size_t>(by_columns.count - 1)].loop, 1);
  s->accesses.push_back(a);
}

bool walks(const Structure& naive, const Structure::Access& a, Axis axis) {
  for (int d = 0; d < a.rank; ++d) {
    const Structure::Dim& dim = a.dims[static_cast<size_t>(d)];
    for (int t = 0; t < dim.count; ++t) {
      const int loop = dim.terms[static_cast<size_t>(t)].loop;
      if (loop >= 0 && naive.loops[static_cast<size_t>(loop)].axis == axis) return true;
    }
  }
  return false;
}

}  // namespace

Structure MatmulSketch::structure(const Setting& k, const ProblemFacts& facts) const {
  const Structure& naive = facts.naive;
  const bool blocks_rows = k.row_block != 0 && k.row_block < m_;
  const MatmulWork w = work(k, blocks_rows ? k.row_block : 0);
  const bool parts = k.depth_parts > 1;
  const double columns = static_cast<double>(k.tile_columns()), all_columns = w.b_columns,
               part = static_cast<double>(part_depth(k)),
               depth = parts                  ? part
                       : k.function_pass != 0 ? w.k
                                              : w.kc,
               panels = std::ceil(all_columns / columns);
  Structure s;
  s.buffers = naive.buffers;
  const bool turned = p_.swapped || k.row_lanes != 0;
  const Axis rows = turned ? Axis::columns : Axis::rows, across = turned ? Axis::rows : Axis::columns;
  Path tile;
  tile.piece[index_of(rows)] = w.m;
  tile.piece[index_of(across)] = all_columns;
  tile.piece[index_of(Axis::depth)] = w.k;
  double batch = 1;
  for (size_t l = 0; l < naive.loops.size(); ++l) {
    if (naive.loops[l].axis != Axis::batch) continue;
    tile.batch.emplace_back(static_cast<int>(l), add_loop(&s, &tile, naive.loops[l].trips, Axis::batch));
    batch *= naive.loops[l].trips;
  }
  if (blocks_rows) cut_axis(&s, &tile, rows, w.mc);
  if (parts) cut_axis(&s, &tile, Axis::depth, depth);
  cut_axis(&s, &tile, across, w.column_block > 0 ? w.column_block : columns);
  if (depth > 0 && !parts) cut_axis(&s, &tile, Axis::depth, depth);
  if (w.column_block > 0) cut_axis(&s, &tile, across, columns);
  cut_axis(&s, &tile, rows, w.mr);
  Path store = tile;  // the write-back walks rows and columns of its own
  for (const Axis axis : {Axis::depth, rows, across}) cut_axis(&s, &tile, axis, 1);
  for (const Axis axis : {rows, across}) cut_axis(&s, &store, axis, 1);

  for (const Structure::Access& a : naive.accesses) {
    if (a.loop >= 0 && naive.loops[static_cast<size_t>(a.loop)].axis == Axis::none)
      continue;  // of what computes an operand
    const Structure::Buffer& buffer = s.buffers[static_cast<size_t>(a.buffer)];
    if (!walks(naive, a, Axis::depth)) {
      // Partial sums stay in registers unless the depth is cut.
      if (!buffer.scratch || depth > 0) place(&s, naive, a, store, false);
    } else if (!walks(naive, a, across)) {
      place(&s, naive, a, tile, false);
    } else if (packed()) {
      place_panel(&s, a.buffer, tile, panels, w.k, columns);
    } else {
      // Read once per panel, into scratch that the tiles read; or where it lies.
      place(&s, naive, a, tile, w.transposes || w.copies);
    }
  }
  s.packs_columns = packed() || w.transposes || w.copies;
  s.packs_rows = w.packs_rows;

  MatmulWork one = w;
  one.k = part;
  MatmulCycles c;
  if (w.n > 0) c = cycles(one, k);
  for (double* all : {&c.compute, &c.total, &c.memory}) *all *= static_cast<double>(k.depth_parts);
  const double dots = depth_sum_cycles(k) + joining_cycles(k) * facts.threads, lanes = t_.lanes,
               ideal = w.m * all_columns / lanes / 2;
  c.compute += dots;
  c.total += dots;
  s.slowdown = (c.memory > 0 ? c.compute : c.total) / std::max(ideal * w.k, 1.0);
  // So that the analytic stage comes to the model's total: max(compute, memory) + kExposed min(compute, memory).
  if (c.memory > 0)
    s.stream = std::max(0.1 * c.memory, c.total > (1 + kExposed) * c.compute ? c.total - kExposed * c.compute
                                                                             : (c.total - c.compute) / kExposed) /
               c.memory;
  const double whole = std::floor(w.n / columns) * columns;
  s.padded = (whole + std::ceil((w.n - whole) / lanes) * lanes + all_columns - w.n) / std::max(all_columns, 1.0);
  s.flops = naive.flops;
  s.rows = w.m;
  s.columns = all_columns;
  s.depth = w.k;
  s.tile_rows = w.mr;
  s.tile_vectors = w.vectors;
  s.registers = w.mr * w.vectors + w.vectors + 1;
  s.block_rows = w.mc;
  s.block_columns = w.width;
  s.block_depth = depth;
  s.calls =
      panels * (w.joined || w.looped ? 1 : std::ceil(w.m / w.mr)) * (depth > 0 ? std::ceil(w.k / depth) : 1) * batch;
  s.parallel = batch > 1 ? Axis::batch : blocks_rows ? rows : parts ? Axis::depth : across;
  s.tasks = batch > 1            ? batch
            : blocks_rows        ? std::ceil(w.m / w.mc)
            : w.column_block > 0 ? std::ceil(all_columns / w.column_block)
                                 : panels * static_cast<double>(k.depth_parts);
  s.imbalance = imbalance_of(s.tasks, facts.threads);
  s.prefetch_bytes = static_cast<double>(std::max<int64_t>(k.prefetch, 0));
  s.prefetch_next = k.prefetch < 0;
  s.row_stride_bytes = naive.row_stride_bytes;
  s.innermost_stride = naive.innermost_stride;
  return s;
}

}  // namespace lathe::search
