// Runs a launch on the host: block after block, or cluster after cluster, and in a block each thread as a fiber, in an
// order of the caller's choice. A thread that waits, at a barrier or for the threads that it exchanges values with,
// lets others run. Shared memory starts as NaN.
#pragma once
#include <cstdint>
#include <string>

#include "tests/gpu/fakes/bank_log.h"

namespace lathe::test {

enum class Order { forward, backward, shuffled };
// When copies that are waited for arrive, and products of groups of warps are computed.
enum class Copies { early, late };
enum class Products { early, late };
// seed: of what is shuffled.
struct Way {
  Order order = Order::forward;
  Copies copies = Copies::late;
  Products products = Products::late;
  unsigned seed = 0;
};

// What a launch did to memory, added up over all launches.
struct Accesses {
  int64_t loads[4] = {}, stores[4] = {};  // of 1, 2, 4 and 8 elements at once, not of shared memory
};

struct GroupProduct;

class EmulatedKernel {
 public:
  // code: a shared object that the fake compiler made. False: it does not load, or has no such kernel.
  bool open(std::string_view code, const std::string& name);
  int threads() const { return threads_; }
  int cluster() const { return cluster_; }  // blocks that run at once
  unsigned long arg_bytes() const { return arg_bytes_; }
  // Bytes of shared memory that launches from here on ask for.
  void ask_for_shared(int bytes) const { *shared_ = bytes; }
  // What went wrong; empty: nothing. An access that is not aligned; an element that a thread stored and another loaded
  // or stored with no barrier in between, or touched before a copy to it had arrived; threads that wait for each other
  // in different places.
  // banks: to count conflicts of shared memory and sectors of the GPU's in, or null.
  std::string run(unsigned blocks, unsigned threads, const void* args, const Way& way, Accesses& accesses,
                  BankCounts* banks = nullptr) const;

 private:
  void (*entry_)(const void*) = nullptr;
  long long *block_ = nullptr, *blocks_ = nullptr, *thread_ = nullptr, *accesses_ = nullptr;
  int* misaligned_ = nullptr;
  void (**wait_barrier_)(int) = nullptr;
  float (**wait_shuffle_)(float, int) = nullptr;
  void (**wait_warp_)(int, void (*)(void* const*), void*) = nullptr;
  void (**note_)(const void*, int, int, bool) = nullptr;
  void (**note_warp_)(const void*, int, int) = nullptr;
  void (**note_shared_)(void*, unsigned long) = nullptr;
  void (**note_banks_)(int, const void*, int) = nullptr;
  void (**note_sectors_)(int, const void*, int, bool) = nullptr;
  void (**start_copy_)(void*, const void*, int, int) = nullptr;
  void (**end_group_)() = nullptr;
  void (**wait_groups_)(int) = nullptr;
  void (**start_product_)(int, const GroupProduct*) = nullptr;
  void (**end_products_)(int) = nullptr;
  void (**wait_products_)(int, int) = nullptr;
  void (**hand_over_)(bool) = nullptr;
  void (**make_ring_)(const void*, int) = nullptr;
  void (**arrive_at_)(const void*, long long) = nullptr;
  void (**wait_ring_)(const void*, long long) = nullptr;
  void (**start_box_)(void*, const void*, const void*, int, const int*) = nullptr;
  void (**wait_cluster_)() = nullptr;
  void (**arrive_in_blocks_)(const void*) = nullptr;
  void (**start_boxes_)(void*, const void*, const void*, int, const int*) = nullptr;
  long long* place_ = nullptr;
  char** base_ = nullptr;
  int threads_ = 0, cluster_ = 1;
  unsigned long arg_bytes_ = 0;
  long long* shared_ = nullptr;
};

}  // namespace lathe::test
