// Device programs with one statement changed.
#pragma once
#include <vector>

#include "jit/cuda/device_program.h"

namespace lathe::test {

// f(list, i) of each statement of a kind, in the order of the text.
template <class F>
void visit(std::vector<jit::DeviceStmt>& list, jit::DeviceStmt::Kind kind, const F& f) {
  for (size_t i = 0; i < list.size(); ++i) {
    visit(list[i].body, kind, f);
    visit(list[i].otherwise, kind, f);
    if (list[i].kind == kind) f(list, i);
  }
}

inline int count_of(jit::DeviceProgram program, jit::DeviceStmt::Kind kind) {
  int out = 0;
  visit(program.body, kind, [&](auto&, size_t) { ++out; });
  return out;
}

// Without its statement number `which` of a kind.
inline jit::DeviceProgram without(jit::DeviceProgram program, jit::DeviceStmt::Kind kind, int which) {
  std::vector<jit::DeviceStmt>* list = nullptr;
  size_t at = 0;
  visit(program.body, kind, [&](std::vector<jit::DeviceStmt>& found, size_t i) {
    if (which-- == 0) list = &found, at = i;
  });
  if (list != nullptr) list->erase(list->begin() + static_cast<std::ptrdiff_t>(at));
  return program;
}

}  // namespace lathe::test
