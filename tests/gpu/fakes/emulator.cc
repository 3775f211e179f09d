// See emulator.h.
#include "tests/gpu/fakes/emulator.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "tests/gpu/fakes/block/block_run.h"

namespace lathe::test {

namespace {
// Whose threads run. Found without a call, in a library that is opened as well: every access of memory asks for it.
__attribute__((tls_model("initial-exec"))) thread_local BlockRun* t_block = nullptr;
}  // namespace

bool EmulatedKernel::open(std::string_view code, const std::string& name) {
  const int file = memfd_create("lathe_fake_kernel", MFD_CLOEXEC);
  if (file < 0) return false;
  const bool written = write(file, code.data(), code.size()) == static_cast<ssize_t>(code.size());
  void* library = written ? dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  // The file stays open: a later one under the same number would be taken for it.
  if (library == nullptr) return false;
  const auto find = [&](const std::string& symbol) { return dlsym(library, symbol.c_str()); };
  entry_ = reinterpret_cast<void (*)(const void*)>(find(name));
  block_ = static_cast<long long*>(find("lt_block_number"));
  blocks_ = static_cast<long long*>(find("lt_block_count"));
  thread_ = static_cast<long long*>(find("lt_thread_number"));
  accesses_ = static_cast<long long*>(find("lt_accesses"));
  misaligned_ = static_cast<int*>(find("lt_misaligned"));
  wait_barrier_ = static_cast<void (**)(int)>(find("lt_wait_barrier"));
  wait_shuffle_ = static_cast<float (**)(float, int)>(find("lt_wait_shuffle"));
  wait_warp_ = static_cast<void (**)(int, void (*)(void* const*), void*)>(find("lt_wait_warp"));
  note_ = static_cast<void (**)(const void*, int, int, bool)>(find("lt_note"));
  note_warp_ = static_cast<void (**)(const void*, int, int)>(find("lt_note_warp"));
  note_shared_ = static_cast<void (**)(void*, unsigned long)>(find("lt_note_shared"));
  note_banks_ = static_cast<void (**)(int, const void*, int)>(find("lt_note_banks"));
  note_sectors_ = static_cast<void (**)(int, const void*, int, bool)>(find("lt_note_sectors"));
  shared_ = static_cast<long long*>(find("lt_dynamic_shared"));
  start_copy_ = static_cast<void (**)(void*, const void*, int, int)>(find("lt_start_copy"));
  end_group_ = static_cast<void (**)()>(find("lt_end_group"));
  wait_groups_ = static_cast<void (**)(int)>(find("lt_wait_groups"));
  start_product_ = static_cast<void (**)(int, const GroupProduct*)>(find("lt_start_product"));
  end_products_ = static_cast<void (**)(int)>(find("lt_end_products"));
  wait_products_ = static_cast<void (**)(int, int)>(find("lt_wait_products"));
  hand_over_ = static_cast<void (**)(bool)>(find("lt_hand_over"));
  make_ring_ = static_cast<void (**)(const void*, int)>(find("lt_make_ring"));
  arrive_at_ = static_cast<void (**)(const void*, long long)>(find("lt_arrive_at"));
  wait_ring_ = static_cast<void (**)(const void*, long long)>(find("lt_wait_ring"));
  start_box_ = static_cast<void (**)(void*, const void*, const void*, int, const int*)>(find("lt_start_box"));
  wait_cluster_ = static_cast<void (**)()>(find("lt_wait_cluster"));
  arrive_in_blocks_ = static_cast<void (**)(const void*)>(find("lt_arrive_in_blocks"));
  start_boxes_ = static_cast<void (**)(void*, const void*, const void*, int, const int*)>(find("lt_start_boxes"));
  place_ = static_cast<long long*>(find("lt_place"));
  base_ = static_cast<char**>(find("lt_shared_base"));
  const auto* cluster = static_cast<const int*>(find(name + "_cluster"));
  cluster_ = cluster == nullptr ? 1 : *cluster;
  const auto* threads = static_cast<const int*>(find(name + "_threads"));
  const auto* bytes = static_cast<const unsigned long*>(find(name + "_args"));
  if (entry_ == nullptr || block_ == nullptr || blocks_ == nullptr || threads == nullptr || bytes == nullptr)
    return false;
  threads_ = *threads;
  arg_bytes_ = *bytes;
  return true;
}

std::string EmulatedKernel::run(unsigned blocks, unsigned threads, const void* args, const Way& way, Accesses& accesses,
                                BankCounts* banks) const {
  *wait_barrier_ = [](int number) { t_block->barrier(number); };
  *wait_shuffle_ = [](float x, int distance) { return t_block->shuffle(x, distance); };
  *wait_warp_ = [](int number, void (*all)(void* const*), void* mine) { t_block->warp(number, all, mine); };
  *note_ = [](const void* p, int bytes, int element, bool store) { t_block->note(p, bytes, element, store); };
  *note_warp_ = [](const void* p, int bytes, int element) { t_block->note_warp(p, bytes, element); };
  *note_shared_ = [](void* p, unsigned long bytes) { t_block->note_shared(p, bytes); };
  *note_banks_ = nullptr;
  *note_sectors_ = nullptr;
  if (banks != nullptr) {
    *note_banks_ = [](int site, const void* p, int bytes) { t_block->note_banks(site, p, bytes); };
    *note_sectors_ = [](int site, const void* p, int bytes, bool store) {
      t_block->note_sectors(site, p, bytes, store);
    };
  }
  *start_copy_ = [](void* to, const void* from, int bytes, int element) {
    t_block->start_copy(to, from, bytes, element);
  };
  *end_group_ = [] { t_block->end_group(); };
  *wait_groups_ = [](int groups) { t_block->wait_groups(groups); };
  *start_product_ = [](int number, const GroupProduct* product) { t_block->start_product(number, *product); };
  *end_products_ = [](int number) { t_block->end_products(number); };
  *wait_products_ = [](int number, int groups) { t_block->wait_products(number, groups); };
  *make_ring_ = [](const void* ring, int arrivals) { t_block->open_ring(ring, arrivals); };
  *arrive_at_ = [](const void* ring, long long bytes) { t_block->arrive_at(ring, bytes); };
  *wait_ring_ = [](const void* ring, long long parity) { t_block->await_ring(ring, parity); };
  *start_box_ = [](void* to, const void* map, const void* ring, int dims, const int* at) {
    t_block->start_box(to, map, ring, dims, at);
  };
  *wait_cluster_ = [] { t_block->cluster_barrier(); };
  *arrive_in_blocks_ = [](const void* ring) { t_block->arrive_in_all(ring); };
  *start_boxes_ = [](void* to, const void* map, const void* ring, int dims, const int* at) {
    t_block->start_boxes(to, map, ring, dims, at);
  };
  *hand_over_ = [](bool shared) { t_block->hand_over(shared); };
  const auto ordered = [&](size_t count) {
    std::vector<int> all(count);
    std::iota(all.begin(), all.end(), 0);
    if (way.order == Order::backward) std::reverse(all.begin(), all.end());
    if (way.order == Order::shuffled) std::shuffle(all.begin(), all.end(), std::mt19937_64(count + way.seed));
    return all;
  };
  std::fill(accesses_, accesses_ + 8, 0);
  *misaligned_ = 0;
  std::string why;
  *blocks_ = blocks;
  const std::vector<int> turns = ordered(threads);
  BlockRun::Runners runners;
  const auto together = static_cast<unsigned>(cluster_);
  std::vector<TouchMap> touches(together);
  if (blocks % together != 0) return "blocks that are no whole clusters";
  for (const int first : ordered(blocks / together)) {
    std::vector<std::unique_ptr<BlockRun>> cluster;
    std::vector<BlockRun*> all;
    for (int i = 0; i < cluster_; ++i) {
      const int b = first * cluster_ + i;
      cluster.push_back(std::make_unique<BlockRun>(entry_, args, thread_, runners, touches[static_cast<size_t>(i)],
                                                   base_, [this, b, i, &all] {
                                                     *block_ = b;
                                                     *place_ = i;
                                                     t_block = all[static_cast<size_t>(i)];
                                                   }));
      all.push_back(cluster.back().get());
      all.back()->count_banks(banks);
      all.back()->copies_arrive_late(way.copies == Copies::late);
      all.back()->products_are_late(way.products == Products::late);
    }
    const std::string failure =
        BlockRun::run(all, turns, way.order == Order::shuffled, static_cast<unsigned>(first * cluster_) + way.seed);
    if (why.empty() && !failure.empty()) why = "block " + std::to_string(first * cluster_) + ": " + failure;
  }
  t_block = nullptr;
  for (int i = 0; i < 4; ++i) {
    accesses.loads[i] += accesses_[i];
    accesses.stores[i] += accesses_[4 + i];
  }
  if (*misaligned_ == 2 && why.empty()) return "the launch asks for other shared memory than the kernel has";
  return *misaligned_ != 0 && why.empty() ? "an access that is not aligned" : why;
}

}  // namespace lathe::test
