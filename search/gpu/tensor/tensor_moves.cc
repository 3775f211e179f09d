// See tensor_moves.h.
#include "search/gpu/tensor/tensor_moves.h"

#include <algorithm>

#include "search/gpu/swizzles.h"
#include "search/gpu/tensor/staged_results.h"

namespace lathe::search {

using ir::DType;

namespace {

constexpr int64_t kFloats = 4;    // elements that are computed, of an access
constexpr int64_t kAccesses = 8;  // of a line of 128 bytes
constexpr int64_t kSquare = 16, kColumns = 8, kLaneRows = 8, kLaneColumns = 2;

}  // namespace

void TensorMoves::knobs() {
  list_.knob("rows", t_.rows);
  list_.knob("columns", t_.columns);
  list_.knob("depth", depth_);
  list_.knob("warp_rows", t_.warp_rows);
  list_.knob("warp_columns", t_.warp_columns);
  if (t_.stages > 1) list_.knob("stages", t_.stages);
  if (t_.swapped) list_.knob("swapped", 1);
  if (t_.staged) list_.knob("staged", 1);
  if (t_.raster > 0) list_.knob("raster", t_.raster);
  if (t_.swizzled) list_.knob("swizzled", 1);
}

void TensorMoves::compute() {
  // The scopes of all sums; with stages, the last steps are apart.
  std::vector<std::string> steps = {""};
  if (t_.stages > 1) {
    list_.move("pipeline {}0 after={} stages={}", k_, p_.operands.size() - 1, t_.stages);
    steps.emplace_back("_e");
  }
  pad("i");
  for (const std::string& step : steps) pad("ik" + step);
  for (const std::string& step : steps) warps(step);
  for (const ProductOperand& s : p_.operands) {
    if (has_parts(s)) continue;
    if (t_.stages == 1) {
      copy(s, s.buffer + "_r");
      copy(s, s.buffer + "_s");
    } else {
      copy(s, s.buffer + "_s", "_p");
      copy(s, s.buffer + "_s", "_n");
    }
  }
  lanes("i", "exact");
  if (t_.staged) {
    stage_results(list_, p_, t_.warp_rows, t_.warp_columns, false, has_whole_columns());
  } else {
    lanes("ie", "mask");
  }
}

bool TensorMoves::is_made(const ProductOperand& s) const {
  return std::find(p_.made.begin(), p_.made.end(), s.buffer) != p_.made.end();
}

void TensorMoves::stage(bool launched, bool whole) {
  for (const ProductOperand& s : p_.operands) {
    list_.move("create_temporary {0} {0}_s at={1}0 mode=stage", s.buffer, k_);
  }
  // All loads of a step are on their way before the first of them is waited for.
  for (const ProductOperand& s : p_.operands) {
    if (t_.stages == 1 && !has_parts(s)) list_.move("create_temporary {0} {0}_r at={1}0 mode=stage", s.buffer, k_);
  }
  for (const std::string& made : p_.made) list_.move("inline_temporary {}", made);
  const ir::Expr& depth = p_.k->extent;
  whole = whole || (ir::is_const_int(depth) && depth->ival % depth_ == 0);
  if (bytes_ == 1) pad_lines();
  if (!whole) list_.move("fill_scope {}1", k_);
  for (const ProductOperand& s : p_.operands) {
    if (t_.stages == 1 && !has_parts(s)) list_.move("move_to_register {}_r {}0", s.buffer, k_);
    if (!launched) list_.move("move_to_stack {}_s {}0", s.buffer, k_);
  }
}

void TensorMoves::pad_lines() {
  for (const ProductOperand& s : p_.operands) {
    const char* reads = " reads=last";
    for (const char* copy : {"_r", "_s"}) {
      if (t_.stages > 1 && std::string_view(copy) == "_r") continue;
      const std::string lines = s.buffer + copy + "_0";
      if (!list_.is_constant(lines)) list_.move("pad_scope {}{}", lines, reads);
      reads = "";
    }
  }
}

std::string TensorMoves::product() const {
  if (bytes_ > 1) return type_of(kernel_, p_.operands[0].buffer) == DType::bf16 ? "mma_bf16" : "mma_f16";
  DType rows{}, columns{};
  for (const ProductOperand& s : p_.operands) (is_rows(s) ? rows : columns) = type_of(kernel_, s.buffer);
  return fmt::format("mma_{}_{}", dtype_name(rows), dtype_name(columns));
}

bool TensorMoves::has_whole_columns() const {
  const ir::Expr& columns = p_.n->extent;
  return ir::is_const_int(columns) && columns->ival % result_columns() == 0;
}

void TensorMoves::pad(const std::string& part) {
  list_.move("pad_scope {}{}", m_, part);
  if (!has_whole_columns()) list_.move("pad_scope {}{}", n_, part);
}

//   for k1: for mi: for ni  ->  for warps of rows: for warps of columns: for 16 terms: for squares: a square
void TensorMoves::warps(const std::string& step) {
  const std::string m = m_ + "ik" + step, n = n_ + "ik" + step, k = k_ + "1" + step, r = r_ + "ik" + step,
                    c = c_ + "ik" + step;
  list_.move("tile_scope {0} {1} tail=exact as {0}k,{0}t", k, 2 * in_access_);
  for (const auto& [of, lines, square] : {std::tuple{m, t_.swapped ? t_.warp_columns : t_.warp_rows, across(m_)},
                                          {n, t_.swapped ? t_.warp_rows : t_.warp_columns, across(n_)}}) {
    list_.move("tile_scope {0} {1} tail=exact as {0}w,{0}r", of, lines);
    list_.move("tile_scope {0}r {1} tail=exact as {0}q,{0}t", of, square);
  }
  std::vector<std::string> is = {k + "k", k + "t", m + "w", m + "q", m + "t", n + "w", n + "q", n + "t"},
                           wanted = {r + "w", c + "w", k + "k"};
  const bool parts = !parts_.second.empty();
  if (parts) is.push_back(parts_.second + step);
  if (parts) wanted.push_back(parts_.second + step);
  for (const std::string& s : {r + "q", c + "q", k + "t", r + "t", c + "t"}) wanted.push_back(s);
  list_.sort(is, wanted);
  for (const ProductOperand& s : p_.operands) {
    const std::string squares = s.buffer + "_f" + step;
    list_.move("create_temporary {0}_s {1} at={2}k mode=stage", s.buffer, squares, k);
    list_.move("move_to_register {} {}k", squares, k);
  }
  for (const std::string& s : {r, c}) {
    list_.move("parallelize_block {}w", s);
    list_.move("unroll_scope {}q", s);
  }
  list_.move("unroll_scope {}k", k);
  if (parts) list_.move("unroll_scope {}{}", parts_.second, step);
  for (const ProductOperand& s : p_.operands) squares(s, s.buffer + "_f" + step);
  list_.move("tensorize {}t {}", k, product());
}

int64_t TensorMoves::across(const std::string& iter) const { return iter == r_ ? kSquare : kColumns; }

void TensorMoves::share() {
  for (const ProductOperand& s : p_.operands) {
    list_.move("move_to_shared {}_s {}0", s.buffer, k_);
    // Eight lines lie in different banks.
    if (chunks(s) % 2 != 0) continue;
    if (!t_.swizzled) {
      list_.move("repeat_padding {}_s {} {}", s.buffer, outer_dims(s) + 1, in_access_);
      continue;
    }
    swizzle_lines(list_, s.buffer + "_s", outer_dims(s) + 1, chunks(s) * in_access_, bytes_);
  }
}

int64_t TensorMoves::chunks(const ProductOperand& s) const {
  return (s.terms_last ? depth_ : is_rows(s) ? t_.rows : t_.columns) / in_access_;
}

// Threads share out the copy of an operand, in vectors of neighbours.
void TensorMoves::copy(const ProductOperand& s, const std::string& name, const std::string& suffix) {
  const int64_t across = is_rows(s) ? t_.rows : t_.columns, vector = is_made(s) ? kFloats : in_access_;
  const int64_t inner = s.terms_last ? depth_ : across, outer = across * depth_ / inner;
  const int64_t down = std::max<int64_t>(1, std::min(outer, t_.threads() / (inner / vector)));
  const std::string lines = name + "_0" + suffix, neighbours = name + "_1" + suffix;
  list_.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", neighbours, vector);
  list_.move("tile_scope {0} {1} tail=mask as {0}r,{0}t", lines, down);
  // A quarter of a warp stores 128 bytes at a time: short lines so far from each other that their banks differ.
  const int64_t of_line = chunks(s);
  if (!t_.swizzled && of_line % 2 == 0 && of_line < kAccesses && down % kAccesses == 0) {
    list_.move("tile_scope {0}t {1} tail=mask as {0}o,{0}i", lines, kAccesses);
    list_.move("deal_scope {0}i {1} as {0}l,{0}h", lines, of_line);
    for (const char* of : {"o", "l", "h"}) list_.move("parallelize_block {}{}", lines, of);
  } else {
    list_.move("parallelize_block {}t", lines);
  }
  list_.move("unroll_scope {}r", lines);
  list_.move("parallelize_block {}c", neighbours);
  list_.move("vectorize_scope {}v", neighbours);
}

// A warp reads squares of what is staged, or halves of them where it has 8 lines.
void TensorMoves::squares(const ProductOperand& s, const std::string& name) {
  const bool half = !is_rows(s) && t_.warp_columns == kColumns;
  const int outer = outer_dims(s);
  const std::string lines = fmt::format("{}_{}", name, outer + (s.terms_last ? 0 : 1)),
                    first = fmt::format("{}_{}", name, outer);
  list_.move("tile_scope {0} {1} tail=exact as {0}q,{0}i", lines, half ? kColumns : kSquare);
  if (!s.terms_last) list_.move("swap_scopes {} {}q", first, lines);
  if (outer > 0) list_.move("unroll_scope {}_0", name);
  list_.move("unroll_scope {}q", lines);
  list_.move("tensorize {} ldmatrix{}{}{}", s.terms_last ? lines + "i" : first, bytes_ == 1 ? "_bytes" : "",
             half ? "_x2" : "", s.terms_last ? "" : "_trans");
}

// for mi: for ni  ->  for warps of rows: for warps of columns: for squares and lanes
void TensorMoves::lanes(const char* part, const char* tail) {
  const std::string r = r_ + part, c = c_ + part;
  list_.move("tile_scope {0} {1} tail={2} as {0}w,{0}r", r, t_.warp_rows, tail);
  list_.move("tile_scope {0}r {1} tail={2} as {0}q,{0}l", r, kLaneRows, tail);
  list_.move("tile_scope {0} {1} tail={2} as {0}w,{0}r", c, t_.warp_columns, tail);
  list_.move("tile_scope {0}r {1} tail={2} as {0}q,{0}s", c, kColumns, tail);
  list_.move("tile_scope {0}s {1} tail={2} as {0}l,{0}v", c, kLaneColumns, tail);
  const std::string rw = r + "w", rq = r + "q", rl = r + "l", cw = c + "w", cq = c + "q", cl = c + "l", cv = c + "v";
  std::vector<std::string> is =
      t_.swapped ? std::vector{cw, cq, cl, cv, rw, rq, rl} : std::vector{rw, rq, rl, cw, cq, cl, cv};
  list_.sort(is, {rw, cw, rq, rl, cq, cl, cv});
  for (const std::string& s : {rw, cw, rl, cl}) list_.move("parallelize_block {}", s);
  list_.move("unroll_scope {}", rq);
  list_.move("unroll_scope {}", cq);
  list_.move("vectorize_scope {}", cv);
}

}  // namespace lathe::search
