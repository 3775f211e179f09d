// Leaf programs as text, and the facts of the instruction table. Format of to_text: the example in
// leaf_program.h; it is for people and logs, nothing reads it back.
#include "jit/program/leaf_program.h"

#include <fmt/format.h>

#include <iterator>

namespace lathe::jit {
namespace {

constexpr const char* kNames[] = {
#define LATHE_LEAF_OP(id, sources, kind) #id,
#include "jit/program/leaf_ops.def"
#undef LATHE_LEAF_OP
};
static_assert(std::size(kNames) == kLeafOpCount);
constexpr const char* kTypeNames[] = {
#define LATHE_MEM_TYPE(id, bytes, feature) #id,
#include "jit/program/mem_types.def"
#undef LATHE_MEM_TYPE
};

std::string extent_text(const Extent& e) {
  std::string base;
  if (e.arg >= 0) base = fmt::format("e{}", e.arg);
  if (e.arg == Extent::kSegLen) base = "seglen";
  if (base.empty()) return fmt::format("{}", e.add);
  if (e.add == 0) return base;
  return fmt::format("{} {} {}", base, e.add < 0 ? "-" : "+", e.add < 0 ? -e.add : e.add);
}

std::string stride_text(int stride) {
  return fmt::format("stride{}.{}", stride / ir::kMaxLeafStrides, stride % ir::kMaxLeafStrides);
}

std::string offset_text(int64_t bytes, const std::vector<PtrTerm>& terms) {
  std::string out;
  if (bytes != 0) out += fmt::format(" {} {}", bytes < 0 ? "-" : "+", bytes < 0 ? -bytes : bytes);
  for (const PtrTerm& t : terms) out += fmt::format(" + {} * {}", stride_text(t.stride), t.mult);
  return out;
}

std::string mem_text(const Mem& m) {
  std::string out = fmt::format("[ptr {}", m.ptr);
  if (m.index_kind == Mem::Index::var) out += fmt::format(" + x{} * {}", m.index, m.scale);
  if (m.index_kind == Mem::Index::stride) out += fmt::format(" + {} * {}", stride_text(m.index), m.scale);
  if (m.disp != 0) out += fmt::format(" {} {}", m.disp < 0 ? "-" : "+", m.disp < 0 ? -int64_t{m.disp} : m.disp);
  return out + "]";
}

std::string inst_text(const Inst& i) {
  const LeafOpKind kind = leaf_op_kind(i.op);
  std::string out;
  if (i.dst >= 0) out += fmt::format("{}{} = ", kind == LeafOpKind::kMask ? "k" : "v", i.dst);
  out += leaf_op_name(i.op);
  if (i.type != MemType::b32) out += fmt::format(".{}", mem_type_name(i.type));
  std::vector<std::string> parts;
  if (i.mem.ptr >= 0) parts.push_back(mem_text(i.mem));
  if (kind == LeafOpKind::kTile) {
    const int tiles = multiplies_tiles(i.op) ? 3 : 1;
    for (int t = 0; t < tiles; ++t) parts.push_back(fmt::format("t{}", tile_of(i.imm, t)));
    if (i.mem.ptr >= 0 && i.mem.index_kind == Mem::Index::none) parts.push_back(fmt::format("rows {}", i.var_add));
  }
  for (int s = 0; s < leaf_op_sources(i.op); ++s) parts.push_back(fmt::format("v{}", i.src[s]));
  if (i.op == LeafOp::k_mask_tail) {
    std::string at = i.var >= 0 ? fmt::format("x{}", i.var) : "0";
    if (i.var_add != 0) at += fmt::format(" + {}", i.var_add);
    parts.push_back(at);
  }
  if (i.op == LeafOp::k_mask_tail || i.op == LeafOp::k_extent_f32) parts.push_back(extent_text(i.extent));
  if (i.op == LeafOp::k_index_i32) {
    parts.push_back(extent_text(i.extent));
    if (i.var >= 0) parts.back() += fmt::format(" + x{}", i.var);
    if (i.imm != 0) parts.back() += " + lane";
  }
  if (i.op == LeafOp::k_constant) {
    float value;
    __builtin_memcpy(&value, &i.imm, sizeof value);
    parts.push_back(fmt::format("{:#010x}  ; {}", i.imm, value));
  } else if (i.op == LeafOp::k_shuffle128 || i.op == LeafOp::k_shift_left || i.op == LeafOp::k_shift_right ||
             i.op == LeafOp::k_shift_right_arith) {
    parts.push_back(fmt::format("{:#x}", i.imm));
  }
  for (size_t p = 0; p < parts.size(); ++p) out += (p == 0 ? " " : ", ") + parts[p];
  if (i.mask >= 0) out += fmt::format(" {{k{}}}", i.mask);
  return out;
}

std::string steps_text(const std::vector<PtrStep>& steps) {
  std::string out;
  for (const PtrStep& s : steps) out += fmt::format("; ptr {} +={}", s.ptr, offset_text(s.bytes, s.terms));
  return out;
}

void print_nodes(const Nodes& nodes, int depth, std::string* out) {
  const std::string indent(static_cast<size_t>(depth) * 2, ' ');
  for (const Node& n : nodes) {
    std::string line;
    switch (n.kind) {
      case Node::Kind::inst:
        line = inst_text(n.inst);
        break;
      case Node::Kind::loop:
        line = fmt::format("loop {}x{} + {} <= {}; x{} += {}{}", n.init ? fmt::format("x{} = 0; ", n.var) : "", n.var,
                           n.step, extent_text(n.extent), n.var, n.step, steps_text(n.steps));
        break;
      case Node::Kind::if_less:
        line = fmt::format("if x{} < {}", n.var, extent_text(n.extent));
        break;
      case Node::Kind::if_any:
        line = fmt::format("if any k{}", n.mask);
        break;
      case Node::Kind::segments:
        line = fmt::format("segments ptr {} = ptr {} + a_off; ptr {} = ptr {} + b_off", n.seg_ptr_a, n.seg_base_a,
                           n.seg_ptr_b, n.seg_base_b);
        break;
      case Node::Kind::set_ptr:
        if (n.steps.size() == 1) {
          line =
              fmt::format("ptr {} = ptr {}{}", n.steps[0].ptr, n.from, offset_text(n.steps[0].bytes, n.steps[0].terms));
        }
        break;
      case Node::Kind::set_var:
        line = fmt::format("x{} = 0", n.var);
        break;
      case Node::Kind::add_stream:
        if (n.steps.size() == 1) line = fmt::format("ptr {} += stream[{}].step", n.steps[0].ptr, n.from);
        break;
    }
    *out += indent + line + "\n";
    print_nodes(n.body, depth + 1, out);
  }
}

}  // namespace

const char* leaf_op_name(LeafOp op) { return kNames[static_cast<int>(op)]; }
const char* mem_type_name(MemType type) { return kTypeNames[static_cast<int>(type)]; }

bool contains(const Nodes& body, LeafOp op) {
  for (const Node& node : body) {
    if (node.kind == Node::Kind::inst ? node.inst.op == op : contains(node.body, op)) return true;
  }
  return false;
}

std::string to_text(const LeafProgram& p) {
  std::string out = fmt::format("program {}\n  {} lanes {} vector {} mask {}; vregs {} masks {} vars {}\n", p.name,
                                ir::isa_name(p.level), p.lanes, p.vector_registers, p.mask_registers, p.num_vregs,
                                p.num_masks, p.num_vars);
  for (size_t i = 0; i < p.ptrs.size(); ++i) {
    const PtrInit& init = p.ptrs[i];
    if (init.slot < 0 && init.stream < 0) continue;
    out += fmt::format("  ptr {} = {}{}\n", i,
                       init.slot >= 0 ? fmt::format("op[{}]", init.slot) : fmt::format("stream[{}]", init.stream),
                       offset_text(init.bytes, init.terms));
  }
  print_nodes(p.body, 1, &out);
  return out;
}

}  // namespace lathe::jit
