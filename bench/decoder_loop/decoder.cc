// The kernels of a decoder, and the walk through its layers: see decoder.h.
#include "bench/decoder_loop/decoder.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace lathe::decoder {

namespace {

constexpr int64_t kMostRows = 512;  // of ids that go through the layers together

uint64_t count(int64_t a, int64_t b) { return static_cast<uint64_t>(a) * static_cast<uint64_t>(b); }

}  // namespace

Decoder::Decoder(const GgufFile& file, Context& context, int64_t capacity, bool decode_weights, int64_t slots)
    : file_(file),
      context_(context),
      arch_(architecture_of(file)),
      capacity_(capacity),
      slots_(slots),
      chunk_(slots > 1 ? kMostRows : std::min(capacity, kMostRows)),
      decode_weights_(decode_weights),
      past_(static_cast<size_t>(slots)) {
  // The largest weight first: while it is packed it is there twice.
  const bool tied = file.find("output.weight") == nullptr;
  head_ = linear(tied ? "token_embd" : "output", arch_.hidden, arch_.vocabulary);
  output_norm_ = vector("output_norm.weight", arch_.hidden);
  const int64_t q_width = arch_.heads * arch_.head_size, kv_width = arch_.groups * arch_.head_size;
  for (int64_t i = 0; i < arch_.layers; ++i) {
    const std::string at = "blk." + std::to_string(i) + ".";
    Layer l{};
    l.q = linear(at + "attn_q", arch_.hidden, q_width, arch_.biases);
    l.k = linear(at + "attn_k", arch_.hidden, kv_width, arch_.biases);
    l.v = linear(at + "attn_v", arch_.hidden, kv_width, arch_.biases);
    l.o = linear(at + "attn_output", q_width, arch_.hidden);
    l.gate = linear(at + "ffn_gate", arch_.hidden, arch_.inner);
    l.up = linear(at + "ffn_up", arch_.hidden, arch_.inner);
    l.down = linear(at + "ffn_down", arch_.inner, arch_.hidden);
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
    keys_.push_back(reserve(count(slots * capacity, kv_width)));
    values_.push_back(reserve(count(slots * capacity, kv_width)));
  }
  global_ = make_tables(arch_.rope_base);
  local_ = make_tables(arch_.local_rope_base);
  const auto rows_of = [&](int64_t width) { return reserve(count(chunk_, width)); };
  for (Floats* f : {&hidden_, &x_, &y_, &sum_}) *f = rows_of(arch_.hidden);
  for (Floats* f : {&q_, &turned_}) *f = rows_of(q_width);
  for (Floats* f : {&k_, &v_}) *f = rows_of(kv_width);
  for (Floats* f : {&gate_, &up_, &inner_}) *f = rows_of(arch_.inner);
  make_embedding();
  make_kernels();
  make_heads();
  if (slots > 1) make_ragged_kernels();
}

Kernel* Decoder::linear_kernel(int64_t in, int64_t out, bool bias, const BlockFormat& format) {
  const bool blocks = format.lathe != nullptr && !decode_weights_;
  std::unique_ptr<Kernel>& kernel = linears_[{in, out, bias, blocks ? static_cast<int64_t>(format.type) : -1}];
  if (kernel == nullptr) {
    std::vector<Operand> inputs = {{"x", {{chunk_, "M"}, {in}}}, {"w", {{out}, {in}}, true}};
    if (blocks) inputs[1] = {"w", {{out}, {in / format.values * format.bytes}}, true, LATHE_DTYPE_U8};
    if (bias) inputs.push_back({"b", {{out}}, true});
    const std::string name = std::string("product ") + (blocks ? format.name : "F32") + " " + std::to_string(in) +
                             " to " + std::to_string(out);
    kernel = std::make_unique<Kernel>(context_, name, inputs, [&](Graph& g) {
      const int32_t y = blocks ? g.node("quantized_matmul", {0, 1}, {text("format", format.lathe)})
                               : g.node("matmul", {0, 1}, {flag("transpose_b")});
      return g.finish({bias ? g.node("add", {y, 2}) : y});
    });
  }
  return kernel.get();
}

