// The knobs of the matmul recipe: which settings are legal, and what they cost. See matmul_sketch.h.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/cut/leaf_builder.h"
#include "search/sketches/matmul_sketch.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kMaxStreamed = 32;                  // rows up to which several streams from memory can help
constexpr int64_t kMostWaiting = int64_t{1} << 20;    // bytes of sums that wait for the next block of K
constexpr double kPairLatency = 7;                    // cycles until a sum of pairs can be added to, as measured
constexpr int64_t kShortSums = 128, kMostJoined = 4;  // calls of a leaf tell where sums are short

// One packed width per weight for every M (it must not change with the range): two vectors where M varies. A single row
// has registers for long pieces of the rows of a B that is read where it lies.
std::vector<int64_t> widths_of(const Problem& problem, Panels panels, int64_t most_rows, const Target& t) {
  if (panels == Panels::packed && problem.one_layout) return {2 * t.lanes};
  std::vector<int64_t> out = {2 * t.lanes, 3 * t.lanes, 4 * t.lanes, t.lanes};
  if (panels == Panels::in_place && most_rows == 1) out.push_back(8 * t.lanes);
  return out;
}

// A function for each sum would be code for each.
Dots dots_of(const MatmulParts& p, const Problem& problem, const Target& t) {
  return epilogue_registers(p) < kFunctionRegisters && !matmul_of_integers(p, problem.kernel)
             ? matmul_dots(p, problem, t)
             : Dots{};
}

int64_t element_bytes(const Expr& load, const Kernel& kernel) {
  return dtype_bytes(kernel.find_buffer(load->name)->type);
}

// Between rows of A.
int64_t row_bytes_of(const MatmulParts& p, const Problem& problem) {
  const Buffer& a = *problem.kernel.find_buffer((*p.a)->name);
  for (size_t d = 0; d < a.dims.size(); ++d) {
    if (!uses((*p.a)->args[d], p.m->iter)) continue;
    int64_t elements = a.strides.empty() ? 1 : extent_at(a.strides[d], problem);
    for (size_t inner = d + 1; a.strides.empty() && inner < a.dims.size(); ++inner)
      elements *= extent_at(a.dims[inner], problem);
    return elements * dtype_bytes(a.type);
  }
  return 0;
}

}  // namespace

MatmulSketch::MatmulSketch(const Problem& problem, const Target& target)
    : problem_(problem),
      t_(target),
      p_(matmul_parts(problem.kernel)),
      panels_(panels_of(p_, problem.kernel)),
      m_(rows_of_weight(*p_.m, *p_.a, problem)),
      n_(extent_at(p_.n->extent, problem)),
      k_(extent_at(p_.k->extent, problem)),
      m_max_(interval(p_.m->extent, Ranges(problem.kernel)).hi),
      rows_pack_(rows_packable(p_, problem.kernel)),
      epilogue_(epilogue_registers(p_)),
      function_bytes_(function_bytes(p_)),
      a_bytes_(element_bytes(*p_.a, problem.kernel)),
      b_bytes_(element_bytes(*p_.b, problem.kernel)),
      row_bytes_(row_bytes_of(p_, problem)),
      widths_(widths_of(problem, panels_, m_max_, target)),
      dots_(dots_of(p_, problem, target)),
      step_(matmul_step(p_, problem, target)),
      integers_(matmul_of_integers(p_, problem.kernel)),
      tiles_(step_ > 1 && has_tiles()) {}

bool MatmulSketch::matches(const Problem& problem) {
  const std::string& family = problem.kernel.family;
  if (family != "matmul" && family != "experts") return false;
  const MatmulParts p = matmul_parts(problem.kernel);
  return p.valid && (!matmul_of_integers(p, problem.kernel) || matmul_step(p, problem, {}) > 1);
}

bool MatmulSketch::rows_apart() const { return is_const_int(p_.n->extent) && n_ * b_bytes_ >= kPage; }

int64_t MatmulSketch::columns_of_a_thread() const {
  constexpr int64_t kWhole = 256, kMost = 16384;  // panels of most widths are whole in multiples of the first
  return std::min((n_ + problem_.threads - 1) / problem_.threads, kMost) / kWhole * kWhole;
}

bool MatmulSketch::may_join() const {
  return k_ <= kShortSums && m_ > 1 && is_const_int(p_.m->extent) && is_const_int(p_.k->extent);
}

