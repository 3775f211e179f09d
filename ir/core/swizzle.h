// The swizzle of a shared buffer: pieces of 16 bytes change places inside of their lines, differently in lines
// that follow each other: in eight ways with 128 bytes, four with 64, two with 32. So threads that access pieces below
// each other meet different banks. It is a matter of addresses alone: indices, the interpreter and every proof know
// nothing of it.
//
//   swizzle N: byte b lies at  b ^ (b >> 3 & (N - 16)),  N = 32, 64 or 128 bytes of a line
//
// A byte stays in its line, and memory begins at a multiple of eight lines.
#pragma once
#include <cstdint>

#include "ir/base/status.h"
#include "ir/core/kernel.h"

namespace lathe::ir {

inline constexpr int kSwizzledLines = 8;  // after which lines are exchanged as before
inline constexpr int kPieceBytes = 16;
inline bool is_swizzle(int64_t bytes) { return bytes == 32 || bytes == 64 || bytes == 128; }

// Whether its innermost physical dimension is whole lines of so many bytes.
bool has_whole_lines(const Buffer& buffer, int64_t bytes);
// Whether it has whole groups of eight such lines.
bool has_whole_groups(const Buffer& buffer, int64_t bytes);
// INVALID, naming the rule: the swizzle that it states is none that it may have.
Status check_swizzle(const Buffer& buffer);

}  // namespace lathe::ir
