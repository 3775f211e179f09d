// See lower_device.h.
#include "jit/cuda/lower_device.h"

#include <algorithm>
#include <map>

#include "ir/analysis/analysis.h"
#include "ir/base/gpu_target.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::jit {

using ir::Expr;
using ir::Mark;
using ir::Op;
using ir::Result;
using ir::Status;
using ir::Stmt;
using ir::unsupported;

namespace {

const Expr kBlock = ir::iter("block"), kThread = ir::iter("thread");

bool is_index(const Expr& e) { return e->type == ir::DType::i64; }

class Lowering {
 public:
  explicit Lowering(const ir::Kernel& kernel) : kernel_(kernel), ranges_(kernel) {}

  Result<DeviceProgram> run() {
    out_.name = kernel_.name;
    for (const ir::Buffer& b : kernel_.buffers) {
      if (b.type != ir::DType::f32) return unsupported("{} is {}, expected f32", b.name, ir::dtype_name(b.type));
      if (!ir::is_param(b.place)) return unsupported("{} is a temporary", b.name);
      if (!b.layout.empty() || !b.padding.empty()) return unsupported("{} has a layout of its own", b.name);
      out_.params.push_back({b.name, b.place == ir::Place::out});
    }
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
    if (out_.threads > ir::kMaxBlockThreads)
      return unsupported("a block of more than {} threads", ir::kMaxBlockThreads);
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

 private:
  using List = std::vector<DeviceStmt>;

  static void add_let(List& to, const std::string& name, const Expr& value) {
    DeviceStmt s;
    s.kind = DeviceStmt::Kind::let;
    s.name = name;
    s.integer = value;
    to.push_back(std::move(s));
  }

  // The most threads that @block scopes below share out between them.
  static int64_t threads_of(const std::vector<Stmt>& body, const ir::Ranges& outer) {
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

  // threads: the number that take part, from 0 on, in what is shared out below.
  Status body(const std::vector<Stmt>& list, int64_t threads, List& to) {
    const auto outside = known_;  // what is made in a list ends with it
    for (const Stmt& s : list) {
      if (s.kind == Stmt::Kind::assign) LATHE_RETURN_IF_ERROR(assign(s, to));
      if (s.kind == Stmt::Kind::scope) LATHE_RETURN_IF_ERROR(scope(s, threads, to));
    }
    known_ = outside;
    return {};
  }

  Status scope(const Stmt& s, int64_t threads, List& to) {
    switch (s.mark) {
      case Mark::none:
      case Mark::unroll: {
        DeviceStmt loop;
        loop.kind = DeviceStmt::Kind::loop;
        loop.name = s.iter;
        loop.integer = s.extent;
        LATHE_RETURN_IF_ERROR(inside(s, [&] { return body(s.body, threads, loop.body); }));
        to.push_back(std::move(loop));
        return {};
      }
      case Mark::block:
        return block(s, threads, to);
      case Mark::vector:
        return vector(s, to);
      default:
        return unsupported("scope {} is {}", s.iter, ir::mark_name(s.mark));
    }
  }

  template <class F>
  Status inside(const Stmt& s, F f) {
    ranges_.enter(s);
    Status status = f();
    ranges_.leave();
    return status;
  }

  Status block(const Stmt& s, int64_t threads, List& to) {
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
  Status vector(const Stmt& s, List& to) {
    const int64_t lanes = ir::interval(s.extent, ranges_).hi;
    if (lanes != 1 && lanes != 2 && lanes != kMaxLanes)
      return unsupported("vector scope {} of {} elements, expected 1, 2 or 4", s.iter, lanes);
    DeviceStmt single;
    single.kind = DeviceStmt::Kind::loop;
    single.name = s.iter;
    single.integer = s.extent;
    LATHE_RETURN_IF_ERROR(inside(s, [&] { return body(s.body, 1, single.body); }));
    if (lanes == 1) {
      to.push_back(std::move(single));
      return {};
    }
    DeviceStmt wide;
    wide.kind = DeviceStmt::Kind::aligned;
    wide.lanes = static_cast<int>(lanes);
    if (!ir::is_const_int(s.extent)) wide.integer = ir::make(Op::k_le, {Expr(lanes), s.extent});
    vector_ = &s;
    lanes_ = wide.lanes;
    places_ = &wide.places;
    const Status lowered = inside(s, [&] { return body(s.body, 1, wide.body); });
    vector_ = nullptr;
    lanes_ = 1;
    places_ = nullptr;
    LATHE_RETURN_IF_ERROR(lowered);
    wide.otherwise = {std::move(single)};
    to.push_back(std::move(wide));
    return {};
  }

  // How far an element is from the first one.
  static Expr offset_of(const ir::Buffer& b, const std::vector<Expr>& index) {
    Expr out(0), step(1);
    for (size_t d = index.size(); d-- > 0;) {
      out = out + index[d] * (b.strides.empty() ? step : b.strides[d]);
      step = step * b.dims[d];
    }
    return out;
  }

  // Of an access inside the vector scope: the place of lane 0, and the step from lane to lane.
  Result<DeviceStmt> access(const std::string& name, const std::vector<Expr>& index) {
    DeviceStmt s;
    const ir::Buffer* b = kernel_.find_buffer(name);
    const int param = static_cast<int>(b - kernel_.buffers.data());
    const Expr offset = offset_of(*b, index);
    if (vector_ == nullptr) {
      s.places = {{param, ir::simplify(offset, ranges_)}};
      return s;
    }
    const auto form = ir::affine_form(ir::simplify(offset, ranges_));
    if (!form) return unsupported("{} is used at {}, expected an affine place", name, print(offset));
    s.places = {{param, ir::simplify(ir::substitute(offset, {{vector_->iter, Expr(0)}}), ranges_)}};
    s.step = ir::simplify(form->coeff(vector_->iter), ranges_);
    s.lanes = ir::is_const_int(s.step, 0) ? 1 : lanes_;
    if (!ir::is_const_int(s.step, 1)) return s;
    const bool known = std::any_of(places_->begin(), places_->end(), [&](const DevicePlace& p) {
      return p.param == param && equal(p.offset, s.places[0].offset);
    });
    if (!known) places_->push_back(s.places[0]);
    return s;
  }

  Status assign(const Stmt& s, List& to) {
    if (s.op != ir::AssignOp::set) return unsupported("a statement on {} updates it", s.target);
    LATHE_ASSIGN(const DeviceOperand value, expression(s.value, to));
    LATHE_ASSIGN(DeviceStmt store, access(s.target, s.index));
    if (store.lanes != lanes_) return unsupported("lanes of {} share one element", s.target);
    store.kind = DeviceStmt::Kind::store;
    store.operands = {value};
    to.push_back(std::move(store));
    return {};
  }

  // Equal operations are done once; parameters that are read do not change meanwhile.
  int keep(DeviceStmt s, const std::string& text, List& to) {
    const auto known = known_.find(text);
    if (known != known_.end()) return known->second;
    s.value = next_++;
    known_[text] = s.value;
    to.push_back(std::move(s));
    return to.back().value;
  }

  Result<DeviceOperand> expression(const Expr& e, List& to) {
    if (e->op == Op::k_const_float) return DeviceOperand{-1, static_cast<float>(e->fval)};
    if (e->op == Op::k_load) {
      LATHE_ASSIGN(DeviceStmt s, access(e->name, e->args));
      s.kind = DeviceStmt::Kind::load;
      const bool input = kernel_.find_buffer(e->name)->place == ir::Place::in;
      const std::string text = input ? print(e) : fmt::format("{} {}", print(e), next_);
      return DeviceOperand{keep(std::move(s), text, to), 0};
    }
    DeviceStmt s;
    s.kind = DeviceStmt::Kind::set;
    const DeviceOpRow* row = find_device_op(e->op, &s.op);
    const bool served = row != nullptr && std::none_of(e->args.begin(), e->args.end(), is_index) &&
                        (e->type == ir::DType::f32 || e->type == ir::DType::b8);
    if (!served) return unsupported("{} has no function on a device", print(e));
    std::string text = row->name;
    s.lanes = lanes_;
    for (const Expr& a : e->args) {
      LATHE_ASSIGN(const DeviceOperand operand, expression(a, to));
      s.operands.push_back(operand);
      text += operand.value >= 0 ? fmt::format(" v{}", operand.value) : fmt::format(" {}", print(a));
    }
    return DeviceOperand{keep(std::move(s), text, to), 0};
  }

  const ir::Kernel& kernel_;
  ir::Ranges ranges_;
  DeviceProgram out_;
  int next_ = 0;                      // values so far
  std::map<std::string, int> known_;  // by what they are
  int block_depth_ = 0;
  const Stmt* vector_ = nullptr;  // whose lanes are taken together
  int lanes_ = 1;
  std::vector<DevicePlace>* places_ = nullptr;  // that must be aligned for it
};

}  // namespace

Result<DeviceProgram> lower_device(const ir::Leaf& leaf) {
  LATHE_ASSIGN(DeviceProgram out, Lowering(leaf.kernel).run());
  LATHE_RETURN_IF_ERROR(verify(out).with_context("device program"));
  return out;
}

}  // namespace lathe::jit
