// Prefetches of a leaf: streams of its call. See leaf_builder.h.
#include <algorithm>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/analysis/dependence.h"
#include "search/cut/leaf_builder.h"
#include "search/moves/footprint.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kLine = 64, kStepsOfShare = 4;  // bytes; steps of a tensor scope that a stream's lines are for

}  // namespace

// The operand through which the statements of a loop read a buffer.
Result<int> LeafBuilder::operand_read_by(const Stmt& loop, const std::string& buffer) const {
  int found = -1;
  for_each_stmt(loop.body, [&](const Stmt& inner) {
    if (inner.kind != Stmt::Kind::assign) return;
    for_each_node(inner.value, [&](const ExprNode& n) {
      if (n.op != Op::k_load || n.name != buffer || found >= 0) return;
      const auto access = accesses_.find({&inner, &n.args});
      if (access != accesses_.end()) found = access->second.slot;
    });
  });
  if (found < 0) return unsupported("prefetch of {}: loop {} does not read it", buffer, loop.iter);
  return found;
}

// A prefetch statement of a loop that shares out the next block of what it reads: a stream of the call. The block after
// this one is a step of the loop from outside that the operand's innermost index follows.
Status LeafBuilder::add_share(const Stmt& s, int operand) {
  const LeafSlot& slot = slots_[static_cast<size_t>(operand)];
  const Buffer& b = kernel_.buffers[static_cast<size_t>(slot.buffer)];
  std::set<std::string> outside;
  size_t d = slot.outer.size();
  while (d > 0 && outside.empty()) {
    for_each_node(slot.outer[--d], [&](const ExprNode& n) {
      if (n.op == Op::k_iter) outside.insert(n.name);
    });
  }
  if (is_inside(s.iter) || outside.size() != 1 || outside.contains(s.iter))
    return unsupported("prefetch of {} next {}: blocks follow no loop around it", s.target, s.iter);
  const std::string& loop = *outside.begin();
  const Expr next = substitute(slot.outer[d], {{loop, iter(loop) + Expr(1)}});
  const Expr bytes = (next - slot.outer[d]) * physical_strides(b)[d] * Expr(dtype_bytes(b.type));
  if (building_streams_) streams_.push_back({operand, 0, s.iter, simplify(bytes, ranges_), s.lines});
  return {};
}

// Rows of bytes that lie together, `stride` bytes apart.
struct LeafBuilder::Block {
  int buffer = -1;
  Expr first;  // element
  Expr bytes, rows = Expr(1), stride = Expr(0);
};

// What the next iteration of a scope around the leaf reads of a buffer, if that follows the scope.
Result<LeafBuilder::Block> LeafBuilder::next_block(const std::string& buffer, size_t scope) const {
  const Stmt& around = *outer_[scope];
  const auto refuse = [&](const char* why) {
    return unsupported("prefetch of {} next {}: {}", buffer, around.iter, why);
  };
  Block out;
  while (kernel_.buffers[static_cast<size_t>(++out.buffer)].name != buffer) continue;
  const Buffer& b = kernel_.buffers[static_cast<size_t>(out.buffer)];
  const int64_t element = dtype_bytes(b.type);
  if (element == 0 || !b.layout.empty()) return refuse("it does not lie as its dimensions say");
  const ScopePath path(outer_.begin(), outer_.begin() + static_cast<ptrdiff_t>(scope) + 1);
  const std::vector<Access> accesses = collect_accesses(around.body, path, &buffer);
  std::vector<const Access*> reads;
  for (const Access& a : accesses) {
    if (!a.write) reads.push_back(&a);
  }
  Ranges ranges(kernel_);
  for (const Stmt* s : path) ranges.enter(*s);
  const std::vector<DimRange> box = footprint(kernel_, reads, path.size(), ranges);
  const std::vector<Expr> strides = physical_strides(b);
  out.first = Expr(0);
  out.bytes = Expr(element);
  bool follows = false;
  for (size_t d = box.size(); d-- > 0;) {
    follows |= uses(box[d].base, around.iter);
    out.first = out.first + substitute(box[d].base, {{around.iter, iter(around.iter) + Expr(1)}}) * strides[d];
    const Expr extent = most(box[d].extent, ranges);
    if (!extent) return refuse("of unknown size");
    if (is_const_int(extent, 1)) continue;
    const Expr stride = simplify(strides[d] * Expr(element), ranges);
    if (is_const_int(out.rows, 1) && equal(stride, out.bytes)) {
      out.bytes = simplify(out.bytes * extent, ranges);
    } else if (is_const_int(out.rows, 1)) {
      out.rows = extent;
      out.stride = stride;
    } else {
      return refuse("more than rows");
    }
  }
  if (!follows) return refuse("what is read does not follow it");
  return out;
}

