// A decoder that runs: weights packed once in their own formats, a cache of K and V, and the loop over layers. All else
// is Lathe's operators. Written here in plain C++, because today's operators lack it:
//   - the gather of the embedding, decoded row by row from the file, and its scale
//   - the tables of cosines and sines
//   - the move of q's heads out of its rows, the append to the cache, the move of the results back
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "bench/decoder_loop/architecture.h"
#include "bench/decoder_loop/kernels.h"

namespace lathe::decoder {

class Decoder {
 public:
  // capacity: the most ids of one sequence.
  // decode_weights: to f32, as the norms are, rather than multiply by what the file has.
  Decoder(const GgufFile& file, Context& context, int64_t capacity, bool decode_weights = false);

  int64_t vocabulary() const { return arch_.vocabulary; }
  // Forgets the sequence.
  void restart() { past_ = 0; }
  // Appends ids and writes the logits after each, [ids, vocabulary]; or after the last one only, [1, vocabulary].
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

  void chunk(const int32_t* ids, int64_t rows, float* hidden);
  void layer(const Layer& l, int64_t index, int64_t rows, float* hidden);
  void attention(int64_t index, int64_t rows, const float* q, const float* k, const float* v, float* out);
  void apply(const Linear& l, int64_t rows, const float* x, float* y);
  void norm(Kernel& kernel, int64_t rows, int64_t width, const float* scale, const float* x, float* y);
  void rope(int64_t index, int64_t rows, int64_t heads, const float* x, float* y);
  void make_tables(int64_t rows);

  const GgufFile& file_;
  Context& context_;
  const Architecture arch_;
  const int64_t capacity_, chunk_;
  const bool decode_weights_;
  int64_t past_ = 0;

  std::map<std::vector<int64_t>, std::unique_ptr<Kernel>> linears_;  // by in, out, bias and number of the format
  std::unique_ptr<Kernel> norm_, head_norm_, add_, gated_, rope_q_, rope_k_, global_attention_,
      local_attention_;  // none: all layers are global
  const GgufTensor* embedding_ = nullptr;
  Linear head_{};
  Floats output_norm_;
  std::vector<Layer> layers_;
  std::vector<Floats> keys_, values_;  // by layer: [groups, capacity, head_size]
  Rope global_, local_;
};

}  // namespace lathe::decoder
