// Which decoder a GGUF file holds: sizes and constants of its metadata, and what the file does not name.
#pragma once
#include <cstdint>

#include "bench/decoder_loop/gguf.h"

namespace lathe::decoder {

struct Architecture {
  // hidden: width of the residual stream; inner: of the feed-forward part; groups: heads of K and V.
  int64_t layers, hidden, inner, heads, groups, head_size, vocabulary;
  double epsilon;          // of the RMS norms
  double embedding_scale;  // times the looked-up row
  double rope_base, local_rope_base;
  int64_t window;        // of local layers: a row sees this many keys, itself included
  int64_t global_every;  // every that many-th layer is global, the others local; 1: all are global
  bool head_norms;       // RMS norms of q and k, by head
  bool post_norms;       // norms of what attention and feed-forward add
  bool biases;           // of q, k, v
  const char* gate;      // the activation of the gate: an operator of Lathe

  bool global(int64_t layer) const { return (layer + 1) % global_every == 0; }
};

// gemma3 and qwen2; anything else is a Problem.
Architecture architecture_of(const GgufFile& file);

}  // namespace lathe::decoder
