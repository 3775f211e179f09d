// See thread_plan.h.
#include "jit/cuda/lower/thread_plan.h"

#include <algorithm>
#include <deque>

#include "ir/analysis/dependence.h"
#include "ir/analysis/filled.h"
#include "ir/analysis/intrinsics.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

using ir::Access;
using ir::Expr;
using ir::Mark;
using ir::Place;
using ir::Status;
using ir::Stmt;
using ir::unsupported;

namespace {

using Scopes = std::vector<const Stmt*>;

class Planner {
 public:
  explicit Planner(const ir::Kernel& leaf) : leaf_(leaf) {}

  ir::Result<ThreadPlan> run() {
    const Stmt* inner = &leaf_.body[0];
    Scopes outer = {inner};
    while (inner->body.size() == 1 && ir::is_of_grid(inner->body[0].mark)) outer.push_back(inner = &inner->body[0]);
    const bool cluster = inner->mark == Mark::cluster;
    const bool persistent = inner->body.size() == 1 && inner->body[0].mark == Mark::persistent;
    if (persistent) outer.push_back(inner = &inner->body[0]);
    ir::Ranges ranges(leaf_);
    for (const Stmt* s : outer) ranges.enter(*s);
    alone_ = ir::block_threads(inner->body, ranges) <= 1;
    LATHE_RETURN_IF_ERROR(find_boxed());
    LATHE_RETURN_IF_ERROR(find_role(inner->body, {}));
    LATHE_RETURN_IF_ERROR(check_role());
    if (persistent && plan_.role == nullptr) return unsupported("a @persistent scope without a @role scope");
    if (cluster && plan_.role == nullptr) return unsupported("a @cluster scope without a @role scope");
    plan_.counts = persistent || plan_.role_loops.size() > 1;
    find_rings();
    LATHE_RETURN_IF_ERROR(list(inner->body, outer, nullptr));
    for (const Stmt& s : inner->body) mark_waits(s);
    return std::move(plan_);
  }

 private:
  bool in_registers(const std::string& buffer) const { return leaf_.find_buffer(buffer)->place == Place::reg; }

  // The number in i % S, where the first index of an access of the ring is that.
  static Expr number_in(const ir::Buffer& ring, const Access& a) {
    const Expr& slot = a.index[0];
    return slot->op == ir::Op::k_mod && ir::is_const_int(slot->args[1], ring.dims[0]->ival) ? slot->args[0] : Expr();
  }

  // Rings that boxes are copied to, and nothing else is.
  Status find_boxed() {
    for (const Access& a : ir::collect_accesses(leaf_.body)) {
      if (a.write && std::any_of(a.scopes.begin(), a.scopes.end(), [](const Stmt* s) { return ir::copies_box(*s); }))
        plan_.boxed.insert(a.buffer);
    }
    for (const Access& a : ir::collect_accesses(leaf_.body)) {
      if (!a.write || plan_.boxed.count(a.buffer) == 0) continue;
      const ir::Buffer& b = *leaf_.find_buffer(a.buffer);
      const bool ring = b.place == Place::shared && !b.dims.empty() && ir::is_const_int(b.dims[0]) &&
                        b.dims[0]->ival >= 2 && b.dims[0]->ival <= kMostStages;
      const bool box = std::any_of(a.scopes.begin(), a.scopes.end(), [](const Stmt* s) { return ir::copies_box(*s); });
      if (!ring || !box) return unsupported("{} is no ring in shared memory of 2..{} boxes", a.buffer, kMostStages);
    }
    return {};
  }

  Status find_role(const std::vector<Stmt>& body, const Scopes& around) {
    for (const Stmt& s : body) {
      if (s.kind != Stmt::Kind::scope) continue;
      if (s.mark == Mark::role) {
        if (plan_.role != nullptr) return unsupported("@role scopes {} and {}, expected one", plan_.role->iter, s.iter);
        plan_.role = &s;
        plan_.role_loops = around;
      }
      Scopes inside = around;
      inside.push_back(&s);
      LATHE_RETURN_IF_ERROR(find_role(s.body, inside));
    }
    return {};
  }

