// Scopes: loops with their masked tails, unrolled copies, vector scopes.
//
//   for i < ceildiv(e1, 16): B(min(16, e1 - 16*i))   ->  loop x = 0; x + 16 <= e1; x += 16 { B(16)
//   }  if x < e1 { B(masked) } for i < 4 @unroll: B                             ->  B(0) B(1) B(2)
//   B(3) for i < 32 @vector: B  (16 lanes)                ->  B(lanes 0..15) B(lanes 16..31)
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "jit/lower/lowering.h"

namespace lathe::jit {

using ir::Expr;
using ir::Mark;
using ir::Op;
using ir::Stmt;

// What an epilogue with a polynomial and its operands keep alive at once, about.
static constexpr int kEpilogueRegisters = 10;

void Lowering::body(const Body& list) {
  for (size_t i = 0; i < list.size() && e_.ok(); ++i) {
    if (!lane_) find_reductions(list, i);
    if (i + 1 < list.size() && starts_tiles(list[i], list[i + 1]))
      start_of_tiles_ = &list[i];
    else
      statement(list[i]);
    if (lane_) continue;
    for (size_t r = 0; r < reductions_.size();) {
      if (reductions_[r].list == &list && reductions_[r].last == i) {
        Reduction done = std::move(reductions_[r]);
        reductions_.erase(reductions_.begin() + static_cast<std::ptrdiff_t>(r));
        finish_reduction(done);
      } else {
        ++r;
      }
    }
  }
}

void Lowering::statement(const Stmt& s) {
  if (is_prefetch(s)) return;
  if (s.kind == Stmt::Kind::assign) return assign(s);
  switch (s.mark) {
    case Mark::none:
      return loop(s);
    case Mark::unroll:
      return unrolled(s);
    case Mark::vector:
      return vector_scope(s);
    case Mark::tensor:
      return tensor(s);
    case Mark::parallel:
    case Mark::grid:
    case Mark::block:
    case Mark::role:
    case Mark::persistent:
    case Mark::cluster:
      fail(ir::unsupported("scope {} is {}", s.iter, ir::mark_name(s.mark)));
      return;
  }
}

// A row's code is the member of its name.
void Lowering::tensor(const Stmt& s) {
  using enum ir::CpuFeature;
  struct Row {
    std::string_view name;
    uint64_t features;
    void (Lowering::*emit)(const Stmt&);
  };
  static constexpr Row kRows[] = {
#define LATHE_INTRINSIC(name, numeric, features, layout, meaning) {#name, features, &Lowering::name},
#include "ir/analysis/intrinsics.def"
#undef LATHE_INTRINSIC
  };
  const Row* row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == s.intrinsic; });
  if (row == std::end(kRows)) {
    fail(ir::unsupported("scope {}: intrinsic {}", s.iter, s.intrinsic));
    return;
  }
  const LeafProgram& program = e_.program();
  if (program.level != ir::IsaLevel::portable && !program.has(row->features)) {
    fail(ir::unsupported("scope {}: the target lacks features of {}", s.iter, s.intrinsic));
    return;
  }
  (this->*row->emit)(s);
}

Lowering::Cells Lowering::open_block(const Body& inside) {
  ir::for_each_stmt(inside, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign) return;
    const int slot = slot_of(s.target);
    if (slot >= 0 && leaf_.buffers[slot].place != ir::Place::reg) {
      e_.stored(slot);
      return;
    }
    if (slot < 0) return;
    const int rank = rank_of(slot);
    for (auto& [key, cell] : cells_) {
      if (key.rank != rank) continue;
      if (!cell.home) {
        const int home = e_.home();
        e_.op_into(home, LeafOp::k_move, {cell.reg});
        cell.reg = home;
        cell.home = true;
      } else {
        e_.touch(cell.reg);
      }
    }
  });
  for (const Reduction& r : reductions_) {
    for (const Reduction::Target& t : r.targets) {
      for (const auto& [copy, reg] : t.partials) e_.touch(reg);
    }
  }
  return Cells(cells_, memory_);
}

