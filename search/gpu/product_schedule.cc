// See product_schedule.h.
#include "search/gpu/product_schedule.h"

#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/split_sum.h"
#include "search/gpu/thread_schedule.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kVector = 4;  // elements of 4 bytes in an access of 16
constexpr int64_t kTurned = 2;  // vectors of a line that neighbouring threads turn round

// f32 goes to shared memory without registers.
bool is_copied(const Kernel& kernel, const ProductForm& product) {
  return is_given(kernel, product) &&
         std::all_of(product.operands.begin(), product.operands.end(),
                     [&](const ProductOperand& o) { return kernel.find_buffer(o.buffer)->type == DType::f32; });
}

class Writer {
 public:
  // whole: what the Schedule is of. kernel: that, or what it is once blocks share its sums over `summed`.
  Writer(const Kernel& whole, const Kernel& kernel, const ProductForm& product, const ProductTile& tile,
         std::string summed)
      : kernel_(kernel),
        p_(product),
        t_(tile),
        summed_(std::move(summed)),
        integers_(kernel.find_buffer(product.sum)->type == DType::i32),
        list_(whole, integers_ ? "integers.1" : "tiles.1"),
        m_(p_.m->iter),
        n_(p_.n->iter),
        k_(p_.k->iter),
        stages_(is_copied(kernel, product) && !tile.ahead ? product_stages(tile) : 1) {}

  Result<Scheduled> run() {
    list_.knob("rows", t_.rows);
    list_.knob("columns", t_.columns);
    list_.knob("depth", t_.depth);
    list_.knob("thread_rows", t_.thread_rows);
    list_.knob("thread_columns", t_.thread_columns);
    if (stages_ > 1) list_.knob("stages", stages_);
    if (t_.ahead) list_.knob("ahead", 1);
    if (integers_) LATHE_RETURN_IF_ERROR(share_out_before(list_, kernel_));
    if (t_.terms > 0) split_sum(list_, summed_, t_.terms);
    tile_result(list_, p_, t_.rows, t_.columns, t_.depth, true);
    stage();
    // The scopes of all sums; with stages, the last steps are apart.
    std::vector<std::string> sums = {"i", "ik", "ik_t"};
    const size_t copies = t_.ahead ? 2 * p_.operands.size() : p_.operands.size();
    if (stages_ > 1 || t_.ahead) {
      list_.move("pipeline {}0 after={} stages={}", k_, copies - 1, t_.ahead ? 2 : stages_);
      sums.insert(sums.begin() + 2, "ik_e");
    }
    // Sums first: what is stored meanwhile goes to another place.
    for (size_t i = 0; t_.ahead && i < p_.operands.size(); ++i) list_.move("swap_ops {}0 {}", k_, copies - 1 - i);
    for (const ProductOperand& s : p_.operands) {
      if (integers_) pad(s);
    }
    for (const std::string& part : sums) {
      list_.move("pad_scope {}{}", m_, part);
      list_.move("pad_scope {}{}", n_, part);
    }
    for (const ProductOperand& s : p_.operands) {
      if (t_.ahead) {
        for (const char* step : {"_p", "_n"}) {
          copy(s, s.buffer + "_r", s.dims, step);
          copy(s, s.buffer + "_s", s.dims, step);
        }
      } else if (stages_ == 1) {
        copy(s, s.buffer + "_r", s.dims);
        copy(s, s.buffer + "_s", s.dims);
      } else {
        copy(s, s.buffer + "_s", s.dims, "_p");
        copy(s, s.buffer + "_s", s.dims, "_n");
      }
      if (s.dims == 2 && s.terms_last) turn(s.buffer + "_s");
      copy(s, s.buffer + "_t", 1);
    }
    for (const std::string& part : sums) threads(part, "exact");
    threads("ie", "mask");
    list_.move("unroll_scope {}1", k_);  // not of the last steps: the code would be twice as long
    if (t_.terms > 0) add_up_parts(list_, kernel_);
    return list_.finish();
  }