  // It copies boxes to places, which others read in the same iteration of the loop around it.
  Status check_role() const {
    if (plan_.role == nullptr) return {};
    const std::string& name = plan_.role->iter;
    const Scopes& loops = plan_.role_loops;
    if (loops.empty() || plan_.role->body.empty()) return unsupported("@role scope {} is in no loop", name);
    for (const Stmt* s : loops) {
      if (s->mark != Mark::none)
        return unsupported("{} around @role scope {} is @{}", s->iter, name, ir::mark_name(s->mark));
    }
    for (const Stmt& s : plan_.role->body) {
      if (!ir::copies_box(s)) return unsupported("@role scope {} does more than to copy boxes", name);
    }
    const Stmt& first = plan_.role->body[0].body[0].body[0];
    for (const Access& a : ir::collect_accesses(leaf_.body)) {
      if (plan_.boxed.count(a.buffer) == 0) continue;
      const auto in = [&](const Stmt* s) { return std::find(a.scopes.begin(), a.scopes.end(), s) != a.scopes.end(); };
      if (in(plan_.role) != a.write || !in(loops.back()) || !equal(a.index[0], first.index[0]))
        return unsupported("{} is filled by @role scope {} alone, and read at the same place", a.buffer, name);
    }
    return {};
  }

  // Elements of 2 bytes lie as they are where warps compute together, and bytes that these read.
  void find_rings() {
    bool tensor = false;
    ir::for_each_stmt(leaf_.body, [&](const Stmt& s) { tensor = tensor || s.mark == Mark::tensor; });
    for (const Access& a : ir::collect_accesses(leaf_.body)) {
      const bool warps =
          std::any_of(a.scopes.begin(), a.scopes.end(), [](const Stmt* s) { return s->mark == Mark::tensor; });
      if (warps && dtype_bytes(leaf_.find_buffer(a.buffer)->type) == 1) plan_.bytes.insert(a.buffer);
    }
    for (const ir::Buffer& b : leaf_.buffers) {
      const bool copied_whole =
          b.type == ir::DType::f32 || (tensor && dtype_bytes(b.type) == 2) || plan_.bytes.count(b.name) != 0;
      if (b.place != Place::shared || plan_.boxed.count(b.name) != 0 || !copied_whole || b.dims.empty() ||
          !ir::is_const_int(b.dims[0]) || b.dims[0]->ival < 2 || b.dims[0]->ival > kMostStages)
        continue;
      const std::vector<Access> all = ir::collect_accesses(leaf_.body, {}, &b.name);
      bool copied = true, goes_round = false;
      for (const Access& a : all) {
        goes_round |= static_cast<bool>(number_in(b, a));
        copied &= !a.write || (a.op == ir::AssignOp::set && copies_input(*a.stmt, b.type));
      }
      if (!copied || !goes_round) continue;
      plan_.rings.insert(b.name);
      for (const Access& w : all) {
        for (const Access& r : all) {
          const Expr written = number_in(b, w), read = number_in(b, r);
          if (!w.write || r.write || !written || !read) continue;
          const Expr apart = ir::simplify(written - read);
          const Stmt* loop = nullptr;  // the innermost around both
          for (size_t i = 0; i < std::min(w.scopes.size(), r.scopes.size()) && w.scopes[i] == r.scopes[i]; ++i)
            loop = w.scopes[i];
          if (loop == nullptr || !ir::is_const_int(apart) || !ir::uses(read, loop->iter)) continue;
          if (apart->ival >= 1 && apart->ival < b.dims[0]->ival) plan_.ahead[loop] = static_cast<int>(apart->ival);
        }
      }
    }
  }
  bool copies_input(const Stmt& s, ir::DType type) const {
    const Expr& value = ir::unfilled(s.value);
    if (value->op != ir::Op::k_load) return false;
    const ir::Buffer& from = *leaf_.find_buffer(value->name);
    return ir::is_input(from.place) && from.type == type;
  }

