// See assembler.h.
#include "jit/x64/assembler.h"

#include <algorithm>

#include "jit/program/tile_shape.h"

namespace lathe::jit::x64 {
namespace {

// Index of bits in the pool, added if new.
int pool_index(std::vector<uint32_t>& pool, uint32_t bits) {
  const auto it = std::find(pool.begin(), pool.end(), bits);
  if (it != pool.end()) return static_cast<int>(it - pool.begin());
  pool.push_back(bits);
  return static_cast<int>(pool.size()) - 1;
}

// Byte i of 32.
uint64_t pack_byte(Assembler::Pack pack, int i) {
  using Pack = Assembler::Pack;
  constexpr uint64_t kNone = 0x80;  // a zero, to vpshufb
  if (pack == Pack::odd_halves) return i % 2 == 0 ? static_cast<uint64_t>(i + 1) : 0;
  if (pack == Pack::spread_words) return static_cast<uint64_t>(i % 2 == 0 ? 31 : i / 2);
  if (pack == Pack::spread) return i % 4 < 2 ? kNone : static_cast<uint64_t>(i / 4 * 2 + i % 4 - 2);
  const int at = i % 16, bytes = pack == Pack::bytes ? 1 : 2, first = pack == Pack::high_halves ? 2 : 0;
  return at < 4 * bytes ? static_cast<uint64_t>(at / bytes * 4 + first + at % bytes) : kNone;
}

}  // namespace

Assembler::Assembler(uint8_t* buffer) : CodeGenerator(kMaxImageCode, buffer) { Xbyak::ClearError(); }

int Assembler::scalar_offset(uint32_t bits) { return 4 * pool_index(scalars_, bits); }

Address Assembler::scalar_constant(uint32_t bits) { return ptr[rip + scalar_offset(bits) + scalar_label_]; }

Address Assembler::broadcast_constant(uint32_t bits) { return ptr_b[rip + scalar_offset(bits) + scalar_label_]; }

Address Assembler::wide_constant(uint32_t bits) { return ptr[rip + 32 * pool_index(wide_, bits) + wide_label_]; }

Address Assembler::iota_constant(int lanes) {
  iota_lanes_ = std::max(iota_lanes_, lanes);
  return ptr[rip + iota_label_];
}

Address Assembler::pack_constant(Pack pack) {
  pack_used_[static_cast<size_t>(pack)] = true;
  return ptr[rip + pack_label_[static_cast<size_t>(pack)]];
}

Address Assembler::tile_config(const uint8_t (&rows)[kMaxTiles]) {
  constexpr size_t kBytesOfRow = 16, kRows = 48;  // where they stand: two bytes and one byte a tile
  tiles_.assign(64, 0);
  tiles_[0] = 1;  // the palette
  for (size_t t = 0; t < kMaxTiles; ++t) {
    const int bytes = rows[t] != 0 ? tile_row_bytes(rows, static_cast<int>(t)) : 0;
    tiles_[kBytesOfRow + 2 * t] = static_cast<uint8_t>(bytes);
    tiles_[kRows + t] = rows[t];
  }
  return ptr[rip + tiles_label_];
}

ir::Status Assembler::finish(uint32_t* text_bytes) {
  while (getSize() % 64 != 0 && Xbyak::GetError() == Xbyak::ERR_NONE) int3();
  *text_bytes = static_cast<uint32_t>(getSize());
  L(tiles_label_);
  for (const uint8_t byte : tiles_) db(byte);
  L(wide_label_);
  for (const uint32_t bits : wide_) {
    for (int i = 0; i < 8; ++i) dd(bits);
  }
  L(iota_label_);
  for (int i = 0; i < iota_lanes_; ++i) dd(static_cast<uint32_t>(i));
  for (size_t pack = 0; pack < kPacks; ++pack) {
    L(pack_label_[pack]);
    for (int i = 0; i < 32 && pack_used_[pack]; ++i) db(pack_byte(static_cast<Pack>(pack), i), 1);
  }
  L(scalar_label_);
  for (const uint32_t bits : scalars_) dd(bits);
  if (const int error = Xbyak::GetError(); error != Xbyak::ERR_NONE) {
    Xbyak::ClearError();
    return ir::unsupported("xbyak: {}", Xbyak::ConvertErrorToString(error));
  }
  if (hasUndefinedLabel()) return ir::internal_error("xbyak: a label was never placed");
  return {};
}

}  // namespace lathe::jit::x64
