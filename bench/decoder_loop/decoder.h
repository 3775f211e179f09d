// A decoder that runs: weights packed once in their own formats, a cache of K and V, and the loop over layers. All else
// is Lathe's operators. Written here in plain C++, because today's operators lack it:
//   - the gather of the embedding, decoded row by row from the file, and its scale
//   - the tables of cosines and sines
//   - the move of q's heads out of its rows, the append to the cache, the move of the results back
// A decoder may hold several sequences, each in a slot of the cache, and append to some of them at once (ragged.cc).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/decoder_loop/architecture.h"
#include "bench/decoder_loop/kernels.h"

namespace lathe::decoder {

class Decoder {
 public:
  // Ids that are appended to the sequence in a slot.
  struct Part {
    int64_t slot;
    std::vector<int32_t> ids;
  };

  // capacity: the most ids of one sequence. slots: of sequences.
  // decode_weights: to f32, as the norms are, rather than multiply by what the file has.
  Decoder(const GgufFile& file, Context& context, int64_t capacity, bool decode_weights = false, int64_t slots = 1);

  // What became of the weights of a format, and how long that took.
  struct Packing {
    int64_t stored = 0, packed = 0;  // bytes
    double seconds = 0;
  };
  const std::map<std::string, Packing>& packing() const { return packing_; }

  int64_t vocabulary() const { return arch_.vocabulary; }
  int64_t most_rows() const { return chunk_; }
  // Forgets the sequence.
  void restart(int64_t slot = 0) { past_[static_cast<size_t>(slot)] = 0; }
  // Appends to the sequences of different slots, together at most most_rows() ids, and writes the logits after the last
  // one of each, [parts, vocabulary].
  void append_parts(const std::vector<Part>& parts, std::vector<float>& logits);
  // The sequence in slot 0: appends ids and writes the logits after each, [ids, vocabulary]; or after the last one,
  // [1, vocabulary].
  void append(const std::vector<int32_t>& ids, bool every, std::vector<float>& logits);

 private:
  struct Linear {
    Kernel* kernel;
    Packed weight;
    Argument plain;  // where the kernel wants the weight as it is
    Floats decoded;  // then, of a format that Lathe does not name
    Floats bias;     // may be null
    int64_t in, out;
  };
  struct Layer {
    Linear q, k, v, o, gate, up, down;
    Floats attention_norm, q_norm, k_norm, post_attention_norm, inner_norm, post_inner_norm;
  };
  // Tables of one rope base, [rows, head_size / 2].
  struct Rope {
    std::vector<float> cosines, sines;
  };

  Linear linear(const std::string& name, int64_t in, int64_t out, bool bias);
  Floats vector(const std::string& name, int64_t size);
  Kernel* linear_kernel(int64_t in, int64_t out, bool bias, const BlockFormat& format);
  void make_kernels();

  void check_ids(const std::vector<int32_t>& ids, int64_t past) const;
  void chunk(const int32_t* ids, int64_t rows, float* hidden);
  void layer(const Layer& l, int64_t index, int64_t rows, float* hidden);
  void attention(int64_t index, int64_t rows, const float* q, const float* k, const float* v, float* out);
  void ragged_attention(int64_t index, int64_t rows, const float* q, const float* k, const float* v, float* out);
  void make_ragged_kernels();
  float* cached(const std::vector<Floats>& cache, int64_t index, int64_t slot) const;
  void apply(const Linear& l, int64_t rows, const float* x, float* y);
  void norm(Kernel& kernel, int64_t rows, int64_t width, const float* scale, const float* x, float* y);
  void rope(int64_t index, int64_t rows, int64_t heads, const float* x, float* y);
  void make_tables(int64_t rows);

  const GgufFile& file_;
  Context& context_;
  const Architecture arch_;
  const int64_t capacity_, slots_, chunk_;
  const bool decode_weights_;
  std::vector<int64_t> past_;                 // ids in each slot
  std::vector<int64_t> positions_;            // of the rows that go through the layers
  const std::vector<Part>* parts_ = nullptr;  // whose rows these are; null: of slot 0

  std::map<std::string, Packing> packing_;                           // by format
  std::map<std::vector<int64_t>, std::unique_ptr<Kernel>> linears_;  // by in, out, bias and number of the format
  std::unique_ptr<Kernel> norm_, head_norm_, add_, gated_, rope_q_, rope_k_, global_attention_,
      local_attention_,  // none: all layers are global
      global_ragged_, local_ragged_;
  const GgufTensor* embedding_ = nullptr;
  Linear head_{};
  Floats output_norm_;
  std::vector<Layer> layers_;
  std::vector<Floats> keys_, values_;  // by layer: [slots, groups, capacity, head_size]
  Rope global_, local_;
};

}  // namespace lathe::decoder