  // Whether the two are of different places of a ring, in the same iteration of the first `common` scopes.
  bool of_other_places(const Access& a, const Access& b, size_t common) const {
    const ir::Buffer& ring = *leaf_.find_buffer(a.buffer);
    if (ring.place != Place::shared || ring.dims.empty() || !ir::is_const_int(ring.dims[0])) return false;
    const Expr x = number_in(ring, a), y = number_in(ring, b);
    if (!x || !y) return false;
    for (const Access* of : {&a, &b}) {
      for (size_t i = common; i < of->scopes.size(); ++i) {
        if (ir::uses(of->index[0], of->scopes[i]->iter)) return false;
      }
    }
    const Expr apart = ir::simplify(x - y);
    return ir::is_const_int(apart) && apart->ival % ring.dims[0]->ival != 0;
  }

  // Of a list that several threads go through. loop: the one it is the body of, or null.
  Status list(const std::vector<Stmt>& body, const Scopes& outer, const Stmt* loop) {
    LATHE_RETURN_IF_ERROR(inside_of(body, outer));
    std::vector<std::vector<Access>> accesses;
    for (const Stmt& s : body) accesses.push_back(shared_accesses(s, outer));
    size_t since = 0;  // the last barrier
    bool any = false;
    for (size_t j = 0; j < body.size(); ++j) {
      const std::vector<Access> next = first_accesses(body[j], outer, accesses[j]);
      for (size_t i = since; i < j; ++i) {
        if (ends_with_barrier(body[i]) || !meet(accesses[i], next, outer.size())) continue;
        plan_.barrier_before.insert(&body[j]);
        since = j;
        any = true;
        break;
      }
    }
    if (loop != nullptr) {
      // What follows the last barrier meets what comes before the first one in the next turn.
      size_t first = body.size();
      for (size_t j = body.size(); j-- > 0;)
        if (plan_.barrier_before.count(&body[j]) != 0) first = j;
      const auto meets_later = [&](size_t i) {
        for (size_t j = any ? since : 0; j < body.size(); ++j) {
          if (!ends_with_barrier(body[j]) && meet(accesses[j], accesses[i], outer.size() - 1)) return true;
        }
        return false;
      };
      size_t next = 0;  // that a thread may not begin before all have come
      while (next < first && !meets_later(next)) ++next;
      if (next < first && goes_on(*loop)) {
        plan_.barrier_before.insert(&body[next]);
      } else if (next < first) {
        plan_.barrier_last.insert(loop);
      }
    }
    return {};
  }

  // A loop behind which nothing is left that another thread may meet: its last turn, too, has ended with a barrier, and
  // what was copied has arrived.
  bool ends_with_barrier(const Stmt& s) const {
    const auto ahead = plan_.ahead.find(&s);
    return plan_.barrier_last.count(&s) != 0 && (ahead == plan_.ahead.end() || ahead->second == 1);
  }

  // Of the scopes in a list.
  Status inside_of(const std::vector<Stmt>& body, const Scopes& outer) {
    for (const Stmt& s : body) {
      if (s.kind != Stmt::Kind::scope) continue;
      Scopes inside = outer;
      inside.push_back(&s);
      if (s.mark == Mark::block) LATHE_RETURN_IF_ERROR(block(s, inside));
      if (!several_threads(s, outer)) continue;
      if (s.mark == Mark::vector) {
        LATHE_RETURN_IF_ERROR(lanes(s, inside));
      } else {
        LATHE_RETURN_IF_ERROR(list(s.body, inside, s.mark == Mark::block || is_guard(s, outer) ? nullptr : &s));
      }
    }
    return {};
  }

