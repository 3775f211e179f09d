// create_temporary, inline_temporary: a buffer between a value and its uses, made or removed.
#include <algorithm>

#include "ir/core/names.h"
#include "search/moves/footprint.h"
#include "search/moves/legality.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
// for xp_0 < e0: for xp_1 < e1: target[...] = source[...], numbered by the temporary's
// dimensions; `into`: target is the temporary.
Stmt copy_nest(const Staged& staged, const Buffer& buffer, const std::string& temporary, bool into, Names& names) {
  std::vector<Expr> outside, inside;
  std::vector<std::pair<std::string, size_t>> loops;
  for (size_t d = 0; d < staged.box.size(); ++d) {
    if (!staged.kept[d]) {
      outside.push_back(staged.box[d].base);
      continue;
    }
    const std::string name = names.fresh(fmt::format("{}_{}", temporary, loops.size()));
    loops.emplace_back(name, d);
    inside.push_back(iter(name));
    outside.push_back(staged.box[d].base + iter(name));
  }
  Stmt nest = into ? make_assign(temporary, inside, AssignOp::set, load(buffer.name, outside, buffer.type))
                   : make_assign(buffer.name, outside, AssignOp::set, load(temporary, inside, buffer.type));
  for (size_t i = loops.size(); i-- > 0;) {
    const DimRange& r = staged.box[loops[i].second];
    std::vector<Stmt> body;
    body.push_back(std::move(nest));
    nest = make_scope(loops[i].first, r.extent, std::move(body), r.role);
  }
  return nest;
}
}  // namespace

enum class Staging : uint8_t { stage, accumulate, keep };

static Status create_temporary(TransformResult& result, const Move& move, const Legality& legality, Staging mode) {
  Kernel& k = result.kernel;
  const bool accumulate = mode != Staging::stage;  // or kept: it is written
  const Buffer* found = k.find_buffer(move.args[0]);
  if (!found) return invalid("expected the name of a buffer, got `{}`", move.args[0]);
  const Buffer buffer = *found;
  if (accumulate && is_input(buffer.place)) {
    return invalid("expected a buffer that may be written, got `{}`", buffer.name);
  }
  if (buffer.values)
    return invalid("expected a buffer of any values; a copy of `{}` would not state them", buffer.name);
  LATHE_ASSIGN(const BodySite site, find_body(k, move.options.at("at")));
  // A block of threads of its own stages in what is its own.
  const bool of_block = buffer.place == Place::stack || buffer.place == Place::shared;
  const bool own =
      (mode == Staging::stage || (mode == Staging::keep && of_block)) && inside_mark(site.path, Mark::grid);
  if (inside_mark(site.path, Mark::vector) || inside_mark(site.path, Mark::tensor) ||
      inside_mark(site.path, Mark::parallel) || inside_mark(site.path, Mark::block) ||
      (!own && inside_mark(site.path, Mark::grid)))
    return invalid("expected a place outside @vector, @tensor, @parallel, @grid and @block scopes");
  const auto beside = std::find_if(site.body->begin(), site.body->end(),
                                   [](const Stmt& s) { return is_of_grid(s.mark) || s.mark == Mark::persistent; });
  if (own && beside != site.body->end())
    return invalid("expected a place inside of all @grid, @cluster and @persistent scopes, `{}` is one", beside->iter);
  if (buffer.place == Place::shared && !own)
    return invalid("expected a buffer that is not shared, got `{}`", buffer.name);
  const std::vector<Access> accesses = collect_accesses(*site.body, site.path, &buffer.name);
  const bool written = std::any_of(accesses.begin(), accesses.end(), [](const Access& a) { return a.write; });
  const bool read = std::any_of(accesses.begin(), accesses.end(), [](const Access& a) { return !a.write; });
  if (accumulate ? !written : !read) {
    return invalid("expected `{}` to be {} there", buffer.name, accumulate ? "written" : "read");
  }
  if (mode == Staging::stage) LATHE_RETURN_IF_ERROR(legality.require(0, !written));
  // Threads that are told apart already would each have a copy, which one of them makes.
  const bool threads = own && std::any_of(accesses.begin(), accesses.end(), [](const Access& a) {
                         return !a.write && inside_mark(a.scopes, Mark::block);
                       });
  if (threads) return invalid("expected `{}` to be read outside of @block scopes", buffer.name);

  Names names(k);
  LATHE_RETURN_IF_ERROR(names.take(move.args[1]));
  const Ranges ranges = ranges_at(k, site.path);
  std::vector<const Access*> pointers;
  for (const Access& a : accesses) {
    if (accumulate || !a.write) pointers.push_back(&a);
  }
  const Staged staged = stage_box(k, buffer, pointers, site.path.size(), ranges);
  Buffer temporary;
  temporary.name = move.args[1];
  temporary.type = buffer.type;
  temporary.place = own ? Place::stack : Place::heap;
  for (size_t d = 0; d < staged.box.size(); ++d) {
    if (staged.kept[d]) temporary.dims.push_back(storage_size(staged.box[d], buffer.dims[d], ranges, false));
  }
  std::vector<Stmt>& body = *site.body;
  for_each_stmt(body, [&](Stmt& s) {
    const bool redirected = s.kind == Stmt::Kind::prefetch || (accumulate && s.kind == Stmt::Kind::assign);
    if (!redirected || s.target != buffer.name) return;
    s.target = temporary.name;
    s.index = staged.rebase(s.index);
  });
  rewrite_exprs(
      body,
      [&](const Expr& e) -> Expr {
        if (e->op != Op::k_load || e->name != buffer.name) return {};
        return load(temporary.name, staged.rebase(e->args), e->type);
      },
      holds_name(buffer.name));
  if (mode != Staging::keep) body.insert(body.begin(), copy_nest(staged, buffer, temporary.name, true, names));
  if (accumulate) body.push_back(copy_nest(staged, buffer, temporary.name, false, names));
  simplify_body(body, ranges);
  k.buffers.push_back(std::move(temporary));
  if (mode != Staging::keep) return {};
  std::string why;
  return legality.require(0, lives_inside(k, move.args[1], site.path, &why), why);
}

