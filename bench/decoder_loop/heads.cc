// Heads of q, k and v: turned by their positions, kept in the cache, and attended to. See decoder.h.
#include <array>
#include <cmath>

#include "bench/decoder_loop/decoder.h"

namespace lathe::decoder {

namespace {

constexpr std::array<int64_t, 4> kHeadsLast = {0, 2, 1, 3};

uint64_t count(int64_t a, int64_t b) { return static_cast<uint64_t>(a) * static_cast<uint64_t>(b); }

}  // namespace

Decoder::Rope Decoder::make_tables(double base) const {
  const int64_t half = arch_.head_size / 2;
  Rope out = {reserve(count(capacity_, half)), reserve(count(capacity_, half))};
  for (int64_t t = 0; t < capacity_; ++t) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(t) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(arch_.head_size));
      out.cosines[count(t, half) + count(i, 1)] = static_cast<float>(std::cos(angle));
      out.sines[count(t, half) + count(i, 1)] = static_cast<float>(std::sin(angle));
    }
  }
  return out;
}

// A row goes through the layers that stands there in the sequence of a slot.
void Decoder::place(int64_t slot, int64_t position) {
  positions_.push_back(static_cast<int32_t>(position));
  cached_.push_back(static_cast<int32_t>(slot * capacity_ + position));
}

// Of [slots, groups, capacity, head_size].
std::vector<int64_t> Decoder::cache_strides() const {
  const int64_t width = arch_.head_size, row = arch_.groups * width;
  return {capacity_ * row, width, row, 1};
}

Argument Decoder::cached(const Floats& cache, int64_t slots) const {
  return {cache.get(), {slots, arch_.groups, capacity_, arch_.head_size}, 0, LATHE_DTYPE_F32, cache_strides()};
}

void Decoder::make_heads() {
  const Size rows = {chunk_, "M"}, width = {arch_.head_size}, half = {arch_.head_size / 2}, one = {1};
  const std::vector<Size> table = {{capacity_}, half}, cache = {{slots_ * capacity_}, {arch_.groups}, width};
  const Operand positions = {"positions", {rows}, false, LATHE_DTYPE_I32}, norm = {"norm", {width}, true};
  const std::vector<lathe_attr> epsilon = {real("epsilon", arch_.epsilon)};
  std::vector<Operand> q = {{"q", {rows, {arch_.heads}, width}}, {"cos", table}, {"sin", table}, positions};
  std::vector<Operand> k = {
      {"k", {rows, {arch_.groups}, width}}, {"slots", {rows}, false, LATHE_DTYPE_I32}, {"cache", cache}};
  const std::vector<Operand> v = k;
  k.insert(k.end(), {{"cos", table}, {"sin", table}, positions});
  if (arch_.head_norms) q.push_back(norm), k.push_back(norm);
  turn_ = std::make_unique<Kernel>(context_, "turn", q, [&](Graph& g) {
    const int32_t x = arch_.head_norms ? g.node("rmsnorm", {0, 4}, epsilon) : 0;
    return g.finish({g.node("rope", {x, 1, 2, 3})});
  });
  append_k_ = std::make_unique<Kernel>(context_, "append k", k, [&](Graph& g) {
    return g.finish({arch_.head_norms ? g.node("kv_append", {0, 1, 2, 3, 4, 5, 6}, epsilon)
                                      : g.node("kv_append", {0, 1, 2, 3, 4, 5})});
  });
  append_v_ = std::make_unique<Kernel>(context_, "append v", v,
                                       [](Graph& g) { return g.finish({g.node("kv_append", {0, 1, 2})}); });
  const auto attend = [&](int64_t window) {
    const std::vector<Size> keys = {one, {arch_.groups}, {capacity_}, width};
    const int64_t row = arch_.heads * arch_.head_size;
    const std::vector<Operand> inputs = {
        {"q", {one, {arch_.heads}, rows, width}, false, LATHE_DTYPE_F32, {row, arch_.head_size, row, 1}},
        {"k", keys, false, LATHE_DTYPE_F32, cache_strides()},
        {"v", keys, false, LATHE_DTYPE_F32, cache_strides()},
        {"lengths", {one}, false, LATHE_DTYPE_I32}};
    return std::make_unique<Kernel>(context_, "attention", inputs, [&](Graph& g) {
      std::vector<lathe_attr> form = {flag("causal")};
      if (window != 0) form.push_back(integer("window", window));
      // Rows as projections take them.
      const int32_t y = g.node("cached_attention", {0, 1, 2, 3}, form);
      return g.finish({g.node("transpose", {y}, {integers("perm", kHeadsLast)})});
    });
  };
  global_attention_ = attend(0);
  if (arch_.window != 0) local_attention_ = attend(arch_.window);
}

void Decoder::turn(const Layer& l, int64_t index, int64_t rows, const float* q, float* turned) {
  const Rope& rope = arch_.global(index) ? global_ : local_;
  const int64_t width = arch_.head_size;
  const Argument x{q, {rows, arch_.heads, width}}, cosines{rope.cosines.get(), {capacity_, width / 2}},
      sines{rope.sines.get(), {capacity_, width / 2}}, positions{positions_.data(), {rows}, 0, LATHE_DTYPE_I32},
      result{turned, {rows, arch_.heads, width}};
  if (l.q_norm == nullptr) {
    turn_->run({x, cosines, sines, positions, result});
  } else {
    turn_->run({x, cosines, sines, positions, {l.q_norm.get(), {width}}, result});
  }
}

void Decoder::append_heads(const Layer& l, int64_t index, int64_t rows, const float* k, const float* v) {
  const Rope& rope = arch_.global(index) ? global_ : local_;
  const int64_t width = arch_.head_size;
  const std::vector<int64_t> heads = {rows, arch_.groups, width}, cache = {slots_ * capacity_, arch_.groups, width},
                             table = {capacity_, width / 2};
  const Argument slots{cached_.data(), {rows}, 0, LATHE_DTYPE_I32},
      positions{positions_.data(), {rows}, 0, LATHE_DTYPE_I32}, keys{keys_[count(index, 1)].get(), cache},
      cosines{rope.cosines.get(), table}, sines{rope.sines.get(), table};
  if (l.k_norm == nullptr) {
    append_k_->run({{k, heads}, slots, keys, cosines, sines, positions});
  } else {
    append_k_->run({{k, heads}, slots, keys, cosines, sines, positions, {l.k_norm.get(), {width}}});
  }
  append_v_->run({{v, heads}, slots, {values_[count(index, 1)].get(), cache}});
}

void Decoder::attention(int64_t index, int64_t rows, int64_t held, const float* q, float* out) {
  if (parts_ != nullptr) return ragged_attention(index, rows, q, out);
  const int64_t width = arch_.head_size, heads = arch_.heads;
  const auto length = static_cast<int32_t>(held);
  Kernel& kernel = local_attention_ == nullptr || arch_.global(index) ? *global_attention_ : *local_attention_;
  kernel.run({{q, {1, heads, rows, width}, 0, LATHE_DTYPE_F32, {heads * width, width, heads * width, 1}},
              cached(keys_[count(index, 1)], 1),
              cached(values_[count(index, 1)], 1),
              {&length, {1}, 0, LATHE_DTYPE_I32},
              {out, {1, rows, heads, width}}});
}

}  // namespace lathe::decoder
