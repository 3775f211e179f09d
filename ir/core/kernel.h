// The Kernel: parameters, buffers and a tree of scopes and statements; what ops writes, moves rewrite, the interpreter
// runs and cut() turns into a nest and leaves. A plain value: copy it, edit it. No invariant is kept by construction;
// verify() (verifier.h) states and checks them. Not thread-safe while edited.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/core/expr.h"

namespace lathe::ir {

// A size known at bind. Every value is a multiple of multiple_of, in [min, max].
struct Symbol {
  std::string name;
  int64_t min = 0, max = 0, multiple_of = 1;
};

// in, out: arguments. constant (text: const): an input that never changes, whose layout a Schedule may choose; its
// packing is a Kernel of its own (see Kernel::buffers layout). heap: workspace, shared by the threads. stack: scratch
// of one thread. reg: lives in registers, local to one leaf. shared: of one block of threads of a GPU.
enum class Place : uint8_t { in, out, constant, heap, stack, reg, shared };

// One physical dimension: the part of logical dimension `dim` above a tile (outer: index // tile), inside it (inner:
// index % tile), or all of it (whole). Outermost first.
struct LayoutDim {
  enum class Part : uint8_t { whole, outer, inner };
  int dim = 0;
  Part part = Part::whole;
  int64_t tile = 0;  // elements; of a whole one of a constant: from one index to the next, 0: what is inside
};

// What the elements of an integer input may be, both ends included: affine expressions of symbols. Null: anything.
struct ValueRange {
  Expr lo, hi;
  explicit operator bool() const { return lo || hi; }
};

struct Buffer {
  std::string name;
  DType type = DType::f32;
  std::vector<Expr> dims;  // logical sizes: constants or symbol expressions
  Place place = Place::in;
  std::vector<LayoutDim> layout;  // empty: row-major in the order of dims
  std::vector<int64_t> padding;   // per dimension: extra elements at its end; empty: none
  // Parameters only: elements per step of each dim (0 = broadcast); empty: compact. Those of a packed constant say how
  // the caller gives it.
  std::vector<Expr> strides;
  int swizzle = 0;      // shared only: bytes of the lines in which pieces of 16 change places (swizzle.h); 0: none do
  bool stream = false;  // out only, nothing reads it: stores may go past the caches
  bool kept = false;    // out only (text: keep): it comes with contents, which cells that are not written keep
  // constant only: its elements are made of the caller's, which are of the type `given`, when it is packed. `made` has
  // loads of the buffer itself: without an index, of the element in the same place; or with one, a sum, quotient or
  // remainder of the element's own index d0, d1, ..., into the caller's dims, which are `given_dims` then. Null: it is
  // what the caller gives.
  Expr made;
  DType given = DType::f32;
  std::vector<Expr> given_dims;  // empty: dims
  ValueRange values;             // the caller is held to it before the Kernel runs; of a temporary: of all stores
};
// Whether the caller's contents matter: an input, or an output that keeps some of them.
bool has_contents(const Buffer& buffer);

// Marks of a scope. tensor: the scope is bound to a row of intrinsics.def, named in Stmt::intrinsic. grid, block: an
// iteration is a block of threads of a GPU, a thread of it. role: of one iteration; warps of a block that do nothing
// else do it, as far ahead of the others as the places of what they hand over allow. persistent: of one iteration; no
// more blocks are launched than run at once, and each goes on with the next iteration of the grid that nobody has.
// cluster: of two iterations, each a block like those of grid; both run at once, and reach each other's shared memory.
enum class Mark : uint8_t { none, unroll, vector, parallel, tensor, grid, block, role, persistent, cluster };
// Whether an iteration is a block of threads.
inline bool is_of_grid(Mark mark) { return mark == Mark::grid || mark == Mark::cluster; }
inline constexpr int64_t kClusterBlocks = 2;
// Whether several threads share out the iterations: what is not heap or a parameter, each has of its own.
bool is_shared_out(Mark mark);

// target op= value. add on floats with value a*b is an fma.
enum class AssignOp : uint8_t { set, add, max, min, mul, fmax };

// A scope (loop) or a statement. Iterator names are unique in a Kernel.
struct Stmt {
  enum class Kind : uint8_t { scope, assign, prefetch };
  Kind kind = Kind::assign;

