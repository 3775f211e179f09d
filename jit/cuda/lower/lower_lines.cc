// Loops whose iterations have several vectors of parameters on their way. That lines begin at multiples of 16 bytes is
// asked once, before the loop, and not at each vector: an answer in between is a branch, behind which nothing is known
// of what the others have loaded.
//
//   for i: for u @unroll: {if aligned: x8 else: for v}
//     -> if lines and the loop are multiples of 8 long and p0 is aligned: for i: for u: x8
//        else: as above
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "jit/cuda/lower/lowering.h"

namespace lathe::jit {

using ir::Expr;
using ir::Mark;
using ir::Status;
using ir::Stmt;

namespace {

constexpr int64_t kSeveral = 2;

void add_symbols(const Expr& e, std::set<std::string>& to) {
  ir::for_each_node(e, [&](const ir::ExprNode& n) {
    if (n.op == ir::Op::k_symbol) to.insert(n.name);
  });
}

}  // namespace

// Vectors of parameters that go into registers first, in all copies of the scope.
int64_t DeviceLowering::vectors_in(const Stmt& s, const ir::Ranges& around) const {
  if (s.mark == Mark::vector) {
    return std::all_of(s.body.begin(), s.body.end(), [&](const Stmt& a) {
      return a.kind == Stmt::Kind::assign && a.op == ir::AssignOp::set && a.value->op == ir::Op::k_load &&
             kernel_.find_buffer(a.target)->place == ir::Place::reg &&
             kernel_.find_buffer(a.value->name)->place == ir::Place::in;
    });
  }
  ir::Ranges ranges = around;
  ranges.enter(s);
  int64_t out = 0;
  for (const Stmt& inner : s.body) {
    if (inner.kind == Stmt::Kind::scope) out += vectors_in(inner, ranges);
  }
  return s.mark == Mark::unroll ? out * std::clamp<int64_t>(ir::interval(s.extent, around).hi, 1, kSeveral) : out;
}

bool DeviceLowering::goes_by_lines(const Stmt& s) const {
  const bool plain = !lines_ && !as_they_lie_ && !tensor_ && part_ == Part::all && plan_.role == nullptr &&
                     plan_.rings.empty() && plan_.boxed.empty();
  return plain && s.mark == Mark::none && block_depth_ > 0 && plan_.waits.count(&s) == 0 &&
         vectors_in(s, ranges_) >= kSeveral;
}

Status DeviceLowering::by_lines(const Stmt& s, int64_t threads, List& to) {
  std::set<std::string> sizes;
  int64_t lanes = 1;
  add_symbols(s.extent, sizes);
  ir::for_each_stmt(s.body, [&](const Stmt& inner) {
    if (inner.kind == Stmt::Kind::scope && inner.mark == Mark::vector) add_symbols(inner.extent, sizes);
  });
  for (const ir::Access& a : ir::collect_accesses(s.body)) {
    const ir::Buffer& b = *kernel_.find_buffer(a.buffer);
    if (!ir::is_param(b.place)) continue;
    // Further dimensions are multiples of the last one apart.
    if (b.dims.size() > 1) add_symbols(b.dims.back(), sizes);
    for (const Expr& stride : b.strides) add_symbols(stride, sizes);
    lanes = std::max<int64_t>(lanes, lanes_at_once(b.type));
  }
  const auto ranges = ranges_;
  const auto known = known_;
  const auto taken = taken_;
  DeviceStmt all;
  all.kind = DeviceStmt::Kind::aligned;
  all.lanes = kMaxLanes;
  for (const std::string& size : sizes) {
    if (!ranges_.find(size)) continue;
    ranges_.set(size, *ranges_.find(size), lanes);
    const Expr whole = ir::make(ir::Op::k_eq, {ir::mod(ir::symbol(size), Expr(lanes)), Expr(0)});
    all.integer = all.integer ? ir::make(ir::Op::k_logical_and, {all.integer, whole}) : whole;
  }
  lines_.emplace();
  Status status = loop(s, threads, all.body);
  for (const int param : *lines_) all.places.push_back({DevicePlace::Space::param, param, Expr(0)});
  lines_.reset();
  ranges_ = ranges;
  known_ = known;
  taken_ = taken;
  LATHE_RETURN_IF_ERROR(status);
  as_they_lie_ = true;
  status = loop(s, threads, all.otherwise);
  as_they_lie_ = false;
  known_ = known;
  taken_ = taken;
  LATHE_RETURN_IF_ERROR(status);
  if (all.places.empty()) {
    std::move(all.otherwise.begin(), all.otherwise.end(), std::back_inserter(to));
  } else {
    to.push_back(std::move(all));
  }
  return {};
}

// That a vector begins at a multiple of 16 bytes is known here.
bool DeviceLowering::is_line(const DevicePlace& at) {
  const int64_t lanes = std::min(lanes_, lanes_at_once(out_.params[static_cast<size_t>(at.index)].type));
  if (!lines_ || !ir::proves_divisible(at.offset, lanes, ranges_)) return false;
  lines_->insert(at.index);
  return true;
}

}  // namespace lathe::jit
