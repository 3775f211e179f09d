// See nest_bind.h. The tree is copied depth first; loops of no trips are dropped, loops of one trip
// dissolve into their parent.
#include "runtime/walk/nest_bind.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "runtime/walk/nest_form.h"
#include "runtime/walk/x86/cpu.h"

namespace lathe::runtime {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kMaxScratch = int64_t{1} << 46;

int64_t round_up(int64_t v, int64_t to) { return (v + to - 1) / to * to; }
int64_t saturating_mul(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

// Adds what the argument layouts say of stride symbols, and checks the rest.
ir::Status complete_symbols(const ir::Kernel& kernel, const std::vector<ArgLayout>& args, SymbolValues* values) {
  size_t arg = 0;
  for (const ir::Buffer& b : kernel.buffers) {
    if (!ir::is_param(b.place)) continue;
    const size_t number = arg++;
    if (number >= args.size() || args[number].strides.empty() || b.strides.empty()) continue;
    const std::vector<int64_t>& strides = args[number].strides;
    if (strides.size() != b.strides.size()) {
      return ir::invalid("{} strides, expected {}", strides.size(), b.strides.size())
          .with_arg(b.name, static_cast<int>(number));
    }
    for (size_t d = 0; d < strides.size(); ++d) {
      const ir::Expr& e = b.strides[d];
      if (!e) continue;
      if (e->op == ir::Op::k_symbol && values->find(e->name) == values->end())
        values->emplace_back(e->name, strides[d]);
      const int64_t expected = ir::evaluate(e, *values).value_or(strides[d]);
      if (expected != strides[d]) {
        return ir::invalid("stride {} of dimension {}, expected {}", strides[d], d, expected)
            .with_arg(b.name, static_cast<int>(number));
      }
    }
  }
  for (const ir::Symbol& s : kernel.symbols) {
    const auto it = values->find(s.name);
    if (it == values->end()) return ir::invalid("no value for symbol {}", s.name);
    const int64_t v = it->second;
    if (v < s.min || v > s.max || (s.multiple_of > 1 && v % s.multiple_of != 0)) {
      return ir::invalid("{} = {}, expected {}..{} in steps of {}", s.name, v, s.min, s.max, s.multiple_of);
    }
  }
  return {};
}

class Binder {
 public:
  Binder(const ir::CutKernel& cut, const SymbolValues& symbols, int threads, BoundNest* out)
      : nest_(cut.nest),
        kernel_(cut.kernel),
        leaves_(cut.leaves),
        symbols_(symbols),
        out_(out),
        forms_(symbols, out),
        threads_(threads) {
    out->num_leaves = static_cast<uint32_t>(cut.leaves.size());
  }

  ir::Status run() {
    out_->num_params = nest_.num_params;
    if (nest_.num_params < 0 || nest_.num_params + nest_.scratch.size() > kMaxNestBuffers) {
      return ir::unsupported("a nest of {} buffers, at most {}", nest_.num_params + nest_.scratch.size(),
                             kMaxNestBuffers);
    }
    LATHE_RETURN_IF_ERROR(inputs());
    for (const ir::NestNode& n : nest_.phases) LATHE_RETURN_IF_ERROR(phase(n));
    LATHE_RETURN_IF_ERROR(scratch());
    out_->vzeroupper = has_upper_halves();
    out_->direct = direct_call(*out_, leaves_);
    return {};
  }

 private:
  // What the nest may read of the arguments.
  ir::Status inputs() {
    int argument = 0;
    for (const ir::Buffer& b : kernel_.buffers) {
      if (!ir::is_param(b.place)) continue;
      const int number = argument++;
      if (!b.values) continue;
      const std::optional<int64_t> lo = ir::evaluate(b.values.lo, symbols_), hi = ir::evaluate(b.values.hi, symbols_);
      if (!lo || !hi) return ir::invalid("a range of values without numbers").with_arg(b.name, number);
      LATHE_ASSIGN(const int64_t elements, elements_of(b));
      forms_.add_input(b.name, number, b.type, elements, {*lo, *hi});
    }
    return {};
  }
  // Up to the last one, where they lie.
  ir::Result<int64_t> elements_of(const ir::Buffer& b) {
    int64_t last = 0, step = 1;
    for (size_t d = b.dims.size(); d-- > 0;) {
      LATHE_ASSIGN(const int64_t size, forms_.constant(b.dims[d]));
      if (size <= 0) return 0;
      if (!b.strides.empty() && b.strides[d]) {
        LATHE_ASSIGN(step, forms_.constant(b.strides[d]));
      }
      if (__builtin_add_overflow(last, saturating_mul(size - 1, step), &last)) return INT64_MAX;
      step = saturating_mul(step, size);
    }
    return last + 1;
  }

  ir::Status phase(const ir::NestNode& node) {
    BoundPhase p;
    std::vector<BoundNode> roots;
    trips_ = 1;
    LATHE_RETURN_IF_ERROR(add(node, 0, &roots));
    p.locals = forms_.take_locals();
    if (roots.empty()) return {};
    p.first_node = static_cast<uint32_t>(out_->nodes.size());
    p.num_nodes = static_cast<uint32_t>(roots.size());
    out_->nodes.insert(out_->nodes.end(), roots.begin(), roots.end());
    int64_t total = 1;
    for (BoundNode* n = roots.size() == 1 ? &out_->nodes[p.first_node] : nullptr; n != nullptr;) {
      if (!n->loop || !parallel_[n->level] || p.parallel_loops == kMaxParallelLoops) break;
      ++p.parallel_loops;
      total = saturating_mul(total, n->most);
      if (total == INT64_MAX) return ir::invalid("a parallel space of this shape exceeds 63 bits");
      n = n->num_children == 1 ? &out_->nodes[n->first_child] : nullptr;
    }
    if (p.parallel_loops > 0) p.parts = static_cast<int>(std::min<int64_t>(threads_, total));
    evenness(p);
    out_->threads = std::max(out_->threads, p.parts);
    out_->phases.push_back(p);
    return {};
  }

  // Of parallel loops around others: whether those run equally often each time.
  void evenness(const BoundPhase& p) {
    std::vector<BoundNode*> loops;
    uint64_t followed = 0;  // by extents further inside
    for (uint32_t at = p.first_node; std::ssize(loops) < p.parallel_loops; at = loops.back()->first_child)
      loops.push_back(&out_->nodes[at]);
    for (; !loops.empty(); loops.pop_back()) {
      loops.back()->even = (followed >> loops.back()->level & 1) == 0;
      followed |= loops.back()->extent.levels | loops.back()->size.levels;
    }
  }

  // Appends what `node` becomes to *siblings. Children are stored before their parents.
  ir::Status add(const ir::NestNode& node, int level, std::vector<BoundNode>* siblings) {
    if (node.kind == ir::NestNode::Kind::call) return add_call(node.call, siblings);
    LATHE_ASSIGN(const FormBuilder::Built extent, forms_.build(node.extent));
    if (extent.range.hi <= 0) return {};
    BoundNode loop;
    const bool varies = node.parallel && extent.range.lo != extent.range.hi;
    if (varies && node.extent->op == ir::Op::k_ceildiv && ir::is_const_int(node.extent->args[1])) {
      LATHE_ASSIGN(const FormBuilder::Built size, forms_.build(node.extent->args[0]));
      loop.unit = node.extent->args[1]->ival;
      loop.size = size.form;
    }
    const bool once = extent.range.lo == 1 && extent.range.hi == 1;
    if (!once && level >= kMaxNestDepth) return ir::unsupported("a nest of more than {} loops", kMaxNestDepth);
    const int64_t outer_trips = trips_;
    trips_ = saturating_mul(trips_, extent.range.hi);
    loops_.push_back({&node, once ? -1 : level, extent.range.hi, extent.range.lo != extent.range.hi});
    forms_.push_loop(node.iter, once ? -1 : level, extent.range.hi);
    if (once) {
      for (const ir::NestNode& c : node.body) LATHE_RETURN_IF_ERROR(add(c, level, siblings));
    } else {
      LATHE_RETURN_IF_ERROR(add_loop(node, level, extent, loop, siblings));
    }
    forms_.pop_loop();
    loops_.pop_back();
    trips_ = outer_trips;
    return {};
  }

  // n has what its extent alone says.
  ir::Status add_loop(const ir::NestNode& node, int level, const FormBuilder::Built& extent, BoundNode n,
                      std::vector<BoundNode>* siblings) {
    n.loop = true;
    n.level = static_cast<uint8_t>(level);
    n.extent = extent.form;
    n.most = extent.range.hi;
    const int outer_innermost = innermost_;
    innermost_ = level;
    std::vector<BoundNode> children;
    for (const ir::NestNode& c : node.body) LATHE_RETURN_IF_ERROR(add(c, level + 1, &children));
    innermost_ = outer_innermost;
    n.locals = forms_.take_locals();
    if (children.empty()) return {};
    n.inner = children.size() <= kMaxInnerCalls &&
              std::none_of(children.begin(), children.end(), [](const BoundNode& c) { return c.loop; });
    n.first_child = static_cast<uint32_t>(out_->nodes.size());
    n.num_children = static_cast<uint32_t>(children.size());
    out_->nodes.insert(out_->nodes.end(), children.begin(), children.end());
    parallel_[level] = node.parallel;
    siblings->push_back(n);
    return {};
  }

  // A value that may change from call to call. Constants go to *constant and true is returned.
  ir::Result<bool> value(const ir::Expr& e, DynamicValue v, int64_t* constant) {
    LATHE_ASSIGN(const FormBuilder::Built b, forms_.build(e));
    if (b.form.kind == Form::Kind::constant) {
      *constant = b.form.value;
      return true;
    }
    v.form = b.form;
    v.inner = innermost_ >= 0 && (b.form.levels >> innermost_ & 1) != 0;
    out_->values.push_back(v);
    return false;
  }

  ir::Status add_call(const ir::NestCall& call, std::vector<BoundNode>* siblings);
  ir::Status variants(const ir::NestCall& call, BoundCall* b, bool* never);
  ir::Result<BoundPointer> pointer(const ir::NestOperand& operand);
  ir::Status stream(const ir::NestCall& call, size_t number, BoundCall* b);
  ir::Status share(const ir::NestStream& stream, size_t number, BoundCall* b);
  ir::Status segments(const ir::NestCall& call, BoundCall* b);
  ir::Status scratch();

  struct OpenLoop {
    const ir::NestNode* node;
    int level;
    int64_t max_extent;
    bool varies;  // it may run less often
  };
  const ir::Nest& nest_;
  const ir::Kernel& kernel_;
  const std::vector<ir::Leaf>& leaves_;
  const SymbolValues& symbols_;
  BoundNest* out_;
  FormBuilder forms_;
  int threads_;
  int innermost_ = -1;  // level of the innermost open loop
  int64_t trips_ = 1;
  bool parallel_[kMaxNestDepth] = {};
  std::vector<OpenLoop> loops_;
};

ir::Status Binder::variants(const ir::NestCall& call, BoundCall* b, bool* never) {
  // All digits constant: one leaf. Else every digit is looked at in every call.
  bool all_constant = true;
  int64_t index = 0, leaves = 1;
  std::vector<FormBuilder::Built> digits;
  for (const ir::NestCall::Variant& v : call.variants) {
    LATHE_ASSIGN(const FormBuilder::Built d, forms_.build(v.extent));
    if (v.count < 1 || d.range.hi > v.count) {
      return ir::internal_error("a variant extent of up to {} for {} leaves", d.range.hi, v.count);
    }
    if (d.range.hi <= 0) *never = true;
    all_constant &= d.range.lo == d.range.hi;
    index = index * v.count + d.range.hi - 1;
    leaves *= v.count;
    digits.push_back(d);
  }
  if (leaves != static_cast<int64_t>(call.leaves.size())) {
    return ir::internal_error("a call of {} leaves, expected {}", call.leaves.size(), leaves);
  }
  for (int leaf : call.leaves) {
    if (leaf < 0 || leaf >= static_cast<int64_t>(out_->num_leaves)) return ir::internal_error("no leaf {}", leaf);
  }
  if (*never) return {};
  if (all_constant) {
    b->leaf = static_cast<uint32_t>(call.leaves[static_cast<size_t>(index)]);
    return {};
  }
  b->variants = true;
  b->leaf = static_cast<uint32_t>(out_->leaf_table.size());
  out_->leaf_table.insert(out_->leaf_table.end(), call.leaves.begin(), call.leaves.end());
  for (size_t i = 0; i < digits.size(); ++i) {
    DynamicValue v;
    v.use = DynamicValue::Use::variant;
    v.count = call.variants[i].count;
    v.form = digits[i].form;
    v.inner = innermost_ >= 0 && (v.form.levels >> innermost_ & 1) != 0;
    out_->values.push_back(v);
  }
  return {};
}

ir::Result<BoundPointer> Binder::pointer(const ir::NestOperand& operand) {
  BoundPointer p;
  if (operand.buffer < 0 || operand.buffer >= nest_.num_params + static_cast<int>(nest_.scratch.size())) {
    return ir::internal_error("no nest buffer {}", operand.buffer);
  }
  p.buffer = static_cast<uint32_t>(operand.buffer);
  const int64_t bytes = ir::dtype_bytes(operand.type);
  if (bytes == 0) return ir::unsupported("an operand of {}: elements share bytes", ir::dtype_name(operand.type));
  const ir::Expr offset = operand.offset ? operand.offset : ir::Expr(0);
  LATHE_ASSIGN(const std::optional<Affine> a, forms_.build_affine(offset, bytes, innermost_, &p.inner_step));
  if (a) {
    p.bytes = *a;
  } else {
    LATHE_ASSIGN(const FormBuilder::Built b, forms_.build(offset * ir::Expr(bytes)));
    p.general = true;
    p.form = b.form;
  }
  p.follows = innermost_ >= 0 && (p.form.levels >> innermost_ & 1) != 0;
  for (uint32_t t = p.bytes.first_term; t < p.bytes.first_term + p.bytes.num_terms; ++t)
    p.follows |= innermost_ >= 0 && (forms_.levels_of(out_->terms[t].level) >> innermost_ & 1) != 0;
  return p;
}

ir::Status Binder::stream(const ir::NestCall& call, size_t number, BoundCall* b) {
  const ir::NestStream& s = call.streams[number];
  if (s.share.offset) return share(s, number, b);
  if (s.operand < 0 || s.operand >= static_cast<int>(call.operands.size())) {
    return ir::internal_error("a stream of operand {}", s.operand);
  }
  LATHE_ASSIGN(BoundPointer p, pointer(call.operands[static_cast<size_t>(s.operand)]));
  p.slot = static_cast<uint8_t>(number);
  p.stream = true;
  ir::LeafStream& out = b->args.stream[number];
  const int64_t line_step = int64_t{s.lines} * kLine;
  int64_t block = 0, steps = 0;
  if (s.block_bytes) {
    LATHE_ASSIGN(const FormBuilder::Built r, forms_.build(s.block_bytes));
    block = std::clamp<int64_t>(r.range.hi, 0, INT64_MAX / 4);
  }
  for (const ir::NestSegment& segment : call.segments) {
    LATHE_ASSIGN(const FormBuilder::Built r, forms_.build(segment.len));
    if (__builtin_add_overflow(steps, std::max<int64_t>(r.range.hi, 0), &steps)) steps = INT64_MAX;
  }
  out.lines_per_4k = s.lines;
  int64_t ahead = s.distance, share = block;
  out.step = line_step;
  if (s.spread_iter.empty()) {
    // Keeps pace with the operand, whatever the lines say.
    if (block > 0 && steps > 0 && block < INT64_MAX / 8) out.step = std::max<int64_t>(1, 4 * block / steps);
  } else {
    const auto loop =
        std::find_if(loops_.begin(), loops_.end(), [&](const OpenLoop& l) { return l.node->iter == s.spread_iter; });
    if (loop == loops_.end()) return ir::internal_error("a stream spread over {}, which is no loop", s.spread_iter);
    share = round_up((block + loop->max_extent - 1) / loop->max_extent, kLine);
    // Its least share is too little where it runs less often: as much as its lines are for, then.
    const int64_t reach = (std::min(steps, int64_t{1} << 40) + 3) / 4 * line_step;
    if (loop->varies) share = std::clamp(reach, share, round_up(block, kLine));
    ahead = block;
    if (loop->level >= 0 && !p.general) {
      if (loop->level == innermost_) {
        p.inner_step += share;
      } else {
        // A copy of the operand's terms with one more.
        const uint32_t first = static_cast<uint32_t>(out_->terms.size());
        for (uint32_t i = 0; i < p.bytes.num_terms; ++i)
          out_->terms.push_back(Term(out_->terms[p.bytes.first_term + i]));
        out_->terms.push_back({share, loop->level});
        p.bytes.first_term = first;
        ++p.bytes.num_terms;
      }
    }
  }
  if (__builtin_add_overflow(p.bytes.base, ahead, &p.bytes.base))
    return ir::invalid("a prefetch distance of {} overflows", ahead);
  // Until walk() fills it in, `end` is the number of bytes after ptr.
  out.end = reinterpret_cast<const char*>(share > 0 ? share : line_step);
  out_->pointers.push_back(p);
  return {};
}

// A stream with a place of its own.
ir::Status Binder::share(const ir::NestStream& s, size_t number, BoundCall* b) {
  LATHE_ASSIGN(BoundPointer p, pointer(s.share));
  p.slot = static_cast<uint8_t>(number);
  p.stream = true;
  ir::LeafStream& out = b->args.stream[number];
  LATHE_ASSIGN(out.step, forms_.constant(s.share_step));
  out.lines_per_4k = s.lines;
  out.end = reinterpret_cast<const char*>(std::max<int64_t>(out.step, kLine));
  out_->pointers.push_back(p);
  return {};
}

ir::Status Binder::segments(const ir::NestCall& call, BoundCall* b) {
  b->first_segment = static_cast<uint32_t>(out_->segments.size());
  b->args.nseg = static_cast<int64_t>(call.segments.size());
  for (size_t i = 0; i < call.segments.size(); ++i) {
    const ir::NestSegment& segment = call.segments[i];
    ir::LeafSeg out = {};
    // False: it is not the same in every call.
    const auto number = [&](const ir::Expr& e, DynamicValue::Use use, int64_t* constant) -> ir::Result<bool> {
      if (!e) return true;
      DynamicValue v;
      v.use = use;
      v.slot = static_cast<uint8_t>(i);
      return value(e, v, constant);
    };
    LATHE_ASSIGN(const bool len, number(segment.len, DynamicValue::Use::segment_len, &out.len));
    LATHE_ASSIGN(const bool a, number(segment.a_bytes, DynamicValue::Use::segment_a, &out.a_off));
    LATHE_ASSIGN(const bool b_off, number(segment.b_bytes, DynamicValue::Use::segment_b, &out.b_off));
    out.len = std::max<int64_t>(out.len, 0);
    b->segments_change |= !len || !a || !b_off;
    out_->segments.push_back(out);
  }
  if (b->segments_change && call.segments.size() > kMaxChangingSegments)
    return ir::unsupported("a call of {} segments that change, expected at most {}", call.segments.size(),
                           kMaxChangingSegments);
  return {};
}

ir::Status Binder::add_call(const ir::NestCall& call, std::vector<BoundNode>* siblings) {
  BoundCall b = {};
  if (call.operands.size() > ir::kMaxLeafOperands || call.extents.size() > ir::kMaxLeafExtents ||
      call.streams.size() > ir::kMaxLeafStreams) {
    return ir::unsupported("a call of {} operands, {} extents, {} streams", call.operands.size(), call.extents.size(),
                           call.streams.size());
  }
  b.num_operands = static_cast<uint8_t>(call.operands.size());
  b.num_extents = static_cast<uint8_t>(call.extents.size());
  b.num_streams = static_cast<uint8_t>(call.streams.size());
  b.inner_level = static_cast<int8_t>(innermost_);
  b.first_value = static_cast<uint32_t>(out_->values.size());
  bool never = false;
  LATHE_RETURN_IF_ERROR(variants(call, &b, &never));
  if (never) return {};
  for (size_t i = 0; i < call.extents.size(); ++i) {
    DynamicValue v;
    v.slot = static_cast<uint8_t>(i);
    LATHE_RETURN_IF_ERROR(value(call.extents[i], v, &b.args.extent[i]).status());
    b.args.extent[i] = std::max<int64_t>(b.args.extent[i], 0);
  }
  LATHE_RETURN_IF_ERROR(segments(call, &b));
  b.num_values = static_cast<uint32_t>(out_->values.size()) - b.first_value;
  b.first_pointer = static_cast<uint32_t>(out_->pointers.size());
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const ir::NestOperand& o = call.operands[i];
    LATHE_ASSIGN(BoundPointer p, pointer(o));
    p.slot = static_cast<uint8_t>(i);
    out_->pointers.push_back(p);
    if (o.strides.size() > ir::kMaxLeafStrides) return ir::unsupported("an operand of {} strides", o.strides.size());
    for (size_t d = 0; d < o.strides.size(); ++d) {
      if (!o.strides[d]) continue;
      LATHE_ASSIGN(const int64_t stride, forms_.constant(o.strides[d]));
      const std::optional<int64_t> step = ir::dtype_step(o.type, stride);
      if (!step) return ir::invalid("a stride of this shape is no whole number of bytes, or exceeds 63 bits");
      b.args.op[i].stride[d] = *step;
    }
  }
  for (size_t i = 0; i < call.streams.size(); ++i) LATHE_RETURN_IF_ERROR(stream(call, i, &b));
  b.num_pointers = static_cast<uint32_t>(out_->pointers.size()) - b.first_pointer;
  for (uint32_t i = 0; i < b.num_values; ++i) b.inner_values |= out_->values[b.first_value + i].inner;
  for (uint32_t i = 0; i < b.num_pointers; ++i) b.pointers_follow |= out_->pointers[b.first_pointer + i].follows;
  out_->num_calls_hint = out_->num_calls_hint > INT64_MAX - trips_ ? INT64_MAX : out_->num_calls_hint + trips_;
  BoundNode n;
  n.call = static_cast<uint32_t>(out_->calls.size());
  out_->calls.push_back(b);
  siblings->push_back(n);
  return {};
}

ir::Status Binder::scratch() {
  int64_t offset = 0;
  for (const ir::NestScratch& s : nest_.scratch) {
    LATHE_ASSIGN(const int64_t bytes, forms_.constant(s.bytes));
    if (bytes < 0 || bytes > kMaxScratch) return ir::invalid("scratch {} of {} bytes", s.name, bytes);
    BoundScratch b;
    b.offset = offset;
    b.bytes = round_up(bytes, kLine);
    b.per_thread = s.per_thread;
    offset += b.bytes * (s.per_thread ? out_->threads : 1);
    if (offset > kMaxScratch) return ir::invalid("a workspace of more than {} bytes", kMaxScratch);
    out_->scratch.push_back(b);
  }
  out_->workspace_bytes = offset;
  return {};
}

}  // namespace

ir::Result<BoundNest> bind_nest(const ir::CutKernel& cut, const SymbolValues& symbols,
                                const std::vector<ArgLayout>& args, int threads) {
  if (threads < 1) return ir::invalid("{} threads, expected at least 1", threads).with_arg("threads");
  SymbolValues values = symbols;
  LATHE_RETURN_IF_ERROR(complete_symbols(cut.kernel, args, &values));
  BoundNest out;
  LATHE_RETURN_IF_ERROR(Binder(cut, values, threads, &out).run());
  return out;
}

}  // namespace lathe::runtime
