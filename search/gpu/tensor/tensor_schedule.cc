// See tensor_schedule.h. A block of threads has a tile of the result, whose operands it stages in shared memory step by
// step; a warp reads squares of them and has the sums of its part in registers, shared out among its threads as the
// instruction wants them.
//
//   for m: for n: c = 0; for k: c += f32(a[m, k]) * f32(b[k, n]); y = f(c)
//     -> for mb @grid: for nb @grid: for threads: c[..] = 0
//          for k0: {a_r = a; b_r = b; a_s = a_r; b_s = b_r;
//                   for warps: for kk: {a_f = a_s @tensor(ldmatrix); b_f = b_s; c[..] += a_f * b_f @tensor(mma_bf16)}}
//          {the last terms, staged the same way, each thread for its own sums}
//          for threads: y = f(c)
//
// With stages the copies of later steps are on their way meanwhile (the move `pipeline`), and go to shared memory
// without registers. A swapped tile has columns of the result as rows of the instruction, which are 16 at least, and
// rows of the result as its columns, which are 8.
#include "search/gpu/tensor/tensor_schedule.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/split_sum.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kHalves = 8, kFloats = 4;  // elements of 2 bytes in an access of 16; those that are computed
constexpr int64_t kSquare = 16, kColumns = 8, kLaneRows = 8, kLaneColumns = 2;

class Writer {
 public:
  // whole: what the Schedule is of. kernel: that, or what it is once blocks share its sums over `summed`.
  Writer(const Kernel& whole, const Kernel& kernel, const ProductForm& product, const TensorTile& tile,
         std::string summed)
      : kernel_(kernel),
        p_(product),
        t_(tile),
        summed_(std::move(summed)),
        list_(whole, "tensor.1"),
        m_(p_.m->iter),
        n_(p_.n->iter),
        k_(p_.k->iter),
        r_(tile.swapped ? n_ : m_),
        c_(tile.swapped ? m_ : n_) {}

  Result<Scheduled> run() {
    list_.knob("rows", t_.rows);
    list_.knob("columns", t_.columns);
    list_.knob("depth", t_.depth);
    list_.knob("warp_rows", t_.warp_rows);
    list_.knob("warp_columns", t_.warp_columns);
    if (t_.stages > 1) list_.knob("stages", t_.stages);
    if (t_.swapped) list_.knob("swapped", 1);
    if (t_.terms > 0) split_sum(list_, summed_, t_.terms);
    tile_result(list_, p_, t_.swapped ? t_.columns : t_.rows, t_.swapped ? t_.rows : t_.columns, t_.depth);
    list_.move("tile_scope {0}2 {1} tail=mask as {0}z,{0}y", k_, tail_depth(t_));
    stage();
    launch();
    // The scopes of all sums; with stages, the last steps are apart.
    std::vector<std::string> steps = {""};
    if (t_.stages > 1) {
      list_.move("pipeline {}0 after={} stages={}", k_, p_.operands.size() - 1, t_.stages);
      steps.emplace_back("_e");
    }
    pad("i");
    for (const std::string& step : steps) pad("ik" + step);
    pad("ik_t");
    for (const std::string& step : steps) warps(step);
    for (const ProductOperand& s : p_.operands) {
      if (t_.stages == 1) {
        copy(s, s.buffer + "_r", t_.depth);
        copy(s, s.buffer + "_s", t_.depth);
      } else {
        copy(s, s.buffer + "_s", t_.depth, "_p");
        copy(s, s.buffer + "_s", t_.depth, "_n");
      }
      copy(s, s.buffer + "_t", tail_depth(t_));
    }
    lanes("i", "exact");
    lanes("ik_t", "exact");
    lanes("ie", "mask");
    if (t_.terms > 0) add_up_parts(list_, kernel_);
    return list_.finish();
  }

 private:
  DType type() const { return kernel_.find_buffer(p_.operands[0].buffer)->type; }
  bool is_made(const ProductOperand& s) const {
    return std::find(p_.made.begin(), p_.made.end(), s.buffer) != p_.made.end();
  }

  void stage() {
    for (const ProductOperand& s : p_.operands) {
      list_.move("create_temporary {0} {0}_s at={1}0 mode=stage", s.buffer, k_);
      list_.move("create_temporary {0} {0}_t at={1}z mode=stage", s.buffer, k_);
    }
    // All loads of a step are on their way before the first of them is waited for.
    for (const ProductOperand& s : p_.operands) {
      if (t_.stages == 1) list_.move("create_temporary {0} {0}_r at={1}0 mode=stage", s.buffer, k_);
    }
    for (const std::string& made : p_.made) list_.move("inline_temporary {}", made);
    for (const ProductOperand& s : p_.operands) {
      if (t_.stages == 1) list_.move("move_to_register {}_r {}0", s.buffer, k_);
      list_.move("move_to_stack {}_s {}0", s.buffer, k_);
      list_.move("move_to_stack {}_t {}z", s.buffer, k_);
    }
  }

  void pad(const std::string& part) {
    list_.move("pad_scope {}{}", m_, part);
    list_.move("pad_scope {}{}", n_, part);
  }