void Lowering::close_block(const Cells& before) {
  Cells after(before, memory_);
  for (auto& [key, cell] : after) {
    const Cell& now = cells_[key];
    if (now.reg != cell.reg) e_.op_into(cell.reg, LeafOp::k_move, {now.reg});
    if (now.signature != cell.signature) cell.signature = "mixed";
    if (cell.home) e_.touch(cell.reg);
  }
  for (const Reduction& r : reductions_) {
    for (const Reduction::Target& t : r.targets) {
      for (const auto& [copy, reg] : t.partials) e_.touch(reg);
    }
  }
  cells_ = std::move(after);
}

// Whether the extent is known to be a multiple of `width`.
bool Lowering::whole_steps(const Extent& extent, int64_t width) const {
  if (extent.add % width != 0) return false;
  if (extent.arg == Extent::kConst || width == 1) return true;
  if (extent.arg == Extent::kSegLen) return false;
  const ir::Symbol* symbol = leaf_.find_symbol(fmt::format("e{}", extent.arg));
  return symbol != nullptr && symbol->multiple_of % width == 0;
}

void Lowering::loop(const Stmt& s) {
  if (lane_ || !makes_weights()) return counted_loop(s);
  read_again();
  const auto all = [&] {
    hoist_loop(s);
    counted_loop(s);
  };
  if (always_runs(s) || !hoists(s)) return all();
  // An empty loop reads nothing: its operands may have no element there.
  const Expr& steps = s.extent->op == Op::k_ceildiv ? s.extent->args[0] : s.extent;
  const std::optional<VectorExtent> extent = vector_extent(steps, env_, leaf_);
  if (!extent) return counted_loop(s);
  guarded(extent->bounds, 0, 0, s.body, all);
}

void Lowering::counted_loop(const Stmt& s) {
  LoopContext* l = e_.new_loop();
  const bool tiled = s.extent->op == Op::k_ceildiv;
  if (tiled) l->width = constant_value(s.extent->args[1], env_).value_or(0);
  const std::optional<Extent> extent = plain_extent(tiled ? s.extent->args[0] : s.extent, env_);
  if (!extent || l->width <= 0) {
    fail(ir::unsupported("scope {}: extent {} of a loop", s.iter, ir::print(s.extent)));
    return;
  }
  l->extent = *extent;
  l->var = e_.new_var();
  const auto before = open_block(s.body);
  const std::pmr::vector<PrefetchStream> streams = open_streams(s);
  const auto inside = [&](Nodes* out, bool full) {
    l->full = full;
    e_.push_frame(out, likely_size(s.body));
    e_.enter(l);
    env_.push_back({s.iter, Binding::Kind::loop, 0, 0, l});
    prefetches(s);
    for (const PrefetchStream& stream : streams) {
      for (int line = 0; line < stream.lines; ++line) e_.prefetch(stream.ptr, 64 * line, stream.cache);
    }
    body(s.body);
    for (const PrefetchStream& stream : streams) step_stream(stream);
    close_block(before);
    env_.pop_back();
    e_.leave();
    e_.pop_frame();
  };
  Node main(memory_), tail(memory_);
  main.kind = Node::Kind::loop;
  main.var = tail.var = l->var;
  main.step = l->width;
  main.extent = tail.extent = *extent;
  inside(&main.body, true);
  if (!whole_steps(*extent, l->width)) {
    tail.kind = Node::Kind::if_less;
    inside(&tail.body, false);
  }
  Emitter::finish(*l, 1, main);
  e_.append(std::move(main));
  if (!tail.body.empty()) e_.append(std::move(tail));
}

