// Reads references and sums distances in double: see check.h.
#include "bench/decoder_loop/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "bench/decoder_loop/gguf.h"

namespace lathe::decoder {

namespace {

constexpr double kTie = 1e-3;

double log_sum_exp(const float* x, uint64_t n) {
  const double most = *std::max_element(x, x + n);
  double sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += std::exp(x[i] - most);
  return most + std::log(sum);
}

double deviation(const float* x, uint64_t n) {
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < n; ++i) {
    sum += x[i];
    squares += static_cast<double>(x[i]) * x[i];
  }
  const double mean = sum / static_cast<double>(n);
  return std::sqrt(std::max(squares / static_cast<double>(n) - mean * mean, 1e-30));
}

// The larger of two, and NaN if either is.
double worse(double worst, double off) { return off <= worst || std::isnan(worst) ? worst : off; }

}  // namespace

Reference read_reference(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in ? static_cast<std::streamoff>(in.tellg()) : -1;
  char head[24] = {};
  in.seekg(0);
  if (size < 24 || !in.read(head, sizeof head) || std::memcmp(head, "LATHEREF", 8) != 0)
    throw Problem(path + ": expected a file that reference.py wrote");
  uint32_t counts[4];
  std::memcpy(counts, head + 8, sizeof counts);
  Reference r{counts[0], counts[1], counts[2], {}, {}};
  const uint64_t positions = r.sequences * r.length, bytes = static_cast<uint64_t>(size) - sizeof head;
  if (positions == 0 || r.vocabulary == 0 || positions > bytes || bytes % positions != 0 ||
      bytes / positions != 4 + 4 * r.vocabulary) {
    throw Problem(path + ": " + std::to_string(size) + " bytes, expected ids and logits of " +
                  std::to_string(r.sequences) + " x " + std::to_string(r.length) + " positions and " +
                  std::to_string(r.vocabulary) + " words");
  }
  r.ids.resize(positions);
  r.logits.resize(positions * r.vocabulary);
  in.read(reinterpret_cast<char*>(r.ids.data()), static_cast<std::streamsize>(positions * 4));
  in.read(reinterpret_cast<char*>(r.logits.data()), static_cast<std::streamsize>(r.logits.size() * 4));
  if (!in) throw Problem(path + ": could not be read to its end");
  return r;
}

void Distance::add(const float* logits, const float* reference, uint64_t vocabulary, int32_t next) {
  const double own = log_sum_exp(logits, vocabulary), theirs = log_sum_exp(reference, vocabulary),
               unit = deviation(reference, vocabulary);
  uint64_t best = 0, second = vocabulary, choice = 0;
  for (uint64_t i = 0; i < vocabulary; ++i) {
    const double p = reference[i] - theirs;
    divergence_ += std::exp(p) * (p - (logits[i] - own));
    worst_logit_ = worse(worst_logit_, std::abs(static_cast<double>(logits[i]) - reference[i]) / unit);
    if (logits[i] > logits[choice]) choice = i;
    if (i == 0) continue;
    if (reference[i] > reference[best]) {
      second = best;
      best = i;
    } else if (second == vocabulary || reference[i] > reference[second]) {
      second = i;
    }
  }
  ++positions_;
  if (second == vocabulary || reference[best] - reference[second] >= kTie) {
    ++clear_;
    same_ += choice == best ? 1 : 0;
  }
  if (next < 0) return;
  const double mine = own - logits[next], wanted = theirs - reference[next];
  ++predicted_;
  likelihood_ += mine;
  reference_likelihood_ += wanted;
  worst_likelihood_ = worse(worst_likelihood_, std::abs(mine - wanted));
}

}  // namespace lathe::decoder
