// What warps of their own do: a @role scope, which copies boxes to the places of a ring. They go through the loops
// around it and do nothing else; the others do all but that. Two rings say which places are filled and which have been
// read, each for the right time: the numbers of places go on from turn to turn of the loops further out. In a cluster
// each block fills a part of what blocks share in all of them, so a place is free once it has been read in all.
#include "ir/analysis/intrinsics.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "jit/cuda/lower/lowering.h"
#include "jit/cuda/passes/renaming.h"

namespace lathe::jit {

using ir::Expr;
using ir::Op;
using ir::Status;
using ir::Stmt;
using ir::unsupported;
using Kind = DeviceStmt::Kind;

namespace {

constexpr const char* kCounter = "filled";

// Registers of both roles, by groups of four warps that read. One alone has as many as a thread may have.
struct RoleRegisters {
  int groups, filler, reader;
};
constexpr RoleRegisters kRegisters[] = {{2, 40, 232}, {3, 40, 152}};

}  // namespace

void DeviceLowering::count(List& to, int64_t more) {
  to.emplace_back();
  to.back().kind = more == 0 ? Kind::count : Kind::add;
  to.back().name = kCounter;
  if (more != 0) to.back().integer = Expr(more);
}

// What some threads do, of one iteration of the grid or of every one that is the block's.
Status DeviceLowering::part(const std::vector<Stmt>& list, const Grid& grid, int64_t threads, List& to) {
  turns_ = {};
  if (plan_.counts) count(to, 0);
  if (!grid.persistent) return body(list, threads, to);
  const Expr block = ir::iter("block"), blocks = ir::iter("blocks");
  Expr all(1);
  for (const Expr& e : grid.along) all = all * e;
  DeviceStmt loop, inside;
  loop.kind = Kind::loop;
  loop.name = "turn";
  loop.integer = ir::ceildiv(ir::simplify(all) - block, blocks);
  iteration(grid, block + ir::iter(loop.name) * blocks, loop.body);
  inside.kind = Kind::when;
  inside.integer = grid.inside;
  LATHE_RETURN_IF_ERROR(body(list, threads, grid.inside ? inside.body : loop.body));
  if (grid.inside) loop.body.push_back(std::move(inside));
  to.push_back(std::move(loop));
  return {};
}

Status DeviceLowering::roles(const std::vector<Stmt>& list, const Grid& grid, int64_t threads, List& to) {
  if (threads % kGroupThreads != 0)
    return unsupported("{} threads read what others fill, expected whole groups of {}", threads, kGroupThreads);
  for (const RoleRegisters& r : kRegisters) {
    if (r.groups * kGroupThreads != threads) continue;
    out_.roles.filler_registers = r.filler;
    out_.roles.reader_registers = r.reader;
  }
  DeviceStmt out, mapped, one;
  out.kind = Kind::roles;
  mapped.kind = one.kind = Kind::when;
  mapped.integer = ir::make(Op::k_ne, {ir::symbol(kMapped), Expr(0)});
  one.integer = ir::make(Op::k_eq, {ir::iter("thread"), Expr(threads)});
  part_ = Part::boxes;
  LATHE_RETURN_IF_ERROR(part(list, grid, kGroupThreads, one.body));
  part_ = Part::copies;
  LATHE_RETURN_IF_ERROR(part(list, grid, kGroupThreads, mapped.otherwise));
  part_ = Part::reads;
  LATHE_RETURN_IF_ERROR(part(list, grid, threads, out.otherwise));
  part_ = Part::all;
  Renaming("_b").run(one.body);
  Renaming("_c").run(mapped.otherwise);
  mapped.body.push_back(std::move(one));
  out.body.push_back(std::move(mapped));
  for (List* role : {&out.body, &out.otherwise}) {  // until the last box has come to all blocks, and the last arrival
    if (out_.cluster > 1) role->emplace_back().kind = Kind::cluster_barrier;
  }
  to.push_back(std::move(out));
  return {};
}

bool DeviceLowering::is_left_out(const Stmt& s) const {
  if (part_ == Part::all) return false;
  if (part_ == Part::reads) return &s == plan_.role;
  return !plan_.around_role(s) && !ir::copies_box(s);
}

Expr DeviceLowering::going_on(const Expr& number) const { return plan_.counts ? ir::iter(kCounter) : number; }

// A place is filled for the n-th time once it has been read n - 1 times, which the first time it has from the start.
Status DeviceLowering::fill(const Stmt& s, List& to) {
  const Stmt& first = s.body[0].body[0].body[0];
  LATHE_ASSIGN(const Expr number, ring_number(first.target, first.index[0]));
  DeviceStmt free = at_ring(Kind::await_ring, number);
  free.ring = 1;
  free.step = ir::simplify(Expr(1) - free.step, ranges_);
  to.push_back(std::move(free));
  LATHE_ASSIGN(const size_t copied, boxes(s.body, 0, kGroupThreads, to));
  if (copied != s.body.size()) return unsupported("boxes of @role scope {} go to different places", s.iter);
  return {};
}

// The place of the turn before the one of that number, if there is one: products of a turn go on while the next ones
// are begun.
Status DeviceLowering::release(const Expr& turn, List& to) const {
  const Stmt& first = plan_.role->body[0].body[0].body[0];
  LATHE_ASSIGN(Expr number, ring_number(first.target, first.index[0]));
  number = ir::substitute(number, {{plan_.role_loops.back()->iter, turn}});
  DeviceStmt one;
  one.kind = Kind::when;
  one.integer = ir::make(Op::k_logical_and,
                         {ir::make(Op::k_lt, {Expr(0), turn}),
                          ir::make(Op::k_eq, {ir::mod(ir::iter("thread"), Expr(int64_t{kWarpThreads})), Expr(0)})});
  one.body.push_back(at_ring(Kind::arrive, ir::simplify(number - Expr(1), ranges_)));
  one.body.back().ring = 1;
  one.body.back().all = out_.cluster > 1;  // each of its blocks fills places of all
  to.push_back(std::move(one));
  return {};
}

}  // namespace lathe::jit
