// The largest elements of each row, in descending order, with their indices.
//
//   for b [row]:
//     a = inf;  j = -1
//     for o < k [rank]:
//       m = -inf;  for n [col]:  m fmax= select(after, s, -inf)           after: s < a, or s == a and j < n
//       f = -inf;  for n1 [col]: f fmax= select(after and s == m, -n1, -inf)
//       a = m;  j = -f;  d = m;  t0 = j, or -1 if j is infinite
//
// Each pass takes what comes behind the element of the one before: a smaller one, or an equal one of a larger index.
// Indices are f32 inside, which are exact. Comparisons with NaN are false: it is never taken. Operands s, t0, d.
#include <algorithm>
#include <limits>

#include "ops/kernel_writer.h"
#include "ops/samples.h"
#include "ops/shape.h"

namespace lathe::ops {

using ir::AssignOp;
using ir::DType;
using ir::Expr;
using ir::Op;
using ir::Stmt;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kMostColumns = int64_t{1} << 24;  // numbers of f32

std::span<const DType> operand_dtypes(const OpRow&, size_t) {
  static constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16};
  return kFloats;
}

ir::Result<Shape> infer(const OpRow& row, const Node& node, const Inputs& in) {
  const TensorDesc& x = *in[0];
  LATHE_RETURN_IF_ERROR(need_rank(x, 1, true, row.name));
  LATHE_RETURN_IF_ERROR(need_last_axis(x, attr_int(node, AttrId::axis), row.name));
  const int64_t k = attr_int(node, AttrId::k), most = x.dims.back().max;
  if (k < 0 || k > most)
    return ir::invalid("k {} of {}, expected 0 to {} (last of {})", k, row.name, most, x.name).with_arg(x.name);
  if (most > kMostColumns) return mismatch(x, x.dims.size() - 1, fmt::format("at most {}", kMostColumns));
  Shape out{x.dtype, x.dims, {}};
  out.dims.back() = fixed_dim(k);
  out.more.push_back({DType::i32, out.dims, {}});
  return out;
}

int two_results(const OpRow&) { return 2; }

ir::Result<LoweredKernel> lower_group(KernelWriter& w) {
  const Node& node = w.anchor();
  if (w.view(node.inputs[0]).dims.size() == 1) w.add_row_dim();
  const std::vector<Expr> dims = w.view(node.inputs[0]).dims, outside(dims.begin(), dims.end() - 1);
  const std::vector<std::string> names = iter_names("b", outside.size());
  const Index rows = iters(names);
  w.add_param(node.inputs[0], "s");
  const DType type = w.dtype_of("s");
  for (const char* name : {"a", "j", "m", "f"}) w.add_temp(name, outside);
  const auto cell = [&](const char* name) { return load(name, rows); };
  const auto set = [&](const char* name, Expr value) { return store(name, rows, std::move(value)); };
  const auto x = [&](const char* n) {
    Index at = rows;
    at.push_back(ir::iter(n));
    return as_dtype(DType::f32, ir::load("s", at, type));
  };
  const auto number = [](const char* n) { return ir::cast(DType::f32, ir::cast(DType::i32, ir::iter(n))); };
  const auto both = [](Expr p, Expr q) { return ir::make(Op::k_logical_and, {std::move(p), std::move(q)}); };
  const auto equal = [](Expr p, Expr q) { return ir::make(Op::k_eq, {std::move(p), std::move(q)}); };
  const auto less = [](Expr p, Expr q) { return ir::make(Op::k_lt, {std::move(p), std::move(q)}); };
  const auto after = [&](const char* n) {
    return ir::make(Op::k_logical_or,
                    {less(x(n), cell("a")), both(equal(x(n), cell("a")), less(cell("j"), number(n)))});
  };
  const auto pass = [&](const char* n, const char* target, Expr value) {
    return ir::make_scope(n, dims.back(), {store(target, rows, std::move(value), AssignOp::fmax)}, "col");
  };
  Index at = rows;
  at.push_back(ir::iter("o"));
  std::vector<Stmt> rank;
  rank.push_back(set("m", f32(-kInf)));
  rank.push_back(pass("n", "m", ir::select(after("n"), x("n"), f32(-kInf))));
  rank.push_back(set("f", f32(-kInf)));
  rank.push_back(
      pass("n1", "f",
           ir::select(both(after("n1"), equal(x("n1"), cell("m"))), ir::make(Op::k_neg, {number("n1")}), f32(-kInf))));
  rank.push_back(set("a", cell("m")));
  rank.push_back(set("j", ir::make(Op::k_neg, {cell("f")})));
  rank.push_back(store("d", at, as_dtype(type, cell("m"))));
  const Expr found = ir::select(less(cell("j"), f32(kInf)), cell("j"), f32(-1));
  rank.push_back(store(w.name_also(node.also[0]), at, ir::cast(DType::i32, found)));
  std::vector<Stmt> body = {set("a", f32(kInf)), set("j", f32(-1))};
  body.push_back(ir::make_scope("o", Expr(attr_int(node, AttrId::k)), std::move(rank), "rank"));
  return w.finish("d", nest(names, outside, std::vector<std::string>(names.size(), "row"), std::move(body)));
}

double flops(const Node& node, const NodeSizes& sizes) {
  return static_cast<double>(attr_int(node, AttrId::k)) * elements(sizes.inputs[0]);
}

constexpr int64_t kRanks[] = {1, 3, 8, 0};

int variants(const OpRow& row) { return static_cast<int>(std::size(kRanks) * operand_dtypes(row, 0).size()); }

void operands(Graph& g, const OpRow& row, size_t, int variant, const SampleSizes& s, Node& node) {
  const int64_t k = kRanks[take(variant, static_cast<int>(std::size(kRanks)))];
  node.inputs.push_back(add_tensor(g, "x", with_last(s.others, s.swept), false, take_dtype(variant, row, 0)));
  node.attrs.push_back({"k", std::min(k, s.swept.max)});
}

}  // namespace

constexpr Family families::selection = {
    .name = "selection",
    .operand_dtypes = operand_dtypes,
    .infer = infer,
    .results = two_results,
    .lower = lower_group,
    .flops = flops,
    .share_read = all_read,
    .updates = updates_none,
    .in_place = false,
    .error_rule = ErrorRule::tolerance_of_functions,
    .fusion =
        {.element = std::nullopt, .followed = false, .preceded = 0, .packed = 0, .stored = false, .f32_alone = false},
    .samples = {.axes = kLastAxis,
                .variants = variants,
                .operands = operands,
                .least_others = 0,
                .around = kAnyAround,
                .sizes = any_sizes,
                .one_in = 0},
};

}  // namespace lathe::ops
