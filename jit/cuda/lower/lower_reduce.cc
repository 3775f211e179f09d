// What the threads of a block reduce together: each one for itself, then over the lanes of a warp, then over warps by
// shared memory. Every thread has the result.
#include <limits>

#include "ir/analysis/dependence.h"
#include "ir/core/text_form.h"
#include "jit/cuda/lower/lowering.h"

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

AssignOp op_on(const std::vector<Stmt>& body, const std::string& buffer) {
  AssignOp op = AssignOp::set;
  ir::for_each_stmt(body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::assign && s.target == buffer) op = s.op;
  });
  return op;
}

}  // namespace

DeviceLowering::Reduction DeviceLowering::reduction_of(AssignOp op, ir::DType type) {
  const bool whole = type == ir::DType::i32;
  const auto of = [&](DeviceOp floats, float start, DeviceOp integers, int32_t number) {
    return whole ? Reduction{integers, whole_constant(number)} : Reduction{floats, {-1, start}};
  };
  switch (op) {
    case AssignOp::max:
      return of(DeviceOp::k_max, -kInfinity, DeviceOp::k_max_i32, INT32_MIN);
    case AssignOp::fmax:
      return of(DeviceOp::k_fmax, -kInfinity, DeviceOp::k_max_i32, INT32_MIN);
    case AssignOp::min:
      return of(DeviceOp::k_min, kInfinity, DeviceOp::k_min_i32, INT32_MAX);
    case AssignOp::mul:
      return of(DeviceOp::k_mul, 1.0f, DeviceOp::k_mul_i32, 1);
    default:
      return of(DeviceOp::k_add, 0.0f, DeviceOp::k_add_i32, 0);
  }
}

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
    Partial p{name, place_of_.at(name), {}, {}, {}, 0};
    for (const ir::ThreadDim& d : share_.at(name)) {
      const bool inside = std::any_of(d.parts.begin(), d.parts.end(), [&](const ir::ThreadDim::Part& p) {
        return std::none_of(blocks_.begin(), blocks_.end(),
                            [&](const ir::BlockScope& b) { return b.same_threads(p.owner); });
      });
      if (inside) return unsupported("threads of {} reduce elements of {}, which threads inside divide", s.iter, name);
    }
    p.type = out_.locals[static_cast<size_t>(p.whole.index)].type;
    const Reduction r = reduction_of(op_on(s.body, name), p.type);
    p.op = r.op;
    p.count = out_.locals[static_cast<size_t>(p.whole.index)].count;
    if (const Expr cell = only_cell(s, name)) {
      p.single = true;
      p.whole.offset = cell;
      p.count = 1;
      single_.insert(name);
    }
    p.part = {Space::local, static_cast<int>(out_.locals.size()), {}};
    out_.locals.push_back({fmt::format("{}_{}", name, out_.locals.size()), p.count, p.type});
    for (int64_t c = 0; c < p.count; ++c) {
      p.part.offset = Expr(c);
      store_cell(p.part, r.start, to);
    }
    place_of_[name] = p.part;
    out.push_back(std::move(p));
  }
  return out;
}

// Where all that a thread does to the buffer in the scope is to one cell: which. Null: to several.
Expr DeviceLowering::only_cell(const Stmt& s, const std::string& buffer) const {
  Expr out;
  for (const ir::Access& a : ir::collect_accesses(s.body, {}, &buffer)) {
    const Expr at = ir::simplify(offset_of(*kernel_.find_buffer(buffer), a.index), ranges_);
    const bool fixed =
        std::none_of(a.scopes.begin(), a.scopes.end(), [&](const Stmt* i) { return ir::uses(at, i->iter); });
    if (!fixed || ir::uses(at, s.iter) || (out && !equal(out, at))) return {};
    out = at;
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

// By shared memory, in which each kind of values has a place of its own. values: of the first lanes of warps.
void DeviceLowering::over_warps(const std::vector<Partial>& partials, int64_t threads,
                                std::vector<DeviceOperand>& values, List& to) {
  const Expr thread = ir::iter("thread");
  const int64_t warps = threads / kWarp, all = out_.threads / kWarp;
  std::map<ir::DType, std::pair<int, int64_t>> memory;  // which one, and how many values are there
  std::vector<DevicePlace> places;                      // of values, but for the warp
  for (const Partial& p : partials) {
    for (int64_t c = 0; c < p.count; ++c) {
      const auto [at, made] = memory.try_emplace(p.type, static_cast<int>(out_.shared.size()), 0);
      if (made) out_.shared.push_back({fmt::format("x{}", out_.shared.size()), 0, p.type});
      places.push_back({Space::shared, at->second.first, Expr(all * at->second.second++)});
      out_.shared[static_cast<size_t>(at->second.first)].count += all;
    }
  }
  DeviceStmt first;
  first.kind = DeviceStmt::Kind::when;
  first.integer = ir::make(ir::Op::k_eq, {ir::mod(thread, Expr(kWarp)), Expr(0)});
  for (size_t i = 0; i < values.size(); ++i) {
    DevicePlace at = places[i];
    at.offset = ir::simplify(ir::floordiv(thread, Expr(kWarp)) + at.offset);
    store_cell(at, values[i], first.body);
  }
  to.push_back(std::move(first));
  barrier(out_.threads, to);
  size_t i = 0;
  for (const Partial& p : partials) {
    for (int64_t c = 0; c < p.count; ++c, ++i) {
      DevicePlace at = places[i];
      at.offset =
          ir::simplify(ir::floordiv(thread, Expr(threads)) * Expr(warps) + ir::mod(thread, Expr(warps)) + at.offset);
      values[i] = over_lanes(load_cell(at, to), p.op, warps, to);
    }
  }
  if (loops_ > 0) barrier(out_.threads, to);  // before the next turn stores there
}

// threads: that take part in the scope, neighbours from a multiple of that on.
Status DeviceLowering::close_partials(const std::vector<Partial>& partials, int64_t threads, List& to) {
  if (partials.empty()) return {};
  if ((threads & (threads - 1)) != 0)
    return unsupported("{} threads reduce {} together, expected a power of two", threads, partials[0].buffer);
  const int64_t warps = threads / kWarp;
  std::vector<DeviceOperand> values;
  for (const Partial& p : partials) {
    for (int64_t c = 0; c < p.count; ++c) {
      DevicePlace cell = p.part;
      cell.offset = Expr(c);
      values.push_back(over_lanes(load_cell(cell, to), p.op, std::min(threads, kWarp), to));
    }
  }
  if (warps > 1) over_warps(partials, threads, values, to);
  List cells;
  size_t i = 0;
  for (const Partial& p : partials) {
    place_of_[p.buffer] = p.whole;
    place_of_[p.buffer].offset = {};
    single_.erase(p.buffer);
    for (int64_t c = 0; c < p.count; ++c) {
      DevicePlace cell = p.whole;
      if (!p.single) cell.offset = Expr(c);
      const DeviceOperand before = load_cell(cell, cells);
      store_cell(cell, set(p.op, {values[i++], before}, 1, cells), cells);
    }
  }
  guarded(std::move(cells), to);
  return {};
}

}  // namespace lathe::jit
