// See block_run.h.
#include "tests/gpu/fakes/block/block_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace lathe::test {

namespace {
constexpr size_t kStack = 64 * 1024;
constexpr int kWarp = 32;
constexpr uintptr_t kCopied = 4;  // bytes that copies bring at least
constexpr size_t kGroup = 128;
}  // namespace

void BlockRun::begin(const std::vector<BlockRun*>& cluster, const std::vector<int>& order, bool shuffled,
                     unsigned seed) {
  cluster_ = cluster;
  threads_.resize(order.size());
  group_runs_.resize(order.size() / kGroup);
  meetings_.resize(order.size() / kWarp + 1);
  random_.seed(static_cast<unsigned>(order.size()) + seed);
  turn_order_ = order;
  shuffled_ = shuffled;
}

bool BlockRun::round() {
  enter_();
  if (own_base_ != nullptr) *base_ = own_base_;
  bool ran = false;
  for (const int t : turn_order_) {
    const State state = threads_[static_cast<size_t>(t)].state;
    if (state != State::fresh && state != State::ready) continue;
    resume(t);
    ran = true;
  }
  if (!why_.empty()) return ran;
  const bool released = release(shuffled_ ? &random_ : nullptr);
  if (shuffled_) std::shuffle(turn_order_.begin(), turn_order_.end(), random_);
  return ran || released;
}

void BlockRun::end() {
  const auto waiting =
      std::find_if(threads_.begin(), threads_.end(), [](const Thread& t) { return t.state != State::done; });
  if (why_.empty() && waiting != threads_.end())
    fail("thread " + std::to_string(waiting - threads_.begin()) + " waits for threads that never come");
  if (banks_ != nullptr) bank_log_.finish(*banks_);
  if (!arriving_.empty()) fail("copies are on their way at the end");
  if (!boxes_.empty()) fail("boxes are on their way at the end");
  if (!reading_.empty()) fail("products are on their way at the end");
  touches_.last_turn = turn_;
}

void BlockRun::run_threads(void* runner) {
  auto& self = *static_cast<Runner*>(runner);
  for (;;) {
    BlockRun& block = *self.block;
    block.entry_(block.args_);
    block.threads_[static_cast<size_t>(block.current_)].state = State::done;
    self.fiber.go_to(block.scheduler_);
  }
}

void BlockRun::resume(int thread) {
  Thread& t = threads_[static_cast<size_t>(thread)];
  if (t.state == State::fresh) {
    if (runners_.empty()) runners_.push_back(std::make_unique<Runner>(kStack));
    t.runner = std::move(runners_.back());
    t.runner->block = this;
    runners_.pop_back();
  }
  t.state = State::ready;
  current_ = thread;
  *number_ = thread;
  scheduler_.go_to(t.runner->fiber);
  if (t.state == State::done) runners_.push_back(std::move(t.runner));
}

void BlockRun::wait(State state, int place) {
  Thread& t = threads_[static_cast<size_t>(current_)];
  t.state = state;
  t.place = place;
  t.runner->fiber.go_to(scheduler_);
}

void BlockRun::barrier(int number) { wait(State::at_barrier, number); }

float BlockRun::shuffle(float x, int distance) {
  const auto self = static_cast<size_t>(current_);
  threads_[self].given = x;
  wait(State::at_shuffle, distance);
  return threads_[self].got;
}

void BlockRun::warp(int number, void (*all)(void* const*), void* mine) {
  Thread& t = threads_[static_cast<size_t>(current_)];
  t.all = all;
  t.mine = mine;
  wait(State::at_warp, number);
}

// Lets those go on that all others of their group have joined. Whether there are any.
bool BlockRun::release(std::mt19937* random) {
  bool any = false;
  const auto all = [&](size_t from, size_t to, State state) {
    return std::all_of(threads_.begin() + static_cast<std::ptrdiff_t>(from),
                       threads_.begin() + static_cast<std::ptrdiff_t>(to),
                       [&](const Thread& t) { return t.state == state && t.place == threads_[from].place; });
  };
  for (size_t from = 0; from < threads_.size(); from += kWarp) {
    const size_t to = std::min(from + kWarp, threads_.size());
    if (to - from == kWarp && all(from, to, State::at_warp)) {
      void* lanes[kWarp];
      for (size_t t = from; t < to; ++t) lanes[t - from] = threads_[t].mine;
      if (threads_[from].all != nullptr) threads_[from].all(lanes);
      meetings_[from / kWarp] += threads_[from].all == nullptr;
      for (size_t t = from; t < to; ++t) threads_[t].state = State::ready;
      any = true;
    }
    if (!all(from, to, State::at_shuffle)) continue;
    for (size_t t = from; t < to; ++t) {
      const size_t other = from + ((t - from) ^ static_cast<size_t>(threads_[t].place));
      // Nobody is there to give a value: what comes is none.
      threads_[t].got = other < to ? threads_[other].given : std::numeric_limits<float>::quiet_NaN();
    }
    for (size_t t = from; t < to; ++t) threads_[t].state = State::ready;
    any = true;
  }
  std::vector<size_t> groups;
  for (size_t from = 0; from + kGroup <= threads_.size(); from += kGroup) {
    if (all(from, from + kGroup, State::at_group)) groups.push_back(from);
  }
  if (random != nullptr && groups.size() > 1) {
    // One of them runs ahead, until the next barrier.
    const bool there = std::find(groups.begin(), groups.end(), ahead_) != groups.end();
    groups = {there ? ahead_ : groups[(*random)() % groups.size()]};
  }
  for (const size_t from : groups) {
    threads_[from].together(from);
    for (size_t t = from; t < from + kGroup; ++t) threads_[t].state = State::ready;
    any = true;
  }
  for (Thread& t : threads_) {
    if (t.state != State::at_ring || !ring_is_full(t)) continue;
    t.state = State::ready;
    any = true;
  }
  if (!any && all(0, threads_.size(), State::at_barrier)) {
    for (Thread& t : threads_) t.state = State::ready;
    if (banks_ != nullptr) bank_log_.finish(*banks_);
    if (random != nullptr && !group_runs_.empty()) ahead_ = (*random)() % group_runs_.size() * kGroup;
    ++turn_;
    for (Group& group : group_runs_) group.read.clear();
    any = true;
  }
  const bool runs = std::any_of(threads_.begin(), threads_.end(),
                                [](const Thread& t) { return t.state == State::ready || t.state == State::fresh; });
  if (cluster_.size() == 1 && !any && !runs && !boxes_.empty()) {
    arrive_box(random != nullptr ? (*random)() % boxes_.size() : boxes_.size() - 1);
    any = true;
  }
  return any;
}

