// What tests ask of the driver that stands in the place of libcuda, beside the driver's own functions.
#pragma once
#include "tests/gpu/fakes/emulator.h"

namespace lathe::test {

struct FakeCuda {
  int loads = 0, launches = 0, allocations = 0, synchronisations = 0;
  Accesses accesses;
  std::string why;               // the last launch failed; empty: it did not
  Order order = Order::forward;  // of the threads of each launch
  int fail_launch = 0;           // the error of the next launch, once
  int fail_graph = 0;            // and of the next launch of a graph
  int fail_memory = 0;           // and of the next question whose memory it is
  int fail_load = 0;             // what loading code says
  int start = 0;                 // what cuInit says
  int version = 12040;
  void* last_stream = nullptr;
  unsigned last_blocks = 0, last_cluster = 0;
};

}  // namespace lathe::test

// Device memory that ends where nothing is mapped. device: its number.
extern "C" void* fake_cuda_alloc(size_t bytes, int device);
extern "C" void fake_cuda_free(void* address);
extern "C" lathe::test::FakeCuda* fake_cuda();
