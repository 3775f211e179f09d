// See decoded_tensor.h.
#include "search/gpu/tensor/decoded_tensor.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "search/gpu/gemv_schedule.h"
#include "search/gpu/split_sum.h"
#include "search/gpu/tensor/tensor_moves.h"
#include "search/gpu/tile_moves.h"
#include "search/gpu/tile_rounds.h"
#include "search/gpu/weights/decoded_moves.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kParts = 3, kPadding = 8;
constexpr int64_t kVector = 4, kShares = kDecodedChunk / kVector;  // terms that a thread decodes of a line; of a line
constexpr int64_t kMostSums = 64;                                  // of a thread
constexpr int64_t kMostBlock = 256;                                // terms that fields lie by
constexpr int64_t kStaticBytes = 48 * 1024;

int64_t columns_of(const TensorTile& t) { return t.swapped ? t.rows : t.columns; }
int64_t rows_of(const TensorTile& t) { return t.swapped ? t.columns : t.rows; }
int64_t bytes_of(const TensorTile& t) {
  return t.stages * 2 * (kDecodedChunk + kPadding) * (rows_of(t) + kParts * columns_of(t));
}

Status check_decoded(const TensorTile& t) {
  LATHE_RETURN_IF_ERROR(check_tile(t));
  if (t.depth != kDecodedChunk) return invalid("a depth of {}, expected {}", t.depth, kDecodedChunk);
  if (t.warp_rows * t.warp_columns > kMostSums * 32)
    return invalid("{}x{} sums of a warp, expected at most {}", t.warp_rows, t.warp_columns, kMostSums * 32);
  if (t.stages == 1 && bytes_of(t) > kStaticBytes)
    return invalid("{} bytes of shared memory, expected at most {}", bytes_of(t), kStaticBytes);
  return {};
}

struct Form {
  ProductForm product;
  DecodedWeight weight;
  std::string rows;
};
// Of the product's nest.
Result<Form> form_of(const Kernel& kernel, const ProductForm& product) {
  Form out;
  out.product = product;
  LATHE_ASSIGN(out.weight, decoded_weight(kernel, out.product));
  for (const ProductOperand& o : out.product.operands) {
    const Buffer& b = *kernel.find_buffer(o.buffer);
    if (o.buffer == out.weight.buffer) continue;
    if (!out.rows.empty() || b.type != DType::bf16 || b.place == Place::heap || o.dims != 2 || !o.terms_last ||
        !o.of_rows)
      return unsupported("{}: expected rows of bf16 that are given", kernel.name);
    out.rows = o.buffer;
  }
  const std::vector<Expr>& factors = out.product.k->body[0].value->args;
  const bool widened = std::any_of(factors.begin(), factors.end(), [&](const Expr& f) {
    return &unwidened(f) != &f && unwidened(f)->name == out.rows;
  });
  if (out.rows.empty() || !widened) return unsupported("{}: expected rows of bf16 that are given", kernel.name);
  return out;
}

Result<Form> form_of(const Kernel& kernel) {
  LATHE_ASSIGN(const ProductForm product, product_form(kernel));
  return form_of(kernel, product);
}

// Outputs that do not vary in number are whole tiles.
bool fits(const Form& form, const TensorTile& t) {
  const Expr& outputs = form.product.n->extent;
  return !is_const_int(outputs) || outputs->ival % columns_of(t) == 0;
}

class Writer {
 public:
  // kernel: the general one, or what it is once blocks share its sums over `summed`.
  Writer(const GeneralKernel& general, const Kernel& kernel, const Form& form, const TensorTile& tile,
         std::string summed, std::set<std::string> loose)
      : kernel_(kernel),
        form_(form),
        t_(tile),
        summed_(std::move(summed)),
        list_(general.kernel, "decoded_tensor.1"),
        product_(parts_of(form)),
        moves_(list_, kernel, product_, tile, {product_.operands[1].buffer, product_.k->iter + "h"}),
        decoded_(list_, general, form.product, form.weight, std::move(loose)) {}

  Result<Scheduled> run() {
    const int64_t block = decoded_.block(true);
    if (block == 0) return unsupported("the terms are no whole blocks of a power of two");
    if (!fits(form_, t_))
      return unsupported("{} outputs, expected whole tiles of {}", print(product_.n->extent), moves_.result_columns());
    const std::string &m = product_.m->iter, &n = product_.n->iter, &k = product_.k->iter;
    moves_.knobs();
    list_.knob("block", block);
    if (t_.terms > 0) split_sum(list_, summed_, t_.terms);
    list_.move("split_factor {0} {1} as {0}_p,{1}h", form_.weight.buffer, k);
    list_.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", m, moves_.result_rows());
    list_.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", n, moves_.result_columns());
    list_.move("swap_scopes {}i {}b", m, n);
    TileMoves(list_, m, n, k).apart(product_.sum, n + "b");
    if (block > kDecodedChunk) list_.move("tile_scope {0} {1} tail=exact as {0}b,{0}r", k, block);
    list_.move("tile_scope {0}{1} {2} tail=exact as {0}0,{0}1", k, block > kDecodedChunk ? "r" : "", kDecodedChunk);
    moves_.stage(false, true);
    for (const Stmt* b : product_.batch) list_.move("parallelize_grid {}", b->iter);
    list_.move("parallelize_grid {}b", m);
    list_.move("parallelize_grid {}b", n);
    moves_.share();
    decode();
    moves_.compute();
    if (t_.terms > 0) add_up_parts(list_, kernel_);
    return list_.finish();
  }
  const StagedFields& staged() const { return decoded_.staged(); }

