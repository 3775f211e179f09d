// See decoded_schedule.h.
#include "search/gpu/weights/decoded_schedule.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "ir/analysis/analysis.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/split_sum.h"
#include "search/gpu/tile_moves.h"
#include "search/gpu/tile_rounds.h"
#include "search/gpu/weights/decoded_moves.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kChunk = kDecodedChunk, kThreads = 128;
constexpr int64_t kVectors[] = {8, 4};  // weights that are decoded at a time
constexpr int64_t kMostRows = 128;      // of a block of threads

class Writer {
 public:
  // whole: the general one. kernel: that, or what it is once blocks share its sums over `summed`. vector: weights that
  // are decoded at a time. loose: fields that are not staged.
  Writer(const GeneralKernel& whole, const Kernel& kernel, const DecodedForm& form, std::string summed = "",
         int64_t vector = kVectors[0], std::set<std::string> loose = {})
      : kernel_(kernel),
        f_(form),
        p_(form.product),
        w_(form.weight),
        summed_(std::move(summed)),
        vector_(vector),
        list_(whole.kernel, "decoded.1"),
        moves_(list_, whole, p_, w_, std::move(loose)),
        m_(form.m()),
        n_(form.n()),
        k_(form.k()) {}

  //   for mb @grid: for nb @grid: c[..] = 0
  //     for k0: {a_s = a; w_s = decode(q); for threads: for k1: c[..] += a_s * w_s}; for threads: y = f(c)
  Result<Scheduled> tiles(const DecodedTile& tile) {
    const int64_t rows = tile.rows, block = moves_.block();
    if (block == 0) return unsupported("the terms of {} are no whole blocks of a power of two", kernel_.name);
    list_.knob("rows", rows);
    list_.knob("block", block);
    if (tile.terms > 0) split_sum(list_, summed_, tile.terms);
    tile_decoded(list_, f_, rows, TileMoves::kColumns);
    TileMoves tiles(list_, m_, n_, k_);
    tiles.apart(p_.sum, f_.tile());
    if (block > kChunk) list_.move("tile_scope {0} {1} tail=exact as {0}b,{0}r", k_, block);
    list_.move("tile_scope {0}{1} {2} tail=exact as {0}0,{0}1", k_, block > kChunk ? "r" : "", kChunk);
    const std::string k0 = k_ + "0", a = f_.activations();
    for (const std::string& x : {a, w_.buffer}) list_.move("create_temporary {0} {0}_s at={1} mode=stage", x, k0);
    for (const std::string& made : p_.made) list_.move("inline_temporary {}", made);
    if (!f_.groups) {
      for (const std::string& x : {a, w_.buffer}) list_.move("move_to_stack {}_s {}", x, k0);
    }
    launch_decoded(list_, f_);
    for (const std::string& x : {a, w_.buffer}) list_.move("move_to_shared {}_s {}", x, k0);
    const Expr& outputs = p_.n->extent;
    const bool vary = !is_const_int(outputs) || outputs->ival % TileMoves::kColumns != 0;
    const bool several = !is_const_int(outputs) || outputs->ival > TileMoves::kColumns;
    for (const char* part : {"i", "ik"}) {
      list_.move("pad_scope {}{}", m_, part);
      if (vary && several) list_.move("pad_scope {}{}", n_, part);
    }
    tiles.copy_terms(a + "_s", rows, kChunk);
    copy_weight(w_.buffer + "_s");
    for (const std::string& x : {a, w_.buffer}) tiles.turn(x + "_s");
    tiles.threads("i", rows / TileMoves::kSide, "", true);
    tiles.threads("ik", rows / TileMoves::kSide, k_ + "1", true);
    tiles.threads("ie", rows / TileMoves::kSide, "", false);
    list_.move("unroll_scope {}1", k_);
    if (tile.terms > 0) add_up_parts(list_, kernel_);
    return list_.finish();
  }

  const StagedFields& staged() const { return moves_.staged(); }

  // A thread for each output.
  Result<Scheduled> outputs() {
    list_.knob("threads", kThreads);
    if (f_.groups) clear_rows(list_, *f_.groups);
    if (f_.groups) list_.move("parallelize_grid {}", f_.groups->t->iter);
    list_.move("tile_scope {0} {1} tail=mask as {0}b,{0}t", n_, kThreads);
    if (f_.groups) list_.move("swap_scopes {} {}b", m_, n_);
    list_.move("move_to_register {} {}t", p_.sum, n_);
    for (const std::string& made : p_.made) list_.move("inline_temporary {}", made);
    if (!f_.groups) {
      for (const Stmt* b : p_.batch) list_.move("parallelize_grid {}", b->iter);
      list_.move("parallelize_grid {}", m_);
    }
    list_.move("parallelize_grid {}b", n_);
    list_.move("parallelize_block {}t", n_);
    return list_.finish();
  }

