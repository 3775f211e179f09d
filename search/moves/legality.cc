// Legality questions of the moves: see legality.h.
#include "search/moves/legality.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "ir/core/names.h"
#include "search/moves/footprint.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
// The scopes from the root to the one named, inclusive.
bool find_path(const std::vector<Stmt>& body, const std::string& iter, ScopePath& path) {
  for (const Stmt& s : body) {
    if (s.kind != Stmt::Kind::scope) continue;
    path.push_back(&s);
    if (s.iter == iter || find_path(s.body, iter, path)) return true;
    path.pop_back();
  }
  return false;
}

ScopePath path_to(const Kernel& kernel, const std::string& iter) {
  ScopePath path;
  path.reserve(8);
  find_path(kernel.body, iter, path);
  return path;
}

std::vector<Access> accesses_inside(const ScopePath& path) { return collect_accesses(path.back()->body, path); }

std::string describe(const Access& a, const Access& b) {
  return fmt::format("`{}` is {} in one iteration and {} in another", a.buffer, a.write ? "written" : "read",
                     b.write ? "written" : "read");
}

// Joins one pair's answer in: ok, ok as a reordered reduction, or refused.
void judge(const Kernel& kernel, const std::string& iter, const Access& a, const Access& b, bool allow_reductions,
           Answer& answer) {
  if (a.buffer != b.buffer || !(a.write || b.write) || !answer.ok) return;
  if (!may_conflict_across(kernel, iter, a, b, false)) return;
  if (allow_reductions && a.reduction && b.reduction && a.op == b.op &&
      !may_conflict_across(kernel, iter, a, b, true)) {
    answer.reassociates = answer.reassociates || order_matters(kernel, a);
    return;
  }
  answer.ok = false;
  answer.why = describe(a, b);
}
}  // namespace

bool order_matters(const Kernel& kernel, const Access& access) {
  const Buffer* buffer = kernel.find_buffer(access.buffer);
  return is_float(buffer->type) && (access.op == AssignOp::add || access.op == AssignOp::mul);
}

Answer independent(const Kernel& kernel, const std::string& iter, const IndependenceQuery& query) {
  Answer answer;
  const std::vector<Access> accesses = accesses_inside(path_to(kernel, iter));
  std::set<std::string> counts;  // written, and shared by the iterations
  for (const Access& a : accesses) {
    if (a.write && std::count(query.apart.begin(), query.apart.end(), a.buffer) == 0) counts.insert(a.buffer);
  }
  if (!query.private_to.empty()) {
    const ScopePath scope = path_to(kernel, query.private_to);
    std::erase_if(counts, [&](const std::string& name) {
      return !is_param(kernel.find_buffer(name)->place) && lives_inside(kernel, name, scope, nullptr);
    });
  }
  for (size_t i = 0; i < accesses.size() && answer.ok; ++i) {
    if (counts.count(accesses[i].buffer) == 0) continue;
    for (size_t j = i; j < accesses.size() && answer.ok; ++j) {
      judge(kernel, iter, accesses[i], accesses[j], query.allow_reductions, answer);
    }
  }
  return answer;
}

Answer separable(const Kernel& kernel, const std::string& iter, size_t at, const std::vector<std::string>& apart) {
  Answer answer;
  const ScopePath path = path_to(kernel, iter);
  const Stmt* scope = path.back();
  const std::vector<Access> accesses = accesses_inside(path);
  const auto child = [&](const Access& a) {
    const Stmt* top = a.scopes.size() > path.size() ? a.scopes[path.size()] : a.stmt;
    return static_cast<size_t>(top - scope->body.data());
  };
  for (const Access& a : accesses) {
    if (child(a) >= at || std::count(apart.begin(), apart.end(), a.buffer) != 0) continue;
    for (const Access& b : accesses) {
      if (child(b) >= at) judge(kernel, iter, a, b, true, answer);
    }
  }
  return answer;
}

namespace {
// Whether the access's cells depend on what the Kernel itself writes: the same expression may mean others later.
bool reads_written(const Kernel& kernel, const Access& access, size_t fixed) {
  bool reads = false;
  const auto look = [&](const Expr& e) {
    for_each_node(e, [&](const ExprNode& n) {
      reads = reads || (n.op == Op::k_load && !is_input(kernel.find_buffer(n.name)->place));
    });
  };
  for (size_t i = fixed; i < access.scopes.size(); ++i) look(access.scopes[i]->extent);
  for (const Expr& e : access.index) look(e);
  return reads;
}

// Whether each iteration that reads has one of the write's own scopes that writes the cell: each of their iterators
// that the index names goes with one of the read's that has the same extent. Loads mean the same in both where
// `inputs_alone` says that they are of inputs.
class SameCells {
 public:
  SameCells(const Access& writes, const Access& reads, size_t fixed, bool inputs_alone)
      : writes_(writes), reads_(reads), fixed_(fixed), inputs_alone_(inputs_alone) {}