 private:
  void stage() {
    for (const ProductOperand& s : p_.operands) {
      list_.move("create_temporary {0} {0}_s at={1}0 mode=stage", s.buffer, k_);
      list_.move("create_temporary {0} {0}_t at={1}2 mode=stage", s.buffer, k_);
    }
    // All loads of a step are on their way before the first of them is waited for.
    for (const ProductOperand& s : p_.operands) {
      if (stages_ == 1) list_.move("create_temporary {0} {0}_r at={1}0 mode=stage", s.buffer, k_);
    }
    for (const std::string& made : p_.made) list_.move("inline_temporary {}", made);
    for (const ProductOperand& s : p_.operands) {
      if (stages_ == 1) list_.move("move_to_register {}_r {}0", s.buffer, k_);
      list_.move("move_to_stack {}_s {}0", s.buffer, k_);
      list_.move("move_to_stack {}_t {}2", s.buffer, k_);
    }
    for (const Stmt* b : p_.batch) list_.move("parallelize_grid {}", b->iter);
    list_.move("parallelize_grid {}b", m_);
    list_.move("parallelize_grid {}b", n_);
    for (const ProductOperand& s : p_.operands) {
      list_.move("move_to_shared {}_s {}0", s.buffer, k_);
      list_.move("move_to_shared {}_t {}2", s.buffer, k_);
    }
  }

  // Lines beyond the edge are zeros: integers that nothing wrote have no value.
  void pad(const ProductOperand& s) {
    const int across = s.dims == 2 && !s.terms_last ? 1 : 0;
    pad(fmt::format("{}_r_{}", s.buffer, across), " reads=on");
    pad(fmt::format("{}_s_{}", s.buffer, across), "");
    pad(fmt::format("{}_t_0", s.buffer), " reads=on");
  }
  void pad(const std::string& scope, const char* reads) {
    if (!list_.is_constant(scope)) list_.move("pad_scope {}{}", scope, reads);
  }

  // Threads share out the copy of an operand, in vectors of neighbours. What rows or columns of the result are read of
  // it at once lies together. Where that turns the operand round, a warp has two vectors of 16 lines: with 4
  // elements of padding theirs lie in 32 banks.
  // suffix: of its scopes.
  void copy(const ProductOperand& s, const std::string& name, int dims, const std::string& suffix = "") {
    const int64_t across = s.of_rows ? t_.rows : t_.columns;
    const int64_t inner = dims == 2 && s.terms_last ? t_.depth : across,
                  outer = dims == 2 ? across * t_.depth / inner : 1;
    const std::string last = fmt::format("{}_{}{}", name, dims - 1, suffix);
    list_.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", last, kVector);
    const bool turned = dims == 2 && s.terms_last;
    int64_t vectors = inner / kVector;
    const char* along = "c";
    if (turned && vectors > kTurned) {
      list_.move("tile_scope {0}c {1} tail=exact as {0}u,{0}p", last, kTurned);
      list_.move("unroll_scope {}u", last);
      vectors = kTurned;
      along = "p";
    }
    if (dims == 2) {
      const int64_t down = std::max<int64_t>(1, std::min(outer, t_.threads() / vectors));
      const std::string line = fmt::format("{}_0{}", name, suffix);
      list_.move("tile_scope {0} {1} tail=mask as {0}r,{0}t", line, down);
      list_.move("parallelize_block {}t", line);
      list_.move("unroll_scope {}r", line);
    }
    list_.move("parallelize_block {}{}", last, along);
    list_.move("vectorize_scope {}v", last);
  }

  // Lines of terms become columns; places of a ring stay outside.
  void turn(const std::string& name) {
    const int first = stages_ > 1 || t_.ahead ? 1 : 0;
    list_.move("swap_dims {} {} {}", name, first, first + 1);
    list_.move("repeat_padding {} {} {}", name, first, kVector);
  }