  //   for k1: for mi: for ni  ->  for warps of rows: for warps of columns: for 16 terms: for squares: a square
  // step: "_e" of the last steps.
  void warps(const std::string& step) {
    const std::string m = m_ + "ik" + step, n = n_ + "ik" + step, k = k_ + "1" + step, r = r_ + "ik" + step,
                      c = c_ + "ik" + step;
    list_.move("tile_scope {0} {1} tail=exact as {0}k,{0}t", k, kSquare);
    for (const auto& [of, lines, square] : {std::tuple{m, t_.swapped ? t_.warp_columns : t_.warp_rows, across(m_)},
                                            {n, t_.swapped ? t_.warp_rows : t_.warp_columns, across(n_)}}) {
      list_.move("tile_scope {0} {1} tail=exact as {0}w,{0}r", of, lines);
      list_.move("tile_scope {0}r {1} tail=exact as {0}q,{0}t", of, square);
    }
    sort({k + "k", k + "t", m + "w", m + "q", m + "t", n + "w", n + "q", n + "t"},
         {r + "w", c + "w", k + "k", r + "q", c + "q", k + "t", r + "t", c + "t"});
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
    for (const ProductOperand& s : p_.operands) squares(s, s.buffer + "_f" + step);
    list_.move("tensorize {}t {}", k, type() == DType::bf16 ? "mma_bf16" : "mma_f16");
  }
  // Lines of a square of the instruction along an iterator of the result.
  int64_t across(const std::string& iter) const { return iter == r_ ? kSquare : kColumns; }

  // Scopes that stand in each other alone, by exchanges of neighbours.
  void sort(std::vector<std::string> is, const std::vector<std::string>& wanted) {
    for (size_t at = 0; at < wanted.size(); ++at) {
      auto from = static_cast<size_t>(std::find(is.begin(), is.end(), wanted[at]) - is.begin());
      for (; from > at; --from) {
        list_.move("swap_scopes {} {}", is[from - 1], is[from]);
        std::swap(is[from - 1], is[from]);
      }
    }
  }

  void launch() {
    for (const Stmt* b : p_.batch) list_.move("parallelize_grid {}", b->iter);
    list_.move("parallelize_grid {}b", m_);
    list_.move("parallelize_grid {}b", n_);
    for (const ProductOperand& s : p_.operands) {
      list_.move("move_to_shared {}_s {}0", s.buffer, k_);
      list_.move("move_to_shared {}_t {}z", s.buffer, k_);
      // Eight lines lie in different banks.
      if (chunks(s, t_.depth) % 2 == 0) list_.move("repeat_padding {}_s 1 {}", s.buffer, kHalves);
      if (chunks(s, tail_depth(t_)) % 2 == 0) list_.move("repeat_padding {}_t 1 {}", s.buffer, kHalves);
    }
  }

  // Whether its lines are rows of the instruction.
  bool is_rows(const ProductOperand& s) const { return s.of_rows != t_.swapped; }

  // Accesses of 16 bytes in a line of what is staged.
  int64_t chunks(const ProductOperand& s, int64_t depth) const {
    return (s.terms_last ? depth : is_rows(s) ? t_.rows : t_.columns) / kHalves;
  }

