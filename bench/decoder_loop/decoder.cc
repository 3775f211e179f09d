// The kernels of a decoder, and the walk through its layers: see decoder.h.
#include "bench/decoder_loop/decoder.h"

#include <algorithm>
#include <cmath>

namespace lathe::decoder {

namespace {

constexpr int64_t kMostRows = 512;  // of ids that go through the layers together

uint64_t count(int64_t a, int64_t b) { return static_cast<uint64_t>(a) * static_cast<uint64_t>(b); }

std::vector<float> floats(int64_t a, int64_t b) { return std::vector<float>(count(a, b)); }

}  // namespace

Decoder::Decoder(const GgufFile& file, Context& context, int64_t capacity, bool decode_weights)
    : file_(file),
      context_(context),
      arch_(architecture_of(file)),
      capacity_(capacity),
      chunk_(std::min(capacity, kMostRows)),
      decode_weights_(decode_weights) {
  embedding_ = &file.tensor("token_embd.weight", {count(arch_.hidden, 1), count(arch_.vocabulary, 1)});
  // The largest weight first: while it is packed it is there twice.
  const bool tied = file.find("output.weight") == nullptr;
  head_ = linear(tied ? "token_embd" : "output", arch_.hidden, arch_.vocabulary, false);
  output_norm_ = vector("output_norm.weight", arch_.hidden);
  const int64_t q_width = arch_.heads * arch_.head_size, kv_width = arch_.groups * arch_.head_size;
  for (int64_t i = 0; i < arch_.layers; ++i) {
    const std::string at = "blk." + std::to_string(i) + ".";
    Layer l{};
    l.q = linear(at + "attn_q", arch_.hidden, q_width, arch_.biases);
    l.k = linear(at + "attn_k", arch_.hidden, kv_width, arch_.biases);
    l.v = linear(at + "attn_v", arch_.hidden, kv_width, arch_.biases);
    l.o = linear(at + "attn_output", q_width, arch_.hidden, false);
    l.gate = linear(at + "ffn_gate", arch_.hidden, arch_.inner, false);
    l.up = linear(at + "ffn_up", arch_.hidden, arch_.inner, false);
    l.down = linear(at + "ffn_down", arch_.inner, arch_.hidden, false);
    l.attention_norm = vector(at + "attn_norm.weight", arch_.hidden);
    l.inner_norm = vector(at + "ffn_norm.weight", arch_.hidden);
    if (arch_.head_norms) {
      l.q_norm = vector(at + "attn_q_norm.weight", arch_.head_size);
      l.k_norm = vector(at + "attn_k_norm.weight", arch_.head_size);
    }
    if (arch_.post_norms) {
      l.post_attention_norm = vector(at + "post_attention_norm.weight", arch_.hidden);
      l.post_inner_norm = vector(at + "post_ffw_norm.weight", arch_.hidden);
    }
    layers_.push_back(std::move(l));
    keys_.push_back(reserve(count(capacity, kv_width)));
    values_.push_back(reserve(count(capacity, kv_width)));
  }
  make_kernels();
}

Kernel* Decoder::linear_kernel(int64_t in, int64_t out, bool bias, const BlockFormat& format) {
  const bool blocks = format.lathe != nullptr && !decode_weights_;
  std::unique_ptr<Kernel>& kernel = linears_[{in, out, bias, blocks ? static_cast<int64_t>(format.type) : -1}];
  if (kernel == nullptr) {
    std::vector<Operand> inputs = {{"x", {{chunk_, "M"}, {in}}}, {"w", {{out}, {in}}, true}};
    if (blocks) inputs[1] = {"w", {{out}, {in / format.values * format.bytes}}, true, LATHE_DTYPE_U8};
    if (bias) inputs.push_back({"b", {{out}}, true});
    kernel = std::make_unique<Kernel>(context_, "linear", inputs, [&](Graph& g) {
      const int32_t y = blocks ? g.node("quantized_matmul", {0, 1}, {text("format", format.lathe)})
                               : g.node("matmul", {0, 1}, {flag("transpose_b")});
      return bias ? g.node("add", {y, 2}) : y;
    });
  }
  return kernel.get();
}

Decoder::Linear Decoder::linear(const std::string& name, int64_t in, int64_t out, bool bias) {
  const GgufTensor& t = file_.tensor(name + ".weight", {count(in, 1), count(out, 1)});
  Linear l{linear_kernel(in, out, bias, *t.format), {}, {}, nullptr, nullptr, in, out};
  if (t.format->lathe != nullptr && !decode_weights_) {
    l.plain = {t.data, {out, in / t.format->values * t.format->bytes}, 0, LATHE_DTYPE_U8};
  } else {
    l.decoded = reserve(count(in, out));
    for (int64_t r = 0; r < out; ++r) t.decode_row(count(r, 1), l.decoded.get() + count(r, in));
    l.plain = {l.decoded.get(), {out, in}};
  }
  l.weight = l.kernel->pack(1, l.plain);
  if (l.weight.layout_id != 0) l.decoded.reset();
  if (bias) l.bias = vector(name + ".bias", out);
  return l;
}

Floats Decoder::vector(const std::string& name, int64_t size) {
  const GgufTensor& t = file_.tensor(name, {count(size, 1)});
  Floats out = reserve(count(size, 1));
  t.decode_row(0, out.get());
  return out;
}

void Decoder::make_kernels() {
  const auto rms = [&](int64_t rows, int64_t width) {
    const std::vector<Operand> inputs = {{"x", {{rows, "M"}, {width}}}, {"scale", {{width}}, true}};
    return std::make_unique<Kernel>(context_, "norm", inputs, [&](Graph& g) {
      return g.node("rmsnorm", {0, 1}, {real("epsilon", arch_.epsilon)});
    });
  };
  const auto rotate = [&](int64_t heads) {
    const int64_t half = arch_.head_size / 2;
    const std::vector<Operand> inputs = {{"x", {{chunk_, "M"}, {heads}, {arch_.head_size}}},
                                         {"cos", {{chunk_, "M"}, {half}}},
                                         {"sin", {{chunk_, "M"}, {half}}}};
    return std::make_unique<Kernel>(context_, "rope", inputs, [](Graph& g) { return g.node("rope", {0, 1, 2}); });
  };
  norm_ = rms(chunk_, arch_.hidden);
  if (arch_.head_norms) head_norm_ = rms(chunk_ * arch_.heads, arch_.head_size);
  rope_q_ = rotate(arch_.heads);
  rope_k_ = rotate(arch_.groups);
  const std::vector<Size> residual = {{chunk_, "M"}, {arch_.hidden}}, inner = {{chunk_, "M"}, {arch_.inner}};
  add_ = std::make_unique<Kernel>(context_, "add", std::vector<Operand>{{"a", residual}, {"b", residual}},
                                  [](Graph& g) { return g.node("add", {0, 1}); });
  gated_ =
      std::make_unique<Kernel>(context_, "gated", std::vector<Operand>{{"gate", inner}, {"up", inner}}, [&](Graph& g) {
        std::vector<lathe_attr> form;
        if (arch_.gate == std::string("gelu")) form.push_back(text("approximate", "tanh"));
        return g.node("mul", {g.node(arch_.gate, {0}, form), 1});
      });
  const auto attend = [&](int64_t window) {
    const Size one = {1}, rows = {chunk_, "M"}, keys = {capacity_}, width = {arch_.head_size};
    const std::vector<Operand> inputs = {{"q", {one, {arch_.heads}, rows, width}},
                                         {"k", {one, {arch_.groups}, keys, width}},
                                         {"v", {one, {arch_.groups}, keys, width}},
                                         {"lengths", {one}, false, LATHE_DTYPE_I32}};
    return std::make_unique<Kernel>(context_, "attention", inputs, [&](Graph& g) {
      std::vector<lathe_attr> form = {flag("causal")};
      if (window != 0) form.push_back(integer("window", window));
      return g.node("cached_attention", {0, 1, 2, 3}, form);
    });
  };
  global_attention_ = attend(0);
  if (arch_.window != 0) local_attention_ = attend(arch_.window);
}

void Decoder::apply(const Linear& l, int64_t rows, const float* x, float* y) {
  const Argument input{x, {rows, l.in}}, result{y, {rows, l.out}};
  Argument weight = l.plain;
  if (l.weight.layout_id != 0) {
    weight.data = l.weight.data.get();
    weight.layout_id = l.weight.layout_id;
  }
  if (l.bias == nullptr) {
    l.kernel->run({input, weight, result});
  } else {
    l.kernel->run({input, weight, {l.bias.get(), {l.out}}, result});
  }
}

void Decoder::norm(Kernel& kernel, int64_t rows, int64_t width, const float* scale, const float* x, float* y) {
  kernel.run({{x, {rows, width}}, {scale, {width}}, {y, {rows, width}}});
}

void Decoder::rope(int64_t index, int64_t rows, int64_t heads, const float* x, float* y) {
  const Rope& tables = arch_.global(index) ? global_ : local_;
  const int64_t half = arch_.head_size / 2;
  Kernel& kernel = heads == arch_.heads ? *rope_q_ : *rope_k_;
  kernel.run({{x, {rows, heads, arch_.head_size}},
              {tables.cosines.data(), {rows, half}},
              {tables.sines.data(), {rows, half}},
              {y, {rows, heads, arch_.head_size}}});
}

void Decoder::make_tables(int64_t rows) {
  const int64_t half = arch_.head_size / 2;
  const auto fill = [&](Rope& rope, double base) {
    rope = {floats(rows, half), floats(rows, half)};
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(past_ + t) *
                             std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(arch_.head_size));
        rope.cosines[count(t, half) + count(i, 1)] = static_cast<float>(std::cos(angle));
        rope.sines[count(t, half) + count(i, 1)] = static_cast<float>(std::sin(angle));
      }
    }
  };
  fill(global_, arch_.rope_base);
  fill(local_, arch_.local_rope_base);
}

