// Places, names, arguments and body edits for the moves: see transform_util.h.
#include "search/moves/transform_util.h"

#include <algorithm>
#include <charconv>

#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace): this floor is written in terms of the
                     // IR

ScopePath ScopeSite::path() const {
  ScopePath p = outer;
  p.push_back(&scope());
  return p;
}

static bool find_in(std::vector<Stmt>& body, const std::string& iter, ScopeSite& site) {
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i].kind != Stmt::Kind::scope) continue;
    if (body[i].iter == iter) {
      site.siblings = &body;
      site.index = i;
      return true;
    }
    site.outer.push_back(&body[i]);
    if (find_in(body[i].body, iter, site)) return true;
    site.outer.pop_back();
  }
  return false;
}

Result<ScopeSite> find_site(Kernel& kernel, const std::string& iter) {
  ScopeSite site;
  if (!find_in(kernel.body, iter, site)) return invalid("expected the name of a scope, got `{}`", iter);
  return site;
}

Result<BodySite> find_body(Kernel& kernel, const std::string& name) {
  if (name == "root") return BodySite{&kernel.body, {}};
  LATHE_ASSIGN(const ScopeSite site, find_site(kernel, name));
  return BodySite{&site.scope().body, site.path()};
}

bool inside_mark(const ScopePath& path, Mark mark) {
  for (const Stmt* s : path) {
    if (s->mark == mark) return true;
  }
  return false;
}

bool inside_shared_out(const ScopePath& path) {
  return std::any_of(path.begin(), path.end(), [](const Stmt* s) { return is_shared_out(s->mark); });
}

Result<ScopeSite> find_plain_site(Kernel& kernel, const std::string& iter) {
  LATHE_ASSIGN(ScopeSite site, find_site(kernel, iter));
  if (site.scope().mark != Mark::none) return invalid("expected a scope without a mark, `{}` has one", iter);
  if (inside_mark(site.outer, Mark::vector) || inside_mark(site.outer, Mark::tensor)) {
    return invalid("expected a scope outside @vector and @tensor scopes, `{}` is inside one", iter);
  }
  return site;
}

Result<int64_t> int_arg(const std::string& text, const char* what, int64_t lo, int64_t hi) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [ptr, ec] = std::from_chars(text.data(), end, value);
  if (ec != std::errc() || ptr != end || value < lo || value > hi) {
    return invalid("expected {} in {}..{}, got `{}`", what, lo, hi, text);
  }
  return value;
}

Result<Buffer*> find_temporary(Kernel& kernel, const std::string& name) {
  Buffer* buffer = kernel.find_buffer(name);
  if (!buffer || buffer->place < Place::heap) return invalid("expected the name of a temporary, got `{}`", name);
  return buffer;
}

Ranges ranges_at(const Kernel& kernel, const ScopePath& path) {
  Ranges ranges(kernel);
  for (const Stmt* s : path) ranges.enter(*s);
  return ranges;
}

Names::Names(const Kernel& kernel) {
  used_.reserve(32);
  for (const Symbol& s : kernel.symbols) used_.push_back(s.name);
  for (const Buffer& b : kernel.buffers) used_.push_back(b.name);
  for_each_stmt(kernel.body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::scope) used_.push_back(s.iter);
  });
}

std::string Names::fresh(const std::string& base) {
  std::string name = base, prefix = base;
  char letter = 'b';
  while (taken(name)) {
    name = prefix + letter;
    if (letter++ == 'z') {
      prefix += 'b';
      letter = 'b';
    }
  }
  used_.push_back(name);
  return name;
}

Status Names::take(const std::string& name) {
  if (!is_valid_name(name) || name == "root") return invalid("expected a new name, got `{}`", name);
  if (taken(name)) return invalid("expected an unused name, `{}` exists", name);
  used_.push_back(name);
  return {};
}

Result<std::vector<std::string>> created_names(Names& names, const Move& move,
                                               const std::vector<std::string>& defaults) {
  if (move.created.size() > defaults.size()) {
    return invalid("expected at most {} names after `as`, got {}", defaults.size(), move.created.size());
  }
  std::vector<std::string> out = move.created;
  for (const std::string& name : out) LATHE_RETURN_IF_ERROR(names.take(name));
  for (size_t i = out.size(); i < defaults.size(); ++i) out.push_back(names.fresh(defaults[i]));
  return out;
}

static bool holds_any(const Expr& e, const std::vector<std::string>& names, uint64_t bits) {
  if (!e || (e->holds & bits) == 0) return false;
  if (!e->name.empty() && std::find(names.begin(), names.end(), e->name) != names.end()) return true;
  return std::any_of(e->args.begin(), e->args.end(), [&](const Expr& a) { return holds_any(a, names, bits); });
}
bool uses_any(const Expr& e, const std::vector<std::string>& names) {
  uint64_t bits = 0;
  for (const std::string& name : names) bits |= holds_name(name);
  return holds_any(e, names, bits);
}

