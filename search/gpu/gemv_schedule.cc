// See gemv_schedule.h.
#include "search/gpu/gemv_schedule.h"

#include <algorithm>
#include <bit>

#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/split_sum.h"
#include "search/gpu/thread_schedule.h"
#include "search/gpu/vector_width.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kLanes = 32, kWarps = 8, kParts = 8;
constexpr int64_t kMostSums = 64;                     // of a thread, where vectors are of lines
constexpr int64_t kLeastTurns = 4, kLeastTerms = 16;  // of a lane, where blocks share sums
constexpr int64_t kMostParts = 16, kBlocks = 4;       // of a sum; of a multiprocessor, which is then busy

class Writer {
 public:
  // whole: what the Schedule is of. few: of the lines that there are few of, in a block. at_once: vectors of
  // the others that a thread loads before it multiplies.
  Writer(const Kernel& whole, const ProductForm& product, const std::string& large, bool rows, int64_t few,
         int64_t vector, int64_t at_once)
      : whole_(whole),
        p_(product),
        large_(large),
        kept_(kept_of(whole, product, large, few)),
        rows_(rows),
        few_(few),
        vector_(vector),
        at_once_(at_once),
        list_(whole, "lines.1"),
        f_(rows ? product.m->iter : product.n->iter),
        g_(rows ? product.n->iter : product.m->iter),
        k_(product.k->iter) {}

  // split: what the whole is once blocks share its sums over `summed`, in parts of so many terms; null: it is not.
  Result<Scheduled> run(bool terms_last, const Kernel* split, const std::string& summed, int64_t terms) {
    list_.knob("few", few_);
    list_.knob("terms_last", terms_last ? 1 : 0);
    list_.knob("at_once", at_once_);
    if (split != nullptr) {
      split_sum(list_, summed, terms);
    } else if (whole_.find_buffer(p_.sum)->type == DType::i32) {
      LATHE_RETURN_IF_ERROR(share_out_before(list_, whole_));
    }
    if (terms_last) {
      warp_of_a_line();
    } else {
      vectors_of_lines();
    }
    if (split != nullptr) add_up_parts(list_, *split);
    return list_.finish();
  }

 private:
  // Lines of the one kind outside, of the other inside a block; sums start, grow and are used apart from each other.
  void blocks(int64_t lines) {
    list_.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", f_, few_);
    list_.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", g_, lines);
    if (rows_) {
      list_.move("swap_scopes {}i {}b", f_, g_);
      list_.move("swap_scopes {0}i {1}i", f_, g_);
    } else {
      list_.move("swap_scopes {}i {}b", g_, f_);
    }
  }
  void grid() {
    for (const Stmt* b : p_.batch) list_.move("parallelize_grid {}", b->iter);
    list_.move("parallelize_grid {}b", p_.m->iter);
    list_.move("parallelize_grid {}b", p_.n->iter);
  }

  // What a turn needs of an operand is read once, and before any of it is used.
  void keep(const std::string& operand, const std::string& at) {
    list_.move("create_temporary {0} {0}_r at={1} mode=stage", operand, at);
    list_.move("move_to_register {}_r {}", operand, at);
  }
  void make_in_place() {
    for (const std::string& made : p_.made) list_.move("inline_temporary {}", made);
  }
  // Where sums start, grow and are used apart from each other.
  void apart(const std::string& scope) {
    list_.move("split_scope {0} after=1 as {0}e", scope);
    list_.move("split_scope {0} after=0 as {0}k", scope);
  }

  //   for fb @grid: for gb @grid: for gi @block: c[..] = 0
  //     for lanes @block: c_p[..] = 0
  //     for turns: {for lanes @block: b_r = b; for lanes @block: for terms: c_p[..] += a * b_r}
  //     for lanes @block: c[..] += c_p[..]; y = f(c)
  void warp_of_a_line() {
    blocks(kWarps);
    const std::string f = f_ + "i", k = k_ + "i", parts = p_.sum + "_p";
    std::vector<std::string> terms = {k};
    apart(f);
    list_.move("swap_scopes {}k {}", f, k_);
    list_.move("tile_scope {0} {1} tail=mask as {0}o,{0}i", k_, kLanes * vector_ * at_once_);
    for (const std::string& operand : kept_) {
      keep(operand, k_ + "o");
      terms.push_back(operand + "_r_0");
    }
    make_in_place();
    for (const std::string& t : terms) {
      list_.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", t, vector_);
      list_.move("deal_scope {0}c {1} as {0}l,{0}t", t, kLanes);
    }
    list_.move("split_reduction {} {}l at={}i as {}", p_.sum, k, g_, parts);
    list_.move("swap_scopes {0}v {1}k", k, f);
    for (const std::string& sum : {p_.sum, parts}) list_.move("move_to_register {} {}i", sum, g_);
    grid();
    list_.move("parallelize_block {}i", g_);
    for (const std::string& t : terms) {
      list_.move("parallelize_block {}l", t);
      list_.move("unroll_scope {}t", t);
      list_.move("vectorize_scope {}v", t);
    }
    for (const char* part : {"_0", "_0b"}) list_.move("parallelize_block {}{}", parts, part);
    for (const char* part : {"", "k", "e"}) list_.move("unroll_scope {}{}", f, part);
  }

