// See decoded_weight.h.
#include "search/gpu/decoded_weight.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "search/gpu/product_form.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// Loaded, and widened at most.
bool is_loaded(const Expr& e) { return e->op == Op::k_load || (e->op == Op::k_cast && e->args[0]->op == Op::k_load); }

bool has_name(const Kernel& k, const std::string& name) {
  bool known = k.find_buffer(name) != nullptr || k.find_symbol(name) != nullptr;
  for_each_stmt(k.body, [&](const Stmt& s) { known |= s.iter == name; });
  return known;
}

constexpr const char* kWeight = "w";
constexpr const char* kRoles[] = {"batch", "n", "k"};  // of the scopes that decode it

// The only statement of a nest.
const Stmt& statement_of(const Stmt& nest) {
  const Stmt* s = &nest;
  while (s->kind == Stmt::Kind::scope) s = &s->body[0];
  return *s;
}

// The factor with what one earlier nest makes of inputs alone written out. used: those nests.
Expr written_out(const Kernel& kernel, const Expr& factor, std::vector<std::string>& used) {
  return rewrite(factor, [&](const Expr& e) -> Expr {
    if (e->op != Op::k_load || kernel.find_buffer(e->name)->place != Place::heap) return {};
    const auto made = std::count_if(kernel.body.begin(), kernel.body.end() - 1,
                                    [&](const Stmt& nest) { return statement_of(nest).target == e->name; });
    if (made != 1) return {};
    for (size_t i = 0; i + 1 < kernel.body.size(); ++i) {
      const Stmt& s = statement_of(kernel.body[i]);
      if (s.target != e->name) continue;
      std::vector<std::pair<std::string, Expr>> at;
      for (size_t d = 0; d < s.index.size(); ++d) {
        if (s.index[d]->op != Op::k_iter) return {};
        at.emplace_back(s.index[d]->name, e->args[d]);
      }
      used.push_back(e->name);
      return substitute(s.value, at);
    }
    return {};
  });
}

// What nobody reads any more.
void drop_unread(Kernel& kernel, const std::vector<std::string>& used) {
  for (const std::string& made : used) {
    const auto reads = [&](const Stmt& nest) {
      const std::vector<Access> all = collect_accesses({nest}, {}, &made);
      return std::any_of(all.begin(), all.end(), [](const Access& a) { return !a.write; });
    };
    if (std::any_of(kernel.body.begin(), kernel.body.end(), reads)) continue;
    std::erase_if(kernel.body, [&](const Stmt& nest) { return statement_of(nest).target == made; });
    std::erase_if(kernel.buffers, [&](const Buffer& buffer) { return buffer.name == made; });
  }
}

// A nest around one statement.
bool is_plain(const Stmt& nest) {
  const Stmt* s = &nest;
  while (s->kind == Stmt::Kind::scope && s->body.size() == 1) s = &s->body[0];
  return s->kind == Stmt::Kind::assign;
}

// Plain nests before the last take integers of inputs apart.
bool takes_integers_apart(const Kernel& kernel) {
  if (kernel.body.empty()) return false;
  const std::vector<Stmt> nests(kernel.body.begin(), kernel.body.end() - 1);
  if (!std::all_of(nests.begin(), nests.end(), is_plain)) return false;
  const std::vector<Access> all = collect_accesses(nests);
  return std::any_of(all.begin(), all.end(), [&](const Access& a) {
    const Buffer& b = *kernel.find_buffer(a.buffer);
    return is_input(b.place) && !is_float(b.type);
  });
}

// Elements that are used where they are decoded.
Kernel decode_in_place(Kernel kernel) {
  std::vector<std::string> used;
  for_each_stmt(kernel.body.back().body, [&](Stmt& s) {
    if (s.kind == Stmt::Kind::assign) s.value = written_out(kernel, s.value, used);
  });
  drop_unread(kernel, used);
  return kernel;
}

// Which of several weights a factor is of, as it stands in the first index of each field; null: there is one.
struct WeightNumber {
  Expr number, count;
};
WeightNumber number_of(const Kernel& kernel, const Expr& factor, const std::string& n, const std::string& k) {
  WeightNumber out;
  if (kernel.family != kQuantisedFamily) return out;
  for_each_node(factor, [&](const ExprNode& e) {
    if (e.op != Op::k_load || e.args.size() < 2 || uses(e.args[0], n) || uses(e.args[0], k)) return;
    if (out.number || is_const_int(e.args[0])) return;
    const bool field = std::any_of(e.args.begin() + 1, e.args.end(), [&](const Expr& i) { return uses(i, n); });
    if (field) out = {e.args[0], kernel.find_buffer(e.name)->dims[0]};
  });
  return out;
}

