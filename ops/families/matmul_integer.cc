// matmul_integer: y[.., m, n] = f(the i32 sum over k of (a[.., m, k] - za) * (b[.., k, n] - zb[n])), exact.
//
//   [copy a] [row sums of a] [column sums of b, or of a constant when it is packed]
//   for t [batch]: for m [m]: for n [n]:
//     c = 0;  for k [k]: c += a * b;  y = f(c - rows * zb - za * (columns - K * zb))
//
// The products of zero points are taken out of the sum over k, which leaves products of bytes as the instructions have
// them: all of it is arithmetic modulo 2^32, so the result is that of the definition wherever that fits i32, which
// check_integer_product() sees to.
//
// Instructions multiply unsigned by signed bytes, four at a time. So a constant b that is signed as a is, or unsigned
// as a is, has 128 added to its numbers when it is packed, or taken from them, and so has its zero point. Its depth is
// padded to whole fours by bytes that are multiplied by zeros: then a is copied, with zeros at the ends of its rows.
// Where b lies along k and is padded, it is the copy of a that is changed.
#include "ops/families/matmul_integer.h"

#include <algorithm>
#include <iterator>

#include "ir/analysis/analysis.h"
#include "ops/monomial.h"

namespace lathe::ops {

using ir::DType;
using ir::Expr;
using ir::Stmt;

namespace {

constexpr int64_t kQuad = 4;      // bytes of a step
constexpr int64_t kOffset = 128;  // between a signed byte and the unsigned one

Expr i32(int64_t value) { return ir::const_int(value, DType::i32); }
DType other(DType byte) { return byte == DType::i8 ? DType::u8 : DType::i8; }
Expr as_i32(const Expr& e) { return as_dtype(DType::i32, e); }

// The largest absolute value of a byte less its zero point.
int64_t largest(const TensorDesc& bytes, bool zero) { return zero || bytes.dtype == DType::u8 ? 255 : kOffset; }

bool one_element(const TensorDesc& t) {
  return std::all_of(t.dims.begin(), t.dims.end(), [](const DimDesc& d) { return d.fixed() && d.min == 1; });
}

ir::Status check_zero(const TensorDesc& zero, const TensorDesc& bytes, const DimDesc* columns) {
  if (zero.dtype != bytes.dtype) {
    return ir::invalid("dtype {}, expected {} (that of {}, whose zero point it is)", ir::dtype_name(zero.dtype),
                       ir::dtype_name(bytes.dtype), bytes.name)
        .with_arg(zero.name);
  }
  if (one_element(zero)) return {};
  if (columns == nullptr)
    return ir::invalid("several elements, expected one (the zero point of {})", bytes.name)
        .with_arg(zero.name + ".shape");
  LATHE_RETURN_IF_ERROR(need_rank(zero, 1, false, "zero points"));
  if (same_dim(zero.dims[0], *columns)) return {};
  return mismatch(zero, 0, fmt::format("1 or {} (columns of {})", dim_text(*columns), bytes.name));
}

// How an operand is indexed: [.., row, column] with the batch dimensions it has.
struct Side {
  std::string name;
  std::vector<Expr> dims;
  bool turned = false;
  // At these batch indices.
  Index at(const Index& batch, const Expr& row, const Expr& column) const {
    Index index = align(batch, {dims.begin(), dims.end() - 2});
    index.push_back(turned ? column : row);
    index.push_back(turned ? row : column);
    return index;
  }
};

class IntegerProduct {
 public:
  explicit IntegerProduct(KernelWriter& w)
      : w_(w),
        node_(w.anchor()),
        a_given_(w.graph().tensors[static_cast<size_t>(node_.inputs[kBytesA])]),
        b_given_(w.graph().tensors[static_cast<size_t>(node_.inputs[kBytesB])]) {}

  ir::Result<LoweredKernel> run() {
    declare();
    const std::vector<Expr> dims = w_.view(w_.group().output).dims;
    std::vector<std::string> names = iter_names("t", dims.size() - 2);
    const Index batch = iters(names);
    const Expr m = ir::iter("m"), n = ir::iter("n"), k = ir::iter("k");
    Index index = batch;
    index.push_back(m);
    index.push_back(n);
    w_.add_temp("c", dims, DType::i32);
    w_.bind(node_.output, without_zeros(batch, ir::load("c", index, DType::i32), m, n));
    const Expr term = as_i32(ir::load(a_.name, a_.at(batch, m, k), w_.dtype_of(a_.name))) *
                      as_i32(ir::load(b_.name, b_.at(batch, k, n), w_.dtype_of(b_.name)));
    std::vector<Stmt> body;
    body.push_back(store("c", index, i32(0)));
    body.push_back(ir::make_scope("k", padded_, {store("c", index, term, ir::AssignOp::add)}, "k"));
    body.push_back(w_.store_result("y", index));
    std::vector<std::string> roles(names.size(), "batch");
    for (const char* name : {"m", "n"}) {
      names.emplace_back(name);
      roles.emplace_back(name);
    }
    std::vector<Stmt> all = w_.stage();
    std::move(before_.begin(), before_.end(), std::back_inserter(all));
    std::vector<Stmt> product = nest(names, dims, roles, std::move(body));
    std::move(product.begin(), product.end(), std::back_inserter(all));
    return w_.finish("y", std::move(all));
  }