// The operand of a sum of products that comes from memory, as a prefetch in the scope `s` tells, and that few rows of
// the other factor use; -1: none. Their instructions take it from memory, each anew: loads that share a register run so
// far ahead that they take the places of the prefetches among the lines that are on their way.
int Lowering::waits_for_memory(const Stmt& s) const {
  constexpr int64_t kFewRows = 4;
  int found = -1;
  for (const Stmt& p : s.body) {
    if (!is_prefetch(p) || p.distance == 0) continue;
    int64_t rows = 1;
    const Expr* read = nullptr;
    ir::for_each_stmt(s.body, [&](const Stmt& c) {
      if (c.kind != Stmt::Kind::assign || c.op != ir::AssignOp::add || c.value->op != Op::k_mul) return;
      for (const Expr& factor : c.value->args) {
        if (factor->op == Op::k_load && factor->name == p.target) read = &factor;
      }
    });
    if (read == nullptr) continue;
    ir::for_each_stmt(s.body, [&](const Stmt& c) {
      if (c.kind == Stmt::Kind::scope && !ir::uses(*read, c.iter))
        rows *= ir::is_const_int(c.extent) ? c.extent->ival : kFewRows + 1;
    });
    if (rows > 1 && rows <= kFewRows) found = slot_of(p.target);
  }
  return found;
}

void Lowering::prefetches(const Stmt& scope) {
  for (const Stmt& c : scope.body) {
    if (is_prefetch(c) && c.distance != 0) prefetch(c, scope);
  }
}

// Pointers of the scope's prefetches that follow the call, not what the scope reads.
std::pmr::vector<Lowering::PrefetchStream> Lowering::open_streams(const Stmt& scope) {
  std::pmr::vector<PrefetchStream> out(memory_);
  for (const Stmt& c : scope.body) {
    if (!is_prefetch(c) || c.distance != 0) continue;
    if (streams_ >= ir::kMaxLeafStreams) {
      fail(ir::unsupported("more than {} prefetch streams", ir::kMaxLeafStreams));
      break;
    }
    PtrInit init;
    init.stream = streams_++;
    out.push_back({e_.new_ptr(init), init.stream, c.lines, c.cache});
  }
  return out;
}

void Lowering::step_stream(const PrefetchStream& stream) {
  Node next(memory_);
  next.kind = Node::Kind::add_stream;
  next.from = stream.number;
  next.steps.push_back({stream.ptr, 0, {}});
  e_.append(std::move(next));
}

// Lines of the operand ahead of what the scope's first statement reads of it at this step.
void Lowering::prefetch(const Stmt& p, const Stmt& scope) {
  const Expr* read = nullptr;
  Environment env = env_;
  ir::for_each_stmt(scope.body, [&](const Stmt& s) {
    if (read != nullptr) return;
    if (s.kind == Stmt::Kind::scope) env.push_back({s.iter, Binding::Kind::number, 0, 1, nullptr});
    if (s.kind != Stmt::Kind::assign) return;
    const auto find = [&](const Expr& e, const auto& self) -> void {
      if (e->op == Op::k_load && e->name == p.target && read == nullptr) read = &e;
      for (const Expr& a : e->args) self(a, self);
    };
    find(s.value, find);
  });
  const int slot = slot_of(p.target);
  if (read == nullptr || slot < 0) {
    fail(ir::unsupported("prefetch of {}: scope {} does not read it", p.target, scope.iter));
    return;
  }
  const std::optional<Access> at = access(leaf_.buffers[static_cast<size_t>(slot)], slot, (*read)->args, env);
  if (!at) {
    fail(ir::unsupported("prefetch of {}: an index that is not affine", p.target));
    return;
  }
  ahead_.push_back(slot);
  for (int line = 0; line < p.lines; ++line) e_.prefetch(*at, p.distance + 64 * line, p.cache);
}

