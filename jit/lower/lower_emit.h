// The emitting half of the lowering: appends instructions to the block being built, gives equal
// values one register, and finds an address for every access. Knows nothing of the Kernel.
//
// Blocks. A frame is a list of nodes under construction: the program's body, the body of a loop, of
// an if, of segments. Values and pointers made in a frame are known to the frames inside it. Code
// may be placed in an outer frame: it lands before the node being built there (constants leave
// loops that way). Values. Registers are assigned once, except those made by home(): their content
// changes in place, and touch() tells that it did. Loads are known again until a store to the same
// operand; operands are taken not to overlap, except an input and an output that are exactly equal
// and processed element by element. Addresses. [ptr + index] with one index: the loop variable
// where its stride is 1, 2, 4 or 8 bytes a step, or a run-time stride times 1 or 2 (so one pointer
// serves three rows). Other strides of a loop are pointer steps.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "ir/base/status.h"
#include "jit/lower/lower_index.h"
#include "jit/program/leaf_program.h"

namespace lathe::jit {

// A loop being built: its main node and what follows it (a masked tail, a remainder) share the
// variable and the pointers. The variable counts width * iterations.
struct LoopContext {
  struct Bump {
    int ptr;
    Linear per_iteration;
  };
  int id = 0;
  int level = 0;  // the frame that holds the loop
  int var = -1;
  int64_t width = 1;
  bool by_pointer = false;  // never address by the variable
  bool full = false;        // inside: var + width <= extent
  Extent extent;
  std::vector<Bump> bumps;
};

// What is known under keys that are sequences of numbers: an open table over the numbers of all keys
// in one row.
class KeyTable {
 public:
  struct Value {
    int reg;
    int64_t id;
  };
  explicit KeyTable(std::pmr::memory_resource* memory) : entries_(memory), numbers_(memory), slots_(memory) {}
  static uint64_t hash(std::span<const int64_t> key);
  Value* find(std::span<const int64_t> key, uint64_t hash);
  void set(std::span<const int64_t> key, uint64_t hash, Value value);
  void clear();

 private:
  struct Entry {
    uint64_t hash;
    uint32_t begin, size;
    Value value;
  };
  void grow();
  std::pmr::vector<Entry> entries_;
  std::pmr::vector<int64_t> numbers_;
  std::pmr::vector<int32_t> slots_;  // index into entries_, -1: free; a power of two of them
};

class Emitter {
 public:
  Emitter(LeafProgram* program, std::pmr::memory_resource* memory)
      : program_(program), memory_(memory), frames_(memory), registers_(memory), tail_classes_(memory) {
    frames_.reserve(8);
    registers_.reserve(256);
    push_frame(&program->body);
  }

  // Errors are kept: the first one wins, and what is emitted after it does not matter.
  int fail(ir::Status status);
  bool ok() const { return status_.ok(); }
  const ir::Status& status() const { return status_; }
  LeafProgram& program() { return *program_; }
  bool scarce_masks() const { return program_->mask_registers == 0; }  // masks are vectors, or made anew

  // Frames.
  int level() const { return depth_ - 1; }
  void push_frame(Nodes* out, size_t likely_nodes = 0);
  void pop_frame() { --depth_; }
  void append(Node node) { top().out->push_back(std::move(node)); }
  // Straight code emitted once and repeated: what the innermost frame got since mark(), with registers
  // and masks of its own, addresses through moving[i].ptr moved by `times` of its steps.
  struct Mark {
    size_t node;
    int vregs, masks;
  };
  Mark mark() const { return {top().out->size(), program_->num_vregs, program_->num_masks}; }
  // The instructions since `from`; nothing if other nodes stand among them.
  std::pmr::vector<Inst> since(const Mark& from) const;
  // False, and nothing emitted, if an address would leave its 32 bits.
  bool repeat(std::span<const Inst> code, const Mark& from, std::span<const LoopContext::Bump> moving, int64_t times);
  // The code from begins[0] on, copies of one another that start at `begins` of the innermost frame: in turns, as far
  // as registers allow (lower_interleave.cc). Registers in `kept` are read later; those in `held` hold values
  // throughout.
  void interleave(std::span<const size_t> begins, std::span<const int> kept, std::span<const int> held);
  // The same for groups of sums of bytes, after await_groups(): what is to be interleaved within them waits until it is
  // known whether the groups are.
  void interleave_groups(std::span<const size_t> begins, std::span<const int> kept, std::span<const int> held);
  // False if others are awaited already.
  bool await_groups() {
    if (waiting_in_ >= 0) return false;
    waiting_in_ = depth_;
    return true;
  }
  void forget_values();  // values known so far: not kept in registers across what follows
  // In a tight block every register counts: where masks take vector registers they are made anew
  // for each use.
  void set_tight(bool tight) { tight_ = tight; }

  // Loops in scope, outermost first.
  LoopContext* new_loop();
  void enter(LoopContext* loop) { loops_.push_back(loop); }
  void leave() { loops_.pop_back(); }
  static void finish(const LoopContext& loop, int64_t iterations, Node& node);

