// See matmul_model.h. The figures below are those of current cores (two multiply-add pipes, two load ports); the text
// at each says what it stands for.
#include "search/sketches/matmul_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lathe::search {

namespace {

constexpr double kPipes = 2, kLoads = 1.85;          // multiply-adds, and loads in practice, a cycle
constexpr double kWindow = 448;                      // operations between the oldest unfinished one and the newest
constexpr double kFar = 24;                          // bytes a cycle from the last cache to one core
constexpr double kMemoryWait = 400, kFarWait = 200;  // cycles until a line arrives
constexpr double kNear = 32, kNearPiecewise = 27;    // bytes a cycle from L2; of pieces of rows
constexpr double kFewTiles = 2;                // that walk a panel: what comes first dominates, wherever the panel lies
constexpr double kCall = 16, kTileOfLoop = 8;  // of a leaf, and of a tile in its loop, until its pipes are full
constexpr double kScratchSum = 15;  // cycles of a vector of sums that blocks of K share: cleared, and copied out
constexpr double kPackRow = 1.5, kTranspose = 0.6;  // cycles per element copied
constexpr double kTransposeWhole = 0.16,
                 kTransposeWide = 0.19;            // in squares of 16: into panels of two vectors, and into wider ones
constexpr double kCopyRow = 3, kCopyVector = 0.5;  // cycles of a row of a panel, and of a vector of it
constexpr double kCopyInTile = 0.5;                // of a vector that the first tile stores as it reads it
constexpr double kLineOfPiece = 4.3;               // cycles until a line of a row of B that lies apart has come from L2
constexpr double kUsable = 0.75;                   // of a cache
constexpr double kFreeWay = 0.85,
                 kWaits = 3;  // use of the way into L1 up to which no line waits; what more of it costs
constexpr double kFarAhead = 0.45, kMostLost = 0.06;  // lines that L1 loses, of prefetches that run ahead of it
constexpr double kSecondThread = 1.35;                // what two cores read from memory over what one does

// What arithmetic hides of a stream that it overlaps: with prefetches in time, and without where the window is wide
// enough.
constexpr double kHides = 0.85, kWindowHides = 0.7, kHidesFarRows = 0.5, kHidesFirstWalk = 0.4, kHidesPanelAgain = 0.95;
// Where memory is slow: of two streams that are prefetched within a page, and of a next block, whose lines wait for
// those that come from L2. Two streams are read faster than one.
constexpr double kSlowHidesPage = 0.97, kSlowHidesNext = 0.65, kSlowTwoStreams = 0.9, kSlowNear = 15, kRowsInWindow = 4;
// Where the core's prefetcher keeps up with memory, by how much of the time the arithmetic waits for it: what it hides,
// and what lines cost that are asked for twice. A next block is asked for out of order.
constexpr double kHidesAlone = 2, kAsksAgain = 0.7, kAloneHidesNext = 0.5;
// Of a B that is read where it lies, in rows of a page and more.
constexpr double kApart = 1.6, kL2Ways = 16, kHidesAlong = 0.7;
constexpr int kLongLanes = 16;  // of vectors that are a whole line: what comes from L2 is there in time

struct Stream {
  double bytes = 0, rate = 1, wait = 0;  // of B; no bytes: it is near
  double cycles() const { return bytes / rate; }
};

double overlapped(double compute, double stream, double hidden) {
  return std::max(compute, stream) + (1 - hidden) * std::min(compute, stream);
}

// One block of rows under all panels.
class Model {
 public:
  Model(const MatmulWork& w, const ir::Target& t) : w_(w), t_(t) {
    columns_ = w.width * w.panels;
    tiles_across_ = std::ceil(w.n / columns_);
    whole_across_ = std::floor(w.n / columns_);
    tail_ = std::ceil((w.n - whole_across_ * columns_) / t.lanes);
    vectors_ = whole_across_ > 0 ? w.vectors : tail_;
    full_ = std::floor(w.m / w.mr);
    rest_ = w.m - full_ * w.mr;
    tiles_ = full_ + (rest_ > 0 ? 1 : 0);
    depth_ = w.kc > 0 ? w.kc : w.k;
    blocks_ = std::ceil(w.k / depth_);
    b_bytes_ = (whole_across_ * columns_ + tail_ * t.lanes) * w.k * w.b_element;
    if (w.cold) {
      stream_ = {b_bytes_, t.memory_rate * std::min<double>(w.threads, kSecondThread) / w.threads, kMemoryWait};
    } else if (b_bytes_ > kUsable * static_cast<double>(t.l2_bytes)) {
      stream_ = {b_bytes_, kFar, kFarWait};
    }
  }

