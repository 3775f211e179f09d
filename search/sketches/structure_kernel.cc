// The Structure of a Kernel, naive or scheduled, from its scopes; and what all candidates of a problem share. See
// structure.h.
#include <algorithm>
#include <cmath>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "search/sketches/structure.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

void Structure::Dim::add(int loop, double step) {
  if (count == static_cast<int>(terms.size())) {
    base = extent;  // more loops than are told apart: as if all were touched
    return;
  }
  terms[static_cast<size_t>(count++)] = {loop, std::abs(step)};
}

namespace {

Axis axis_of(const std::string& role) {
  if (role == "m" || role == "row") return Axis::rows;
  if (role == "n" || role == "col") return Axis::columns;
  if (role == "k") return Axis::depth;
  return role == "batch" ? Axis::batch : Axis::none;
}

// Operations of a statement's value; what is inside an index costs nothing.
double operations(const Expr& e) {
  if (!e || e->op == Op::k_load || e->type == DType::i64) return 0;
  double n = 0;
  switch (op_info(e->op).cls) {
    case OpClass::kMath:
      n = 10;
      break;
    case OpClass::kArith:
      n = e->args.empty() ? 0 : 1;
      break;
    case OpClass::kCompare:
    case OpClass::kLogic:
    case OpClass::kBits:
      n = 1;
      break;
    default:
      break;
  }
  if (e->op == Op::k_div) n = 4;
  if (e->op == Op::k_fma) n = 2;
  for (const Expr& a : e->args) n += operations(a);
  return n;
}

class Reader {
 public:
  Reader(const Kernel& kernel, const Problem& problem) : kernel_(kernel), problem_(problem) {
    for (const Symbol& s : kernel.symbols) {
      const auto hint = problem.dims.find(s.name);
      env_.emplace_back(s.name, hint != problem.dims.end() ? hint->second : s.max);
    }
  }

  Structure run() {
    int inputs = 0;
    for (const Buffer& b : kernel_.buffers) {
      Structure::Buffer out;
      out.element = bytes_of_each(b.type);
      out.bytes = out.element;
      for (const Expr& d : b.dims) out.bytes *= number(d, 1);
      out.constant = b.place == Place::constant && b.dims.size() >= 2 && b.strides.empty();
      out.cold = problem_.cold && b.place == Place::constant;
      out.scratch = b.place == Place::heap || b.place == Place::stack || b.place == Place::reg;
      if (is_input(b.place)) out.operand = inputs < 2 ? inputs++ : -1;
      if (b.place == Place::out) out.operand = 2;
      s_.buffers.push_back(out);
    }
    visit(kernel_.body, -1, 1, {1, 1, 1, 1, 1});
    s_.barriers = kernel_.body.empty() ? 0 : static_cast<double>(kernel_.body.size()) - 1;
    finish_blocks();
    first_input();
    return std::move(s_);
  }

 private:
  using Extents = std::array<double, 5>;  // by Axis, along the path

  double number(const Expr& e, double otherwise) const {
    const auto value = evaluate(e, env_);
    if (value) return static_cast<double>(std::max<int64_t>(*value, 0));
    const Interval range = interval(e, Ranges(kernel_));
    return range.hi == INT64_MAX ? otherwise : static_cast<double>(std::max<int64_t>(range.hi, 0));
  }
  int loop_of(const std::string& iter) const {
    for (size_t i = 0; i < iters_.size(); ++i) {
      if (iters_[i] == iter) return static_cast<int>(i);
    }
    return -1;
  }

  void visit(const std::vector<Stmt>& body, int parent, double executions, const Extents& extents) {
    for (const Stmt& s : body) {
      if (s.kind == Stmt::Kind::prefetch) {
        s_.prefetch_bytes = std::max(s_.prefetch_bytes, static_cast<double>(s.distance));
        s_.prefetch_next |= !s.iter.empty();
      } else if (s.kind == Stmt::Kind::assign) {
        statement(s, parent, executions);
      } else {
        scope(s, parent, executions, extents);
      }
    }
  }

  void scope(const Stmt& s, int parent, double executions, Extents extents) {
    const int index = static_cast<int>(s_.loops.size());
    const double trips = std::max(number(s.extent, 1), 1.0);
    const Axis axis = axis_of(s.role);
    s_.loops.push_back({parent, trips, axis});
    marks_.push_back(s.mark);
    iters_.push_back(s.iter);
    env_.emplace_back(s.iter, 0);
    if (s.mark == Mark::parallel) {
      if (s_.parallel == Axis::none || parent >= 0)
        s_.tasks = (parent >= 0 && marks_[static_cast<size_t>(parent)] == Mark::parallel ? s_.tasks : 1) * trips;
      s_.parallel = axis == Axis::none ? Axis::rows : axis;
    }
    const bool outer_is_plain = parent < 0 || marks_[static_cast<size_t>(parent)] == Mark::none ||
                                marks_[static_cast<size_t>(parent)] == Mark::parallel;
    if (outer_is_plain && s.mark != Mark::none && s.mark != Mark::parallel) calls_ += executions;
    double& extent = extents[static_cast<size_t>(axis)];
    extent *= trips;
    double* known = axis == Axis::rows      ? &s_.rows
                    : axis == Axis::columns ? &s_.columns
                    : axis == Axis::depth   ? &s_.depth
                                            : nullptr;
    if (known != nullptr) *known = std::max(*known, extent);
    visit(s.body, index, executions * trips, extents);
  }