void Decoder::attention(int64_t index, int64_t rows, const float* q, const float* k, const float* v, float* out) {
  const int64_t width = arch_.head_size, heads = arch_.heads;
  const auto held = static_cast<int32_t>(past_ + rows);
  float* const cached_k = keys_[count(index, 1)].get();
  float* const cached_v = values_[count(index, 1)].get();
  std::vector<float> queries = floats(heads * rows, width), results = floats(heads * rows, width);
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t g = 0; g < arch_.groups; ++g) {
      const int64_t from = (t * arch_.groups + g) * width, to = (g * capacity_ + past_ + t) * width;
      std::copy_n(k + from, width, cached_k + to);
      std::copy_n(v + from, width, cached_v + to);
    }
    for (int64_t h = 0; h < heads; ++h)
      std::copy_n(q + (t * heads + h) * width, width, queries.data() + (h * rows + t) * width);
  }
  Kernel& kernel = local_attention_ == nullptr || arch_.global(index) ? *global_attention_ : *local_attention_;
  kernel.run({{queries.data(), {1, heads, rows, width}},
              {cached_k, {1, arch_.groups, capacity_, width}},
              {cached_v, {1, arch_.groups, capacity_, width}},
              {&held, {1}, 0, LATHE_DTYPE_I32},
              {results.data(), {1, heads, rows, width}}});
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t h = 0; h < heads; ++h)
      std::copy_n(results.data() + (h * rows + t) * width, width, out + (t * heads + h) * width);
  }
}

