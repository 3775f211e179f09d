// See plain_constants.h. What packing would make of a constant is made by a pass of its own, in vectors that all
// threads share, before the nest that reads it.
//
//   w: f32[N, K] const from bf16 f32(w[])     w: bf16[N, K] in; w_m: f32[N, K] heap
//   ... w[n, k] ...                      ->   for ..: w_m[..] = f32(w[..]);  ... w_m[n, k] ...
#include "runtime/compile/plain_constants.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/made_sums.h"
#include "search/cut/cut.h"
#include "search/moves/transform_util.h"
#include "search/sketches/recipe.h"

namespace lathe::runtime {

using ir::Expr;

namespace {

struct Pass {
  std::vector<std::string> scopes;
  std::vector<std::string> words;  // scopes of neighbours that share an element of the caller's
  ir::Stmt nest;
};

// The pass that makes `b`, which from then on is read from `made`.
Pass make_pass(const ir::Buffer& b, const std::string& made, search::Names& names) {
  Pass out;
  if (ir::terms_summed(b)) {
    out.nest = ir::sums_made(b, b.name, made, names.fresh(made + "_"));
    return out;
  }
  std::vector<Expr> index;
  for (size_t d = 0; d < b.dims.size(); ++d) {
    out.scopes.push_back(names.fresh(fmt::format("{}{}", made, d)));
    index.push_back(ir::iter(out.scopes.back()));
  }
  out.nest = ir::make_assign(made, index, ir::AssignOp::set, ir::made_element(b, b.name, index));
  for (size_t d = b.dims.size(); d-- > 0;) {
    const int dim = static_cast<int>(d);
    const int64_t bits = search::sharing_a_word(b, dim);
    const bool words = bits > 1 && ir::proves_divisible(b.dims[d], bits, {}), last = d + 1 == b.dims.size();
    const char* role = last ? "col" : search::decides_how(b, dim) ? "word" : "row";
    out.nest = words ? search::by_words(out.nest, index[d], b.dims[d], b, dim, last ? "col" : "word")
                     : ir::make_scope(out.scopes[d], b.dims[d], {out.nest}, role);
  }
  // A word whose elements are made alike is read in vectors.
  bool alike = true;
  ir::for_each_stmt(out.nest.body, [&](const ir::Stmt& s) {
    alike = alike && !(s.value && search::decides(s.value, out.scopes.back()));
  });
  const auto note = [&](const ir::Stmt& s) {
    const bool unrolled = s.role == "word" || (!alike && s.iter == out.scopes.back());
    if (unrolled) out.words.push_back(s.iter);
  };
  note(out.nest);
  ir::for_each_stmt(out.nest.body, note);
  return out;
}

}  // namespace

ir::Kernel constants_as_inputs(const ir::Kernel& kernel, const ir::Target& target) {
  ir::Kernel out = kernel;
  search::Names names(kernel);
  std::vector<Pass> passes;
  std::vector<ir::Buffer> temporaries;
  for (ir::Buffer& b : out.buffers) {
    if (b.place != ir::Place::constant) continue;
    b.place = ir::Place::in;
    if (!b.made) continue;
    ir::Buffer made = b;
    made.name = names.fresh(b.name + "_m");
    made.place = ir::Place::heap;
    made.made = Expr();
    made.given_dims.clear();
    made.strides.clear();
    ir::rewrite_exprs(out.body, [&](const Expr& e) -> Expr {
      return e->op == ir::Op::k_load && e->name == b.name ? ir::load(made.name, e->args, e->type) : Expr();
    });
    passes.push_back(make_pass(b, made.name, names));
    temporaries.push_back(std::move(made));
    b.dims = ir::given_dims(b);
    b.type = b.given;
    b.given_dims.clear();
    b.made = Expr();
  }
  if (passes.empty()) return out;
  out.buffers.insert(out.buffers.end(), temporaries.begin(), temporaries.end());
  for (const Pass& p : passes) out.body.insert(out.body.begin(), p.nest);
  search::Script script(out);
  for (const Pass& p : passes) {
    if (p.scopes.empty()) {
      script.move("parallelize {}", p.nest.iter);
      continue;
    }
    const std::string& last = p.scopes.back();
    for (const std::string& word : p.words) script.move("unroll_scope {}", word);
    const auto in_words = [&](const std::string& scope) {
      return std::find(p.words.begin(), p.words.end(), scope) != p.words.end();
    };
    if (!in_words(last)) {
      script.move("tile_scope {} {} tail=mask as {}v,{}l", last, target.lanes, last, last);
      script.move("vectorize_scope {}l", last);
    }
    const std::string first = p.scopes.front() + (in_words(p.scopes.front()) ? "a" : "");
    if (p.scopes.size() > 1 && !in_words(first)) script.move("parallelize {}", first);
  }
  return script.kernel();
}

}  // namespace lathe::runtime
