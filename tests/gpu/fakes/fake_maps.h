// Maps of tensors as the fake driver makes them and the emulator reads them.
#pragma once
#include <cstdint>

namespace lathe::test {

struct FakeMap {
  uint64_t base = 0;
  uint32_t dims = 0, element = 0;           // bytes of one
  uint64_t sizes[5] = {}, strides[4] = {};  // in elements; in bytes
  uint16_t box[5] = {};
  uint16_t line = 0;  // bytes that are swizzled
  char rest[28] = {};
};
static_assert(sizeof(FakeMap) == 128);

// As cuTensorMapEncodeTiled, of those forms that are used: 0, or its error.
int encode_map(void* map, int type, unsigned dims, void* base, const unsigned long long* sizes,
               const unsigned long long* strides, const unsigned* box, const unsigned* steps, int interleave,
               int swizzle, int promotion, int fill);

}  // namespace lathe::test