// An extent, or the most that it is where it is not the same in all iterations; null: unknown.
Expr LeafBuilder::most(const Expr& extent, const Ranges& ranges) {
  bool varies = false;
  for_each_node(extent, [&](const ExprNode& n) { varies |= n.op == Op::k_iter || n.op == Op::k_load; });
  const int64_t hi = interval(extent, ranges).hi;
  return !varies ? extent : hi < INT64_MAX ? Expr(hi) : Expr();
}

// Calls in an iteration of the scope `around` whose tensor scopes stand before this one and prefetch the same, so that
// they have shares of it before those of this one; null: unknown.
Expr LeafBuilder::shares_before(const Stmt& s, const std::string& tensor, const Stmt& around) const {
  Expr before(0);
  bool found = false;
  Ranges ranges = ranges_;
  const auto is_same = [&](const Stmt& c) {
    return c.kind == Stmt::Kind::prefetch && c.target == s.target && c.iter == s.iter;
  };
  const auto count = [&](auto&& self, const std::vector<Stmt>& body, const Expr& calls) -> void {
    for (const Stmt& c : body) {
      if (c.kind != Stmt::Kind::scope || found) continue;
      if (c.mark == Mark::tensor) {
        found = c.iter == tensor;
        if (found || std::none_of(c.body.begin(), c.body.end(), is_same)) continue;
        before = before && calls ? simplify(before + calls) : Expr();
        continue;
      }
      const Expr extent = most(c.extent, ranges);
      const Expr inside = calls && extent ? simplify(calls * extent) : Expr();
      inside_scope(ranges, c, [&](const Ranges&) {
        self(self, c.body, inside);
        return 0;
      });
    }
  };
  count(count, around.body, Expr(1));
  return before;
}

// A prefetch statement that shares out, among the calls in an iteration of a scope, what its next iteration reads. Each
// call has so many turns of its lines: pieces of rows, of as many bytes one after another, or each of a row of its own
// where the piece is as wide as that. `tensor`: the tensor scope that it stands in, if any.
Status LeafBuilder::add_block(const Stmt& s, const Expr& turns, size_t scope, const std::string& tensor) {
  LATHE_ASSIGN(const Block block, next_block(s.target, scope));
  Expr number(0);
  for (size_t i = scope + 1; i < outer_.size(); ++i) {
    const Expr extent = most(outer_[i]->extent, ranges_);
    if (!extent) return unsupported("prefetch of {}: as many shares as {}", s.target, print_extent(*outer_[i]));
    number = number * extent + iter(outer_[i]->iter);
  }
  const Expr before = tensor.empty() ? Expr(0) : shares_before(s, tensor, *outer_[scope]);
  if (!before) return unsupported("prefetch of {}: as many shares as calls before {}", s.target, tensor);
  number = number + before;
  if (!turns) return unsupported("prefetch of {}: an unknown number of steps", s.target);
  // There may be no turn and nothing to read: a share is by numbers that are positive all the same.
  const auto some = [&](const Expr& e) {
    const Expr simple = simplify(e, ranges_);
    return proves_le(Expr(1), simple, ranges_) ? simple : max(simple, Expr(1));
  };
  const Expr piece = Expr(kLine * std::max(s.lines, 1)), along = some(turns * piece);
  const bool one_row = is_const_int(block.rows, 1);
  const bool whole = is_const_int(block.bytes) && is_const_int(along) && block.bytes->ival % along->ival == 0;
  const Expr pieces = some(ceildiv(block.bytes, one_row || whole ? along : piece));
  Expr row = floordiv(number, pieces), bytes = mod(number, pieces), step = piece;
  if (one_row) {
    bytes = min(number, pieces - Expr(1)) * along;
  } else if (whole) {
    row = min(row, block.rows - Expr(1));
    bytes = bytes * along;
  } else {
    row = min(row * turns, max(block.rows - turns, Expr(0)));
    bytes = bytes * piece;
    step = block.stride;
  }
  const Buffer& b = kernel_.buffers[static_cast<size_t>(block.buffer)];
  const int64_t element = dtype_bytes(b.type);
  const auto elements = [&](const Expr& e) { return floordiv(e, Expr(element)); };
  NestStream stream;
  stream.lines = s.lines;
  stream.share.buffer = block.buffer;
  stream.share.type = b.type;
  Expr at = simplify(elements(bytes), ranges_);
  if (!one_row) at = at + row * simplify(elements(block.stride), ranges_);
  stream.share.offset = simplify(block.first + at, ranges_);
  stream.share_step = step;
  streams_.push_back(std::move(stream));
  return {};
}

