// One block of a launch on the emulator: its threads as fibers, their rendezvous, and who touched which element since
// the last barrier. The blocks of a cluster run at once (block_cluster.cc).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/gpu/fakes/bank_log.h"
#include "tests/gpu/fakes/block/fiber.h"
#include "tests/gpu/fakes/block/touch_map.h"
#include "tests/gpu/fakes/fake_maps.h"

namespace lathe::test {

// As in the host's prelude.
struct GroupProduct {
  float* sums;
  int count;
  unsigned long long a, b;
  const unsigned* held[4];  // what the thread has of the first factor; null: it is a tile
  void (*compute)(float* const* sums, const unsigned* const (*held)[4], unsigned long long a, unsigned long long b);
  void (*pieces)(unsigned long long a, unsigned long long b, void (*each)(const void*));
};

class BlockRun {
 public:
  // Runs one thread after another.
  struct Runner {
    explicit Runner(size_t stack) : fiber(stack, &BlockRun::run_threads, this) {}
    BlockRun* block = nullptr;
    Fiber fiber;
  };
  using Runners = std::vector<std::unique_ptr<Runner>>;
  // thread: where the kernel finds its number. runners: those that nobody uses, and touches: of other turns; blocks
  // hand both on. base: where the kernel says where its shared memory begins. enter: before its threads run.
  BlockRun(void (*entry)(const void*), const void* args, long long* thread, Runners& runners, TouchMap& touches,
           char** base, std::function<void()> enter)
      : entry_(entry),
        args_(args),
        number_(thread),
        runners_(runners),
        touches_(touches),
        base_(base),
        enter_(std::move(enter)),
        turn_(touches.last_turn + 1) {}
  // To count conflicts of banks and sectors in; otherwise none are looked for.
  void count_banks(BankCounts* banks) { banks_ = banks; }
  // Blocks that run at once. order: of the threads that can go on; shuffled: again after each turn, by the seed, and
  // sometimes a block runs ahead. What went wrong; empty: nothing.
  static std::string run(const std::vector<BlockRun*>& cluster, const std::vector<int>& order, bool shuffled,
                         unsigned seed);

  // Of the thread that runs.
  void barrier(int number);
  float shuffle(float x, int distance);
  // all: what the warp does when its threads have come, given what each of them brings; null: it meets, and each sees
  // what the others stored.
  void warp(int number, void (*all)(void* const* lanes), void* mine);
  void note(const void* p, int bytes, int element, bool store);
  // What the thread asks for and all threads of its warp read.
  void note_warp(const void* p, int bytes, int element);
  void note_shared(void* p, unsigned long bytes);
  // Copies that arrive on their own: at once, or when they are waited for; which of the two no thread may tell.
  void start_copy(void* to, const void* from, int bytes, int element);
  void end_group();
  void wait_groups(int groups);
  void copies_arrive_late(bool late) { late_ = late; }
  // Products that four warps begin together: computed at once, or when they are waited for, and their sums are none
  // until then; which of the two no thread may tell.
  void start_product(int number, const GroupProduct& product);
  void end_products(int number);
  void wait_products(int number, int groups);
  void hand_over(bool shared);
  void products_are_late(bool late) { products_late_ = late; }
  // Boxes, which arrive at once or as late as possible, and the places of rings at which they do (block_rings.cc).
  void open_ring(const void* ring, int arrivals);
  void arrive_at(const void* ring, int64_t bytes);
  void await_ring(const void* ring, int64_t parity);
  void start_box(void* to, const void* map, const void* ring, int dims, const int* at);
  // The same in all blocks of the cluster, at the same places of their memory (block_cluster.cc).
  void cluster_barrier() { wait(State::at_cluster, 0); }
  void arrive_in_all(const void* ring);
  void start_boxes(void* to, const void* map, const void* ring, int dims, const int* at);
  void note_banks(int site, const void* p, int bytes) {
    if (banks_ != nullptr) bank_log_.note(current_, site, p, bytes);
  }
  void note_sectors(int site, const void* p, int bytes, bool store) {
    if (banks_ != nullptr) bank_log_.note_memory(current_, site, p, bytes, store);
  }