 private:
  static ProductForm parts_of(const Form& form) {
    ProductForm out = form.product;
    const std::string parts = form.weight.buffer + "_p";
    out.operands = {{form.rows, true, 2, true}, {parts, false, 2, true}};
    std::erase(out.made, form.weight.buffer);
    out.made.insert(out.made.begin(), parts);
    return out;
  }

  // A thread has 4 terms of a line, and pairs of threads 8, so that a half of a warp stores to different banks.
  void decode() {
    const std::string w = form_.weight.buffer, x = w + "_p_s", parts = x + "_0", lines = x + "_1";
    const std::vector<std::string> halves = decoded_.halve(x + "_2", x, kDecodedChunk, kVector);
    const std::string &pair = halves[halves.size() - 2], &inner = halves.back();
    list_.move("swap_scopes {} {}", parts, lines);
    for (size_t i = 0; i + 1 < halves.size(); ++i) list_.move("swap_scopes {} {}", parts, halves[i]);
    for (size_t i = 0; i + 2 < halves.size(); ++i) list_.move("swap_scopes {} {}", lines, halves[i]);
    list_.move("create_temporary {0} {0}_r at={1} mode=stage", w, pair);
    list_.move("move_to_register {}_r {}", w, pair);
    list_.move("inline_temporary {}", w);
    decoded_.stage_fields(kVector, pair);
    list_.move("tile_scope {0} {1} tail=mask as {0}r,{0}t", lines,
               std::min(moves_.result_columns(), t_.threads() / kShares));
    for (size_t i = 0; i + 1 < halves.size(); ++i) list_.move("parallelize_block {}", halves[i]);
    list_.move("parallelize_block {}t", lines);
    list_.move("unroll_scope {}r", lines);
    list_.move("unroll_scope {}", parts);
    list_.move("vectorize_scope {}", inner);
    list_.move("unroll_scope {}_r_0", w);
  }

  const Kernel& kernel_;
  const Form& form_;
  const TensorTile& t_;
  const std::string summed_;
  MoveList list_;
  const ProductForm product_;
  TensorMoves moves_;
  DecodedMoves decoded_;
};

Result<Scheduled> scheduled(const GeneralKernel& general, const Form& whole, const TensorTile& tile) {
  return whole_or_split(
      general.kernel, whole.product, tile.terms, product_form,
      [&](const Kernel& kernel, const ProductForm& product, const std::string& summed) -> Result<Scheduled> {
        LATHE_ASSIGN(const Form form, form_of(kernel, product));
        // What is staged of a field is a thread's own, or the field is read where it is used.
        std::set<std::string> loose;
        for (;;) {
          Writer writer(general, kernel, form, tile, summed, loose);
          Result<Scheduled> made = writer.run();
          if (!made.ok() || !add_loose(made->kernel, writer.staged(), loose)) return made;
        }
      });
}

}  // namespace

Result<Scheduled> decoded_tensor(const GeneralKernel& general, const TensorTile& tile) {
  LATHE_RETURN_IF_ERROR(check_decoded(tile));
  LATHE_ASSIGN(const Form form, form_of(general.kernel));
  return scheduled(general, form, tile);
}

Result<std::vector<TensorTile>> decoded_tiles_of(const GeneralKernel& general, const SymbolValues& sizes,
                                                 const GpuTarget& target) {
  constexpr double kDecode = 20;    // instructions of a thread for a weight
  constexpr double kThreads = 128;  // that a multiprocessor runs in a cycle
  LATHE_ASSIGN(const Form form, form_of(general.kernel));
  const ProductShape shape = shape_of(form.product, sizes, general.most);
  if (shape.rows <= kFewLines) return unsupported("{} rows, expected more than {}", shape.rows, kFewLines);
  std::vector<TensorTile> all, tiles;
  std::vector<double> cycles;
  for (TensorTile t : tensor_tiles()) {
    t.stages = 2;
    all.push_back(t);
    // Parts of whole blocks; all loads of a step are waited for, while other blocks go on.
    t.stages = 1;
    for (const int64_t parts : {2, 4, 8, 16}) {
      if (shape.depth % (parts * kMostBlock) != 0) break;
      t.terms = shape.depth / parts;
      if (shape.has_room_for(t.terms)) all.push_back(t);
    }
  }
  for (const TensorTile& t : all) {
    if (!check_decoded(t).ok() || bytes_of(t) > most_shared(target) || !fits(form, t)) continue;
    const auto blocks = static_cast<double>(shape.batch * ceil_div(shape.rows, rows_of(t)) *
                                            ceil_div(std::max<int64_t>(shape.columns, 1), columns_of(t)));
    const double parts = t.terms > 0 ? static_cast<double>(shape.depth / t.terms) : 1;
    const double decoded = blocks * static_cast<double>(columns_of(t) * std::max<int64_t>(shape.depth, 1)) * kDecode /
                           kThreads /
                           std::min(blocks * parts, static_cast<double>(std::max(target.multiprocessors, 1)));
    tiles.push_back(t);
    cycles.push_back(static_cast<double>(kParts) * tensor_cycles(t, shape, target) + decoded);
  }
  if (tiles.empty()) return unsupported("{} has outputs that are no whole tiles", general.kernel.name);
  return ranked(tiles, cycles);
}

Result<Scheduled> decoded_tensor(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target) {
  LATHE_ASSIGN(const std::vector<TensorTile> tiles, decoded_tiles_of(general, sizes, target));
  LATHE_ASSIGN(const Form form, form_of(general.kernel));
  return scheduled(general, form, tiles.front());
}

}  // namespace lathe::search