  // Values. op() may return a register made before; op_into() always emits, to a register from
  // home().
  int op(LeafOp op, std::span<const int> sources, uint32_t imm = 0, int mask = -1);
  int op(LeafOp op, std::initializer_list<int> sources, uint32_t imm = 0, int mask = -1) {
    return this->op(op, std::span<const int>(sources.begin(), sources.size()), imm, mask);
  }
  void op_into(int dst, LeafOp op, std::initializer_list<int> sources, int mask = -1);
  int constant(float value);
  int constant_bits(uint32_t bits);
  int extent_f32(Extent extent);
  // The variable of a loop (null: 0) and an extent as i32, plus the number of the lane if asked for.
  int index_i32(Extent extent, const LoopContext* loop, bool lanes);
  // Lanes, or one element in every lane if the access is uniform. load_into(): always, to a register from home().
  int load(const Access& at, int mask);
  // Even where a register has it.
  int load_anew(const Access& at) {
    const int dst = fresh();
    load_into(dst, at, -1);
    return dst;
  }
  void load_into(int home, const Access& at, int mask);
  void store(const Access& at, int value, int mask, bool stream = false);
  int compare(LeafOp op, int a, int b);  // a mask
  int mask_tail(Extent extent, const LoopContext* loop, int64_t add);
  int mask_and(int a, int b);
  // Tiles, as Inst::imm numbers them; rows of memory lie `step` apart, which is a number or multiple of one stride.
  void tile(LeafOp op, uint32_t tiles);
  void tile(LeafOp op, int number, const Access& at, const Linear& step);
  // cache: 1 or 2, the level that the line is brought to.
  void prefetch(int ptr, int64_t bytes, int cache);
  void prefetch(const Access& at, int64_t bytes, int cache);

  int home();                                             // a register whose content changes
  void set_constant(int home, uint32_t bits, int level);  // placed in frame `level`
  void touch(int home) { content(home).value = next_id_++; }
  bool is_home(int reg) const { return content(reg).home; }
  void stored(int slot) { ++at_slot(memory_id_, slot); }

  // home = home where mask is off, make() where it is on, in a branch of its own that is seldom taken.
  template <class Make>
  void amend(int home, int mask, Make&& make) {
    Node n(memory_);
    n.kind = Node::Kind::if_any;
    n.mask = mask;
    push_frame(&n.body);
    op_into(home, LeafOp::k_blend, {home, make()}, mask);
    pop_frame();
    append(std::move(n));
  }

  // Pointers and variables.
  int new_ptr(PtrInit init = {});
  int new_var() { return program_->num_vars++; }
  void override_base(int slot, int ptr, int level) { at_slot(base_, slot) = {ptr, level}; }
  void restore_base(int slot) { base_[slot] = {}; }
  int base_ptr(int slot);
  int moved_ptr(const Access& at);  // the operand's, moved by the loops in scope as the access is

 private:
  // The numbers of one key; a fixed place, since keys are made for every instruction.
  struct Key {
    std::array<int64_t, 64> numbers;
    size_t size = 0;
    void add(int64_t n) { numbers[size++] = n; }
    void add(const Linear& l);
    std::span<const int64_t> span() const { return {numbers.data(), size}; }
  };
  struct Frame {
    explicit Frame(std::pmr::memory_resource* memory) : values(memory), masks(memory), ptrs(memory) {}
    Nodes* out = nullptr;
    KeyTable values, masks, ptrs;
  };
  struct Register {
    int64_t value = 0;      // equal numbers, equal contents
    int64_t constant = -1;  // its bits, -1 if it is none
    bool home = false;
  };
  struct Base {
    int ptr = -1, level = 0;
  };
  static Key key_of(std::initializer_list<int64_t> numbers);
  template <class T>
  static T& at_slot(std::vector<T>& list, int slot) {
    if (static_cast<size_t>(slot) >= list.size()) list.resize(static_cast<size_t>(slot) + 1);
    return list[static_cast<size_t>(slot)];
  }
  // What interleave() is given, and the end of the copies.
  struct Turns {
    std::vector<size_t> begins;
    size_t end = 0;
    std::vector<int> kept, held;
  };
  bool take_turns(const Turns& turns, bool by_weights);
  int fresh();
  Register& content(int reg) { return registers_[static_cast<size_t>(reg)]; }
  const Register& content(int reg) const { return registers_[static_cast<size_t>(reg)]; }
  Frame& top() { return frames_[static_cast<size_t>(depth_ - 1)]; }
  const Frame& top() const { return frames_[static_cast<size_t>(depth_ - 1)]; }
  int mask_class(int mask) const;
  int known(const Key& key, uint64_t hash);
  void remember(const Key& key, uint64_t hash, int reg, int level);
  template <class Fill>
  int known_or(const Key& key, LeafOp op, int level, Fill&& fill);
  int known_in(KeyTable Frame::* table, const Key& key, uint64_t hash);
  int derived(int ptr, const Linear& offset, int level);
  int bumped(LoopContext* loop, int ptr, const Linear& per_iteration);
  Mem mem(const Access& at, bool indexed = true);
  Key access_key(const Access& at, int mask);
  Inst& emit(LeafOp op, int dst, int level);

  LeafProgram* program_;
  std::pmr::memory_resource* memory_;
  ir::Status status_;
  std::pmr::vector<Frame> frames_;  // depth_ of them in use; the others keep their memory for the next
  int depth_ = 0;
  std::vector<LoopContext*> loops_;
  std::vector<std::unique_ptr<LoopContext>> all_loops_;
  std::pmr::vector<Register> registers_;
  int64_t next_id_ = 0;
  std::vector<int64_t> memory_id_;  // by operand: how often it was stored to
  std::vector<int> bases_;          // by operand: its pointer + 1, 0 if none yet
  std::vector<Base> base_;          // by operand: the pointer that stands for it for now
  bool tight_ = false;
  int waiting_in_ = -1;  // the depth of the frame whose copies wait for their groups
  std::vector<Turns> waiting_;
  std::vector<int> mask_class_;  // by mask
  KeyTable tail_classes_;
};

}  // namespace lathe::jit