 private:
  // Operands in order, then what is computed of them.
  void declare() {
    const int ta = node_.inputs[kBytesA], tb = node_.inputs[kBytesB];
    a_.turned = attr_bool(node_, AttrId::transpose_a);
    b_.turned = attr_bool(node_, AttrId::transpose_b);
    a_.name = w_.add_operand(ta, "a");
    a_.dims = w_.view(ta).dims;
    depth_ = padded_ = a_.dims[a_.dims.size() - (a_.turned ? 2 : 1)];
    const bool fixed =
        std::all_of(b_given_.dims.begin(), b_given_.dims.end(), [](const DimDesc& d) { return d.fixed(); });
    const bool quads =
        b_given_.constant && b_given_.dims.size() == 2 && b_given_.strides.empty() && fixed && depth_->ival > kQuad;
    quads ? add_packed(tb) : add_plain(tb);
    const bool zero_a = node_.inputs.size() > kZeroA, zero_b = node_.inputs.size() > kZeroB;
    if (zero_a) w_.add_param(node_.inputs[kZeroA], "za");
    if (zero_b) w_.add_param(node_.inputs[kZeroB], "zb");
    if (quads) copy_rows();
    if (zero_b || offset_ != 0) rows_ = sum("rows", a_, true);
    if (zero_a || offset_a_ != 0) columns_ = quads ? packed_sums(tb) : sum("columns", b_, false);
  }

  void add_plain(int tb) {
    b_.name = w_.add_operand(tb, "b");
    b_.dims = w_.view(tb).dims;
  }

  // b as its packed form has it: signed where a is not, its depth whole fours.
  void add_packed(int tb) {
    padded_ = Expr((depth_->ival + kQuad - 1) / kQuad * kQuad);
    const bool pads = padded_->ival != depth_->ival, alike = a_given_.dtype == b_given_.dtype,
               turns = alike && !(pads && b_.turned);
    const int64_t offset = b_given_.dtype == DType::i8 ? kOffset : -kOffset;
    if (alike) (turns ? offset_ : offset_a_) = offset;
    b_.name = "b";
    b_.dims = w_.view(tb).dims;
    summed_ = node_.inputs.size() > kZeroA || offset_a_ != 0;
    if (!turns && !pads && !summed_) {
      w_.add_param(tb, b_.name);
      return;
    }
    ir::Buffer b;
    b.name = b_.name;
    b.type = turns ? other(b_given_.dtype) : b_given_.dtype;
    b.given = b_given_.dtype;
    Index at;
    if (pads) {
      const size_t k = b_.turned ? 1 : 0;
      b.given_dims = b_.dims;
      b_.dims[k] = padded_;
      at = {ir::iter("d0"), ir::iter("d1")};
      at[k] = ir::mod(at[k], depth_);
    }
    b.dims = b_.dims;
    const Expr given = ir::load(b_.name, at, b.given);
    b.made = turns ? ir::cast(b.type, as_i32(given) + i32(offset_)) : given;
    w_.add_part(tb, std::move(b), 0, summed_);
  }

  // The column sums of a constant, as it is given.
  std::string packed_sums(int tb) {
    const std::vector<Expr>& dims = w_.view(tb).dims;
    ir::Buffer sums;
    sums.name = "columns";
    sums.type = DType::i32;
    sums.dims = {dims[b_.turned ? 0 : 1]};
    sums.given = b_given_.dtype;
    sums.given_dims = dims;
    Index at = {ir::iter("d1"), ir::iter("d0")};
    if (b_.turned) std::swap(at[0], at[1]);
    sums.made = as_i32(ir::load(sums.name, at, sums.given));
    w_.add_part(tb, sums, 0, true);
    return sums.name;
  }

  // Rows of a in one piece each, with zeros behind them.
  void copy_rows() {
    const std::vector<Expr>& strides = w_.view(node_.inputs[kBytesA]).strides;
    const bool apart = !strides.empty() && !ir::is_const_int(strides.back(), 1);
    if (!a_.turned && !apart && padded_->ival == depth_->ival) return;
    Side rows{"ap", a_.dims, false};
    rows.dims[rows.dims.size() - 2] = a_.dims[a_.dims.size() - (a_.turned ? 1 : 2)];
    rows.dims.back() = padded_;
    const DType type = offset_a_ != 0 ? other(a_given_.dtype) : a_given_.dtype;
    w_.add_temp(rows.name, rows.dims, type);
    const auto fill = [&](const std::string& stem, const Expr& extent, const Expr& first, const auto& value) {
      std::vector<std::string> names = iter_names(stem + "t", rows.dims.size() - 2);
      const Index batch = iters(names);
      std::vector<Expr> extents(rows.dims.begin(), rows.dims.end() - 1);
      extents.push_back(extent);
      names.push_back(stem + "m");
      names.push_back(stem + "k");
      const Expr m = ir::iter(stem + "m"), k = ir::iter(stem + "k");
      std::vector<Stmt> scopes = nest(names, extents, std::vector<std::string>(names.size(), "prologue"),
                                      {store(rows.name, rows.at(batch, m, first ? first + k : k), value(batch, m, k))});
      std::move(scopes.begin(), scopes.end(), std::back_inserter(before_));
    };
    fill("p", depth_, Expr(), [&](const Index& batch, const Expr& m, const Expr& k) {
      const Expr given = ir::load(a_.name, a_.at(batch, m, k), a_given_.dtype);
      return offset_a_ != 0 ? ir::cast(type, as_i32(given) + i32(offset_a_)) : given;
    });
    if (padded_->ival != depth_->ival) {
      fill("z", Expr(padded_->ival - depth_->ival), depth_,
           [&](const Index&, const Expr&, const Expr&) { return ir::cast(type, i32(0)); });
    }
    a_ = rows;
  }