Decoder::Linear Decoder::linear(const std::string& name, int64_t in, int64_t out, bool bias) {
  const GgufTensor& t = file_.tensor(name + ".weight", {count(in, 1), count(out, 1)});
  Linear l{linear_kernel(in, out, bias, *t.format), {}, {}, nullptr, nullptr, in, out, 0};
  if (t.format->lathe != nullptr && !decode_weights_) {
    l.plain = {t.data, {out, in / t.format->values * t.format->bytes}, 0, LATHE_DTYPE_U8};
  } else {
    l.decoded = reserve(count(in, out));
    for (int64_t r = 0; r < out; ++r) t.decode_row(count(r, 1), l.decoded.get() + count(r, in));
    l.plain = {l.decoded.get(), {out, in}};
  }
  const auto start = std::chrono::steady_clock::now();
  l.weight = l.kernel->pack(1, l.plain);
  Packing& packing = packing_[t.format->name];
  packing.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto stored = static_cast<int64_t>(count(in, out) / t.format->values * t.format->bytes);
  packing.stored += stored;
  packing.packed += static_cast<int64_t>(l.weight.bytes);
  l.bytes = l.weight.layout_id != 0 ? static_cast<int64_t>(l.weight.bytes)
            : l.decoded             ? in * out * static_cast<int64_t>(sizeof(float))
                                    : stored;
  if (l.weight.layout_id != 0) l.decoded.reset();
  l.kernel->set_work(2.0 * static_cast<double>(count(in, out)), static_cast<double>(l.bytes));
  if (bias) l.bias = vector(name + ".bias", out);
  return l;
}

std::vector<const Decoder::Linear*> Decoder::linears() const {
  std::vector<const Linear*> out = {&head_};
  for (const Layer& l : layers_) out.insert(out.end(), {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down});
  return out;
}

double Decoder::step_bytes(int64_t position) const {
  double bytes = 0;
  for (const Linear* l : linears()) bytes += static_cast<double>(l->bytes);
  for (int64_t i = 0; i < arch_.layers; ++i) {
    const int64_t keys = arch_.global(i) ? position + 1 : std::min(position + 1, arch_.window);
    bytes += 2.0 * static_cast<double>(keys * arch_.groups * arch_.head_size) * sizeof(float);
  }
  return bytes;
}

double Decoder::prompt_operations(int64_t ids) const {
  double operations = 0;
  const auto add = [&](const Linear& l, int64_t rows) {
    operations += 2.0 * static_cast<double>(count(l.in, l.out)) * static_cast<double>(rows);
  };
  for (const Layer& l : layers_) {
    const int64_t wanted = &l == &layers_.back() ? 1 : ids;
    for (const Linear* all : {&l.k, &l.v}) add(*all, ids);
    for (const Linear* some : {&l.q, &l.o, &l.gate, &l.up, &l.down}) add(*some, wanted);
  }
  add(head_, 1);
  return operations;
}

Floats Decoder::vector(const std::string& name, int64_t size) {
  const GgufTensor& t = file_.tensor(name, {count(size, 1)});
  Floats out = reserve(count(size, 1));
  t.decode_row(0, out.get());
  return out;
}

