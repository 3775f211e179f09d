// Emitter: see lower_emit.h.
#include "jit/lower_emit.h"

#include <bit>

namespace lathe::jit {
namespace {

void append_linear(std::vector<int64_t>& key, const Linear& l) {
  key.push_back(l.bytes);
  key.push_back(static_cast<int64_t>(l.strides.size()));
  for (const auto& [stride, mult] : l.strides) {
    key.push_back(stride);
    key.push_back(mult);
  }
}

constexpr int64_t kConstantKey = -1, kExtentKey = -2, kAccessKey = -3, kTailKey = -4,
                  kDerivedKey = -5, kBumpedKey = -6;

}  // namespace

int Emitter::fail(ir::Status status) {
  if (status_.ok()) status_ = std::move(status);
  return program_->num_vregs > 0 ? 0 : fresh();
}

int Emitter::fresh() {
  value_id_.push_back(next_id_++);
  homes_.push_back(false);
  return program_->num_vregs++;
}
int Emitter::home() {
  const int reg = fresh();
  homes_[reg] = true;
  return reg;
}

void Emitter::set_constant(int home, float value, int level) {
  Inst i{LeafOp::k_constant, home};
  i.imm = std::bit_cast<uint32_t>(value);
  emit(i, level);
  touch(home);
}

void Emitter::emit(const Inst& inst, int level) {
  Node n;
  n.inst = inst;
  frames_[level].out->push_back(std::move(n));
}

void Emitter::forget_values() {
  for (Frame& f : frames_) {
    f.values.clear();
    if (scarce_masks()) f.masks.clear();
  }
}

LoopContext* Emitter::new_loop() {
  all_loops_.push_back(std::make_unique<LoopContext>());
  LoopContext* loop = all_loops_.back().get();
  loop->id = static_cast<int>(all_loops_.size());
  loop->level = level();
  return loop;
}

static std::vector<PtrTerm> terms_of(const Linear& l, int64_t times) {
  std::vector<PtrTerm> out;
  for (const auto& [stride, mult] : l.strides) out.push_back({stride, mult * times});
  return out;
}

void Emitter::finish(const LoopContext& loop, int64_t iterations, Node& node) {
  for (const LoopContext::Bump& b : loop.bumps) {
    PtrStep step{b.ptr, b.per_iteration.bytes * iterations, terms_of(b.per_iteration, iterations)};
    node.steps.push_back(std::move(step));
  }
}

int Emitter::known(const Key& key) const {
  for (auto f = frames_.rbegin(); f != frames_.rend(); ++f) {
    const auto it = f->values.find(key);
    if (it != f->values.end() && value_id_[it->second.reg] == it->second.id) return it->second.reg;
  }
  return -1;
}
void Emitter::remember(const Key& key, int reg, int level) {
  frames_[level].values[key] = {reg, value_id_[reg]};
}

int Emitter::op(LeafOp op, std::vector<int> sources, uint32_t imm, int mask) {
  Key key{static_cast<int64_t>(op), imm, mask_class(mask)};
  for (int s : sources) key.push_back(value_id_[s]);
  if (const int reg = known(key); reg >= 0) return reg;
  Inst i{op, fresh()};
  for (size_t s = 0; s < sources.size(); ++s) i.src[s] = sources[s];
  i.imm = imm;
  i.mask = mask;
  emit(i, level());
  remember(key, i.dst, level());
  return i.dst;
}

void Emitter::op_into(int dst, LeafOp op, std::vector<int> sources, int mask) {
  Inst i{op, dst};
  for (size_t s = 0; s < sources.size(); ++s) i.src[s] = sources[s];
  i.mask = mask;
  if (op == LeafOp::k_move) {
    if (const auto it = constants_.find(sources[0]); it != constants_.end()) {
      i = Inst{LeafOp::k_constant, dst};
      i.imm = it->second;
    }
  }
  emit(i, level());
  touch(dst);
}

int Emitter::constant(float value) { return constant_bits(std::bit_cast<uint32_t>(value)); }
int Emitter::constant_bits(uint32_t bits) {
  const Key key{kConstantKey, bits};
  if (const int reg = known(key); reg >= 0) return reg;
  Inst i{LeafOp::k_constant, fresh()};
  i.imm = bits;
  emit(i, 0);
  remember(key, i.dst, 0);
  constants_[i.dst] = bits;
  return i.dst;
}

int Emitter::extent_f32(Extent extent) {
  const int at = extent.arg == Extent::kSegLen ? level() : 0;
  const Key key{kExtentKey, extent.arg, extent.add};
  if (const int reg = known(key); reg >= 0) return reg;
  Inst i{LeafOp::k_extent_f32, fresh()};
  i.extent = extent;
  emit(i, at);
  remember(key, i.dst, at);
  return i.dst;
}

Emitter::Key Emitter::access_key(const Access& at, int mask) const {
  const auto version = memory_id_.find(at.slot);
  Key key{kAccessKey, at.slot, version == memory_id_.end() ? 0 : version->second, mask_class(mask),
          at.uniform() ? 0 : 1};
  append_linear(key, at.base);
  for (const LoopContext* loop : loops_) {
    const auto it = at.loops.find(loop);
    if (it == at.loops.end()) continue;
    key.push_back(loop->id);
    append_linear(key, it->second);
  }
  return key;
}

int Emitter::load(const Access& at, int mask) {
  if (at.uniform()) mask = -1;
  const Key key = access_key(at, mask);
  if (const int reg = known(key); reg >= 0) return reg;
  if (mask >= 0) {
    // An unmasked load or store of the same place serves as well: lanes off are never looked at
    // unmasked.
    if (const int reg = known(access_key(at, -1)); reg >= 0) return reg;
  }
  Inst i{at.uniform() ? LeafOp::k_load_bcast : LeafOp::k_load, fresh()};
  i.mask = mask;
  i.mem = mem(at);
  emit(i, level());
  remember(key, i.dst, level());
  return i.dst;
}

void Emitter::store(const Access& at, int value, int mask) {
  Inst i{at.uniform() ? LeafOp::k_store_lane0 : LeafOp::k_store};
  i.src[0] = value;
  i.mask = at.uniform() ? -1 : mask;
  i.mem = mem(at);
  emit(i, level());
  stored(at.slot);
  remember(access_key(at, i.mask), value, level());
}

int Emitter::compare(LeafOp op, int a, int b) {
  Key key{static_cast<int64_t>(op), value_id_[a], value_id_[b]};
  for (auto f = frames_.rbegin(); f != frames_.rend(); ++f) {
    if (const auto it = f->masks.find(key); it != f->masks.end()) return it->second;
  }
  Inst i{op, program_->num_masks++};
  i.src[0] = a;
  i.src[1] = b;
  emit(i, level());
  frames_.back().masks[key] = i.dst;
  return i.dst;
}

int Emitter::mask_tail(Extent extent, const LoopContext* loop, int64_t add) {
  const bool invariant = loop == nullptr && extent.arg != Extent::kSegLen;
  const int at = invariant && !scarce_masks() ? 0 : level();
  const Key key{kTailKey, extent.arg, extent.add, loop == nullptr ? 0 : loop->id, add};
  for (auto f = frames_.rbegin(); f != frames_.rend() && !(scarce_masks() && tight_); ++f) {
    if (const auto it = f->masks.find(key); it != f->masks.end()) return it->second;
  }
  Inst i{LeafOp::k_mask_tail, program_->num_masks++};
  i.extent = extent;
  i.var = loop == nullptr ? -1 : loop->var;
  i.var_add = add;
  emit(i, at);
  frames_[at].masks[key] = i.dst;
  mask_class_[i.dst] = tail_classes_.try_emplace(key, i.dst).first->second;
  return i.dst;
}

// Masks made anew for each use count as one where values are compared.
int Emitter::mask_class(int mask) const {
  const auto it = mask_class_.find(mask);
  return it == mask_class_.end() ? mask : it->second;
}

// There is no instruction on two masks: lanes of 1.0 pass through both and are compared.
int Emitter::mask_and(int a, int b) {
  if (a < 0 || a == b) return b;
  if (b < 0) return a;
  const int zero = constant(0.0f), one = constant(1.0f);
  const int both = op(LeafOp::k_blend, {zero, op(LeafOp::k_blend, {zero, one}, 0, a)}, 0, b);
  return compare(LeafOp::k_cmp_eq, both, one);
}

void Emitter::prefetch(int ptr, int64_t bytes) {
  Inst i{LeafOp::k_prefetch};
  i.mem.ptr = ptr;
  i.mem.disp = static_cast<int32_t>(bytes);
  emit(i, level());
}

int Emitter::new_ptr(PtrInit init) {
  program_->ptrs.push_back(std::move(init));
  return static_cast<int>(program_->ptrs.size()) - 1;
}
int Emitter::base_ptr(int slot) {
  if (const auto it = base_.find(slot); it != base_.end()) return it->second.ptr;
  auto [it, added] = bases_.try_emplace(slot, -1);
  if (added) {
    PtrInit init;
    init.slot = slot;
    it->second = new_ptr(std::move(init));
  }
  return it->second;
}

int Emitter::known_ptr(const Key& key) const {
  for (auto f = frames_.rbegin(); f != frames_.rend(); ++f) {
    if (const auto it = f->ptrs.find(key); it != f->ptrs.end()) return it->second;
  }
  return -1;
}

// ptr + offset, computed in frame `level`.
int Emitter::derived(int ptr, const Linear& offset, int level) {
  if (offset.zero()) return ptr;
  Key key{kDerivedKey, ptr};
  append_linear(key, offset);
  if (const int known = known_ptr(key); known >= 0) return known;
  const int out = new_ptr();
  int from = ptr;
  std::vector<PtrTerm> terms = terms_of(offset, 1);
  int64_t bytes = offset.bytes;
  do {
    Node n;
    n.kind = Node::Kind::set_ptr;
    n.from = from;
    PtrStep step{out, bytes, {}};
    while (!terms.empty() && step.terms.size() < 2) {
      step.terms.push_back(terms.back());
      terms.pop_back();
    }
    n.steps.push_back(std::move(step));
    frames_[level].out->push_back(std::move(n));
    from = out;
    bytes = 0;
  } while (!terms.empty());
  frames_[level].ptrs[key] = out;
  return out;
}

// A copy of ptr, made before the loop, that moves with it.
int Emitter::bumped(LoopContext* loop, int ptr, const Linear& per_iteration) {
  Key key{kBumpedKey, loop->id, ptr};
  append_linear(key, per_iteration);
  if (const int known = known_ptr(key); known >= 0) return known;
  Node n;
  n.kind = Node::Kind::set_ptr;
  n.from = ptr;
  const int out = new_ptr();
  n.steps.push_back({out, 0, {}});
  frames_[loop->level].out->push_back(std::move(n));
  loop->bumps.push_back({out, per_iteration});
  frames_[loop->level].ptrs[key] = out;
  return out;
}

Mem Emitter::mem(const Access& at) {
  const auto stride_of = [&](const LoopContext* loop) {
    const auto it = at.loops.find(loop);
    return it == at.loops.end() ? nullptr : &it->second;
  };
  const LoopContext* last = nullptr;
  for (const LoopContext* loop : loops_) {
    if (stride_of(loop) != nullptr) last = loop;
  }
  Mem out;
  const LoopContext* by_var = nullptr;
  if (last != nullptr && !last->by_pointer && stride_of(last)->strides.empty()) {
    const int64_t bytes = stride_of(last)->bytes, scale = bytes / last->width;
    if (bytes % last->width == 0 && (scale == 1 || scale == 2 || scale == 4 || scale == 8)) {
      by_var = last;
      out.index_kind = Mem::Index::var;
      out.index = last->var;
      out.scale = static_cast<int>(scale);
    }
  }
  // `rest` is still to be added to the pointer; a multiple of one run-time stride below 3 goes into
  // the index.
  Linear rest = at.base;
  if (rest.bytes >= INT32_MIN && rest.bytes <= INT32_MAX) {
    out.disp = static_cast<int32_t>(rest.bytes);
    rest.bytes = 0;
  }
  if (by_var == nullptr) {
    for (auto& [stride, mult] : rest.strides) {
      const int64_t part = mult % 3;
      if (mult < 0 || part == 0) continue;
      out.index_kind = Mem::Index::stride;
      out.index = stride;
      out.scale = static_cast<int>(part);
      if ((mult -= part) == 0) rest.strides.erase(stride);
      break;
    }
  }
  int ptr = base_ptr(at.slot), level = 0;
  if (const auto it = base_.find(at.slot); it != base_.end()) level = it->second.level;
  for (LoopContext* loop : loops_) {
    const Linear* stride = stride_of(loop);
    if (stride == nullptr || loop == by_var) continue;
    if (stride->strides.empty() && !rest.zero()) {
      ptr = derived(ptr, rest, std::max(level, loop->level));
      rest = {};
    }
    ptr = bumped(loop, ptr, *stride);
    level = loop->level + 1;
  }
  out.ptr = derived(ptr, rest, level);
  return out;
}

}  // namespace lathe::jit