//   for s: S(x[base + i])  ->  for s: for j: xp[j] = x[base + j]; S(xp[i])
Status apply_create_temporary(TransformResult& result, const Move& move, const TransformParams& params) {
  const auto mode = move.options.find("mode");
  const bool accumulate = mode != move.options.end() && mode->second == "accumulate";
  return create_temporary(result, move, Legality("create_temporary", params),
                          accumulate ? Staging::accumulate : Staging::stage);
}

//   for s: y[i] = v; S(y[i])  ->  for s: t[i] = v; S(t[i]); for j: y[j] = t[j]
Status apply_keep_result(TransformResult& result, const Move& move, const TransformParams& params) {
  return create_temporary(result, move, Legality("keep_result", params), Staging::keep);
}

std::vector<Move> propose_keep_result(const Kernel& kernel) {
  std::vector<Move> out;
  Names names(kernel);
  for (const Buffer& b : kernel.buffers) {
    if (b.place != Place::out) continue;
    const std::string name = Names(names).fresh(b.name + "p");
    for_each_stmt(kernel.body, [&](const Stmt& s) {
      if (s.kind == Stmt::Kind::scope) out.push_back({"keep_result", {b.name, name}, {{"at", s.iter}}, {}});
    });
  }
  return out;
}

std::vector<Move> propose_create_temporary(const Kernel& kernel) {
  std::vector<Move> out;
  Names names(kernel);
  for (const Buffer& b : kernel.buffers) {
    const std::string name = Names(names).fresh(b.name + "p");
    std::vector<std::string> places = {"root"};
    for_each_stmt(kernel.body, [&](const Stmt& s) {
      if (s.kind == Stmt::Kind::scope) places.push_back(s.iter);
    });
    for (const std::string& at : places) {
      for (const char* mode : {"stage", "accumulate"}) {
        out.push_back({"create_temporary", {b.name, name}, {{"at", at}, {"mode", mode}}, {}});
      }
    }
  }
  return out;
}

