// See decoded_schedule.h.
#include "search/gpu/weights/decoded_schedule.h"

#include <algorithm>
#include <bit>
#include <set>

#include "ir/analysis/analysis.h"
#include "search/gpu/gemv_schedule.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/tile_moves.h"
#include "search/gpu/weights/decoded_moves.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kLanes = 32, kBlock = 256, kChunk = kDecodedChunk, kThreads = 128;
constexpr int64_t kVectors[] = {8, 4};  // weights that are decoded at a time
constexpr int64_t kMostAtOnce = 4;      // blocks of a lane whose bytes are on their way

// So many of a lane's blocks, which they divide.
int64_t at_once_of(int64_t blocks) {
  int64_t out = std::min(blocks, kMostAtOnce);
  while (out > 1 && blocks % out != 0) --out;
  return std::max<int64_t>(out, 1);
}

class Writer {
 public:
  // vector: weights that are decoded at a time. loose: fields that are not staged.
  Writer(const GeneralKernel& general, const ProductForm& product, const DecodedWeight& weight,
         int64_t vector = kVectors[0], std::set<std::string> loose = {})
      : p_(product),
        w_(weight),
        vector_(vector),
        list_(general.kernel, "decoded.1"),
        moves_(list_, general, product, weight, std::move(loose)),
        m_(product.m->iter),
        n_(product.n->iter),
        k_(product.k->iter) {}

  Result<Scheduled> lines(int64_t block, int64_t few) {
    // As many blocks as there are, and a warp can take, and as many outputs as threads are left for.
    const int64_t depth = is_const_int(p_.k->extent) ? p_.k->extent->ival / block : kLanes;
    const int64_t blocks =
        std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(depth, 1)))), 1,
                            std::max<int64_t>(kLanes * kChunk / block, 1));
    list_.knob("few", few);
    list_.knob("block", block);
    list_.knob("blocks", blocks);
    list_.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", m_, few);
    list_.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", n_, kBlock * kChunk / (blocks * block));
    list_.move("swap_scopes {}i {}b", m_, n_);
    list_.move("swap_scopes {0}i {1}i", m_, n_);
    const std::string m = m_ + "i";
    list_.move("split_scope {0} after=1 as {0}e", m);
    list_.move("split_scope {0} after=0 as {0}k", m);
    list_.move("swap_scopes {}k {}", m, k_);
    list_.move("move_to_register {} {}i", p_.sum, n_);
    list_.move("tile_scope {0} {1} tail=exact as {0}b,{0}r", k_, block);
    std::vector<std::string> halves = moves_.halve(k_ + "r", k_, block, vector_);
    const std::string inner = std::exchange(halves.back(), {});
    halves.pop_back();
    const auto lane = halves.begin() + std::countr_zero(static_cast<uint64_t>(block / kChunk));
    const std::vector<std::string> lanes(halves.begin(), lane);
    halves.erase(halves.begin(), lane);
    list_.move("swap_scopes {} {}k", inner, m);
    list_.move("deal_scope {0}b {1} as {0}l,{0}t", k_, blocks);
    // Several at once where all lanes have as many.
    const int64_t at_once = block > kChunk || few > 1 || depth % blocks != 0 ? 1 : at_once_of(depth / blocks);
    if (at_once > 1) list_.knob("at_once", at_once);
    if (at_once > 1) list_.move("tile_scope {0}t {1} tail=exact as {0}to,{0}tu", k_, at_once);
    const std::string turn = at_once > 1 ? k_ + "tu" : k_ + "t";
    const std::string chunk = lanes.empty() ? turn : lanes.back();
    const std::string step = halves.back();
    list_.move("create_temporary {0} {0}_r at={1} mode=stage", w_.buffer, step);
    list_.move("move_to_register {}_r {}", w_.buffer, step);
    list_.move("inline_temporary {}", w_.buffer);
    for (const std::string& made : p_.made) {
      if (made != w_.buffer) list_.move("inline_temporary {}", made);
    }
    moves_.stage_fields(kChunk, chunk);
    list_.move("unroll_scope {}_r_0", w_.buffer);
    grid();
    list_.move("parallelize_block {}i", n_);
    list_.move("parallelize_block {}l", k_);
    for (const std::string& l : lanes) list_.move("parallelize_block {}", l);
    if (at_once > 1) list_.move("unroll_scope {}tu", k_);
    for (const std::string& h : halves) list_.move("unroll_scope {}", h);
    list_.move("vectorize_scope {}", inner);
    for (const char* part : {"", "k", "e"}) list_.move("unroll_scope {}{}", m, part);
    return list_.finish();
  }

  //   for mb @grid: for nb @grid: c[..] = 0
  //     for k0: {a_s = a; w_s = decode(q); for threads: for k1: c[..] += a_s * w_s}; for threads: y = f(c)
  Result<Scheduled> tiles(int64_t block, int64_t rows) {
    list_.knob("rows", rows);
    list_.knob("block", block);
    list_.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", m_, rows);
    list_.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", n_, TileMoves::kColumns);
    list_.move("swap_scopes {}i {}b", m_, n_);
    TileMoves tiles(list_, m_, n_, k_);
    tiles.apart(p_.sum, n_ + "b");
    if (block > kChunk) list_.move("tile_scope {0} {1} tail=exact as {0}b,{0}r", k_, block);
    list_.move("tile_scope {0}{1} {2} tail=exact as {0}0,{0}1", k_, block > kChunk ? "r" : "", kChunk);
    const std::string k0 = k_ + "0", a = activations();
    for (const std::string& x : {a, w_.buffer}) list_.move("create_temporary {0} {0}_s at={1} mode=stage", x, k0);
    for (const std::string& made : p_.made) list_.move("inline_temporary {}", made);
    for (const std::string& x : {a, w_.buffer}) list_.move("move_to_stack {}_s {}", x, k0);
    grid();
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
    return list_.finish();
  }

  int64_t block() const { return moves_.block(); }
  const StagedFields& staged() const { return moves_.staged(); }

  // A thread for each output.
  Result<Scheduled> outputs() {
    list_.knob("threads", kThreads);
    list_.move("tile_scope {0} {1} tail=mask as {0}b,{0}t", n_, kThreads);
    list_.move("move_to_register {} {}t", p_.sum, n_);
    for (const std::string& made : p_.made) list_.move("inline_temporary {}", made);
    for (const Stmt* b : p_.batch) list_.move("parallelize_grid {}", b->iter);
    list_.move("parallelize_grid {}", m_);
    list_.move("parallelize_grid {}b", n_);
    list_.move("parallelize_block {}t", n_);
    return list_.finish();
  }

 private:
  std::string activations() const {
    for (const ProductOperand& o : p_.operands)
      if (o.buffer != w_.buffer) return o.buffer;
    return "";
  }

  // Threads of a warp have the same terms of neighbouring lines.
  void copy_weight(const std::string& x) {
    std::vector<std::string> halves = moves_.halve(x + "_1", x, kChunk, vector_);
    for (size_t i = 0; i + 1 < halves.size(); ++i) list_.move("swap_scopes {}_0 {}", x, halves[i]);
    moves_.stage_fields(vector_, x + "_0");
    for (size_t i = 0; i + 1 < halves.size(); ++i) list_.move("parallelize_block {}", halves[i]);
    list_.move("parallelize_block {}_0", x);
    list_.move("unroll_scope {}", halves.back());
  }

  void grid() {
    for (const Stmt* b : p_.batch) list_.move("parallelize_grid {}", b->iter);
    list_.move("parallelize_grid {}b", m_);
    list_.move("parallelize_grid {}b", n_);
  }

  const ProductForm& p_;
  const DecodedWeight& w_;
  const int64_t vector_;
  MoveList list_;
  DecodedMoves moves_;
  const std::string m_, n_, k_;
};

}  // namespace