// A prefetch statement of a loop: of what the next iteration of a scope around the leaf reads, a turn in each iteration
// of the loop and of those around it; or of what the loop reads.
Status LeafBuilder::add_loop_stream(const Stmt& s, Stmt& leaf) {
  leaf.iter.clear();
  leaf.target = "p0";
  const auto is_loop = [](const Stmt* l) { return l->mark == Mark::none; };
  const bool loops = std::all_of(around_.begin(), around_.end(), is_loop);
  for (size_t i = 0; i < outer_.size() && !s.iter.empty() && loops; ++i) {
    if (outer_[i]->iter != s.iter || !next_block(s.target, i).ok()) continue;
    Expr turns(1);
    for (const Stmt* l : around_) {
      const Expr extent = most(l->extent, ranges_);
      turns = turns && extent ? simplify(turns * extent, ranges_) : Expr();
    }
    return building_streams_ ? add_block(s, turns, i, "") : Status();
  }
  LATHE_ASSIGN(const int operand, operand_read_by(*around_.back(), s.target));
  leaf.target = fmt::format("p{}", operand);
  return s.iter.empty() ? Status() : add_share(s, operand);
}

// A prefetch statement of a tensor scope. One that follows rows keeps its distance; any other is a stream of the call:
// which operand, and how many bytes one call reads of it.
Status LeafBuilder::add_stream(const Stmt& s, const Stmt& tensor, const Ranges& ranges, Stmt& leaf) {
  for (size_t i = 0; i < outer_.size() && !s.iter.empty(); ++i) {
    if (outer_[i]->iter != s.iter || !next_block(s.target, i).ok()) continue;
    leaf.target = "p0";
    leaf.iter.clear();
    const Expr steps = most(tensor.extent, ranges_);
    const Expr turns = steps ? simplify(ceildiv(steps, Expr(kStepsOfShare)), ranges_) : steps;
    return building_streams_ ? add_block(s, turns, i, tensor.iter) : Status();
  }
  const Expr step = step_bytes(s.target, tensor, ranges);
  int found = -1;
  for (size_t i = 0; i < slots_.size() && step; ++i) {
    if (kernel_.buffers[slots_[i].buffer].name == s.target) found = static_cast<int>(i);
  }
  if (found < 0) return unsupported("prefetch of {}: the tensor scope does not read it", s.target);
  leaf.target = fmt::format("p{}", found);
  leaf.iter.clear();
  if (follows_rows(s, tensor, ranges)) return {};
  leaf.distance = 0;
  if (building_streams_) {
    streams_.push_back({found, s.distance, s.iter, simplify(tensor.extent * step, ranges_), s.lines});
  }
  return {};
}

}  // namespace lathe::search
