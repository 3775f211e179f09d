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

constexpr int64_t kParts = 3, kPadding = 8;                        // of a weight that is not rounded
constexpr int64_t kVector = 4, kShares = kDecodedChunk / kVector;  // terms that a thread decodes of a line; of a line
constexpr int64_t kMostSums = 64;                                  // of a thread
constexpr int64_t kMostBlock = 256;                                // terms that fields lie by
constexpr int64_t kStaticBytes = 48 * 1024;

int64_t columns_of(const TensorTile& t) { return t.swapped ? t.rows : t.columns; }
int64_t rows_of(const TensorTile& t) { return t.swapped ? t.columns : t.rows; }
int64_t parts_of(bool rounded) { return rounded ? 1 : kParts; }
int64_t bytes_of(const TensorTile& t, bool rounded) {
  return t.stages * 2 * (kDecodedChunk + kPadding) * (rows_of(t) + parts_of(rounded) * columns_of(t));
}

Status check_decoded(const TensorTile& t, bool rounded) {
  LATHE_RETURN_IF_ERROR(check_tile(t));
  if (t.depth != kDecodedChunk) return invalid("a depth of {}, expected {}", t.depth, kDecodedChunk);
  if (t.warp_rows * t.warp_columns > kMostSums * 32)
    return invalid("{}x{} sums of a warp, expected at most {}", t.warp_rows, t.warp_columns, kMostSums * 32);
  if (t.stages == 1 && bytes_of(t, rounded) > kStaticBytes)
    return invalid("{} bytes of shared memory, expected at most {}", bytes_of(t, rounded), kStaticBytes);
  return {};
}

// The rows are given, of bf16, or of f32 where they are rounded.
Status check_rows(const Kernel& kernel, const DecodedForm& form, bool rounded) {
  const auto no = [&] {
    return unsupported("{}: expected rows of bf16{} that are given", kernel.name, rounded ? ", or of f32," : "");
  };
  std::string rows;
  for (const ProductOperand& o : form.product.operands) {
    const Buffer& b = *kernel.find_buffer(o.buffer);
    if (o.buffer == form.weight.buffer) continue;
    const bool narrow = b.type == DType::bf16 || (rounded && b.type == DType::f32);
    if (!rows.empty() || !narrow || b.place == Place::heap || o.dims != 2 || !o.terms_last || !o.of_rows) return no();
    rows = o.buffer;
  }
  const std::vector<Expr>& factors = form.product.k->body[0].value->args;
  const bool alone = std::any_of(factors.begin(), factors.end(), [&](const Expr& f) {
    return unwidened(f)->op == Op::k_load && unwidened(f)->name == rows;
  });
  return rows.empty() || !alone ? no() : Status();
}

Result<DecodedForm> form_of(const Kernel& kernel, bool rounded) {
  LATHE_ASSIGN(DecodedForm out, decoded_form(kernel));
  LATHE_RETURN_IF_ERROR(check_rows(kernel, out, rounded));
  return out;
}

// Outputs that do not vary in number are whole tiles.
bool fits(const DecodedForm& form, const TensorTile& t) {
  const Expr& outputs = form.product.n->extent;
  return !is_const_int(outputs) || outputs->ival % columns_of(t) == 0;
}

class Writer {
 public:
  // kernel: the general one, or what it is once blocks share its sums over `summed`.
  Writer(const GeneralKernel& general, const Kernel& kernel, const DecodedForm& form, const TensorTile& tile,
         bool rounded, std::string summed, std::set<std::string> loose)
      : kernel_(kernel),
        form_(form),
        t_(tile),
        rounded_(rounded),
        rounds_rows_(rounded && kernel.find_buffer(form.activations())->type == DType::f32),
        summed_(std::move(summed)),
        list_(general.kernel, "decoded_tensor.1"),
        product_(made_of(form)),
        moves_(list_, kernel, product_, tile, {product_.operands[1].buffer, rounded ? "" : product_.k->iter + "h"}),
        decoded_(list_, general, form.product, form.weight, std::move(loose)) {}

