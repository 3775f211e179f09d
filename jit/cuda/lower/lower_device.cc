// See lower_device.h.
#include "jit/cuda/lower/lower_device.h"

#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/analysis/filled.h"
#include "ir/analysis/intrinsics.h"
#include "ir/analysis/launch_check.h"
#include "ir/base/gpu_target.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "jit/cuda/lower/guards.h"
#include "jit/cuda/lower/lowering.h"
#include "jit/cuda/lower/product_waits.h"
#include "jit/cuda/lower/taken_sizes.h"
#include "jit/cuda/passes/raise_aligned.h"
#include "jit/cuda/passes/read_ahead.h"
#include "jit/cuda/passes/whole_tiles.h"

namespace lathe::jit {

using ir::Expr;
using ir::Mark;
using ir::Op;
using ir::Result;
using ir::Status;
using ir::Stmt;
using ir::unsupported;
using Space = DevicePlace::Space;

namespace {

const Expr kBlock = ir::iter("block"), kThread = ir::iter("thread");

void add_let(std::vector<DeviceStmt>& to, const std::string& name, const Expr& value) {
  DeviceStmt s;
  s.kind = DeviceStmt::Kind::let;
  s.name = name;
  s.integer = value;
  to.push_back(std::move(s));
}

enum class Growth { none, up, unknown };

// Of an extent, from one iteration to the next.
Growth growth(const Expr& e, const std::string& iterator) {
  if (!ir::uses(e, iterator)) return Growth::none;
  const auto of = [&](size_t i) { return growth(e->args[i], iterator); };
  const auto rises = [&](size_t i) { return of(i) == Growth::up; };
  switch (e->op) {
    case Op::k_iter:
      return Growth::up;
    case Op::k_add:
    case Op::k_min:
    case Op::k_max:
      return of(0) != Growth::unknown && of(1) != Growth::unknown ? Growth::up : Growth::unknown;
    case Op::k_sub:
      return rises(0) && of(1) == Growth::none ? Growth::up : Growth::unknown;
    case Op::k_mul:
      for (size_t i : {0, 1}) {
        if (rises(i) && ir::is_const_int(e->args[1 - i]) && e->args[1 - i]->ival > 0) return Growth::up;
      }
      return Growth::unknown;
    case Op::k_floordiv:
      return rises(0) && ir::is_const_int(e->args[1]) && e->args[1]->ival > 0 ? Growth::up : Growth::unknown;
    default:
      return Growth::unknown;
  }
}

// Whether loops of threads run the longer the later an iteration of the grid is.
bool takes_longer(const std::vector<Stmt>& body, const std::string& iterator) {
  bool up = false, other = false;
  ir::for_each_stmt(body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::scope || s.mark != Mark::none) return;
    const Growth of = growth(s.extent, iterator);
    up = up || of == Growth::up;
    other = other || of == Growth::unknown;
  });
  return up && !other;
}

constexpr int64_t kMostInRegister = 4;

}  // namespace

// Of each thread's share.
Status DeviceLowering::add_local(const ir::Buffer& b) {
  LATHE_ASSIGN(share_[b.name], ir::thread_share(kernel_, b.name));
  const std::vector<ir::ThreadDim>& share = share_[b.name];
  DeviceLocal local{b.name, 1, type_of(b), plan_.bytes.count(b.name) != 0};
  for (size_t d = 0; d < b.dims.size(); ++d) {
    const int64_t size = d < share.size() ? share[d].own_size(b.dims[d]->ival) : b.dims[d]->ival;
    local.count = std::min(local.count * std::max<int64_t>(size, 1), kMostInRegister * int64_t{kMostLocals} + 1);
  }
  if (local.registers() > kMostLocals)
    return unsupported("{} has more than {} elements, too many for registers", b.name, kMostLocals * local.elements());
  place_of_[b.name] = {Space::local, static_cast<int>(out_.locals.size()), {}};
  out_.locals.push_back(std::move(local));
  return {};
}

// How elements of a temporary lie: as f32, integers as i32 or, where they have more bits, as i64; or as they are where
// warps compute with them, and where they are copies.
ir::DType DeviceLowering::type_of(const ir::Buffer& b) const {
  if (plan_.bytes.count(b.name) != 0) return b.type;
  if (!ir::is_float(b.type)) return dtype_bytes(b.type) == 8 ? ir::DType::i64 : ir::DType::i32;
  const bool as_it_is = dtype_bytes(b.type) == 2 && (tensor_ || copied_.count(b.name) != 0);
  return dtype_bytes(b.type) == 8 ? ir::DType::i64 : as_it_is ? b.type : ir::DType::f32;
}