const std::vector<KnobRow<MatmulSketch>>& MatmulSketch::table() {
  using Values = std::vector<int64_t>;
  using S = const MatmulSketch&;
  static constexpr auto flag_if = [](bool asked) { return asked ? Values{0, 1} : Values{}; };
  static const std::vector<KnobRow<MatmulSketch>> kTable = {
      {"tile_rows", "mr", "rows of a tile", &Setting::tile_rows, 1, kAnySize, true,
       [](S s) {
         Values v = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 20, 24, 28};
         if (s.tiles_) v.push_back(kTileRows);
         std::erase_if(v, [&](int64_t rows) { return rows > std::max<int64_t>(s.m_max_, 1); });
         return v;
       }},
      {"panel_columns", "nr", "columns of a panel: the packed width of a constant B", &Setting::panel_columns, 1,
       kAnySize, true, [](S s) { return s.widths_; }},
      {"streams", "st",
       "panels that a tile walks side by side: as many streams of B from memory, and as many more sums where rows are "
       "few",
       &Setting::streams, 1, kAnySize, true,
       [](S s) {
         if (!s.packed()) return Values{1};
         return s.m_ <= kMaxStreamed ? Values{1, 2, 4} : values_if(s.problem_.one_layout, {1, 2});
       }},
      {"depth_block", "kc", "block of K; partial sums wait in scratch between blocks; 0: all of K",
       &Setting::depth_block, 0, kAnySize, true,
       [](S s) {
         Values v = !s.packed()          ? Values{0, 16, 32, 64, 128, 256, 512, 1024, 2048}
                    : s.t_.slow_memory() ? Values{0, 32, 64, 128, 256, 512}
                                         : Values{0, 256, 512, 1024, 2048};
         if (s.tiles_ && v.back() == 512) v.push_back(1024);
         if (s.in_place() && s.t_.prefetches_alone) v.insert(v.begin() + 1, kDepthAlone);
         std::erase_if(v, [&](int64_t block) { return block >= s.k_ && block != 0; });
         return v;
       }},
      {"row_block", "mc", "rows of an outer block; 0: all rows under each panel", &Setting::row_block, 0, kAnySize,
       true,
       [](S s) {
         Values v = s.tiles_ ? Values{0, 96, 192, 256, 384, 512} : Values{0, 96, 192, 384};
         std::erase_if(v, [&](int64_t block) { return 2 * block >= s.m_ && block != 0; });
         return v;
       }},
      {"pack_rows", "pa", "1: A is copied to [tile][k][row] first, so that its rows do not share the sets of a cache",
       &Setting::pack_rows, 0, 1, true, [](S s) { return values_if(s.rows_pack_ && s.m_ > 1, {0, 1}); }},
      {"prefetch", "pf",
       "bytes that B's stream, or rows that lie apart, are prefetched ahead; 0: not; -1: the next block of B instead, "
       "spread over the tiles",
       &Setting::prefetch, -1, kAnySize, true,
       [](S s) {
         if (s.in_place() && s.rows_apart()) {
           Values v = {0, 256, 512, 1024, -1};
           if (s.t_.prefetches_alone) v.push_back(s.next_rows());
           return v;
         }
         if (!s.packed() && s.dots_.columns != 0 && s.dots_.whole == 0) return Values{0, kNarrowAhead, kRowsAhead};
         if (!s.packed()) return values_if(is_const_int(s.p_.n->extent), {0, -1});
         return values_if(true, s.m_ <= kMaxOwnStream ? s.t_.slow_memory()
                                                            ? Values{0, 1024, 2048, 4096, 8192, -1}
                                                            : Values{0, 4096, 8192, 10240, 16384, 32768, -1}
                                                      : Values{0, -1});
       }},
      {"function_pass", "ep",
       "1: functions of the result are a pass of their own over scratch, in loops; 0: they are written out for each "
       "vector of the tile",
       &Setting::function_pass, 0, 1, true, [](S s) { return flag_if(s.functions()); }},
      {"join_tiles", "mu", "1: two to four tiles of short sums are one leaf; 0: a call each", &Setting::join_tiles, 0,
       1, true, [](S s) { return flag_if(s.may_join()); }},
      {"copy_panels", "pb",
       "1: each panel of a B that lies row-major is copied together before its tiles; 2: its first tile copies it; 0: "
       "read where it lies",
       &Setting::copy_panels, 0, 2, true,
       [](S s) {
         const bool tiles = s.m_ > 1 && is_const_int(s.p_.m->extent) && is_const_int(s.p_.n->extent);
         return !s.in_place() ? Values{} : tiles ? Values{0, kCopyPanel, kCopyFirst} : Values{0, kCopyPanel};
       }},
      {"share_heads", "gh",
       "1: heads that share B run under each panel, so that it is transposed or copied once for all; 0: head by head",
       &Setting::share_heads, 0, 1, true, [](S s) { return flag_if(!s.packed() && !s.p_.sharing.empty()); }},
      {"depth_sums", "dk",
       "1: the few columns beyond whole vectors (at most four), or the only ones, are summed along K; 0: they are a "
       "vector of their own",
       &Setting::depth_sums, 0, 1, true, [](S s) { return flag_if(s.dots_.columns != 0); }},
      {"dots", "dp",
       "1: products of bf16 are two a step, those of bytes four, of panels that hold them together; 2: those of a tile "
       "are one instruction; 0: one",
       &Setting::dots, 0, 2, true,
       [](S s) {
         if (s.step_ == 1) return Values{};
         Values v = {kSteps};
         if (s.tiles_) v.push_back(kTiles);
         if (!s.problem_.one_layout && !s.integers_) v.push_back(kSingle);
         return v;
       }},
      {"column_block", "nb",
       "columns whose panels take turns at blocks of K, so that rows of a row-major B are read along; 0: none",
       &Setting::column_block, 0, kAnySize, true,
       [](S s) {
         Values v = {0, 256, 512, 1024, 4096};
         if (!s.in_place()) v.insert(v.end(), {2 * s.t_.lanes, 3 * s.t_.lanes});
         std::erase_if(v, [&](int64_t block) { return block > s.n_ && block != 0; });
         if (const int64_t share = s.columns_of_a_thread(); share > 0) v.push_back(share);
         std::sort(v.begin(), v.end());
         v.erase(std::unique(v.begin(), v.end()), v.end());
         return !s.packed() && is_const_int(s.p_.n->extent) ? v : Values{};
       }},
      {"depth_parts", "sk",
       "parts of K that threads sum apart and that are added in order, for few columns and a long K; 1: all of K "
       "together",
       &Setting::depth_parts, 1, kMostParts, true, [](S s) { return s.parts_worth_trying(); }},
      {"row_lanes", "rl",
       "1: lanes are rows of A, which is transposed once, and elements of a B that lies along K are spread over them; "
       "0: lanes are columns",
       &Setting::row_lanes, 0, 1, true, [](S s) { return flag_if(s.has_row_lanes()); }}};
  return kTable;
}