  MatmulCycles cycles() const {
    double copies = 0;
    if (w_.packs_rows) copies += w_.m * w_.k * kPackRow;
    if (w_.transposes) copies += (whole_across_ * columns_ + tail_ * t_.lanes) * w_.k * transpose() / w_.sharing;
    if (w_.first_copies)
      copies += (whole_across_ * w_.vectors + tail_) * w_.k * kCopyInTile;
    else if (w_.copies)
      copies += (tiles_across_ * kCopyRow + (whole_across_ * w_.vectors + tail_) * kCopyVector) * w_.k / w_.sharing;
    return {arithmetic() + copies, pass() + copies, w_.cold ? stream_.cycles() : 0};
  }

 private:
  double transpose() const {
    return t_.lanes < kLongLanes ? kTranspose : w_.vectors > 2 ? kTransposeWide : kTransposeWhole;
  }

  double near() const { return w_.cold && t_.slow_memory() ? kSlowNear : w_.piecewise ? kNearPiecewise : kNear; }

  // B's block is read again by each tile, and L1 does not keep it.
  bool from_near() const {
    return tiles_ > 1 && 2 * columns_ * depth_ * w_.b_element > static_cast<double>(t_.l1_bytes);
  }

  // The same of a panel read where it lies, next to the rows of a tile; rows at a distance that shares sets have those
  // only.
  bool pieces_from_near() const {
    if (tiles_ <= kFewTiles || !w_.in_place) return false;
    const int64_t way = t_.l1_bytes / std::max(t_.l1_ways, 1);
    const double sets = std::min(
        1.0, piece() / static_cast<double>(std::gcd(static_cast<int64_t>(w_.b_element * std::max(w_.n, w_.b_columns)),
                                                    std::max<int64_t>(way, 1))));
    return (piece() + w_.a_element * w_.mr) * depth_ > kUsable * sets * static_cast<double>(t_.l1_bytes);
  }
  double vector_bytes() const { return w_.b_element * t_.lanes; }  // of B
  // Bytes of the lines that a panel's row touches.
  double piece() const { return w_.b_element * columns_ + 64 * w_.split_lines; }

  // Cycles of one step of a tile: its pipes, its loads with its prefetches, the wait for its own sums, B's way from L2.
  double step(double rows, double v) const {
    const double lines = w_.prefetch > 0 ? v : w_.prefetch < 0 ? std::ceil(4 * v / tiles_) / 4 : 0;
    const double busy =
        std::max({halves_ * w_.cost * rows * v / kPipes, (rows + halves_ * v + lines * vector_bytes() / 64) / kLoads,
                  w_.latency, from_near() ? v * vector_bytes() / near() : 0});
    return pieces_from_near() ? std::max(busy, kLineOfPiece * v / vectors_ * piece() / 64) : busy;
  }
  double enter() const { return w_.joined ? kCall / tiles_ : w_.looped ? kTileOfLoop : kCall; }
  // A tile over all of K: sums are stored once, and wait in scratch between blocks.
  double tile(double rows, double vectors) const {
    const double sums = rows * vectors;
    return step(rows, vectors) * w_.k * conflicts(rows) + blocks_ * (enter() + sums) +
           (blocks_ - 1 + (w_.scratch_sums ? 2 : 0)) * sums + (w_.kc > 0 ? kScratchSum * sums : 0);
  }

  // What hides of a next block that tiles share.
  double hides_next() const {
    return t_.slow_memory() ? kSlowHidesNext : t_.prefetches_alone ? kAloneHidesNext : kHides;
  }

  // A row of tiles under all panels: the last panel is as many vectors as have columns.
  double tiles(double rows) const {
    return whole_across_ * tile(rows, w_.vectors) + (tail_ > 0 ? tile(rows, tail_) : 0);
  }

  // How much of the next block finds the way into L1 free, next to what a tile reads of B from L2: lines wait for each
  // other from some use of the way on, and where it is always in use a third still gets through.
  double room(double rows) const {
    const double line = 64 / kNear, lines = std::ceil(4 * vectors_ / tiles_) / 4 * vector_bytes() / 64,
                 own = from_near() ? vectors_ * vector_bytes() / 64 : 0;
    const double use = (own + lines) * line / step(rows, vectors_);
    return std::clamp(1 - (use - kFreeWay) * kWaits, 0.35, 1.0);
  }

