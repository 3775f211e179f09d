// See dispatch.h.
#include "runtime/serve/dispatch.h"

namespace lathe::runtime {
namespace {

constexpr size_t kFirstCapacity = 16;

}  // namespace

DispatchTable::DispatchTable(size_t max_entries) : max_entries_(max_entries) {
  tables_.push_back(std::make_unique<Table>(kFirstCapacity));
  table_.store(tables_.back().get(), std::memory_order_release);
}

DispatchTable::~DispatchTable() = default;

void DispatchTable::place(const Table& table, Entry* entry) {
  for (uint64_t i = entry->key.hash();; ++i) {
    std::atomic<Entry*>& slot = table.slots[i & table.mask];
    if (slot.load(std::memory_order_relaxed) != nullptr) continue;
    slot.store(entry, std::memory_order_release);
    return;
  }
}

DispatchTable::Entry* DispatchTable::locate(const DispatchKey& key, bool* added, const void* body) {
  const Table* t = tables_.back().get();
  *added = false;
  for (uint64_t i = key.hash();; ++i) {
    Entry* e = t->slots[i & t->mask].load(std::memory_order_relaxed);
    if (e == nullptr) break;
    if (e->key == key) return e;
  }
  if (entries_.size() >= max_entries_) return nullptr;
  if ((entries_.size() + 1) * 2 > t->mask + 1) {
    tables_.push_back(std::make_unique<Table>((t->mask + 1) * 2));
    t = tables_.back().get();
    for (const auto& e : entries_) place(*t, e.get());
    table_.store(tables_.back().get(), std::memory_order_release);
  }
  entries_.push_back(std::make_unique<Entry>());
  Entry* e = entries_.back().get();
  e->key = key;
  e->body.store(body, std::memory_order_relaxed);
  place(*t, e);
  size_.store(entries_.size(), std::memory_order_relaxed);
  *added = true;
  return e;
}

const void* DispatchTable::insert(const DispatchKey& key, const void* body) {
  std::lock_guard<std::mutex> lock(mutex_);
  bool added = false;
  const Entry* e = locate(key, &added, body);
  return e == nullptr ? nullptr : e->body.load(std::memory_order_acquire);
}

const void* DispatchTable::replace(const DispatchKey& key, const void* body, bool* full) {
  std::lock_guard<std::mutex> lock(mutex_);
  bool added = false;
  Entry* e = locate(key, &added, body);
  if (full != nullptr) *full = e == nullptr;
  if (e == nullptr || added) return nullptr;
  return e->body.exchange(body, std::memory_order_acq_rel);
}

}  // namespace lathe::runtime