// Registers of elements of 2 bytes that an input has: neighbours stay together, two in a register, and nothing waits
// for them before they are used.
void DeviceLowering::find_copied() {
  for (const ir::Buffer& b : kernel_.buffers) {
    if (b.place != ir::Place::reg || dtype_bytes(b.type) != 2 || b.dims.empty()) continue;
    const auto all = ir::collect_accesses(kernel_.body, {}, &b.name);
    const bool copies = std::all_of(all.begin(), all.end(), [&](const ir::Access& a) {
      if (!a.write) return true;
      const Expr& value = ir::unfilled(a.stmt->value);
      return a.op == ir::AssignOp::set && value->op == Op::k_load &&
             kernel_.find_buffer(value->name)->place == ir::Place::in;
    });
    if (copies) copied_.insert(b.name);
  }
}

Status DeviceLowering::buffers() {
  ir::for_each_stmt(kernel_.body, [&](const Stmt& s) { tensor_ = tensor_ || s.mark == Mark::tensor; });
  find_copied();
  for (const ir::Buffer& b : kernel_.buffers) {
    const bool moved = moves_bits(b.name), param = ir::is_param(b.place);
    if ((b.type == ir::DType::f64 || (!param && dtype_bytes(b.type) == 8)) && !moved)
      return unsupported("{} is {}, whose elements are only moved on a device", b.name, ir::dtype_name(b.type));
    if (b.type == ir::DType::b8 && !param && !moved)
      return unsupported("{} is a temporary of {}", b.name, ir::dtype_name(b.type));
    if (b.place == ir::Place::reg) {
      LATHE_RETURN_IF_ERROR(add_local(b));
      continue;
    }
    if (b.place == ir::Place::shared) {
      int64_t count = 1;
      for (const Expr& d : ir::physical_dims(b)) count = std::min(count * ir::simplify(d)->ival, int64_t{kMostShared});
      place_of_[b.name] = {Space::shared, static_cast<int>(out_.shared.size()), {}};
      out_.shared.push_back({b.name, count, type_of(b), b.swizzle});
      continue;
    }
    if (!ir::is_param(b.place))
      return unsupported("{} is a {} buffer, expected registers or shared memory", b.name, ir::place_name(b.place));
    if (!b.layout.empty() || !b.padding.empty()) return unsupported("{} has a layout of its own", b.name);
    place_of_[b.name] = {Space::param, static_cast<int>(out_.params.size()), {}};
    out_.params.push_back({b.name, b.place == ir::Place::out, b.type, moved && dtype_bytes(b.type) != 4});
  }
  return {};
}

// Whether all that is done is to move elements from place to place, those of the buffer among them.
bool DeviceLowering::moves_bits(const std::string& buffer) const {
  bool moved = dtype_bytes(kernel_.find_buffer(buffer)->type) > 0, used = false;
  ir::for_each_stmt(kernel_.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign) return;
    moved = moved && s.op == ir::AssignOp::set && s.value->op == Op::k_load;
    used = used || s.target == buffer || (s.value->op == Op::k_load && s.value->name == buffer);
  });
  return moved && used;
}

Result<DeviceProgram> DeviceLowering::run() {
  out_.name = kernel_.name;
  LATHE_RETURN_IF_ERROR(buffers());
  for (const ir::Symbol& s : kernel_.symbols) out_.sizes.push_back(s.name);
  const Stmt* inner = &kernel_.body[0];
  Grid grid;
  for (;; inner = &inner->body[0]) {
    grid.iters.push_back(inner->iter);
    grid.along.push_back(along_[grid.along.size()]);
    if (!grid.along.back()) return unsupported("scope {} runs as often as scopes around it say", inner->iter);
    if (!equal(grid.along.back(), inner->extent)) {
      const Expr guard = ir::make(Op::k_lt, {ir::iter(inner->iter), inner->extent});
      grid.inside = grid.inside ? ir::make(Op::k_logical_and, {grid.inside, guard}) : guard;
    }
    ranges_.enter(*inner);
    if (inner->body.size() != 1 || !ir::is_of_grid(inner->body[0].mark)) break;
  }
  if (inner->mark == Mark::cluster) {
    rank_ = inner->iter;
    out_.cluster = static_cast<int>(ir::kClusterBlocks);
  }
  grid.last_first = grid.iters[0] != rank_ && takes_longer(inner->body, grid.iters[0]);
  grid.persistent = inner->body.size() == 1 && inner->body[0].mark == Mark::persistent;
  if (grid.persistent) ranges_.enter(*(inner = &inner->body[0]));
  out_.threads = static_cast<int>(std::min<int64_t>(ir::block_threads(inner->body, ranges_), ir::kMaxBlockThreads + 1));
  if (out_.threads > ir::kMaxBlockThreads) return unsupported("a block of more than {} threads", ir::kMaxBlockThreads);
  if (!grid.persistent) iteration(grid, kBlock, out_.body);
  const int64_t threads = out_.threads;
  if (plan_.role != nullptr) out_.threads += out_.roles.fillers = kGroupThreads;
  LATHE_RETURN_IF_ERROR(open_rings());
  const auto head = static_cast<std::ptrdiff_t>(out_.body.size());
  LATHE_RETURN_IF_ERROR(plan_.role == nullptr ? body(inner->body, threads, out_.body)
                                              : roles(inner->body, grid, threads, out_.body));
  place_product_waits(out_);
  ask_for_whole_tiles(out_);
  if (!grid.inside || grid.persistent) return std::move(out_);
  DeviceStmt when;
  when.kind = DeviceStmt::Kind::when;
  when.integer = grid.inside;
  std::move(out_.body.begin() + head, out_.body.end(), std::back_inserter(when.body));
  out_.body.erase(out_.body.begin() + head, out_.body.end());
  out_.body.push_back(std::move(when));
  return std::move(out_);
}

