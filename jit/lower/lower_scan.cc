// What the statements of a leaf do, before anything is emitted: dtypes, reductions across lanes,
// strides of vector accesses.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/names.h"
#include "jit/lower/lowering.h"

namespace lathe::jit {

using ir::Expr;
using ir::Mark;
using ir::Op;
using ir::Stmt;

namespace {

bool loads(const Expr& e, const std::string& buffer) {
  bool found = false;
  ir::for_each_node(e, [&](const ir::ExprNode& n) { found |= n.op == Op::k_load && n.name == buffer; });
  return found;
}
bool any_uses(const std::vector<Expr>& index, const std::string& iter) {
  return std::any_of(index.begin(), index.end(), [&](const Expr& e) { return ir::uses(e, iter); });
}

// Whether every access to `buffer` below s is `buffer[...] op= value` in a vector scope, at an
// index that neither the lanes nor a loop below s move.
struct ReductionScan {
  const std::string& buffer;
  ir::AssignOp op;
  bool found = false;

  bool visit(const Stmt& s, const std::string& lane, std::vector<std::string>& loops) {
    if (s.kind == Stmt::Kind::prefetch) return true;
    if (s.kind == Stmt::Kind::assign) {
      if (loads(s.value, buffer)) return false;
      for (const Expr& e : s.index) {
        if (loads(e, buffer)) return false;
      }
      if (s.target != buffer) return true;
      found = true;
      if (lane.empty() || s.op != op || any_uses(s.index, lane)) return false;
      return std::none_of(loops.begin(), loops.end(), [&](const std::string& l) { return any_uses(s.index, l); });
    }
    const bool real = s.mark == Mark::none || s.mark == Mark::tensor;
    if (real) loops.push_back(s.iter);
    const std::string& inner = s.mark == Mark::vector ? s.iter : lane;
    const bool ok = std::all_of(s.body.begin(), s.body.end(), [&](const Stmt& c) { return visit(c, inner, loops); });
    if (real) loops.pop_back();
    return ok;
  }
};

// Buffers that s may reduce across lanes, and how.
using Candidates = std::vector<std::pair<std::string, ir::AssignOp>>;
void find_candidates(const Stmt& s, const std::string& lane, Candidates& out) {
  if (s.kind == Stmt::Kind::assign) {
    if (!lane.empty() && s.op != ir::AssignOp::set && !any_uses(s.index, lane)) out.emplace_back(s.target, s.op);
    return;
  }
  for (const Stmt& c : s.body) find_candidates(c, s.mark == Mark::vector ? s.iter : lane, out);
}

}  // namespace

int Lowering::slot_of(const std::string& buffer) const {
  for (size_t i = 0; i < leaf_.buffers.size(); ++i) {
    if (leaf_.buffers[i].name == buffer) return static_cast<int>(i);
  }
  return -1;
}

Lowering::KnownAccess& Lowering::known_access(const std::string& buffer, const std::vector<Expr>& index) {
  if (const auto known = accesses_.find(index.data()); known != accesses_.end()) return known->second;
  const int slot = slot_of(buffer);
  KnownAccess read{
      slot, slot < 0 ? PlainAccess{} : plain_access(leaf_.buffers[static_cast<size_t>(slot)], slot, index, memory_)};
  return accesses_.emplace(index.data(), std::move(read)).first->second;
}

// Copies of unrolled scopes and vectors, each operation once, functions as about thirty; what a loop holds is not
// counted.
size_t Lowering::likely_size(const Body& list) const {
  size_t total = 0;
  for (const Stmt& s : list) {
    size_t copies = 1;
    if (s.kind == Stmt::Kind::assign) {
      ir::for_each_node(s.value,
                        [&](const ir::ExprNode& n) { total += ir::op_info(n.op).cls == ir::OpClass::kMath ? 30 : 1; });
      continue;
    }
    if (ir::is_const_int(s.extent) && s.mark == Mark::unroll) copies = s.extent->ival;
    if (ir::is_const_int(s.extent) && s.mark == Mark::vector) copies = s.extent->ival / lanes_;
    const bool loop = s.mark == Mark::none || s.mark == Mark::tensor;
    total += loop ? 4 : std::min<size_t>(copies, 64) * likely_size(s.body);
  }
  return std::min<size_t>(total, 512);
}

const std::vector<std::pair<std::string, ir::AssignOp>>& Lowering::candidates(const Stmt& s) {
  const auto [it, added] = candidates_.try_emplace(&s);
  if (added) find_candidates(s, {}, it->second);
  return it->second;
}

ir::Status Lowering::check_leaf() const {
  int params = 0;
  for (const ir::Buffer& b : leaf_.buffers) {
    const bool param = ir::is_param(b.place);
    if (!param && b.place != ir::Place::reg)
      return ir::unsupported("buffer {} is neither an operand nor in registers", b.name);
    if (param && &b - leaf_.buffers.data() != params++) return ir::unsupported("operand {} after a register", b.name);
    if (param && !b.dims.empty() && b.strides.size() != b.dims.size()) {
      return ir::unsupported("operand {} without strides", b.name);
    }
    if (ir::dtype_bytes(b.type) == 0) {
      return ir::unsupported("{}: elements of {} share bytes", b.name, ir::dtype_name(b.type));
    }
    if (!param && b.type != ir::DType::f32 && b.type != ir::DType::i32) {
      return ir::unsupported("{}: {} in registers, where this lowering knows f32 and i32", b.name,
                             ir::dtype_name(b.type));
    }
  }
  if (params > ir::kMaxLeafOperands) return ir::unsupported("{} operands, at most {}", params, ir::kMaxLeafOperands);
  return {};
}

bool Lowering::reduces_only(const Stmt& stmt, const std::string& buffer, ir::AssignOp op, bool* found) const {
  ReductionScan scan{buffer, op};
  std::vector<std::string> loops;
  const bool ok = scan.visit(stmt, {}, loops);
  *found = scan.found;
  return ok;
}

void Lowering::find_reductions(const Body& body, size_t at) {
  for (const auto& [buffer, op] : candidates(body[at])) {
    const bool active =
        std::any_of(reductions_.begin(), reductions_.end(), [&](const Reduction& r) { return r.buffer == buffer; });
    bool found = false;
    if (active || !reduces_only(body[at], buffer, op, &found)) continue;
    Reduction r{buffer, op, e_.level(), &body, at, {}};
    for (size_t next = at + 1; next < body.size() && reduces_only(body[next], buffer, op, &found); ++next) {
      if (found) r.last = next;
    }
    reductions_.push_back(std::move(r));
  }
}

// Whether every access below a vector scope is one element or adjacent lanes. Where all indices are
// plain the answer is one for all copies of the scope.
bool Lowering::lanes_are_regular(const Stmt& scope) {
  if (const auto known = regular_.find(&scope); known != regular_.end()) return known->second;
  Environment env = env_;
  env.push_back({scope.iter, Binding::Kind::lane, 0, lanes_, nullptr});
  bool regular = true, all_plain = true;
  const auto check = [&](const std::string& buffer, const std::vector<Expr>& index) {
    const int slot = slot_of(buffer);
    if (slot < 0 || index.empty()) return;
    const bool cell = leaf_.buffers[slot].place == ir::Place::reg;
    regular &= ir::dtype_bytes(leaf_.buffers[slot].type) <= 4;  // pairs of lanes go one at a time
    if (PlainAccess& known = known_access(buffer, index).plain; known.plain) {
      regular &= known.regular(scope.iter, cell);
      return;
    }
    all_plain = false;
    if (cell) {
      for (const Expr& e : index) {
        const std::optional<Affine> a = affine(e, env);
        regular &= a && (a->lane == 0 || a->lane == 1);
      }
      return;
    }
    const std::optional<Access> a = access(leaf_.buffers[slot], slot, index, env);
    regular &= a && (a->uniform() || a->unit());
  };
  ir::for_each_stmt(scope.body, [&](const Stmt& s) {
    if (s.kind == Stmt::Kind::scope) env.push_back({s.iter, Binding::Kind::number, 0, 1, nullptr});
    if (s.kind != Stmt::Kind::assign) return;
    check(s.target, s.index);
    ir::for_each_node(s.value, [&](const ir::ExprNode& n) {
      if (n.op == Op::k_load) check(n.name, n.args);
      const bool shifts = n.op == Op::k_shift_left || n.op == Op::k_shift_right;
      regular &= !shifts || !ir::uses(n.args[1], scope.iter);  // a count for each lane
    });
  });
  if (all_plain) regular_.emplace(&scope, regular);
  return regular;
}

}  // namespace lathe::jit
