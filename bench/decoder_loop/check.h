// Logits of a reference in a file, and how far a decoder's are from them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lathe::decoder {

// What reference.py writes: "LATHEREF", u32 sequences, length, vocabulary, 0; i32 ids; f32 logits after each id.
struct Reference {
  uint64_t sequences = 0, length = 0, vocabulary = 0;
  std::vector<int32_t> ids;
  std::vector<float> logits;

  const float* at(uint64_t sequence, uint64_t position) const {
    return logits.data() + (sequence * length + position) * vocabulary;
  }
};

// A file of another size than its counts say is a Problem.
Reference read_reference(const std::string& path);

class Distance {
 public:
  // Logits after a position, the reference's, and the id that comes next in the text; -1 after the last one.
  void add(const float* logits, const float* reference, uint64_t vocabulary, int32_t next);

  double divergence() const { return divergence_ / static_cast<double>(positions_); }
  // Of the positions whose two best reference logits lie 1e-3 or more apart, the share with the same first choice.
  double same_choice() const { return clear_ == 0 ? 1 : static_cast<double>(same_) / static_cast<double>(clear_); }
  uint64_t clear() const { return clear_; }
  double log_likelihood() const { return likelihood_ / static_cast<double>(predicted_); }  // negative, per id
  double reference_log_likelihood() const { return reference_likelihood_ / static_cast<double>(predicted_); }
  double worst_log_likelihood() const { return worst_likelihood_; }  // difference at a position
  double worst_logit() const { return worst_logit_; }                // difference over the deviation of the logits

 private:
  uint64_t positions_ = 0, predicted_ = 0, clear_ = 0, same_ = 0;
  double divergence_ = 0, likelihood_ = 0, reference_likelihood_ = 0, worst_likelihood_ = 0, worst_logit_ = 0;
};

}  // namespace lathe::decoder