Expr with_number(const Expr& factor, const Expr& number, const Expr& by) {
  return rewrite(factor, [&](const Expr& e) -> Expr { return equal(e, number) ? by : Expr(); });
}

}  // namespace

Kernel decode_apart(Kernel kernel) {
  const Result<ProductSum> product = product_sum(kernel);
  if (!product.ok()) return takes_integers_apart(kernel) ? decode_in_place(std::move(kernel)) : kernel;
  const std::string n = product->n->iter, k = product->k->iter;
  const std::string w = kWeight, nw = n + "_w", kw = k + "_w", ew = kWeight + std::string("_number");
  const Expr term = product->k->body[0].value;
  const auto is_decoded = [&](const Expr& factor) {
    const WeightNumber of = number_of(kernel, factor, n, k);
    const Expr numbered = of.number ? with_number(factor, of.number, iter(ew)) : factor;
    bool of_both = uses(factor, n) && uses(factor, k), others = false;
    for_each_node(numbered, [&](const ExprNode& e) {
      others |= e.op == Op::k_iter && e.name != n && e.name != k && e.name != ew;
      others |= e.op == Op::k_load && !is_input(kernel.find_buffer(e.name)->place);
    });
    return of_both && !others && !is_loaded(factor) && factor->type == DType::f32;
  };
  std::vector<std::string> used;
  std::vector<Expr> factors;
  for (const Expr& factor : term->args)
    factors.push_back(is_loaded(factor) ? factor : written_out(kernel, factor, used));
  const auto decoded = std::find_if(factors.begin(), factors.end(), is_decoded);
  const auto taken = [&](const std::string& name) { return has_name(kernel, name); };
  if (decoded == factors.end() || taken(w) || taken(nw) || taken(kw) || taken(ew)) return kernel;

  const WeightNumber of = number_of(kernel, *decoded, n, k);
  const Expr numbered = of.number ? with_number(*decoded, of.number, iter(ew)) : *decoded;
  const Expr made = substitute(numbered, {{n, iter(nw)}, {k, iter(kw)}});
  std::vector<Expr> dims = {product->n->extent, product->k->extent}, at = {iter(nw), iter(kw)},
                    read = {iter(n), iter(k)};
  if (of.number) {
    dims.insert(dims.begin(), of.count);
    at.insert(at.begin(), iter(ew));
    read.insert(read.begin(), of.number);
  }
  *decoded = load(w, read, DType::f32);
  const Expr narrow = make(Op::k_mul, std::move(factors));
  for_each_stmt(kernel.body, [&](Stmt& s) {
    if (s.kind == Stmt::Kind::assign && s.value.get() == term.get()) s.value = narrow;
  });
  Buffer b;
  b.name = w;
  b.dims = dims;
  b.place = Place::heap;
  kernel.buffers.push_back(std::move(b));
  drop_unread(kernel, used);
  Stmt nest = make_assign(w, at, AssignOp::set, made);
  for (size_t d = at.size(); d-- > 0;)
    nest = make_scope(at[d]->name, dims[d], {std::move(nest)}, kRoles[d + 3 - at.size()]);
  kernel.body.insert(kernel.body.end() - 1, std::move(nest));
  return kernel;
}

Result<DecodedWeight> decoded_weight(const Kernel& kernel, const ProductForm& product) {
  for (size_t i = 0; i + 1 < kernel.body.size(); ++i) {
    const Stmt& s = statement_of(kernel.body[i]);
    if (s.target != kWeight || std::find(product.made.begin(), product.made.end(), s.target) == product.made.end())
      continue;
    const size_t first = s.index.size() - 2;
    return DecodedWeight{s.target, s.index[first]->name, s.index[first + 1]->name, first > 0 ? s.index[0]->name : "",
                         s.value};
  }
  return unsupported("{} decodes no weight", kernel.name);
}

std::string activations_of(const ProductForm& product, const DecodedWeight& weight) {
  for (const ProductOperand& o : product.operands) {
    if (o.buffer != weight.buffer) return o.buffer;
  }
  return "";
}

}  // namespace lathe::search
