// See tensor_packing.h.
#include "runtime/compile/tensor_packing.h"

#include <algorithm>
#include <cstring>

#include "ir/base/hash.h"
#include "runtime/compile/packed_places.h"

namespace lathe::runtime {

namespace {

const PackedParam* packed_of(const Stage& stage, size_t param) {
  const auto at = std::find_if(stage.packed.begin(), stage.packed.end(),
                               [&](const PackedParam& p) { return p.param == static_cast<int>(param); });
  return at == stage.packed.end() ? nullptr : &*at;
}

}  // namespace

ir::Status all_parts_packed(const ops::LoweredKernel& kernel, const Stage& stage, int tensor) {
  size_t readers = 0, packed = 0;
  for (size_t param = 0; param < kernel.params.size(); ++param) {
    if (kernel.params[param].tensor != tensor) continue;
    ++readers;
    packed += packed_of(stage, param) != nullptr;
  }
  if (packed == 0 || packed == readers) return {};
  return ir::unsupported("a constant is read both packed and as it lies");
}

ir::Result<TensorPacking> tensor_packing(const ops::LoweredKernel& kernel, const Stage& stage, int tensor,
                                         const SymbolValues& symbols) {
  TensorPacking out;
  LATHE_RETURN_IF_ERROR(all_parts_packed(kernel, stage, tensor));
  std::vector<const PackedParam*> all;
  for (size_t param = 0; param < kernel.params.size(); ++param) {
    const PackedParam* packed = kernel.params[param].tensor == tensor ? packed_of(stage, param) : nullptr;
    if (packed == nullptr) continue;
    out.layout_id =
        out.parts.empty() ? packed->layout_id : ir::hash_bytes(&packed->layout_id, sizeof(uint64_t), out.layout_id);
    out.parts.push_back({packed, kernel.params[param].offset, 0});
    all.push_back(packed);
  }
  if (all.size() > 1) out.layout_id = ir::hash_bytes(&kPlacesVersion, sizeof(kPlacesVersion), out.layout_id);
  LATHE_ASSIGN(const PackedPlaces places, packed_places(all, symbols));
  for (size_t i = 0; i < all.size(); ++i) out.parts[i].at = places.places[i].at;
  out.bytes = places.bytes;
  return out;
}

ir::Status run_pack(const TensorPacking& packing, const SymbolValues& symbols, const void* src, void* dst,
                    TaskArena* arena) {
  std::vector<const PackedParam*> all;
  for (const TensorPacking::Part& p : packing.parts) all.push_back(p.packed);
  LATHE_ASSIGN(const PackedPlaces places, packed_places(all, symbols));
  if (places.gaps) std::memset(dst, 0, static_cast<size_t>(packing.bytes));
  for (const TensorPacking::Part& p : packing.parts) {
    LATHE_RETURN_IF_ERROR(run_pack(*p.packed, symbols, {}, static_cast<const char*>(src) + p.from,
                                   static_cast<char*>(dst) + p.at, arena));
  }
  return {};
}

ir::Status launch_pack(const TensorPacking& packing, const void* src, void* dst, void* stream) {
  for (const TensorPacking::Part& p : packing.parts)
    LATHE_RETURN_IF_ERROR(
        launch_pack(*p.packed, static_cast<const char*>(src) + p.from, static_cast<char*>(dst) + p.at, stream));
  return {};
}

}  // namespace lathe::runtime