template <class F>
void BlockRun::touched(const void* p, int bytes, int element, F f) {
  const auto first = reinterpret_cast<uintptr_t>(p), end = first + static_cast<uintptr_t>(bytes);
  for (uintptr_t at = first; at < end && !arriving_.empty(); at += static_cast<uintptr_t>(element)) {
    if (arriving_.count(at / kCopied * kCopied) != 0)
      fail("thread " + std::to_string(current_) + " touches an element before its copy has arrived");
  }
  touches_.each(first, end - first, static_cast<uintptr_t>(element), turn_, f);
}

void BlockRun::note(const void* p, int bytes, int element, bool store) {
  if (store) note_stored(reinterpret_cast<uintptr_t>(p), bytes);
  const uint32_t now = meetings_[static_cast<size_t>(current_ / kWarpSize)];
  const auto self = static_cast<int16_t>(current_);
  touched(p, bytes, element, [&](Touch& t) {
    const bool written = t.writer >= 0 && t.writer != self && !met(t.writer, t.written);
    if (store) {
      const bool seen = t.warps == 0 && t.reader >= 0 && met(t.reader, t.read);
      const bool read = !seen && (t.readers != 0 || (t.reader >= 0 && t.reader != self));
      if (written || read) conflict(t);
      t.writer = self;
      t.written = now;
      return;
    }
    if (written) conflict(t);
    if (t.reader >= 0 && t.reader != self) t.readers = 1;
    if (t.reader >= 0 && t.reader / kWarpSize != self / kWarpSize) t.warps = 1;
    t.reader = self;
    t.read = now;
  });
}

void BlockRun::note_warp(const void* p, int bytes, int element) {
  touched(p, bytes, element, [&](Touch& t) {
    if (t.writer >= 0 && !met(t.writer, t.written)) conflict(t);
    if (t.reader >= 0 && t.reader / kWarpSize != current_ / kWarpSize) t.warps = 1;
    t.reader = static_cast<int16_t>(current_);
    t.read = meetings_[static_cast<size_t>(current_ / kWarpSize)];
    t.readers = 1;
  });
}

void BlockRun::conflict(const Touch& t) {
  fail("threads " + std::to_string(t.writer >= 0 ? t.writer : t.reader) + " and " + std::to_string(current_) +
       " touch an element, one of them stores it, and no barrier is between them");
}

// f(address) of each four bytes of a copy.
template <class F>
void BlockRun::words(const Copy& c, F f) {
  for (int i = 0; i < c.bytes; i += static_cast<int>(kCopied)) f(reinterpret_cast<uintptr_t>(c.to + i));
}

void BlockRun::start_copy(void* to, const void* from, int bytes, int element) {
  const Copy copy{static_cast<char*>(to), static_cast<const char*>(from), bytes, element};
  note(to, bytes, element, true);
  words(copy, [&](uintptr_t at) { ++arriving_[at]; });
  if (late_) {
    std::fill_n(copy.to, bytes, static_cast<char>(0xff));  // a NaN of every type
  } else {
    std::copy_n(copy.from, bytes, copy.to);
  }
  threads_[static_cast<size_t>(current_)].open.push_back(copy);
}

void BlockRun::end_group() {
  Thread& t = threads_[static_cast<size_t>(current_)];
  t.groups.push_back(std::exchange(t.open, {}));
}

void BlockRun::wait_groups(int groups) {
  Thread& t = threads_[static_cast<size_t>(current_)];
  for (; t.groups.size() > static_cast<size_t>(groups); t.groups.erase(t.groups.begin())) arrive(t.groups.front());
}

// The thread sees it, the others after a barrier.
void BlockRun::arrive(const std::vector<Copy>& group) {
  for (const Copy& c : group) {
    if (late_) std::copy_n(c.from, c.bytes, c.to);
    words(c, [&](uintptr_t at) { arriving_.erase(at); });
    note(c.to, c.bytes, c.element, true);
  }
}

void BlockRun::note_shared(void* p, unsigned long bytes) {
  const std::pair place(reinterpret_cast<uintptr_t>(p), bytes);
  if (std::find(shared_.begin(), shared_.end(), place) != shared_.end()) return;
  shared_.push_back(place);
  own_base_ = *base_;
  std::fill_n(static_cast<unsigned char*>(p), bytes, 0xff);  // a NaN of every type
}

}  // namespace lathe::test
