// What is known of the lower 16 bits of each vector register's lanes: a store as bf16 that need not round, or need not
// look for NaN, does not. Counts on nothing but the operations; memory forgets, but for elements that are bf16.
#pragma once
#include <memory_resource>
#include <vector>

#include "jit/program/leaf_program.h"

namespace lathe::jit::x64 {

// Each holds for all lanes; facts are added up.
inline constexpr uint8_t kZeroIfNan = 1;  // its lower half is zero if it is NaN: rounding leaves it NaN
inline constexpr uint8_t kZero = 2;       // its lower half is zero
inline constexpr uint8_t kSignOnly = 4;   // all bits but the sign are zero
inline constexpr uint8_t kShifted = 8;    // an integer that was shifted there, no f32

// By vector register; empty where nothing is stored as bf16.
std::pmr::vector<uint8_t> low_halves(const LeafProgram& program);

}  // namespace lathe::jit::x64
