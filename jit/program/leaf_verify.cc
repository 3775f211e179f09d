// verify_program: what every generator and the portable executor rely on, so that none of them
// checks again.
//  - register, pointer, slot, stride, extent, stream and variable numbers are in range;
//  - every register, pointer and index variable is defined on every path before it is used;
//  - a loop's variable is not changed inside it other than by its own step; steps are positive;
//  segments do not nest;
//  - masks only where an instruction has one, immediates and scales in range, instructions the
//  level has.
#include <algorithm>

#include "jit/program/tile_shape.h"

namespace lathe::jit {
namespace {

constexpr int kMaxRegisters = 1 << 20;
constexpr int kMaxDepth = 16;

using Flags = std::pmr::vector<uint8_t>;
struct Defined {
  Flags vregs, masks, ptrs, vars;
};

class Checker {
 public:
  explicit Checker(const LeafProgram& p) : p_(p), defined_(p.memory()) {}

  ir::Status run() {
    const auto count_ok = [](int n) { return n >= 0 && n <= kMaxRegisters; };
    if (!ir::is_vector_bytes(int64_t{p_.lanes} * 4))
      return ir::invalid("lanes {}, expected those of a row of targets.def", p_.lanes);
    if (static_cast<int>(p_.level) >= ir::kIsaLevels) return ir::invalid("unknown level");
    if ((p_.extra & ~ir::extras_with(ir::isa_features(p_.level))) != 0) {
      return ir::invalid("features that come with no {}", ir::isa_name(p_.level));
    }
    if (!count_ok(p_.num_vregs) || !count_ok(p_.num_masks) || !count_ok(p_.num_vars)) {
      return ir::invalid("register counts out of range");
    }
    const auto none = [&](int n) { return Flags(static_cast<size_t>(n), p_.memory()); };
    Defined d{none(p_.num_vregs), none(p_.num_masks), none(0), none(p_.num_vars)};
    d.ptrs.reserve(p_.ptrs.size());
    defined_.reserve(d.vregs.size() + d.masks.size());
    for (const PtrInit& init : p_.ptrs) {
      if (init.slot >= ir::kMaxLeafOperands || init.stream >= ir::kMaxLeafStreams) {
        return ir::invalid("pointer: operand {} or stream {} out of range", init.slot, init.stream);
      }
      if (init.slot >= 0 && init.stream >= 0) return ir::invalid("pointer with both an operand and a stream");
      LATHE_RETURN_IF_ERROR(terms(init.terms));
      d.ptrs.push_back(init.slot >= 0 || init.stream >= 0);
    }
    if (std::any_of(p_.tile_rows, p_.tile_rows + kMaxTiles, [](uint8_t rows) { return rows > kTileRows; }))
      return ir::invalid("a tile of more than {} rows", kTileRows);
    if (has_tiles(p_) && p_.level != ir::IsaLevel::portable && !p_.has(kTileFeatures))
      return ir::invalid("tiles at level {}", ir::isa_name(p_.level));
    return nodes(p_.body, d, 0);
  }

