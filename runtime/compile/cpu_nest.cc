// See cpu_nest.h.
#include "runtime/compile/cpu_nest.h"

#include "runtime/walk/nest_walk.h"

namespace lathe::runtime {
namespace {

class BoundCpuNest final : public BoundExecutable {
 public:
  BoundCpuNest(BoundNest nest, const LeafRef* leaves)
      : BoundExecutable(nest.workspace_bytes), nest_(std::move(nest)), leaves_(leaves) {}
  void run(void* const* params, void* workspace, ThreadTeam* team) const override {
    walk(nest_, leaves_, params, workspace, team);
  }
  OneCall one_call() const override {
    if (!nest_.direct || leaves_ == nullptr) return {};
    return {&*nest_.direct, leaves_ + nest_.direct->leaf};
  }

 private:
  const BoundNest nest_;
  const LeafRef* const leaves_;
};

}  // namespace

ir::Result<std::unique_ptr<const BoundExecutable>> CpuNest::bind(const SymbolValues& symbols,
                                                                 const std::vector<ArgLayout>& layouts,
                                                                 int threads) const {
  LATHE_ASSIGN(BoundNest nest, bind_nest(cut, symbols, layouts, threads));
  return std::unique_ptr<const BoundExecutable>(std::make_unique<BoundCpuNest>(std::move(nest), leaves.data()));
}

}  // namespace lathe::runtime
