// What the threads of a block reduce together: each one for itself, then over the lanes of a warp, then over warps by
// shared memory. Every thread has the result.
#include <limits>

#include "ir/core/text_form.h"
#include "jit/cuda/lowering.h"

namespace lathe::jit {

using ir::AssignOp;
using ir::Expr;
using ir::Result;
using ir::Status;
using ir::Stmt;
using ir::unsupported;
using Space = DevicePlace::Space;

namespace {

constexpr int64_t kWarp = 32;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Reduction {
  DeviceOp op;
  float start;
};
Reduction reduction_of(AssignOp op) {
  switch (op) {
    case AssignOp::max:
      return {DeviceOp::k_max, -kInfinity};
    case AssignOp::fmax:
      return {DeviceOp::k_fmax, -kInfinity};
    case AssignOp::min:
      return {DeviceOp::k_min, kInfinity};
    case AssignOp::mul:
      return {DeviceOp::k_mul, 1.0f};
    default:
      return {DeviceOp::k_add, 0.0f};
  }
}

AssignOp op_on(const std::vector<Stmt>& body, const std::string& buffer) {
  AssignOp op = AssignOp::set;
  ir::for_each_stmt(body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::assign && s.target == buffer) op = s.op;
  });
  return op;
}

}  // namespace

DeviceOperand DeviceLowering::load_cell(const DevicePlace& cell, List& to) {
  DeviceStmt load;
  load.kind = DeviceStmt::Kind::load;
  load.places = {cell};
  return {keep(std::move(load), "", to), 0};
}

void DeviceLowering::store_cell(const DevicePlace& cell, const DeviceOperand& value, List& to) {
  DeviceStmt store;
  store.kind = DeviceStmt::Kind::store;
  store.places = {cell};
  store.operands = {value};
  to.push_back(std::move(store));
}

Result<std::vector<DeviceLowering::Partial>> DeviceLowering::open_partials(const Stmt& s, List& to) {
  std::vector<Partial> out;
  const auto reduced = plan_.reduced.find(&s);
  if (reduced == plan_.reduced.end()) return out;
  for (const std::string& name : reduced->second) {
    Partial p{name, place_of_.at(name), {}, {}, 0};
    for (const ir::ThreadDim& d : share_.at(name)) {
      const bool inside = std::any_of(d.parts.begin(), d.parts.end(), [&](const ir::ThreadDim::Part& p) {
        return std::find(block_iters_.begin(), block_iters_.end(), p.owner.scope->iter) == block_iters_.end();
      });
      if (inside) return unsupported("threads of {} reduce elements of {}, which threads inside divide", s.iter, name);
    }
    const Reduction r = reduction_of(op_on(s.body, name));
    p.op = r.op;
    p.count = out_.locals[static_cast<size_t>(p.whole.index)].count;
    p.part = {Space::local, static_cast<int>(out_.locals.size()), {}};
    out_.locals.push_back({fmt::format("{}_{}", name, out_.locals.size()), p.count});
    for (int64_t c = 0; c < p.count; ++c) {
      p.part.offset = Expr(c);
      store_cell(p.part, {-1, r.start}, to);
    }
    place_of_[name] = p.part;
    out.push_back(std::move(p));
  }
  return out;
}

DeviceOperand DeviceLowering::over_lanes(DeviceOperand value, DeviceOp op, int64_t threads, List& to) {
  for (int64_t distance = threads / 2; distance > 0; distance /= 2) {
    DeviceStmt shuffle;
    shuffle.kind = DeviceStmt::Kind::shuffle;
    shuffle.distance = static_cast<int>(distance);
    shuffle.operands = {value};
    const DeviceOperand other{keep(std::move(shuffle), "", to), 0};
    value = set(op, {other, value}, 1, to);
  }
  return value;
}

// threads: that take part in the scope, neighbours from a multiple of that on.
Status DeviceLowering::close_partials(const std::vector<Partial>& partials, int64_t threads, List& to) {
  if (partials.empty()) return {};
  if ((threads & (threads - 1)) != 0)
    return unsupported("{} threads reduce {} together, expected a power of two", threads, partials[0].buffer);
  const Expr thread = ir::iter("thread");
  const int64_t warps = threads / kWarp;
  std::vector<DeviceOperand> values;
  for (const Partial& p : partials) {
    for (int64_t c = 0; c < p.count; ++c) {
      DevicePlace cell = p.part;
      cell.offset = Expr(c);
      values.push_back(over_lanes(load_cell(cell, to), p.op, std::min(threads, kWarp), to));
    }
  }
  if (warps > 1) {
    const int64_t all = out_.threads / kWarp;
    DevicePlace sums{Space::shared, static_cast<int>(out_.shared.size()), {}};
    out_.shared.push_back({fmt::format("x{}", out_.shared.size()), all * static_cast<int64_t>(values.size())});
    DeviceStmt first;
    first.kind = DeviceStmt::Kind::when;
    first.integer = ir::make(ir::Op::k_eq, {ir::mod(thread, Expr(kWarp)), Expr(0)});
    for (size_t i = 0; i < values.size(); ++i) {
      sums.offset = ir::simplify(ir::floordiv(thread, Expr(kWarp)) + Expr(all * static_cast<int64_t>(i)));
      store_cell(sums, values[i], first.body);
    }
    to.push_back(std::move(first));
    barrier(to);
    size_t i = 0;
    for (const Partial& p : partials) {
      for (int64_t c = 0; c < p.count; ++c, ++i) {
        sums.offset = ir::simplify(ir::floordiv(thread, Expr(threads)) * Expr(warps) + ir::mod(thread, Expr(warps)) +
                                   Expr(all * static_cast<int64_t>(i)));
        values[i] = over_lanes(load_cell(sums, to), p.op, warps, to);
      }
    }
    if (loops_ > 0) barrier(to);  // before the next turn stores there
  }
  List cells;
  size_t i = 0;
  for (const Partial& p : partials) {
    place_of_[p.buffer] = p.whole;
    for (int64_t c = 0; c < p.count; ++c) {
      DevicePlace cell = p.whole;
      cell.offset = Expr(c);
      const DeviceOperand before = load_cell(cell, cells);
      store_cell(cell, set(p.op, {values[i++], before}, 1, cells), cells);
    }
  }
  guarded(std::move(cells), to);
  return {};
}

}  // namespace lathe::jit
