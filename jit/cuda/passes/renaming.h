// Names that a list of statements defines, so that another list may define them as well.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ir/core/kernel.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

class Renaming {
 public:
  explicit Renaming(const char* suffix) : suffix_(suffix) {}

  void run(std::vector<DeviceStmt>& list) {
    for (DeviceStmt& s : list) {
      if (s.kind == DeviceStmt::Kind::index && !s.name.empty()) names_[s.name] = s.name + suffix_;  // of its own lanes
      for (ir::Expr* e : {&s.integer, &s.step}) *e = renamed(*e);
      for (ir::Expr& e : s.at) e = renamed(e);
      for (DevicePlace& at : s.places) at.offset = renamed(at.offset);
      if (!s.name.empty()) s.name = names_[s.name] = s.name + suffix_;
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
  std::map<std::string, std::string> names_;
};

}  // namespace lathe::jit