// Too many leaves are one that masks every vector (search/cut/leaf_form.cc).
MatmulSketch::Tail MatmulSketch::last_tile(const Setting& k) const {
  const int64_t columns = k.tile_columns(), vectors = columns / t_.lanes;
  if (proves_divisible(this->columns(k), columns, Ranges(problem_.kernel))) return {};
  const bool fixed = is_const_int(p_.n->extent), few_rows = is_const_int(p_.m->extent) && k.row_block == 0;
  const bool own = (few_rows ? 2 : k.tile_rows) * (fixed ? 2 : 3) <= kMaxVariants;
  const int64_t rest = fixed ? n(k) % columns : columns - 1, live = own ? (rest + t_.lanes - 1) / t_.lanes : vectors;
  // A packed panel is read whole: only what is stored has a mask. Of constant columns the last vector has one.
  const int64_t masks = own && (fixed || packed()) ? (rest % t_.lanes != 0) : live;
  return {live, t_.mask_registers == 0 ? masks : 0};
}

// All columns are: what makes panels has one value; a single row is as many as there can be.
Status MatmulSketch::accepts_only_dots(const Setting& k) const {
  const Setting plain{.tile_rows = k.tile_rows,
                      .panel_columns = widths_.front(),
                      .row_block = k.row_block,
                      .prefetch = k.prefetch == kRowsAhead || k.prefetch == kNarrowAhead ? k.prefetch : 0,
                      .depth_sums = 1};
  if (k != plain) return unsupported("dk 1: there are no panels to choose");
  const int64_t most = std::min(most_dot_rows(dots_, t_), m_max_);
  if (k.tile_rows > most) return unsupported("mr {}: expected at most {} rows side by side", k.tile_rows, most);
  if (k.row_block != 0 && m_ <= 2 * k.row_block) return unsupported("mc {}: m is {}", k.row_block, m_);
  return {};
}