  // scope: for iter = 0 .. extent-1 (none if extent <= 0), body in order.
  std::string iter;
  Expr extent;
  Mark mark = Mark::none;
  std::string role;       // "m", "n", "k", "batch", "row", "col", ...: set by ops, inherited by the scopes a move makes
  std::string intrinsic;  // mark == tensor: name in intrinsics.def
  std::vector<Stmt> body;

  // assign
  std::string target;
  std::vector<Expr> index;
  AssignOp op = AssignOp::set;
  Expr value;

  // prefetch (no meaning, only speed): lines of buffer `target`, `distance` bytes ahead of where the enclosing tensor
  // scope reads it. `iter` empty: its own stream; else that nest iterator's steps share out the block ahead. `lines`
  // cache lines per four steps of the tensor scope, to the cache of that level: 1 or 2.
  int64_t distance = 0;
  int lines = 0, cache = 1;
};

// Liberties a kernel or a move takes with float results; bits of the C ABI. Empty = exact.
enum NumericClass : uint32_t {
  kExact = 0,
  kReassociate = 1,
  kContract = 2,
  kApproximate = 4,
  kReducedAccumulate = 8,
  kQuantisedActivations = 16,
  kWinograd = 32,
  kBf16Dots = 64,
};

struct Kernel {
  std::string name;
  std::string family;  // "matmul", "row", "elementwise", "transpose", "rope"
  std::vector<Symbol> symbols;
  std::vector<Buffer> buffers;  // parameters (in, constant, out) first, in argument order; then the others
  std::vector<Stmt> body;
  uint32_t numeric = kExact;  // NumericClass bits of the moves applied so far

  const Buffer* find_buffer(std::string_view name) const;
  Buffer* find_buffer(std::string_view name);
  const Symbol* find_symbol(std::string_view name) const;
  int num_params() const;  // buffers with place in, constant or out
};

// Builders of statements.
Stmt make_scope(std::string iter, Expr extent, std::vector<Stmt> body, std::string role = {});
Stmt make_assign(std::string target, std::vector<Expr> index, AssignOp op, Expr value);

// Depth-first visit of every statement, parents first. F(Stmt&) or F(const Stmt&).
template <class Body, class F>
void for_each_stmt(Body& body, F&& f) {
  for (auto& s : body) {
    f(s);
    for_each_stmt(s.body, f);
  }
}
// The scope with this iterator, or null.
const Stmt* find_scope(const Kernel& kernel, std::string_view iter);
Stmt* find_scope(Kernel& kernel, std::string_view iter);

// Applies f (as in rewrite) to every expression of the statement tree: extents, indices, values.
void rewrite_exprs(std::vector<Stmt>& body, const std::function<Expr(const Expr&)>& f, uint64_t holding = 0);
// Replaces iterators and symbols by name.
Expr substitute(const Expr& e, const std::vector<std::pair<std::string, Expr>>& map);

// The element of a buffer that is made, at this index, of loads of `from`.
Expr made_element(const Buffer& buffer, const std::string& from, const std::vector<Expr>& index);
// What the caller gives of a constant: its type and dims.
DType given_type(const Buffer& buffer);
const std::vector<Expr>& given_dims(const Buffer& buffer);

// The Kernel that reads what the caller gives: what packing would make is made by it, once or by each load.
Kernel as_given(const Kernel& kernel);

// Physical dimensions of a buffer after layout and padding, outermost first, in elements.
std::vector<Expr> physical_dims(const Buffer& buffer);
// The buffer's layout written out: no layout is every dimension whole, in order.
std::vector<LayoutDim> full_layout(const Buffer& buffer);

}  // namespace lathe::ir
