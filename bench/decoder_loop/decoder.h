// A decoder that runs: weights packed once in their own formats, a cache of K and V, and the loop over layers. What it
// computes of a model's numbers is Lathe's operators, but for the tables of cosines and sines. A decoder may hold
// several sequences, each in a slot of the cache, and append to some of them at once (ragged.cc).
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

  // Bytes that the step at a position reads at least: all weights as they are multiplied, and what is cached.
  double step_bytes(int64_t position) const;
  // Operations of the products with weights of a prompt of so many ids, with logits after the last one: what the last
  // layer gives for the others nobody asks for.
  double prompt_operations(int64_t ids) const;

  int64_t vocabulary() const { return arch_.vocabulary; }
  int64_t most_rows() const { return chunk_; }
  // Forgets the sequence.
  void restart(int64_t slot = 0) { past_[static_cast<size_t>(slot)] = 0; }
  // Appends to the sequences of different slots, together at most most_rows() ids, and writes the logits after the last
  // one of each, [parts, vocabulary].
  void append_parts(const std::vector<Part>& parts, std::vector<float>& logits);
  // Of the one row of logits, the lowest id of several with the largest.
  int32_t first_choice(const std::vector<float>& logits);
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
    int64_t bytes;  // of the weight as it is multiplied
  };
  struct Layer {
    Linear q, k, v, o, gate, up, down;
    Floats attention_norm, q_norm, k_norm, post_attention_norm, inner_norm, post_inner_norm;
  };
  // Tables of one rope base, [capacity, head_size / 2].
  struct Rope {
    Floats cosines, sines;
  };

  // All products with weights.
  std::vector<const Linear*> linears() const;
  Linear linear(const std::string& name, int64_t in, int64_t out, bool bias = false);
  Floats vector(const std::string& name, int64_t size);
  Kernel* linear_kernel(int64_t in, int64_t out, bool bias, const BlockFormat& format);
  void make_kernels();

  void check_ids(const std::vector<int32_t>& ids, int64_t past) const;
  // All layers and the last norm, of the last `wanted` rows. What it returns is there until the next call.
  const float* chunk(const int32_t* ids, int64_t rows, int64_t wanted);
  // x_ has the norm of hidden_, before and after. Of the rows, the last `wanted` are left behind it; of the others only
  // keys and values are.
  void layer(const Layer& l, int64_t index, int64_t rows, int64_t wanted);
  // Forgets all rows but the last `wanted`.
  void keep_last(int64_t rows, int64_t wanted);
  // Adds y_ to hidden_, through its norm if there is one.
  void add_to_hidden(int64_t rows, const Floats& own_norm, const Floats& next_norm);
  void make_embedding();
  void make_heads();
  void make_ragged_kernels();
  // Heads of q as attention takes them, and those of k and v in the cache; k and v are what projections give.
  void turn(const Layer& l, int64_t index, int64_t rows, const float* q, float* turned);
  void append_heads(const Layer& l, int64_t index, int64_t rows, const float* k, const float* v);
  // The rows are the last of `held` in the sequence.
  void attention(int64_t index, int64_t rows, int64_t held, const float* q, float* out);
  void ragged_attention(int64_t index, int64_t rows, const float* q, float* out);
  // All slots of a layer's cache, head by head.
  Argument cached(const Floats& cache, int64_t slots) const;
  std::vector<int64_t> cache_strides() const;
  void place(int64_t slot, int64_t position);
  void apply(const Linear& l, int64_t rows, const float* x, float* y);
  Rope make_tables(double base) const;

  const GgufFile& file_;
  Context& context_;
  const Architecture arch_;
  const int64_t capacity_, slots_, chunk_;
  const bool decode_weights_;
  std::vector<int64_t> past_;  // ids in each slot
  std::vector<int32_t> positions_,
      cached_;  // of the rows that go through the layers: where in their sequence and cache
  const std::vector<Part>* parts_ = nullptr;  // whose rows these are; null: of slot 0

  std::map<std::string, Packing> packing_;                           // by format
  std::map<std::vector<int64_t>, std::unique_ptr<Kernel>> linears_;  // by in, out, bias and number of the format
  std::unique_ptr<Kernel> embed_, norm_, add_, gated_, first_choice_, turn_, append_k_, append_v_, global_attention_,
      local_attention_,  // none: all layers are global
      global_ragged_, local_ragged_;
  Argument embedding_{};  // the table, as it lies in the file
  Linear head_{};
  Floats output_norm_;
  std::vector<Layer> layers_;
  std::vector<Floats> keys_, values_;  // by layer: [slots, capacity, groups, head_size]
  Rope global_, local_;
  Floats hidden_, x_, y_, sum_, q_, turned_, k_, v_, gate_, up_, inner_;  // of the rows that go through the layers
};

}  // namespace lathe::decoder
