// Emitter: see lower_emit.h.
#include "jit/lower/lower_emit.h"

#include <algorithm>
#include <bit>

namespace lathe::jit {
namespace {

constexpr int64_t kConstantKey = -1, kExtentKey = -2, kAccessKey = -3, kTailKey = -4, kDerivedKey = -5, kBumpedKey = -6,
                  kIndexKey = -7;

}  // namespace

uint64_t KeyTable::hash(std::span<const int64_t> key) {
  uint64_t h = key.size();
  for (const int64_t n : key) {
    h = (h ^ static_cast<uint64_t>(n)) * 0x9e3779b97f4a7c15u;
    h ^= h >> 29;
  }
  return h;
}

KeyTable::Value* KeyTable::find(std::span<const int64_t> key, uint64_t hash) {
  if (entries_.empty()) return nullptr;
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i] >= 0; i = (i + 1) & mask) {
    Entry& e = entries_[static_cast<size_t>(slots_[i])];
    if (e.hash == hash && e.size == key.size() && std::equal(key.begin(), key.end(), numbers_.begin() + e.begin))
      return &e.value;
  }
  return nullptr;
}

void KeyTable::set(std::span<const int64_t> key, uint64_t hash, Value value) {
  if (Value* known = find(key, hash)) {
    *known = value;
    return;
  }
  if (2 * (entries_.size() + 1) > slots_.size()) grow();
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  while (slots_[i] >= 0) i = (i + 1) & mask;
  slots_[i] = static_cast<int32_t>(entries_.size());
  entries_.push_back({hash, static_cast<uint32_t>(numbers_.size()), static_cast<uint32_t>(key.size()), value});
  numbers_.insert(numbers_.end(), key.begin(), key.end());
}

void KeyTable::grow() {
  if (slots_.empty()) {
    entries_.reserve(32);
    numbers_.reserve(256);
  }
  slots_.assign(std::max<size_t>(64, 4 * slots_.size()), -1);
  const size_t mask = slots_.size() - 1;
  for (size_t e = 0; e < entries_.size(); ++e) {
    size_t i = entries_[e].hash & mask;
    while (slots_[i] >= 0) i = (i + 1) & mask;
    slots_[i] = static_cast<int32_t>(e);
  }
}

void KeyTable::clear() {
  if (entries_.empty()) return;
  entries_.clear();
  numbers_.clear();
  std::fill(slots_.begin(), slots_.end(), -1);
}

void Emitter::Key::add(const Linear& l) {
  add(l.bytes);
  if (l.constant()) return add(int64_t{-1});
  add(int64_t{l.first});
  for (const int64_t mult : l.strides) add(mult);
}

Emitter::Key Emitter::key_of(std::initializer_list<int64_t> numbers) {
  Key key;
  for (const int64_t n : numbers) key.add(n);
  return key;
}

int Emitter::fail(ir::Status status) {
  if (status_.ok()) status_ = std::move(status);
  return program_->num_vregs > 0 ? 0 : fresh();
}

void Emitter::push_frame(Nodes* out, size_t likely_nodes) {
  out->reserve(likely_nodes);
  if (static_cast<size_t>(depth_++) == frames_.size()) frames_.emplace_back(memory_);
  Frame& frame = top();
  frame.out = out;
  for (KeyTable* table : {&frame.values, &frame.masks, &frame.ptrs}) table->clear();
}

int Emitter::fresh() {
  registers_.emplace_back().value = next_id_++;
  return program_->num_vregs++;
}
int Emitter::home() {
  const int reg = fresh();
  content(reg).home = true;
  return reg;
}

void Emitter::set_constant(int home, uint32_t bits, int level) {
  emit(LeafOp::k_constant, home, level).imm = bits;
  touch(home);
}

// The instruction made is the reference's until the next one.
Inst& Emitter::emit(LeafOp op, int dst, int level) {
  Inst& inst = frames_[static_cast<size_t>(level)].out->emplace_back().inst;
  inst.op = op;
  inst.dst = dst;
  return inst;
}

std::pmr::vector<Inst> Emitter::since(const Mark& from) const {
  const Nodes& out = *top().out;
  std::pmr::vector<Inst> code(memory_);
  code.reserve(out.size() - from.node);
  for (size_t i = from.node; i < out.size(); ++i) {
    if (out[i].kind != Node::Kind::inst) return std::pmr::vector<Inst>(memory_);
    code.push_back(out[i].inst);
  }
  return code;
}

