// See tensor_packing.h.
#include "runtime/compile/tensor_packing.h"

#include <algorithm>
#include <cstring>

#include "ir/base/hash.h"

namespace lathe::runtime {

namespace {

constexpr int64_t kPartAlign = 64;

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
  for (size_t param = 0; param < kernel.params.size(); ++param) {
    const PackedParam* packed = kernel.params[param].tensor == tensor ? packed_of(stage, param) : nullptr;
    if (packed == nullptr) continue;
    LATHE_ASSIGN(const int64_t bytes, packed_bytes(*packed, symbols));
    const int64_t at = (out.bytes + kPartAlign - 1) / kPartAlign * kPartAlign;
    if (__builtin_add_overflow(at, bytes, &out.bytes) || out.bytes > INT64_MAX - kPartAlign)
      return ir::invalid("packed size overflows");
    out.layout_id =
        out.parts.empty() ? packed->layout_id : ir::hash_bytes(&packed->layout_id, sizeof(uint64_t), out.layout_id);
    out.parts.push_back({packed, kernel.params[param].offset, at});
  }
  return out;
}

ir::Status run_pack(const TensorPacking& packing, const SymbolValues& symbols, const void* src, void* dst,
                    TaskArena* arena) {
  int64_t end = 0;
  for (const TensorPacking::Part& p : packing.parts) {
    std::memset(static_cast<char*>(dst) + end, 0, static_cast<size_t>(p.at - end));
    LATHE_RETURN_IF_ERROR(run_pack(*p.packed, symbols, {}, static_cast<const char*>(src) + p.from,
                                   static_cast<char*>(dst) + p.at, arena));
    LATHE_ASSIGN(const int64_t bytes, packed_bytes(*p.packed, symbols));
    end = p.at + bytes;
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