// That of the grid which has the number.
void DeviceLowering::iteration(const Grid& grid, const Expr& number, List& to) {
  Expr rest = number;
  for (size_t g = grid.iters.size(); g-- > 0;) {
    const bool outermost = g == 0;
    const Expr at = outermost ? rest : ir::mod(rest, grid.along[g]);
    // No block has a number below 0, which is not known of the outermost one.
    const bool last_first = outermost && grid.last_first;
    add_let(to, grid.iters[g], last_first ? ir::max(grid.along[g] - Expr(1) - at, Expr(0)) : at);
    if (outermost) break;
    const std::string name = fmt::format("b{}", g);
    add_let(to, name, ir::floordiv(rest, grid.along[g]));
    rest = ir::iter(name);
  }
}

Status DeviceLowering::body(const std::vector<Stmt>& list, int64_t threads, List& to) {
  const auto outside = known_;  // what is made in a list ends with it
  const auto taken = taken_;
  const size_t awaited = awaited_.size();
  const bool waits = std::any_of(list.begin(), list.end(), [&](const Stmt& s) {
    return plan_.waits.count(&s) != 0 || plan_.barrier_before.count(&s) != 0;
  });
  Status status;
  if (waits || !guards_.empty()) {
    status = waiting(list, threads, to);
  } else {
    for (size_t i = 0; i < list.size() && status.ok(); ++i) {
      const Stmt& s = list[i];
      if (is_left_out(s)) continue;
      if (ir::copies_box(s)) {
        LATHE_ASSIGN(const size_t copied, boxes(list, i, threads, to));
        i += copied - 1;
        continue;
      }
      status = await_boxes(s, to);
      if (status.ok() && s.kind == Stmt::Kind::assign) status = assign(s, threads, to);
      if (status.ok() && s.kind == Stmt::Kind::scope) status = scope(s, threads, to);
    }
  }
  known_ = outside;
  taken_ = taken;
  awaited_.resize(awaited);
  return status;
}

void DeviceLowering::barrier(int64_t threads, List& to) {
  to.emplace_back();
  to.back().kind = in_warp(threads) ? DeviceStmt::Kind::warp_barrier : DeviceStmt::Kind::barrier;
}

void DeviceLowering::guarded(List&& what, List& to) {
  if (what.empty()) return;
  if (guards_.empty()) {
    std::move(what.begin(), what.end(), std::back_inserter(to));
    return;
  }
  DeviceStmt when;
  when.kind = DeviceStmt::Kind::when;
  for (const Expr& g : guards_) when.integer = when.integer ? ir::make(Op::k_logical_and, {when.integer, g}) : g;
  when.body = std::move(what);
  to.push_back(std::move(when));
}