Status MatmulSketch::is_setting(const Setting& k) const {
  if (k.panel_columns < t_.lanes || k.panel_columns % t_.lanes != 0)
    return unsupported("nr {}: whole vectors of {}", k.panel_columns, t_.lanes);
  if (k.depth_sums != 0 && dots_.columns == 0) return unsupported("dk 1: no columns to be summed along K");
  if (k.dots != kSingle && step_ == 1) return unsupported("dp {}: no pairs of bf16, or they are not allowed", k.dots);
  if (k.dots == kTiles && !tiles_) return unsupported("dp 2: no tiles here, or not whole ones");
  return {};
}

// Sums of a block of columns wait together.
Status MatmulSketch::accepts_columns(const Setting& k) const {
  const int64_t nb = k.column_block;
  if (nb == 0) return {};
  if (packed() || !is_const_int(p_.n->extent)) return unsupported("nb {}: B is packed, or n varies", nb);
  if (k.depth_block == 0 || k.row_block != 0 || k.share_heads != 0 || k.depth_sums != 0)
    return unsupported("nb {}: expected a block of K, and whole columns of all rows", nb);
  if (nb > n_ || nb % k.panel_columns != 0) return unsupported("nb {}: n is {}, nr {}", nb, n_, k.panel_columns);
  if (m_max_ * nb * 4 > kMostWaiting) return unsupported("nb {}: too many sums of {} rows wait", nb, m_max_);
  return {};
}