 private:
  // Threads of a warp have the same terms of neighbouring lines.
  void copy_weight(const std::string& x) {
    std::vector<std::string> halves = moves_.halve(x + "_1", x, kChunk, vector_);
    for (size_t i = 0; i + 1 < halves.size(); ++i) list_.move("swap_scopes {}_0 {}", x, halves[i]);
    moves_.stage_fields(vector_, x + "_0");
    for (size_t i = 0; i + 1 < halves.size(); ++i) list_.move("parallelize_block {}", halves[i]);
    list_.move("parallelize_block {}_0", x);
    list_.move("unroll_scope {}", halves.back());
  }

  const Kernel& kernel_;
  const DecodedForm& f_;
  const ProductForm& p_;
  const DecodedWeight& w_;
  const std::string summed_;
  const int64_t vector_;
  MoveList list_;
  DecodedMoves moves_;
  const std::string m_, n_, k_;
};

// Cycles of a GPU: for ordering only.
double cycles_of(const DecodedTile& t, const ProductShape& s, const GpuTarget& gpu) {
  constexpr double kDecode = 8, kIssue = 4, kWarps = static_cast<double>(TileMoves::kThreads) / 32;
  constexpr int64_t kOthers = 60;  // registers beside sums
  const SumParts parts(t, s);
  const int64_t rows = t.rows / TileMoves::kSide;
  const double sums = static_cast<double>(rows * TileMoves::kFloats);
  const double reads = std::ceil(static_cast<double>(rows) / TileMoves::kFloats) + 1;
  const double decoded = kDecode * kChunk * TileMoves::kColumns / TileMoves::kThreads;
  TileWork work;
  work.tiles = s.batch * ceil_div(std::max<int64_t>(s.rows, 1), t.rows) *
               ceil_div(std::max<int64_t>(s.columns, 1), TileMoves::kColumns) * parts.count;
  work.steps = ceil_div(parts.depth, kChunk);
  work.threads = TileMoves::kThreads;
  work.registers = rows * TileMoves::kFloats + kOthers;
  work.shared = (t.rows + TileMoves::kColumns + 2 * TileMoves::kFloats) * kChunk * 4;
  work.step = kWarps * (kChunk * (sums + reads) + decoded + 2 * static_cast<double>(rows) + 40) / kIssue;
  work.rest = static_cast<double>(t.rows * TileMoves::kColumns) * 4 / 32;
  return busy_cycles(work, gpu) + parts.cycles;
}

}  // namespace

Result<Scheduled> decoded_schedule(const GeneralKernel& general, const DecodedTile& tile) {
  const auto write = [&](int64_t vector, std::set<std::string>& known) {
    return whole_or_split(general.kernel, tile.terms,
                          [&](const Kernel& kernel, const DecodedForm& form, const std::string& summed) {
                            return staged_where_own(
                                [&](const std::set<std::string>& loose, StagedFields& staged) {
                                  Writer writer(general, kernel, form, summed, vector, loose);
                                  Result<Scheduled> made = writer.tiles(tile);
                                  staged = writer.staged();
                                  return made;
                                },
                                known);
                          });
  };
  // Bytes of words have bits of fewer neighbours: no more of these are one run of a field.
  std::set<std::string> loose, fewer;
  Result<Scheduled> made = write(kVectors[0], loose);
  const bool words = std::any_of(loose.begin(), loose.end(), [&](const std::string& field) {
    return general.kernel.find_buffer(field)->dims.size() == 2;
  });
  if (made.ok() && !words) return made;
  Result<Scheduled> other = write(kVectors[1], fewer);
  return other.ok() && (!made.ok() || fewer.size() < loose.size()) ? std::move(other) : std::move(made);
}

Result<std::vector<DecodedTile>> decoded_rows_of(const GeneralKernel& general, const SymbolValues& sizes,
                                                 const GpuTarget& target) {
  LATHE_ASSIGN(const DecodedForm form, decoded_form(general.kernel));
  const ProductShape shape = shape_of(form, sizes, general.most);
  const int64_t part = std::max(decoded_block(general.kernel, form.product, form.weight), kLeastShared);
  std::vector<DecodedTile> all;
  std::vector<double> cycles;
  for (int64_t rows = TileMoves::kSide; rows <= kMostRows; rows *= 2) {
    for (const int64_t parts : {1, 2, 4, 8, 16}) {
      const bool shared = !form.groups && shape.depth % (parts * part) == 0 && shape.has_room_for(shape.depth / parts);
      if (parts > 1 && !shared) break;
      all.push_back({rows, parts > 1 ? shape.depth / parts : 0});
      cycles.push_back(cycles_of(all.back(), shape, target));
    }
  }
  return ranked(all, cycles);
}

Result<Scheduled> decoded_schedule(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target) {
  LATHE_ASSIGN(const std::vector<DecodedTile> tiles, decoded_rows_of(general, sizes, target));
  return first_made(tiles, [&](const DecodedTile& tile) { return decoded_schedule(general, tile); });
}

Result<Scheduled> outputs_schedule(const GeneralKernel& general, const SymbolValues&) {
  LATHE_ASSIGN(const DecodedForm form, decoded_form(general.kernel));
  return Writer(general, general.kernel, form).outputs();
}

}  // namespace lathe::search
