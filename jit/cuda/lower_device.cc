// See lower_device.h.
#include "jit/cuda/lower_device.h"

#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/base/gpu_target.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "jit/cuda/lowering.h"

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

// The most threads that @block scopes below share out between them.
int64_t threads_of(const std::vector<Stmt>& body, const ir::Ranges& outer) {
  int64_t most = 1;
  for (const Stmt& s : body) {
    if (s.kind != Stmt::Kind::scope) continue;
    ir::Ranges ranges = outer;
    ranges.enter(s);
    int64_t own = threads_of(s.body, ranges);
    if (s.mark == Mark::block) {
      const int64_t extent = std::max<int64_t>(ir::interval(s.extent, outer).hi, 1);
      own = extent > ir::kMaxBlockThreads ? extent : own * extent;
    }
    most = std::max(most, own);
  }
  return most;
}

}  // namespace

Status DeviceLowering::buffers() {
  for (const ir::Buffer& b : kernel_.buffers) {
    if (b.type != ir::DType::f32) return unsupported("{} is {}, expected f32", b.name, ir::dtype_name(b.type));
    if (!b.layout.empty() || !b.padding.empty()) return unsupported("{} has a layout of its own", b.name);
    if (ir::is_param(b.place)) {
      place_of_[b.name] = {Space::param, static_cast<int>(out_.params.size()), {}};
      out_.params.push_back({b.name, b.place == ir::Place::out});
      continue;
    }
    if (b.place != ir::Place::reg)
      return unsupported("{} is a {} buffer, expected registers", b.name, ir::place_name(b.place));
    int64_t count = 1;
    for (const Expr& d : b.dims) count = std::min(count * std::max<int64_t>(d->ival, 1), int64_t{kMostLocals} + 1);
    if (count > kMostLocals)
      return unsupported("{} has more than {} elements, too many for registers", b.name, kMostLocals);
    place_of_[b.name] = {Space::local, static_cast<int>(out_.locals.size()), {}};
    out_.locals.push_back({b.name, count});
  }
  return {};
}

Result<DeviceProgram> DeviceLowering::run() {
  out_.name = kernel_.name;
  LATHE_RETURN_IF_ERROR(buffers());
  for (const ir::Symbol& s : kernel_.symbols) out_.sizes.push_back(s.name);
  if (kernel_.body.size() != 1 || kernel_.body[0].mark != Mark::grid) return unsupported("expected one @grid scope");
  const Stmt* inner = &kernel_.body[0];
  std::vector<const Stmt*> grid;
  for (;; inner = &inner->body[0]) {
    grid.push_back(inner);
    ranges_.enter(*inner);
    if (inner->body.size() != 1 || inner->body[0].mark != Mark::grid) break;
  }
  out_.threads = static_cast<int>(std::min<int64_t>(threads_of(inner->body, ranges_), ir::kMaxBlockThreads + 1));
  if (out_.threads > ir::kMaxBlockThreads) return unsupported("a block of more than {} threads", ir::kMaxBlockThreads);
  Expr rest = kBlock;
  for (size_t g = grid.size(); g-- > 0;) {
    const bool last = g == 0;
    add_let(out_.body, grid[g]->iter, last ? rest : ir::mod(rest, grid[g]->extent));
    if (last) break;
    const std::string name = fmt::format("b{}", g);
    add_let(out_.body, name, ir::floordiv(rest, grid[g]->extent));
    rest = ir::iter(name);
  }
  LATHE_RETURN_IF_ERROR(body(inner->body, out_.threads, out_.body));
  return std::move(out_);
}

Status DeviceLowering::body(const std::vector<Stmt>& list, int64_t threads, List& to) {
  const auto outside = known_;  // what is made in a list ends with it
  for (const Stmt& s : list) {
    if (s.kind == Stmt::Kind::assign) LATHE_RETURN_IF_ERROR(assign(s, threads, to));
    if (s.kind == Stmt::Kind::scope) LATHE_RETURN_IF_ERROR(scope(s, threads, to));
  }
  known_ = outside;
  return {};
}