Status DeviceLowering::waiting(const std::vector<Stmt>& list, int64_t threads, List& to) {
  const auto outside = known_;
  const auto taken = taken_;
  List pending;
  const auto flush = [&] {
    guarded(std::exchange(pending, {}), to);
    if (guards_.empty()) return;
    known_ = outside;
    taken_ = taken;
  };
  for (size_t i = 0; i < list.size(); ++i) {
    const Stmt& s = list[i];
    if (is_left_out(s)) continue;
    if (plan_.barrier_before.count(&s) != 0) {
      flush();
      const auto ahead = plan_.ahead.find(&s);
      await(ahead == plan_.ahead.end() ? 0 : ahead->second - 1, to);
      barrier(threads, to);
    }
    if (ir::copies_box(s)) {
      LATHE_ASSIGN(const size_t copied, boxes(list, i, threads, pending));
      i += copied - 1;
      continue;
    }
    LATHE_RETURN_IF_ERROR(await_boxes(s, pending));
    if (plan_.waits.count(&s) != 0) {
      flush();
      LATHE_RETURN_IF_ERROR(scope(s, threads, to));
      continue;
    }
    const std::vector<Expr> guards = std::exchange(guards_, {});
    Status status;
    if (s.kind == Stmt::Kind::assign) status = assign(s, threads, pending);
    if (s.kind == Stmt::Kind::scope) status = scope(s, threads, pending);
    guards_ = guards;
    LATHE_RETURN_IF_ERROR(status);
  }
  flush();
  return {};
}

// Whether the threads that need to know how often a scope runs may read integers that say so: where threads wait for
// each other in it, also those that do nothing would read them.
bool DeviceLowering::all_know(const Stmt& s) const {
  const bool waits = plan_.waits.count(&s) != 0, fixed = s.mark == Mark::tensor || (!waits && is_ahead(s));
  bool out = true;
  ir::for_each_node(s.extent, [&](const ir::ExprNode& n) {
    if (n.op != Op::k_load) return;
    const bool of_thread = std::any_of(blocks_.begin(), blocks_.end(), [&](const ir::BlockScope& b) {
      return std::any_of(n.args.begin(), n.args.end(), [&](const Expr& e) { return ir::uses(e, b.scope->iter); });
    });
    out = out && !fixed && !(waits && of_thread);
  });
  return out;
}

Status DeviceLowering::scope(const Stmt& s, int64_t threads, List& to) {
  if (!all_know(s))
    return unsupported("scope {} runs as often as {} says, which differs inside of a block", s.iter, print(s.extent));
  switch (s.mark) {
    case Mark::none:
    case Mark::unroll:
      return loop(s, threads, to);
    case Mark::block:
      return block(s, threads, to);
    case Mark::vector:
      return vector(s, threads, to);
    case Mark::tensor:
      return tensor(s, threads, to);
    case Mark::role:
      return fill(s, to);
    default:
      return unsupported("scope {} is {}", s.iter, ir::mark_name(s.mark));
  }
}

bool DeviceLowering::chooses_local(const Stmt& s) const {
  const auto accesses = ir::collect_accesses(s.body);
  return std::any_of(accesses.begin(), accesses.end(), [&](const ir::Access& a) {
    return place_of_.at(a.buffer).space == Space::local &&
           std::any_of(a.index.begin(), a.index.end(), [&](const Expr& e) { return ir::uses(e, s.iter); });
  });
}

Status DeviceLowering::loop(const Stmt& s, int64_t threads, List& to) {
  if (plan_.waits.count(&s) == 0 && is_ahead(s)) return groups(s, threads, to);
  if (goes_by_lines(s)) return by_lines(s, threads, to);
  DeviceStmt loop;
  loop.kind = DeviceStmt::Kind::loop;
  loop.name = s.iter;
  LATHE_ASSIGN(loop.integer, taken(s.extent, to));
  const bool local = chooses_local(s);
  if (s.mark == Mark::unroll || local) {
    const int64_t most = std::max<int64_t>(ir::interval(s.extent, ranges_).hi, 1);
    if (most <= kMostCopies) {
      loop.unrolled = most;
    } else if (local) {
      return unsupported("scope {} goes through registers more than {} times", s.iter, kMostCopies);
    }
  }
  const bool together = plan_.waits.count(&s) != 0;
  const auto leaves_alone = [&](const ir::BlockScope& b) {
    const bool warps = in_warp(threads) && b.step % kWarpThreads == 0;  // whole warps leave it
    return !warps && ir::uses(s.extent, b.scope->iter);
  };
  if (together && std::any_of(blocks_.begin(), blocks_.end(), leaves_alone))
    return unsupported("threads wait for each other in {}, which some leave earlier", s.iter);
  loops_ += together;
  if (loop.unrolled > 0) unrolled_.push_back(s.iter);
  LATHE_RETURN_IF_ERROR(inside(s, [&] {
    const auto outside = slots_;
    const std::vector<Expr> places = places_in(s);
    for (const Expr& place : places) {
      const std::string name = fmt::format("q{}", slot_names_++);
      add_let(loop.body, name, ir::simplify(place, ranges_));
      slots_[print(place)] = name;
      ranges_.enter(name, place->args[1]);
    }
    Status status = body(s.body, threads, loop.body);
    const bool filled = part_ == Part::reads && plan_.role_loops.back() == &s;
    if (filled && status.ok()) status = release(ir::iter(s.iter), loop.body);
    if (plan_.counts && plan_.role_loops.back() == &s) count(loop.body, 1);
    for (size_t i = 0; i < places.size(); ++i) ranges_.leave();
    slots_ = outside;
    return status;
  }));
  loops_ -= together;
  if (loop.unrolled > 0) unrolled_.pop_back();
  if (plan_.barrier_last.count(&s) != 0) {
    const auto ahead = plan_.ahead.find(&s);
    await(ahead == plan_.ahead.end() ? 0 : ahead->second - 1, loop.body);
    barrier(threads, loop.body);
  }
  // Copies that do not run.
  if (loop.unrolled > 0 && !ir::is_const_int(s.extent)) {
    ranges_.enter(s.iter, Expr(loop.unrolled));
    DeviceStmt when;
    when.kind = DeviceStmt::Kind::when;
    const Expr guard = guard_of(ir::iter(s.iter), s.extent, ranges_);
    ranges_.leave();
    loop.integer = Expr(loop.unrolled);
    if (guard) {
      LATHE_ASSIGN(when.integer, taken(guard, to));
      when.body = std::move(loop.body);
      loop.body.clear();
      loop.body.push_back(std::move(when));
    }
  }
  if (goes_round(s)) turns_ = s.extent;
  const Expr turns = loop.integer;
  to.push_back(std::move(loop));
  const bool more = part_ == Part::reads && plan_.counts && plan_.role_loops.back() == &s;  // come by places later
  return more ? release(turns, to) : Status();
}