// Rows of the embedding, times its scale.
void Decoder::make_embedding() {
  const GgufTensor& t = file_.tensor("token_embd.weight", {count(arch_.hidden, 1), count(arch_.vocabulary, 1)});
  const bool blocks = t.format->lathe != nullptr;
  const int64_t stored = blocks ? arch_.hidden / t.format->values * t.format->bytes : arch_.hidden;
  embedding_ = {t.data, {arch_.vocabulary, stored}, 0, t.format->dtype};
  const std::vector<Operand> inputs = {{"table", {{arch_.vocabulary}, {stored}}, false, t.format->dtype},
                                       {"ids", {{chunk_, "M"}}, false, LATHE_DTYPE_I32}};
  embed_ = std::make_unique<Kernel>(context_, "embed", inputs, [&](Graph& g) {
    int32_t y =
        blocks ? g.node("quantized_gather", {0, 1}, {text("format", t.format->lathe)}) : g.node("gather", {0, 1});
    if (!blocks && t.format->dtype != LATHE_DTYPE_F32) y = g.node("cast", {y}, {text("to", "f32")});
    return g.finish({arch_.embedding_scale == 1 ? y : g.node("scale", {y}, {real("value", arch_.embedding_scale)})});
  });
}

void Decoder::make_kernels() {
  const std::vector<Size> rows = {{chunk_, "M"}, {arch_.hidden}};
  const std::vector<lathe_attr> epsilon = {real("epsilon", arch_.epsilon)};
  const Operand scale = {"scale", {{arch_.hidden}}, true}, own = {"own", {{arch_.hidden}}, true};
  norm_ = std::make_unique<Kernel>(context_, "norm", std::vector<Operand>{{"x", rows}, scale},
                                   [&](Graph& g) { return g.finish({g.node("rmsnorm", {0, 1}, epsilon)}); });
  std::vector<Operand> inputs = {{"a", rows}, {"b", rows}, scale};
  if (arch_.post_norms) inputs.push_back(own);
  add_ = std::make_unique<Kernel>(context_, "add and norm", inputs, [&](Graph& g) {
    const int32_t sum = g.node("add", {0, arch_.post_norms ? g.node("rmsnorm", {1, 3}, epsilon) : 1});
    return g.finish({sum, g.node("rmsnorm", {sum, 2}, epsilon)});
  });
  const std::vector<Size> inner = {{chunk_, "M"}, {arch_.inner}};
  gated_ =
      std::make_unique<Kernel>(context_, "gated", std::vector<Operand>{{"gate", inner}, {"up", inner}}, [&](Graph& g) {
        std::vector<lathe_attr> form;
        if (arch_.gate == std::string("gelu")) form.push_back(text("approximate", "tanh"));
        return g.finish({g.node("mul", {g.node(arch_.gate, {0}, form), 1})});
      });
  const std::vector<Operand> logits = {{"logits", {{1}, {arch_.vocabulary}}}};
  first_choice_ = std::make_unique<Kernel>(context_, "first choice", logits, [](Graph& g) {
    return g.finish({g.node("argmax", {0}, {text("to", "i32")})});
  });
}

void Decoder::apply(const Linear& l, int64_t rows, const float* x, float* y) {
  const Argument input{x, {rows, l.in}}, result{y, {rows, l.out}};
  Argument weight = l.plain;
  if (l.weight.layout_id != 0) {
    weight.data = l.weight.data;
    weight.layout_id = l.weight.layout_id;
  }
  if (l.bias != nullptr) {
    l.kernel->run({input, weight, {l.bias.get(), {l.out}}, result});
  } else {
    l.kernel->run({input, weight, result});
  }
}

void Decoder::add_to_hidden(int64_t rows, const Floats& own_norm, const Floats& next_norm) {
  const std::vector<int64_t> shape = {rows, arch_.hidden}, width = {arch_.hidden};
  const Argument a{hidden_.get(), shape}, b{y_.get(), shape}, scale{next_norm.get(), width}, sum{sum_.get(), shape},
      normed{x_.get(), shape};
  if (own_norm == nullptr) {
    add_->run({a, b, scale, sum, normed});
  } else {
    add_->run({a, b, scale, {own_norm.get(), width}, sum, normed});
  }
  hidden_.swap(sum_);
}

