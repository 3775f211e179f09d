// Every leaf that the first call of an operator of the shipped manifests makes: of the default Schedules, packing
// included, for both vector levels. Small operands, and extents that end inside a vector wherever the leaf allows it;
// the interpreter, the portable executor and machine code must agree.
#include <set>

#include "ir/analysis/analysis.h"
#include "runtime/serve/operator.h"
#include "search/cut/cut.h"
#include "search/sketches/recipe.h"
#include "tests/common/workload_rows.h"
#include "tests/jit/lower/leaf_case.h"

namespace lathe::runtime {
namespace {

const char* const kManifests[] = {"limits",       "minilm-l6",    "bert-base",
                                  "smollm2-135m", "qwen2.5-0.5b", "llama3-8b-layer"};
constexpr int64_t kRagged[] = {19,
                               11};  // neither a vector nor a square; within a panel of the second where it has to be
constexpr int64_t kSteps = 9;        // of a segment: two rounds of four and one left over

void collect(const search::Problem& problem, const ir::Target& target, std::set<std::string>& leaves) {
  auto kernel = search::replay(problem.kernel, search::default_schedule(problem, target));
  ASSERT_TRUE(kernel.ok()) << problem.kernel.name << ": " << kernel.status().to_string();
  const auto cut = search::cut(*kernel);
  ASSERT_TRUE(cut.ok()) << problem.kernel.name << ": " << cut.status().to_string();
  for (const ir::Leaf& leaf : cut->leaves) {
    EXPECT_EQ(leaf.text, ir::print(leaf.kernel)) << "programs are named, and kept, by the text";
    leaves.insert(leaf.text);
  }
  for (const ir::Buffer& b : kernel->buffers) {
    if (b.place != ir::Place::constant || b.layout.empty()) continue;
    auto pack = search::pack_kernel(*kernel, b.name);
    ASSERT_TRUE(pack.ok()) << pack.status().to_string();
    search::Problem p;
    p.kernel = std::move(*pack);
    collect(p, target, leaves);
  }
}

// Leaf texts of all manifests, each once.
std::set<std::string> manifest_leaves(const ir::Target& target) {
  std::set<std::string> leaves;
  auto context = Context::create({});
  EXPECT_TRUE(context.ok());
  for (const char* name : kManifests) {
    for (const ops::Workload& item : test::workload_rows(name)) {
      const auto graph = ops::finish(item.graph);
      EXPECT_TRUE(graph.ok()) << graph.status().to_string();
      const auto op = Operator::create(*context, *graph);
      EXPECT_TRUE(op.ok()) << op.status().to_string();
      PrepareRequest request;
      request.threads = item.threads;
      request.cold = item.cache == ops::CacheState::cold;
      for (size_t k = 0; k < (*op)->lowered().kernels.size(); ++k) {
        collect((*op)->general_problem(static_cast<int>(k), true, request), target, leaves);
      }
    }
  }
  return leaves;
}

// The size each operand needs where symbols have these values, and strides around what the leaf fixes of them.
std::vector<jit::OperandShape> shapes_of(const ir::Kernel& leaf, const ir::SymbolValues& symbols) {
  std::vector<jit::OperandShape> shapes;
  for (const ir::Buffer& b : leaf.buffers) {
    if (b.place != ir::Place::reg) shapes.push_back({std::vector<int64_t>(b.dims.size(), 1), {}});
  }
  const auto access = [&](const std::string& name, const std::vector<ir::Expr>& index, const ir::Ranges& ranges) {
    const auto number = static_cast<size_t>(leaf.find_buffer(name) - leaf.buffers.data());
    if (number >= shapes.size()) return;
    for (size_t d = 0; d < index.size(); ++d) {
      shapes[number].dims[d] = std::max(shapes[number].dims[d], ir::interval(index[d], ranges).hi + 1);
    }
  };
  const std::function<void(const std::vector<ir::Stmt>&, const ir::Ranges&)> visit = [&](const auto& body,
                                                                                         const ir::Ranges& ranges) {
    for (const ir::Stmt& s : body) {
      if (s.kind == ir::Stmt::Kind::scope) {
        ir::Ranges inner = ranges;
        inner.enter(s);
        visit(s.body, inner);
      } else if (s.kind == ir::Stmt::Kind::assign) {
        access(s.target, s.index, ranges);
        ir::for_each_node(s.value, [&](const ir::ExprNode& n) {
          if (n.op == ir::Op::k_load) access(n.name, n.args, ranges);
        });
      }
    }
  };
  ir::Ranges ranges(leaf);
  for (const auto& [name, value] : symbols) ranges.set(name, {value, value});
  visit(leaf.body, ranges);
  for (size_t i = 0; i < shapes.size(); ++i) {
    jit::OperandShape& shape = shapes[i];
    const std::vector<ir::Expr>& strides = leaf.buffers[i].strides;
    shape.strides.assign(shape.dims.size(), 0);
    int64_t inside = 1;  // elements the strides so far spread over
    for (size_t d = 0; d < shape.dims.size(); ++d) {
      if (!strides[d]) continue;
      shape.strides[d] = strides[d]->ival;
      inside = std::max(inside, shape.dims[d] * strides[d]->ival);
    }
    for (size_t d = shape.dims.size(); d-- > 0;) {
      if (strides[d]) continue;
      shape.strides[d] = inside + 3;
      inside = shape.strides[d] * shape.dims[d];
    }
  }
  return shapes;
}

// Whether two elements share an address: a baked stride shorter than what lies inside it.
bool overlaps(const jit::OperandShape& s) {
  for (size_t d = 0; d < s.dims.size(); ++d) {
    for (size_t e = 0; e < s.dims.size(); ++e) {
      const bool outer = s.strides[d] > s.strides[e] || (s.strides[d] == s.strides[e] && d < e);
      if (outer && s.dims[d] > 1 && s.dims[e] * s.strides[e] > s.strides[d]) return true;
    }
  }
  return false;
}

// Leaves of `target`, run by every kind of executor of as many lanes.
void expect_leaves(const ir::Target& target) {
  const std::set<std::string> leaves = manifest_leaves(target);
  EXPECT_GT(leaves.size(), 40u);
  for (const std::string& text : leaves) {
    const auto leaf = ir::parse_kernel(text);
    ASSERT_TRUE(leaf.ok()) << leaf.status().to_string() << "\n" << text;
    ir::SymbolValues symbols;
    std::vector<jit::OperandShape> shapes;
    // An output that states its width is undefined past its extent: it is filled.
    int64_t width = 0;
    for (const ir::Buffer& b : leaf->buffers) {
      if (b.place == ir::Place::out && !b.dims.empty() && b.dims.back()) width = b.dims.back()->ival;
    }
    for (const int64_t ragged : kRagged) {
      for (const ir::Symbol& s : leaf->symbols) {
        symbols[s.name] = s.name == "seglen"  ? kSteps
                          : s.multiple_of > 1 ? 2 * s.multiple_of
                                              : std::clamp(width > 0 ? width : ragged, s.min, s.max);
      }
      shapes = shapes_of(*leaf, symbols);
      if (std::none_of(shapes.begin(), shapes.end(), overlaps)) break;
    }
    jit::LeafCase c(text, shapes, symbols, jit::Data::normal);
    const auto want = c.expected();
    for (const ir::Target& t : jit::test_targets()) {
      if (t.lanes != target.lanes) continue;
      const auto program = c.lower(t);
      ASSERT_TRUE(program.ok()) << program.status().to_string() << "\n" << text;
      ASSERT_EQ(jit::LeafCase::compare(c.run(*program), want, 1e-4, 1e-4), "") << text << to_text(*program);
      ASSERT_EQ(jit::x64_difference(c, *program), "") << text << to_text(*program);
    }
  }
}

TEST(ManifestLeaves, AgreeAtSixteenLanes) { expect_leaves(jit::test_target(ir::IsaLevel::avx512)); }

TEST(ManifestLeaves, AgreeAtEightLanes) { expect_leaves(jit::test_target(ir::IsaLevel::avx2)); }

}  // namespace
}  // namespace lathe::runtime