  // The sums of an operand along k, of as many elements as are given.
  std::string sum(const std::string& name, const Side& of, bool of_rows) {
    std::vector<Expr> dims = of.dims;
    const bool k_last = of_rows != of.turned;
    dims.erase(dims.end() - (k_last ? 1 : 2));
    std::vector<std::string> names = iter_names(name + "_t", dims.size() - 1);
    const Index batch = iters(names);
    names.push_back(name + "_i");
    const Expr i = ir::iter(name + "_i"), k = ir::iter(name + "_k");
    Index index = batch;
    index.push_back(i);
    w_.add_temp(name, dims, DType::i32);
    const Expr element = ir::load(of.name, of_rows ? of.at(batch, i, k) : of.at(batch, k, i), w_.dtype_of(of.name));
    std::vector<Stmt> body;
    body.push_back(store(name, index, i32(0)));
    body.push_back(
        ir::make_scope(name + "_k", depth_, {store(name, index, as_i32(element), ir::AssignOp::add)}, "sums"));
    std::vector<Stmt> scopes = nest(names, dims, std::vector<std::string>(names.size(), "sums"), std::move(body));
    std::move(scopes.begin(), scopes.end(), std::back_inserter(before_));
    return name;
  }

  // The sum of products less what the zero points add to it.
  Expr without_zeros(const Index& batch, Expr sum, const Expr& m, const Expr& n) {
    const auto along = [&](const std::string& name, const Side& side, const Expr& i) {
      Index index = align(batch, {side.dims.begin(), side.dims.end() - 2});
      index.push_back(i);
      return ir::load(name, std::move(index), DType::i32);
    };
    const auto zero = [&](const char* name, size_t operand, const Expr& i) {
      const TensorDesc& t = w_.graph().tensors[static_cast<size_t>(node_.inputs[operand])];
      const Index index(t.dims.size(), one_element(t) ? Expr(0) : i);
      return as_i32(ir::load(name, index, t.dtype));
    };
    Expr zero_b;  // null: 0
    if (node_.inputs.size() > kZeroB) zero_b = zero("zb", kZeroB, n);
    if (!rows_.empty()) {
      const Expr packed = offset_ == 0 ? zero_b : zero_b ? zero_b + i32(offset_) : i32(offset_);
      sum = sum - along(rows_, a_, m) * packed;
    }
    if (columns_.empty()) return sum;
    Expr columns = along(columns_, b_, n);
    if (zero_b) columns = columns - (ir::is_const_int(depth_) ? i32(depth_->ival) : as_i32(depth_)) * zero_b;
    Expr zero_a;
    if (node_.inputs.size() > kZeroA) zero_a = zero("za", kZeroA, m);
    if (offset_a_ != 0) zero_a = zero_a ? zero_a + i32(offset_a_) : i32(offset_a_);
    return sum - zero_a * columns;
  }

  KernelWriter& w_;
  const Node& node_;
  const TensorDesc &a_given_, &b_given_;
  Side a_, b_;
  Expr depth_, padded_;                // K, and what is summed over
  int64_t offset_ = 0, offset_a_ = 0;  // of b as it is packed, of a as it is copied
  bool summed_ = false;                // column sums are the other part of a packed b
  std::string rows_, columns_;
  std::vector<Stmt> before_;
};

}  // namespace

ir::Status check_integer_product(const Inputs& in, size_t depth, const DimDesc& columns) {
  const TensorDesc &a = *in[kBytesA], &b = *in[kBytesB];
  if (in.size() > kZeroA) LATHE_RETURN_IF_ERROR(check_zero(*in[kZeroA], a, nullptr));
  if (in.size() > kZeroB) LATHE_RETURN_IF_ERROR(check_zero(*in[kZeroB], b, &columns));
  const int64_t most = INT32_MAX / (largest(a, in.size() > kZeroA) * largest(b, in.size() > kZeroB));
  if (a.dims[depth].max <= most) return {};
  return ir::unsupported("{}, expected at most {}: sums of such products may exceed i32", a.dims[depth].max, most)
      .with_arg(fmt::format("{}.shape[{}]", a.name, depth));
}

ir::Result<LoweredKernel> lower_integer_product(KernelWriter& w) { return IntegerProduct(w).run(); }

}  // namespace lathe::ops