Status MatmulSketch::accepts(const Setting& k) const {
  LATHE_RETURN_IF_ERROR(is_setting(k));
  if (k.dots == kTiles) return accepts_tiles(k);
  if (k.row_lanes != 0) return accepts_row_lanes(k);
  LATHE_RETURN_IF_ERROR(accepts_step(k));
  LATHE_RETURN_IF_ERROR(accepts_columns(k));
  LATHE_RETURN_IF_ERROR(accepts_parts(k));
  const int64_t mr = k.tile_rows, nr = k.panel_columns, st = k.streams, kc = k.depth_block, mc = k.row_block,
                pf = k.prefetch;
  const bool blocked = k.blocked() || k.depth_parts > 1;
  if (k.depth_sums != 0 && (k.share_heads != 0 || (k.pack_rows != 0 && mc == 0)))
    return unsupported("dk 1: what heads share, and rows that are packed at once, are all columns'");
  if (dots_.columns != 0 && dots_.whole == 0 && packed() && problem_.one_layout &&
      (k.depth_sums != 0) != (k_ >= t_.lanes)) {
    return unsupported("dk {}: not the layout of this weight", k.depth_sums);
  }
  if (only_dots(k)) return accepts_only_dots(k);
  if (k.function_pass != 0 && (!functions() || kc != 0 || !is_const_int(p_.k->extent)))
    return unsupported("ep 1: no functions, or K in blocks, or K varies");
  if (st > 1 && kc != 0) return unsupported("st {}: a K block is one panel's", st);
  if (st > 1 && (pf == -1 || (pf != 0 && st > 2)))
    return unsupported("pf {}: a tile prefetches two streams at most", pf);
  if (mr > m_max_) return unsupported("mr {}: more than m ever is ({})", mr, m_max_);
  const Tail tail = last_tile(k);
  const bool partial = tail.vectors != 0;
  for (const auto& [vectors, masks] : {Tail{vectors(k), 0}, tail}) {
    if (mr * vectors + vectors + 1 + masks + step_registers() > t_.vector_registers)
      return unsupported("mr {}: registers", mr);
    if (!blocked && mr * vectors + masks + epilogue_ > t_.vector_registers)
      return unsupported("mr {}: registers of the epilogue", mr);
  }
  const int64_t joined = k.join_tiles != 0 ? std::max<int64_t>(m_ / mr, 1) : 1;
  if (!blocked && k.function_pass == 0 &&
      joined * mr * std::max(vectors(k), tail.vectors) * function_bytes_ > kMostFunctionBytes)
    return unsupported("mr {}: the code of the functions for so many vectors", mr);
  if (std::find(widths_.begin(), widths_.end(), nr) == widths_.end())
    return unsupported("nr {}: not a width of this weight", nr);
  if (st > 1 && (!packed() || partial)) return unsupported("st {}: whole packed panels only", st);
  if (st > 1 && m_ > kMaxStreamed && (st > 2 || !problem_.one_layout))
    return unsupported("st {}: m is {}, and the weight may be packed wider", st, m_);
  // One vector that may be cut short: that the last of so many columns is not empty cannot be proved.
  if (partial && nr * st == t_.lanes && !is_const_int(p_.n->extent))
    return unsupported("nr {}: one vector, and n varies", nr);
  // A masked vector of a block is a leaf of its own for each row count.
  if (blocked && partial && mr * vectors(k) > kMaxVariants)
    return unsupported("kc {}: more than {} leaf variants", kc, kMaxVariants);
  if (k.blocked() && mr < 2 && k.column_block == 0) return unsupported("kc {}: partial sums of one row", kc);
  if (kc != 0 && kc >= k_) return unsupported("kc {}: K is {}", kc, k_);
  if (kc == 0 && part_depth(k) > kDeepest && m_ > 8) return unsupported("kc 0: a panel of K {} leaves the caches", k_);
  if (mc != 0 && (m_ <= 2 * mc || mc < mr)) return unsupported("mc {}: m is {}, mr {}", mc, m_, mr);
  if (k.pack_rows != 0 && (!rows_pack_ || mr < 2 || k_ < 2))
    return unsupported("pa 1: rows of A do not lie in one piece, or there is one");
  const bool one_row = is_const_int(p_.k->extent, 1);
  if (pf != 0 && one_row) return unsupported("pf {}: sums of one term read B once", pf);
  const bool rows = in_place() && rows_apart() && k.copy_panels != kCopyPanel && pf >= kLineBytes;
  if (pf != 0 && !packed() && !rows && (pf != -1 || k.column_block == 0))
    return unsupported("pf {}: B is not packed, nor read in rows that lie apart or in blocks", pf);
  if (pf == -1 && packed() && m_ <= mr) return unsupported("pf next: a single tile has nothing to share it with");
  if (k.join_tiles != 0 &&
      (!may_join() || blocked || mc != 0 || pf != 0 || m_ % mr != 0 || m_ <= mr || m_ > kMostJoined * mr)) {
    return unsupported("mu 1: not two to {} whole tiles with short sums", kMostJoined);
  }
  if (k.copy_panels != 0 && !in_place()) return unsupported("pb {}: B does not lie row-major", k.copy_panels);
  const bool one_panel = is_const_int(p_.n->extent) && n(k) <= nr;
  if (k.copy_panels != 0 && (m_ <= mr || one_panel || one_row))
    return unsupported("pb {}: one tile walks a panel, or a panel is all of B or one row", k.copy_panels);
  if (k.copy_panels == kCopyFirst && (k.column_block == 0 || k.dots != kSingle || !is_const_int(p_.m->extent)))
    return unsupported("pb 2: expected blocks of columns, and rows that do not vary");
  if (k.share_heads != 0 && (p_.sharing.empty() || !(k.copy_panels != 0 || panels_ == Panels::transposed)))
    return unsupported("gh 1: no heads share panels that are transposed or copied");
  if (k.share_heads != 0 && (blocked || mc != 0 || k.pack_rows != 0))
    return unsupported("gh 1: blocks of K or of rows, or packed rows, are one head's");
  if (pf > 0 && packed() && m_ > kMaxOwnStream)
    return unsupported("pf {}: own stream is for skinny shapes, m is {}", pf, m_);
  return {};
}

// The largest share of a thread over the mean one: panels, or blocks of rows where there are any, are dealt out whole.
double MatmulSketch::imbalance(const Setting& k) const {
  const int64_t threads = problem_.threads;
  if (threads <= 1) return 1;
  const int64_t unit = k.row_block != 0 ? k.block_rows() : k.tile_columns(),
                total = k.row_block != 0 ? m_ : n(k) * k.depth_parts;
  const int64_t blocks = (total + unit - 1) / unit, most = (blocks + threads - 1) / threads;
  return static_cast<double>(std::min(most * unit, total) * threads) / static_cast<double>(std::max<int64_t>(total, 1));
}