 private:
  static ir::Status terms(const std::vector<PtrTerm>& terms) {
    if (terms.size() > 2) return ir::invalid("pointer step with {} terms, at most 2", terms.size());
    for (const PtrTerm& t : terms) LATHE_RETURN_IF_ERROR(stride(t.stride));
    return {};
  }
  static ir::Status stride(int s) {
    if (s < 0 || s >= ir::kMaxLeafOperands * ir::kMaxLeafStrides) return ir::invalid("stride {} out of range", s);
    return {};
  }
  ir::Status extent(const Extent& e) const {
    if (e.arg < Extent::kSegLen || e.arg >= ir::kMaxLeafExtents) return ir::invalid("extent {} out of range", e.arg);
    if (e.arg == Extent::kSegLen && !in_segments_) return ir::invalid("seglen outside segments");
    return {};
  }
  // Met for every operand: what is wrong is found out apart.
  static ir::Status use(const Flags& set, int i, const char* what) {
    if (i >= 0 && static_cast<size_t>(i) < set.size() && set[i]) [[likely]]
      return {};
    return wrong(set, i, what);
  }
  ir::Status define(Flags& set, int i, const char* what) {
    if (i < 0 || static_cast<size_t>(i) >= set.size()) return wrong(set, i, what);
    uint8_t& flag = set[static_cast<size_t>(i)];
    if (flag == 0) defined_.push_back(&flag);
    flag = 1;
    return {};
  }
  [[gnu::cold, gnu::noinline]] static ir::Status wrong(const Flags& set, int i, const char* what) {
    if (i < 0 || static_cast<size_t>(i) >= set.size()) return ir::invalid("{} {} out of range", what, i);
    return ir::invalid("{} {} used before it is defined", what, i);
  }
  // Of loads and stores whose elements are not lanes.
  static ir::Status narrow(const Inst& i) {
    const bool one = i.op == LeafOp::k_load_bcast || i.op == LeafOp::k_store_lane0;
    const bool many = i.op == LeafOp::k_load || i.op == LeafOp::k_store ||
                      (i.op == LeafOp::k_store_stream && kMemTypeBytes[static_cast<int>(i.type)] == 2);
    if (one || (many && i.type != MemType::b64)) return {};
    return ir::invalid("{} of {}", leaf_op_name(i.op), mem_type_name(i.type));
  }
  static ir::Status step(const PtrStep& s, const Defined& d) {
    LATHE_RETURN_IF_ERROR(use(d.ptrs, s.ptr, "pointer"));
    return terms(s.terms);
  }
  bool busy(int var) const { return std::find(loop_vars_.begin(), loop_vars_.end(), var) != loop_vars_.end(); }

  // Of tile registers it is known from the start which there are, and what is in them: zeros.
  ir::Status tiles(const Inst& i) const {
    for (int which = 0; which < (multiplies_tiles(i.op) ? 3 : 1); ++which) {
      const int tile = tile_of(i.imm, which);
      if (tile >= kMaxTiles || p_.tile_rows[tile] == 0) return ir::invalid("tile {} is not one of the program's", tile);
    }
    const bool memory = i.op == LeafOp::k_tile_load || i.op == LeafOp::k_tile_store;
    if (!memory && i.mem.ptr >= 0) return ir::invalid("{} with a memory operand", leaf_op_name(i.op));
    if (memory && i.mem.index_kind == Mem::Index::var) return ir::invalid("{} at a variable", leaf_op_name(i.op));
    if (memory && i.var_add != static_cast<int32_t>(i.var_add)) return ir::invalid("rows {} bytes apart", i.var_add);
    if (!multiplies_tiles(i.op)) return {};
    const int sums = tile_of(i.imm, 0), a = tile_of(i.imm, 1), b = tile_of(i.imm, 2), lines = p_.tile_rows[b];
    if (p_.tile_rows[sums] != p_.tile_rows[a] || (lines != kTileRows && lines != kTileRows / 2) ||
        tile_row_bytes(p_.tile_rows, a) != kTileBytes / kTileRows * lines ||
        tile_row_bytes(p_.tile_rows, b) != kTileBytes || tile_row_bytes(p_.tile_rows, sums) != kTileBytes)
      return ir::invalid("a product of tiles whose rows do not fit");
    return {};
  }

