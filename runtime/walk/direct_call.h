// The call of a nest that makes one, with no loops and no scratch: the arguments are numbers but for the addresses, and
// only those that the leaf reads are written. Each call writes its own, so any number of threads may run one.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "ir/leaf_abi.h"
#include "runtime/walk/leaf_ref.h"
#include "runtime/walk/x86/cpu.h"

namespace lathe::runtime {

struct DirectCall {
  struct Word {
    uint32_t at = 0;  // bytes into ir::LeafArgs
    int64_t value = 0;
  };
  struct Address {
    uint32_t at = 0, from = 0;  // of argument `from`
    int64_t bytes = 0;
  };
  std::vector<Word> words;
  std::vector<Address> addresses;
  std::vector<ir::LeafSeg> segments;
  uint32_t leaf = 0;        // its number
  bool vzeroupper = false;  // as of BoundNest

  void run(const LeafRef& with, void* const* arguments) const {
    ir::LeafArgs args;  // NOLINT: what is not written is not read
    char* const at = reinterpret_cast<char*>(&args);
    for (const Word& w : words) std::memcpy(at + w.at, &w.value, sizeof w.value);
    for (const Address& a : addresses) {
      const char* const address = static_cast<const char*>(arguments[a.from]) + a.bytes;
      std::memcpy(at + a.at, &address, sizeof address);
    }
    args.seg = segments.data();
    args.nseg = static_cast<int64_t>(segments.size());
    with(&args);
    if (vzeroupper) zero_upper_halves();
  }
};

}  // namespace lathe::runtime