 private:
  enum class State : uint8_t { fresh, ready, at_barrier, at_shuffle, at_warp, at_group, at_ring, at_cluster, done };
  struct Copy {
    char* to;
    const char* from;
    int bytes, element;
  };
  struct Thread {
    State state = State::fresh;
    std::unique_ptr<Runner> runner;
    int place = 0;  // where it waits: the number in the text, the distance of the shuffle
    void (*all)(void* const*) = nullptr;
    void* mine = nullptr;
    float given = 0, got = 0;
    std::vector<Copy> open;                      // since the last group
    std::vector<std::vector<Copy>> groups;       // on their way, the oldest first
    std::function<void(size_t first)> together;  // what its group does when all of its threads have come
    const GroupProduct* product = nullptr;       // that it begins with its group
    bool sums_handed = false;
    std::vector<uintptr_t> stored, handed;  // pieces, since it handed over, and since it arrived at a ring
    const void* ring = nullptr;             // that it waits at, until it is not filled for a time of this parity
    unsigned parity = 0;
  };
  struct Ring {
    int arrivals = 1, pending = 1;
    int64_t bytes = 0;  // expected
    unsigned phase = 0;
  };
  struct Box {
    char* to;
    FakeMap map;
    const void* ring;
    int at[5] = {};
    uintptr_t bytes() const {
      uintptr_t out = map.element;
      for (uint32_t d = 0; d < map.dims; ++d) out *= map.box[d];
      return out;
    }
  };
  // Of a group of four warps: products begun, each with the sums of its threads and what it reads.
  struct Product {
    struct Held {
      const unsigned* of[4];
    };
    std::vector<float*> sums;
    std::vector<Held> held;
    GroupProduct of;
    std::vector<uintptr_t> pieces;
  };
  struct Group {
    std::vector<Product> open;
    std::vector<std::vector<Product>> groups;
    std::map<float*, std::vector<float>> true_sums;  // of those on their way, before them, by where a thread has them
    std::vector<uintptr_t> read;                     // pieces, by those that are done, since it last told others so
  };
  // Whether the warp has met since that touch by a thread of it, in which case the running thread knows of it.
  bool met(int thread, uint32_t before) const {
    return thread / kWarpSize == current_ / kWarpSize && before < meetings_[static_cast<size_t>(thread / kWarpSize)];
  }
  static constexpr int kWarpSize = 32;

  void begin(const std::vector<BlockRun*>& cluster, const std::vector<int>& order, bool shuffled, unsigned seed);
  // Each thread that can go on does, and those that wait for each other meet. Whether there were any.
  bool round();
  void end();
  bool all_are(State state) const;
  // Where what lies there in this block lies in another one, which must be there; null: it is not.
  const void* there(const void* p, BlockRun& other);
  [[noreturn]] static void run_threads(void* runner);
  void wait(State state, int place);
  void resume(int thread);
  // random: of several groups that may go on one does.
  bool release(std::mt19937* random);
  // f(touch) of each element, as touched since the last barrier.
  template <class F>
  void touched(const void* p, int bytes, int element, F f);
  void conflict(const Touch& t);
  void arrive(const std::vector<Copy>& group);
  template <class F>
  static void words(const Copy& c, F f);
  // block_rings.cc
  Ring* ring_at(const void* ring);
  void settle(Ring& ring);
  bool ring_is_full(const Thread& t);
  void arrive_box(size_t which);
  // block_products.cc
  void wait_group(int number, std::function<void(size_t first)> together);
  void begin(size_t first);
  void arrive(Group& group, size_t groups);
  void finish(Group& group, const Product& product);
  static void compute(const Product& product, const std::vector<float*>& sums);
  void note_stored(uintptr_t from, int bytes);
  bool in_shared(uintptr_t at) const;
  void fail(const std::string& why) {
    if (why_.empty()) why_ = why;
  }

  void (*entry_)(const void*);
  const void* args_;
  long long* number_;
  Runners& runners_;
  TouchMap& touches_;
  char** base_;
  std::function<void()> enter_;
  std::vector<BlockRun*> cluster_;  // itself among them
  char* own_base_ = nullptr;        // null: it has not begun
  std::vector<int> turn_order_;
  std::mt19937 random_;
  bool shuffled_ = false;
  std::vector<Thread> threads_;
  Fiber scheduler_;
  int current_ = 0;
  uint32_t turn_;                                            // more by one after each barrier
  std::vector<uint32_t> meetings_;                           // of each warp
  std::vector<std::pair<uintptr_t, unsigned long>> shared_;  // where it is, and its bytes
  std::vector<Group> group_runs_;
  size_t ahead_ = 0;  // the first thread of the group that runs ahead
  // Pieces: who stored to them last, and barriers before the fence with which it handed them over (-1: none).
  struct Stored {
    int thread = -1;
    int64_t fenced = -1;
  };
  std::unordered_map<uintptr_t, Stored> stored_;
  std::unordered_map<uintptr_t, int> reading_;  // products that may read a piece
  std::unordered_map<const void*, Ring> rings_;
  std::vector<Box> boxes_;                    // on their way
  std::unordered_map<uintptr_t, int> boxed_;  // of those, to a piece
  bool products_late_ = false;
  std::unordered_map<uintptr_t, int> arriving_;  // copies on their way to four bytes
  bool late_ = false;
  BankCounts* banks_ = nullptr;
  BankLog bank_log_;
  std::string why_;
};

}  // namespace lathe::test