Status DeviceLowering::scope(const Stmt& s, int64_t threads, List& to) {
  switch (s.mark) {
    case Mark::none:
    case Mark::unroll:
      return loop(s, threads, to);
    case Mark::block:
      return block(s, threads, to);
    case Mark::vector:
      return vector(s, threads, to);
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
  DeviceStmt loop;
  loop.kind = DeviceStmt::Kind::loop;
  loop.name = s.iter;
  loop.integer = s.extent;
  const bool local = chooses_local(s);
  if (s.mark == Mark::unroll || local) {
    const int64_t most = std::max<int64_t>(ir::interval(s.extent, ranges_).hi, 1);
    if (most <= kMostCopies) {
      loop.unrolled = most;
    } else if (local) {
      return unsupported("scope {} goes through registers more than {} times", s.iter, kMostCopies);
    }
  }
  LATHE_RETURN_IF_ERROR(inside(s, [&] { return body(s.body, threads, loop.body); }));
  to.push_back(std::move(loop));
  return {};
}

Status DeviceLowering::block(const Stmt& s, int64_t threads, List& to) {
  ir::Ranges ranges = ranges_;
  ranges.enter(s);
  const int64_t below = threads_of(s.body, ranges), most = std::max<int64_t>(ir::interval(s.extent, ranges_).hi, 1);
  // All threads of the block that the scopes around did not share out; a scope that needs fewer leaves some idle.
  const Expr number = block_depth_ == 0 ? kThread : ir::mod(kThread, Expr(threads));
  add_let(to, s.iter, ir::simplify(ir::floordiv(number, Expr(below)), {}));
  DeviceStmt guard;
  guard.kind = DeviceStmt::Kind::when;
  guard.integer = ir::make(Op::k_lt, {ir::iter(s.iter), s.extent});
  const bool whole = ir::is_const_int(s.extent, most) && below * most == threads;
  ++block_depth_;
  LATHE_RETURN_IF_ERROR(inside(s, [&] { return body(s.body, below, whole ? to : guard.body); }));
  --block_depth_;
  if (!whole) to.push_back(std::move(guard));
  return {};
}

// Statements of a @vector scope, all lanes at once where that is possible.
Status DeviceLowering::vector(const Stmt& s, int64_t threads, List& to) {
  const int64_t lanes = ir::interval(s.extent, ranges_).hi;
  if (lanes != 1 && lanes != 2 && lanes != kMaxLanes)
    return unsupported("vector scope {} of {} elements, expected 1, 2 or 4", s.iter, lanes);
  LATHE_RETURN_IF_ERROR(loop(s, threads, to));
  if (lanes == 1) return {};
  DeviceStmt single = std::move(to.back());
  to.pop_back();
  DeviceStmt wide;
  wide.kind = DeviceStmt::Kind::aligned;
  wide.lanes = static_cast<int>(lanes);
  if (!ir::is_const_int(s.extent)) wide.integer = ir::make(Op::k_le, {Expr(lanes), s.extent});
  vector_ = &s;
  lanes_ = wide.lanes;
  places_ = &wide.places;
  const Status lowered = inside(s, [&] { return body(s.body, threads, wide.body); });
  vector_ = nullptr;
  lanes_ = 1;
  places_ = nullptr;
  LATHE_RETURN_IF_ERROR(lowered);
  if (wide.places.empty() && !wide.integer) {
    std::move(wide.body.begin(), wide.body.end(), std::back_inserter(to));
    return {};
  }
  wide.otherwise.push_back(std::move(single));
  to.push_back(std::move(wide));
  return {};
}

Result<DeviceProgram> lower_device(const ir::Leaf& leaf) {
  LATHE_ASSIGN(DeviceProgram out, DeviceLowering(leaf.kernel).run());
  LATHE_RETURN_IF_ERROR(verify(out).with_context("device program"));
  return out;
}

}  // namespace lathe::jit
