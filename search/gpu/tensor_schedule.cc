// Products of matrices of bf16 or f16 on tensor cores, with what is fused around them: a block of threads has a tile of
// the result, whose operands it stages in shared memory step by step; a warp reads squares of them and has the sums of
// its part in registers, shared out among its threads as the instruction wants them.
//
//   for m: for n: c = 0; for k: c += f32(a[m, k]) * f32(b[k, n]); y = f(c)
//     -> for mb @grid: for nb @grid: for threads: c[..] = 0
//          for k0: {a_r = a; b_r = b; a_s = a_r; b_s = b_r;
//                   for warps: for kk: {a_f = a_s @tensor(ldmatrix); b_f = b_s; c[..] += a_f * b_f @tensor(mma_bf16)}}
//          {the last terms, staged the same way, each thread for its own sums}
//          for threads: y = f(c)
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/product_schedule.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kHalves = 8, kFloats = 4;  // elements of 2 bytes in an access of 16; those that are computed
constexpr int64_t kSquare = 16, kColumns = 8, kLaneRows = 8, kLaneColumns = 2;

class Writer {
 public:
  Writer(const Kernel& kernel, const ProductForm& product, const TensorTile& tile)
      : kernel_(kernel),
        p_(product),
        t_(tile),
        list_(kernel, "tensor.1"),
        m_(p_.m->iter),
        n_(p_.n->iter),
        k_(p_.k->iter) {}

  Result<Scheduled> run() {
    list_.knob("rows", t_.rows);
    list_.knob("columns", t_.columns);
    list_.knob("depth", t_.depth);
    list_.knob("warp_rows", t_.warp_rows);
    list_.knob("warp_columns", t_.warp_columns);
    tile_result(list_, p_, t_.rows, t_.columns, t_.depth);
    list_.move("tile_scope {0}2 {1} tail=mask as {0}z,{0}y", k_, tail_depth(t_));
    stage();
    launch();
    for (const char* scope : {"{0}i", "{0}ik", "{0}ik_t"}) {
      list_.move("pad_scope {}", fmt::format(fmt::runtime(scope), m_));
      list_.move("pad_scope {}", fmt::format(fmt::runtime(scope), n_));
    }
    warps();
    for (const ProductOperand& s : p_.operands) {
      copy(s, s.buffer + "_r", t_.depth);
      copy(s, s.buffer + "_s", t_.depth);
      copy(s, s.buffer + "_t", tail_depth(t_));
      squares(s);
    }
    list_.move("tensorize {}t {}", k_, type() == DType::bf16 ? "mma_bf16" : "mma_f16");
    lanes("i", "exact");
    lanes("ik_t", "exact");
    lanes("ie", "mask");
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
    for (const ProductOperand& s : p_.operands)
      list_.move("create_temporary {0} {0}_r at={1}0 mode=stage", s.buffer, k_);
    for (const std::string& made : p_.made) list_.move("inline_temporary {}", made);
    for (const ProductOperand& s : p_.operands) {
      list_.move("move_to_register {}_r {}0", s.buffer, k_);
      list_.move("move_to_stack {}_s {}0", s.buffer, k_);
      list_.move("move_to_stack {}_t {}z", s.buffer, k_);
    }
  }

