// Entry and exit, loops, branches, segments, pointers and extents: the part of a leaf in general registers. rdi holds
// LeafArgs throughout; rax and rdx are scratch.
#include <algorithm>
#include <cstddef>

#include "jit/x64/emitter.h"

namespace lathe::jit::x64 {
namespace {

constexpr int kMaxSlots = 64;

bool fits_int32(int64_t v) { return v == static_cast<int32_t>(v); }

int extent_offset(int arg) { return static_cast<int>(offsetof(ir::LeafArgs, extent)) + 8 * arg; }
int operand_offset(int slot) { return static_cast<int>(sizeof(ir::LeafOperand)) * slot; }
int stream_offset(int stream) {
  return static_cast<int>(offsetof(ir::LeafArgs, stream) + sizeof(ir::LeafStream) * stream);
}

}  // namespace

Emitter::Emitter(Assembler& assembler, const LeafProgram& program, const Shape& shape, const Allocation& allocation)
    : as_(assembler),
      p_(program),
      shape_(shape),
      a_(allocation),
      labels_(2 * allocation.regions.size()),
      low_halves_(low_halves(program)),
      one_lane_(one_lane(program)),
      lanes_(shape.lanes),
      mask_lanes_(static_cast<size_t>(program.num_masks), kUnsetLanes) {
  find_constant_masks(program.body);
  for (int k = 1; k < 8 && shape.evex; ++k) {
    if (std::find(allocation.mask.begin(), allocation.mask.end(), k) == allocation.mask.end()) free_mask_ = k;
  }
}

ir::Status Emitter::run() {
  if (a_.num_slots > kMaxSlots) return ir::unsupported("{} pointers and variables on the stack", a_.num_slots);
  prologue();
  for (int pos = 0; pos < static_cast<int>(a_.items.size()); ++pos) {
    while (next_preload_ < a_.preloads.size() && a_.preloads[next_preload_].pos == pos)
      preload(a_.preloads[next_preload_++]);
    const Item& item = a_.items[pos];
    switch (item.kind) {
      case Item::Kind::inst:
        if (!item.skip) instruction(item);
        break;
      case Item::Kind::begin:
        begin(item);
        break;
      case Item::Kind::end:
        end(item);
        break;
      case Item::Kind::set_ptr:
        set_pointer(*item.node);
        break;
      case Item::Kind::set_var: {
        const int id = a_.var_id(item.node->var);
        const Reg64 reg = general_target(id, as_.rax);
        as_.xor_(reg.cvt32(), reg.cvt32());
        store_general(id, reg);
        break;
      }
      case Item::Kind::add_stream: {
        const int id = item.node->steps[0].ptr;
        const Reg64 reg = general(id, as_.rax);
        as_.add(reg, as_.ptr[as_.rdi + stream_offset(item.node->from) + offsetof(ir::LeafStream, step)]);
        store_general(id, reg);
        break;
      }
    }
  }
  epilogue();
  for (Aside& a : asides_) {
    as_.L(a.start);
    a.emit();
    as_.jmp(a.back, as_.T_NEAR);
  }
  return {};
}

Emitter::Aside& Emitter::aside(std::function<void()> emit) {
  asides_.push_back({std::move(emit), {}, {}, {}});
  return asides_.back();
}

void Emitter::prologue() {
  as_.endbr64();
  int pushed = 0;
  for (int r = 0; r < 16; ++r) {
    if (a_.callee_saved >> r & 1) {
      as_.push(Reg64(r));
      ++pushed;
    }
  }
  if (a_.num_slots) as_.sub(as_.rsp, 8 * a_.num_slots);
  stack_bytes_ = 8 * (pushed + a_.num_slots);
  if (has_tiles(p_)) {
    use(kCpu_amx_tile);
    as_.ldtilecfg(as_.tile_config(p_.tile_rows));
  }
}

void Emitter::epilogue() {
  if (has_tiles(p_)) as_.tilerelease();
  if (contains(p_.body, LeafOp::k_store_stream)) as_.sfence();  // other threads see what was streamed
  if (a_.num_slots) as_.add(as_.rsp, 8 * a_.num_slots);
  for (int r = 15; r >= 0; --r) {
    if (a_.callee_saved >> r & 1) as_.pop(Reg64(r));
  }
  as_.ret();
}

Address Emitter::stack_slot(int id) { return as_.qword[as_.rsp + 8 * a_.slot[id]]; }

Address Emitter::stride_in_args(int stride) {
  const int slot = stride / ir::kMaxLeafStrides, dim = stride % ir::kMaxLeafStrides;
  return as_.qword[as_.rdi + operand_offset(slot) + offsetof(ir::LeafOperand, stride) + 8 * dim];
}

Reg64 Emitter::general(int id, const Reg64& scratch) {
  if (a_.general[id] >= 0) return Reg64(a_.general[id]);
  if (a_.slot[id] >= 0) {
    as_.mov(scratch, stack_slot(id));
  } else {
    as_.mov(scratch, stride_in_args(id - a_.stride_id(0)));
  }
  return scratch;
}

Reg64 Emitter::general_target(int id, const Reg64& scratch) {
  return a_.general[id] >= 0 ? Reg64(a_.general[id]) : scratch;
}

void Emitter::store_general(int id, const Reg64& from) {
  if (a_.general[id] < 0) as_.mov(stack_slot(id), from);
}

void Emitter::preload(const Preload& p) {
  switch (p.kind) {
    case Preload::Kind::constant:
      constant(vec(p.index), a_.items[a_.info[p.index].def_pos].node->inst.imm);
      break;
    case Preload::Kind::spread:
      use(kCpu_avx512bw);
      as_.vpmovzxbw(physical(a_.spread), as_.pack_constant(Assembler::Pack::spread_words));
      break;
    case Preload::Kind::stride:
      as_.mov(Reg64(a_.general[a_.stride_id(p.index)]), stride_in_args(p.index));
      break;
    case Preload::Kind::pointer: {
      const PtrInit& init = p_.ptrs[p.index];
      const Reg64 reg = general_target(p.index, as_.rax);
      const int offset = init.slot >= 0 ? operand_offset(init.slot) : stream_offset(init.stream);
      as_.mov(reg, as_.ptr[as_.rdi + offset]);
      add_terms(reg, init.terms, init.bytes);
      store_general(p.index, reg);
      break;
    }
  }
}

void Emitter::add_immediate(const Reg64& to, int64_t value) {
  if (value == 0) return;
  if (fits_int32(value)) {
    as_.add(to, static_cast<int32_t>(value));
  } else {
    as_.mov(as_.rdx, value);
    as_.add(to, as_.rdx);
  }
}

// to += bytes + sum of mult * stride; clobbers rdx. Strides that are preloaded here come straight from LeafArgs as
// well.
void Emitter::add_terms(const Reg64& to, const std::vector<PtrTerm>& terms, int64_t bytes) {
  for (const PtrTerm& term : terms) {
    const Address stride = stride_in_args(term.stride);
    if (term.mult == 0) continue;
    if (term.mult == 1) {
      as_.add(to, stride);
    } else if (term.mult == -1) {
      as_.sub(to, stride);
    } else if (fits_int32(term.mult)) {
      as_.imul(as_.rdx, stride, static_cast<int32_t>(term.mult));
      as_.add(to, as_.rdx);
    } else {
      as_.mov(as_.rdx, term.mult);
      as_.imul(as_.rdx, stride);
      as_.add(to, as_.rdx);
    }
  }
  add_immediate(to, bytes);
}

void Emitter::step_pointer(const PtrStep& step) {
  if (a_.general[step.ptr] < 0 && step.terms.empty() && fits_int32(step.bytes)) {
    as_.add(stack_slot(step.ptr), static_cast<int32_t>(step.bytes));
    return;
  }
  const Reg64 reg = general(step.ptr, as_.rax);
  for (const PtrTerm& term : step.terms) {
    const int id = a_.stride_id(term.stride);
    const bool lea = a_.general[id] >= 0 && (term.mult == 1 || term.mult == 2 || term.mult == 4 || term.mult == 8);
    if (lea) {
      as_.lea(reg, as_.ptr[reg + Reg64(a_.general[id]) * static_cast<int>(term.mult)]);
    } else {
      add_terms(reg, {term}, 0);
    }
  }
  add_immediate(reg, step.bytes);
  store_general(step.ptr, reg);
}

void Emitter::set_pointer(const Node& node) {
  const PtrStep& step = node.steps[0];
  const Reg64 from = general(node.from, as_.rax);
  const Reg64 to = general_target(step.ptr, as_.rax);
  if (step.terms.empty() && fits_int32(step.bytes) && step.bytes != 0) {
    as_.lea(to, as_.ptr[from + static_cast<int32_t>(step.bytes)]);
  } else {
    if (to.getIdx() != from.getIdx()) as_.mov(to, from);
    add_terms(to, step.terms, step.bytes);
  }
  store_general(step.ptr, to);
}

// to = extent; clobbers rdx.
void Emitter::load_extent(const Reg64& to, const Extent& extent) {
  if (extent.arg == Extent::kConst) {
    as_.mov(to, extent.add);
    return;
  }
  if (extent.arg == Extent::kSegLen) {
    const Reg64 segment = general(a_.segment_id(), to);
    as_.mov(to, as_.ptr[segment + offsetof(ir::LeafSeg, len)]);
  } else {
    as_.mov(to, as_.ptr[as_.rdi + extent_offset(extent.arg)]);
  }
  add_immediate(to, extent.add);
}

// Flags of (value ? extent), where extent.add is already counted in value; clobbers rdx.
void Emitter::compare_extent(const Reg64& value, const Extent& extent) {
  if (extent.arg == Extent::kConst) {
    if (fits_int32(extent.add)) {
      as_.cmp(value, static_cast<int32_t>(extent.add));
    } else {
      as_.mov(as_.rdx, extent.add);
      as_.cmp(value, as_.rdx);
    }
  } else if (extent.arg == Extent::kSegLen) {
    const Reg64 segment = general(a_.segment_id(), as_.rdx);
    as_.cmp(value, as_.ptr[segment + offsetof(ir::LeafSeg, len)]);
  } else {
    as_.cmp(value, as_.ptr[as_.rdi + extent_offset(extent.arg)]);
  }
}

// rax, or the variable itself, holding var + add - extent.add (extent.add stays where the extent is a constant).
static int64_t offset_of(const Extent& extent, int64_t add) {
  return add - (extent.arg == Extent::kConst ? 0 : extent.add);
}

void Emitter::begin(const Item& item) {
  const Node& node = *item.node;
  Label& start = labels_[2 * item.region];
  Label& stop = labels_[2 * item.region + 1];
  if (node.kind == Node::Kind::segments) {
    const Reg64 segment = general_target(a_.segment_id(), as_.rax);
    const Reg64 left = general_target(a_.segments_left_id(), as_.rdx);
    as_.mov(segment, as_.ptr[as_.rdi + offsetof(ir::LeafArgs, seg)]);
    as_.mov(left, as_.ptr[as_.rdi + offsetof(ir::LeafArgs, nseg)]);
    store_general(a_.segment_id(), segment);
    store_general(a_.segments_left_id(), left);
    as_.test(left, left);
    as_.jle(stop, as_.T_NEAR);
    as_.L(start);
    const auto base = [&](int to_id, int base_id, size_t field) {
      const Reg64 seg = general(a_.segment_id(), as_.rdx);
      const Reg64 to = general_target(to_id, as_.rax);
      as_.mov(to, as_.ptr[seg + field]);
      if (a_.general[base_id] >= 0) {
        as_.add(to, Reg64(a_.general[base_id]));
      } else {
        as_.add(to, stack_slot(base_id));
      }
      store_general(to_id, to);
    };
    base(node.seg_ptr_a, node.seg_base_a, offsetof(ir::LeafSeg, a_off));
    base(node.seg_ptr_b, node.seg_base_b, offsetof(ir::LeafSeg, b_off));
    return;
  }

  if (node.kind == Node::Kind::if_any) {
    if (shape_.evex) {
      use(kCpu_avx512f);
      as_.kortestw(mask_k(node.mask), mask_k(node.mask));
    } else {
      use(kCpu_avx);
      as_.vtestps(mask_vec(node.mask), mask_vec(node.mask));
    }
    as_.jz(stop, as_.T_NEAR);
    return;
  }
  const int id = a_.var_id(node.var);
  if (node.kind == Node::Kind::loop && node.init) {
    const Reg64 var = general_target(id, as_.rax);
    as_.xor_(var.cvt32(), var.cvt32());
    store_general(id, var);
  }
  // A loop runs while var + step <= extent, an if when var < extent.
  const int64_t add = offset_of(node.extent, node.kind == Node::Kind::loop ? node.step : 0);
  Reg64 value = general(id, as_.rax);
  if (add != 0) {
    if (value.getIdx() != as_.rax.getIdx()) as_.mov(as_.rax, value);
    add_immediate(as_.rax, add);
    value = as_.rax;
  }
  compare_extent(value, node.extent);
  if (node.kind == Node::Kind::loop) {
    as_.jg(stop, as_.T_NEAR);
    as_.align(32);
    as_.L(start);
  } else {
    as_.jge(stop, as_.T_NEAR);
  }
}

void Emitter::end(const Item& item) {
  const Node& node = *item.node;
  Label& start = labels_[2 * item.region];
  if (node.kind == Node::Kind::segments) {
    const int segment = a_.segment_id(), left = a_.segments_left_id();
    if (a_.general[segment] >= 0) {
      as_.add(Reg64(a_.general[segment]), static_cast<int>(sizeof(ir::LeafSeg)));
    } else {
      as_.add(stack_slot(segment), static_cast<int>(sizeof(ir::LeafSeg)));
    }
    if (a_.general[left] >= 0) {
      as_.dec(Reg64(a_.general[left]));
    } else {
      as_.dec(stack_slot(left));
    }
    as_.jnz(start, as_.T_NEAR);
  } else if (node.kind == Node::Kind::loop) {
    for (const PtrStep& step : node.steps) step_pointer(step);
    const int id = a_.var_id(node.var);
    const Reg64 var = general(id, as_.rax);
    add_immediate(var, node.step);
    store_general(id, var);
    const int64_t add = offset_of(node.extent, node.step);
    Reg64 value = var;
    if (add != 0) {
      if (fits_int32(add)) {
        as_.lea(as_.rax, as_.ptr[var + static_cast<int32_t>(add)]);
      } else {
        if (var.getIdx() != as_.rax.getIdx()) as_.mov(as_.rax, var);
        add_immediate(as_.rax, add);
      }
      value = as_.rax;
    }
    compare_extent(value, node.extent);
    as_.jle(start, as_.T_NEAR);
  }
  as_.L(labels_[2 * item.region + 1]);
}

}  // namespace lathe::jit::x64