Result<Scheduled> decoded_schedule(const GeneralKernel& general, const SymbolValues& sizes) {
  LATHE_ASSIGN(const ProductForm product, product_form(general.kernel));
  LATHE_ASSIGN(const DecodedWeight weight, decoded_weight(general.kernel, product));
  const int64_t rows = std::max<int64_t>(shape_of(product, sizes).rows, 1),
                block = Writer(general, product, weight).block();
  if (block == 0) return unsupported("the terms of {} are no whole blocks of a power of two", general.kernel.name);
  const auto round_up = [](int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); };
  const auto by = [&](int64_t vector, std::set<std::string>& loose) -> Result<Scheduled> {
    // What is staged of a field is a thread's own, or the field is read where it is used.
    for (;;) {
      Writer writer(general, product, weight, vector, loose);
      Result<Scheduled> made =
          rows <= kFewLines ? writer.lines(block, round_up(rows))
                            : writer.tiles(block, std::clamp(round_up(rows), TileMoves::kSide, TileMoves::kColumns));
      if (!made.ok()) return made;
      if (!add_loose(made->kernel, writer.staged(), loose)) return made;
    }
  };
  // Bytes of words have bits of fewer neighbours: no more of these are one run of a field.
  std::set<std::string> loose, fewer;
  Result<Scheduled> made = by(kVectors[0], loose);
  const bool words = std::any_of(loose.begin(), loose.end(), [&](const std::string& field) {
    return general.kernel.find_buffer(field)->dims.size() == 2;
  });
  if (made.ok() && !words) return made;
  Result<Scheduled> other = by(kVectors[1], fewer);
  return other.ok() && (!made.ok() || fewer.size() < loose.size()) ? std::move(other) : std::move(made);
}

Result<Scheduled> outputs_schedule(const GeneralKernel& general, const SymbolValues&) {
  LATHE_ASSIGN(const ProductForm product, product_form(general.kernel));
  LATHE_ASSIGN(const DecodedWeight weight, decoded_weight(general.kernel, product));
  return Writer(general, product, weight).outputs();
}

}  // namespace lathe::search
