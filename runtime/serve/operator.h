// An operator as it is served, in four parts:
//
//   Definition    what it is: graph, Kernels, problems and queries; never changes
//   Stages        what is ready to run for its Kernels: prepare() makes them, then they stay
//   BoundShapes   the shapes that calls came with, each bound once
//   Live          candidates beside what serves, in its place, and back
//
// Thread-safe once it is prepared. All that calls may hold lives as long as the operator.
#pragma once
#include <memory>

#include "runtime/serve/live.h"

namespace lathe::runtime {

class Operator : public Definition {
 public:
  static ir::Result<std::shared_ptr<Operator>> create(std::shared_ptr<Context> context, const ops::Graph& finished);

  Context& context() { return *context_; }
  Stages& stages() { return stages_; }
  const Stages& stages() const { return stages_; }
  BoundShapes& shapes() { return shapes_; }
  const BoundShapes& shapes() const { return shapes_; }
  Live& live() { return live_; }

 private:
  Operator(std::shared_ptr<Context> context, Definition definition)
      : Definition(std::move(definition)), context_(std::move(context)) {}

  std::shared_ptr<Context> context_;
  Stages stages_{*context_, *this};
  BoundShapes shapes_{*context_, *this, stages_};
  Live live_{*context_, *this, shapes_};
};

}  // namespace lathe::runtime