  // Threads share out the copy of an operand, in vectors of neighbours. suffix: of its scopes.
  void copy(const ProductOperand& s, const std::string& name, int64_t depth, const std::string& suffix = "") {
    const int64_t across = is_rows(s) ? t_.rows : t_.columns, vector = is_made(s) ? kFloats : kHalves;
    const int64_t inner = s.terms_last ? depth : across, outer = across * depth / inner;
    const int64_t down = std::max<int64_t>(1, std::min(outer, t_.threads() / (inner / vector)));
    const std::string lines = name + "_0" + suffix, neighbours = name + "_1" + suffix;
    list_.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", neighbours, vector);
    list_.move("tile_scope {0} {1} tail=mask as {0}r,{0}t", lines, down);
    // A quarter of a warp stores 128 bytes at a time: short lines so far from each other that their banks differ.
    const int64_t of_line = chunks(s, depth);
    if (depth == t_.depth && of_line % 2 == 0 && of_line < kHalves && down % kHalves == 0) {
      list_.move("tile_scope {0}t {1} tail=mask as {0}o,{0}i", lines, kHalves);
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
  void squares(const ProductOperand& s, const std::string& name) {
    const bool half = !is_rows(s) && t_.warp_columns == kColumns;
    const std::string lines = fmt::format("{}_{}", name, s.terms_last ? 0 : 1);
    list_.move("tile_scope {0} {1} tail=exact as {0}q,{0}i", lines, half ? kColumns : kSquare);
    if (!s.terms_last) list_.move("swap_scopes {}_0 {}q", name, lines);
    list_.move("unroll_scope {}q", lines);
    list_.move("tensorize {} ldmatrix{}{}", s.terms_last ? lines + "i" : name + "_0", half ? "_x2" : "",
               s.terms_last ? "" : "_trans");
  }

  // for mi: for ni  ->  for warps of rows: for warps of columns: for squares and lanes
  void lanes(const char* part, const char* tail) {
    const std::string r = r_ + part, c = c_ + part;
    list_.move("tile_scope {0} {1} tail={2} as {0}w,{0}r", r, t_.warp_rows, tail);
    list_.move("tile_scope {0}r {1} tail={2} as {0}q,{0}l", r, kLaneRows, tail);
    list_.move("tile_scope {0} {1} tail={2} as {0}w,{0}r", c, t_.warp_columns, tail);
    list_.move("tile_scope {0}r {1} tail={2} as {0}q,{0}s", c, kColumns, tail);
    list_.move("tile_scope {0}s {1} tail={2} as {0}l,{0}v", c, kLaneColumns, tail);
    const std::string rw = r + "w", rq = r + "q", rl = r + "l", cw = c + "w", cq = c + "q", cl = c + "l", cv = c + "v";
    std::vector<std::string> is =
        t_.swapped ? std::vector{cw, cq, cl, cv, rw, rq, rl} : std::vector{rw, rq, rl, cw, cq, cl, cv};
    if (std::string_view(part) == "ik_t") {
      const std::string terms = k_ + "y";
      is.insert(is.begin(), terms);
      sort(is, {rw, cw, rl, cl, terms, rq, cq, cv});
    } else {
      sort(is, {rw, cw, rq, rl, cq, cl, cv});
    }
    for (const std::string& s : {rw, cw, rl, cl}) list_.move("parallelize_block {}", s);
    list_.move("unroll_scope {}", rq);
    list_.move("unroll_scope {}", cq);
    list_.move("vectorize_scope {}", cv);
  }

  const Kernel& kernel_;
  const ProductForm& p_;
  const TensorTile& t_;
  const std::string summed_;
  MoveList list_;
  const std::string m_, n_, k_;
  const std::string r_, c_;  // of m_ and n_: the rows of the instruction, and its columns
};

}  // namespace

Result<ProductForm> tensor_form(const Kernel& kernel, size_t nest) {
  LATHE_ASSIGN(ProductForm out, product_form(kernel, nest));
  const Stmt& term = out.k->body[0];
  const auto no = [&](const char* why) {
    return unsupported("{} is no product for tensor cores: {}", kernel.name, why);
  };
  if (out.operands.size() != 2 || out.operands[0].of_rows == out.operands[1].of_rows)
    return no("expected one operand of rows and one of columns");
  for (const Expr& factor : term.value->args) {
    const bool widened = factor->op == Op::k_cast && factor->type == DType::f32 && factor->args[0]->op == Op::k_load;
    if (!widened) return no("expected factors that are loaded and widened");
  }
  const DType type = kernel.find_buffer(out.operands[0].buffer)->type;
  if ((type != DType::bf16 && type != DType::f16) || kernel.find_buffer(out.operands[1].buffer)->type != type)
    return no("expected operands of bf16, or of f16");
  if (out.operands[0].dims != 2 || out.operands[1].dims != 2) return no("expected matrices");
  return out;
}

Result<ProductForm> tensor_form(const Kernel& kernel) {
  return tensor_form(kernel, std::max<size_t>(kernel.body.size(), 1) - 1);
}

Result<Scheduled> tensor_schedule(const GeneralKernel& general, const TensorTile& tile) {
  LATHE_RETURN_IF_ERROR(check_tile(tile));
  LATHE_ASSIGN(const ProductForm product, tensor_form(general.kernel));
  if (tile.stages > 1 && !is_given(general.kernel, product))
    return unsupported("{} makes an operand of its product, which goes to shared memory in one stage",
                       general.kernel.name);
  const std::string& summed = product.k->iter;
  if (tile.terms == 0) return Writer(general.kernel, general.kernel, product, tile, summed).run();
  LATHE_ASSIGN(const Kernel split, split_kernel(general.kernel, product, tile.terms));
  LATHE_ASSIGN(const ProductForm parts, tensor_form(split, split.body.size() - 2));
  return Writer(general.kernel, split, parts, tile, summed).run();
}

Result<std::vector<TensorTile>> tensor_tiles_of(const GeneralKernel& general, const SymbolValues& sizes,
                                                const GpuTarget& target) {
  LATHE_ASSIGN(const ProductForm product, tensor_form(general.kernel));
  ProductShape shape = shape_of(product, sizes);
  // Lines of other lengths begin anywhere.
  shape.copied = is_given(general.kernel, product) &&
                 std::all_of(product.operands.begin(), product.operands.end(), [&](const ProductOperand& o) {
                   return (o.terms_last ? shape.depth : o.of_rows ? shape.rows : shape.columns) % kHalves == 0;
                 });
  return ranked_tensor_tiles(shape, target);
}

Result<Scheduled> tensor_schedule(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target) {
  LATHE_ASSIGN(const std::vector<TensorTile> tiles, tensor_tiles_of(general, sizes, target));
  return tensor_schedule(general, tiles.front());
}

}  // namespace lathe::search
