// Preparing a leaf program for the portable executor: flattening, and renumbering vector registers
// by linear scan so that the register file stays in L1. The executor itself is portable_run.inc.
#include "jit/program/portable_leaves.h"

#include <algorithm>
#include <memory>

#include "jit/program/tile_shape.h"

namespace lathe::jit {
namespace {

struct Range {
  int first = -1, last = -1;
};

class Flattener {
 public:
  explicit Flattener(PreparedProgram* out) : out_(out) {}

  void nodes(const Nodes& body) {
    for (const Node& n : body) node(n);
  }
  FlatOp& emit(int code) {
    out_->ops.emplace_back();
    out_->ops.back().code = static_cast<uint8_t>(code);
    return out_->ops.back();
  }
  int here() const { return static_cast<int>(out_->ops.size()); }
  const std::vector<std::pair<int, int>>& loops() const { return loops_; }

  static FlatStep flat(int ptr, int64_t bytes, const std::vector<PtrTerm>& terms) {
    FlatStep s;
    s.ptr = ptr;
    s.bytes = bytes;
    for (size_t t = 0; t < terms.size() && t < 2; ++t) {
      s.stride[t] = terms[t].stride;
      s.mult[t] = terms[t].mult;
    }
    return s;
  }

 private:
  void steps(FlatOp& op, const std::vector<PtrStep>& list) {
    op.first_step = static_cast<int32_t>(out_->steps.size());
    op.num_steps = static_cast<int32_t>(list.size());
    for (const PtrStep& s : list) out_->steps.push_back(flat(s.ptr, s.bytes, s.terms));
  }
  static void set_extent(FlatOp& op, const Extent& e) {
    op.extent_arg = static_cast<int8_t>(e.arg);
    op.extent_add = e.add;
  }
  void inst(const Inst& i) {
    FlatOp& op = emit(static_cast<int>(i.op));
    op.dst = i.dst;
    for (int s = 0; s < leaf_op_sources(i.op); ++s) op.src[s] = i.src[s];
    op.mask = i.mask;
    op.index_kind = i.mem.index_kind;
    op.ptr = i.mem.ptr;
    op.index = i.mem.index;
    op.scale = i.mem.scale;
    op.disp = i.mem.disp;
    op.imm = i.imm;
    op.type = i.type;
    op.var = i.var;
    op.step = i.var_add;
    set_extent(op, i.extent);
  }
  // `test` and `next` close over the loop; jumps are patched once the body is known.
  int close_loop(int test, int next_code) {
    const int next = here();
    emit(next_code).jump = test;
    out_->ops[test].jump = here();
    loops_.emplace_back(test, next);
    return next;
  }
  void node(const Node& n) {
    switch (n.kind) {
      case Node::Kind::inst:
        inst(n.inst);
        return;
      case Node::Kind::loop: {
        if (n.init) emit(FlatOp::kSetVar).var = n.var;
        const int test = here();
        FlatOp& op = emit(FlatOp::kLoopTest);
        op.var = n.var;
        op.step = n.step;
        set_extent(op, n.extent);
        nodes(n.body);
        FlatOp& next = out_->ops[close_loop(test, FlatOp::kLoopNext)];
        next.var = n.var;
        next.step = n.step;
        steps(next, n.steps);
        return;
      }
      case Node::Kind::if_less: {
        const int test = here();
        FlatOp& op = emit(FlatOp::kIfLess);
        op.var = n.var;
        set_extent(op, n.extent);
        nodes(n.body);
        out_->ops[test].jump = here();
        return;
      }
      case Node::Kind::if_any: {
        const int test = here();
        emit(FlatOp::kIfAny).mask = n.mask;
        nodes(n.body);
        out_->ops[test].jump = here();
        return;
      }
      case Node::Kind::segments: {
        emit(FlatOp::kSegFirst);
        const int test = here();
        FlatOp& op = emit(FlatOp::kSegTest);
        const int seg[4] = {n.seg_ptr_a, n.seg_base_a, n.seg_ptr_b, n.seg_base_b};
        std::copy(seg, seg + 4, op.seg);
        nodes(n.body);
        close_loop(test, FlatOp::kSegNext);
        return;
      }
      case Node::Kind::set_ptr: {
        FlatOp& op = emit(FlatOp::kSetPtr);
        op.dst = n.steps[0].ptr;
        op.ptr = n.from;
        steps(op, n.steps);
        return;
      }
      case Node::Kind::set_var:
        emit(FlatOp::kSetVar).var = n.var;
        return;
      case Node::Kind::add_stream: {
        FlatOp& op = emit(FlatOp::kAddStream);
        op.dst = n.steps[0].ptr;
        op.index = n.from;
        return;
      }
    }
  }

