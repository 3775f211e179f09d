// Which vector registers are needed in their first lane only, and which slow operations may be done there and repeated:
// what has as many lanes takes as many times as long (divisions), or two slots of pipes of half the width.
#pragma once
#include <memory_resource>
#include <vector>

#include "jit/program/leaf_program.h"

namespace lathe::jit::x64 {

enum class Lanes : uint8_t {
  all,
  first,    // nothing reads the others
  repeated  // a slow operation on what is the same in all lanes: one lane of it, then in every lane
};

struct OneLane {
  explicit OneLane(std::pmr::memory_resource* memory) : vectors(memory), masks(memory) {}
  std::pmr::vector<Lanes> vectors;  // by vector register; empty: all lanes of everything
  std::pmr::vector<uint8_t> masks;  // by mask: whether nothing reads but the first lane
  Lanes of_result(const Inst& inst) const;
};

OneLane one_lane(const LeafProgram& program);

}  // namespace lathe::jit::x64
