// Builder: C++ that reads like the nest.
//   Builder b("scale", "elementwise");
//   const Expr N = b.sym("N", 1, 4096);
//   const BufferRef x = b.in("x", DType::f32, {N}), y = b.out("y", DType::f32, {N});
//   b.loop("n", N, "row", [&](const Expr& n) { b.set(y(n), const_float(2.0) * x(n)); });
//   Kernel k = b.build();
// Checks nothing: verify() does. Not thread-safe.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ir/core/kernel.h"
#include "ir/core/names.h"

namespace lathe::ir {

// One element of a buffer: a load where an Expr is wanted, a target in Builder's statements.
struct Element {
  std::string buffer;
  std::vector<Expr> index;
  DType type = DType::f32;
  operator Expr() const { return load(buffer, index, type); }  // NOLINT(google-explicit-constructor)
};

// A declared buffer: b(i, j) is its element.
struct BufferRef {
  std::string name;
  DType type = DType::f32;
  template <class... I>
  Element operator()(I&&... index) const {
    return {name, {Expr(std::forward<I>(index))...}, type};
  }
  Element at(std::vector<Expr> index) const { return {name, std::move(index), type}; }
};

class Builder {
 public:
  explicit Builder(std::string name, std::string family = {}) : open_(1) {
    kernel_.name = std::move(name);
    kernel_.family = std::move(family);
  }

  Expr sym(const std::string& name, int64_t min, int64_t max, int64_t multiple_of = 1) {
    kernel_.symbols.push_back({name, min, max, multiple_of});
    return symbol(name);
  }
  BufferRef buffer(const std::string& name, DType type, std::vector<Expr> dims, Place place,
                   std::vector<Expr> strides = {}) {
    Buffer b;
    b.name = name;
    b.type = type;
    b.dims = std::move(dims);
    b.place = place;
    b.strides = std::move(strides);
    kernel_.buffers.push_back(std::move(b));
    return {name, type};
  }
  BufferRef in(const std::string& name, DType type, std::vector<Expr> dims, std::vector<Expr> strides = {}) {
    return buffer(name, type, std::move(dims), Place::in, std::move(strides));
  }
  BufferRef constant(const std::string& name, DType type, std::vector<Expr> dims, std::vector<Expr> strides = {}) {
    return buffer(name, type, std::move(dims), Place::constant, std::move(strides));
  }
  BufferRef out(const std::string& name, DType type, std::vector<Expr> dims, std::vector<Expr> strides = {}) {
    return buffer(name, type, std::move(dims), Place::out, std::move(strides));
  }
  BufferRef heap(const std::string& name, DType type, std::vector<Expr> dims) {
    return buffer(name, type, std::move(dims), Place::heap);
  }
  BufferRef stack(const std::string& name, DType type, std::vector<Expr> dims) {
    return buffer(name, type, std::move(dims), Place::stack);
  }
  BufferRef reg(const std::string& name, DType type, std::vector<Expr> dims) {
    return buffer(name, type, std::move(dims), Place::reg);
  }

  // for iter < extent [role] @mark: body(iter)
  void loop(const std::string& iter_name, const Expr& extent, const std::string& role,
            const std::function<void(const Expr&)>& body, Mark mark = Mark::none, const std::string& intrinsic = {}) {
    open_.emplace_back();
    body(iter(iter_name));
    Stmt s = make_scope(iter_name, extent, std::move(open_.back()), role);
    s.mark = mark;
    s.intrinsic = intrinsic;
    open_.pop_back();
    open_.back().push_back(std::move(s));
  }

  void assign(AssignOp op, const Element& target, const Expr& value) {
    open_.back().push_back(make_assign(target.buffer, target.index, op, value));
  }
  void set(const Element& target, const Expr& value) { assign(AssignOp::set, target, value); }
  void add(const Element& target, const Expr& value) { assign(AssignOp::add, target, value); }
  void mul(const Element& target, const Expr& value) { assign(AssignOp::mul, target, value); }
  void max(const Element& target, const Expr& value) { assign(AssignOp::max, target, value); }
  void min(const Element& target, const Expr& value) { assign(AssignOp::min, target, value); }
  void fmax(const Element& target, const Expr& value) { assign(AssignOp::fmax, target, value); }

  // The Kernel so far; parameters first, each group in the order declared.
  Kernel build() const {
    Kernel out = kernel_;
    std::stable_partition(out.buffers.begin(), out.buffers.end(), [](const Buffer& b) { return is_param(b.place); });
    out.body = open_.front();
    return out;
  }

 private:
  Kernel kernel_;
  std::vector<std::vector<Stmt>> open_;  // bodies of the scopes being built, the kernel's first
};

// Calls of the table of nodes as functions: math::exp(x), math::tanh(x), ...
namespace math {
#define LATHE_MATH_kMath(id) \
  inline Expr id(Expr x) { return make(Op::k_##id, {std::move(x)}); }
#define LATHE_MATH_kIndex(id)
#define LATHE_MATH_kArith(id)
#define LATHE_MATH_kCompare(id)
#define LATHE_MATH_kLogic(id)
#define LATHE_MATH_kBits(id)
#define LATHE_MATH_kMemory(id)
#define LATHE_NODE(id, spelling, arity, form, cls) LATHE_MATH_##cls(id)
#include "ir/core/nodes.def"
#undef LATHE_NODE
#undef LATHE_MATH_kMath
#undef LATHE_MATH_kIndex
#undef LATHE_MATH_kBits
#undef LATHE_MATH_kArith
#undef LATHE_MATH_kCompare
#undef LATHE_MATH_kLogic
#undef LATHE_MATH_kMemory
}  // namespace math

}  // namespace lathe::ir
