// See fake_maps.h: what the driver's manual asks for.
#include "tests/gpu/fakes/fake_maps.h"

#include <cstring>

namespace lathe::test {

int encode_map(void* map, int type, unsigned dims, void* base, const unsigned long long* sizes,
               const unsigned long long* strides, const unsigned* box, const unsigned* steps, int interleave,
               int swizzle, int promotion, int fill) {
  constexpr int kInvalid = 1, kShorts = 1;
  FakeMap out;
  out.base = reinterpret_cast<uintptr_t>(base);
  const bool known = type == kShorts && interleave == 0 && swizzle >= 1 && swizzle <= 3 && promotion >= 0 &&
                     promotion <= 3 && fill == 0;
  if (!known || reinterpret_cast<uintptr_t>(map) % 128 != 0 || out.base % 16 != 0 || dims < 1 || dims > 5)
    return kInvalid;
  out.dims = dims;
  out.element = 2;
  out.line = static_cast<uint16_t>(16 << swizzle);
  for (uint32_t d = 0; d < dims; ++d) {
    if (sizes[d] < 1 || sizes[d] > 1ull << 32 || box[d] < 1 || box[d] > 256 || steps[d] != 1) return kInvalid;
    if (d > 0 && (strides[d - 1] % 16 != 0 || strides[d - 1] >= 1ull << 40)) return kInvalid;
    out.sizes[d] = sizes[d];
    out.box[d] = static_cast<uint16_t>(box[d]);
    if (d > 0) out.strides[d - 1] = strides[d - 1];
  }
  if (box[0] * out.element > out.line || box[0] * out.element % 16 != 0) return kInvalid;
  std::memcpy(map, &out, sizeof out);
  return 0;
}

}  // namespace lathe::test
