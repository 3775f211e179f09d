// See tensor_maps.h.
#include "runtime/cuda/tensor_maps.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/core/binding.h"
#include "ir/core/text_form.h"

namespace lathe::runtime {

using ir::Result;
using ir::SymbolValues;

static constexpr int kBytes = 2;  // of an element

Result<std::vector<BoundMap>> bind_maps(const std::vector<jit::DeviceMap>& maps, const std::vector<int64_t>& sizes) {
  SymbolValues symbols;
  for (size_t i = 0; i < sizes.size(); ++i) symbols.emplace_back(fmt::format("e{}", i), sizes[i]);
  if (maps.size() > kMostMaps) return ir::unsupported("a launch with {} maps", maps.size());
  std::vector<BoundMap> out;
  for (const jit::DeviceMap& m : maps) {
    BoundMap& bound = out.emplace_back(BoundMap{m.param, {}, {}, {m.box.begin(), m.box.end()}});
    const auto add = [&](const ir::Expr& e, uint64_t by, std::vector<uint64_t>& to) {
      const std::optional<int64_t> value = ir::evaluate(e, symbols);
      if (!value || *value < 0) return ir::invalid("{} has no value", print(e));
      to.push_back(static_cast<uint64_t>(*value) * by);
      return ir::Status();
    };
    for (const ir::Expr& e : m.sizes) LATHE_RETURN_IF_ERROR(add(e, 1, bound.sizes));
    for (const ir::Expr& e : m.strides) LATHE_RETURN_IF_ERROR(add(e, kBytes, bound.strides));
  }
  return out;
}

void put_maps(EncodeMap encode, const std::vector<BoundMap>& maps, const uint64_t* addresses, uint64_t* args,
              size_t n) {
  if (maps.empty()) return;
  constexpr uint32_t kSteps[jit::kMostMapDims] = {1, 1, 1, 1, 1};
  constexpr size_t kAligned = jit::kMapAligned / sizeof(uint64_t);
  uint64_t& mapped = args[n];
  mapped = 1;
  n = (n + 1 + kAligned - 1) / kAligned * kAligned;
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  for (const BoundMap& m : maps) {
    const auto words = [](const std::vector<uint64_t>& v) {
      return reinterpret_cast<const unsigned long long*>(v.data());
    };
    const int error = encode(args + n, cuda::kMapOfShorts, static_cast<unsigned>(m.sizes.size()),
                             reinterpret_cast<void*>(addresses[m.param]), words(m.sizes), words(m.strides),
                             m.box.data(), kSteps, cuda::kMapNoInterleave,
                             cuda::map_swizzle(kBytes * int64_t{m.box[0]}), cuda::kMapPromoted, cuda::kMapZeros);
    if (error != 0) mapped = 0;  // it begins or steps at no multiple of 16 bytes, or has no elements: threads copy
    n += kMapWords;
  }
}

}  // namespace lathe::runtime
