// See operator.h.
#include "runtime/serve/operator.h"

namespace lathe::runtime {

ir::Result<std::shared_ptr<Operator>> Operator::create(std::shared_ptr<Context> context, const ops::Graph& finished) {
  LATHE_ASSIGN(Definition definition, Definition::of(finished));
  return std::shared_ptr<Operator>(new Operator(std::move(context), std::move(definition)));
}

}  // namespace lathe::runtime
