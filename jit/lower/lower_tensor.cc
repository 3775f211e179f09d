// Tensor scopes. mma: the segment loop of a batch-reduce tile, K unrolled by four. transpose:
// squares of lanes x lanes through registers.
//
// Loops around a sum are over tiles: A and B are pointers that move with them, and the sum knows no loop but its own.
//
//   segments: a = A + a_off, b = B + b_off
//     loop k = 0; k + 4 <= seglen; k += 4 { step 0..3, a share of the prefetches with each }
//     loop k; k + 1 <= seglen; k += 1     { step 0 }
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "jit/lower/lowering.h"

namespace lathe::jit {

using ir::Expr;
using ir::Op;
using ir::Stmt;

namespace {

constexpr int kUnroll = 4;

bool steps_along(const Stmt& copy, const std::string& iter) {
  const auto used = [&](const std::vector<Expr>& index) {
    return std::any_of(index.begin(), index.end(), [&](const Expr& e) { return ir::uses(e, iter); });
  };
  return used(copy.index) || used(copy.value->args);
}

const Stmt* only_assign(const std::vector<Stmt>& body) {
  const Stmt* found = nullptr;
  ir::for_each_stmt(body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::assign) found = &s;
  });
  return found;
}

// Two elements of two bytes as one.
Access as_pair(Access a) {
  a.element = 4;
  a.type = MemType::b32;
  return a;
}

}  // namespace

int Emitter::moved_ptr(const Access& at) {
  int ptr = base_ptr(at.slot);
  for (LoopContext* loop : loops_) {
    if (const Linear* stride = at.loops.find(loop)) ptr = bumped(loop, ptr, *stride);
  }
  return ptr;
}

// The operand's pointer as it is moved by the loops around the sum `s`, which reads it by `load`.
int Lowering::pointer_in_loops(const Stmt& s, const Expr& load) {
  if (!in_loop()) return e_.base_ptr(slot_of(load->name));
  Environment inside = env_;
  inside.push_back({s.iter, Binding::Kind::number, 0, 1, nullptr});
  ir::for_each_stmt(s.body, [&](const Stmt& c) {
    const auto kind = c.mark == ir::Mark::vector ? Binding::Kind::lane : Binding::Kind::number;
    if (c.kind == Stmt::Kind::scope) inside.push_back({c.iter, kind, 0, lanes_, nullptr});
  });
  const int slot = slot_of(load->name);
  const std::optional<Access> at = access(leaf_.buffers[static_cast<size_t>(slot)], slot, load->args, inside);
  if (at) return e_.moved_ptr(*at);
  fail(ir::unsupported("scope {}: an index of {} that is not affine", s.iter, load->name));
  return e_.base_ptr(slot);
}

bool Lowering::in_loop() const {
  return std::any_of(env_.begin(), env_.end(), [](const Binding& b) { return b.loop != nullptr; });
}