  // Rows of A at a distance that shares sets of L1: beyond the ways they come from L2 at each step; beyond two thirds
  // of them B, passing through the same sets, drives some out.
  double conflicts(double rows) const {
    const auto way = t_.l1_bytes / std::max(t_.l1_ways, 1);
    if (w_.packs_rows || way <= 0 || rows < 2) return 1;
    const double ways =
        rows * static_cast<double>(std::gcd(static_cast<int64_t>(w_.row_bytes), way)) / static_cast<double>(way);
    return ways > t_.l1_ways ? 1.15 : 3 * ways > 2 * t_.l1_ways ? 1.05 : 1;
  }

  // How much of B's stream the arithmetic next to it hides without prefetches: the lines the window holds over those on
  // their way.
  double window_hides(double rows) const {
    const double v = vectors_, operations = rows * v + (rows > 1 ? v : 0) + rows + 1.5;
    const double under_way = kWindow / operations * v * vector_bytes();
    return kWindowHides * std::min(1.0, under_way / (stream_.wait * stream_.rate));
  }

  // All tiles of a block of rows, under all panels: as if B were near, and as it is.
  double arithmetic() const {
    return full_ * tiles(w_.mr) + (rest_ > 0 ? tiles(rest_) : 0) + traffic_again() + first_walk();
  }
  double pass() const {
    if (stream_.bytes == 0) return arithmetic();
    const double whole = tiles(w_.mr), part = rest_ > 0 ? tiles(rest_) : 0, compute = full_ * whole + part;
    const double again = traffic_again();
    double memory = stream_.cycles() * streams() * walk();
    const double first_rows = full_ > 0 ? w_.mr : rest_, first = full_ > 0 ? whole : part, others = compute - first;
    if (w_.prefetch < 0) {
      // Each tile fetches an equal share of the next block: a short one waits for its share.
      const double share = memory / tiles_;
      const auto with = [&](double rows, double cycles) {
        return overlapped(cycles, share, hides_next() * kept() * room(rows));
      };
      return full_ * with(w_.mr, whole) + (rest_ > 0 ? with(rest_, part) : 0) + again;
    }
    if (w_.column_block > 0) return overlapped(compute, memory, kHidesAlong) + again;
    // Otherwise what comes from memory comes under the first tile; the others find it in a cache.
    // Where memory is slow the window holds too few lines of what more than a few rows need.
    double hidden = w_.cold && t_.slow_memory() && first_rows > kRowsInWindow ? 0 : window_hides(first_rows);
    const double waits = w_.cold && t_.prefetches_alone ? std::max(0.0, 1 - first / memory) : 0;
    hidden = std::max(hidden, std::min(1.0, kHidesAlone * waits));
    if (w_.prefetch > 0) {
      // In time: as many cycles ahead as some lines need that wait for each other, more where arithmetic and memory
      // take turns at being late. What the window would have held anyway is asked for twice, and so are lines that
      // wait long in L1.
      const double balance = std::min(first, memory) / std::max(first, memory),
                   needed = stream_.wait * (1.1 + 1.7 * balance * balance);
      const double lead = static_cast<double>(w_.prefetch) * w_.panels / stream_.rate,
                   late = std::max(0.0, 1 - lead / needed);
      if (hidden >= kWindowHides) memory *= 1.05;
      memory *= 1 + lost_again() + kAsksAgain * waits;
      hidden = (pages() ? kSlowHidesPage : kHides) - 0.2 * late;
      // Past its panel's end a stream runs into the next one, which only the last of several wants: the others start
      // anew.
      memory +=
          tiles_across_ * (w_.panels - 1) * (3 * stream_.wait + 2 * static_cast<double>(w_.prefetch) / stream_.rate);
    } else {
      memory += tiles_across_ * (w_.panels - 1) * stream_.wait;
    }
    return overlapped(first, memory, hidden) + others + again;
  }

  // How often B comes from where it lies, and how much longer it takes than what lies together: rows of a panel at a
  // distance are pages of their own; and a cache has only the sets of their addresses for them.
  double walk() const {
    if (!w_.piecewise && !w_.copies) return 1;
    if (w_.column_block > 0 || w_.b_element * w_.b_columns < kPage) return 1;
    if (w_.copies || tiles_ <= 1) return kApart;
    const double way = static_cast<double>(t_.l2_bytes) / kL2Ways,
                 apart = static_cast<double>(
                     std::gcd(static_cast<int64_t>(w_.b_element * w_.b_columns), static_cast<int64_t>(way)));
    const double rows = std::min(kL2Ways * way / apart, kUsable * static_cast<double>(t_.l2_bytes) / piece());
    return kApart * (depth_ > rows ? tiles_ : 1);
  }

