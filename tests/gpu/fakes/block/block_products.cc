// Products that groups of four warps begin and wait for, of a block on the emulator. See block_run.h.
#include <algorithm>
#include <bit>
#include <limits>
#include <set>
#include <utility>

#include "tests/gpu/fakes/block/block_run.h"

namespace lathe::test {

namespace {

constexpr size_t kGroup = 128;
constexpr uintptr_t kPiece = 16;  // bytes that products read at once
thread_local std::vector<uintptr_t>* t_pieces = nullptr;

// What sums are while their products are on their way.
float poison() { return std::numeric_limits<float>::quiet_NaN(); }

}  // namespace

bool BlockRun::in_shared(uintptr_t at) const {
  return std::any_of(shared_.begin(), shared_.end(),
                     [&](const auto& s) { return at >= s.first && at < s.first + s.second; });
}

void BlockRun::note_stored(uintptr_t from, int bytes) {
  if (!in_shared(from)) return;
  for (uintptr_t piece = from / kPiece; piece <= (from + static_cast<uintptr_t>(bytes) - 1) / kPiece; ++piece) {
    if (reading_.count(piece) != 0)
      fail("thread " + std::to_string(current_) + " stores an element that products may read still");
    Stored& s = stored_[piece];
    if (s.thread == current_ && s.fenced < 0) continue;
    s = {current_, -1};
    threads_[static_cast<size_t>(current_)].stored.push_back(piece);
  }
}

void BlockRun::hand_over(bool shared) {
  if (!shared) {
    const Group& group = group_runs_[static_cast<size_t>(current_) / kGroup];
    if (rings_.empty() && (!group.open.empty() || !group.groups.empty()))
      fail("thread " + std::to_string(current_) + " hands over sums while some are on their way");
    threads_[static_cast<size_t>(current_)].sums_handed = true;
    return;
  }
  Thread& t = threads_[static_cast<size_t>(current_)];
  for (const uintptr_t piece : t.stored) {
    Stored& s = stored_[piece];
    if (s.thread != current_ || s.fenced >= 0) continue;
    s.fenced = turn_;
    t.handed.push_back(piece);
  }
  t.stored.clear();
}

void BlockRun::wait_group(int number, std::function<void(size_t first)> together) {
  threads_[static_cast<size_t>(current_)].together = std::move(together);
  wait(State::at_group, number);
}

void BlockRun::start_product(int number, const GroupProduct& product) {
  threads_[static_cast<size_t>(current_)].product = &product;
  wait_group(number, [this](size_t first) { begin(first); });
}

// All threads of the group from `first` on have come.
void BlockRun::begin(size_t first) {
  Group& group = group_runs_[first / kGroup];
  Product made{{}, {}, *threads_[first].product, {}};
  for (size_t t = first; t < first + kGroup; ++t) {
    const GroupProduct& own = *threads_[t].product;
    if (own.a != made.of.a || own.b != made.of.b) fail("threads of a group name different tiles");
    if (!threads_[t].sums_handed) fail("thread " + std::to_string(t) + " did not hand over its sums");
    made.sums.push_back(own.sums);
    made.held.emplace_back();
    std::copy(std::begin(own.held), std::end(own.held), made.held.back().of);
  }
  t_pieces = &made.pieces;
  made.of.pieces(made.of.a, made.of.b,
                 [](const void* p) { t_pieces->push_back(reinterpret_cast<uintptr_t>(p) / kPiece); });
  t_pieces = nullptr;
  for (const uintptr_t piece : made.pieces) {
    if (!in_shared(piece * kPiece)) return fail("products read beyond shared memory");
    if (boxed_.count(piece) != 0) return fail("products read a box that has not arrived");
    const auto stored = stored_.find(piece);
    if (stored != stored_.end() && (stored->second.fenced < 0 || stored->second.fenced >= turn_))
      fail("products read what thread " + std::to_string(stored->second.thread) + " stored and did not hand over");
    current_ = static_cast<int>(first);
    note_warp(reinterpret_cast<const void*>(piece * kPiece), kPiece, 2);
    ++reading_[piece];
  }
  if (!products_late_) {
    compute(made, made.sums);
  } else {
    for (float* sums : made.sums) {
      const auto [known, begun] = group.true_sums.try_emplace(sums, sums, sums + made.of.count);
      if (known->second.size() != static_cast<size_t>(made.of.count))
        fail("products add to parts of each other's sums");
      std::fill_n(sums, made.of.count, poison());
    }
  }
  group.open.push_back(std::move(made));
}

void BlockRun::finish(Group& group, const Product& product) {
  for (const uintptr_t piece : product.pieces) {
    if (--reading_[piece] == 0) reading_.erase(piece);
  }
  if (!rings_.empty()) group.read.insert(group.read.end(), product.pieces.begin(), product.pieces.end());
  if (!products_late_) return;
  std::vector<float*> places;
  for (float* own : product.sums) {
    for (int i = 0; i < product.of.count; ++i) {
      if (std::bit_cast<uint32_t>(own[i]) != std::bit_cast<uint32_t>(poison()))
        return fail("a thread touches sums whose products are on their way");
    }
    places.push_back(group.true_sums.at(own).data());
  }
  compute(product, places);
}

void BlockRun::compute(const Product& product, const std::vector<float*>& sums) {
  product.of.compute(sums.data(), &product.held[0].of, product.of.a, product.of.b);
}

void BlockRun::end_products(int number) {
  wait_group(number, [this](size_t first) {
    for (size_t t = first; t < first + kGroup; ++t) threads_[t].sums_handed = false;
    Group& group = group_runs_[first / kGroup];
    group.groups.push_back(std::exchange(group.open, {}));
  });
}

void BlockRun::wait_products(int number, int groups) {
  wait_group(number,
             [this, groups](size_t first) { arrive(group_runs_[first / kGroup], static_cast<size_t>(groups)); });
}

void BlockRun::arrive(Group& group, size_t groups) {
  for (; group.groups.size() > groups; group.groups.erase(group.groups.begin())) {
    for (const Product& p : group.groups.front()) finish(group, p);
  }
  // Sums that nothing adds to any more are there.
  std::set<float*> waiting;
  const auto wait = [&](const std::vector<Product>& products) {
    for (const Product& p : products) waiting.insert(p.sums.begin(), p.sums.end());
  };
  wait(group.open);
  for (const std::vector<Product>& products : group.groups) wait(products);
  std::erase_if(group.true_sums, [&](const auto& sums) {
    if (waiting.count(sums.first) != 0) return false;
    std::copy(sums.second.begin(), sums.second.end(), sums.first);
    return true;
  });
}

}  // namespace lathe::test
