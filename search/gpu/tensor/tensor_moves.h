// The moves of a product on tensor cores that do not depend on what is around it: how a step of both operands is
// staged, who multiplies what of it, and who has which of the results.
//
//   {a tile: c[..] = 0; for k0: for k1: c[..] += f32(a) * f32(b); y = f(c)}
//     -> for threads: c[..] = 0
//        for k0: {a_r = a; b_r = b; a_s = a_r; b_s = b_r;
//                 for warps: for kk: {a_f = a_s @tensor(ldmatrix); b_f = b_s; c[..] += a_f * b_f @tensor(mma_bf16)}}
//        for threads: y = f(c)
//
// With stages the copies of later steps are on their way meanwhile (the move `pipeline`), and go to shared memory
// without registers. What is staged of the last step is 0 behind the last term (fill_scope). A swapped tile has columns
// of the result as rows of the instruction, which are 16 at least, and rows of the result as its columns, which are 8.
//
// Of bytes, whose sums are i32, a tile of depth D has 2 * D terms. Lines beyond an edge are those of the last one:
// integers that nothing wrote have no value.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "search/gpu/move_list.h"
#include "search/gpu/product_form.h"
#include "search/gpu/tensor/tensor_tiles.h"

namespace lathe::search {

class TensorMoves {
 public:
  // All must outlive it. kernel: that of the product. parts: an operand that the caller stages, and, where it is a sum
  // of parts, which are its outermost dimension, their iterator.
  TensorMoves(MoveList& list, const ir::Kernel& kernel, const ProductForm& product, const TensorTile& tile,
              std::pair<std::string, std::string> parts = {})
      : list_(list),
        kernel_(kernel),
        p_(product),
        t_(tile),
        parts_(std::move(parts)),
        m_(p_.m->iter),
        n_(p_.n->iter),
        k_(p_.k->iter),
        r_(tile.swapped ? n_ : m_),
        c_(tile.swapped ? m_ : n_),
        bytes_(dtype_bytes(type_of(kernel, product.operands[0].buffer))),
        in_access_(16 / bytes_),
        depth_(tile.depth * 2 / bytes_) {}

  int64_t depth() const { return depth_; }
  // Of the result.
  int64_t result_rows() const { return t_.swapped ? t_.columns : t_.rows; }
  int64_t result_columns() const { return t_.swapped ? t_.rows : t_.columns; }

  void knobs();
  // In order, once the result is tiled: of a step, what is staged of the operands (launched: a grid is there already,
  // whose blocks have what is staged; whole: there is no short step); where it lies, once all of the grid is there; and
  // all else. What stages the operand `parts` is left to the caller.
  void stage(bool launched = false, bool whole = false);
  void share();
  void compute();

 private:
  bool has_parts(const ProductOperand& s) const { return s.buffer == parts_.first; }
  // Dimensions before those of lines and terms.
  int outer_dims(const ProductOperand& s) const { return has_parts(s) && !parts_.second.empty() ? 1 : 0; }
  static ir::DType type_of(const ir::Kernel& kernel, const std::string& operand) {
    const ir::Buffer* b = kernel.find_buffer(operand);
    return b == nullptr ? ir::DType::bf16 : b->type;  // what moves make is of bf16
  }
  std::string product() const;  // the instruction
  void pad_lines();
  bool is_made(const ProductOperand& s) const;
  bool has_whole_columns() const;
  void pad(const std::string& part);
  // step: "_e" of the last steps.
  void warps(const std::string& step);
  // Lines of a square of the instruction along an iterator of the result.
  int64_t across(const std::string& iter) const;
  // Whether its lines are rows of the instruction.
  bool is_rows(const ProductOperand& s) const { return s.of_rows != t_.swapped; }
  // Accesses of 16 bytes in a line of what is staged.
  int64_t chunks(const ProductOperand& s) const;
  // suffix: of its scopes.
  void copy(const ProductOperand& s, const std::string& name, const std::string& suffix = "");
  void squares(const ProductOperand& s, const std::string& name);
  void lanes(const char* part, const char* tail);

  MoveList& list_;
  const ir::Kernel& kernel_;
  const ProductForm& p_;
  const TensorTile& t_;
  const std::pair<std::string, std::string> parts_;
  const std::string m_, n_, k_;
  const std::string r_, c_;                  // of m_ and n_: the rows of the instruction, and its columns
  const int64_t bytes_, in_access_, depth_;  // of an element; elements of 16 bytes; terms of a step
};

}  // namespace lathe::search
