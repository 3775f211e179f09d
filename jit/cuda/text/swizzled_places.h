// What the text says of swizzled memory: where an element lies, and how a tile there is told to a group of warps.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "jit/cuda/device_program.h"

namespace lathe::jit {

// The text of an element of shared memory. further: added to the element, or nothing.
std::string place_in(const DeviceShared& s, const ir::Expr& element, const std::string& further);
// Functions that the program uses and preludes do not have.
std::string swizzle_functions(const DeviceProgram& p);
// A tile is named by its first line, as if it were not swizzled.
std::string tile_in(const DeviceShared& s, const std::string& element, const DeviceTile& t);

// Where elements of swizzled memory lie, as far as that depends on the thread alone: it is found out once, at the start
// of a kernel, and kept in a register. Left to itself the compiler finds it out again in each step of a loop, which
// takes as many instructions as all else of a product.
//
//   s1[4096*(thread // 64) + 64*(thread % 8) + 8*(thread // 16 % 2) + 16384*q0 + 1024*i1]
//     -> z0 = kept 4096*(thread // 64) + swizzled(64*(thread % 8) + 8*(thread // 16 % 2))
//        s1 + (16384*q0 + 1024*i1 + z0)
class KeptPlaces {
 public:
  // Of squares that warps read, and of copies.
  explicit KeptPlaces(const DeviceProgram& program);
  // The text at the start of a kernel, a line each.
  const std::vector<std::string>& declarations() const { return declarations_; }
  // The text of that element; empty: nothing of it is kept.
  std::string find(const DevicePlace& at) const;

 private:
  // An element in parts: what is kept, as text, and all else, of whole groups of swizzled lines.
  struct Parts {
    std::string kept;
    ir::Expr others;
  };
  Parts parts(const DevicePlace& at) const;
  void find_names(const std::vector<DeviceStmt>& list);
  void look(const std::vector<DeviceStmt>& list);

  const DeviceProgram& p_;
  std::vector<std::pair<std::string, ir::Expr>> of_thread_;  // names that the program gives to what depends on it alone
  std::map<std::string, ir::Expr> defined_;                  // all names
  bool alike_ = true;                                        // a name stands for one thing wherever it is
  std::map<std::string, std::string> names_;                 // of what is kept
  std::vector<std::string> declarations_;
};

}  // namespace lathe::jit