  ir::Status inst(const Inst& i, Defined& d) {
    if (static_cast<int>(i.op) >= kLeafOpCount) return ir::invalid("unknown instruction {}", static_cast<int>(i.op));
    const LeafOpKind kind = leaf_op_kind(i.op);
    const bool tile_rows = i.op == LeafOp::k_tile_load || i.op == LeafOp::k_tile_store;
    const bool memory =
        kind == LeafOpKind::kLoad || kind == LeafOpKind::kStore || kind == LeafOpKind::kHint || tile_rows;
    if (memory) {
      LATHE_RETURN_IF_ERROR(use(d.ptrs, i.mem.ptr, "pointer"));
      if (i.mem.index_kind == Mem::Index::var) LATHE_RETURN_IF_ERROR(use(d.vars, i.mem.index, "variable"));
      if (i.mem.index_kind == Mem::Index::stride) LATHE_RETURN_IF_ERROR(stride(i.mem.index));
      if (i.mem.index_kind > Mem::Index::stride) return ir::invalid("unknown kind of index");
      if (i.mem.scale != 1 && i.mem.scale != 2 && i.mem.scale != 4 && i.mem.scale != 8) {
        return ir::invalid("scale {}, expected 1, 2, 4 or 8", i.mem.scale);
      }
    } else if (i.mem.ptr >= 0) {
      return ir::invalid("{} with a memory operand", leaf_op_name(i.op));
    }
    if (static_cast<int>(i.type) >= kMemTypeCount) return ir::invalid("unknown type of memory");
    if (i.type != MemType::b32) LATHE_RETURN_IF_ERROR(narrow(i));
    for (int s = 0; s < leaf_op_sources(i.op); ++s) LATHE_RETURN_IF_ERROR(use(d.vregs, i.src[s], "register"));
    if (i.mask >= 0) {
      if (i.op != LeafOp::k_load && i.op != LeafOp::k_store && i.op != LeafOp::k_blend) {
        return ir::invalid("{} cannot be masked", leaf_op_name(i.op));
      }
      LATHE_RETURN_IF_ERROR(use(d.masks, i.mask, "mask"));
    } else if (i.op == LeafOp::k_blend) {
      return ir::invalid("blend without a mask");
    }
    if (kind == LeafOpKind::kTile) return tiles(i);
    switch (i.op) {
      case LeafOp::k_scalef:
        if (!has_scalef(p_)) return ir::invalid("scalef at level {}", ir::isa_name(p_.level));
        break;
      case LeafOp::k_dot2_bf16:
        if (!has_dot2(p_)) return ir::invalid("dot2_bf16 without AVX512_BF16 at level {}", ir::isa_name(p_.level));
        break;
      case LeafOp::k_shift_left:
      case LeafOp::k_shift_right:
      case LeafOp::k_shift_right_arith:
        if (i.imm > 31) return ir::invalid("{} by {}", leaf_op_name(i.op), i.imm);
        break;
      case LeafOp::k_shuffle128:
        if (i.imm > 255) return ir::invalid("shuffle128 control {}", i.imm);
        break;
      case LeafOp::k_extent_f32:
        LATHE_RETURN_IF_ERROR(extent(i.extent));
        break;
      case LeafOp::k_index_i32:
        if (i.imm > 1) return ir::invalid("index_i32 of lanes {} apart", i.imm);
        LATHE_RETURN_IF_ERROR(extent(i.extent));
        if (i.var >= 0) LATHE_RETURN_IF_ERROR(use(d.vars, i.var, "variable"));
        break;
      case LeafOp::k_mask_tail:
        LATHE_RETURN_IF_ERROR(extent(i.extent));
        if (i.var >= 0) LATHE_RETURN_IF_ERROR(use(d.vars, i.var, "variable"));
        break;
      default:
        break;
    }
    if (kind == LeafOpKind::kMask) return define(d.masks, i.dst, "mask");
    if (kind == LeafOpKind::kStore || kind == LeafOpKind::kHint) return {};
    return define(d.vregs, i.dst, "register");
  }

