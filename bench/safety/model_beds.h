// The Kernels of language models that faults are planted in, as they are written and as they are scheduled, and an
// independent judge of what a fault changes: the interpreter, on data of its own that keep to what operators demand.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/safety/kernel_faults.h"
#include "ir/base/status.h"
#include "runtime/compile/compiler.h"
#include "runtime/oracle/oracle.h"

namespace lathe::safety {

// One Kernel of a bed: what it is written as, or what a Schedule makes of it.
struct Form {
  std::string name;  // "written", "default", "narrow sums"
  search::Scheduled scheduled;
  std::vector<KernelFault> faults;
};

class Bed {
 public:
  std::string group, name;  // "quantised", "quantized_matmul 12"
  ir::Kernel naive;
  std::set<std::string> rising;  // integers that do not fall
  std::vector<Form> forms;

  // Of all Stages of the bed.
  ir::Result<runtime::Oracle*> oracle();
  // A Stage of the form with the fault. UNSUPPORTED: the fault is refused before code is made.
  ir::Result<runtime::Stage> build(const Form& form, const KernelFault& fault, runtime::LeafCache& cache) const;
  // Where the results of a Stage with the fault differ from those of the form without it; empty: nowhere. What the
  // fault changes in cells of registers that code never reads, or always starts from zero, is no difference.
  ir::Result<std::string> difference(const Form& form, const KernelFault& fault, const runtime::Stage& stage) const;

 private:
  std::unique_ptr<runtime::Oracle> oracle_;
};

// Every bed of model_families.def whose group's name has `only` in it.
ir::Result<std::vector<Bed>> make_beds(const std::string& only);

}  // namespace lathe::safety
