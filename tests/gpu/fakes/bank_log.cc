// See bank_log.h.
#include "tests/gpu/fakes/bank_log.h"

#include <algorithm>
#include <set>

namespace lathe::test {

namespace {
constexpr int kWarp = 32, kBanks = 32, kBankBytes = 4, kPassBytes = kBanks * kBankBytes;
}  // namespace

void BankLog::note(int thread, int site, const void* p, int bytes) {
  const size_t time = times_[{thread, site}]++;
  auto& all = accesses_[{thread / kWarp, site}];
  if (all.size() <= time) all.resize(time + 1);
  all[time].push_back({thread, reinterpret_cast<uintptr_t>(p), bytes});
}

void BankLog::finish(BankCounts& to) {
  for (const auto& [place, all] : accesses_) {
    for (const std::vector<Lane>& lanes : all) {
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
  }
  accesses_.clear();
  times_.clear();
}

}  // namespace lathe::test