void Decoder::layer(const Layer& l, int64_t index, int64_t rows, float* hidden) {
  const int64_t width = arch_.hidden, q_width = l.q.out, kv_width = l.k.out;
  std::vector<float> x = floats(rows, width), y = floats(rows, width), q = floats(rows, q_width),
                     q2 = floats(rows, q_width), k = floats(rows, kv_width), k2 = floats(rows, kv_width),
                     v = floats(rows, kv_width), gate = floats(rows, arch_.inner), up = floats(rows, arch_.inner),
                     inner = floats(rows, arch_.inner);
  // Adds x, through its norm if there is one, to the residual stream.
  const auto add_to_hidden = [&](const float* scale) {
    if (scale != nullptr) {
      norm(*norm_, rows, width, scale, x.data(), y.data());
      x.swap(y);
    }
    add_->run({{hidden, {rows, width}}, {x.data(), {rows, width}}, {y.data(), {rows, width}}});
    std::copy(y.begin(), y.end(), hidden);
  };
  norm(*norm_, rows, width, l.attention_norm.get(), hidden, x.data());
  apply(l.q, rows, x.data(), q.data());
  apply(l.k, rows, x.data(), k.data());
  apply(l.v, rows, x.data(), v.data());
  if (arch_.head_norms) {
    norm(*head_norm_, rows * arch_.heads, arch_.head_size, l.q_norm.get(), q.data(), q2.data());
    norm(*head_norm_, rows * arch_.groups, arch_.head_size, l.k_norm.get(), k.data(), k2.data());
    q.swap(q2);
    k.swap(k2);
  }
  rope(index, rows, arch_.heads, q.data(), q2.data());
  rope(index, rows, arch_.groups, k.data(), k2.data());
  attention(index, rows, q2.data(), k2.data(), v.data(), q.data());
  apply(l.o, rows, q.data(), x.data());
  add_to_hidden(l.post_attention_norm.get());
  norm(*norm_, rows, width, l.inner_norm.get(), hidden, x.data());
  apply(l.gate, rows, x.data(), gate.data());
  apply(l.up, rows, x.data(), up.data());
  const std::vector<int64_t> shape = {rows, arch_.inner};
  gated_->run({{gate.data(), shape}, {up.data(), shape}, {inner.data(), shape}});
  apply(l.down, rows, inner.data(), x.data());
  add_to_hidden(l.post_inner_norm.get());
}