  bool proven() {
    if (!std::equal(writes_.index.begin(), writes_.index.end(), reads_.index.begin(), reads_.index.end(),
                    [&](const Expr& w, const Expr& r) { return alike(w, r); }))
      return false;
    for (size_t i = 0; i < pairs_.size(); ++i) {  // which may name others
      const Expr w = pairs_[i].first->extent, r = pairs_[i].second->extent;
      if (!alike(w, r)) return false;
    }
    // The others may have any value that they have.
    return std::all_of(writes_.scopes.begin() + static_cast<std::ptrdiff_t>(fixed_), writes_.scopes.end(),
                       [&](const Stmt* s) {
                         return partner(s) != nullptr || (is_const_int(s->extent) && s->extent->ival >= 1) || runs(s);
                       });
  }

 private:
  // Whether it has iterations wherever the read has: one of the read's scopes has as many, by what is paired.
  bool runs(const Stmt* scope) {
    const size_t paired = pairs_.size();
    return std::any_of(reads_.scopes.begin() + static_cast<std::ptrdiff_t>(fixed_), reads_.scopes.end(),
                       [&](const Stmt* s) {
                         const bool same = alike(scope->extent, s->extent) && pairs_.size() == paired;
                         pairs_.resize(paired);
                         return same;
                       });
  }
  const Stmt* own(const Access& access, const std::string& iter) const {
    for (size_t i = fixed_; i < access.scopes.size(); ++i) {
      if (access.scopes[i]->iter == iter) return access.scopes[i];
    }
    return nullptr;
  }
  const Stmt* partner(const Stmt* scope) const {
    for (const auto& [w, r] : pairs_) {
      if (w == scope) return r;
    }
    return nullptr;
  }
  bool alike(const Expr& w, const Expr& r) {
    if (w->op != r->op || w->type != r->type || w->args.size() != r->args.size()) return false;
    if (w->op == Op::k_load && !inputs_alone_) return false;
    if (w->op == Op::k_iter) {
      const Stmt *from = own(writes_, w->name), *to = own(reads_, r->name);
      if (from == nullptr || to == nullptr) return from == to && w->name == r->name;
      if (const Stmt* known = partner(from)) return known == to;
      pairs_.emplace_back(from, to);
      return true;
    }
    if (w->name != r->name || w->ival != r->ival || w->op == Op::k_const_float) return false;
    for (size_t i = 0; i < w->args.size(); ++i) {
      if (!alike(w->args[i], r->args[i])) return false;
    }
    return true;
  }

  const Access &writes_, &reads_;
  const size_t fixed_;
  const bool inputs_alone_;
  std::vector<std::pair<const Stmt*, const Stmt*>> pairs_;
};

// The box of cells that it writes, each of them; nothing: it may leave some out.
std::optional<std::vector<DimRange>> written_box(const Kernel& kernel, const Access& writes, size_t fixed,
                                                 const Ranges& ranges) {
  std::vector<DimRange> box = footprint(kernel, writes, fixed, ranges);
  if (std::any_of(box.begin(), box.end(), [](const DimRange& r) { return r.whole || !r.exact; })) return std::nullopt;
  // A write loop that does not index the target must run at least once; one that indexes two writes a diagonal.
  for (size_t i = fixed; i < writes.scopes.size(); ++i) {
    const auto dims = std::count_if(writes.index.begin(), writes.index.end(),
                                    [&](const Expr& e) { return uses(e, writes.scopes[i]->iter); });
    if (dims > 1) return std::nullopt;
    if (dims == 1) continue;
    Ranges inner = ranges;
    for (size_t j = fixed; j < i; ++j) inner.enter(*writes.scopes[j]);
    if (!surely_le(Expr(1), writes.scopes[i]->extent, inner)) return std::nullopt;
  }
  return box;
}

// What one read finds in boxes of cells that were written, of common scopes that stay as they are.
struct Reading {
  Reading(const Kernel& kernel, const Access& read, size_t fixed, const Ranges& common)
      : index(read.index), ranges(common), each(ranges_at(kernel, read.scopes)) {
    box = footprint(kernel, read, fixed, common);
  }

