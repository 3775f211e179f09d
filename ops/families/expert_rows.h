// Rows whose weight integers choose: each row names one, or rows that share one stand one after another.
//
//   for t [batch]: for m < 1 [m]: for n [n]:
//     c = 0;  for k [k]: c += a[t, m, k] * weight(ids[t], n, k);  y[t, m, n] = f(c)
//
// t runs over the dimensions of ids; a broadcasts to them. Tensors with rows of their own for each t have a unit
// dimension m here.
//
//   for zm [clear]: for zn [clear]: y[zm, zn] = 0
//   for t [batch]: for m < offsets[t + 1] - offsets[t] [m]: for n [n]:
//     c = 0;  for k [k]: c += a[r, k] * weight(t, n, k);  y[r, n] = f(c)            with r = offsets[t] + m
//
// Operands a, those of the weight, ids or offsets, then e0, e1, ... of the riders, y.
#pragma once
#include "ops/kernel_writer.h"
#include "ops/shape.h"

namespace lathe::ops {

// The result's dims but for columns, of E weights whose operands have them as first dimension. `grouped`: the integers
// are offsets.
ir::Result<std::vector<DimDesc>> chosen_dims(const OpRow& row, bool grouped, const TensorDesc& a,
                                             const TensorDesc& weight, const TensorDesc& ids);
// How many of the weights are read at most: as many as there are ids, or rows.
double chosen_share(const NodeSizes& sizes, bool grouped);

class ExpertRows {
 public:
  // First of all: views get their unit dimension.
  ExpertRows(KernelWriter& w, bool grouped);
  // After a and the weight's operands: declares the integers that choose one of so many.
  ir::Status declare_integers(const ir::Expr& count);
  const ir::Expr& weight() const { return weight_; }  // its number
  const Index& row() const { return row_; }           // of a without k
  // The Kernel of sums of a row's element by the weight's, along k.
  ir::Result<LoweredKernel> finish(const ir::Expr& product, const ir::Expr& depth);

 private:
  int integers() const { return w_.anchor().inputs.back(); }
  ir::Expr integer(const std::string& name, Index index) const;
  ir::Stmt clear() const;

  KernelWriter& w_;
  const bool grouped_;
  std::vector<std::string> names_;  // of all scopes: those of batches, m, n
  std::vector<ir::Expr> extents_;
  Index row_, at_;  // at_: of the result
  ir::Expr weight_;
};

}  // namespace lathe::ops
