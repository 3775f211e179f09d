// The intrinsic table and the matching of scopes with the meanings of its rows: see intrinsics.def. Matching looks at
// the form of the subtree and at which iterators an index depends on, not at ranges (verify() does).
#include "ir/analysis/intrinsics.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "ir/analysis/analysis.h"
#include "ir/analysis/filled.h"
#include "ir/analysis/grouped_weight.h"
#include "ir/base/target.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::ir {

namespace {

const std::vector<Intrinsic> kIntrinsics = {
#define LATHE_INTRINSIC(name, numeric, features, layout, meaning) \
  {#name, meaning, numeric, features, IntrinsicLayout::layout},
#define LATHE_WARP_INTRINSIC(name, sm, numeric, meaning) \
  {#name, meaning, numeric, 0, IntrinsicLayout::kFragments, sm, kWarpLanes},
#define LATHE_WARPGROUP_INTRINSIC(name, sm, numeric, meaning) \
  {#name, meaning, numeric, 0, IntrinsicLayout::kFragments, sm, kGroupLanes},
#define LATHE_BOX_INTRINSIC(name, sm, numeric, meaning) {#name, meaning, numeric, 0, IntrinsicLayout::kBox, sm},
#include "ir/analysis/intrinsics.def"
#undef LATHE_INTRINSIC
};

struct FragmentRow {
  const char *intrinsic, *buffer;
  size_t dim;
  Fragment fragment;
};
constexpr FragmentRow kFragments[] = {
#define LATHE_FRAGMENT(intrinsic, buffer, dim, chunk, threads, step) {#intrinsic, buffer, dim, {chunk, threads, step}},
#include "ir/analysis/fragments.def"
#undef LATHE_FRAGMENT
};

constexpr int kMostCopied = 4;  // bytes: one lane an element

using Scopes = std::vector<const Stmt*>;

// From a scope down to its only statement, prefetches aside.
struct Nest {
  Scopes scopes;  // outermost first
  const Stmt* statement = nullptr;

  // bound: scopes inside must be unrolled or vectors already. copies: before the outermost scope's last statement.
  std::string descend(const Stmt& outermost, bool bound, bool copies = false) {
    if (outermost.kind != Stmt::Kind::scope) return "expected a scope";
    for (const Stmt* at = &outermost; statement == nullptr;) {
      scopes.push_back(at);
      const Stmt* inner = nullptr;
      for (const Stmt& s : at->body) {
        if (s.kind == Stmt::Kind::prefetch || (copies && at == &outermost && &s != &at->body.back() && is_copy(s)))
          continue;
        if (inner != nullptr) return "expected one statement in scope " + at->iter;
        inner = &s;
      }
      if (inner == nullptr) return "expected a statement in scope " + at->iter;
      (inner->kind == Stmt::Kind::assign ? statement : at) = inner;
      if (bound && at == inner && inner->mark != Mark::unroll && inner->mark != Mark::vector)
        return fmt::format("expected scope {} to be @unroll or @vector", inner->iter);
    }
    return {};
  }
};

// A row's meaning, parsed.
struct Meaning {
  Kernel kernel;
  Nest nest;
  bool bound = false;  // scopes inside bear marks
  bool copies() const { return nest.statement->op == AssignOp::set && nest.statement->value->op == Op::k_load; }
};

bool depends(const std::vector<Expr>& index, const std::string& iter) {
  return std::any_of(index.begin(), index.end(), [&](const Expr& e) { return uses(e, iter); });
}
bool summed(const Nest& nest, const Stmt& scope) { return !depends(nest.statement->index, scope.iter); }

// Null: no Kernel of one statement.
const Meaning* meaning_of(const Intrinsic& row) {
  static std::mutex mutex;
  static std::map<std::string_view, Meaning> parsed;
  const std::lock_guard lock(mutex);
  const auto known = parsed.find(row.meaning);
  if (known != parsed.end()) return &known->second;
  Result<Kernel> kernel = parse_kernel(row.meaning);
  if (!kernel.ok() || kernel->body.size() != 1) return nullptr;
  Meaning& m = parsed[row.meaning];
  m.kernel = std::move(*kernel);
  if (!m.nest.descend(m.kernel.body[0], false).empty()) {
    parsed.erase(row.meaning);
    return nullptr;
  }
  for (size_t i = 1; i < m.nest.scopes.size(); ++i) m.bound |= m.nest.scopes[i]->mark != Mark::none;
  return &m;
}

// c[..] += a[..] * b[..]
std::string outline(const Stmt& statement) {
  const Expr value = rewrite(statement.value, [](const Expr& e) {
    return e->op == Op::k_load ? load(e->name, {symbol("..")}, e->type) : Expr();
  });
  return fmt::format("{}[..] {}= {}", statement.target, assign_op_name(statement.op), print(value));
}

// The dimension whose neighbours are adjacent in memory, -1 if none.
int adjacent_dim(const Buffer& b) {
  if (!b.strides.empty() && b.layout.empty() && !b.made) {
    for (size_t d = 0; d < b.strides.size(); ++d) {
      if (is_const_int(b.strides[d], 1)) return static_cast<int>(d);
    }
    return -1;
  }
  if (!b.layout.empty()) return b.layout.back().dim;
  return static_cast<int>(b.dims.size()) - 1;
}

// How an access steps along the adjacent elements of its buffer; none: not affine.
std::optional<AffineForm> adjacent_steps(const Kernel& kernel, const std::string& name,
                                         const std::vector<Expr>& index) {
  const Buffer* buffer = kernel.find_buffer(name);
  const int dim = buffer == nullptr || buffer->dims.size() != index.size() ? -1 : adjacent_dim(*buffer);
  return dim < 0 ? std::nullopt : affine_form(index[static_cast<size_t>(dim)]);
}

// The one of the scopes that steps along these elements, one by one; null: none, or several.
const Stmt* adjacent_scope(const std::optional<AffineForm>& steps, const Scopes& scopes) {
  const Stmt* out = nullptr;
  for (const Stmt* s : scopes) {
    const Expr step = steps ? steps->coeff(s->iter) : Expr(0);
    if (is_const_int(step, 0)) continue;
    if (out != nullptr || !is_const_int(step, 1)) return nullptr;
    out = s;
  }
  return out;
}

class Matcher {
 public:
  Matcher(const Kernel& kernel, const Intrinsic& row, const Meaning& meaning)
      : kernel_(kernel), row_(row), pattern_(meaning) {}

  // Empty, or what was expected.
  std::string run(const Stmt& scope) {
    std::string why = site_.descend(scope, pattern_.bound, row_.layout == IntrinsicLayout::kWithCopies);
    for (const auto check : {&Matcher::depth, &Matcher::statement, &Matcher::outermost}) {
      if (why.empty()) why = (this->*check)();
    }
    if (row_.layout == IntrinsicLayout::kFragments || row_.layout == IntrinsicLayout::kBox)
      return why.empty() ? either_order() : why;
    for (const auto check : {&Matcher::parts, &Matcher::lanes, &Matcher::adjacent}) {
      if (why.empty()) why = (this->*check)();
    }
    return why;
  }

 private:
  // The same buffer in the meaning and in the Kernel.
  struct Access {
    const std::string *means, *is;
    const std::vector<Expr>*pattern, *site;
    bool made = false;  // what is read is made of this and more
  };

  std::string depth() {
    const size_t wanted = pattern_.nest.scopes.size();
    if (pattern_.bound || site_.scopes.size() == wanted) return {};
    static constexpr const char* kNumbers[] = {"no", "one", "two", "three", "four"};
    return fmt::format("expected {} nested scopes", kNumbers[std::min<size_t>(wanted, 4)]);
  }

  DType type_of(const Kernel& kernel, const std::string& buffer) const {
    const Buffer* b = kernel.find_buffer(buffer);
    return b == nullptr ? DType::b8 : b->type;
  }

  // Whether an operand of the meaning may be of this type: its own, or one that a load widens to it.
  bool takes(DType means, DType is) const {
    return means == is || (means == DType::f32 && (is == DType::bf16 || is == DType::f16));
  }

  // Where the meaning reads a byte as i32: a value that is made of bytes. Stands for the byte that is read first.
  bool made_of_bytes(const Expr& pattern, const Expr& given) {
    const Expr& byte = pattern->args[0];
    if (pattern->type != DType::i32 || byte->op != Op::k_load || byte->type != DType::u8) return false;
    if (given->type != DType::i32 || given->op == Op::k_cast) return false;
    const ExprNode* first = nullptr;
    bool bytes = true;
    for_each_value_load(given, [&](const ExprNode& load) {
      bytes &= dtype_bytes(load.type) == 1;
      if (first == nullptr) first = &load;
    });
    if (first == nullptr || !bytes) return false;
    accesses_.push_back({&byte->name, &first->name, &byte->args, &first->args, true});
    return true;
  }

  // Binds the loads of both; false: another form. typed: of types that the operands take.
  bool same(const Expr& pattern, const Expr& given, bool typed) {
    if (!pattern || !given) return false;
    const Expr& site = pattern->op == Op::k_load && pattern->type == given->type ? unwidened(given) : given;
    if (pattern->op == Op::k_cast && made_of_bytes(pattern, given)) return true;
    if (pattern->op != site->op) return false;
    switch (pattern->op) {
      case Op::k_load:
        accesses_.push_back({&pattern->name, &site->name, &pattern->args, &site->args});
        return !typed || takes(type_of(pattern_.kernel, pattern->name), type_of(kernel_, site->name));
      case Op::k_const_int:
      case Op::k_const_float:
        return equal(pattern, site);
      case Op::k_cast:
        if (pattern->type != site->type) return false;
        break;
      default:
        break;
    }
    const size_t n = pattern->args.size(), bound = accesses_.size();
    if (n == 0 || site->args.size() != n) return false;
    const bool either = n == 2 && (pattern->op == Op::k_mul || pattern->op == Op::k_add);
    for (const bool swapped : {false, true}) {
      if (swapped && !either) break;
      accesses_.resize(bound);
      bool all = true;
      for (size_t i = 0; i < n; ++i) all = all && same(pattern->args[i], site->args[swapped ? n - 1 - i : i], typed);
      if (all) return true;
    }
    return false;
  }

  // A box has zeros beyond its tensor, and there alone.
  bool is_filled_beyond(const Expr& value) const {
    const Expr &at = value->args[0]->args[0], &from = value->args[1];
    const auto scope = std::find_if(site_.scopes.begin(), site_.scopes.end(),
                                    [&](const Stmt* s) { return at->op == Op::k_iter && s->iter == at->name; });
    const Buffer* b = from->op == Op::k_load ? kernel_.find_buffer(from->name) : nullptr;
    const std::optional<size_t> d =
        b == nullptr || scope == site_.scopes.end() ? std::nullopt : dimension(from->args, at->name);
    if (!d || !b->dims[*d]) return false;
    Ranges ranges(kernel_);
    enter_around(kernel_.body, *site_.scopes[0], ranges);
    return is_end(value->args[0]->args[1], b->dims[*d] - from->args[*d] + at, (*scope)->extent, ranges);
  }
  std::string statement() {
    const Stmt &means = *pattern_.nest.statement, &is = *site_.statement;
    const Expr& value = row_.layout == IntrinsicLayout::kBox ? unfilled(is.value) : is.value;
    if (&value != &is.value && !is_filled_beyond(is.value))
      return fmt::format("expected {} to be 0 beyond the last element of a dimension alone", is.target);
    const bool typed = means.op == is.op && same(means.value, value, true);
    if (!typed) accesses_.clear();
    if (means.op != is.op || (!typed && !same(means.value, value, false))) return "expected " + outline(means);
    accesses_.insert(accesses_.begin(), {&means.target, &is.target, &means.index, &is.index});
    if (pattern_.copies() && dtype_bytes(type_of(kernel_, is.target)) > kMostCopied)
      return fmt::format("expected {} to have elements of at most {} bytes", is.target, kMostCopied);
    for (const Access& a : accesses_) {
      const DType type = pattern_.copies() ? type_of(kernel_, is.target) : type_of(pattern_.kernel, *a.means);
      const bool fits =
          a.made || (a.is == &is.target ? type_of(kernel_, *a.is) == type : takes(type, type_of(kernel_, *a.is)));
      if (kernel_.find_buffer(*a.is) == nullptr || !fits)
        return fmt::format("expected {} to be {}", *a.is, dtype_name(type));
      if (*a.is == is.target && *a.means != means.target)
        return fmt::format("expected {} not to be an operand", is.target);
      for (const Access& b : accesses_) {
        if (*a.means == *b.means && *a.is != *b.is) return fmt::format("expected {} and {} to be one", *a.is, *b.is);
      }
    }
    return {};
  }

  std::string outermost() {
    const Stmt &k = *site_.scopes[0], &means = *pattern_.nest.scopes[0];
    if (is_const_int(means.extent) && !equal(k.extent, means.extent))
      return fmt::format("expected scope {} to have extent {}", k.iter, means.extent->ival);
    if (!summed(pattern_.nest, means)) return {};
    if (!summed(site_, k)) return fmt::format("expected {} not to depend on {}", site_.statement->target, k.iter);
    const auto moves = [&](const Access& a) { return depends(*a.site, k.iter); };
    const bool stays = !is_const_int(k.extent, 1) && std::none_of(accesses_.begin(), accesses_.end(), moves);
    return stays ? fmt::format("expected an operand to depend on {}", k.iter) : std::string();
  }

  Expr step(const Kernel& kernel, const std::string& buffer, const std::vector<Expr>& index, const Stmt& scope) const {
    const std::optional<AffineForm> steps = adjacent_steps(kernel, buffer, index);
    return steps ? steps->coeff(scope.iter) : Expr();
  }
  bool is_part(const Stmt& means, const Stmt& is) const {
    return is.mark == means.mark && equal(is.extent, means.extent) &&
           std::all_of(accesses_.begin(), accesses_.end(), [&](const Access& a) {
             const Expr wanted = step(pattern_.kernel, *a.means, *a.pattern, means);
             return depends(*a.site, is.iter) == depends(*a.pattern, means.iter) &&
                    equal(step(kernel_, *a.is, *a.site, is), wanted);
           });
  }
  // The meaning's scopes of constant extent, each another scope of the site.
  std::string parts() {
    for (size_t p = 1; p < pattern_.nest.scopes.size(); ++p) {
      const Stmt& means = *pattern_.nest.scopes[p];
      if (!is_const_int(means.extent)) continue;
      const auto part = std::find_if(site_.scopes.begin() + 1, site_.scopes.end(), [&](const Stmt* is) {
        return std::find(parts_.begin(), parts_.end(), is) == parts_.end() && is_part(means, *is);
      });
      if (part == site_.scopes.end())
        return fmt::format("expected a scope of extent {} that steps as {} does", means.extent->ival, means.iter);
      parts_.push_back(*part);
    }
    return {};
  }

  // The dimension along which an iterator steps by 1, of which no other one depends; none: it steps otherwise.
  static std::optional<size_t> dimension(const std::vector<Expr>& index, const std::string& iterator) {
    std::optional<size_t> out;
    for (size_t d = 0; d < index.size(); ++d) {
      if (!uses(index[d], iterator)) continue;
      const auto form = affine_form(index[d]);
      if (out || !form || !is_const_int(form->coeff(iterator), 1)) return std::nullopt;
      out = d;
    }
    return out;
  }
  // Factors of one type may be either of the meaning's.
  std::string either_order() {
    std::string why = fragments();
    if (why.empty() || accesses_.size() != 3) return why;
    std::swap(accesses_[1].is, accesses_[2].is);
    std::swap(accesses_[1].site, accesses_[2].site);
    return fragments().empty() ? "" : why;
  }
  // The meaning's extent, or a constant that is a size of its symbol.
  bool has_extent(const Stmt& is, const Stmt& means) const {
    if (row_.layout == IntrinsicLayout::kBox) return true;
    if (means.extent->op != Op::k_symbol || equal(is.extent, means.extent)) return equal(is.extent, means.extent);
    const Symbol& s = *pattern_.kernel.find_symbol(means.extent->name);
    return is_const_int(is.extent) && is.extent->ival >= s.min && is.extent->ival <= s.max &&
           is.extent->ival % s.multiple_of == 0;
  }
  std::string fragments() {
    const int copied = dtype_bytes(type_of(pattern_.kernel, pattern_.nest.statement->target));
    if (pattern_.copies() && dtype_bytes(type_of(kernel_, site_.statement->target)) != copied)
      return fmt::format("expected {} to have elements of {} bytes", site_.statement->target, copied);
    for (size_t i = 0; i < site_.scopes.size(); ++i) {
      const Stmt &is = *site_.scopes[i], &means = *pattern_.nest.scopes[i];
      if (!has_extent(is, means))
        return fmt::format("expected scope {} to have extent {}", is.iter, print(means.extent));
      if (i > 0 && is.mark != Mark::none) return fmt::format("expected scope {} to have no mark", is.iter);
      for (const Access& a : accesses_) {
        if (depends(*a.pattern, means.iter) != depends(*a.site, is.iter))
          return fmt::format("expected {} {}to depend on {}", *a.is, depends(*a.site, is.iter) ? "not " : "", is.iter);
        if (depends(*a.site, is.iter) && !dimension(*a.site, is.iter))
          return fmt::format("expected {} to step along one dimension of {}, by 1", is.iter, *a.is);
        for (size_t j = 0; j < i; ++j) {
          const std::optional<size_t> own = dimension(*a.site, is.iter);
          if (own && own == dimension(*a.site, site_.scopes[j]->iter))
            return fmt::format("expected {} and {} to step along different dimensions of {}", site_.scopes[j]->iter,
                               is.iter, *a.is);
        }
      }
    }
    return {};
  }

  std::string lanes() {
    const Scopes& scopes = pattern_.nest.scopes;
    if (std::any_of(scopes.begin(), scopes.end(),
                    [&](const Stmt* s) { return s->mark == Mark::vector && summed(pattern_.nest, *s); })) {
      return {};
    }
    for (const Stmt* s : site_.scopes) {
      if (s->mark == Mark::vector && summed(site_, *s) && !is_const_int(s->extent, 1))
        return fmt::format("expected {} to depend on vector scope {}", site_.statement->target, s->iter);
    }
    return {};
  }

  std::string adjacent() {
    if (row_.layout != IntrinsicLayout::kAdjacent) return {};
    std::vector<std::pair<const Stmt*, const Stmt*>> along;
    for (const Access& a : accesses_) {
      const Stmt* means = adjacent_scope(adjacent_steps(pattern_.kernel, *a.means, *a.pattern), pattern_.nest.scopes);
      const Stmt* is = adjacent_scope(adjacent_steps(kernel_, *a.is, *a.site), site_.scopes);
      if (means == nullptr) continue;
      if (is == nullptr) return "expected one iterator with step 1 along the unit-stride dimension of each buffer";
      for (const auto& [other_means, other_is] : along) {
        if ((other_means == means) != (other_is == is)) {
          return fmt::format("expected {} along the unit-stride dimensions",
                             other_means == means ? "one iterator" : "different iterators");
        }
      }
      along.emplace_back(means, is);
    }
    for (const Access& a : accesses_) {
      for (const auto& [means, is] : along) {
        if (depends(*a.pattern, means->iter) && !depends(*a.site, is->iter))
          return fmt::format("expected {} to depend on {}", *a.is, is->iter);
      }
    }
    return {};
  }

  const Kernel& kernel_;
  const Intrinsic& row_;
  const Meaning& pattern_;
  Nest site_;
  std::vector<Access> accesses_;  // the result's first
  Scopes parts_;
};

}  // namespace

const std::vector<Intrinsic>& intrinsics() { return kIntrinsics; }

const Intrinsic* find_intrinsic(std::string_view name) {
  const auto row = std::find_if(kIntrinsics.begin(), kIntrinsics.end(), [&](const auto& i) { return name == i.name; });
  return row == kIntrinsics.end() ? nullptr : &*row;
}

bool is_summed(const Stmt& scope) {
  const Intrinsic* row = find_intrinsic(scope.intrinsic);
  const Meaning* m = row == nullptr ? nullptr : meaning_of(*row);
  return m != nullptr && summed(m->nest, *m->nest.scopes[0]);
}

bool is_one_step(const Stmt& scope) {
  const Intrinsic* row = find_intrinsic(scope.intrinsic);
  const Meaning* m = row == nullptr ? nullptr : meaning_of(*row);
  return m != nullptr && is_const_int(m->nest.scopes[0]->extent);
}

int64_t k_step(const Intrinsic& intrinsic) {
  int64_t out = 1;
  const Meaning* m = meaning_of(intrinsic);
  for (size_t i = 0; m != nullptr && i < m->nest.scopes.size(); ++i) {
    const Stmt& s = *m->nest.scopes[i];
    if (is_const_int(s.extent) && summed(m->nest, s)) out *= s.extent->ival;
  }
  return out;
}

bool matches_intrinsic(const Kernel& kernel, const Stmt& scope, const Intrinsic& intrinsic, std::string* why) {
  const Meaning* meaning = meaning_of(intrinsic);
  std::string refusal = meaning == nullptr
                            ? fmt::format("the meaning of {} is no Kernel of one statement", intrinsic.name)
                            : Matcher(kernel, intrinsic, *meaning).run(scope);
  if (why != nullptr && !refusal.empty()) *why = refusal;
  return refusal.empty();
}

int warp_lanes(const Stmt& scope) {
  const Intrinsic* row = scope.mark == Mark::tensor ? find_intrinsic(scope.intrinsic) : nullptr;
  return row != nullptr ? row->threads : 1;
}

bool copies_box(const Stmt& scope) {
  const Intrinsic* row = scope.mark == Mark::tensor ? find_intrinsic(scope.intrinsic) : nullptr;
  return row != nullptr && row->layout == IntrinsicLayout::kBox;
}

std::vector<Fragment> fragments_of(const Stmt& scope, bool write, const std::vector<Expr>& index,
                                   const std::string& iter) {
  const Intrinsic* row = find_intrinsic(scope.intrinsic);
  const Meaning* m = row == nullptr ? nullptr : meaning_of(*row);
  Nest site;
  if (m == nullptr || !site.descend(scope, false).empty() || site.scopes.size() != m->nest.scopes.size()) return {};
  const auto at = std::find_if(site.scopes.begin(), site.scopes.end(), [&](const Stmt* s) { return s->iter == iter; });
  if (at == site.scopes.end() || !depends(index, iter)) return {};
  const Stmt& means = *m->nest.scopes[static_cast<size_t>(at - site.scopes.begin())];
  // Operands differ in the iterators that are in them.
  const auto alike = [&](const std::vector<Expr>& pattern) {
    for (size_t i = 0; i < site.scopes.size(); ++i) {
      if (depends(pattern, m->nest.scopes[i]->iter) != depends(index, site.scopes[i]->iter)) return false;
    }
    return true;
  };
  std::string buffer;
  std::vector<Expr> pattern;
  if (write) {
    buffer = m->nest.statement->target;
    pattern = m->nest.statement->index;
  } else {
    for_each_node(m->nest.statement->value, [&](const ExprNode& n) {
      if (n.op != Op::k_load || !alike(n.args)) return;
      buffer = n.name;
      pattern = n.args;
    });
  }
  std::vector<Fragment> out;
  for (const FragmentRow& f : kFragments) {
    if (std::string_view(f.intrinsic) == row->name && f.buffer == buffer && uses(pattern[f.dim], means.iter))
      out.push_back(f.fragment);
  }
  return out;
}

}  // namespace lathe::ir