void Decoder::chunk(const int32_t* ids, int64_t rows, float* hidden) {
  const auto scale = static_cast<float>(arch_.embedding_scale);
  for (int64_t t = 0; t < rows; ++t) {
    float* row = hidden + t * arch_.hidden;
    embedding_->decode_row(static_cast<uint64_t>(ids[t]), row);
    for (int64_t i = 0; i < arch_.hidden; ++i) row[i] *= scale;
  }
  make_tables(rows);
  for (int64_t i = 0; i < arch_.layers; ++i) layer(layers_[count(i, 1)], i, rows, hidden);
  past_ += rows;
}

void Decoder::append(const std::vector<int32_t>& ids, bool every, std::vector<float>& logits) {
  const auto n = static_cast<int64_t>(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id >= arch_.vocabulary)
      throw Problem("id " + std::to_string(id) + ", expected 0 to " + std::to_string(arch_.vocabulary - 1));
  }
  if (n == 0 || past_ + n > capacity_) {
    throw Problem(std::to_string(n) + " ids after " + std::to_string(past_) + ", expected 1 or more, and at most " +
                  std::to_string(capacity_) + " in all");
  }
  logits.resize(count(every ? n : 1, arch_.vocabulary));
  std::vector<float> hidden, normed;
  for (int64_t from = 0; from < n; from += chunk_) {
    const int64_t rows = std::min(chunk_, n - from), wanted = every ? rows : 1;
    hidden = floats(rows, arch_.hidden);
    chunk(ids.data() + from, rows, hidden.data());
    if (!every && from + rows < n) continue;
    normed = floats(wanted, arch_.hidden);
    norm(*norm_, wanted, arch_.hidden, output_norm_.get(), hidden.data() + (rows - wanted) * arch_.hidden,
         normed.data());
    apply(head_, wanted, normed.data(), logits.data() + (every ? from * arch_.vocabulary : 0));
  }
}

}  // namespace lathe::decoder