  void statement(const Stmt& s, int parent, double executions) {
    s_.flops += executions * (operations(s.value) + (s.op == AssignOp::set ? 0 : 1));
    access(s.target, s.index, parent);
    loads(s.value, parent);
    double rows = 1, vectors = 1, unroll = 1;
    for (int l = parent; l >= 0; l = s_.loops[static_cast<size_t>(l)].parent) {
      const Structure::Loop& loop = s_.loops[static_cast<size_t>(l)];
      if (marks_[static_cast<size_t>(l)] != Mark::unroll) continue;
      (loop.axis == Axis::columns ? vectors : loop.axis == Axis::depth ? unroll : rows) *= loop.trips;
    }
    if (rows * vectors >= s_.tile_rows * s_.tile_vectors) {
      s_.tile_rows = rows;
      s_.tile_vectors = vectors;
      s_.registers = std::max(s_.registers, rows * vectors + vectors + 1);
    }
    s_.unroll = std::max(s_.unroll, unroll);
  }

  void loads(const Expr& e, int parent) {
    for_each_node(e, [&](const ExprNode& n) {
      if (n.op == Op::k_load) access(n.name, n.args, parent);
    });
  }

  void access(const std::string& name, const std::vector<Expr>& index, int parent) {
    const Buffer* b = kernel_.find_buffer(name);
    if (b == nullptr || b->place == Place::reg) return;
    Structure::Access a;
    a.loop = parent;
    a.buffer = static_cast<int>(b - kernel_.buffers.data());
    a.packed = !b->layout.empty();
    const std::vector<size_t> order = by_stride(*b);
    for (const size_t d : order) {
      if (d >= index.size() || a.rank == static_cast<int>(a.dims.size())) continue;
      Structure::Dim& dim = a.dims[static_cast<size_t>(a.rank++)];
      dim.extent = number(b->dims[d], 1);
      const std::optional<AffineForm> form = affine_form(index[d]);
      if (!form) {
        dim.base = dim.extent;
        continue;
      }
      for (const auto& [iter, coefficient] : form->terms) dim.add(loop_of(iter), number(coefficient, 1));
    }
    s_.accesses.push_back(a);
  }

  // Dimensions from the largest stride to the smallest; without those that are repeated.
  std::vector<size_t> by_stride(const Buffer& b) const {
    std::vector<std::pair<double, size_t>> order;
    const bool compact = b.strides.empty() || b.made;  // strides of what is made are the caller's
    for (size_t d = 0; d < b.dims.size(); ++d) {
      const double stride = compact ? static_cast<double>(b.dims.size() - d) : number(b.strides[d], 1);
      if (stride > 0) order.emplace_back(-stride, d);
    }
    std::stable_sort(order.begin(), order.end());
    std::vector<size_t> out;
    for (const auto& [stride, d] : order) out.push_back(d);
    return out;
  }

  // Elements under the outermost of at least two plain loops of an axis.
  void finish_blocks() {
    double* blocks[] = {nullptr, nullptr, &s_.block_rows, &s_.block_columns, &s_.block_depth};
    for (size_t l = 0; l < s_.loops.size(); ++l) {
      double inner = 1;
      int plain = 0;
      for (int up = static_cast<int>(l); up >= 0; up = s_.loops[static_cast<size_t>(up)].parent) {
        const Structure::Loop& loop = s_.loops[static_cast<size_t>(up)];
        if (loop.axis != s_.loops[l].axis) continue;
        plain += marks_[static_cast<size_t>(up)] == Mark::none || marks_[static_cast<size_t>(up)] == Mark::parallel;
        bool outermost = true;
        for (int p = loop.parent; p >= 0; p = s_.loops[static_cast<size_t>(p)].parent)
          outermost &= s_.loops[static_cast<size_t>(p)].axis != loop.axis;
        if (!outermost) inner *= loop.trips;
      }
      double* block = blocks[static_cast<size_t>(s_.loops[l].axis)];
      if (block != nullptr && plain >= 2) *block = std::max(*block, inner);
    }
    s_.calls = std::max(calls_, 1.0);
  }

  void first_input() {
    for (const Buffer& b : kernel_.buffers) {
      if (b.place != Place::in || b.dims.empty()) continue;
      const size_t last = b.dims.size() - 1;
      const double element = bytes_of_each(b.type);
      s_.innermost_stride = b.strides.empty() ? 1 : number(b.strides[last], 1);
      if (last > 0)
        s_.row_stride_bytes = element * (b.strides.empty() ? number(b.dims[last], 1) : number(b.strides[last - 1], 1));
      return;
    }
  }

  const Kernel& kernel_;
  const Problem& problem_;
  SymbolValues env_;
  std::vector<std::string> iters_;
  std::vector<Mark> marks_;
  double calls_ = 0;
  Structure s_;
};

}  // namespace

Structure structure_of(const Kernel& kernel, const Problem& problem) {
  Structure s = Reader(kernel, problem).run();
  s.imbalance = s.parallel != Axis::none ? imbalance_of(s.tasks, problem.threads) : problem.threads;
  return s;
}

ProblemFacts facts_of(const Problem& problem) {
  ProblemFacts f;
  f.naive = structure_of(problem.kernel, problem);
  f.threads = problem.threads;
  f.cold = problem.cold;
  for (const Structure::Buffer& b : f.naive.buffers) {
    if (!b.scratch) f.compulsory_bytes += b.bytes;
    if (b.operand == 0) f.element_in = b.element;
    if (b.operand == 2) f.element_out = b.element;
  }
  return f;
}

double imbalance_of(double pieces, int threads) {
  if (threads <= 1 || pieces <= 0) return 1;
  return std::ceil(pieces / threads) * threads / pieces;
}

}  // namespace lathe::search