  // Whether all cells are from `begin` on and before `end` in dimension d, by the box around them or one by one.
  bool within(size_t d, const Expr& begin, const Expr& end) const {
    const DimRange& r = box[d];
    if (surely_le(begin, r.base, ranges) && surely_le(end_of(r), end, ranges)) return true;
    return surely_le(begin, index[d], each) && surely_le(simplify(index[d] + Expr(1), each), end, each);
  }
  bool within(size_t d, const DimRange& w) const {
    return (equal(w.base, box[d].base) && equal(w.extent, box[d].extent)) || within(d, w.base, end_of(w));
  }
  Expr end_of(const DimRange& w) const { return simplify(w.base + w.extent, ranges); }

  const std::vector<Expr>& index;
  const Ranges& ranges;
  const Ranges each;
  std::vector<DimRange> box;
};

Ranges ranges_of_common(const Kernel& kernel, const Access& access, size_t fixed) {
  return ranges_at(kernel, {access.scopes.begin(), access.scopes.begin() + static_cast<std::ptrdiff_t>(fixed)});
}
}  // namespace

bool covers(const Kernel& kernel, const Access& writes, const Access& reads, size_t fixed) {
  const bool side_by_side = writes.scopes.size() == fixed && reads.scopes.size() == fixed;
  if (side_by_side &&
      std::equal(writes.index.begin(), writes.index.end(), reads.index.begin(), reads.index.end(), equal))
    return true;
  const bool inputs_alone = !reads_written(kernel, writes, fixed) && !reads_written(kernel, reads, fixed);
  if (SameCells(writes, reads, fixed, inputs_alone).proven()) return true;
  if (!inputs_alone) return false;
  const Ranges ranges = ranges_of_common(kernel, writes, fixed);
  const auto box = written_box(kernel, writes, fixed, ranges);
  const Reading reading(kernel, reads, fixed, ranges);
  bool all = box.has_value();
  for (size_t d = 0; all && d < box->size(); ++d) all = reading.within(d, (*box)[d]);
  return all;
}

bool covers(const Kernel& kernel, const Access& first, const Access& second, const Access& reads, size_t fixed) {
  for (const Access* a : {&first, &second, &reads}) {
    if (reads_written(kernel, *a, fixed)) return false;
  }
  const Ranges ranges = ranges_of_common(kernel, first, fixed);
  const auto box = written_box(kernel, first, fixed, ranges), next = written_box(kernel, second, fixed, ranges);
  if (!box || !next) return false;
  const Reading reading(kernel, reads, fixed, ranges);
  int joined = 0;
  for (size_t d = 0; d < box->size(); ++d) {
    const DimRange &r = (*box)[d], &n = (*next)[d];
    if (reading.within(d, r) && reading.within(d, n)) continue;
    // If one of them has no cells here, the other one has all that lie between.
    const bool meet = surely_le(n.base, reading.end_of(r), ranges);
    if (++joined > 1 || !meet || !reading.within(d, r.base, reading.end_of(n))) return false;
  }
  return true;
}

bool lives_inside(const Kernel& kernel, const std::string& buffer, const ScopePath& path, std::string* why) {
  const std::string place = path.empty() ? "root" : path.back()->iter;
  const auto refuse = [&](const char* reason) {
    if (why) *why = fmt::format(fmt::runtime(reason), buffer, place);
    return false;
  };
  const std::vector<Access> accesses = collect_accesses(kernel.body, {}, &buffer);
  for (const Access& a : accesses) {
    const bool inside = a.scopes.size() >= path.size() && std::equal(path.begin(), path.end(), a.scopes.begin());
    if (!inside) return refuse("`{}` is used outside scope `{}`");
  }
  for (auto at = accesses.begin(); at != accesses.end(); ++at) {
    const Access& read = *at;
    if (read.write && !read.reduction) continue;
    // They are in program order. Common scopes of a plain write before and the read; none where it is no such write.
    const auto fixed = [&](const Access& write) -> std::optional<size_t> {
      if (!write.write || write.reduction || write.stmt == read.stmt) return std::nullopt;
      const auto split =
          std::mismatch(write.scopes.begin(), write.scopes.end(), read.scopes.begin(), read.scopes.end());
      return static_cast<size_t>(split.first - write.scopes.begin());
    };
    bool covered = std::any_of(accesses.begin(), at, [&](const Access& write) {
      const auto common = fixed(write);
      return common && covers(kernel, write, read, *common);
    });
    for (auto first = accesses.begin(); first != at && !covered; ++first) {
      covered = std::any_of(accesses.begin(), at, [&](const Access& second) {
        const auto common = fixed(*first);
        return common && second.stmt != first->stmt && fixed(second) == common &&
               covers(kernel, *first, second, read, *common);
      });
    }
    if (!covered) return refuse("`{}` may be read before the iteration of `{}` wrote it");
  }
  return true;
}