bool Emitter::repeat(std::span<const Inst> code, const Mark& from, std::span<const LoopContext::Bump> moving,
                     int64_t times) {
  std::pmr::vector<int64_t> shift(program_->ptrs.size(), memory_);
  for (const LoopContext::Bump& b : moving) shift[static_cast<size_t>(b.ptr)] = times * b.per_iteration.bytes;
  for (const Inst& i : code) {
    const int64_t to = i.mem.ptr < 0 ? 0 : i.mem.disp + shift[static_cast<size_t>(i.mem.ptr)];
    if (to != static_cast<int32_t>(to)) return false;
  }
  // Registers and masks made by the code, by their number since the mark, and what they are called here.
  using Names = std::pmr::vector<int>;
  Names regs(static_cast<size_t>(program_->num_vregs - from.vregs), -1, memory_);
  Names masks(static_cast<size_t>(program_->num_masks - from.masks), -1, memory_);
  const auto renamed = [](const Names& names, int first, int i) {
    const size_t at = static_cast<size_t>(i - first);
    return i < first || at >= names.size() || names[at] < 0 ? i : names[at];
  };
  Nodes& out = *top().out;
  for (const Inst& known : code) {
    Inst i = known;
    for (int& s : i.src) s = renamed(regs, from.vregs, s);
    i.mask = renamed(masks, from.masks, i.mask);
    if (i.mem.ptr >= 0) i.mem.disp += static_cast<int32_t>(shift[static_cast<size_t>(i.mem.ptr)]);
    const bool mask = leaf_op_kind(i.op) == LeafOpKind::kMask;
    const int first = mask ? from.masks : from.vregs;
    if (i.dst >= first) {
      int& name = (mask ? masks : regs)[static_cast<size_t>(i.dst - first)];
      if (name < 0) name = mask ? program_->num_masks++ : fresh();
      i.dst = name;
    }
    out.emplace_back().inst = i;
  }
  return true;
}