void substitute_body(std::vector<Stmt>& body, const Renaming& map) {
  for_each_stmt(body, [&](Stmt& s) {
    if (s.extent) s.extent = substitute(s.extent, map);
    for (Expr& e : s.index) e = substitute(e, map);
    if (s.value) s.value = substitute(s.value, map);
  });
}

void follow_prefetch(std::vector<Stmt>& body, const std::string& from, const std::string& to) {
  for_each_stmt(body, [&](Stmt& s) {
    if (s.kind == Stmt::Kind::prefetch && s.iter == from) s.iter = to;
  });
}

std::string print_extent(const Stmt& scope) { return fmt::format("{} < {}", scope.iter, print(scope.extent)); }

Renaming rename_scopes(std::vector<Stmt>& body, const std::string& suffix, Names& names) {
  Renaming map;
  for_each_stmt(body, [&](Stmt& s) {
    if (s.kind != Stmt::Kind::scope) return;
    const std::string name = names.fresh(s.iter + suffix);
    map.emplace_back(s.iter, iter(name));
    follow_prefetch(s.body, s.iter, name);
    s.iter = name;
  });
  substitute_body(body, map);
  return map;
}

Expr simplify_loads(const Expr& value, const Ranges& ranges) {
  return rewrite(
      value,
      [&](const Expr& e) -> Expr {
        const bool shifts = e->op == Op::k_shift_left || e->op == Op::k_shift_right;
        if (e->op != Op::k_load && !shifts) return {};
        return with_args(e, [&](const Expr& a) { return a->type == DType::i64 ? simplify(a, ranges) : a; });
      },
      kHoldsLoad | kHoldsShift);
}

// The ranges come back as they were.
static void simplify_inside(std::vector<Stmt>& body, Ranges& ranges, const std::vector<std::string>& names) {
  const auto concerned = [&](const Expr& e) { return names.empty() || uses_any(e, names); };
  for (Stmt& s : body) {
    for (Expr& e : s.index) {
      if (concerned(e)) e = simplify(e, ranges);
    }
    if (s.value && concerned(s.value)) s.value = simplify_loads(s.value, ranges);
    if (s.kind != Stmt::Kind::scope) continue;
    const bool fresh = std::find(names.begin(), names.end(), s.iter) != names.end();
    if (fresh || concerned(s.extent)) s.extent = simplify(s.extent, ranges);
    if (ranges.find(s.iter)) {
      Ranges inner = ranges;
      inner.enter(s);
      simplify_inside(s.body, inner, names);
      continue;
    }
    ranges.enter(s);
    simplify_inside(s.body, ranges, names);
    ranges.leave();
  }
}

void simplify_body(std::vector<Stmt>& body, const Ranges& ranges, const std::vector<std::string>& names) {
  Ranges own = ranges;
  simplify_inside(body, own, names);
}

void prune_empty(std::vector<Stmt>& body) {
  for (Stmt& s : body) prune_empty(s.body);
  std::erase_if(body, [](const Stmt& s) { return s.kind == Stmt::Kind::scope && s.body.empty(); });
}

Status Legality::require(int number, bool holds, const std::string& why) const {
  if (holds || params_.disabled_precondition == number) return {};
  const char* sentence = find_transform(row_)->preconditions[number];
  return why.empty() ? unsupported("{}", sentence) : unsupported("{}: {}", sentence, why);
}

static void collect_plain(const std::vector<Stmt>& body, std::vector<std::string>& out) {
  for (const Stmt& s : body) {
    if (s.kind != Stmt::Kind::scope || s.mark == Mark::vector || s.mark == Mark::tensor) continue;
    if (s.mark == Mark::none) out.push_back(s.iter);
    collect_plain(s.body, out);
  }
}

std::vector<std::string> plain_scopes(const Kernel& kernel) {
  std::vector<std::string> out;
  collect_plain(kernel.body, out);
  return out;
}

bool written_once(const Kernel& kernel, const std::string& buffer) {
  std::vector<Access> writes = collect_accesses(kernel.body, {}, &buffer);
  std::erase_if(writes, [](const Access& a) { return !a.write; });
  for (size_t i = 0; i < writes.size(); ++i) {
    const Access& a = writes[i];
    for (const Stmt* scope : a.scopes) {
      if (may_conflict_across(kernel, scope->iter, a, a, false)) return false;
    }
    for (size_t j = 0; j < i; ++j) {
      const Access& b = writes[j];
      const auto split = std::mismatch(a.scopes.begin(), a.scopes.end(), b.scopes.begin(), b.scopes.end());
      const ScopePath common(a.scopes.begin(), split.first);
      for (const Stmt* scope : common) {
        if (may_conflict_across(kernel, scope->iter, a, b, false)) return false;
      }
      const auto part = [&](const Access& x) -> const Stmt& {
        return x.scopes.size() > common.size() ? *x.scopes[common.size()] : *x.stmt;
      };
      if (!may_exchange(kernel, part(b), part(a), common, nullptr)) return false;
    }
  }
  return true;
}

}  // namespace lathe::search