bool has_values(const Kernel& kernel, const std::string& buffer, std::string* why) {
  std::vector<std::string> names = {buffer};  // and all that they are made of
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string name = names[i];
    if (is_input(kernel.find_buffer(name)->place)) continue;
    if (!lives_inside(kernel, name, {}, why)) return false;
    for (const Access& a : collect_accesses(kernel.body, {}, &name)) {
      if (!a.write) continue;
      for_each_node(a.stmt->value, [&](const ExprNode& n) {
        const bool further = n.op == Op::k_load && std::find(names.begin(), names.end(), n.name) == names.end();
        if (further) names.push_back(n.name);
      });
    }
  }
  return true;
}

bool is_above_minus_infinity(const Kernel& kernel, const Expr& e) {
  if (e->op != Op::k_load) return false;
  bool starts = false, rises = true;
  for (const Access& a : collect_accesses(kernel.body, {}, &e->name)) {
    if (!a.write) continue;
    const Expr& value = a.stmt->value;
    if (a.op == AssignOp::set) {
      const Expr& from = value->op == Op::k_fmax ? value->args[0] : value;
      starts = from->op == Op::k_const_float && std::isfinite(from->fval);
      rises = rises && starts;
    } else {
      rises = rises && a.op == AssignOp::fmax;
    }
  }
  return starts && rises;
}

// The integers whose differences the scope's extent is, from `t` on, or from its first to its second; null: it is none.
static const ExprNode* first_of(const Expr& extent, const std::string& t) {
  if (extent->op != Op::k_sub) return nullptr;
  const auto loaded = [](const Expr& e) -> const ExprNode* {
    const Expr& inner = e->op == Op::k_cast ? e->args[0] : e;
    return inner->op == Op::k_load && (inner->args.size() == 1 || inner->args.size() == 2) ? inner.get() : nullptr;
  };
  const ExprNode *last = loaded(extent->args[0]), *first = loaded(extent->args[1]);
  if (last == nullptr || first == nullptr || last->name != first->name) return nullptr;
  if (!equal(first->args[0], iter(t))) return nullptr;
  const bool follows = first->args.size() == 1 ? equal(last->args[0], iter(t) + Expr(1))
                                               : equal(last->args[0], iter(t)) && is_const_int(first->args[1], 0) &&
                                                     is_const_int(last->args[1], 1);
  return follows ? first : nullptr;
}

std::vector<std::string> in_segments(const Stmt& scope) {
  std::map<std::string, Expr> extents;  // of the segments that all accesses of a buffer stay in; null: of none
  for (const Access& a : collect_accesses(scope.body)) {
    Expr own;
    for (const Stmt* s : a.scopes) {
      if (first_of(s->extent, scope.iter) == nullptr || a.index.empty()) continue;
      if (equal(simplify(a.index[0]), simplify(s->extent->args[1] + iter(s->iter)))) own = s->extent;
    }
    const auto [known, first] = extents.try_emplace(a.buffer, own);
    if (!first && known->second && !(own && equal(own, known->second))) known->second = Expr();
  }
  std::vector<std::string> out;
  for (const auto& [name, extent] : extents) {
    if (extent) out.push_back(name);
  }
  return out;
}

bool is_whole(const Kernel& kernel, const Buffer& b, size_t before) {
  if (is_input(b.place)) return true;
  const Stmt* maker = nullptr;
  for (size_t i = 0; i < kernel.body.size(); ++i) {
    for (const Access& a : collect_accesses({kernel.body[i]}, {}, &b.name)) {
      if (!a.write) continue;
      if (maker != nullptr || i >= before) return false;
      maker = &kernel.body[i];
    }
  }
  std::vector<const Stmt*> scopes;
  const Stmt* s = maker;
  for (; s != nullptr && s->kind == Stmt::Kind::scope && s->body.size() == 1; s = &s->body[0]) scopes.push_back(s);
  if (s == nullptr || s->kind != Stmt::Kind::assign || s->op != AssignOp::set || scopes.size() != b.dims.size())
    return false;
  for (size_t d = 0; d < b.dims.size(); ++d) {
    const auto own = std::find_if(scopes.begin(), scopes.end(), [&](const Stmt* o) {
      return s->index[d]->op == Op::k_iter && s->index[d]->name == o->iter;
    });
    if (own == scopes.end() || !equal((*own)->extent, b.dims[d])) return false;
    scopes.erase(own);
  }
  return true;
}

}  // namespace lathe::search