void Lowering::mma(const Stmt& s) {
  const Stmt* update = only_assign(s.body);
  const auto operand = [&](size_t number) {
    const Expr& load = ir::unwidened(update->value->args[number]);
    return load->op == Op::k_load ? slot_of(load->name) : -1;
  };
  const bool product = update != nullptr && update->op == ir::AssignOp::add && update->value->op == Op::k_mul;
  const int a = product ? operand(0) : -1, b = product ? operand(1) : -1;
  const std::optional<Extent> extent = plain_extent(s.extent, env_);
  if (a < 0 || b < 0 || a == b || leaf_.buffers[a].place == ir::Place::reg ||
      leaf_.buffers[b].place == ir::Place::reg) {
    fail(ir::unsupported("scope {}: not a sum of products of two operands", s.iter));
    return;
  }
  if (!extent || extent->arg != Extent::kSegLen || extent->add != 0 || lane_) {
    fail(ir::unsupported("scope {}: extent {}, expected seglen", s.iter, ir::print(s.extent)));
    return;
  }
  const int sums = slot_of(update->target);
  if (in_loop() && tiles_ == nullptr && (sums < 0 || leaf_.buffers[sums].place != ir::Place::reg)) {
    fail(ir::unsupported("scope {}: sums in memory, in a loop", s.iter));
    return;
  }
  const auto before = open_block(s.body);
  e_.forget_values();
  after_mma_ = false;                                                // of a tile before this one
  const std::pmr::vector<PrefetchStream> streams = open_streams(s);  // lines of kUnroll steps
  Node segments(memory_);
  segments.kind = Node::Kind::segments;
  segments.seg_base_a = pointer_in_loops(s, ir::unwidened(update->value->args[0]));
  segments.seg_base_b = pointer_in_loops(s, ir::unwidened(update->value->args[1]));
  const Environment around = env_;
  for (Binding& b : env_) {
    if (b.kind == Binding::Kind::loop) b = {b.iter, Binding::Kind::number, b.value, 1, nullptr};
  }
  segments.seg_ptr_a = e_.new_ptr();
  segments.seg_ptr_b = e_.new_ptr();
  e_.push_frame(&segments.body);
  e_.override_base(a, segments.seg_ptr_a, e_.level());
  e_.override_base(b, segments.seg_ptr_b, e_.level());

  LoopContext* l = e_.new_loop();
  l->var = e_.new_var();
  l->extent = *extent;
  l->by_pointer = true;
  Node main(memory_), rest(memory_);
  // Before operation number `at` of `of` in step k: lines of the streams.
  const auto fetch = [&](int k, int at, int of) {
    for (const auto& [ptr, number, lines, cache] : streams) {
      const int before_step = lines * k / kUnroll, of_step = lines * (k + 1) / kUnroll - before_step;
      for (int line = of_step * at / of; line < of_step * (at + 1) / of; ++line)
        e_.prefetch(ptr, 64 * (before_step + line), cache);
    }
  };
  // A tile's loads are many lines themselves, and would wait for all of a step's: these go between its operations.
  const bool spread = tiles_ != nullptr && !streams.empty();
  // Step 0 as instructions: the others are the same, further along A and B.
  std::pmr::vector<Inst> first(memory_);
  Emitter::Mark start{};
  const auto step = [&](int k, bool whole) {
    const bool moves = k == 0 || std::all_of(l->bumps.begin(), l->bumps.end(),
                                             [](const LoopContext::Bump& b) { return b.per_iteration.constant(); });
    if (!first.empty() && moves && e_.repeat(first, start, l->bumps, k)) return;
    const Emitter::Mark mark = e_.mark();
    env_.push_back({s.iter, Binding::Kind::loop, k, 0, l});
    for (const Stmt& c : s.body) {
      if (c.kind == Stmt::Kind::prefetch && c.distance != 0) prefetch(c, s);  // of the step's own row
    }
    if (tiles_ != nullptr) {
      tile_step([&](int at, int of) {
        if (spread && whole) fetch(k, at, of);
      });
    } else {
      body(s.body);
    }
    env_.pop_back();
    const bool in_place = std::equal(cells_.begin(), cells_.end(), before.begin(), before.end(),
                                     [](const auto& a, const auto& b) { return a.second.reg == b.second.reg; });
    if (k > 0 || !in_place || !first.empty() || spread) return;
    first = e_.since(mark);
    start = mark;
  };
  const auto steps = [&](Node& node, int count) {
    node.kind = Node::Kind::loop;
    node.var = l->var;
    node.step = count;
    node.extent = *extent;
    e_.push_frame(&node.body, first.size() + 16);
    e_.enter(l);
    for (int k = 0; k < count && e_.ok(); ++k) {
      const bool whole = count == kUnroll;
      if (whole && !spread) fetch(k, 0, 1);
      step(k, whole);
      if (k == 0) node.body.reserve(static_cast<size_t>(count) * (first.size() + 4));
    }
    if (count == kUnroll) {
      for (const PrefetchStream& stream : streams) step_stream(stream);
    }
    close_block(before);
    e_.leave();
    e_.pop_frame();
  };
  e_.set_tight(true);
  anew_ = waits_for_memory(s);
  steps(main, kUnroll);
  steps(rest, 1);
  anew_ = -1;
  e_.set_tight(false);
  rest.init = false;
  Emitter::finish(*l, kUnroll, main);
  Emitter::finish(*l, 1, rest);
  e_.append(std::move(main));
  e_.append(std::move(rest));
  e_.restore_base(a);
  e_.restore_base(b);
  e_.pop_frame();
  e_.append(std::move(segments));
  env_ = around;
  after_mma_ = true;
}

