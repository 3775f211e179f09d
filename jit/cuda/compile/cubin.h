// Reads what a cubin says of a kernel in it: for which GPU it is, what it takes, and which accesses it makes. Any bytes
// give an answer or an error.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "ir/base/status.h"

namespace lathe::jit {

struct AccessCounts {
  int narrow = 0, bits64 = 0, bits128 = 0;  // up to 32 bits; 64; 128
};

struct CubinInfo {
  int sm = 0;         // 90; of its letter the file says nothing for certain
  int cluster = 1;    // blocks that run at once
  int registers = 0;  // of a thread
  int frame_bytes = 0;
  int instructions = 0;        // 0: the file does not show them
  int local = 0;               // loads and stores of local memory: spills, or arrays that are no registers
  AccessCounts loads, stores;  // of global memory
  AccessCounts shared_loads, shared_stores;
  int fma = 0, barriers = 0;      // of f32; for all threads of a block
  int mma = 0, matrix_loads = 0;  // of a warp: HMMA and IMMA, LDSM
  int group_mma = 0;              // of four warps: HGMMA
  int async_copies = 0;           // of global memory to shared memory
  int box_copies = 0;             // of a tensor, whole boxes: UTMALDG
  int shared_boxes = 0;           // of these, to all blocks of a cluster: UTMALDG.MULTICAST
  int cluster_barriers = 0;       // for all threads of a cluster: UCGABAR_ARV
  int rings = 0;                  // what is done with mbarriers: SYNCS
  int register_changes = 0;       // of a role: USETMAXREG
};

// INVALID: no ELF file for a GPU, cut short, or without that kernel.
ir::Result<CubinInfo> read_cubin(std::string_view bytes, const std::string& kernel);

}  // namespace lathe::jit