  //   for k1: for mi: for ni  ->  for warps of rows: for warps of columns: for 16 terms: for squares: a square
  void warps() {
    const std::string m = m_ + "ik", n = n_ + "ik";
    list_.move("tile_scope {0}1 {1} tail=exact as {0}k,{0}t", k_, kSquare);
    list_.move("tile_scope {0} {1} tail=exact as {0}w,{0}r", m, t_.warp_rows);
    list_.move("tile_scope {0}r {1} tail=exact as {0}q,{0}t", m, kSquare);
    list_.move("tile_scope {0} {1} tail=exact as {0}w,{0}r", n, t_.warp_columns);
    list_.move("tile_scope {0}r {1} tail=exact as {0}q,{0}t", n, kColumns);
    const std::string order[] = {k_ + "k", k_ + "t", m + "w", m + "q", m + "t", n + "w", n + "q", n + "t"};
    sort({order[0], order[1], order[2], order[3], order[4], order[5], order[6], order[7]},
         {order[2], order[5], order[0], order[3], order[6], order[1], order[4], order[7]});
    for (const ProductOperand& s : p_.operands) {
      list_.move("create_temporary {0}_s {0}_f at={1}k mode=stage", s.buffer, k_);
      list_.move("move_to_register {}_f {}k", s.buffer, k_);
    }
    for (const std::string& s : {m, n}) {
      list_.move("parallelize_block {}w", s);
      list_.move("unroll_scope {}q", s);
    }
    list_.move("unroll_scope {}k", k_);
  }

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
      // Rows of eight squares lie in different banks.
      list_.move("repeat_padding {}_s 1 {}", s.buffer, kHalves);
      list_.move("repeat_padding {}_t 1 {}", s.buffer, kHalves);
    }
  }

  // Threads share out the copy of an operand, in vectors of neighbours.
  void copy(const ProductOperand& s, const std::string& name, int64_t depth) {
    const int64_t across = s.of_rows ? t_.rows : t_.columns, vector = is_made(s) ? kFloats : kHalves;
    const int64_t inner = s.terms_last ? depth : across, outer = across * depth / inner;
    const int64_t down = std::max<int64_t>(1, std::min(outer, t_.threads() / (inner / vector)));
    list_.move("tile_scope {0}_1 {1} tail=mask as {0}_1c,{0}_1v", name, vector);
    list_.move("tile_scope {0}_0 {1} tail=mask as {0}_0r,{0}_0t", name, down);
    list_.move("parallelize_block {}_0t", name);
    list_.move("unroll_scope {}_0r", name);
    list_.move("parallelize_block {}_1c", name);
    list_.move("vectorize_scope {}_1v", name);
  }

  // A warp reads squares of what is staged.
  void squares(const ProductOperand& s) {
    const std::string lines = fmt::format("{}_f_{}", s.buffer, s.terms_last ? 0 : 1);
    list_.move("tile_scope {0} {1} tail=exact as {0}q,{0}i", lines, kSquare);
    if (!s.terms_last) list_.move("swap_scopes {}_f_0 {}q", s.buffer, lines);
    list_.move("unroll_scope {}q", lines);
    if (s.terms_last) {
      list_.move("tensorize {}i ldmatrix", lines);
    } else {
      list_.move("tensorize {}_f_0 ldmatrix_trans", s.buffer);
    }
  }

  // for mi: for ni  ->  for warps of rows: for warps of columns: for squares and lanes
  void lanes(const char* part, const char* tail) {
    const std::string m = m_ + part, n = n_ + part;
    list_.move("tile_scope {0} {1} tail={2} as {0}w,{0}r", m, t_.warp_rows, tail);
    list_.move("tile_scope {0}r {1} tail={2} as {0}q,{0}l", m, kLaneRows, tail);
    list_.move("tile_scope {0} {1} tail={2} as {0}w,{0}r", n, t_.warp_columns, tail);
    list_.move("tile_scope {0}r {1} tail={2} as {0}q,{0}s", n, kColumns, tail);
    list_.move("tile_scope {0}s {1} tail={2} as {0}l,{0}v", n, kLaneColumns, tail);
    const std::vector<std::string> is = {m + "w", m + "q", m + "l", n + "w", n + "q", n + "l", n + "v"};
    if (std::string_view(part) == "ik_t") {
      const std::string terms = k_ + "y";
      sort({terms, is[0], is[1], is[2], is[3], is[4], is[5], is[6]},
           {is[0], is[3], is[2], is[5], terms, is[1], is[4], is[6]});
    } else {
      sort(is, {is[0], is[3], is[1], is[2], is[4], is[5], is[6]});
    }
    for (const size_t i : {0, 3, 2, 5}) list_.move("parallelize_block {}", is[i]);
    list_.move("unroll_scope {}", is[1]);
    list_.move("unroll_scope {}", is[4]);
    list_.move("vectorize_scope {}", is[6]);
  }

  const Kernel& kernel_;
  const ProductForm& p_;
  const TensorTile& t_;
  MoveList list_;
  const std::string m_, n_, k_;
};

// A product of two matrices of one type of 2 bytes, each a factor that is widened.
Result<ProductForm> tensor_form(const Kernel& kernel) {
  LATHE_ASSIGN(ProductForm out, product_form(kernel));
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

}  // namespace

Result<Scheduled> tensor_schedule(const GeneralKernel& general, const TensorTile& tile) {
  LATHE_RETURN_IF_ERROR(check_tile(tile));
  LATHE_ASSIGN(const ProductForm product, tensor_form(general.kernel));
  return Writer(general.kernel, product, tile).run();
}

Result<std::vector<TensorTile>> tensor_tiles_of(const GeneralKernel& general, const SymbolValues& sizes,
                                                const GpuTarget& target) {
  LATHE_ASSIGN(const ProductForm product, tensor_form(general.kernel));
  return ranked_tensor_tiles(shape_of(product, sizes), target.multiprocessors);
}

Result<Scheduled> tensor_schedule(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target) {
  LATHE_ASSIGN(const std::vector<TensorTile> tiles, tensor_tiles_of(general, sizes, target));
  return tensor_schedule(general, tiles.front());
}

}  // namespace lathe::search