namespace {
// The single plain assignment of a temporary and its uses.
struct Definition {
  const Access* write = nullptr;
  std::vector<const Access*> reads;
};

size_t common_scopes(const Access& a, const Access& b) {
  const auto split = std::mismatch(a.scopes.begin(), a.scopes.end(), b.scopes.begin(), b.scopes.end());
  return static_cast<size_t>(split.first - a.scopes.begin());
}

// Dimension of the definition's index that is this iterator, or -1.
int dimension_of(const Access& write, const std::string& name) {
  for (size_t d = 0; d < write.index.size(); ++d) {
    if (write.index[d]->op == Op::k_iter && write.index[d]->name == name) return static_cast<int>(d);
  }
  return -1;
}

// Does some write to what the definition reads stand between it and the last use (inside the scopes
// that enclose them all)?
bool operands_change(const Kernel& kernel, const Definition& def, const std::vector<Access>& accesses) {
  size_t common = def.write->scopes.size();
  for (const Access* r : def.reads) common = std::min(common, common_scopes(*def.write, *r));
  const std::vector<Stmt>& body = common == 0 ? kernel.body : def.write->scopes[common - 1]->body;
  const auto child = [&](const Access& a) -> std::ptrdiff_t {
    if (a.scopes.size() < common ||
        !std::equal(a.scopes.begin(), a.scopes.begin() + static_cast<std::ptrdiff_t>(common),
                    def.write->scopes.begin())) {
      return -1;
    }
    const Stmt* top = a.scopes.size() > common ? a.scopes[common] : a.stmt;
    return top - body.data();
  };
  std::ptrdiff_t last = child(*def.write);
  for (const Access* r : def.reads) last = std::max(last, child(*r));
  return std::any_of(accesses.begin(), accesses.end(), [&](const Access& a) {
    return a.write && uses(def.write->stmt->value, a.buffer) && child(a) >= child(*def.write) && child(a) <= last;
  });
}
// Would a @parallel scope read what belongs to the thread outside of it?
bool threads_would_share(const Kernel& kernel, const Definition& def) {
  bool own = false;
  for_each_node(def.write->stmt->value, [&](const ExprNode& n) {
    own = own || (n.op == Op::k_load && kernel.find_buffer(n.name)->place > Place::heap);
  });
  return own && std::any_of(def.reads.begin(), def.reads.end(), [&](const Access* r) {
           const auto first = r->scopes.begin() + static_cast<std::ptrdiff_t>(common_scopes(*def.write, *r));
           return std::any_of(first, r->scopes.end(), [](const Stmt* s) { return is_shared_out(s->mark); });
         });
}

}  // namespace