// Whether the tiles under a panel are a loop of one leaf (search/cut/leaf_form.cc).
bool MatmulSketch::loops_in_leaf(const Setting& k) const {
  const ir::Expr rows = k.row_block != 0 ? ir::Expr(k.block_rows()) : p_.m->extent;
  const Ranges ranges(problem_.kernel);
  return (k.prefetch == 0 || in_place()) && proves_divisible(rows, k.tile_rows, ranges) &&
         (k.row_block == 0 || proves_divisible(p_.m->extent, k.block_rows(), ranges));
}

MatmulWork MatmulSketch::work(const Setting& k, int64_t block_rows) const {
  if (k.row_lanes != 0) return row_lanes_work(k);
  MatmulWork w;
  w.m = static_cast<double>(m_);
  w.n = static_cast<double>(n(k));
  w.b_columns = static_cast<double>(n_);
  w.k = static_cast<double>(k_);
  w.mr = static_cast<double>(std::min(k.tile_rows, m_));
  w.vectors = static_cast<double>(vectors(k));
  w.width = static_cast<double>(k.panel_columns);
  w.panels = static_cast<double>(k.streams);
  w.kc = static_cast<double>(matmul_block_depth(k.depth_block, k_));
  w.mc = static_cast<double>(block_rows);
  w.prefetch = packed() ? k.prefetch : 0;
  w.scratch_sums = k.function_pass != 0;
  w.packs_rows = k.pack_rows != 0;
  w.transposes = panels_ == Panels::transposed;
  w.copies = k.copy_panels != 0;
  w.first_copies = k.copy_panels == kCopyFirst;
  for (const Stmt* s : p_.sharing)
    w.sharing *= k.share_heads != 0 ? static_cast<double>(extent_at(s->extent, problem_)) : 1;
  w.piecewise = !packed() && !w.copies && k.panel_columns < n_;
  w.in_place = in_place() && w.piecewise;
  w.split_lines = w.in_place ? matmul_split_lines(n_, k.panel_columns, b_bytes_) : 0;
  w.joined = k.join_tiles != 0;
  w.looped = loops_in_leaf(k);
  w.row_bytes = static_cast<double>(row_bytes_);
  w.a_element = static_cast<double>(a_bytes_);
  w.b_element = static_cast<double>(b_bytes_);
  w.column_block = static_cast<double>(k.column_block);
  w.cold = problem_.cold && (packed() || (in_place() && n_ * b_bytes_ >= kPage));
  w.threads = problem_.threads;
  return w;
}

double MatmulSketch::depth_sum_cycles(const Setting& k) const {
  if (!sums_along_depth(k)) return 0;
  DotsWork w;
  w.m = static_cast<double>(m_);
  w.columns = static_cast<double>(dots_.columns);
  w.k = static_cast<double>(k_);
  w.copied = (packed() && dots_.whole != 0) || dots_copy(p_, problem_.kernel);
  w.a_element = static_cast<double>(a_bytes_);
  w.b_bytes = static_cast<double>(n_ * k_ * b_bytes_);
  return dots_cycles(w, t_);
}

// A step is one element of its size.
MatmulCycles MatmulSketch::cycles(const MatmulWork& work, const Setting& k) const {
  if (k.dots == kTiles) return tile_cycles(work);
  if (k.row_lanes != 0) return row_lanes_cycles(work);
  MatmulWork w = work;
  if (k.dots != 0) {
    const auto step = static_cast<double>(step_);
    w.k /= step;
    w.kc /= step;
    w.a_element *= step;
    w.b_element *= step;
    if (!integers_) {
      w.latency = kPairLatency;
      // Beside tiles; products one by one convert their factors, which takes as long.
      if (t_.slow_pairs() && tiles_) w.cost = ir::Target::kSlowPair;
    }
  }
  return matmul_cycles(w, t_);
}

double MatmulSketch::estimate(const Setting& k) const {
  const double dots = depth_sum_cycles(k), spread = imbalance(k), threads = problem_.threads;
  if (only_dots(k)) return dots * (k.row_block != 0 ? spread : threads);
  MatmulWork part = work(k, k.block_rows());
  part.k = static_cast<double>(part_depth(k));
  const double parts = static_cast<double>(k.depth_parts);
  return cycles(part, k).total * parts * spread + (dots + joining_cycles(k)) * threads;
}

const Recipe kMatmulRecipe = {"panel", 1, MatmulSketch::matches, knob_table<MatmulSketch>,
                              make_sketch<MatmulSketch, kMatmulRecipe>};

}  // namespace lathe::search
