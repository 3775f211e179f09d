// Copies of boxes to rings, which the hardware makes while threads go on: one thread asks for them, and all wait for
// the place that they read. Places and times follow from the index of the ring, n % S: place n % S, filled the n / S-th
// time. Where an operand has no map, threads copy, and arrive at the same ring.
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/analysis/intrinsics.h"
#include "ir/core/text_form.h"
#include "jit/cuda/lower/box_maps.h"
#include "jit/cuda/lower/guards.h"
#include "jit/cuda/lower/lowering.h"

namespace lathe::jit {

using ir::Expr;
using ir::Op;
using ir::Result;
using ir::Status;
using ir::Stmt;
using ir::unsupported;
using Kind = DeviceStmt::Kind;

namespace {

DeviceStmt made(Kind kind) {
  DeviceStmt out;
  out.kind = kind;
  return out;
}

}  // namespace

Status DeviceLowering::open_rings() {
  if (plan_.boxed.empty()) return {};
  LATHE_ASSIGN(out_.maps, box_maps(kernel_));
  out_.sizes.emplace_back(kMapped);
  const Expr mapped = ir::make(Op::k_ne, {ir::symbol(kMapped), Expr(0)});
  const int64_t fillers = plan_.role == nullptr ? out_.threads : out_.roles.fillers;
  DeviceRing ring{"f0", 0, ir::make(Op::k_select, {mapped, Expr(1), Expr(fillers)})};
  for (const std::string& name : plan_.boxed) {
    const int places = static_cast<int>(kernel_.find_buffer(name)->dims[0]->ival);
    if (ring.places != 0 && ring.places != places)
      return unsupported("{} has {} places in a ring, others have {}", name, places, ring.places);
    ring.places = places;
    out_.shared[static_cast<size_t>(place_of_.at(name).index)].ring = 0;
  }
  out_.rings.push_back(std::move(ring));
  // A thread of each warp of the cluster arrives once all of it have read a place.
  if (plan_.role != nullptr)
    out_.rings.push_back({"e0", out_.rings[0].places, Expr(int64_t{out_.readers() / kWarpThreads} * out_.cluster), 0});
  out_.body.push_back(made(Kind::open_rings));
  if (out_.cluster > 1) {
    out_.body.push_back(made(Kind::cluster_barrier));
  } else {
    barrier(out_.threads, out_.body);
  }
  return {};
}

// n of a place n % S. Behind a loop that reads one in each turn it is one of the next S numbers, whatever is left of
// the index.
Result<Expr> DeviceLowering::ring_number(const std::string& buffer, const Expr& place) const {
  const Expr& places = kernel_.find_buffer(buffer)->dims[0];
  const bool divided = place->op == Op::k_mod && equal(place->args[1], places);
  if (turns_) {
    const Expr further = (divided ? place->args[0] : place) - turns_;
    return going_on(ir::simplify(turns_ + ir::mod(ir::simplify(further, ranges_), places), ranges_));
  }
  if (divided) return going_on(place->args[0]);
  const ir::Interval range = ir::interval(place, ranges_);
  if (range.lo >= 0 && range.hi < places->ival) return going_on(place);
  return unsupported("{} is no place of a ring of {} in {}", print(place), places->ival, buffer);
}

// Whether a loop reads from place to place of a ring.
bool DeviceLowering::goes_round(const Stmt& loop) const {
  const std::vector<ir::Access> all = ir::collect_accesses(loop.body);
  return std::any_of(all.begin(), all.end(), [&](const ir::Access& a) {
    return !a.write && plan_.boxed.count(a.buffer) != 0 && ir::uses(a.index[0], loop.iter);
  });
}

DeviceStmt DeviceLowering::at_ring(Kind kind, const Expr& number) const {
  DeviceStmt out = made(kind);
  const Expr places(int64_t{out_.rings[0].places});
  out.ring = 0;
  out.integer = ir::simplify(ir::mod(number, places), ranges_);
  if (kind == Kind::await_ring) out.step = ir::simplify(ir::mod(ir::floordiv(number, places), Expr(2)), ranges_);
  return out;
}

// Before the outermost statement in which places are read whose number nothing inside of it changes, once in a list.
Status DeviceLowering::await_boxes(const Stmt& s, List& to) {
  if (plan_.boxed.empty() || block_depth_ > 0 || s.kind != Stmt::Kind::scope || ir::copies_box(s)) return {};
  // Where a loop may not run, what it reads may never be filled.
  const bool may_not_run = s.mark == ir::Mark::none && ir::interval(s.extent, ranges_).lo < 1;
  if (may_not_run) return {};
  for (const ir::Access& a : ir::collect_accesses(s.body, {&s})) {
    if (a.write || plan_.boxed.count(a.buffer) == 0) continue;
    const bool changes =
        std::any_of(a.scopes.begin(), a.scopes.end(), [&](const Stmt* i) { return ir::uses(a.index[0], i->iter); });
    if (changes && s.mark == ir::Mark::block)
      return unsupported("threads of {} wait for boxes apart from others", s.iter);
    if (changes) continue;
    LATHE_ASSIGN(const Expr number, ring_number(a.buffer, a.index[0]));
    if (std::any_of(awaited_.begin(), awaited_.end(), [&](const Expr& e) { return e && equal(e, number); })) continue;
    to.push_back(at_ring(Kind::await_ring, number));
    awaited_.push_back(number);
  }
  return {};
}

// The scopes from `first` on that copy boxes to one place. How many they are.
Result<size_t> DeviceLowering::boxes(const std::vector<Stmt>& list, size_t first, int64_t threads, List& to) {
  if (!guards_.empty() || block_depth_ > 0)
    return unsupported("threads ask apart from others for the boxes of {}", list[first].iter);
  size_t last = first;
  Expr number;
  DeviceStmt mapped = made(Kind::when), one = made(Kind::when), expect;
  for (; last < list.size() && list[last].kind == Stmt::Kind::scope && ir::copies_box(list[last]); ++last) {
    const Stmt &s = list[last], &is = s.body[0].body[0];
    LATHE_ASSIGN(const Expr of, ring_number(is.target, is.index[0]));
    if (number && !equal(number, of)) break;
    if (!number) {
      number = of;
      expect = at_ring(Kind::expect, number);
    }
    LATHE_ASSIGN(const BoxCopy copy, box_copy(kernel_, s));
    LATHE_RETURN_IF_ERROR(box(copy, is, number, one.body));
    expect.bytes += copy.width * copy.lines * 2;
    if (part_ != Part::boxes) LATHE_RETURN_IF_ERROR(copied_by_threads(s, copy, threads, mapped.otherwise));
  }
  // What threads store instead of boxes is handed over by what they wait for next.
  std::fill(awaited_.begin(), awaited_.end(), Expr());
  one.integer = ir::make(Op::k_eq, {ir::iter("thread"), Expr(0)});
  one.body.insert(one.body.begin(), std::move(expect));
  mapped.otherwise.push_back(made(Kind::fence_shared));
  mapped.otherwise.push_back(at_ring(Kind::arrive, number));
  if (part_ != Part::all) {
    List& of = part_ == Part::boxes ? one.body : mapped.otherwise;
    std::move(of.begin(), of.end(), std::back_inserter(to));
    return last - first;
  }
  mapped.integer = ir::make(Op::k_ne, {ir::symbol(kMapped), Expr(0)});
  mapped.body.push_back(std::move(one));
  to.push_back(std::move(mapped));
  return last - first;
}

// One for each panel of neighbours; of what a cluster shares a block's part of the lines, for all of them.
Status DeviceLowering::box(const BoxCopy& copy, const Stmt& is, const Expr& number, List& to) {
  const auto place = [&](int64_t far, int64_t near) {
    return element(copy.target, is.index, {{copy.far, Expr(far)}, {copy.near, Expr(near)}});
  };
  const auto map =
      std::find_if(out_.maps.begin(), out_.maps.end(), [&](const DeviceMap& m) { return m.same(copy.map); });
  const int64_t line = copy.map.box[0];
  for (int64_t panel = 0; panel < copy.width; panel += line) {
    DeviceStmt b = at_ring(Kind::box, number);
    b.map = static_cast<int>(map - out_.maps.begin());
    LATHE_ASSIGN(DevicePlace first, place(0, panel));
    for (const auto& [far, near, wanted] : {std::tuple<int64_t, int64_t, int64_t>{0, 1, 1},
                                            {0, line - 1, line - 1},
                                            {1, 0, line},
                                            {copy.lines - 1, 0, (copy.lines - 1) * line}}) {
      if (far >= copy.lines) continue;
      LATHE_ASSIGN(const DevicePlace other, place(far, panel + near));
      if (!ir::is_const_int(ir::simplify(other.offset - first.offset, ranges_), wanted))
        return unsupported("{} does not lie in lines of {}, one after the other", copy.target, line);
    }
    b.places = {std::move(first)};
    for (const Expr& e : copy.at) b.at.push_back(ir::simplify(e, ranges_));
    b.at[0] = ir::simplify(b.at[0] + Expr(panel), ranges_);
    if (copy.part != copy.lines) {
      const Expr part = ir::iter(rank_) * Expr(copy.part);
      b.all = true;
      b.places[0].offset = ir::simplify(b.places[0].offset + part * Expr(line), ranges_);
      b.at[1] = ir::simplify(b.at[1] + part, ranges_);
    }
    to.push_back(std::move(b));
  }
  return {};
}

// Element by element, by all threads in turn.
Status DeviceLowering::copied_by_threads(const Stmt& s, const BoxCopy& copy, int64_t threads, List& to) {
  const Stmt& inner = s.body[0];
  DeviceStmt loop = made(Kind::loop), when = made(Kind::when);
  loop.name = fmt::format("x{}", slot_names_++);
  loop.integer = Expr((copy.width * copy.lines + threads - 1) / threads);
  Expr own = ir::iter("thread");
  if (plan_.role != nullptr) own = own - Expr(int64_t{out_.readers()});
  const Expr number = ir::iter(loop.name) * Expr(threads) + own;
  const auto let = [&](const std::string& name, const Expr& value) {
    loop.body.push_back(made(Kind::let));
    loop.body.back().name = name;
    loop.body.back().integer = value;
  };
  let(copy.far, ir::floordiv(number, Expr(copy.width)));
  let(copy.near, ir::mod(number, Expr(copy.width)));
  const auto known = known_;
  const auto taken = taken_;
  when.integer = ir::make(Op::k_logical_and, {ir::make(Op::k_lt, {ir::iter(s.iter), s.extent}),
                                              ir::make(Op::k_lt, {ir::iter(inner.iter), inner.extent})});
  LATHE_RETURN_IF_ERROR(inside(s, [&] { return inside(inner, [&] { return assign(inner.body[0], 1, when.body); }); }));
  // A tile that has no lines is there in a cluster, and is multiplied.
  if (out_.cluster > 1) LATHE_RETURN_IF_ERROR(store_zero(inner.body[0], 1, when.otherwise));
  known_ = known;
  taken_ = taken;
  loop.body.push_back(std::move(when));
  to.push_back(std::move(loop));
  return {};
}

}  // namespace lathe::jit
