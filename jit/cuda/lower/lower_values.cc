// What statements of a device leaf compute, in values of a thread, and where their elements lie.
#include <algorithm>

#include "ir/analysis/filled.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "jit/cuda/lower/lowering.h"

namespace lathe::jit {

using ir::AssignOp;
using ir::DType;
using ir::Expr;
using ir::Op;
using ir::Result;
using ir::Status;
using ir::unsupported;
using Space = DevicePlace::Space;

namespace {

bool is_index(const Expr& e) { return e->type == DType::i64; }

// A number, or a comparison of numbers: no element takes part.
bool is_of_indices(const Expr& e) {
  bool out = is_index(e) || e->type == DType::b8;
  ir::for_each_node(
      e, [&](const ir::ExprNode& n) { out &= n.type == DType::i64 || (n.type == DType::b8 && n.op != Op::k_load); });
  return out;
}

bool is_half(DType type) { return type == DType::bf16 || type == DType::f16; }

bool is_conversion(const Expr& e, DType type) { return e->op == Op::k_cast && e->type == type; }

}  // namespace

// Of registers of two elements: the dimension along which a thread has pairs of neighbours, which lies innermost.
size_t DeviceLowering::pair_dim(const ir::Buffer& b) const {
  const auto share = share_.find(b.name);
  if (share == share_.end() || type_of(b) == DType::f32) return b.dims.size();
  const auto pairs = [&](size_t d) {
    const auto& parts = share->second[d].parts;
    return parts.empty() || parts.back().chunk % 2 == 0;
  };
  for (size_t d = share->second.size(); d-- > 0;) {
    if (pairs(d)) return d;
  }
  return b.dims.size();
}

// How far an element is from the first one: of a parameter in the caller's memory, of registers in the thread's share,
// of shared memory as its layout says.
Expr DeviceLowering::offset_of(const ir::Buffer& b, const std::vector<Expr>& index) const {
  if (single_.count(b.name) != 0) return Expr(0);
  std::vector<Expr> at = index, sizes = b.dims;
  std::vector<size_t> order;  // of dimensions, the outermost first
  if (const auto share = share_.find(b.name); share != share_.end()) {
    const std::vector<ir::LayoutDim> layout = ir::full_layout(b);
    if (layout.size() == at.size()) {
      for (const ir::LayoutDim& l : layout) order.push_back(static_cast<size_t>(l.dim));
    }
    for (size_t d = 0; d < share->second.size(); ++d) {
      at[d] = share->second[d].own_index(index[d]);
      sizes[d] = Expr(share->second[d].own_size(sizes[d]->ival));
    }
  } else if (b.place == ir::Place::shared) {
    at.clear();
    sizes = ir::physical_dims(b);
    for (const ir::LayoutDim& l : ir::full_layout(b)) {
      const Expr& i = index[static_cast<size_t>(l.dim)];
      const bool whole = l.part == ir::LayoutDim::Part::whole, outer = l.part == ir::LayoutDim::Part::outer;
      at.push_back(whole ? i : outer ? ir::floordiv(i, Expr(l.tile)) : ir::mod(i, Expr(l.tile)));
    }
  }
  Expr out(0), step(1);
  const auto add = [&](size_t d) {
    out = out + at[d] * (b.strides.empty() ? step : b.strides[d]);
    step = step * sizes[d];
  };
  for (size_t d = order.size(); d < at.size(); ++d) order.push_back(d);
  const size_t inner = pair_dim(b);
  if (inner < at.size()) add(inner);
  for (size_t i = order.size(); i-- > 0;) {
    if (order[i] != inner) add(order[i]);
  }
  return out;
}

Result<Expr> DeviceLowering::taken(const Expr& e, List& to) {
  Status status;
  const Expr out = ir::rewrite(e, [&](const Expr& n) -> Expr {
    if (n->op == Op::k_cast && n->type == DType::i64 && n->args[0]->type == DType::i64) return n->args[0];
    const Expr& load = n->op == Op::k_cast && n->type == DType::i64 ? n->args[0] : n;
    if (!status.ok() || load->op != Op::k_load || (load.get() == n.get() && n->type != DType::i64)) return {};
    const ir::Buffer& b = *kernel_.find_buffer(load->name);
    const Expr at = ir::simplify(offset_of(b, load->args), ranges_);
    const std::string text = fmt::format("{} {}", b.name, print(at));
    if (const auto known = taken_.find(text); known != taken_.end()) return ir::iter(known->second);
    if (!b.values.lo || !b.values.hi || b.place != ir::Place::in) {
      status = unsupported("{} states no values, and is an index", b.name);
    } else if (vector_ != nullptr && ir::uses(at, vector_->iter)) {
      status = unsupported("lanes of {} are indices", b.name);
    }
    if (!status.ok()) return {};
    DeviceStmt s;
    s.kind = DeviceStmt::Kind::take;
    s.name = fmt::format("n{}", takes_++);
    s.integer = b.values.lo;
    s.step = b.values.hi;
    s.places = {place_of_.at(b.name)};
    s.places[0].offset = at;
    taken_[text] = s.name;
    to.push_back(std::move(s));
    return ir::iter(taken_[text]);
  });
  if (!status.ok()) return status;
  return out;
}

// What the lanes of a vector scope share, where addresses are looked at as well. Fails where each lane takes its own.
Status DeviceLowering::take_ahead(const ir::Stmt& vector, List& to) {
  Status status;
  const auto look = [&](const Expr& e) {
    ir::for_each_node(e, [&](const ir::ExprNode& n) {
      if (n.op != Op::k_load) return;
      for (const Expr& i : n.args)
        if (status.ok()) status = taken(i, to).status();
    });
  };
  vector_ = &vector;
  for (const ir::Stmt& s : vector.body) {
    look(s.value);
    for (const Expr& i : s.index)
      if (status.ok()) status = taken(i, to).status();
  }
  vector_ = nullptr;
  return status;
}

std::vector<Expr> DeviceLowering::named(const std::string& buffer, const std::vector<Expr>& index) const {
  std::vector<Expr> out = index;
  if (part_ != Part::all && plan_.boxed.count(buffer) != 0) {
    const Expr& number = index[0]->op == Op::k_mod ? index[0]->args[0] : index[0];
    out[0] = ir::mod(going_on(number), kernel_.find_buffer(buffer)->dims[0]);
  }
  if (plan_.rings.count(buffer) == 0) return out;
  const auto slot = slots_.find(print(index[0]));
  if (slot != slots_.end()) out[0] = ir::iter(slot->second);
  return out;
}

// Inside a vector scope: the place of lane 0, and the step from lane to lane.
Result<DeviceStmt> DeviceLowering::access(const std::string& name, const std::vector<Expr>& index, List& to) {
  DeviceStmt s;
  DevicePlace at = place_of_.at(name);
  LATHE_ASSIGN(const Expr offset, taken(offset_of(*kernel_.find_buffer(name), named(name, index)), to));
  if (vector_ == nullptr) {
    at.offset = ir::simplify(offset, ranges_);
    s.places = {std::move(at)};
    return s;
  }
  // From lane to lane; what else is in it, such as the place in a ring, is the same in all.
  const Expr lane = ir::iter(vector_->iter), here = ir::simplify(offset, ranges_);
  s.step = ir::simplify(ir::substitute(here, {{vector_->iter, lane + Expr(1)}}) - here);
  if (ir::uses(s.step, vector_->iter)) {  // lanes that do not leave a tile of the layout
    const auto lane_at = [&](int64_t l) {
      return ir::simplify(ir::substitute(offset, {{vector_->iter, Expr(l)}}), ranges_);
    };
    s.step = ir::simplify(lane_at(1) - lane_at(0), ranges_);
    for (int64_t l = 2; l < lanes_; ++l) {
      if (!ir::is_const_int(ir::simplify(lane_at(l) - lane_at(0) - Expr(l) * s.step, ranges_), 0))
        return unsupported("{} is used at {}, expected an affine place", name, print(offset));
    }
  }
  at.offset = ir::simplify(ir::substitute(offset, {{vector_->iter, Expr(0)}}), ranges_);
  s.places = {std::move(at)};
  s.lanes = ir::is_const_int(s.step, 0) ? 1 : lanes_;
  if (!ir::is_const_int(s.step, 1) || s.places[0].space != Space::param || is_line(s.places[0])) return s;
  const bool known = std::any_of(places_->begin(), places_->end(), [&](const DevicePlace& p) {
    return p.index == s.places[0].index && equal(p.offset, s.places[0].offset);
  });
  if (!known) places_->push_back(s.places[0]);
  return s;
}

bool DeviceLowering::moves_halves(const ir::Stmt& s) const {
  if (s.kind != ir::Stmt::Kind::assign || s.op != AssignOp::set || ir::unfilled(s.value)->op != Op::k_load)
    return false;
  if (!tensor_ && copied_.count(s.target) == 0) return false;
  const ir::Buffer& target = *kernel_.find_buffer(s.target);
  return is_half(target.type) && !ir::is_param(target.place);
}

Result<DeviceOperand> DeviceLowering::halves(const Expr& e, List& to) {
  LATHE_ASSIGN(DeviceStmt s, access(e->name, e->args, to));
  s.kind = DeviceStmt::Kind::load;
  s.bits = true;
  const bool input = kernel_.find_buffer(e->name)->place == ir::Place::in;
  return DeviceOperand{keep(std::move(s), input ? "bits " + print(e) : "", to), 0};
}

// Of threads that would all do the same, one does it.
void DeviceLowering::once(List&& what, int64_t threads, List& to) {
  if (threads <= 1) {
    std::move(what.begin(), what.end(), std::back_inserter(to));
    return;
  }
  DeviceStmt first;
  first.kind = DeviceStmt::Kind::when;
  const Expr thread = ir::iter("thread");
  first.integer = ir::make(Op::k_eq, {block_depth_ == 0 ? thread : ir::mod(thread, Expr(threads)), Expr(0)});
  first.body = std::move(what);
  to.push_back(std::move(first));
}

Status DeviceLowering::assign(const ir::Stmt& s, int64_t threads, List& to) {
  if (s.op == AssignOp::set && &ir::unfilled(s.value) != &s.value) return assign_filled(s, threads, to);
  if (plan_.rings.count(s.target) != 0) {
    bool copied = false;
    LATHE_RETURN_IF_ERROR(copy(s, threads, to, &copied));
    if (copied) return {};
  }
  DeviceOperand value;
  if (s.op == AssignOp::set) {
    // As the store does. Integers of 64 bits are stored from narrower ones.
    const bool rounds = (s.value->op == Op::k_cast && is_half(s.value->type) && ir::is_float(s.value->args[0]->type)) ||
                        is_conversion(s.value, DType::i64);
    if (rounds && !tensor_ && !ir::is_param(kernel_.find_buffer(s.target)->place))
      return unsupported("{} is a temporary of {}", s.target, ir::dtype_name(s.value->type));
    LATHE_ASSIGN(value, moves_halves(s) ? halves(s.value, to) : expression(rounds ? s.value->args[0] : s.value, to));
  } else if (s.value->type != DType::f32 && s.value->type != DType::i32) {
    return unsupported("a statement on {} updates {}", s.target, ir::dtype_name(s.value->type));
  }
  LATHE_ASSIGN(DeviceStmt store, access(s.target, s.index, to));
  if (s.op == AssignOp::set && store.lanes != lanes_) return unsupported("lanes of {} share one element", s.target);
  if (s.op != AssignOp::set) {
    LATHE_ASSIGN(value, updated(s, store, to));
  }
  store.kind = DeviceStmt::Kind::store;
  store.operands = {value};
  const bool local = store.places[0].space == Space::local;
  if (threads > 1 && !local && s.op != AssignOp::set)
    return unsupported("{} threads update one element of {}", threads, s.target);
  List stores;
  stores.push_back(std::move(store));
  once(std::move(stores), local ? 1 : threads, to);
  return {};
}

// What the cell of an update holds after it. Lanes that share a cell update it one after another.
Result<DeviceOperand> DeviceLowering::updated(const ir::Stmt& s, const DeviceStmt& cell, List& to) {
  const bool multiplies = s.op == AssignOp::add && s.value->op == Op::k_mul && s.value->type == DType::f32;
  const DeviceOp op = multiplies ? DeviceOp::k_fma : reduction_of(s.op, s.value->type).op;
  std::vector<DeviceOperand> operands;
  for (const Expr& e : multiplies ? s.value->args : std::vector<Expr>{s.value}) {
    LATHE_ASSIGN(const DeviceOperand o, expression(e, to));
    operands.push_back(o);
  }
  DeviceStmt load = cell;
  load.kind = DeviceStmt::Kind::load;
  const auto at = operands.begin() + static_cast<std::ptrdiff_t>(running_operand(op));
  operands.insert(at, DeviceOperand{keep(std::move(load), "", to), 0});
  if (cell.lanes == lanes_) return set(op, std::move(operands), lanes_, to);
  DeviceStmt fold;
  fold.kind = DeviceStmt::Kind::fold;
  fold.op = op;
  fold.lanes = lanes_;
  fold.operands = std::move(operands);
  return DeviceOperand{keep(std::move(fold), "", to), 0};
}

int DeviceLowering::lanes_of(const DeviceOperand& o) const {
  return o.value < 0 ? 1 : lanes_of_[static_cast<size_t>(o.value)];
}

char DeviceLowering::kind_of(const DeviceOperand& o) const {
  return o.value >= 0 ? kinds_[static_cast<size_t>(o.value)] : o.whole ? 'i' : 'f';
}

// Of the value that it defines.
char DeviceLowering::kind_of(const DeviceStmt& s) const {
  switch (s.kind) {
    case DeviceStmt::Kind::load: {
      const auto at = static_cast<size_t>(s.places[0].index);
      return s.places[0].space == Space::param    ? out_.params[at].kind()
             : s.places[0].space == Space::shared ? value_kind(out_.shared[at].type)
                                                  : value_kind(out_.locals[at].type);
    }
    case DeviceStmt::Kind::set:
    case DeviceStmt::Kind::fold:
      return device_op(s.op).result;
    case DeviceStmt::Kind::index:
      return s.integer->type == DType::b8 ? 'b' : s.whole ? 'i' : 'f';
    default:
      return kind_of(s.operands[0]);  // shuffled
  }
}

// Equal operations are done once; what changes meanwhile has no text.
int DeviceLowering::keep(DeviceStmt s, const std::string& text, List& to) {
  const auto known = text.empty() ? known_.end() : known_.find(text);
  if (known != known_.end()) return known->second;
  s.value = static_cast<int>(lanes_of_.size());
  const bool one = s.kind == DeviceStmt::Kind::fold || (s.kind == DeviceStmt::Kind::index && s.name.empty());
  lanes_of_.push_back(one ? 1 : s.lanes);
  kinds_.push_back(kind_of(s));
  if (!text.empty()) known_[text] = s.value;
  to.push_back(std::move(s));
  return to.back().value;
}

DeviceOperand DeviceLowering::set(DeviceOp op, std::vector<DeviceOperand> operands, int lanes, List& to) {
  DeviceStmt s;
  s.kind = DeviceStmt::Kind::set;
  s.op = op;
  s.lanes = lanes;
  std::string text = fmt::format("{} x{}", device_op(op).name, lanes);
  for (const DeviceOperand& o : operands)
    text += o.value >= 0 ? fmt::format(" v{}", o.value)
            : o.whole    ? fmt::format(" {}:i32", o.number)
                         : fmt::format(" {}", print(ir::const_float(o.constant)));
  s.operands = std::move(operands);
  return DeviceOperand{keep(std::move(s), text, to), 0};
}

// In a vector scope, one for each lane if it depends on the lane. type: of the value, if it is a number.
Result<DeviceOperand> DeviceLowering::index_value(const Expr& e, DType type, List& to) {
  DeviceStmt s;
  s.kind = DeviceStmt::Kind::index;
  s.integer = e;
  s.whole = type == DType::i32;
  if (is_index(e)) s.integer = ir::simplify(e, ranges_);
  if (s.whole && ir::is_const_int(s.integer)) return whole_constant(static_cast<int32_t>(s.integer->ival));
  if (vector_ != nullptr && ir::uses(s.integer, vector_->iter)) {
    s.lanes = lanes_;
    // A name of its own: the iterator is that of a loop elsewhere.
    s.name = fmt::format("l{}", lanes_of_.size());
    s.integer = ir::substitute(s.integer, {{vector_->iter, ir::iter(s.name)}});
  }
  const std::string text = fmt::format("index {} {}{}", dtype_name(type), print(e), vector_ != nullptr ? " lanes" : "");
  return DeviceOperand{keep(std::move(s), text, to), 0};
}

// x < y of indices whose ranges say what divisions in it come to; as it is, if some would be left.
static Expr without_divisions(const Expr& e, const ir::Ranges& ranges) {
  const auto divides = [](const Expr& of) {
    bool out = false;
    ir::for_each_node(of, [&](const ir::ExprNode& n) { out |= n.op == Op::k_floordiv || n.op == Op::k_mod; });
    return out;
  };
  if (e->op != Op::k_lt || !is_index(e->args[0]) || !is_index(e->args[1]) || !divides(e)) return e;
  const Expr simple = ir::make(Op::k_lt, {ir::simplify(e->args[0], ranges), ir::simplify(e->args[1], ranges)});
  return divides(simple) ? e : simple;
}

// x < y of indices. Lanes and iterators of unrolled loops come to stand on the left, where they are numbers of 32 bits;
// the right is the same for all of them.
Result<DeviceOperand> DeviceLowering::comparison(const Expr& given, List& to) {
  const Expr e = without_divisions(given, ranges_);
  const auto form = e->op == Op::k_lt ? ir::affine_form(ir::simplify(e->args[1] - e->args[0], ranges_)) : std::nullopt;
  if (!form) return index_value(e, e->type, to);
  Expr left(0);
  std::vector<std::string> near = unrolled_;
  if (vector_ != nullptr) near.push_back(vector_->iter);
  for (const std::string& i : near) {
    const Expr step = form->coeff(i);
    if (step && is_const_int(step)) left = left - step * ir::iter(i);
  }
  left = ir::simplify(left, ranges_);
  const ir::Interval bounds = ir::interval(left, ranges_);
  constexpr int64_t kMost = int64_t{1} << 30;
  const Expr rest = ir::simplify(e->args[1] - e->args[0] + left, ranges_);
  if (is_const_int(left) || is_const_int(rest) || bounds.lo < -kMost || bounds.hi > kMost)
    return index_value(e, e->type, to);
  const Expr right = ir::min(ir::max(rest, Expr(bounds.lo)), Expr(bounds.hi + 1));
  LATHE_ASSIGN(const DeviceOperand x, index_value(left, DType::i32, to));
  LATHE_ASSIGN(const DeviceOperand y, index_value(right, DType::i32, to));
  return set(DeviceOp::k_lt_i32, {x, y}, lanes_of(x), to);
}

Result<DeviceOperand> DeviceLowering::expression(const Expr& e, List& to) {
  const bool widens = e->op == Op::k_cast && e->type == DType::f32 && is_half(e->args[0]->type);
  if (widens) return expression(e->args[0], to);  // in registers it is an f32
  if (e->op == Op::k_const_float) return DeviceOperand{-1, static_cast<float>(e->fval)};
  if (e->op == Op::k_const_int && value_kind(e->type) == 'i') return whole_constant(static_cast<int32_t>(e->ival));
  if (e->op == Op::k_load) {
    LATHE_ASSIGN(DeviceStmt s, access(e->name, e->args, to));
    s.kind = DeviceStmt::Kind::load;
    const bool input = kernel_.find_buffer(e->name)->place == ir::Place::in;
    return DeviceOperand{keep(std::move(s), input ? print(e) : "", to), 0};
  }
  const bool number = (is_conversion(e, DType::f32) || is_conversion(e, DType::i32)) && is_index(e->args[0]);
  if (e->type == DType::b8 && is_of_indices(e)) {
    LATHE_ASSIGN(const Expr known, taken(e, to));  // integers of 64 bits are read as numbers
    return comparison(known, to);
  }
  if (number && is_of_indices(e->args[0])) return index_value(e->args[0], e->type, to);
  const bool shifts = e->op == Op::k_shift_left || e->op == Op::k_shift_right;
  std::vector<DeviceOperand> operands;
  std::string kinds;
  int lanes = 1;
  for (const Expr& a : e->args) {
    const bool count = shifts && operands.size() == 1;  // an index
    if (is_index(a) && !count) return unsupported("{} has no function on a device", print(e));
    Result<Expr> number = count ? taken(a, to) : Result<Expr>(a);
    if (!number.ok()) return number.status();
    LATHE_ASSIGN(const DeviceOperand operand, count ? index_value(*number, DType::i32, to) : expression(a, to));
    lanes = std::max(lanes, lanes_of(operand));
    operands.push_back(operand);
    kinds += kind_of(operand);
  }
  if (is_conversion(e, DType::i32) && kinds == "i") return operands[0];  // it is one already
  DeviceOp op = DeviceOp::k_add;
  const Op function = e->op == Op::k_exp2_bf16 ? Op::k_exp2 : e->op;  // the device's own is as quick
  if (find_device_op(function, e->type, kinds, &op) == nullptr)
    return unsupported("{} has no function on a device", print(e));
  return set(op, std::move(operands), lanes, to);
}

}  // namespace lathe::jit
