// See device_candidates.h.
#include "search/gpu/device_candidates.h"

#include <algorithm>

#include "search/gpu/chain_schedule.h"

namespace lathe::search {

using ir::Result;

namespace {

// Threads of a block, beside the default's. More of them share less work each; fewer leave room for other blocks.
constexpr int64_t kBlocks[] = {128, 512, 64, 1024};

}  // namespace

Result<std::vector<Scheduled>> device_candidates(const GeneralKernel& general, const ir::SymbolValues& sizes,
                                                 const ir::GpuTarget& /*target*/, size_t most) {
  std::vector<Scheduled> out(1);
  LATHE_ASSIGN(out[0], device_schedule(general, sizes));
  const Result<Scheduled> chain = chain_schedule(general, sizes);
  const bool is_chain = chain.ok() && to_text(chain->schedule) == to_text(out[0].schedule);
  for (const int64_t block : kBlocks) {
    if (!is_chain || out.size() >= most) break;
    Result<Scheduled> made = chain_schedule(general, sizes, block);
    const auto same = [&](const Scheduled& s) { return to_text(s.schedule) == to_text(made->schedule); };
    if (made.ok() && std::none_of(out.begin(), out.end(), same)) out.push_back(std::move(*made));
  }
  return out;
}

}  // namespace lathe::search
