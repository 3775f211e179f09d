// Random ragged batches through a sealed context: 1 to 8 sequences at once, of 1 to 64 ids each, behind what each of
// them holds already. Some are compared with the same sequence alone.
#pragma once
#include <functional>

#include "bench/decoder_loop/decoder.h"

namespace lathe::decoder {

struct RaggedResult {
  int64_t batches = 0, sequences = 0, ids = 0;
  int64_t checked = 0, same_choice = 0;  // sequences that were run alone as well; those with one first choice
  double worst_error = 0;                // of a logit, over the standard deviation of all
  std::map<std::string, Decoder::Packing> packing;
};

// seal is called after the first batch, which is not counted but is checked.
RaggedResult run_ragged(const GgufFile& file, Context& context, int64_t batches, uint64_t seed, bool decode_weights,
                        const std::function<void()>& seal);

}  // namespace lathe::decoder
