// A list of statements gets names and values of its own, so that another list may define them as well.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ir/core/kernel.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// One more than the largest number of a value that the list defines.
inline int next_value(const std::vector<DeviceStmt>& list) {
  int out = 0;
  for (const DeviceStmt& s : list) out = std::max({out, s.value + 1, next_value(s.body), next_value(s.otherwise)});
  return out;
}

class Renaming {
 public:
  // Values get the numbers from `value` on; null: they keep theirs.
  explicit Renaming(const char* suffix, int* value = nullptr) : suffix_(suffix), value_(value) {}

  void run(std::vector<DeviceStmt>& list) {
    for (DeviceStmt& s : list) {
      if (s.kind == DeviceStmt::Kind::index && !s.name.empty()) names_[s.name] = s.name + suffix_;  // of its own lanes
      for (ir::Expr* e : {&s.integer, &s.step}) *e = renamed(*e);
      for (ir::Expr& e : s.at) e = renamed(e);
      for (DevicePlace& at : s.places) at.offset = renamed(at.offset);
      if (!s.name.empty()) s.name = names_[s.name] = s.name + suffix_;
      for (DeviceOperand& o : s.operands) {
        if (const auto to = values_.find(o.value); to != values_.end()) o.value = to->second;
      }
      if (value_ != nullptr && s.value >= 0) s.value = values_[s.value] = (*value_)++;
      run(s.body);
      run(s.otherwise);
    }
  }

 private:
  ir::Expr renamed(const ir::Expr& e) const {
    if (!e) return e;
    return ir::rewrite(e, [&](const ir::Expr& n) -> ir::Expr {
      const auto to = n->op == ir::Op::k_iter ? names_.find(n->name) : names_.end();
      return to == names_.end() ? ir::Expr() : ir::iter(to->second);
    });
  }

  const char* suffix_;
  int* value_;
  std::map<std::string, std::string> names_;
  std::map<int, int> values_;
};

}  // namespace lathe::jit