// d[.., c, r] = s[.., r, c] where c is adjacent in s and r in d.
void Lowering::transpose(const Stmt& s) {
  const Stmt* inner = s.body.size() == 1 && s.body[0].kind == Stmt::Kind::scope ? &s.body[0] : nullptr;
  const Stmt* copy = inner != nullptr && inner->body.size() == 1 ? &inner->body[0] : nullptr;
  if (copy == nullptr || copy->kind != Stmt::Kind::assign || copy->op != ir::AssignOp::set ||
      copy->value->op != Op::k_load) {
    fail(ir::unsupported("scope {}: not a transpose", s.iter));
    return;
  }
  if (ir::dtype_bytes(copy->value->type) > 4) {
    fail(ir::unsupported("scope {}: a transpose of {}", s.iter, ir::dtype_name(copy->value->type)));
    return;
  }
  // The side whose lanes are adjacent in the source is the column.
  const auto adjacent = [&](const std::string& lane, const std::string& other, const std::string& buffer,
                            const std::vector<Expr>& index) {
    Environment env = env_;
    env.push_back({other, Binding::Kind::number, 0, 1, nullptr});
    env.push_back({lane, Binding::Kind::lane, 0, lanes_, nullptr});
    const int slot = slot_of(buffer);
    if (slot < 0 || leaf_.buffers[slot].place == ir::Place::reg) return false;
    std::optional<Access> a = access(leaf_.buffers[slot], slot, index, env);
    if (a && pair_elements_) *a = as_pair(*a);
    return a && a->unit();
  };
  const auto fits = [&](const Stmt& row, const Stmt& col) {
    return adjacent(col.iter, row.iter, copy->value->name, copy->value->args) &&
           adjacent(row.iter, col.iter, copy->target, copy->index);
  };
  for (const bool outer_runs : {true, false}) {
    const Stmt &run = outer_runs ? s : *inner, &one = outer_runs ? *inner : s;
    if (steps_along(*copy, one.iter)) continue;
    if (!pair_elements_) return transpose_line(*copy, one, run);
    fail(ir::unsupported("scope {}: pairs of one row or column", s.iter));
    return;
  }
  const bool outer_rows = fits(s, *inner);
  if (!outer_rows && !fits(*inner, s)) {
    fail(ir::unsupported("scope {}: a transpose needs one unit stride on each side", s.iter));
    return;
  }
  const Stmt& row = outer_rows ? s : *inner;
  const Stmt& col = outer_rows ? *inner : s;
  const std::optional<VectorExtent> rows = vector_extent(row.extent, env_, leaf_),
                                    cols = vector_extent(col.extent, env_, leaf_);
  if (lane_ || !rows || !cols) {
    fail(ir::unsupported("scope {}: extents of a transpose", s.iter));
    return;
  }
  // A side without a bound becomes a loop over squares.
  for (const Stmt* side : {&row, &col}) {
    if ((side == &row ? rows : cols)->max >= 0) continue;
    const std::string block = side->iter + ".block";
    const Expr whole = Expr(lanes_) * ir::iter(block) + ir::iter(side->iter);
    Stmt tile = s;
    Stmt& bounded = side == &s ? tile : tile.body[0];
    bounded.extent = ir::min(Expr(lanes_), side->extent - Expr(lanes_) * ir::iter(block));
    for (Stmt& c : tile.body[0].body) {
      for (Expr& e : c.index) e = ir::substitute(e, {{side->iter, whole}});
      c.value = ir::substitute(c.value, {{side->iter, whole}});
    }
    Stmt outer = ir::make_scope(block, ir::ceildiv(side->extent, Expr(lanes_)), {std::move(tile)});
    return loop(outer);
  }
  if (pair_rows(*copy, row, col, *cols)) return;
  for (int64_t r = 0; r < rows->max && e_.ok(); r += lanes_) {
    for (int64_t c = 0; c < cols->max && e_.ok(); c += lanes_) {
      transpose_tile(*copy, row.iter, col.iter, *rows, *cols, r, c);
    }
  }
}