void Lowering::guarded(const std::vector<LaneBound>& bounds, size_t at, int64_t lane, const Body& list,
                       const std::function<void()>& inside) {
  while (at < bounds.size() && bounds[at].holds(lane)) ++at;
  if (at == bounds.size()) return inside();
  const LaneBound& b = bounds[at];
  Node n(memory_);
  n.kind = Node::Kind::if_less;
  n.extent = {b.extent.arg, b.extent.add - lane};
  if (b.loop != nullptr) {
    n.var = b.loop->var;
  } else {
    Node zero(memory_);
    zero.kind = Node::Kind::set_var;
    zero.var = n.var = e_.new_var();
    e_.append(std::move(zero));
  }
  const auto before = open_block(list);
  e_.push_frame(&n.body);
  guarded(bounds, at + 1, lane, list, inside);
  close_block(before);
  e_.pop_frame();
  e_.append(std::move(n));
}

void Lowering::unrolled(const Stmt& s) {
  if (s.iter == part_iter_) {  // its copies are one
    env_.push_back({s.iter, Binding::Kind::number, 0, s.extent->ival, nullptr});
    body(s.body);
    return env_.pop_back();
  }
  const bool tiled = s.extent->op == Op::k_ceildiv && !constant_value(s.extent, env_);
  int64_t width = 1;
  std::optional<VectorExtent> extent;
  if (tiled) width = constant_value(s.extent->args[1], env_).value_or(0);
  if (width > 0) extent = vector_extent(tiled ? s.extent->args[0] : s.extent, env_, leaf_);
  if (!extent || extent->max < 0 || extent->max / width > 64) {
    fail(ir::unsupported("scope {}: extent {} cannot be unrolled", s.iter, ir::print(s.extent)));
    return;
  }
  const bool masked = std::all_of(s.body.begin(), s.body.end(), [](const Stmt& c) {
    return c.kind == Stmt::Kind::scope && c.mark == Mark::vector && !ir::is_const_int(c.extent);
  });
  // Copies of copies are copies of the outermost scope where all is straight code.
  std::pmr::vector<size_t> own(memory_);
  std::pmr::vector<size_t>* const outer = std::exchange(copies_, nullptr);
  std::pmr::vector<size_t>& begins = outer != nullptr ? *outer : own;
  const auto first = std::find_if(s.body.begin(), s.body.end(), [](const Stmt& c) { return !is_prefetch(c); });
  const bool holds_copies = first != s.body.end() && first + 1 == s.body.end() && first->kind == Stmt::Kind::scope &&
                            first->mark == Mark::unroll;
  const int first_register = e_.program().num_vregs;
  const bool groups = sums_bytes(s.body),
             turns = groups && outer == nullptr && !comes_ahead(s.body) && e_.await_groups();
  const int anew = waits_for_memory(s);
  for (int64_t i = 0; i * width < extent->max && e_.ok(); ++i) {
    const bool plain = masked || extent->bounds.empty();
    if (plain && holds_copies) {
      copies_ = &begins;
    } else {
      begins.push_back(e_.mark().node);
    }
    const auto copy = [&] {
      // Among many accumulators an epilogue reads its vectors again for every row rather than keep
      // them.
      if (after_mma_ && static_cast<int>(cells_.size()) + kEpilogueRegisters > e_.program().vector_registers)
        e_.forget_values();
      if (groups) read_again();
      env_.push_back({s.iter, Binding::Kind::number, i, extent->max, nullptr});
      prefetches(s);
      if (anew >= 0) anew_ = anew;
      body(s.body);
      if (anew >= 0) anew_ = -1;
      env_.pop_back();
    };
    if (plain) {
      copy();
    } else {
      guarded(extent->bounds, 0, i * width, s.body, copy);
    }
  }
  copies_ = nullptr;
  if (outer != nullptr || (!turns && (begins.size() < 2 || reads_what_it_writes(s.body)))) return;
  std::vector<int> kept, held;
  for (const auto& [key, cell] : cells_) (cell.reg >= first_register ? kept : held).push_back(cell.reg);
  for (const Reduction& r : reductions_) {
    for (const Reduction::Target& t : r.targets) {
      for (const auto& [copy, reg] : t.partials) held.push_back(reg);
    }
  }
  if (!turns) return e_.interleave(begins, kept, held);
  if (reads_what_it_writes(s.body)) begins.resize(std::min<size_t>(begins.size(), 1));
  e_.interleave_groups(begins, kept, held);
}

