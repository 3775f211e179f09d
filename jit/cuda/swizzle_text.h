// What the text says of swizzled memory: where an element lies, and how a tile there is told to a group of warps.
#pragma once
#include <set>
#include <string>
#include <utility>

#include "ir/analysis/analysis.h"
#include "jit/cuda/device_program.h"
#include "jit/cuda/integer_text.h"

namespace lathe::jit {

// A sum in two parts, of which the first is a multiple of `by`.
inline std::pair<ir::Expr, ir::Expr> split_sum(const ir::Expr& e, int64_t by) {
  if (e->op == ir::Op::k_add) {
    const auto a = split_sum(e->args[0], by), b = split_sum(e->args[1], by);
    return {ir::simplify(a.first + b.first), ir::simplify(a.second + b.second)};
  }
  if (ir::is_const_int(e)) return {ir::Expr(e->ival / by * by), ir::Expr(e->ival % by)};
  return ir::proves_divisible(e, by, {}) ? std::pair{e, ir::Expr(0)} : std::pair{ir::Expr(0), e};
}
// The bits of an element's number that change with the line it is in.
inline int swizzle_mask(const DeviceShared& s) { return (s.swizzle - ir::kPieceBytes) / dtype_bytes(s.type); }
// Both preludes have lt_swizzled, of elements of 2 bytes in lines of 128; others stand in the text.
inline constexpr int kSwizzleOfPreludes = 56;
inline std::string swizzle_function(int mask) {
  return mask == kSwizzleOfPreludes ? "lt_swizzled" : fmt::format("lt_swizzled_{}", mask);
}
// Whole groups of lines are left out of what is swizzled, since it does not depend on them: so most of it is the same
// for many elements of a thread. further: added to the element, or nothing.
inline std::string swizzled_text(const DeviceShared& s, const ir::Expr& element, const std::string& further) {
  const auto [groups, rest] = split_sum(element, ir::kSwizzledLines * s.line());
  const std::string swizzled = fmt::format("{}({}{})", swizzle_function(swizzle_mask(s)), integer_text(rest), further);
  return ir::is_const_int(groups, 0) ? swizzled : fmt::format("({} + {})", integer_text(groups), swizzled);
}
inline std::string place_in(const DeviceShared& s, const ir::Expr& element, const std::string& further) {
  if (s.swizzle == 0) return fmt::format("{} + {}{}", s.name, integer_text(element), further);
  return fmt::format("{} + {}", s.name, swizzled_text(s, element, further));
}
// Those that the program uses and preludes do not have.
inline std::string swizzle_functions(const DeviceProgram& p) {
  std::set<int> masks;
  for (const DeviceShared& s : p.shared) {
    if (s.swizzle != 0) masks.insert(swizzle_mask(s));
  }
  masks.erase(kSwizzleOfPreludes);
  std::string out;
  for (const int mask : masks)
    out += fmt::format("LT_FUNCTION lt_int {}(lt_int at) {{ return at ^ (at >> 3 & {}); }}\n", swizzle_function(mask),
                       mask);
  return out;
}
// A tile is named by its first line, as if it were not swizzled. lt_tile is of lines of 128 bytes; those of 64 and of 32
// are the next numbers in the two highest bits.
inline std::string tile_in(const DeviceShared& s, const std::string& element, const DeviceTile& t) {
  const int bytes = dtype_bytes(s.type), further = s.swizzle == 64 ? 1 : s.swizzle == 32 ? 2 : 0;
  return fmt::format("lt_tile({} + {}, {}, {}){}", s.name, element, t.lines * bytes, t.panels * bytes,
                     further == 0 ? "" : fmt::format(" + ({}ull << 62)", further));
}

}  // namespace lathe::jit
