// Integers of a device program in all threads of a block at once, as far as they are known without sizes.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ir/analysis/analysis.h"

namespace lathe::jit {

// For each thread; of one element: the same range in all of them, and the same value. Conditions are 0 and 1.
using ThreadValues = std::vector<ir::Interval>;

class ThreadNames {
 public:
  void set(const std::string& name, ThreadValues values) { values_[name] = std::move(values); }
  // Of an expression of these names; a name that is not there may be anything.
  ThreadValues of(const ir::Expr& e) const;

 private:
  std::map<std::string, ThreadValues, std::less<>> values_;
};

}  // namespace lathe::jit