// A side of one element at most (or none: its iterator is in no index) leaves a copy along the other.
void Lowering::transpose_line(const Stmt& copy, const Stmt& one, const Stmt& run) {
  const std::string block = run.iter + ".block";
  const Expr whole = Expr(lanes_) * ir::iter(block) + ir::iter(run.iter);
  Stmt moved = copy;
  for (Expr& e : moved.index) e = ir::substitute(e, {{run.iter, whole}});
  moved.value = ir::substitute(moved.value, {{run.iter, whole}});
  const bool one_vector = ir::is_const_int(run.extent) && run.extent->ival <= lanes_;
  const Expr rest = ir::min(Expr(lanes_), run.extent - Expr(lanes_) * ir::iter(block));
  Stmt lanes = ir::make_scope(run.iter, one_vector ? run.extent : rest, {std::move(moved)});
  lanes.mark = ir::Mark::vector;
  const Expr count = one_vector ? Expr(1) : ir::ceildiv(run.extent, Expr(lanes_));
  Stmt blocks = ir::make_scope(block, count, {std::move(lanes)});
  made_.push_back(std::make_unique<Stmt>(ir::make_scope(one.iter, one.extent, {std::move(blocks)})));
  loop(*made_.back());
}

// Whether the target states a size that holds each square that has a row: what lies past the last row is nobody's, and
// gets the zeros that stand for it.
bool Lowering::has_room(const ir::Buffer& target, const Expr& index, const std::string& row, int64_t row0) {
  if (target.dims.empty() || !target.dims.back()) return false;
  const std::optional<int64_t> size = constant_value(target.dims.back(), {});
  env_.push_back({row, Binding::Kind::lane, row0, lanes_, nullptr});
  const std::optional<Affine> at = affine(index, env_);
  env_.pop_back();
  if (!size || *size % lanes_ != 0 || !at || at->lane != 1 || !at->symbols.empty() || at->constant % lanes_ != 0)
    return false;
  return std::all_of(at->loops.begin(), at->loops.end(), [&](const auto& step) { return step.second % lanes_ == 0; });
}

