// What a walk calls for a leaf: native code, or an interpreter of leaf programs (tier T0). A plain
// value; whoever made the code or the program keeps it alive.
#pragma once
#include "ir/leaf_abi.h"

namespace lathe::runtime {

struct LeafRef {
  ir::LeafFn fn = nullptr;  // null: interpret(program, args)
  void (*interpret)(const void* program, const ir::LeafArgs& args) = nullptr;
  const void* program = nullptr;

  void operator()(const ir::LeafArgs* args) const {
    if (fn != nullptr) {
      fn(args);
    } else {
      interpret(program, *args);
    }
  }
};

}  // namespace lathe::runtime
