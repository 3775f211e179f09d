// See split_sum.h.
#include "search/gpu/split_sum.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {
constexpr int64_t kVector = 4, kThreads = 64, kAtOnce = 4;  // parts that are on their way
}  // namespace

void split_sum(MoveList& list, const std::string& summed, int64_t terms) {
  list.knob("terms", terms);
  list.move("share_sum {0} {1} as {0}p,{0}t", summed, terms);
}

Result<Kernel> split_kernel(const Kernel& kernel, const ProductForm& form, int64_t terms) {
  MoveList list(kernel, "");
  split_sum(list, form.k->iter, terms);
  LATHE_ASSIGN(Scheduled made, list.finish());
  return std::move(made.kernel);
}

Result<Scheduled> whole_or_split(const Kernel& kernel, const ProductForm& form, int64_t terms, FormOfNest form_of,
                                 const WriteProduct& write) {
  const std::string& summed = form.k->iter;
  if (terms == 0) return write(kernel, form, summed);
  LATHE_ASSIGN(const Kernel split, split_kernel(kernel, form, terms));
  LATHE_ASSIGN(const ProductForm parts, form_of(split, split.body.size() - 2));
  return write(split, parts, summed);
}

//   for m: for n: c = 0; for p: c += w[p, m, n]; y = f(c)
//     -> for m @grid: for nb @grid: for nt @block: for v: c[v] = 0; for po: w_r = w; for p: for v: c[v] += w_r
//                                                for v: y = f(c[v])
void add_up_parts(MoveList& list, const Kernel& split) {
  std::vector<const Stmt*> nest = {&split.body.back()};
  while (nest.back()->body.size() == 1) nest.push_back(&nest.back()->body[0]);
  const std::vector<Stmt>& body = nest.back()->body;
  const std::string &n = nest.back()->iter, &part = body[1].iter, &parts = body[1].body[0].value->name, v = n + "v";
  list.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", n, kVector);
  list.move("tile_scope {0}c {1} tail=mask as {0}b,{0}t", n, kThreads);
  list.move("split_scope {0} after=1 as {0}e", v);
  list.move("split_scope {0} after=0 as {0}k", v);
  list.move("swap_scopes {}k {}", v, part);
  list.move("move_to_register {} {}t", body[0].target, n);
  list.move("tile_scope {0} {1} tail=mask as {0}o,{0}u", part, kAtOnce);
  list.move("create_temporary {0} {0}_r at={1}o mode=stage", parts, part);
  list.move("move_to_register {}_r {}o", parts, part);
  for (const std::string& scope : {parts + "_r_0", part + "u"}) list.move("unroll_scope {}", scope);
  list.move("vectorize_scope {}_r_1", parts);
  nest.pop_back();
  for (const Stmt* s : nest) list.move("parallelize_grid {}", s->iter);
  list.move("parallelize_grid {}b", n);
  list.move("parallelize_block {}t", n);
  for (const char* of : {"", "k", "e"}) list.move("vectorize_scope {}{}", v, of);
}

}  // namespace lathe::search