Status DeviceLowering::block(const Stmt& s, int64_t threads, List& to) {
  ir::Ranges ranges = ranges_;
  ranges.enter(s);
  const int64_t below = ir::block_threads(s.body, ranges);
  // All threads of the block that the scopes around did not share out; a scope that needs fewer leaves some idle.
  const Expr number = block_depth_ == 0 ? kThread : ir::mod(kThread, Expr(threads));
  add_let(to, s.iter, ir::simplify(ir::floordiv(number, Expr(below)), {}));
  // Threads of the scope may be more than its iterations.
  ranges_.enter(s.iter, Expr((threads + below - 1) / below));
  Expr guard = guard_of(ir::iter(s.iter), s.extent, ranges_);
  ranges_.leave();
  const bool whole = !guard;
  if (!whole) {
    LATHE_ASSIGN(guard, taken(guard, to));
  }
  if (plan_.waits.count(&s) != 0) {
    LATHE_ASSIGN(const std::vector<Partial> partials, open_partials(s, to));
    if (!whole) guards_.push_back(guard);
    blocks_.push_back({&s, below, ir::threads_of(s, ranges_)});
    ++block_depth_;
    LATHE_RETURN_IF_ERROR(inside(s, [&] { return body(s.body, below, to); }));
    --block_depth_;
    blocks_.pop_back();
    if (!whole) guards_.pop_back();
    return close_partials(partials, threads, to);
  }
  DeviceStmt when;
  when.kind = DeviceStmt::Kind::when;
  when.integer = guard;
  ++block_depth_;
  LATHE_RETURN_IF_ERROR(inside(s, [&] { return body(s.body, below, whole ? to : when.body); }));
  --block_depth_;
  if (!whole) to.push_back(std::move(when));
  return {};
}

Result<DeviceProgram> lower_device(const ir::Leaf& leaf) {
  if (leaf.kernel.body.size() != 1 || leaf.kernel.body[0].mark != Mark::grid)
    return unsupported("expected one @grid scope");
  std::vector<Expr> along;  // as the launch has it, which knows nothing of what is taken
  ir::Ranges ranges(leaf.kernel);
  for (const Stmt* s = &leaf.kernel.body[0]; ir::is_of_grid(s->mark); s = &s->body[0]) {
    along.push_back(ir::blocks_along(*s, ranges));
    ranges.enter(*s);
    if (s->body.size() != 1) break;
  }
  const TakenSizes sizes = take_sizes(leaf.kernel);
  LATHE_ASSIGN(const ThreadPlan plan, plan_threads(sizes.kernel));
  LATHE_ASSIGN(DeviceProgram out, DeviceLowering(sizes.kernel, plan, std::move(along)).run());
  bring_in(sizes, out);
  ask_for_whole_steps(out);
  read_ahead(out);
  raise_aligned(out);
  LATHE_RETURN_IF_ERROR(verify(out).with_context("device program"));
  return out;
}

}  // namespace lathe::jit
