// What the threads of a block have to wait for, derived from the dependences of a device leaf: no Schedule says it, so
// none can forget it.
#pragma once
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/analysis/thread_share.h"

namespace lathe::jit {

struct ThreadPlan {
  // Statements before which, and loops at whose end, all threads meet: one may touch a cell next that another has
  // touched, and one of them stores it.
  std::set<const ir::Stmt*> barrier_before, barrier_last;
  // @block scopes, and the reg buffers that the threads of each reduce together.
  std::map<const ir::Stmt*, std::vector<std::string>> reduced;
  // Shared memory that inputs are copied to while other places of it are used: t[i % S] (see the move `pipeline`).
  std::set<std::string> rings;
  // Of elements of a byte, which the instructions of warps read as they lie, four in a register.
  std::set<std::string> bytes;
  // Shared memory that the hardware copies boxes to.
  std::set<std::string> boxed;
  // The @role scope, which holds boxes alone, and the loops around it in a block, the outermost first: the last one
  // goes from place to place. Null: all threads do the same.
  const ir::Stmt* role = nullptr;
  std::vector<const ir::Stmt*> role_loops;
  // Places that are filled are counted: there are several loops, or a block goes on with other iterations of the grid.
  bool counts = false;
  bool around_role(const ir::Stmt& s) const {
    return &s == role || std::find(role_loops.begin(), role_loops.end(), &s) != role_loops.end();
  }
  // Loops in which what is copied in one iteration is used so many iterations later.
  std::map<const ir::Stmt*, int> ahead;
  // Statements with any of these inside: all threads go through them.
  std::set<const ir::Stmt*> waits;
};
// UNSUPPORTED: iterations of a @block scope that depend on each other in another way; a @role scope of another form.
ir::Result<ThreadPlan> plan_threads(const ir::Kernel& leaf);

}  // namespace lathe::jit