  // Whether some threads run it once and the others do not.
  bool is_guard(const Stmt& s, const Scopes& outer) const {
    ir::Ranges ranges(leaf_);
    for (const Stmt* o : outer) ranges.enter(*o);
    return ir::interval(s.extent, ranges).hi <= 1 && std::any_of(outer.begin(), outer.end(), [&](const Stmt* o) {
             return o->mark == Mark::block && ir::uses(s.extent, o->iter);
           });
  }

  // What a statement does before threads meet in it: of a loop in which they do each turn, what stands before that.
  std::vector<Access> first_accesses(const Stmt& s, const Scopes& outer, const std::vector<Access>& all) const {
    if (s.kind != Stmt::Kind::scope || s.mark != Mark::none || !goes_on(s)) return all;
    Scopes inside = outer;
    inside.push_back(&s);
    std::vector<Access> out;
    for (const Stmt& child : s.body) {
      if (plan_.barrier_before.count(&child) != 0) return out;
      const std::vector<Access> more = shared_accesses(child, inside);
      out.insert(out.end(), more.begin(), more.end());
    }
    return all;
  }

  // Whether something is begun in it that need not be done at its end: what comes before it in the next turn may go on
  // meanwhile.
  static bool goes_on(const Stmt& loop) {
    bool out = false;
    ir::for_each_stmt(loop.body, [&](const Stmt& s) { out = out || ir::warp_lanes(s) > ir::kWarpLanes; });
    return out;
  }

  // Statements of a vector scope that several threads run: nothing waits between them.
  Status lanes(const Stmt& s, const Scopes& path) const {
    for (size_t j = 0; j < s.body.size(); ++j) {
      for (size_t i = 0; i < j; ++i) {
        if (meet(shared_accesses(s.body[i], path), shared_accesses(s.body[j], path), path.size()))
          return unsupported("lanes of {} hand each other elements that several threads have", s.iter);
      }
    }
    return {};
  }

  bool several_threads(const Stmt& s, const Scopes& outer) const {
    ir::Ranges ranges(leaf_);
    for (const Stmt* o : outer) ranges.enter(*o);
    ranges.enter(s);
    if (alone_) return s.mark == Mark::block;
    const bool below = ir::block_threads(s.body, ranges) > 1;
    const bool among = std::any_of(outer.begin(), outer.end(), [](const Stmt* o) { return o->mark == Mark::block; });
    return below || (s.mark != Mark::block && !among);
  }

  std::vector<Access> shared_accesses(const Stmt& s, const Scopes& outer) const {
    std::vector<Access> out;
    if (s.kind == Stmt::Kind::scope) {
      Scopes inside = outer;
      inside.push_back(&s);
      out = ir::collect_accesses(s.body, inside);
    } else {
      out = ir::collect_accesses({s}, outer);
    }
    std::erase_if(out, [&](const Access& a) { return in_registers(a.buffer); });
    return out;
  }

  // The iterations of a @block scope: apart from each other, but for reductions.
  Status block(const Stmt& s, const Scopes& path) {
    const std::vector<Access> inside = ir::collect_accesses(s.body, path);
    for (const Access& a : inside) {
      if (!a.write || in_registers(a.buffer)) continue;
      for (const Access& b : inside) {
        if (a.buffer == b.buffer && ir::may_conflict_across(leaf_, s.iter, a, b, false))
          return unsupported("threads of {} may touch one element of {}, and one stores it", s.iter, a.buffer);
      }
    }
    const Once part = once(path);
    if (part.inside > 0 && part.inside >= part.around) return {};
    for (const ir::Buffer& b : leaf_.buffers) {
      if (b.place != Place::reg) continue;
      const std::vector<Access> all = ir::collect_accesses(leaf_.body, {}, &b.name);
      const bool first = part.inside > 0 && std::all_of(all.begin(), all.end(),
                                                        [&](const Access& a) { return in_first_threads(a, part); });
      if (!first) LATHE_RETURN_IF_ERROR(registers(s, path, b.name));
    }
    return {};
  }

