// The only door to xbyak: a code buffer of fixed size and the constants behind the code. xbyak runs without exceptions
// here (an encoding it refuses is remembered and reported by finish()); nothing of it leaves this folder.
#pragma once
#define XBYAK_NO_EXCEPTION
#include <xbyak/xbyak.h>

#include <cstdint>
#include <vector>

#include "ir/base/status.h"
#include "jit/image/image.h"
#include "jit/program/leaf_program.h"

namespace lathe::jit::x64 {

using Xbyak::Address;
using Xbyak::Label;
using Xbyak::Operand;
using Xbyak::Opmask;
using Xbyak::Reg32;
using Xbyak::Reg64;
using Xbyak::RegExp;
using Xbyak::Tmm;
using Xbyak::Xmm;
using Xbyak::Ymm;
using Xbyak::Zmm;

class Assembler : public Xbyak::CodeGenerator {
 public:
  // buffer: kMaxImageCode, aligned to 64.
  explicit Assembler(uint8_t* buffer);

  // RIP-relative addresses of constants: 32 bits once, 32 bits eight times over, 0 1 2 .. 7 as i32.
  Address scalar_constant(uint32_t bits);
  Address broadcast_constant(uint32_t bits);  // as an embedded broadcast of scalar_constant
  Address wide_constant(uint32_t bits);
  Address iota_constant(int lanes = 8);
  // For vpshufb: the low bytes, low halves or high halves of the lanes of each 128 bits, side by side at its start; or
  // the way back: of eight halves that each 128 bits hold, the first four in the one, the last four in the other, as
  // high halves of lanes. odd_halves is for vpermw: the high halves of all lanes side by side. spread_words is the way
  // back, of bytes that become words: halves 0 to 15 as high halves of lanes, half 31, a zero, below each.
  enum class Pack : uint8_t { bytes, low_halves, high_halves, spread, odd_halves, spread_words };
  static constexpr size_t kPacks = 6;
  Address pack_constant(Pack pack);

  // What ldtilecfg reads: tiles of so many rows of 64 bytes, 0: none.
  Address tile_config(const uint8_t (&rows)[kMaxTiles]);

  // Appends the constants. text_bytes: where they start.
  ir::Status finish(uint32_t* text_bytes);

 private:
  int scalar_offset(uint32_t bits);

  Label wide_label_, scalar_label_, iota_label_, pack_label_[kPacks];
  std::vector<uint32_t> wide_, scalars_;
  Label tiles_label_;
  std::vector<uint8_t> tiles_;
  int iota_lanes_ = 0;
  bool pack_used_[kPacks] = {};
};

}  // namespace lathe::jit::x64