// Whether a buffer in memory is both read and written.
bool Lowering::reads_what_it_writes(const Body& list) const {
  constexpr uint8_t kRead = 1, kWritten = 2;
  std::pmr::vector<uint8_t> seen(leaf_.buffers.size(), memory_);
  bool both = false;
  const auto note = [&](const std::string& name, uint8_t how) {
    const int slot = slot_of(name);
    if (slot < 0 || leaf_.buffers[slot].place == ir::Place::reg) return;
    seen[slot] |= how;
    both |= seen[slot] == (kRead | kWritten);
  };
  ir::for_each_stmt(list, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::assign) return;
    note(s.target, s.op == ir::AssignOp::set ? kWritten : kRead | kWritten);
    ir::for_each_node(s.value, [&](const ir::ExprNode& n) {
      if (n.op == Op::k_load) note(n.name, kRead);
    });
  });
  return both;
}

// The mask of lanes base .. base + lanes - 1, -1 if all are on; signature tells masks apart.
int Lowering::lane_mask(const VectorExtent& extent, int64_t base, std::string* signature) {
  int mask = -1;
  if (base + lanes_ > extent.max) {
    mask = e_.mask_tail({Extent::kConst, extent.max}, nullptr, base);
    *signature += fmt::format("{}:", extent.max);
  }
  for (const LaneBound& b : extent.bounds) {
    if (b.holds(base + lanes_ - 1)) continue;
    mask = e_.mask_and(mask, e_.mask_tail(b.extent, b.loop, base));
    *signature += fmt::format("{},{},{}:", b.extent.arg, b.extent.add, b.loop == nullptr ? 0 : b.loop->id);
  }
  if (mask >= 0) *signature += fmt::format("{}", base);
  return mask;
}

void Lowering::vector_scope(const Stmt& s) {
  const std::optional<VectorExtent> extent = vector_extent(s.extent, env_, leaf_);
  if (lane_ || !extent || extent->max < 0 || extent->max > 64 * lanes_) {
    fail(ir::unsupported("scope {}: extent {} of a vector scope", s.iter, ir::print(s.extent)));
    return;
  }
  // A scope of one lane is its only element: nothing tells what it writes from one element of all lanes, as its
  // iterator is 0 everywhere.
  if (extent->max == 1 || (part_iter_.empty() && !lanes_are_regular(s))) return lane_by_lane(s, *extent);
  running_.clear();
  for (std::string& buffer : ir::running_sums(leaf_, s)) running_.push_back({std::move(buffer), -1});
  for (int64_t base = 0; base < extent->max && e_.ok(); base += lanes_) {
    Lane lane{s.iter, -1, {}};
    lane.mask = lane_mask(*extent, base, &lane.signature);
    lane_ = std::move(lane);
    env_.push_back({s.iter, Binding::Kind::lane, base, std::min<int64_t>(lanes_, extent->max - base), nullptr});
    body(s.body);
    env_.pop_back();
    lane_.reset();
  }
  running_.clear();
}

// One lane, or accesses with other strides than 0 and 1: each lane as a scalar.
void Lowering::lane_by_lane(const Stmt& s, const VectorExtent& extent) {
  for (int64_t lane = 0; lane < extent.max && e_.ok(); ++lane) {
    guarded(extent.bounds, 0, lane, s.body, [&] {
      env_.push_back({s.iter, Binding::Kind::number, lane, extent.max, nullptr});
      body(s.body);
      env_.pop_back();
    });
  }
}

}  // namespace lathe::jit
