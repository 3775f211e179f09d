// Metadata to sizes: see architecture.h.
#include "bench/decoder_loop/architecture.h"

#include <cmath>

namespace lathe::decoder {

Architecture architecture_of(const GgufFile& file) {
  const std::string name = file.text("general.architecture");
  if (name != "gemma3" && name != "qwen2") file.fail("general.architecture", "expected gemma3 or qwen2, found " + name);
  const bool gemma = name == "gemma3";
  const auto size = [&](const char* key, uint64_t most) {
    return static_cast<int64_t>(file.integer(name + "." + key, 1, most));
  };
  Architecture a{};
  a.layers = size("block_count", 1024);
  a.hidden = size("embedding_length", 1 << 20);
  a.inner = size("feed_forward_length", 1 << 20);
  a.heads = size("attention.head_count", 1024);
  a.groups = size("attention.head_count_kv", 1024);
  if (a.heads % a.groups != 0) {
    file.fail(name + ".attention.head_count",
              std::to_string(a.heads) + ", expected a multiple of head_count_kv, " + std::to_string(a.groups));
  }
  a.head_size = file.has(name + ".attention.key_length") ? size("attention.key_length", 4096) : a.hidden / a.heads;
  const int64_t values =
      file.has(name + ".attention.value_length") ? size("attention.value_length", 4096) : a.head_size;
  if (a.head_size % 2 != 0 || values != a.head_size) {
    file.fail(name + ".attention.key_length",
              std::to_string(a.head_size) + ", expected an even number, and value_length the same");
  }
  const GgufTensor* table = file.find("token_embd.weight");
  if (table == nullptr) file.fail("tensor token_embd.weight", "is missing, expected one row for each id");
  file.tensor("token_embd.weight", {static_cast<uint64_t>(a.hidden), table->rows()});
  if (table->rows() > 1 << 22)
    file.fail("tensor token_embd.weight", std::to_string(table->rows()) + " rows, expected at most 2^22");
  a.vocabulary = static_cast<int64_t>(table->rows());
  a.epsilon = file.real(name + ".attention.layer_norm_rms_epsilon");
  if (file.has(name + ".rope.scaling.type") && file.text(name + ".rope.scaling.type") != "none")
    file.fail(name + ".rope.scaling.type", "expected none");
  a.rope_base = file.has(name + ".rope.freq_base") ? file.real(name + ".rope.freq_base") : 10000;
  a.local_rope_base = 10000;  // gemma3's, which its files do not name
  a.embedding_scale = gemma ? std::sqrt(static_cast<double>(a.hidden)) : 1;
  a.window = gemma ? size("attention.sliding_window", 1 << 20) : 0;
  a.global_every = gemma ? 6 : 1;
  a.head_norms = a.post_norms = gemma;
  a.biases = !gemma;
  a.gate = gemma ? "gelu" : "silu";
  return a;
}

}  // namespace lathe::decoder