  ir::Status node(const Node& n, Defined& d, int depth) {
    if (n.kind != Node::Kind::loop && n.kind != Node::Kind::if_less && n.kind != Node::Kind::segments &&
        n.kind != Node::Kind::if_any && !n.body.empty()) {
      return ir::invalid("a body where none belongs");
    }
    switch (n.kind) {
      case Node::Kind::inst:
        return inst(n.inst, d);
      case Node::Kind::loop: {
        LATHE_RETURN_IF_ERROR(extent(n.extent));
        if (n.step <= 0) return ir::invalid("loop step {}", n.step);
        if (busy(n.var)) return ir::invalid("variable {} of an enclosing loop", n.var);
        if (n.init) LATHE_RETURN_IF_ERROR(define(d.vars, n.var, "variable"));
        LATHE_RETURN_IF_ERROR(use(d.vars, n.var, "variable"));
        for (const PtrStep& s : n.steps) LATHE_RETURN_IF_ERROR(step(s, d));
        loop_vars_.push_back(n.var);
        LATHE_RETURN_IF_ERROR(block(n.body, d, depth));
        loop_vars_.pop_back();
        return {};
      }
      case Node::Kind::if_less: {
        LATHE_RETURN_IF_ERROR(extent(n.extent));
        LATHE_RETURN_IF_ERROR(use(d.vars, n.var, "variable"));
        return block(n.body, d, depth);
      }
      case Node::Kind::if_any:
        LATHE_RETURN_IF_ERROR(use(d.masks, n.mask, "mask"));
        return block(n.body, d, depth);
      case Node::Kind::segments: {
        if (in_segments_) return ir::invalid("nested segments");
        LATHE_RETURN_IF_ERROR(use(d.ptrs, n.seg_base_a, "pointer"));
        LATHE_RETURN_IF_ERROR(use(d.ptrs, n.seg_base_b, "pointer"));
        const size_t outside = defined_.size();
        LATHE_RETURN_IF_ERROR(define(d.ptrs, n.seg_ptr_a, "pointer"));
        LATHE_RETURN_IF_ERROR(define(d.ptrs, n.seg_ptr_b, "pointer"));
        in_segments_ = true;
        LATHE_RETURN_IF_ERROR(nodes(n.body, d, depth + 1));
        in_segments_ = false;
        forget(outside);
        return {};
      }
      case Node::Kind::set_ptr:
        if (n.steps.size() != 1) return ir::invalid("set_ptr with {} steps", n.steps.size());
        LATHE_RETURN_IF_ERROR(use(d.ptrs, n.from, "pointer"));
        LATHE_RETURN_IF_ERROR(terms(n.steps[0].terms));
        return define(d.ptrs, n.steps[0].ptr, "pointer");
      case Node::Kind::set_var:
        if (busy(n.var)) return ir::invalid("variable {} of an enclosing loop", n.var);
        return define(d.vars, n.var, "variable");
      case Node::Kind::add_stream:
        if (n.steps.size() != 1) return ir::invalid("add_stream with {} steps", n.steps.size());
        if (n.from < 0 || n.from >= ir::kMaxLeafStreams) return ir::invalid("stream {} out of range", n.from);
        return use(d.ptrs, n.steps[0].ptr, "pointer");
    }
    return ir::invalid("unknown kind of node");
  }

  ir::Status nodes(const Nodes& body, Defined& d, int depth) {
    if (depth > kMaxDepth) return ir::invalid("nested more than {} deep", kMaxDepth);
    for (const Node& n : body) LATHE_RETURN_IF_ERROR(node(n, d, depth));
    return {};
  }

  // What a body defines is not defined after it.
  ir::Status block(const Nodes& body, Defined& d, int depth) {
    const size_t outside = defined_.size();
    LATHE_RETURN_IF_ERROR(nodes(body, d, depth + 1));
    forget(outside);
    return {};
  }
  void forget(size_t outside) {
    for (; defined_.size() > outside; defined_.pop_back()) *defined_.back() = 0;
  }

  const LeafProgram& p_;
  std::pmr::vector<uint8_t*> defined_;  // flags set, in order
  std::vector<int> loop_vars_;
  bool in_segments_ = false;
};

}  // namespace

ir::Status verify_program(const LeafProgram& program) { return Checker(program).run().with_context("leaf program"); }

}  // namespace lathe::jit
