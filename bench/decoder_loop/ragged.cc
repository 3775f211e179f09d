// See ragged.h: the part of the decoder that appends to several sequences at once, and random batches of them.
#include "bench/decoder_loop/ragged.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace lathe::decoder {
namespace {

constexpr int64_t kSlots = 8, kMostIds = 64, kCapacity = 256;
constexpr int64_t kCheckEvery = 16;  // batches

uint64_t count(int64_t a, int64_t b) { return static_cast<uint64_t>(a) * static_cast<uint64_t>(b); }

int64_t first_choice(const float* logits, int64_t vocabulary) {
  return std::max_element(logits, logits + vocabulary) - logits;
}

// The largest difference, in standard deviations of the second.
double worst_error(const float* own, const float* alone, int64_t vocabulary) {
  double sum = 0, squares = 0, worst = 0;
  for (int64_t i = 0; i < vocabulary; ++i) {
    sum += alone[i];
    squares += static_cast<double>(alone[i]) * alone[i];
    const double difference = std::abs(static_cast<double>(own[i]) - alone[i]);
    if (std::isnan(difference)) return NAN;
    worst = std::max(worst, difference);
  }
  const auto n = static_cast<double>(vocabulary);
  return worst / std::sqrt(std::max(squares / n - sum / n * (sum / n), 1e-30));
}

}  // namespace

void Decoder::make_ragged_kernels() {
  const auto attend = [&](int64_t window) {
    const Size rows = {chunk_, "R"}, width = {arch_.head_size}, parts = {slots_, "B"};
    const std::vector<Size> cache = {{slots_}, {arch_.groups}, {capacity_}, width};
    const std::vector<Operand> inputs = {{"q", {rows, {arch_.heads}, width}},
                                         {"k", cache, false, LATHE_DTYPE_F32, cache_strides()},
                                         {"v", cache, false, LATHE_DTYPE_F32, cache_strides()},
                                         {"lengths", {parts}, false, LATHE_DTYPE_I32},
                                         {"pages", {parts, {1}}, false, LATHE_DTYPE_I32},
                                         {"offsets", {parts, {2}}, false, LATHE_DTYPE_I32}};
    return std::make_unique<Kernel>(context_, "attention", inputs, [&](Graph& g) {
      std::vector<lathe_attr> form = {flag("causal")};
      if (window != 0) form.push_back(integer("window", window));
      return g.finish({g.node("ragged_attention", {0, 1, 2, 3, 4, 5}, form)});
    });
  };
  global_ragged_ = attend(0);
  if (arch_.window != 0) local_ragged_ = attend(arch_.window);
}

void Decoder::ragged_attention(int64_t index, int64_t rows, const float* q, float* out) {
  const int64_t width = arch_.head_size, heads = arch_.heads;
  const auto parts = static_cast<int64_t>(parts_->size());
  std::vector<int32_t> lengths, pages, offsets;
  int32_t row = 0;
  for (const Part& p : *parts_) {
    pages.push_back(static_cast<int32_t>(p.slot));
    offsets.push_back(row);
    row += static_cast<int32_t>(p.ids.size());
    offsets.push_back(row);
    lengths.push_back(positions_[count(row - 1, 1)] + 1);
  }
  Kernel& kernel = local_ragged_ == nullptr || arch_.global(index) ? *global_ragged_ : *local_ragged_;
  kernel.run({{q, {rows, heads, width}},
              cached(keys_[count(index, 1)], slots_),
              cached(values_[count(index, 1)], slots_),
              {lengths.data(), {parts}, 0, LATHE_DTYPE_I32},
              {pages.data(), {parts, 1}, 0, LATHE_DTYPE_I32},
              {offsets.data(), {parts, 2}, 0, LATHE_DTYPE_I32},
              {out, {rows, heads, width}}});
}

void Decoder::append_parts(const std::vector<Part>& parts, std::vector<float>& logits) {
  std::vector<int32_t> ids;
  positions_.clear();
  cached_.clear();
  for (const Part& p : parts) {
    int64_t& past = past_.at(count(p.slot, 1));
    check_ids(p.ids, past);
    for (const int32_t id : p.ids) {
      ids.push_back(id);
      place(p.slot, past++);
    }
  }
  const auto rows = static_cast<int64_t>(ids.size()), wanted = static_cast<int64_t>(parts.size());
  if (rows > chunk_) throw Problem(std::to_string(rows) + " ids at once, expected at most " + std::to_string(chunk_));
  parts_ = &parts;
  const float* normed = chunk(ids.data(), rows, rows);
  parts_ = nullptr;
  std::vector<float> last;
  int64_t end = 0;
  for (const Part& p : parts) {
    end += std::ssize(p.ids);
    const float* row = normed + (end - 1) * arch_.hidden;
    last.insert(last.end(), row, row + arch_.hidden);
  }
  logits.resize(count(wanted, arch_.vocabulary));
  apply(head_, wanted, last.data(), logits.data());
}

RaggedResult run_ragged(const GgufFile& file, Context& context, int64_t batches, uint64_t seed, bool decode_weights,
                        const std::function<void()>& seal) {
  // Slot 0 is for sequences alone.
  Decoder decoder(file, context, kCapacity, decode_weights, kSlots + 1);
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  std::vector<std::vector<int32_t>> held(kSlots + 1);
  std::vector<float> logits, alone;
  RaggedResult out;
  out.packing = decoder.packing();
  for (int64_t b = -1; b < batches; ++b) {
    std::vector<int64_t> slots;
    for (int64_t i = 1; i <= kSlots; ++i) slots.push_back(i);
    std::shuffle(slots.begin(), slots.end(), random);
    slots.resize(static_cast<size_t>(1 + below(kSlots)));
    std::vector<Decoder::Part> parts;
    for (const int64_t slot : slots) {
      std::vector<int32_t>& before = held[count(slot, 1)];
      Decoder::Part part{slot, {}};
      // One in four decodes.
      for (int64_t n = below(4) == 0 ? 1 : 1 + below(kMostIds); n > 0; --n)
        part.ids.push_back(static_cast<int32_t>(below(decoder.vocabulary())));
      if (std::ssize(before) + std::ssize(part.ids) > kCapacity || below(8) == 0) {
        before.clear();
        decoder.restart(slot);
      }
      before.insert(before.end(), part.ids.begin(), part.ids.end());
      parts.push_back(std::move(part));
    }
    decoder.append_parts(parts, logits);
    const bool warm_up = b < 0;
    if (!warm_up) {
      ++out.batches;
      out.sequences += std::ssize(parts);
      for (const Decoder::Part& p : parts) out.ids += std::ssize(p.ids);
    }
    if (warm_up || b % kCheckEvery == 0) {
      const int64_t which = below(std::ssize(parts));
      decoder.restart();
      decoder.append(held[count(parts[count(which, 1)].slot, 1)], false, alone);
      const float* own = logits.data() + which * decoder.vocabulary();
      const double error = worst_error(own, alone.data(), decoder.vocabulary());
      if (!std::isnan(out.worst_error) && !(error <= out.worst_error)) out.worst_error = error;
      out.same_choice += first_choice(own, decoder.vocabulary()) == first_choice(alone.data(), decoder.vocabulary());
      ++out.checked;
    }
    if (warm_up) seal();
  }
  return out;
}

}  // namespace lathe::decoder
