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
