// See decoded_moves.h.
#include "search/gpu/weights/decoded_moves.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "ir/analysis/analysis.h"
#include "ir/analysis/thread_share.h"
#include "ir/core/names.h"
#include "search/gpu/split_sum.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kMostBlock = 1024;

// Numbers by which indices are divided, or taken modulo.
void find_divisors(const Expr& e, std::set<int64_t>& out) {
  for_each_node(e, [&](const ExprNode& n) {
    if ((n.op == Op::k_floordiv || n.op == Op::k_mod) && is_const_int(n.args[1])) out.insert(n.args[1]->ival);
  });
}

}  // namespace

Result<DecodedForm> decoded_form(const Kernel& kernel) {
  const Result<ProductForm> product = product_form(kernel);
  if (product.ok()) return decoded_form(kernel, *product);
  const Result<GroupForm> groups = group_form(kernel);
  if (!groups.ok()) return product.status();
  LATHE_ASSIGN(DecodedForm out, decoded_form(kernel, product_of(*groups)));
  out.groups = *groups;
  return out;
}

Result<DecodedForm> decoded_form(const Kernel& kernel, const ProductForm& product) {
  DecodedForm out;
  out.product = product;
  LATHE_ASSIGN(out.weight, decoded_weight(kernel, product));
  return out;
}

ProductShape shape_of(const DecodedForm& form, const SymbolValues& sizes, const SymbolValues& most) {
  return form.groups ? group_shape(*form.groups, sizes) : shape_of(form.product, sizes, most);
}

Result<Scheduled> whole_or_split(const Kernel& kernel, int64_t terms, const WriteDecoded& write) {
  LATHE_ASSIGN(const DecodedForm form, decoded_form(kernel));
  if (form.groups && terms > 0) return invalid("parts of {} terms, expected the sums of groups to be whole", terms);
  if (terms == 0) return write(kernel, form, form.k());
  return whole_or_split(kernel, form.product, terms, product_form,
                        [&](const Kernel& split, const ProductForm& product, const std::string& summed) {
                          const Result<DecodedForm> part = decoded_form(split, product);
                          return part.ok() ? write(split, *part, summed) : part.status();
                        });
}

void tile_decoded(MoveList& list, const DecodedForm& form, int64_t rows, int64_t columns) {
  const std::string &m = form.m(), &n = form.n();
  if (form.groups) {
    clear_rows(list, *form.groups);
    list.move("parallelize_grid {}", form.groups->t->iter);
    list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", n, columns);
    list.move("swap_scopes {} {}b", m, n);
    list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", m, rows);
    return;
  }
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", m, rows);
  list.move("tile_scope {0} {1} tail=mask as {0}b,{0}i", n, columns);
  list.move("swap_scopes {}i {}b", m, n);
}

void launch_decoded(MoveList& list, const DecodedForm& form) {
  if (!form.groups) {
    for (const Stmt* b : form.product.batch) list.move("parallelize_grid {}", b->iter);
    list.move("parallelize_grid {}b", form.m());
  }
  list.move("parallelize_grid {}b", form.n());
}

int64_t decoded_block(const Kernel& kernel, const ProductForm& product, const DecodedWeight& weight, bool straight) {
  std::set<int64_t> divisors;
  find_divisors(weight.value, divisors);
  if (divisors.empty() && !straight) return 0;
  const int64_t out = divisors.empty() ? kDecodedChunk : std::max(*divisors.rbegin(), kDecodedChunk);
  const bool powers = std::all_of(divisors.begin(), divisors.end(),
                                  [](int64_t d) { return std::has_single_bit(static_cast<uint64_t>(d)); });
  return powers && out <= kMostBlock && proves_divisible(product.k->extent, out, Ranges(kernel)) ? out : 0;
}

std::vector<std::string> DecodedMoves::halve(const std::string& scope, const std::string& name, int64_t size,
                                             int64_t least) {
  std::vector<std::string> out = {scope};
  for (; size > least; size /= 2) {
    const std::string rest = std::exchange(out.back(), fmt::format("{}h{}", name, size));
    out.push_back(fmt::format("{}r{}", name, size / 2));
    list_.move("tile_scope {} {} tail=exact as {},{}", rest, size / 2, out[out.size() - 2], out.back());
  }
  return out;
}

