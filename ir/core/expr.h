// Expressions of the loop IR: immutable trees, shared freely between kernels and threads.
//
// Semantics.
//  - Index expressions (iterators, symbols, integer constants and + - * // % ceildiv min max on them) have type i64 and
//    are exact. // and % floor towards minus infinity; their divisor, like ceildiv's, is a positive constant or symbol.
//  - Float expressions compute in their dtype, round to nearest even, in the order written. `fma(a, b, c)` rounds once.
//    A statement `t += a * b` on floats is an fma as well. min and max propagate NaN (either operand); fmax(a, b) is a
//    if a > b, else b (so a NaN in a is dropped): use it only where a NaN reaches the result another way.
//  - `select(c, x, y)` evaluates only the chosen side: out-of-range loads are legal under it.
//  - Comparisons give b8; on NaN only != is true.
//  - & | << >> work on the bits of i32 values. A count is an index expression in 0..31; >> keeps the sign.
//  - cast rounds to nearest even; float to int saturates, NaN gives 0.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/dtype.h"

namespace lathe::ir {

enum class Op : uint8_t {
#define LATHE_NODE(id, spelling, arity, form, cls) k_##id,
#include "ir/core/nodes.def"
#undef LATHE_NODE
};
enum class OpForm : uint8_t { kLeaf, kInfix, kPrefix, kCall };
enum class OpClass : uint8_t { kIndex, kArith, kCompare, kLogic, kBits, kMath, kMemory };

struct OpInfo {
  const char* id;        // "add"
  const char* spelling;  // "+"
  int arity;             // -1: any
  OpForm form;
  OpClass cls;
};
const OpInfo& op_info(Op op);

struct ExprNode;
// A possibly null reference to an immutable node. Cheap to copy.
class Expr {
 public:
  Expr() = default;
  Expr(int64_t value);                                    // NOLINT(google-explicit-constructor): integer constant
  Expr(int value) : Expr(static_cast<int64_t>(value)) {}  // NOLINT(google-explicit-constructor)
  explicit Expr(std::shared_ptr<const ExprNode> node);    // a new node, whole
  explicit operator bool() const { return node_ != nullptr; }
  const ExprNode* operator->() const { return node_.get(); }
  const ExprNode& operator*() const { return *node_; }
  const ExprNode* get() const { return node_.get(); }

 private:
  std::shared_ptr<const ExprNode> node_;
};

// The letters of a name of at most 8, else the last ones: alike where names are, unlike mostly where they are not.
inline uint64_t name_tag(const std::string& name) {
  const size_t size = name.size();
  const auto letters = [&]<class Word>(Word word, size_t from) {
    std::memcpy(&word, name.data() + from, sizeof(word));
    return static_cast<uint64_t>(word);
  };
  if (size >= 8) return letters(uint64_t{}, size - 8);
  if (size >= 4) return letters(uint32_t{}, 0) | letters(uint32_t{}, size - 4) << 8 * (size - 4);
  if (size >= 2) return letters(uint16_t{}, 0) | letters(uint16_t{}, size - 2) << 8 * (size - 2);
  return size == 0 ? 0 : static_cast<unsigned char>(name[0]);
}
// Bits of what an expression may hold: one of them for each name, one for loads and one for shifts.
inline constexpr uint64_t kHoldsLoad = uint64_t{1} << 63, kHoldsShift = uint64_t{1} << 62;
inline uint64_t holds_name(const std::string& name) {
  return uint64_t{1} << (name_tag(name) * 0x9e3779b97f4a7c15 >> 32) % 62;
}

struct ExprNode {
  Op op;
  DType type;
  std::vector<Expr> args;      // load: one index per dimension of the buffer
  std::string name;            // iter, symbol: its name; load: the buffer
  int64_t ival = 0;            // const_int
  double fval = 0;             // const_float (exactly representable in `type`)
  mutable uint64_t holds = 0;  // of the node and all below it; written by the first Expr only
};

// Constructors. They fold nothing; simplify() does.
Expr iter(std::string name);
Expr symbol(std::string name);
Expr const_float(double value, DType type = DType::f32);
Expr const_int(int64_t value, DType type);
Expr load(std::string buffer, std::vector<Expr> indices, DType type);
Expr cast(DType type, Expr e);
Expr make(Op op, std::vector<Expr> args);  // the type follows the operands
Expr make_typed(Op op, DType type, std::vector<Expr> args);

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);
Expr operator-(Expr a);
Expr floordiv(Expr a, Expr b);
Expr mod(Expr a, Expr b);
Expr ceildiv(Expr a, Expr b);
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);
Expr fma(Expr a, Expr b, Expr c);
Expr select(Expr c, Expr x, Expr y);

bool is_const_int(const Expr& e);
bool is_const_int(const Expr& e, int64_t value);
// Structural equality (names matter). Null equals null.
bool equal(const Expr& a, const Expr& b);

// Visits e and all below it, parents first.
template <class F>
void for_each_node(const Expr& e, F&& f) {
  if (!e) return;
  f(*e);
  for (const Expr& a : e->args) for_each_node(a, f);
}
// e with each argument replaced by f of it; e itself where f changes none.
template <class F>
Expr with_args(const Expr& e, F&& f);
// Rebuilds e bottom-up; f gets a node whose arguments are already rebuilt and returns its replacement, or a null Expr
// to keep it. Untouched subtrees are shared. holding: what holds none of these bits has nothing to replace; 0: all may.
template <class F>
Expr rewrite(const Expr& e, F&& f, uint64_t holding = 0);

}  // namespace lathe::ir

#include "ir/core/expr_inl.h"
