// cut: where a scheduled Kernel falls into nest and leaves (docs/ir.md, "Cut"). What a leaf may hold is leaf_form's
// affair.
//
//   cut(list) = one call                      if the list is in leaf form
//             = cut(group), cut(group), ...    groups of siblings that share registers
//             = loop { cut(body) }             a single scope that is not in leaf form
#include "search/cut/cut.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "search/cut/leaf_form.h"
#include "search/cut/nest_loads.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

class Cutter {
 public:
  explicit Cutter(CutKernel& out) : out_(out), kernel_(out.kernel), loads_(may_load_integers(kernel_)) {}

  Status run() {
    out_.nest.num_params = kernel_.num_params();
    const Stmt* body = kernel_.body.data();
    const std::vector<const Stmt*> phases = groups(body, body + kernel_.body.size());
    for (size_t g = 0; g + 1 < phases.size(); ++g) {
      LATHE_RETURN_IF_ERROR(cut(phases[g], phases[g + 1], out_.nest.phases));
    }
    for (const Buffer& b : kernel_.buffers) {
      if (b.place == Place::heap || b.place == Place::stack) {
        const Storage storage = dtype_storage(b.type);
        const bool whole = dtype_bytes(b.type) > 0;  // bytes of each element
        Expr bytes(whole ? dtype_bytes(b.type) : 1);
        for (const Expr& d : physical_dims(b)) bytes = bytes * d;
        if (!whole) bytes = ceildiv(ceildiv(bytes, Expr(storage.values)) * Expr(storage.bits), Expr(8));
        out_.nest.scratch.push_back({b.name, simplify(bytes), b.place == Place::stack});
      }
    }
    return {};
  }

 private:
  Status cut(const Stmt* first, const Stmt* last, std::vector<NestNode>& nodes) {
    Result<LeafGroup> leaf = make_leaf(kernel_, first, last, outer_);
    if (leaf.ok() && loads_) {
      const Status read = load_integers(kernel_, loops_around(kernel_, outer_), leaf->call);
      if (!read.ok()) leaf = read;
    }
    if (leaf.ok()) {
      nodes.push_back(call(std::move(leaf).value()));
      return {};
    }
    const std::vector<const Stmt*> borders = groups(first, last);
    if (borders.size() > 2) {
      for (size_t g = 0; g + 1 < borders.size(); ++g) LATHE_RETURN_IF_ERROR(cut(borders[g], borders[g + 1], nodes));
      return {};
    }
    if (first->kind == Stmt::Kind::scope && (first->mark == Mark::grid || first->mark == Mark::block))
      return unsupported("@{} scope {} is for a launch on a GPU", mark_name(first->mark), first->iter);
    const bool loop = last - first == 1 && first->kind == Stmt::Kind::scope &&
                      (first->mark == Mark::none || first->mark == Mark::parallel);
    if (!loop) return leaf.status().with_context("statements that share registers do not make one leaf");
    NestNode node;
    node.kind = NestNode::Kind::loop;
    node.iter = first->iter;
    node.extent = first->extent;
    if (loads_) {
      LATHE_ASSIGN(node.extent, nest_integer(kernel_, first->extent, loops_around(kernel_, outer_)));
    }
    node.parallel = first->mark == Mark::parallel;
    outer_.push_back(first);
    const Stmt* body = first->body.data();
    Status status = cut(body, body + first->body.size(), node.body);
    outer_.pop_back();
    nodes.push_back(std::move(node));
    return status;
  }

  NestNode call(LeafGroup group) {
    NestNode node;
    node.kind = NestNode::Kind::call;
    std::vector<int> numbers;
    for (Leaf& leaf : group.leaves) numbers.push_back(add_leaf(std::move(leaf)));
    for (int& leaf : group.call.leaves) leaf = numbers[static_cast<size_t>(leaf)];
    for (NestOperand& o : group.call.operands) o.buffer = buffer_number(o.buffer);
    for (NestStream& s : group.call.streams) {
      if (s.operand < 0) s.share.buffer = buffer_number(s.share.buffer);
    }
    node.call = std::move(group.call);
    return node;
  }

  int add_leaf(Leaf leaf) {
    for (size_t i = 0; i < out_.leaves.size(); ++i) {
      if (out_.leaves[i].text == leaf.text) return static_cast<int>(i);
    }
    out_.leaves.push_back(std::move(leaf));
    return static_cast<int>(out_.leaves.size() - 1);
  }

  // Index into kernel buffers -> parameters first, then scratch in order; registers have none.
  int buffer_number(int index) const {
    int params = 0, scratch = 0;
    for (int i = 0; i <= index; ++i) {
      const Place p = kernel_.buffers[i].place;
      const bool is_scratch = p == Place::heap || p == Place::stack;
      if (i == index) return is_scratch ? out_.nest.num_params + scratch : params;
      params += is_param(p);
      scratch += is_scratch;
    }
    return -1;
  }

  // Borders of maximal groups of adjacent siblings linked by a reg buffer.
  std::vector<const Stmt*> groups(const Stmt* first, const Stmt* last) const {
    std::vector<const Stmt*> borders{first};
    const Stmt* open_until = first;
    for (const Stmt* s = first; s < last; ++s) {
      if (s > first && s > open_until) borders.push_back(s);
      for (const Buffer& b : kernel_.buffers) {
        if (b.place != Place::reg || !touches(*s, b.name)) continue;
        for (const Stmt* t = s + 1; t < last; ++t) {
          if (touches(*t, b.name)) open_until = std::max(open_until, t);
        }
      }
    }
    borders.push_back(last);
    return borders;
  }

  static bool touches(const Stmt& s, const std::string& buffer) {
    if (s.kind == Stmt::Kind::assign && (s.target == buffer || uses(s.value, buffer))) return true;
    return std::any_of(s.body.begin(), s.body.end(), [&](const Stmt& c) { return touches(c, buffer); });
  }

  CutKernel& out_;
  const Kernel& kernel_;
  const bool loads_;  // integers of the nest may read inputs
  std::vector<const Stmt*> outer_;
};

}  // namespace

Result<CutKernel> cut(const Kernel& scheduled) {
  CutKernel out;
  out.kernel = scheduled;
  LATHE_RETURN_IF_ERROR(Cutter(out).run());
  return out;
}

}  // namespace lathe::search