  Result<Scheduled> run() {
    const int64_t block = decoded_.block(true);
    if (block == 0) return unsupported("the terms are no whole blocks of a power of two");
    if (!fits(form_, t_))
      return unsupported("{} outputs, expected whole tiles of {}", print(product_.n->extent), moves_.result_columns());
    const std::string &m = product_.m->iter, &n = product_.n->iter, &k = product_.k->iter;
    moves_.knobs();
    list_.knob("block", block);
    if (rounded_) list_.knob("rounded", 1);
    if (rounded_) list_.move("round_factors {}", summed_);
    if (t_.terms > 0) split_sum(list_, summed_, t_.terms);
    if (rounds_rows_) list_.move("hold_rounded {0} {1} as {0}_h", form_.activations(), k);
    if (rounded_) list_.move("hold_rounded {0} {1} as {2}", form_.weight.buffer, k, product_.operands[1].buffer);
    if (!rounded_) list_.move("split_factor {0} {1} as {2},{1}h", form_.weight.buffer, k, product_.operands[1].buffer);
    tile_decoded(list_, form_, moves_.result_rows(), moves_.result_columns());
    TileMoves(list_, m, n, k).apart(product_.sum, form_.tile());
    if (block > kDecodedChunk) list_.move("tile_scope {0} {1} tail=exact as {0}b,{0}r", k, block);
    list_.move("tile_scope {0}{1} {2} tail=exact as {0}0,{0}1", k, block > kDecodedChunk ? "r" : "", kDecodedChunk);
    moves_.stage(form_.groups.has_value(), true);
    launch_decoded(list_, form_);
    moves_.share();
    decode();
    moves_.compute();
    if (t_.terms > 0) add_up_parts(list_, kernel_);
    return list_.finish();
  }
  const StagedFields& staged() const { return decoded_.staged(); }

 private:
  // Of the factors as they are multiplied, which the first moves make.
  ProductForm made_of(const DecodedForm& form) const {
    ProductForm out = form.product;
    const std::string rows = form.activations() + (rounds_rows_ ? "_h" : ""),
                      weights = form.weight.buffer + (rounded_ ? "_h" : "_p");
    out.operands = {{rows, true, 2, true}, {weights, false, 2, true}};
    std::erase(out.made, form.weight.buffer);
    if (rounds_rows_) out.made.insert(out.made.begin(), rows);
    out.made.insert(out.made.begin(), weights);
    return out;
  }

  // The half of a step whose terms share elements of fields with those of the other half, such as nibbles of bytes, so
  // that a thread has 4 terms of each; 0: there is none, or there are too few lines for so few threads.
  size_t twin_of(const std::vector<std::string>& halves) const {
    const int64_t lines = std::min(moves_.result_columns(), t_.threads() / kShares * 2);
    if (lines * kShares / 2 < t_.threads()) return halves.size();
    const int64_t alone = decoded_.elements_of(DecodedMoves::first_terms(kVector));
    int64_t apart = kDecodedChunk / 2;
    for (size_t i = 0; i + 2 < halves.size(); ++i, apart /= 2) {
      if (decoded_.elements_of(twins(apart)) == alone) return i;
    }
    return halves.size();
  }
  static std::vector<int64_t> twins(int64_t apart) {
    std::vector<int64_t> out = DecodedMoves::first_terms(kVector);
    for (int64_t i = 0; i < kVector; ++i) out.push_back(apart + i);
    return out;
  }

  // A thread has 4 terms of a line, or twice 4, and pairs of threads 8, so that a half of a warp stores to different
  // banks.
  void decode() {
    const std::string w = form_.weight.buffer, x = product_.operands[1].buffer + "_s", parts = rounded_ ? "" : x + "_0",
                      lines = x + (rounded_ ? "_0" : "_1");
    std::vector<std::string> halves = decoded_.halve(x + (rounded_ ? "_1" : "_2"), x, kDecodedChunk, kVector);
    const size_t twin = twin_of(halves);
    const std::string inner = halves.back(), pair = halves[halves.size() - 2],
                      both = twin < halves.size() ? halves[twin] : "";
    halves.pop_back();
    std::vector<std::string> is = halves, wanted = halves;
    is.insert(is.begin(), lines);
    wanted.pop_back();
    std::erase(wanted, both);
    wanted.push_back(lines);
    wanted.push_back(pair);
    if (!both.empty()) wanted.push_back(both);
    if (!rounded_) is.insert(is.begin(), parts);
    if (!rounded_) wanted.push_back(parts);
    list_.sort(is, wanted);
    const std::string at = both.empty() ? pair : both;
    list_.move("create_temporary {0} {0}_r at={1} mode=stage", w, at);
    list_.move("move_to_register {}_r {}", w, at);
    list_.move("inline_temporary {}", w);
    decoded_.stage_fields(both.empty() ? DecodedMoves::first_terms(kVector) : twins(kDecodedChunk >> (twin + 1)), pair);
    list_.move("tile_scope {0} {1} tail=mask as {0}r,{0}t", lines,
               std::min(moves_.result_columns(), t_.threads() / kShares * (both.empty() ? 1 : 2)));
    std::erase(halves, both);
    for (const std::string& of_thread : halves) list_.move("parallelize_block {}", of_thread);
    list_.move("parallelize_block {}t", lines);
    list_.move("unroll_scope {}r", lines);
    if (!both.empty()) list_.move("unroll_scope {}", both);
    if (!rounded_) list_.move("unroll_scope {}", parts);
    list_.move("vectorize_scope {}", inner);
    list_.move("unroll_scope {}_r_0", w);
  }

