// See rehearsal.h.
#include "runtime/capi/rehearsal.h"

#include "jit/lower/lower.h"
#include "jit/program/backend.h"
#include "runtime/serve/definition.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

// A norm of any number of rows: little work that goes through most of what all families share.
Result<ops::Graph> rows() {
  ops::Graph g;
  g.name = "rehearsal";
  const int x = ops::add_tensor(g, "x", {ops::symbol_dim("M", 1, 512), ops::fixed_dim(96)});
  const int scale = ops::add_tensor(g, "scale", {ops::fixed_dim(96)}, true);
  g.outputs = {ops::add_node(g, "rmsnorm", {x, scale}, "y")};
  return ops::finish(g);
}

}  // namespace

Status rehearse_resolve(const ir::Target& target) {
  LATHE_ASSIGN(const ops::Graph graph, rows());
  LATHE_ASSIGN(const Definition definition, Definition::of(graph, target));
  const search::Problem problem = definition.general_problem(0, true, {});
  LATHE_ASSIGN(const Stage stage, cut_stage(problem.kernel, search::default_scheduled(problem, target), {}));
  LATHE_RETURN_IF_ERROR(stage.executable->bind(definition.hinted_dims().back(), {}, 1).status());
  for (const ir::Leaf& leaf : stage.nest().cut.leaves) {
    LATHE_ASSIGN(const jit::LeafProgram program, jit::lower_leaf(leaf.kernel, target, leaf.text));
    LATHE_RETURN_IF_ERROR(jit::compile_xbyak(program, true).status());
  }
  return {};
}

}  // namespace lathe::runtime
