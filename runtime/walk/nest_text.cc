// See nest_text.h.
#include "runtime/walk/nest_text.h"

#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::runtime {

namespace {

std::string buffer_name(const ir::CutKernel& cut, int buffer) {
  if (buffer >= cut.nest.num_params) return cut.nest.scratch[static_cast<size_t>(buffer - cut.nest.num_params)].name;
  int param = 0;
  for (const ir::Buffer& b : cut.kernel.buffers) {
    if (ir::is_param(b.place) && param++ == buffer) return b.name;
  }
  return "?";
}

void print_call(const ir::CutKernel& cut, const ir::NestCall& call, const std::string& pad, std::string& out) {
  out += pad + "call leaf ";
  if (call.leaves.size() == 1) {
    out += std::to_string(call.leaves[0]);
  } else {
    out += fmt::format("{}..{} by", call.leaves.front(), call.leaves.back());
    for (const ir::NestCall::Variant& v : call.variants)
      out += fmt::format(" {} in 1..{}", ir::print(v.extent), v.count);
  }
  out += "\n";
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const ir::NestOperand& o = call.operands[i];
    out += fmt::format("{}  p{} = {} + {}", pad, i, buffer_name(cut, o.buffer), ir::print(o.offset));
    for (const ir::Expr& s : o.strides) out += fmt::format(", step {}", ir::print(s));
    out += "\n";
  }
  for (size_t i = 0; i < call.extents.size(); ++i)
    out += fmt::format("{}  e{} = {}\n", pad, i, ir::print(call.extents[i]));
  for (const ir::NestSegment& s : call.segments) {
    out += fmt::format("{}  seglen = {}", pad, ir::print(s.len));
    if (s.a_bytes) out += fmt::format(", a + {}", ir::print(s.a_bytes));
    if (s.b_bytes) out += fmt::format(", b + {}", ir::print(s.b_bytes));
    out += "\n";
  }
  for (const ir::NestStream& s : call.streams) {
    if (s.share.offset) {
      out += fmt::format("{}  prefetch {} + {}, {} lines per four steps, {} bytes on\n", pad,
                         buffer_name(cut, s.share.buffer), ir::print(s.share.offset), s.lines, ir::print(s.share_step));
      continue;
    }
    out += fmt::format("{}  prefetch p{}: {}, {} lines per four steps\n", pad, s.operand,
                       s.spread_iter.empty()
                           ? fmt::format("{} bytes ahead", s.distance)
                           : fmt::format("next {} bytes, shared out over {}", ir::print(s.block_bytes), s.spread_iter),
                       s.lines);
  }
}

void print_nodes(const ir::CutKernel& cut, const std::vector<ir::NestNode>& nodes, int indent, std::string& out) {
  const std::string pad(static_cast<size_t>(indent) * 2, ' ');
  for (const ir::NestNode& n : nodes) {
    if (n.kind == ir::NestNode::Kind::call) {
      print_call(cut, n.call, pad, out);
      continue;
    }
    out += fmt::format("{}{} {} < {}:\n", pad, n.parallel ? "parallel" : "for", n.iter, ir::print(n.extent));
    print_nodes(cut, n.body, indent + 1, out);
  }
}

}  // namespace

std::string nest_text(const ir::CutKernel& cut) {
  std::string out;
  for (const ir::NestScratch& s : cut.nest.scratch) {
    out += fmt::format("scratch {}: {} bytes{}\n", s.name, ir::print(s.bytes), s.per_thread ? " per thread" : "");
  }
  for (size_t p = 0; p < cut.nest.phases.size(); ++p) {
    out += fmt::format("phase {}:\n", p);
    print_nodes(cut, {cut.nest.phases[p]}, 1, out);
  }
  return out;
}

}  // namespace lathe::runtime