  // What leaves L1 before a tile reads it, of lines that are fetched far ahead: none up to a fifth of L1.
  double lost_again() const {
    const double ahead = static_cast<double>(w_.prefetch) * w_.panels / static_cast<double>(t_.l1_bytes);
    return std::clamp(kFarAhead * (ahead - 0.21), 0.0, kMostLost);
  }

  // Two streams whose prefetches tell the hardware's prefetcher what to fetch of their pages.
  bool pages() const { return t_.slow_memory() && w_.panels == 2 && w_.prefetch > 0 && w_.prefetch < kPage; }

  // Several streams from memory are served side by side; with the rows of A the hardware's prefetcher follows half a
  // dozen.
  double streams() const {
    if (pages()) return kSlowTwoStreams;
    return w_.panels + w_.mr > 6 && w_.panels > 2 ? 1.04 : w_.panels >= 4 ? 1 : w_.panels >= 2 ? 1.02 : 1.05;
  }

  // The first tile under a panel finds it in L2, where L1 keeps it for the others.
  double first_walk() const {
    return from_near() || t_.lanes >= kLongLanes ? 0 : (1 - kHidesFirstWalk) * b_bytes_ / kNear;
  }

  double traffic_again() const { return rows_traffic() + panels_traffic(); }

  // What L2 does not keep of a block of B, next to the rows of a tile, each further tile reads from further away,
  // mostly hidden. From half of L2 on some is lost, from L2 on all.
  double panels_traffic() const {
    const double share = (columns_ * w_.b_element + w_.mr * w_.a_element) * depth_ / static_cast<double>(t_.l2_bytes);
    const double lost = std::clamp(2 * share - 1, 0.0, 1.0);
    return lost * (1 - kHidesPanelAgain) * (tiles_ - 1) * b_bytes_ / kFar;
  }

  // Rows of A beyond L1 come again from L2 for each panel, mostly hidden; beyond L2 from further away, half hidden.
  double rows_traffic() const {
    const double bytes = w_.m * w_.k * w_.a_element;
    if (2 * bytes * w_.sharing <= static_cast<double>(t_.l1_bytes)) return 0;
    if (bytes * w_.sharing > kUsable * static_cast<double>(t_.l2_bytes))
      return (1 - kHidesFarRows) * tiles_across_ * bytes / kFar;
    return (1 - kHides) * tiles_across_ * bytes / (2 * kNear);
  }

  // How much of the next block is still there when its turn comes: it shares L2 with the one that runs and what that
  // reads of A. From half of L2 on some is lost, since pages fall into its sets as they come.
  double kept() const {
    const double share =
        (2 * columns_ * w_.b_element + w_.m * w_.a_element) * depth_ / static_cast<double>(t_.l2_bytes);
    return std::clamp(1.15 - 0.5 * share, 0.4, 1.0);
  }

  const MatmulWork& w_;
  const ir::Target& t_;
  double halves_ = t_.halves(), columns_, tiles_across_, whole_across_, tail_, vectors_, full_, rest_, tiles_, depth_,
         blocks_, b_bytes_;
  Stream stream_;
};

}  // namespace

MatmulCycles matmul_cycles(const MatmulWork& work, const ir::Target& target) {
  MatmulWork block = work;
  block.m = work.mc > 0 ? std::min(work.mc, work.m) : work.m;
  const double blocks = std::floor(work.m / block.m), rest = work.m - blocks * block.m;
  const MatmulCycles whole = Model(block, target).cycles();
  MatmulCycles last;
  if (rest > 0) {
    block.m = rest;
    last = Model(block, target).cycles();
  }
  // A tile of another height, and masks, take a little beyond their share.
  const double edges =
      (std::fmod(block.m, work.mr) != 0 ? 1.015 : 1) * (std::fmod(work.n, target.lanes) != 0 ? 1.01 : 1);
  return {(blocks * whole.compute + last.compute) * edges, (blocks * whole.total + last.total) * edges,
          blocks * whole.memory + last.memory};
}

double matmul_split_lines(int64_t n, int64_t columns, int64_t element) {
  if (columns >= n) return 0;
  const int64_t line = std::max<int64_t>(64 / element, 1);  // elements
  return 1 - static_cast<double>(std::gcd(std::gcd(n, columns), line)) / static_cast<double>(line);
}

int64_t matmul_block_depth(int64_t kc, int64_t k) {
  if (kc <= 0 || kc >= k) return 0;
  const int64_t blocks = (k + kc - 1) / kc;
  return ((k + blocks - 1) / blocks + 7) / 8 * 8;
}

}  // namespace lathe::search