  // for mi: for ni  ->  for threads of rows: for threads of columns: for rows: for vectors: for lanes
  void threads(const std::string& part, const char* tail) {
    const std::string m = m_ + part, n = n_ + part;
    list_.move("tile_scope {0} {1} tail={2} as {0}t,{0}r", m, t_.thread_rows, tail);
    const bool several = t_.thread_columns > kVector, exact = std::string_view(tail) == "exact";
    if (several)
      list_.move("tile_scope {0} {1} tail={2} as {0}q,{0}p", n, t_.columns * kVector / t_.thread_columns, tail);
    list_.move("tile_scope {0}{1} {2} tail={3} as {0}t,{0}v", n, several ? "p" : "", kVector, tail);
    if (exact) {
      if (several) list_.move("swap_scopes {0}q {0}t", n);
      list_.move("swap_scopes {}r {}t", m, n);
    }
    if (part == "ik" || part == "ik_e") {
      const std::string terms = k_ + "1" + part.substr(2);
      list_.move("swap_scopes {} {}t", terms, m);
      list_.move("swap_scopes {} {}t", terms, n);
    }
    list_.move("parallelize_block {}t", m);
    list_.move("parallelize_block {}t", n);
    list_.move("unroll_scope {}r", m);
    if (several) list_.move("unroll_scope {}q", n);
    list_.move("vectorize_scope {}v", n);
  }

  const Kernel& kernel_;
  const ProductForm& p_;
  const ProductTile& t_;
  const std::string summed_;
  const bool integers_;
  MoveList list_;
  const std::string m_, n_, k_;
  const int64_t stages_;
};

}  // namespace

Result<Scheduled> product_schedule(const GeneralKernel& general, const ProductTile& tile) {
  LATHE_RETURN_IF_ERROR(check_tile(tile));
  LATHE_ASSIGN(const ProductForm product, product_form(general.kernel));
  return whole_or_split(general.kernel, product, tile.terms, product_form,
                        [&](const Kernel& kernel, const ProductForm& form, const std::string& summed) {
                          return Writer(general.kernel, kernel, form, tile, summed).run();
                        });
}

Result<Scheduled> integer_schedule(const GeneralKernel& general, const ProductTile& tile) {
  LATHE_RETURN_IF_ERROR(check_tile(tile));
  if (tile.terms > 0 || tile.ahead) return unsupported("sums of integers have no parts, and no step ahead");
  LATHE_ASSIGN(const ProductForm product, integer_form(general.kernel));
  return Writer(general.kernel, general.kernel, product, tile, {}).run();
}

Result<std::vector<ProductTile>> tiles_of_integers(const GeneralKernel& general, const SymbolValues& sizes,
                                                   const GpuTarget& target) {
  LATHE_ASSIGN(const ProductForm product, integer_form(general.kernel));
  ProductShape shape = shape_of(product, sizes, general.most);
  shape.most_results = HUGE_VAL;  // no room for parts
  return ranked_tiles(shape, target);
}

Result<Scheduled> integer_schedule(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target) {
  LATHE_ASSIGN(const std::vector<ProductTile> tiles, tiles_of_integers(general, sizes, target));
  return integer_schedule(general, tiles.front());
}

Result<std::vector<ProductTile>> tiles_of_product(const GeneralKernel& general, const SymbolValues& sizes,
                                                  const GpuTarget& target) {
  LATHE_ASSIGN(const ProductForm product, product_form(general.kernel));
  ProductShape shape = shape_of(product, sizes, general.most);
  shape.copied = is_copied(general.kernel, product);
  for (const ProductOperand& o : product.operands) {
    if (o.dims == 2 && o.terms_last) (o.of_rows ? shape.turned_rows : shape.turned_columns) = true;
  }
  return ranked_tiles(shape, target);
}

Result<Scheduled> product_schedule(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target) {
  LATHE_ASSIGN(const std::vector<ProductTile> tiles, tiles_of_product(general, sizes, target));
  return product_schedule(general, tiles.front());
}

}  // namespace lathe::search