  // Of a @block scope of one iteration, the last of the path: how many threads are in it, the first ones of those that
  // the scopes around did not share out. 0: it has several iterations.
  struct Once {
    int64_t inside = 0, around = 0;
  };
  Once once(const Scopes& path) const {
    ir::Ranges ranges(leaf_);
    Once out;
    for (const Stmt* s : path) {
      const bool last = s == path.back(), one = ir::interval(s->extent, ranges).hi <= 1;
      ranges.enter(*s);
      const bool shares = ir::is_of_grid(s->mark) || s->mark == Mark::persistent || s->mark == Mark::block;
      if (!last && shares) out.around = ir::block_threads(s->body, ranges);
      if (last && one) out.inside = ir::block_threads(s->body, ranges);
    }
    return out;
  }
  // Whether it is in a scope of the same threads: as many, the first ones of as many.
  bool in_first_threads(const Access& a, const Once& threads) const {
    for (auto at = a.scopes.begin(); at != a.scopes.end(); ++at) {
      if ((*at)->mark != Mark::block) continue;
      const Once part = once({a.scopes.begin(), at + 1});
      if (part.inside == threads.inside && part.around == threads.around) return true;
    }
    return false;
  }

  Status registers(const Stmt& s, const Scopes& path, const std::string& buffer) {
    const std::vector<Access> all = ir::collect_accesses(leaf_.body, {}, &buffer);
    const auto inside = [&](const Access& a) {
      return a.scopes.size() >= path.size() && std::equal(path.begin(), path.end(), a.scopes.begin());
    };
    const auto owned = [&](const Access& a) {
      return std::any_of(a.index.begin(), a.index.end(), [&](const Expr& e) { return ir::uses(e, s.iter); });
    };
    bool written = false, reduced = true, begins = false, first = true, outside = false, after = false;
    ir::AssignOp op = ir::AssignOp::set;
    for (const Access& a : all) {
      if (!inside(a)) {
        if (written && !after) {  // what comes next
          after = true;
          outside = !a.write || a.reduction;
        }
        continue;
      }
      if (owned(a)) return {};
      if (first) begins = a.write && !a.reduction;
      if (first) op = a.op;
      first = false;
      written |= a.write;
      reduced &= a.write && a.reduction && a.op == op;
    }
    const bool around = std::any_of(plan_.reduced.begin(), plan_.reduced.end(), [&](const auto& r) {
      return std::find(path.begin(), path.end(), r.first) != path.end() &&
             std::find(r.second.begin(), r.second.end(), buffer) != r.second.end();
    });
    if (!written || around) return {};
    if (reduced && once(path).inside > 1)  // each of them would add the same
      return unsupported("threads of {} add one value to {} together", s.iter, buffer);
    if (reduced) {
      plan_.reduced[&s].push_back(buffer);
      return {};
    }
    if (!begins || outside)
      return unsupported("threads of {} leave values of their own in {}, which is the same in all of them", s.iter,
                         buffer);
    return {};
  }

  // May two threads touch one cell, the one in `a` and later the other in `b`? Both lists are inside the first `common`
  // scopes, in the same iteration of these.
  bool meet(const std::vector<Access>& as, const std::vector<Access>& bs, size_t common) const {
    if (alone_) return false;
    for (const Access& a : as) {
      for (const Access& b : bs) {
        if (a.buffer != b.buffer || (!a.write && !b.write) || of_other_places(a, b, common)) continue;
        // The ring says when a box has arrived; where roles fill places, another one says when these have been read.
        if ((a.write || plan_.role != nullptr) && plan_.boxed.count(a.buffer) != 0) continue;
        if (meet(a, b, common)) return true;
      }
    }
    return false;
  }