//   for i < N: t[i] = e(i); ... f(t[j])  ->  ... f(e(j))
// With at=s the reads inside s alone; the temporary stays.
Status apply_inline_temporary(TransformResult& result, const Move& move, const TransformParams& params) {
  Kernel& k = result.kernel;
  const Legality legality("inline_temporary", params);
  const std::string name = move.args[0];
  LATHE_ASSIGN(const Buffer* buffer, find_temporary(k, name));
  const auto at = move.options.find("at");
  std::vector<Stmt>* body = &k.body;
  const Stmt* inside = nullptr;  // null: everywhere
  if (at != move.options.end()) {
    LATHE_ASSIGN(const ScopeSite site, find_site(k, at->second));
    inside = &site.scope();
    body = &site.scope().body;
  }
  const std::vector<Access> accesses = collect_accesses(k.body);
  Definition def;
  for (const Access& a : accesses) {
    if (a.buffer != name) continue;
    if (!a.write) {
      const bool here = inside == nullptr || std::find(a.scopes.begin(), a.scopes.end(), inside) != a.scopes.end();
      if (here) def.reads.push_back(&a);
      continue;
    }
    if (def.write || a.op != AssignOp::set) return invalid("expected one plain assignment of `{}`", name);
    def.write = &a;
  }
  if (!def.write) return invalid("expected `{}` to be assigned", name);
  const Access& write = *def.write;
  if (inside != nullptr && def.reads.empty()) return invalid("expected `{}` to be read in `{}`", name, inside->iter);
  if (uses(write.stmt->value, name)) return invalid("expected an assignment of `{}` that does not read it", name);
  if (inside_mark(write.scopes, Mark::tensor))
    return invalid("expected `{}` to be assigned outside @tensor scopes", name);
  if (write.stmt->value->type != buffer->type) return invalid("expected a value of the type of `{}`", name);
  const auto only_one = [&](size_t d) { return is_const_int(write.index[d], 0) && is_const_int(buffer->dims[d], 1); };
  for (size_t d = 0; d < write.index.size(); ++d) {
    if (only_one(d)) continue;
    if (write.index[d]->op != Op::k_iter || dimension_of(write, write.index[d]->name) != static_cast<int>(d)) {
      return invalid("expected `{}` to be assigned at plain, different iterators", name);
    }
  }
  std::vector<const Stmt*> order;
  bool prefetched = false;
  for_each_stmt(k.body, [&](const Stmt& s) {
    order.push_back(&s);
    prefetched = prefetched || (s.kind == Stmt::Kind::prefetch && s.target == name);
  });
  if (prefetched) return invalid("expected no prefetch of `{}`", name);
  const auto position = [&](const Stmt* s) { return std::find(order.begin(), order.end(), s); };
  bool in_order = true, assigned = true;
  for (const Access* read : def.reads) {
    const size_t common = common_scopes(write, *read);
    in_order = in_order && position(write.stmt) < position(read->stmt);
    Ranges ranges = ranges_at(k, read->scopes);
    for (size_t i = 0; i < write.scopes.size(); ++i) {
      const int d = dimension_of(write, write.scopes[i]->iter);
      if (d < 0) {
        const bool once = is_const_int(write.scopes[i]->extent, 1) && !uses(write.stmt->value, write.scopes[i]->iter);
        in_order = in_order && (once || i < common);  // else the read finds the last iteration's value
        continue;
      }
      const Expr& at = read->index[static_cast<size_t>(d)];
      if (i < common) {
        assigned = assigned && equal(at, write.index[static_cast<size_t>(d)]);
      } else {
        bool outer_free = true;  // an extent in iterators of the definition's own nest is not known at the read
        for (size_t j = common; j < write.scopes.size(); ++j)
          outer_free = outer_free && !uses(write.scopes[i]->extent, write.scopes[j]->iter);
        assigned = assigned && outer_free && surely_le(Expr(0), at, ranges) &&
                   surely_le(simplify(at + Expr(1), ranges), write.scopes[i]->extent, ranges);
      }
    }
  }
  if (threads_would_share(k, def))
    return invalid("expected no read of `{}` in a @parallel scope: its operands belong to one thread", name);
  LATHE_RETURN_IF_ERROR(legality.require(0, in_order));
  LATHE_RETURN_IF_ERROR(legality.require(1, assigned));
  LATHE_RETURN_IF_ERROR(legality.require(2, !operands_change(k, def, accesses)));

  const Stmt definition = *write.stmt;
  const bool product = definition.value->op == Op::k_mul && is_float(definition.value->type);
  for_each_stmt(*body, [&](const Stmt& s) {
    if (product && s.kind == Stmt::Kind::assign && s.op == AssignOp::add && s.value->op == Op::k_load &&
        s.value->name == name) {
      k.numeric |= kContract;  // t += a * b is an fma
    }
  });
  rewrite_exprs(
      *body,
      [&](const Expr& e) -> Expr {
        if (e->op != Op::k_load || e->name != name) return {};
        Renaming map;
        for (size_t d = 0; d < e->args.size(); ++d) {
          if (definition.index[d]->op == Op::k_iter) map.emplace_back(definition.index[d]->name, e->args[d]);
        }
        return substitute(definition.value, map);
      },
      holds_name(name));
  if (inside != nullptr) {
    simplify_body(k.body, Ranges(k));
    return {};
  }
  const auto remove = [&](auto&& self, std::vector<Stmt>& body) -> void {
    std::erase_if(body, [&](const Stmt& s) { return s.kind == Stmt::Kind::assign && s.target == name; });
    for (Stmt& s : body) self(self, s.body);
  };
  remove(remove, k.body);
  prune_empty(k.body);
  std::erase_if(k.buffers, [&](const Buffer& b) { return b.name == name; });
  simplify_body(k.body, Ranges(k));
  return {};
}

std::vector<Move> propose_inline_temporary(const Kernel& kernel) {
  std::vector<Move> out;
  for (const Buffer& b : kernel.buffers) {
    if (b.place < Place::heap) continue;
    out.push_back({"inline_temporary", {b.name}, {}, {}});
    for (const std::string& scope : plain_scopes(kernel)) {
      out.push_back({"inline_temporary", {b.name}, {{"at", scope}}, {}});
    }
  }
  return out;
}

}  // namespace lathe::search
