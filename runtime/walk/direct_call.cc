// See nest_bind.h: a nest that is one call.
#include <algorithm>
#include <cstddef>

#include "runtime/walk/nest_bind.h"

namespace lathe::runtime {

std::optional<DirectCall> direct_call(const BoundNest& nest, const std::vector<ir::Leaf>& leaves) {
  const auto& phases = nest.phases;
  const bool one = phases.size() == 1 && phases[0].num_nodes == 1 && !nest.nodes[phases[0].first_node].loop &&
                   nest.calls[0].num_values == 0 && nest.scratch.empty() &&
                   std::none_of(nest.pointers.begin(), nest.pointers.end(),
                                [](const auto& p) { return p.general || p.bytes.num_terms != 0; });
  if (!one) return {};
  const BoundCall& c = nest.calls[0];
  DirectCall out;
  out.leaf = c.leaf;
  out.vzeroupper = nest.vzeroupper;
  const auto word = [&](size_t at, int64_t value) { out.words.push_back({static_cast<uint32_t>(at), value}); };
  const std::vector<ir::Buffer>& read = leaves[c.leaf].kernel.buffers;
  for (size_t i = 0; i < c.num_operands; ++i) {
    // A stride that is a number in the leaf is read nowhere.
    for (size_t d = 0; d < ir::kMaxLeafStrides; ++d) {
      const bool baked = i < read.size() && (d >= read[i].strides.size() || read[i].strides[d]);
      if (!baked) word(i * sizeof(ir::LeafOperand) + offsetof(ir::LeafOperand, stride) + 8 * d, c.args.op[i].stride[d]);
    }
  }
  for (size_t i = 0; i < c.num_extents; ++i) word(offsetof(ir::LeafArgs, extent) + 8 * i, c.args.extent[i]);
  const auto first = nest.segments.begin() + c.first_segment;
  out.segments.assign(first, first + c.args.nseg);
  for (size_t i = 0; i < c.num_pointers; ++i) {
    const BoundPointer& p = nest.pointers[c.first_pointer + i];
    const auto address = [&](size_t at, int64_t bytes) {
      out.addresses.push_back({static_cast<uint32_t>(at), p.buffer, p.bytes.base + bytes});
    };
    if (!p.stream) {
      address(p.slot * sizeof(ir::LeafOperand) + offsetof(ir::LeafOperand, ptr), 0);
      continue;
    }
    const size_t at = offsetof(ir::LeafArgs, stream) + p.slot * sizeof(ir::LeafStream);
    address(at + offsetof(ir::LeafStream, ptr), 0);
    address(at + offsetof(ir::LeafStream, end), reinterpret_cast<intptr_t>(c.args.stream[p.slot].end));
    word(at + offsetof(ir::LeafStream, step), c.args.stream[p.slot].step);
  }
  return out;
}

}  // namespace lathe::runtime