void DecodedMoves::stage_fields(const std::vector<int64_t>& terms, const std::string& scope, int64_t outputs) {
  for (StagedField f : fields(terms)) {
    const std::string &field = f.name, r = field + "_r";
    list_.move("create_temporary {0} {0}_r at={1} mode=stage", field, scope);
    list_.move("move_to_register {} {}", r, scope);
    int d = 0;
    if (outputs > 1) {
      if (!list_.is_constant(r + "_0")) list_.move("pad_scope {}_0 reads=last", r);
      list_.move("unroll_scope {}_0", r);
      d = 1;
    }
    for (int i = f.run > 1 ? 1 : 0; i < f.dims; ++i) list_.move("unroll_scope {}_{}", r, d++);
    const int64_t width = std::min(f.run & -f.run, width_of(field));
    if (f.run > width) list_.move("tile_scope {0}_{1} {2} tail=exact as {3}_q,{3}_v", r, d, width, field);
    if (f.run > width) list_.move("unroll_scope {}_q", field);
    if (width > 1) list_.move("vectorize_scope {}", f.run > width ? field + "_v" : fmt::format("{}_{}", r, d));
    f.size *= outputs;
    staged_.push_back(std::move(f));
  }
}

// Neighbours that are loaded at once: 16 bytes, or as many as all runs begin at multiples of.
int64_t DecodedMoves::width_of(const std::string& field) const {
  const Buffer& b = *kernel_.find_buffer(field);
  int64_t out = 16 / std::max(dtype_bytes(b.type), 1);
  const auto divides = [&](const Expr& step) {
    if (is_const_int(step)) return step->ival % out == 0;
    return step->op == Op::k_symbol && general_.multiple.value_or(step->name, 1) % out == 0;
  };
  for (size_t d = 0; d + 1 < b.dims.size(); ++d) {
    while (out > 1 && !divides(b.strides.empty() ? b.dims.back() : b.strides[d])) out /= 2;
  }
  return out;
}

std::vector<int64_t> DecodedMoves::first_terms(int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

DecodedMoves::Places DecodedMoves::places_of(const std::vector<int64_t>& terms, std::set<std::string>* others) const {
  Places out;
  for_each_node(w_.value, [&](const ExprNode& e) {
    if (e.op != Op::k_load) return;
    for (const int64_t k : terms) {
      std::vector<std::pair<std::string, Expr>> first = {{w_.term, Expr(k)}, {w_.output, Expr(0)}};
      if (!w_.number.empty()) first.emplace_back(w_.number, Expr(0));
      std::vector<int64_t> place;
      for (const Expr& index : e.args) {
        const Expr i = simplify(substitute(index, first));
        if (!is_const_int(i)) others->insert(e.name);
        place.push_back(is_const_int(i) ? i->ival : 0);
      }
      out[e.name].insert(std::move(place));
    }
  });
  return out;
}

int64_t DecodedMoves::elements_of(const std::vector<int64_t>& terms) const {
  std::set<std::string> others;
  int64_t out = 0;
  for (const auto& [name, places] : places_of(terms, &others)) out += static_cast<int64_t>(places.size());
  return out;
}

// Fields of which the terms have one element, or neighbours along some of their dimensions.
StagedFields DecodedMoves::fields(const std::vector<int64_t>& terms) const {
  std::set<std::string> others;
  const auto chunk = static_cast<int64_t>(terms.size());
  const Places at = places_of(terms, &others);
  StagedFields out;
  for (const auto& [name, places] : at) {
    StagedField f{name, 1, 1, 0};
    for (size_t d = 0; d < places.begin()->size(); ++d) {
      int64_t first = (*places.begin())[d], last = first;
      for (const std::vector<int64_t>& place : places) {
        first = std::min(first, place[d]);
        last = std::max(last, place[d]);
      }
      if (last > first) ++f.dims;
      if (last > first && d + 1 == places.begin()->size()) f.run = last - first + 1;
      f.size *= last - first + 1;
    }
    const bool all = f.size == static_cast<int64_t>(places.size());
    if (all && f.size <= chunk && others.count(name) == 0 && loose_.count(name) == 0 &&
        is_input(kernel_.find_buffer(name)->place))
      out.push_back(std::move(f));
  }
  return out;
}

Result<Scheduled> staged_where_own(const WriteStaged& write, std::set<std::string>& loose) {
  for (;;) {
    StagedFields staged;
    Result<Scheduled> made = write(loose, staged);
    if (!made.ok()) return made;
    const size_t before = loose.size();
    for (const StagedField& f : staged) {
      const std::string own = f.name + "_r";
      int64_t elements = 1;
      for (const Expr& d : made->kernel.find_buffer(own)->dims) elements *= is_const_int(d) ? d->ival : 0;
      if (elements != f.size || !thread_share(made->kernel, own).ok()) loose.insert(f.name);
    }
    if (loose.size() == before) return made;
  }
}

}  // namespace lathe::search