  //   for fb @grid: for gb @grid: for gl @block: c[..] = 0
  //     for kw @block: for turns: b_r = b; for terms: for v: c[..] += a * b_r; y = f(c)
  void vectors_of_lines() {
    blocks(kLanes * vector_);
    const std::string f = f_ + "i", v = g_ + "v";
    list_.move("tile_scope {0}i {1} tail=mask as {0}l,{0}v", g_, vector_);
    list_.move("swap_scopes {} {}", v, f);
    apart(v);
    apart(f);
    list_.move("swap_scopes {}k {}", v, k_);
    list_.move("swap_scopes {}k {}", f, k_);
    list_.move("move_to_register {} {}l", p_.sum, g_);
    list_.move("tile_scope {0} {1} tail=mask as {0}c,{0}u", k_, at_once_);
    list_.move("deal_scope {0}c {1} as {0}w,{0}t", k_, kParts);
    keep(large_, k_ + "t");
    make_in_place();
    grid();
    list_.move("parallelize_block {}l", g_);
    list_.move("parallelize_block {}w", k_);
    list_.move("unroll_scope {}u", k_);
    list_.move("unroll_scope {}_r_0", large_);
    list_.move("vectorize_scope {}_r_1", large_);
    for (const char* part : {"", "k", "e"}) {
      list_.move("unroll_scope {}{}", f, part);
      list_.move("vectorize_scope {}{}", v, part);
    }
  }

  // Operands whose terms of a turn go into registers first: the large one, and that of a single line.
  static std::vector<std::string> kept_of(const Kernel& kernel, const ProductForm& product, const std::string& large,
                                          int64_t few) {
    std::vector<std::string> out = {large};
    for (const ProductOperand& o : product.operands) {
      if (few == 1 && product.operands.size() == 2 && o.buffer != large && o.terms_last &&
          is_input(kernel.find_buffer(o.buffer)->place))
        out.push_back(o.buffer);
    }
    return out;
  }

  const Kernel& whole_;
  const ProductForm& p_;
  const std::string large_;
  const std::vector<std::string> kept_;
  const bool rows_;
  const int64_t few_, vector_, at_once_;
  MoveList list_;
  const std::string f_, g_, k_;
};

}  // namespace

Result<Scheduled> gemv_schedule(const GeneralKernel& general, const SymbolValues& sizes, const GpuTarget& target,
                                int64_t at_once) {
  const Result<ProductForm> integers = integer_form(general.kernel);
  LATHE_ASSIGN(const ProductForm product, integers.ok() ? integers : product_form(general.kernel));
  const ProductShape shape = shape_of(product, sizes, general.most);
  const int64_t few = std::min(shape.rows, shape.columns);
  if (few > kFewLines)
    return unsupported("{} has {} rows and {} columns", general.kernel.name, shape.rows, shape.columns);
  const bool rows = shape.rows <= shape.columns;
  const auto large = std::find_if(product.operands.begin(), product.operands.end(),
                                  [&](const ProductOperand& o) { return o.of_rows != rows; });
  const auto block = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(few, 1))));
  const int64_t line = large->terms_last ? shape.depth : std::max(shape.rows, shape.columns);
  int64_t vector = vector_width(general.kernel.find_buffer(large->buffer)->type, line);
  if (!large->terms_last) vector = std::min(vector, kMostSums / block);
  const std::string& name = large->buffer;
  const bool terms_last = large->terms_last;
  if (terms_last) {
    const int64_t turns = (shape.depth + kLanes * vector - 1) / (kLanes * vector);
    at_once = std::clamp<int64_t>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(turns))), 1, at_once);
  }
  const int64_t lines = terms_last ? kWarps : kLanes * vector,
                blocks = shape.batch * ((std::max(shape.rows, shape.columns) + lines - 1) / lines);
  // Whole turns of all lanes.
  const int64_t unit = terms_last ? kLanes * vector * kLeastTurns : kParts * kLeastTerms;
  int64_t parts = std::clamp<int64_t>(kBlocks * target.multiprocessors / std::max<int64_t>(blocks, 1), 1, kMostParts);
  const auto terms_of = [&] { return ((shape.depth + parts - 1) / parts + unit - 1) / unit * unit; };
  while (parts > 1 && !shape.has_room_for(terms_of())) --parts;
  const int64_t terms = terms_of();
  const bool whole = integers.ok() || blocks >= target.multiprocessors || terms >= shape.depth;
  return whole_or_split(general.kernel, product, whole ? 0 : terms, product_form,
                        [&](const Kernel& kernel, const ProductForm& form, const std::string& summed) {
                          return Writer(general.kernel, form, name, rows, block, vector, at_once)
                              .run(terms_last, whole ? nullptr : &kernel, summed, terms);
                        });
}

}  // namespace lathe::search
