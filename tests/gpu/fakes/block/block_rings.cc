// Boxes of tensors on their way to places of rings, and threads that wait for these, of a block on the emulator. See
// block_run.h.
#include <algorithm>
#include <cstring>

#include "tests/gpu/fakes/block/block_run.h"
#include "tests/gpu/fakes/fake_maps.h"

namespace lathe::test {

namespace {
constexpr uintptr_t kPiece = 16;
constexpr size_t kGroup = 128;
}  // namespace

void BlockRun::open_ring(const void* ring, int arrivals) { rings_[ring] = {arrivals, arrivals, 0, 0}; }

BlockRun::Ring* BlockRun::ring_at(const void* ring) {
  const auto known = rings_.find(ring);
  if (known != rings_.end()) return &known->second;
  fail("thread " + std::to_string(current_) + " uses a place of a ring that nobody made");
  return nullptr;
}

void BlockRun::settle(Ring& ring) {
  if (ring.pending < 0) fail("more threads arrive at a ring than it waits for");
  if (ring.pending > 0 || ring.bytes != 0) return;
  ++ring.phase;
  ring.pending = ring.arrivals;
}

// bytes: that it expects to arrive as well.
void BlockRun::arrive_at(const void* ring, int64_t bytes) {
  Ring* r = ring_at(ring);
  if (r == nullptr) return;
  r->bytes += bytes;
  --r->pending;
  // What the thread has stored and handed over, others that wait here see.
  std::vector<uintptr_t>& handed = threads_[static_cast<size_t>(current_)].handed;
  for (const uintptr_t piece : handed) {
    Stored& s = stored_[piece];
    if (s.thread != current_ || s.fenced < 0) continue;
    s.fenced = turn_ - 1;
    touches_.forget(piece * kPiece, kPiece);
  }
  handed.clear();
  // What products of its group have read others may store to.
  std::vector<uintptr_t>& read = group_runs_[static_cast<size_t>(current_) / kGroup].read;
  for (const uintptr_t piece : read) touches_.forget(piece * kPiece, kPiece);
  read.clear();
  settle(*r);
}

bool BlockRun::ring_is_full(const Thread& t) {
  const auto known = rings_.find(t.ring);
  return known != rings_.end() && known->second.phase % 2 != t.parity;
}

void BlockRun::await_ring(const void* ring, int64_t parity) {
  Thread& t = threads_[static_cast<size_t>(current_)];
  if (ring_at(ring) == nullptr) return;
  t.ring = ring;
  t.parity = static_cast<unsigned>(parity);
  if (!ring_is_full(t)) wait(State::at_ring, 0);
}

void BlockRun::start_box(void* to, const void* map, const void* ring, int dims, const int* at) {
  Box box{static_cast<char*>(to), {}, ring};
  std::memcpy(&box.map, map, sizeof box.map);
  if (static_cast<uint32_t>(dims) != box.map.dims) fail("a box of other dimensions than its map");
  if (reinterpret_cast<uintptr_t>(to) % (8 * uintptr_t{box.map.line}) != 0) fail("a box that is not aligned");
  std::copy_n(at, std::min(dims, 5), box.at);
  if (!why_.empty()) return;
  for (uintptr_t i = 0; i < box.bytes(); i += kPiece) {
    const uintptr_t piece = (reinterpret_cast<uintptr_t>(to) + i) / kPiece;
    if (!in_shared(piece * kPiece)) return fail("a box goes beyond shared memory");
    if (reading_.count(piece) != 0) return fail("a box goes to where products may read still");
    if (++boxed_[piece] > 1) return fail("two boxes are on their way to one place");
    if (late_) std::memset(reinterpret_cast<void*>(piece * kPiece), 0xff, kPiece);
  }
  boxes_.push_back(box);
  if (!late_) arrive_box(boxes_.size() - 1);
}

// Outside of the tensor there are zeros.
void BlockRun::arrive_box(size_t which) {
  const Box box = boxes_[which];
  boxes_.erase(boxes_.begin() + static_cast<std::ptrdiff_t>(which));
  const FakeMap& m = box.map;
  const uint64_t length = uint64_t{m.box[0]} * m.element, pieces = m.line / kPiece - 1;  // that change places
  for (uint64_t line = 0; line < box.bytes() / length; ++line) {
    uint64_t rest = line, offset = 0;
    bool inside = true;
    for (uint32_t d = 1; d < m.dims; ++d) {
      const int64_t i = box.at[d] + static_cast<int64_t>(rest % m.box[d]);
      rest /= m.box[d];
      inside = inside && i >= 0 && static_cast<uint64_t>(i) < m.sizes[d];
      offset += static_cast<uint64_t>(i) * m.strides[d - 1];
    }
    for (uint64_t i = 0; i < m.box[0]; ++i) {
      const int64_t x = box.at[0] + static_cast<int64_t>(i);
      const bool there = inside && x >= 0 && static_cast<uint64_t>(x) < m.sizes[0];
      const uintptr_t plain = reinterpret_cast<uintptr_t>(box.to) + line * length + i * m.element;
      auto* to = reinterpret_cast<char*>(plain ^ (plain >> 7 & pieces) << 4);
      const auto* from = reinterpret_cast<const char*>(m.base + offset + static_cast<uint64_t>(x) * m.element);
      for (uint32_t b = 0; b < m.element; ++b) to[b] = there ? from[b] : '\0';
    }
  }
  for (uintptr_t i = 0; i < box.bytes(); i += kPiece) boxed_.erase((reinterpret_cast<uintptr_t>(box.to) + i) / kPiece);
  if (Ring* r = ring_at(box.ring); r != nullptr) {
    r->bytes -= static_cast<int64_t>(box.bytes());
    settle(*r);
  }
}

}  // namespace lathe::test