  std::vector<ir::BlockScope> blocks(const Access& a, size_t common) const {
    std::vector<ir::BlockScope> out;
    ir::Ranges ranges(leaf_);
    for (size_t i = 0; i < a.scopes.size(); ++i) {
      const Stmt& s = *a.scopes[i];
      const int64_t most = s.mark == Mark::block ? ir::threads_of(s, ranges) : 1;
      ranges.enter(s);
      if (i >= common && s.mark == Mark::block) out.push_back({&s, ir::block_threads(s.body, ranges), most});
    }
    return out;
  }

  // The access with the threads' scopes in `threads` outside of all others of its own.
  static Access moved(const Access& a, size_t common, const std::vector<ir::BlockScope>& blocks, const Scopes& threads,
                      std::deque<Stmt>& made) {
    std::vector<std::pair<std::string, Expr>> names;
    for (size_t k = 0; k < blocks.size(); ++k) names.emplace_back(blocks[k].scope->iter, ir::iter(threads[k]->iter));
    Access out = a;
    out.scopes.assign(a.scopes.begin(), a.scopes.begin() + static_cast<std::ptrdiff_t>(common));
    out.scopes.insert(out.scopes.end(), threads.begin(), threads.end());
    for (size_t i = common; i < a.scopes.size(); ++i) {
      const Stmt& s = *a.scopes[i];
      if (std::any_of(blocks.begin(), blocks.end(), [&](const ir::BlockScope& b) { return b.scope == &s; })) continue;
      made.push_back(ir::make_scope(s.iter, ir::substitute(s.extent, names), {}));
      out.scopes.push_back(&made.back());
    }
    for (Expr& e : out.index) e = ir::substitute(e, names);
    return out;
  }

  bool meet(const Access& a, const Access& b, size_t common) const {
    std::vector<ir::BlockScope> x = blocks(a, common), y = blocks(b, common);
    const bool alike = !x.empty() && std::equal(x.begin(), x.end(), y.begin(), y.end(),
                                                [](const auto& p, const auto& q) { return p.same_threads(q); });
    std::deque<Stmt> made;
    Scopes threads;
    if (!alike) {  // two threads, any two
      x.clear();
      y.clear();
      made.push_back(ir::make_scope("thread", Expr(2), {}));
      threads.push_back(&made.back());
    }
    for (size_t k = 0; k < x.size(); ++k) {
      made.push_back(ir::make_scope(fmt::format("thread{}", k), Expr(x[k].threads), {}));
      threads.push_back(&made.back());
    }
    for (const Stmt& t : made) const_cast<Stmt&>(t).mark = Mark::block;
    const Access p = moved(a, common, x, threads, made), q = moved(b, common, y, threads, made);
    return std::any_of(threads.begin(), threads.end(),
                       [&](const Stmt* t) { return ir::may_conflict_across(leaf_, t->iter, p, q, false); });
  }

  bool mark_waits(const Stmt& s) {
    bool any = plan_.barrier_last.count(&s) != 0 || plan_.reduced.count(&s) != 0 || awaits_boxes(s);
    for (const Stmt& inner : s.body) any |= mark_waits(inner) || plan_.barrier_before.count(&inner) != 0;
    if (any) plan_.waits.insert(&s);
    return any;
  }

  // A loop of all threads in which they wait for boxes.
  bool awaits_boxes(const Stmt& s) const {
    if (s.kind != Stmt::Kind::scope || (s.mark != Mark::none && s.mark != Mark::unroll)) return false;
    const std::vector<Access> all = ir::collect_accesses(s.body);
    return std::any_of(all.begin(), all.end(), [&](const Access& a) {
      return plan_.boxed.count(a.buffer) != 0 && ir::uses(a.index[0], s.iter);
    });
  }

  const ir::Kernel& leaf_;
  bool alone_ = false;  // the block has one thread
  ThreadPlan plan_;
};

}  // namespace

ir::Result<ThreadPlan> plan_threads(const ir::Kernel& leaf) { return Planner(leaf).run(); }

}  // namespace lathe::jit
