// See plant.h: each leaf is replaced by one that is interpreted here.
#include "runtime/plant.h"

#include <unistd.h>

#include <array>

namespace lathe::runtime {

struct PlantedLeaf {
  LeafRef real;
  int calls = 0;
};

namespace {

using Interpret = void (*)(const void* program, const ir::LeafArgs& args);

PlantedLeaf& leaf_of(const void* program) {
  return *static_cast<PlantedLeaf*>(const_cast<void*>(program));
}

void idle(const void*, const ir::LeafArgs&) {}
void hang(const void*, const ir::LeafArgs&) {
  for (volatile bool on = true; on;) usleep(1000);
}
void crash(const void*, const ir::LeafArgs&) { __builtin_trap(); }
void leave(const void*, const ir::LeafArgs&) { _exit(3); }
void overread(const void* program, const ir::LeafArgs& args) {
  leaf_of(program).real(&args);
  const volatile char* p = args.op[0].ptr;
  for (int64_t i = 0; i < int64_t{1} << 32; ++i) (void)p[i];
}
void flaky(const void* program, const ir::LeafArgs& args) {
  PlantedLeaf& leaf = leaf_of(program);
  if (++leaf.calls > 1) {
    ir::LeafArgs other = args;
    for (int i = 1; i < ir::kMaxLeafOperands; ++i) {
      if (other.op[i].ptr != nullptr) other.op[0].ptr = other.op[i].ptr;
    }
    leaf.real(&other);
  } else {
    leaf.real(&args);
  }
}

constexpr std::array<std::pair<std::string_view, Interpret>, 6> kPlants = {{{"idle", idle},
                                                                            {"hang", hang},
                                                                            {"crash", crash},
                                                                            {"exit", leave},
                                                                            {"overread", overread},
                                                                            {"flaky", flaky}}};

}  // namespace

ir::Status plant(std::string_view fault, Stage* stage, PlantedLeaves* keep) {
  if (fault.empty()) return {};
  for (const auto& [name, interpret] : kPlants) {
    if (name != fault) continue;
    for (LeafRef& leaf : stage->leaves) {
      keep->push_back(std::make_shared<PlantedLeaf>(PlantedLeaf{leaf, 0}));
      leaf = {nullptr, interpret, keep->back().get()};
    }
    return {};
  }
  return ir::invalid("{} is no fault to plant", fault);
}

}  // namespace lathe::runtime