  PreparedProgram* out_;
  std::vector<std::pair<int, int>> loops_;  // [first, last] operation, inner loops first
};

bool has_vector_result(const FlatOp& op) {
  if (op.code >= kLeafOpCount || op.dst < 0) return false;
  const LeafOpKind kind = leaf_op_kind(static_cast<LeafOp>(op.code));
  return kind == LeafOpKind::kArith || kind == LeafOpKind::kLoad || kind == LeafOpKind::kConst;
}

// Linear scan. A register defined before a loop and touched in it lives to the loop's end.
int compact_registers(std::vector<FlatOp>& ops, const std::vector<std::pair<int, int>>& loops, int num_vregs) {
  std::vector<Range> ranges(num_vregs);
  const auto touch = [&](int reg, int at) {
    if (reg < 0) return;
    Range& r = ranges[reg];
    if (r.first < 0) r.first = at;
    for (const auto& [first, last] : loops) {
      if (first <= at && at <= last && r.first < first) at = std::max(at, last);
    }
    r.last = std::max(r.last, at);
  };
  for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
    const FlatOp& op = ops[i];
    if (op.code >= kLeafOpCount) continue;
    for (int s : op.src) touch(s, i);
    if (has_vector_result(op)) touch(op.dst, i);
  }
  std::vector<int> name(num_vregs, -1), free_names;
  std::vector<std::vector<int>> ends(ops.size());
  int count = 0;
  for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
    FlatOp& op = ops[i];
    if (op.code >= kLeafOpCount) {
      for (int reg : ends[i]) free_names.push_back(name[reg]);
      continue;
    }
    for (int& s : op.src) {
      if (s >= 0) s = name[s];
    }
    // A result may take the name of a source that ends here: operations read all lanes they need
    // before they write.
    for (int reg : ends[i]) free_names.push_back(name[reg]);
    if (!has_vector_result(op)) continue;
    const int reg = op.dst;
    if (name[reg] < 0) {
      if (free_names.empty()) free_names.push_back(count++);
      name[reg] = free_names.back();
      free_names.pop_back();
      if (ranges[reg].last > i) {
        ends[ranges[reg].last].push_back(reg);
      } else {
        free_names.push_back(name[reg]);
      }
    }
    op.dst = name[reg];
  }
  return count;
}

}  // namespace

PreparedProgram::PreparedProgram(const LeafProgram& program)
    : lanes(program.lanes), num_masks(program.num_masks), num_vars(program.num_vars) {
  for (const PtrInit& init : program.ptrs) {
    ptrs.push_back({init.slot, init.stream, Flattener::flat(-1, init.bytes, init.terms)});
  }
  std::copy(program.tile_rows, program.tile_rows + kMaxTiles, tile_rows);
  Flattener f(this);
  f.nodes(program.body);
  f.emit(FlatOp::kEnd);
  num_vregs = compact_registers(ops, f.loops(), program.num_vregs);
}

void PreparedProgram::run(const ir::LeafArgs& args) const {
  constexpr int kStackPtrs = 32, kStackVars = 16, kStackMasks = 16;
  alignas(64) float vregs[kStackRegisters * 16];
  alignas(64) int32_t masks[kStackMasks * 16];
  int64_t vars[kStackVars];
  char* pointers[kStackPtrs];
  std::unique_ptr<float[]> more_vregs;
  std::unique_ptr<int32_t[]> more_masks;
  std::unique_ptr<int64_t[]> more_vars;
  std::unique_ptr<char*[]> more_ptrs;
  PortableState state{vregs, masks, vars, pointers, nullptr};
  std::unique_ptr<char[]> tiles;
  if (tile_rows[0] != 0) {
    tiles = std::make_unique<char[]>(static_cast<size_t>(kMaxTiles) * kTileRows * kTileBytes);
    state.tiles = tiles.get();
  }
  if (num_vregs > kStackRegisters) {
    more_vregs = std::make_unique<float[]>(static_cast<size_t>(num_vregs) * lanes);
    state.vregs = more_vregs.get();
  }
  if (num_masks > kStackMasks) {
    more_masks = std::make_unique<int32_t[]>(static_cast<size_t>(num_masks) * lanes);
    state.masks = more_masks.get();
  }
  if (num_vars > kStackVars) {
    more_vars = std::make_unique<int64_t[]>(num_vars);
    state.vars = more_vars.get();
  }
  if (ptrs.size() > kStackPtrs) {
    more_ptrs = std::make_unique<char*[]>(ptrs.size());
    state.ptrs = more_ptrs.get();
  }
  portable_run_host(*this, args, state);
}

void execute_portable(const LeafProgram& program, const ir::LeafArgs& args) { PreparedProgram(program).run(args); }

}  // namespace lathe::jit
