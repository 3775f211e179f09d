// The rates of one core: what plain loops reach, the best of several passes.
#include "bench/decoder_loop/shares.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>

namespace lathe::decoder {

namespace {

using Clock = std::chrono::steady_clock;

// Of `amount` in the fastest of so many runs, a second.
double best_rate(double amount, int runs, const std::function<void()>& run) {
  double best = 0;
  for (int i = 0; i < runs; ++i) {
    const Clock::time_point start = Clock::now();
    run();
    best = std::max(best, amount / std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

// Bytes a second from memory, by four streams over large pages, as packed weights lie on.
double read_rate() {
  constexpr size_t kWords = (size_t{1} << 30) / sizeof(uint64_t), kStreams = 4;
  // At a distance that is no power of two: such streams come from one bank of the memory, in turns.
  constexpr size_t kPart = kWords / kStreams - 520;
  constexpr size_t kPage = size_t{2} << 20;
  const std::unique_ptr<uint64_t[], void (*)(void*)> words(
      static_cast<uint64_t*>(std::aligned_alloc(kPage, kWords * sizeof(uint64_t))), std::free);
  if (words == nullptr) throw std::bad_alloc();
  (void)madvise(words.get(), kWords * sizeof(uint64_t), MADV_HUGEPAGE);
  std::fill_n(words.get(), kWords, 1);
  volatile uint64_t sink = 0;
  return best_rate(static_cast<double>(kStreams * kPart * sizeof(uint64_t)), 4, [&] {
    uint64_t sums[kStreams] = {};
    for (size_t i = 0; i < kPart; ++i) {
      for (size_t s = 0; s < kStreams; ++s) sums[s] += words[s * kPart + i];
    }
    sink = sums[0] + sums[1] + sums[2] + sums[3];
  });
}

constexpr int kChains = 12, kSteps = 1 << 20;

// kSteps multiply-adds of a vector in each of kChains chains, more than any core has on its way.
#define LATHE_CHAINS(name, bytes, attribute)                                     \
  attribute float name() {                                                       \
    typedef float Vector __attribute__((vector_size(bytes)));                    \
    Vector chain[kChains], factor = Vector{} + 0.5f;                             \
    for (int c = 0; c < kChains; ++c) chain[c] = factor + static_cast<float>(c); \
    for (int i = 0; i < kSteps; ++i) {                                           \
      for (int c = 0; c < kChains; ++c) chain[c] = chain[c] * factor + factor;   \
      asm volatile("" : "+x"(factor));                                           \
    }                                                                            \
    Vector sum = chain[0];                                                       \
    for (int c = 1; c < kChains; ++c) sum += chain[c];                           \
    return sum[0];                                                               \
  }
LATHE_CHAINS(chains_16, 16, )
LATHE_CHAINS(chains_32, 32, __attribute__((target("avx2,fma"))))
LATHE_CHAINS(chains_64, 64, __attribute__((target("avx512f"))))
#undef LATHE_CHAINS

// Operations a second in f32; a multiply-add is two.
double f32_rate() {
  volatile float sink = 0;
  double best = 0;
  const auto with = [&](float (*chains)(), int lanes) {
    best = std::max(best, best_rate(2.0 * kChains * lanes * kSteps, 6, [&] { sink = chains(); }));
  };
  with(chains_16, 4);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) with(chains_32, 8);
  if (__builtin_cpu_supports("avx512f")) with(chains_64, 16);
  return best;
}

}  // namespace

Rates rates_of_a_core(bool bytes) { return {read_rate(), f32_rate() * (bytes ? 4 : 1)}; }

Shares shares_of(const Measured& measured, int threads, bool bytes) {
  if (threads != 1) return {};
  const Rates rates = rates_of_a_core(bytes);
  return {measured.step_bytes / measured.step_seconds / rates.read,
          measured.prompt_operations / measured.prompt_seconds / rates.operations};
}

}  // namespace lathe::decoder