void Decoder::keep_last(int64_t rows, int64_t wanted) {
  const int64_t gone = rows - wanted;
  if (gone == 0) return;
  for (const Floats* f : {&x_, &hidden_}) {
    float* all = f->get();
    std::copy(all + gone * arch_.hidden, all + rows * arch_.hidden, all);
  }
  positions_.erase(positions_.begin(), positions_.begin() + gone);
}

void Decoder::layer(const Layer& l, int64_t index, int64_t rows, int64_t wanted) {
  const int64_t held = past_[0] + rows;
  apply(l.k, rows, x_.get(), k_.get());
  apply(l.v, rows, x_.get(), v_.get());
  append_heads(l, index, rows, k_.get(), v_.get());
  keep_last(rows, wanted);
  if (wanted == 0) return;
  apply(l.q, wanted, x_.get(), q_.get());
  turn(l, index, wanted, q_.get(), turned_.get());
  attention(index, wanted, held, turned_.get(), q_.get());
  apply(l.o, wanted, q_.get(), y_.get());
  add_to_hidden(wanted, l.post_attention_norm, l.inner_norm);
  apply(l.gate, wanted, x_.get(), gate_.get());
  apply(l.up, wanted, x_.get(), up_.get());
  const std::vector<int64_t> inner = {wanted, arch_.inner};
  gated_->run({{gate_.get(), inner}, {up_.get(), inner}, {inner_.get(), inner}});
  apply(l.down, wanted, inner_.get(), y_.get());
  const bool last = index + 1 == arch_.layers;
  add_to_hidden(wanted, l.post_inner_norm, last ? output_norm_ : layers_[count(index + 1, 1)].attention_norm);
}

const float* Decoder::chunk(const int32_t* ids, int64_t rows, int64_t wanted) {
  const std::vector<int64_t> shape = {rows, arch_.hidden};
  const Floats& first = layers_[0].attention_norm;
  embed_->run({embedding_, {ids, {rows}, 0, LATHE_DTYPE_I32}, {hidden_.get(), shape}});
  norm_->run({{hidden_.get(), shape}, {first.get(), {arch_.hidden}}, {x_.get(), shape}});
  for (int64_t i = 0; i < arch_.layers; ++i)
    layer(layers_[count(i, 1)], i, rows, i + 1 == arch_.layers ? wanted : rows);
  return x_.get();
}

int32_t Decoder::first_choice(const std::vector<float>& logits) {
  int32_t id = 0;
  first_choice_->run({{logits.data(), {1, arch_.vocabulary}}, {&id, {1}, 0, LATHE_DTYPE_I32}});
  return id;
}

void Decoder::check_ids(const std::vector<int32_t>& ids, int64_t past) const {
  const auto n = static_cast<int64_t>(ids.size());
  for (const int32_t id : ids) {
    if (id < 0 || id >= arch_.vocabulary)
      throw Problem("id " + std::to_string(id) + ", expected 0 to " + std::to_string(arch_.vocabulary - 1));
  }
  if (n == 0 || past + n > capacity_) {
    throw Problem(std::to_string(n) + " ids after " + std::to_string(past) + ", expected 1 or more, and at most " +
                  std::to_string(capacity_) + " in all");
  }
}

void Decoder::append(const std::vector<int32_t>& ids, bool every, std::vector<float>& logits) {
  const auto n = static_cast<int64_t>(ids.size());
  check_ids(ids, past_[0]);
  logits.resize(count(every ? n : 1, arch_.vocabulary));
  for (int64_t from = 0; from < n; from += chunk_) {
    const int64_t rows = std::min(chunk_, n - from), wanted = every ? rows : from + rows == n ? 1 : 0;
    positions_.clear();
    cached_.clear();
    for (int64_t t = 0; t < rows; ++t) place(0, past_[0] + t);
    const float* normed = chunk(ids.data() + from, rows, wanted);
    past_[0] += rows;
    if (wanted > 0) apply(head_, wanted, normed, logits.data() + (every ? from * arch_.vocabulary : 0));
  }
}

}  // namespace lathe::decoder