void Emitter::forget_values() {
  for (Frame& f : std::span(frames_.data(), static_cast<size_t>(depth_))) {
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
  for (size_t d = 0; d < l.strides.size(); ++d) {
    if (l.strides[d] != 0) out.push_back({l.first + static_cast<int>(d), l.strides[d] * times});
  }
  return out;
}

void Emitter::finish(const LoopContext& loop, int64_t iterations, Node& node) {
  for (const LoopContext::Bump& b : loop.bumps) {
    PtrStep step{b.ptr, b.per_iteration.bytes * iterations, terms_of(b.per_iteration, iterations)};
    node.steps.push_back(std::move(step));
  }
}

int Emitter::known(const Key& key, uint64_t hash) {
  for (int f = level(); f >= 0; --f) {
    const KeyTable::Value* v = frames_[static_cast<size_t>(f)].values.find(key.span(), hash);
    if (v != nullptr && content(v->reg).value == v->id) return v->reg;
  }
  return -1;
}
void Emitter::remember(const Key& key, uint64_t hash, int reg, int level) {
  frames_[level].values.set(key.span(), hash, {reg, content(reg).value});
}
// What a frame in scope knows under the key in masks or ptrs; -1: nothing.
int Emitter::known_in(KeyTable Frame::* table, const Key& key, uint64_t hash) {
  for (int f = level(); f >= 0; --f) {
    if (const KeyTable::Value* v = (frames_[static_cast<size_t>(f)].*table).find(key.span(), hash)) return v->reg;
  }
  return -1;
}

int Emitter::op(LeafOp op, std::span<const int> sources, uint32_t imm, int mask) {
  Key key = key_of({static_cast<int64_t>(op), imm, mask_class(mask)});
  for (const int s : sources) key.add(content(s).value);
  const uint64_t hash = KeyTable::hash(key.span());
  if (const int reg = known(key, hash); reg >= 0) return reg;
  const int dst = fresh();
  Inst& i = emit(op, dst, level());
  for (size_t n = 0; n < sources.size() && n < 3; ++n) i.src[n] = sources[n];
  i.imm = imm;
  i.mask = mask;
  remember(key, hash, dst, level());
  return dst;
}

void Emitter::op_into(int dst, LeafOp op, std::initializer_list<int> sources, int mask) {
  const int64_t constant = op == LeafOp::k_move ? content(*sources.begin()).constant : -1;
  Inst& i = emit(constant >= 0 ? LeafOp::k_constant : op, dst, level());
  if (constant >= 0) {
    i.imm = static_cast<uint32_t>(constant);
  } else {
    for (size_t n = 0; n < sources.size() && n < 3; ++n) i.src[n] = sources.begin()[n];
    i.mask = mask;
  }
  touch(dst);
}

// What has no sources, made in the frame `level` unless it is known.
template <class Fill>
int Emitter::known_or(const Key& key, LeafOp op, int level, Fill&& fill) {
  const uint64_t hash = KeyTable::hash(key.span());
  if (const int reg = known(key, hash); reg >= 0) return reg;
  const int dst = fresh();
  fill(emit(op, dst, level));
  remember(key, hash, dst, level);
  return dst;
}

int Emitter::constant(float value) { return constant_bits(std::bit_cast<uint32_t>(value)); }
int Emitter::constant_bits(uint32_t bits) {
  const int dst = known_or(key_of({kConstantKey, bits}), LeafOp::k_constant, 0, [&](Inst& i) { i.imm = bits; });
  content(dst).constant = bits;
  return dst;
}

int Emitter::extent_f32(Extent extent) {
  const int at = extent.arg == Extent::kSegLen ? level() : 0;
  const Key key = key_of({kExtentKey, extent.arg, extent.add});
  return known_or(key, LeafOp::k_extent_f32, at, [&](Inst& i) { i.extent = extent; });
}

int Emitter::index_i32(Extent extent, const LoopContext* loop, bool lanes) {
  const int at = loop == nullptr && extent.arg != Extent::kSegLen ? 0 : level();
  const Key key = key_of({kIndexKey, extent.arg, extent.add, loop == nullptr ? 0 : loop->id, lanes ? 1 : 0});
  return known_or(key, LeafOp::k_index_i32, at, [&](Inst& i) {
    i.extent = extent;
    i.var = loop == nullptr ? -1 : loop->var;
    i.imm = lanes ? 1 : 0;
  });
}

Emitter::Key Emitter::access_key(const Access& at, int mask) {
  const int64_t form = 2 * static_cast<int64_t>(at.type) + (at.uniform() ? 0 : 1);
  Key key = key_of({kAccessKey, at.slot, at_slot(memory_id_, at.slot), mask_class(mask), form});
  key.add(at.base);
  for (const LoopContext* loop : loops_) {
    const Linear* stride = at.loops.find(loop);
    if (stride == nullptr) continue;
    key.add(loop->id);
    key.add(*stride);
  }
  return key;
}

int Emitter::load(const Access& at, int mask) {
  if (at.uniform()) mask = -1;
  const Key key = access_key(at, mask);
  const uint64_t hash = KeyTable::hash(key.span());
  if (const int reg = known(key, hash); reg >= 0) return reg;
  if (mask >= 0) {
    // An unmasked load or store of the same place serves as well: lanes off are never looked at
    // unmasked.
    const Key whole = access_key(at, -1);
    if (const int reg = known(whole, KeyTable::hash(whole.span())); reg >= 0) return reg;
  }
  const int dst = fresh();
  load_into(dst, at, mask);
  remember(key, hash, dst, level());
  return dst;
}

void Emitter::load_into(int home, const Access& at, int mask) {
  const Mem from = mem(at);
  Inst& i = emit(at.uniform() ? LeafOp::k_load_bcast : LeafOp::k_load, home, level());
  i.type = at.type;
  i.mask = at.uniform() ? -1 : mask;
  i.mem = from;
  touch(home);
}

void Emitter::store(const Access& at, int value, int mask, bool stream) {
  if (at.uniform()) mask = -1;
  const Mem to = mem(at);
  const bool streams = stream && mask < 0 && at.element > 1;
  const LeafOp whole = streams ? LeafOp::k_store_stream : LeafOp::k_store;
  Inst& i = emit(at.uniform() ? LeafOp::k_store_lane0 : whole, -1, level());
  i.src[0] = value;
  i.mask = mask;
  i.mem = to;
  i.type = at.type;
  stored(at.slot);
  if (at.type != MemType::b32) return;  // what is read again is what memory kept of the lanes
  const Key key = access_key(at, mask);
  remember(key, KeyTable::hash(key.span()), value, level());
}

int Emitter::compare(LeafOp op, int a, int b) {
  const Key key = key_of({static_cast<int64_t>(op), content(a).value, content(b).value});
  const uint64_t hash = KeyTable::hash(key.span());
  if (const int mask = known_in(&Frame::masks, key, hash); mask >= 0) return mask;
  const int dst = program_->num_masks++;
  Inst& i = emit(op, dst, level());
  i.src[0] = a;
  i.src[1] = b;
  top().masks.set(key.span(), hash, {dst, 0});
  return dst;
}

int Emitter::mask_tail(Extent extent, const LoopContext* loop, int64_t add) {
  const bool invariant = loop == nullptr && extent.arg != Extent::kSegLen;
  const int at = invariant && !scarce_masks() ? 0 : level();
  const Key key = key_of({kTailKey, extent.arg, extent.add, loop == nullptr ? 0 : loop->id, add});
  const uint64_t hash = KeyTable::hash(key.span());
  if (!(scarce_masks() && tight_)) {
    if (const int mask = known_in(&Frame::masks, key, hash); mask >= 0) return mask;
  }
  const int dst = program_->num_masks++;
  Inst& i = emit(LeafOp::k_mask_tail, dst, at);
  i.extent = extent;
  i.var = loop == nullptr ? -1 : loop->var;
  i.var_add = add;
  frames_[at].masks.set(key.span(), hash, {dst, 0});
  if (tail_classes_.find(key.span(), hash) == nullptr) tail_classes_.set(key.span(), hash, {dst, 0});
  at_slot(mask_class_, dst) = tail_classes_.find(key.span(), hash)->reg + 1;
  return dst;
}

// Masks made anew for each use count as one where values are compared.
int Emitter::mask_class(int mask) const {
  if (mask < 0 || static_cast<size_t>(mask) >= mask_class_.size()) return mask;
  return mask_class_[mask] == 0 ? mask : mask_class_[mask] - 1;
}

// There is no instruction on two masks: lanes of 1.0 pass through both and are compared.
int Emitter::mask_and(int a, int b) {
  if (a < 0 || a == b) return b;
  if (b < 0) return a;
  const int zero = constant(0.0f), one = constant(1.0f);
  const int both = op(LeafOp::k_blend, {zero, op(LeafOp::k_blend, {zero, one}, 0, a)}, 0, b);
  return compare(LeafOp::k_cmp_eq, both, one);
}

void Emitter::prefetch(int ptr, int64_t bytes, int cache) {
  Inst& i = emit(cache == 2 ? LeafOp::k_prefetch_l2 : LeafOp::k_prefetch, -1, level());
  i.mem.ptr = ptr;
  i.mem.disp = static_cast<int32_t>(bytes);
}

void Emitter::prefetch(const Access& at, int64_t bytes, int cache) {
  Access ahead = at;
  ahead.base.bytes += bytes;
  const Mem line = mem(ahead);
  emit(cache == 2 ? LeafOp::k_prefetch_l2 : LeafOp::k_prefetch, -1, level()).mem = line;
}

int Emitter::new_ptr(PtrInit init) {
  program_->ptrs.push_back(std::move(init));
  return static_cast<int>(program_->ptrs.size()) - 1;
}
int Emitter::base_ptr(int slot) {
  if (const Base& b = at_slot(base_, slot); b.ptr >= 0) return b.ptr;
  int& known = at_slot(bases_, slot);
  if (known == 0) {
    PtrInit init;
    init.slot = slot;
    known = new_ptr(std::move(init)) + 1;
  }
  return known - 1;
}

// ptr + offset, computed in frame `level`.
int Emitter::derived(int ptr, const Linear& offset, int level) {
  if (offset.zero()) return ptr;
  Key key = key_of({kDerivedKey, ptr});
  key.add(offset);
  const uint64_t hash = KeyTable::hash(key.span());
  if (const int known = known_in(&Frame::ptrs, key, hash); known >= 0) return known;
  const int out = new_ptr();
  int from = ptr;
  std::vector<PtrTerm> terms = terms_of(offset, 1);
  int64_t bytes = offset.bytes;
  do {
    Node n(memory_);
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
  frames_[level].ptrs.set(key.span(), hash, {out, 0});
  return out;
}

// A copy of ptr, made before the loop, that moves with it.
int Emitter::bumped(LoopContext* loop, int ptr, const Linear& per_iteration) {
  Key key = key_of({kBumpedKey, loop->id, ptr});
  key.add(per_iteration);
  const uint64_t hash = KeyTable::hash(key.span());
  if (const int known = known_in(&Frame::ptrs, key, hash); known >= 0) return known;
  Node n(memory_);
  n.kind = Node::Kind::set_ptr;
  n.from = ptr;
  const int out = new_ptr();
  n.steps.push_back({out, 0, {}});
  frames_[loop->level].out->push_back(std::move(n));
  loop->bumps.push_back({out, per_iteration});
  frames_[loop->level].ptrs.set(key.span(), hash, {out, 0});
  return out;
}

// indexed: an index may be part of the address.
Mem Emitter::mem(const Access& at, bool indexed) {
  const auto stride_of = [&](const LoopContext* loop) { return at.loops.find(loop); };
  const LoopContext* last = nullptr;
  for (const LoopContext* loop : loops_) {
    if (stride_of(loop) != nullptr) last = loop;
  }
  Mem out;
  const LoopContext* by_var = nullptr;
  if (indexed && last != nullptr && !last->by_pointer && stride_of(last)->constant()) {
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
  if (indexed && by_var == nullptr) {
    for (size_t d = 0; d < rest.strides.size(); ++d) {
      int64_t& mult = rest.strides[d];
      const int64_t part = mult % 3;
      if (mult < 0 || part == 0) continue;
      out.index_kind = Mem::Index::stride;
      out.index = rest.first + static_cast<int>(d);
      out.scale = static_cast<int>(part);
      mult -= part;
      break;
    }
  }
  int ptr = base_ptr(at.slot);
  int level = at_slot(base_, at.slot).level;
  for (LoopContext* loop : loops_) {
    const Linear* stride = stride_of(loop);
    if (stride == nullptr || loop == by_var) continue;
    if (stride->constant() && !rest.zero()) {
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
