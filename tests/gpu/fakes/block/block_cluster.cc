// Blocks of a cluster on the emulator: they take turns, and reach each other's rings and shared memory. See
// block_run.h.
#include <algorithm>

#include "tests/gpu/fakes/block/block_run.h"

namespace lathe::test {

std::string BlockRun::run(const std::vector<BlockRun*>& cluster, const std::vector<int>& order, bool shuffled,
                          unsigned seed) {
  constexpr unsigned kFirst = 64, kMostAhead = 12;  // rounds of one block alone, at the beginning and later
  for (size_t b = 0; b < cluster.size(); ++b)
    cluster[b]->begin(cluster, order, shuffled, seed + static_cast<unsigned>(b));
  std::mt19937 random(seed);
  bool begun = false;
  const auto failed = [&] {
    return std::find_if(cluster.begin(), cluster.end(), [](const BlockRun* b) { return !b->why_.empty(); });
  };
  for (bool any = true; any && failed() == cluster.end();) {
    any = false;
    if (shuffled && cluster.size() > 1) {
      BlockRun& ahead = *cluster[random() % cluster.size()];
      const unsigned rounds = begun ? static_cast<unsigned>(random() % kMostAhead) : kFirst;
      for (unsigned n = 0; n < rounds && failed() == cluster.end(); ++n) any = ahead.round() || any;
      begun = true;
    }
    for (BlockRun* b : cluster) {
      if (failed() == cluster.end()) any = b->round() || any;
    }
    if (any || failed() != cluster.end()) continue;
    const auto meets = [](const BlockRun* b) { return b->all_are(State::at_cluster); };
    if (std::all_of(cluster.begin(), cluster.end(), meets)) {
      for (BlockRun* b : cluster) {
        for (Thread& t : b->threads_) t.state = State::ready;
      }
      any = true;
      continue;
    }
    std::vector<BlockRun*> waiting;  // for boxes
    std::copy_if(cluster.begin(), cluster.end(), std::back_inserter(waiting),
                 [](const BlockRun* b) { return !b->boxes_.empty(); });
    if (waiting.empty()) continue;
    BlockRun& b = *waiting[shuffled ? random() % waiting.size() : waiting.size() - 1];
    b.arrive_box(shuffled ? random() % b.boxes_.size() : b.boxes_.size() - 1);
    any = true;
  }
  const auto first = failed();
  for (BlockRun* b : cluster) b->end();
  const auto any = first != cluster.end() ? first : failed();
  return any == cluster.end() ? "" : (*any)->why_;
}

bool BlockRun::all_are(State state) const {
  return std::all_of(threads_.begin(), threads_.end(), [&](const Thread& t) { return t.state == state; });
}

const void* BlockRun::there(const void* p, BlockRun& other) {
  if (other.own_base_ == nullptr) fail("a thread reaches a block that has not begun");
  if (other.all_are(State::done)) fail("a thread reaches a block that has left");
  return why_.empty() ? other.own_base_ + (static_cast<const char*>(p) - own_base_) : nullptr;
}

void BlockRun::arrive_in_all(const void* ring) {
  for (BlockRun* b : cluster_) {
    if (b == this) {
      arrive_at(ring, 0);
      continue;
    }
    const void* at = there(ring, *b);
    Ring* r = at == nullptr ? nullptr : b->ring_at(at);
    if (r == nullptr) return;
    --r->pending;
    b->settle(*r);
  }
}

void BlockRun::start_boxes(void* to, const void* map, const void* ring, int dims, const int* at) {
  for (BlockRun* b : cluster_) {
    const void *place = there(to, *b), *full = there(ring, *b);
    if (place != nullptr && full != nullptr) b->start_box(const_cast<void*>(place), map, full, dims, at);
  }
}

}  // namespace lathe::test
