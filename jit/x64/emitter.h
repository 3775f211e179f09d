// One leaf program to instructions, over an Allocation: what the emit_*.cc files share. One object per image; not
// thread-safe.
#pragma once
#include <deque>
#include <functional>
#include <optional>

#include "jit/host/host_cpu.h"
#include "jit/program/leaf_program.h"
#include "jit/x64/assembler.h"
#include "jit/x64/low_halves.h"
#include "jit/x64/one_lane.h"
#include "jit/x64/registers.h"

namespace lathe::jit::x64 {

class Emitter {
 public:
  Emitter(Assembler& assembler, const LeafProgram& program, const Shape& shape, const Allocation& allocation);

  ir::Status run();
  uint64_t features() const { return features_; }
  uint32_t stack_bytes() const { return stack_bytes_; }

 private:
  // The sources of an instruction as registers, or one of them in memory (memory >= 0).
  struct Sources {
    Xmm reg[3];
    int memory = -1;
    const Operand& operand(int i, const std::optional<Address>& address) const {
      return i == memory ? static_cast<const Operand&>(*address) : reg[i];
    }
  };

  // Instructions that are seldom needed: behind the code, which jumps to `start` and goes on at `back`, or at `none`
  // where they find that none of them is needed.
  struct Aside {
    std::function<void()> emit;
    Label start, back, none;
  };

  // emit_control.cc
  Aside& aside(std::function<void()> emit);
  void prologue();
  void epilogue();
  void preload(const Preload& p);
  void begin(const Item& item);
  void end(const Item& item);
  void load_extent(const Reg64& to, const Extent& extent);
  void compare_extent(const Reg64& value, const Extent& extent);
  void set_pointer(const Node& node);
  void step_pointer(const PtrStep& step);
  void add_terms(const Reg64& to, const std::vector<PtrTerm>& terms, int64_t bytes);
  void add_immediate(const Reg64& to, int64_t value);
  Reg64 general(int id, const Reg64& scratch);         // a register that holds the value
  Reg64 general_target(int id, const Reg64& scratch);  // a register to compute it in; then store_general
  void store_general(int id, const Reg64& from);
  Address stack_slot(int id);
  Address stride_in_args(int stride);

  // emit_memory.cc
  void load(const Inst& inst);
  void store(const Item& item, const Sources& s);
  void store_stream(const RegExp& to, const Xmm& value);
  void store_lanes(const RegExp& to, const Xmm& value, int count);
  void find_constant_masks(const Nodes& body);
  int short_vector(int mask, const Xmm& of);
  static std::optional<int> constant_lanes(const Inst& inst, int lanes);  // that a mask_tail turns on
  void mask_tail(const Inst& inst);
  void constant_mask(int mask, int lanes);
  void extent_f32(const Inst& inst);
  void index_i32(const Inst& inst);
  void constant(const Xmm& to, uint32_t bits);
  RegExp address(const Mem& mem);
  void tile(const Inst& inst);

  // emit_narrow.cc: elements in memory that are not lanes
  void load_narrow(const Inst& inst, const Xmm& to, const RegExp& from);
  void load_one(MemType type, const Xmm& to, const RegExp& from);
  void widen(MemType type, const Xmm& to, const Operand& from);
  void store_narrow(const Item& item, const Xmm& value, const RegExp& to);
  void store_pair(const Item& item, const Xmm& second);
  void store_one(const Item& item, const Xmm& value, const RegExp& to);
  void narrow(MemType type, const Operand& to, const Xmm& value);  // AVX-512
  Xmm packed(const Item& item, const Xmm& value);                  // the elements at the start of a temporary
  Aside& where_denormal(const Xmm& rounded, const Xmm& scratch, std::vector<Xmm> values, std::function<void()> slow);
  void round_to_bf16(const Xmm& to, const Xmm& other, const Xmm& value, bool some_nan);
  void add_half(const Xmm& to, const Xmm& value);

  // emit_arith.cc
  void instruction(const Item& item);
  void operation(const Item& item, const Sources& s);
  Sources sources(const Item& item);
  void vector_op(const Inst& inst, const Sources& s);
  void move_to(const Xmm& to, const Operand& from);
  void fused(const Inst& inst, const Sources& s, bool negated);
  void dot4(const Item& item, const Sources& s);
  void dot2(const Item& item, const Sources& s);
  void compare(const Inst& inst, const Sources& s);
  void blend(const Inst& inst, const Sources& s);
  void unary(const Inst& inst, const Sources& s);
  void shuffle128(const Inst& inst, const Sources& s);

  // emit_reduce.cc
  void reduce(const Item& item, const Sources& s);
  void prefix_add(const Item& item, const Sources& s);
  void last_lane(const Inst& inst, const Sources& s);
  void combine(LeafOp op, const Xmm& to, const Xmm& x, const Xmm& y);

  Xmm vec(int virtual_register) const { return physical(a_.vector[virtual_register]); }
  Xmm physical(int reg) const { return sized(reg, lanes_); }
  static Xmm sized(int reg, int lanes);
  Xmm mask_vec(int mask) const { return vec(p_.num_vregs + mask); }  // AVX2
  Opmask mask_k(int mask) const { return Opmask(a_.mask[mask]); }    // AVX-512
  void use(uint64_t features) { features_ |= features; }

  Assembler& as_;
  const LeafProgram& p_;
  const Shape& shape_;
  const Allocation& a_;
  std::optional<Address> memory_;  // the memory operand of the instruction at hand
  std::vector<Label> labels_;      // two per region: its start, its end
  static constexpr int8_t kUnsetLanes = -1, kAnyLanes = -2;
  std::pmr::vector<uint8_t> low_halves_;
  OneLane one_lane_;
  int lanes_;  // of the instruction at hand
  std::deque<Aside> asides_;
  int free_mask_ = 0;               // AVX-512: a mask register that no mask has; 0: none
  std::vector<int8_t> mask_lanes_;  // by mask: the lanes from 0 on that it always has on, or one of these two
  uint64_t features_ = 0;
  uint32_t stack_bytes_ = 0;
  size_t next_preload_ = 0;
};

}  // namespace lathe::jit::x64