void Lowering::transpose_tile(const Stmt& copy, const std::string& row, const std::string& col,
                              const VectorExtent& rows, const VectorExtent& cols, int64_t row0, int64_t col0) {
  // One side of the copy: `lane` runs along a vector, `number` counts the vectors.
  struct Side {
    int slot;
    const std::vector<Expr>& index;
    PlainAccess plain;
  };
  const auto side_of = [&](const std::string& buffer, const std::vector<Expr>& index) {
    const int slot = slot_of(buffer);
    return Side{slot, index, plain_access(leaf_.buffers[static_cast<size_t>(slot)], slot, index, memory_)};
  };
  Side source = side_of(copy.value->name, copy.value->args), target = side_of(copy.target, copy.index);
  const auto at = [&](Side& side, const std::string& number, int64_t n, const std::string& lane, int64_t base) {
    env_.push_back({number, Binding::Kind::number, n, 1, nullptr});
    env_.push_back({lane, Binding::Kind::lane, base, lanes_, nullptr});
    const std::optional<Access> a =
        side.plain.plain ? side.plain.access(side.slot, env_)
                         : access(leaf_.buffers[static_cast<size_t>(side.slot)], side.slot, side.index, env_);
    env_.pop_back();
    env_.pop_back();
    const Access found = a.value_or(Access{});
    return pair_elements_ ? as_pair(found) : found;
  };
  const auto partial = [](const VectorExtent& side, int64_t n) {
    return std::any_of(side.bounds.begin(), side.bounds.end(), [&](const LaneBound& b) { return !b.holds(n); });
  };
  std::string unused;
  const int col_mask = lane_mask(cols, col0, &unused), row_mask = lane_mask(rows, row0, &unused);
  std::pmr::vector<int> v(memory_);
  v.reserve(static_cast<size_t>(lanes_));
  for (int64_t r = row0; r < row0 + lanes_; ++r) {
    if (r >= rows.max) {
      v.push_back(e_.constant(0.0f));
      continue;
    }
    const Access from = at(source, row, r, col, col0);
    if (!partial(rows, r)) {
      v.push_back(e_.load(from, col_mask));
      continue;
    }
    const int home = e_.home();
    e_.set_constant(home, 0, e_.level());
    guarded(rows.bounds, 0, r, {}, [&] { e_.load_into(home, from, col_mask); });
    v.push_back(home);
  }
  // Pairs of rows, pairs of pairs, then 128-bit blocks.
  const auto op = [&](LeafOp o, int x, int y, uint32_t imm = 0) { return e_.op(o, {x, y}, imm); };
  std::pmr::vector<int> t(v.size(), memory_);
  for (size_t g = 0; g < v.size(); g += 4) {
    const int a = op(LeafOp::k_unpack_lo32, v[g], v[g + 1]), b = op(LeafOp::k_unpack_hi32, v[g], v[g + 1]);
    const int c = op(LeafOp::k_unpack_lo32, v[g + 2], v[g + 3]), d = op(LeafOp::k_unpack_hi32, v[g + 2], v[g + 3]);
    t[g] = op(LeafOp::k_unpack_lo64, a, c);
    t[g + 1] = op(LeafOp::k_unpack_hi64, a, c);
    t[g + 2] = op(LeafOp::k_unpack_lo64, b, d);
    t[g + 3] = op(LeafOp::k_unpack_hi64, b, d);
  }
  // t[4*g + j], block k: column 4*k + j of rows 4*g .. 4*g + 3.
  std::pmr::vector<int> out(v.size(), memory_);
  for (int j = 0; j < 4; ++j) {
    if (lanes_ == 8) {
      out[j] = op(LeafOp::k_shuffle128, t[j], t[4 + j], 0x20);
      out[4 + j] = op(LeafOp::k_shuffle128, t[j], t[4 + j], 0x31);
      continue;
    }
    const int lo01 = op(LeafOp::k_shuffle128, t[j], t[4 + j], 0x44),
              lo23 = op(LeafOp::k_shuffle128, t[8 + j], t[12 + j], 0x44);
    const int hi01 = op(LeafOp::k_shuffle128, t[j], t[4 + j], 0xee),
              hi23 = op(LeafOp::k_shuffle128, t[8 + j], t[12 + j], 0xee);
    out[j] = op(LeafOp::k_shuffle128, lo01, lo23, 0x88);
    out[4 + j] = op(LeafOp::k_shuffle128, lo01, lo23, 0xdd);
    out[8 + j] = op(LeafOp::k_shuffle128, hi01, hi23, 0x88);
    out[12 + j] = op(LeafOp::k_shuffle128, hi01, hi23, 0xdd);
  }
  const ir::Buffer& into = leaf_.buffers[static_cast<size_t>(target.slot)];
  // Masks that are registers cost a store nothing; the branch that whole vectors need does.
  const bool room = e_.scarce_masks() && has_room(into, target.index.back(), row, row0);
  const auto store = [&] {
    for (int64_t c = col0; c < std::min<int64_t>(col0 + lanes_, cols.max) && e_.ok(); ++c) {
      const Access to = at(target, col, c, row, row0);
      guarded(cols.bounds, 0, c, {},
              [&] { e_.store(to, out[static_cast<size_t>(c - col0)], room ? -1 : row_mask, into.stream); });
    }
  };
  // A square of no rows at all may lie beyond the size.
  if (room && partial(rows, row0)) return guarded(rows.bounds, 0, row0, {}, store);
  store();
}

}  // namespace lathe::jit
