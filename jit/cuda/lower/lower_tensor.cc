// What the threads of a warp do together: a @tensor scope of a row of warp_ops.def. Which element each thread has is a
// matter of the share of the buffers (ir/analysis/thread_share.h, ir/analysis/fragments.def); here the elements of lane
// 0 name the registers, which are the same in all lanes.
#include "ir/analysis/intrinsics.h"
#include "ir/core/text_form.h"
#include "jit/cuda/lower/lowering.h"

namespace lathe::jit {

using ir::Expr;
using ir::Result;
using ir::Status;
using ir::Stmt;
using ir::unsupported;

namespace {

// From the marked scope down to its only statement.
struct Nest {
  explicit Nest(const Stmt& outermost) {
    for (statement = &outermost; statement->kind == Stmt::Kind::scope; statement = &statement->body[0])
      iterators.push_back(statement->iter);
  }
  std::vector<std::string> iterators;
  const Stmt* statement;
};

using At = std::vector<std::pair<std::string, Expr>>;

// What a product of squares reads of its factors of rows and of columns.
struct Factors {
  explicit Factors(const Nest& nest) {
    ir::for_each_node(nest.statement->value, [&](const ir::ExprNode& e) {
      if (e.op != ir::Op::k_load) return;
      const bool of_rows =
          std::any_of(e.args.begin(), e.args.end(), [&](const Expr& x) { return ir::uses(x, nest.iterators[1]); });
      (of_rows ? rows : columns) = &e;
    });
  }
  const ir::ExprNode *rows = nullptr, *columns = nullptr;
};

bool is_factor_of_columns(const ir::Kernel& kernel, const std::string& buffer) {
  bool found = false;
  ir::for_each_stmt(kernel.body, [&](const Stmt& s) {
    WarpOp op{};
    const WarpOpRow* row = s.mark == ir::Mark::tensor ? find_warp_op(s.intrinsic, &op) : nullptr;
    if (row == nullptr || row->moves() || row->goes_on()) return;
    found = found || Factors(Nest(s)).columns->name == buffer;
  });
  return found;
}

}  // namespace

Result<DevicePlace> DeviceLowering::element(const std::string& buffer, const std::vector<Expr>& index,
                                            const At& at) const {
  DevicePlace out = place_of_.at(buffer);
  std::vector<Expr> of_lane;
  for (const Expr& e : named(buffer, index)) of_lane.push_back(ir::simplify(ir::substitute(e, at), ranges_));
  out.offset = ir::simplify(offset_of(*kernel_.find_buffer(buffer), of_lane), ranges_);
  return out;
}

Status DeviceLowering::tensor(const Stmt& s, int64_t threads, List& to) {
  DeviceStmt out;
  out.kind = DeviceStmt::Kind::warp;
  const WarpOpRow* row = find_warp_op(s.intrinsic, &out.warp);
  if (row == nullptr) return unsupported("scope {} is {}, which no GPU has", s.iter, s.intrinsic);
  if (threads != row->threads)
    return unsupported("{} threads share out {} in scope {}, expected {}", threads, s.intrinsic, s.iter,
                       row->goes_on() ? "four warps" : "a warp");
  if (row->goes_on()) return warpgroup(s, std::move(out), to);
  const Nest nest(s);
  const auto add = [&](const std::string& buffer, const std::vector<Expr>& index, const At& at) {
    Result<DevicePlace> place = element(buffer, index, at);
    if (place.ok()) out.places.push_back(std::move(*place));
    return place.status();
  };
  const Stmt& is = *nest.statement;
  const int64_t neighbours = lanes_at_once(row->type);  // in 16 bytes
  if (row->moves()) {
    const std::string &i = nest.iterators[0], &j = nest.iterators[1];
    // Square q is the q-th register of the lanes, and lanes 8*q.. say where its rows lie. Two squares are of one line.
    // Registers of a factor follow each other as a product takes them: of one of columns, its two of the same column.
    const bool turned = out.warp == WarpOp::k_ldmatrix_trans || out.warp == WarpOp::k_ldmatrix_x2_trans;
    const int64_t count = static_cast<int64_t>(std::string_view(row->results).size()), lines = count / 2;
    const bool columns = lines > 1 && is_factor_of_columns(kernel_, is.target);
    const Expr eight(8);
    const auto squares = [&](const Expr& first, const Expr& second) {
      const bool swapped = turned != columns;
      return At{{i, (swapped ? second : first) * eight}, {j, (swapped ? first : second) * Expr(neighbours)}};
    };
    for (int64_t q = 0; q < count; ++q)
      LATHE_RETURN_IF_ERROR(add(is.target, is.index, squares(Expr(q % lines), Expr(q / lines))));
    const Expr thread = ir::iter("thread");
    const auto half = [&](int64_t of) { return ir::mod(ir::floordiv(thread, Expr(of)), Expr(2)); };
    At rows = lines == 1 ? squares(Expr(0), half(8)) : squares(half(8), half(16));
    rows[0].second = rows[0].second + ir::mod(thread, eight);
    LATHE_RETURN_IF_ERROR(add(is.value->name, is.value->args, rows));
  } else {
    const std::string &k = nest.iterators[0], &m = nest.iterators[1], &n = nest.iterators[2];
    const Factors factors(nest);
    const ir::ExprNode *a = factors.rows, *b = factors.columns;
    for (int64_t q = 0; q < 4; ++q)
      LATHE_RETURN_IF_ERROR(add(is.target, is.index, {{m, Expr(q / 2 * 8)}, {n, Expr(q % 2)}}));
    for (int64_t q = 0; q < 4; ++q)
      LATHE_RETURN_IF_ERROR(add(a->name, a->args, {{m, Expr(q % 2 * 8)}, {k, Expr(q / 2 * neighbours)}}));
    for (int64_t q = 0; q < 2; ++q)
      LATHE_RETURN_IF_ERROR(add(b->name, b->args, {{n, Expr(0)}, {k, Expr(q * neighbours)}}));
  }
  to.push_back(std::move(out));
  return {};
}

}  // namespace lathe::jit
