// See bank_log.h.
#include "tests/gpu/fakes/bank_log.h"

#include <algorithm>
#include <set>

namespace lathe::test {

namespace {
constexpr int kWarp = 32, kBanks = 32, kBankBytes = 4, kPassBytes = kBanks * kBankBytes;
constexpr uintptr_t kSector = 32;
}  // namespace

void BankLog::Accesses::note(int thread, int site, const void* p, int bytes) {
  const size_t time = times[{thread, site}]++;
  auto& of_warp = all[{thread / kWarp, site}];
  if (of_warp.size() <= time) of_warp.resize(time + 1);
  of_warp[time].push_back({thread, reinterpret_cast<uintptr_t>(p), bytes});
}

void BankLog::add_banks(const std::vector<Lane>& lanes, BankCounts& to) {
  ++to.accesses;
  const int together = std::min(kWarp, kPassBytes / std::max(lanes[0].bytes, kBankBytes));
  for (int part = 0; part < kWarp / together; ++part) {
    std::set<uintptr_t> words[kBanks];
    for (const Lane& l : lanes) {
      if (l.thread % kWarp / together != part) continue;
      for (uintptr_t w = l.at / kBankBytes; w <= (l.at + static_cast<uintptr_t>(l.bytes) - 1) / kBankBytes; ++w)
        words[w % kBanks].insert(w);
    }
    size_t passes = 1;
    for (const auto& bank : words) passes = std::max(passes, bank.size());
    to.conflicts += static_cast<int64_t>(passes) - 1;
  }
}

void BankLog::add_sectors(const std::vector<Lane>& lanes, SectorCounts& to) {
  std::set<uintptr_t> bytes, sectors;
  for (const Lane& l : lanes) {
    for (uintptr_t b = l.at; b < l.at + static_cast<uintptr_t>(l.bytes); ++b) {
      bytes.insert(b);
      sectors.insert(b / kSector);
    }
  }
  const auto least = static_cast<int64_t>((bytes.size() + kSector - 1) / kSector);
  ++to.requests;
  to.sectors += static_cast<int64_t>(sectors.size());
  to.wasted += static_cast<int64_t>(sectors.size()) - least;
}

void BankLog::finish(BankCounts& to) {
  for (const auto& [place, times] : shared_.all) {
    for (const std::vector<Lane>& lanes : times) add_banks(lanes, to);
  }
  for (const auto& [log, counts] : {std::pair{&loads_, &to.loads}, {&stores_, &to.stores}}) {
    for (const auto& [place, times] : log->all) {
      for (const std::vector<Lane>& lanes : times) add_sectors(lanes, *counts);
    }
  }
  shared_ = loads_ = stores_ = {};
}

}  // namespace lathe::test