  const Kernel& kernel_;
  const DecodedForm& form_;
  const TensorTile& t_;
  const bool rounded_, rounds_rows_;
  const std::string summed_;
  MoveList list_;
  const ProductForm product_;
  TensorMoves moves_;
  DecodedMoves decoded_;
};

}  // namespace

Result<Scheduled> decoded_tensor(const GeneralKernel& general, const TensorTile& tile, bool rounded) {
  LATHE_RETURN_IF_ERROR(check_decoded(tile, rounded));
  LATHE_RETURN_IF_ERROR(form_of(general.kernel, rounded).status());
  return whole_or_split(general.kernel, tile.terms,
                        [&](const Kernel& kernel, const DecodedForm& form, const std::string& summed) {
                          std::set<std::string> known;
                          return staged_where_own(
                              [&](const std::set<std::string>& loose, StagedFields& staged) {
                                Writer writer(general, kernel, form, tile, rounded, summed, loose);
                                Result<Scheduled> made = writer.run();
                                staged = writer.staged();
                                return made;
                              },
                              known);
                        });
}

Result<std::vector<TensorTile>> decoded_tiles_of(const GeneralKernel& general, const SymbolValues& sizes,
                                                 const GpuTarget& target, bool rounded) {
  constexpr int64_t kFewRounded = 4;  // rows that others are better at, where rounding saves two products of three
  constexpr double kThreads = 128;    // that a multiprocessor runs in a cycle
  const double decode = rounded ? 12 : 20;  // instructions of a thread for a weight
  LATHE_ASSIGN(const DecodedForm form, form_of(general.kernel, rounded));
  const ProductShape shape = shape_of(form, sizes, general.most);
  const int64_t few = rounded ? kFewRounded : kFewLines;
  if (shape.rows <= few) return unsupported("{} rows, expected more than {}", shape.rows, few);
  std::vector<TensorTile> all, tiles;
  std::vector<double> cycles;
  for (TensorTile t : tensor_tiles()) {
    if (t.stages > 1) continue;  // of a size that leaves no registers to decode
    t.stages = 2;
    all.push_back(t);
    // Parts of whole blocks; all loads of a step are waited for, while other blocks go on.
    t.stages = 1;
    for (const int64_t parts : {2, 4, 8, 16}) {
      if (form.groups || shape.depth % (parts * kMostBlock) != 0) break;
      t.terms = shape.depth / parts;
      if (shape.has_room_for(t.terms)) all.push_back(t);
    }
  }
  for (const TensorTile& t : all) {
    if (!check_decoded(t, rounded).ok() || bytes_of(t, rounded) > most_shared(target) || !fits(form, t)) continue;
    const auto blocks = static_cast<double>(shape.batch * ceil_div(shape.rows, rows_of(t)) *
                                            ceil_div(std::max<int64_t>(shape.columns, 1), columns_of(t)));
    const double parts = t.terms > 0 ? static_cast<double>(shape.depth / t.terms) : 1;
    const double decoded = blocks * static_cast<double>(columns_of(t) * std::max<int64_t>(shape.depth, 1)) * decode /
                           kThreads /
                           std::min(blocks * parts, static_cast<double>(std::max(target.multiprocessors, 1)));
    tiles.push_back(t);
    cycles.push_back(static_cast<double>(parts_of(rounded)) * tensor_cycles(t, shape, target) + decoded);
  }
  if (tiles.empty()) return unsupported("{} has outputs that are no whole tiles", general.kernel.name);
  return ranked(tiles, cycles);
}

Result<Scheduled> decoded_tensor(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target,
                                 bool rounded) {
  LATHE_ASSIGN(const std::vector<TensorTile> tiles, decoded_tiles_of(general, sizes, target, rounded));
  return decoded_tensor(general, tiles.front(), rounded);
}

}  // namespace lathe::search
