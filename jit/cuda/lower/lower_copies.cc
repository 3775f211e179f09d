// Copies to rings that each thread makes of its own elements, asynchronously (cp.async): groups of them, and waiting
// for all but the latest.
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "jit/cuda/lower/lowering.h"

namespace lathe::jit {

using ir::DType;
using ir::Expr;
using ir::Op;
using ir::Result;
using ir::Status;
using ir::Stmt;
using ir::unsupported;

// Of elements that lie in a row on both sides at once, of others one by one. Single elements of 1 or 2 bytes are too
// few for a copy: *done is false, and nothing is made.
Status DeviceLowering::copy(const Stmt& s, int64_t threads, List& to, bool* done) {
  const DType type = kernel_.find_buffer(s.target)->type;
  const size_t aligned = places_ != nullptr ? places_->size() : 0;
  LATHE_ASSIGN(const DeviceStmt target, access(s.target, s.index, to));
  LATHE_ASSIGN(const DeviceStmt source, access(s.value->name, s.value->args, to));
  if (target.lanes != lanes_ || source.lanes != lanes_)
    return unsupported("lanes of {} share one element of a copy", s.target);
  const bool whole =
      lanes_ == lanes_at_once(type) && ir::is_const_int(target.step, 1) && ir::is_const_int(source.step, 1);
  if (!whole && places_ != nullptr) places_->resize(aligned);
  *done = whole || dtype_bytes(type) > 2;
  if (!*done) return {};
  List copies;
  for (int l = 0; l < (whole ? 1 : lanes_); ++l) {
    DeviceStmt c;
    c.kind = DeviceStmt::Kind::copy;
    c.lanes = whole ? lanes_ : 1;
    c.step = Expr(1);
    c.places = {target.places[0], source.places[0]};
    if (l > 0) {
      c.places[0].offset = ir::simplify(c.places[0].offset + Expr(l) * target.step, ranges_);
      c.places[1].offset = ir::simplify(c.places[1].offset + Expr(l) * source.step, ranges_);
    }
    copies.push_back(std::move(c));
  }
  open_ = on_their_way_ = true;
  once(std::move(copies), threads, to);
  return {};
}

void DeviceLowering::commit(List& to) {
  to.emplace_back();
  to.back().kind = DeviceStmt::Kind::commit;
  open_ = false;
}

// Before threads meet: what each has copied has arrived, but for the latest groups.
void DeviceLowering::await(int groups, List& to) {
  if (!on_their_way_) return;
  if (open_) commit(to);
  to.emplace_back();
  to.back().kind = DeviceStmt::Kind::await;
  to.back().groups = groups;
  on_their_way_ = groups > 0;
}

// Whether an iteration copies to a place of a ring of its own.
bool DeviceLowering::is_ahead(const Stmt& loop) const {
  bool out = false;
  ir::for_each_stmt(loop.body,
                    [&](const Stmt& s) { out |= plan_.rings.count(s.target) != 0 && ir::uses(s.index[0], loop.iter); });
  return out;
}

std::vector<Expr> DeviceLowering::places_in(const Stmt& loop) const {
  std::vector<Expr> out;
  for (const ir::Access& a : ir::collect_accesses(loop.body)) {
    const bool ring = plan_.rings.count(a.buffer) != 0 && a.index[0]->op == Op::k_mod;
    if (!ring || !ir::uses(a.index[0], loop.iter)) continue;
    if (std::none_of(out.begin(), out.end(), [&](const Expr& e) { return equal(e, a.index[0]); }))
      out.push_back(a.index[0]);
  }
  return out;
}

// What is copied before it is used: always so many groups, of which some may have no copies. So a wait that counts
// groups waits for the right ones.
Status DeviceLowering::groups(const Stmt& s, int64_t threads, List& to) {
  const int64_t most = ir::interval(s.extent, ranges_).hi;
  if (most > kMostStages) return unsupported("scope {} copies ahead in more than {} iterations", s.iter, kMostStages);
  DeviceStmt loop, when;
  loop.kind = DeviceStmt::Kind::loop;
  loop.name = s.iter;
  loop.integer = Expr(most);
  loop.unrolled = most;
  when.kind = DeviceStmt::Kind::when;
  when.integer = ir::make(Op::k_lt, {ir::iter(s.iter), s.extent});
  LATHE_RETURN_IF_ERROR(inside(s, [&] { return body(s.body, threads, when.body); }));
  loop.body.push_back(std::move(when));
  commit(loop.body);
  to.push_back(std::move(loop));
  return {};
}

}  // namespace lathe::jit
