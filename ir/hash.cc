// Structural hash and equivalence of Kernels, content hashes of bytes: see analysis.h. Both structural functions go through one
// canonical text: the printed form after every name but roles, family and intrinsics is replaced by a number.
#include <sodium.h>
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "ir/analysis.h"
#include "ir/names.h"
#include "ir/text_form.h"

namespace lathe::ir {

namespace {

class Canonicaliser {
 public:
  explicit Canonicaliser(const Kernel& kernel) : kernel_(kernel) {}

  // The kernel's own name is dropped; symbols and temporaries come in order of first use, parameters keep theirs.
  Kernel run() {
    for (const Buffer& b : kernel_.buffers) {
      if (is_param(b.place)) note_buffer(b.name);
    }
    for_each_stmt(kernel_.body, [&](const Stmt& s) { note_stmt(s); });
    for (const Buffer& b : kernel_.buffers) note_buffer(b.name);
    for (const Symbol& s : kernel_.symbols) note(symbols_, s.name, "s");

    Kernel out = kernel_;
    out.name = "k";
    for (Buffer& b : out.buffers) {
      b.name = renamed(buffers_, b.name);
      for (Expr& e : b.dims) e = rename(e);
      for (Expr& e : b.strides) e = rename(e);
    }
    for (Symbol& s : out.symbols) s.name = renamed(symbols_, s.name);
    sort_by_first_use(out.buffers, kernel_.buffers, buffers_);
    sort_by_first_use(out.symbols, kernel_.symbols, symbols_);
    for_each_stmt(out.body, [&](Stmt& s) {
      if (!s.iter.empty()) s.iter = renamed(iters_, s.iter);
      if (!s.target.empty()) s.target = renamed(buffers_, s.target);
      s.extent = rename(s.extent);
      for (Expr& e : s.index) e = rename(e);
      s.value = rename(s.value);
    });
    return out;
  }

 private:
  using Names = std::map<std::string, std::pair<size_t, std::string>>;  // old name: order of first use, new name

  static bool note(Names& names, const std::string& name, const char* prefix) {
    const size_t n = names.size();
    return names.try_emplace(name, n, prefix + std::to_string(n)).second;
  }
  static const std::string& renamed(const Names& names, const std::string& name) {
    const auto found = names.find(name);
    return found == names.end() ? name : found->second.second;
  }
  void note_expr(const Expr& e) {
    for_each_node(e, [&](const ExprNode& n) {
      if (n.op == Op::k_symbol) note(symbols_, n.name, "s");
      if (n.op == Op::k_iter) note(iters_, n.name, "i");
      if (n.op == Op::k_load) note_buffer(n.name);
    });
  }
  void note_buffer(const std::string& name) {
    if (!note(buffers_, name, "b")) return;
    const Buffer* b = kernel_.find_buffer(name);
    if (!b) return;
    for (const Expr& e : b->dims) note_expr(e);
    for (const Expr& e : b->strides) note_expr(e);
  }
  void note_stmt(const Stmt& s) {
    note_expr(s.extent);
    if (s.kind == Stmt::Kind::scope) note(iters_, s.iter, "i");
    if (!s.target.empty()) note_buffer(s.target);
    for (const Expr& e : s.index) note_expr(e);
    note_expr(s.value);
  }
  Expr rename(const Expr& e) const {
    return rewrite(e, [&](const Expr& node) -> Expr {
      const Names* names = node->op == Op::k_symbol ? &symbols_
                           : node->op == Op::k_iter ? &iters_
                           : node->op == Op::k_load ? &buffers_
                                                    : nullptr;
      if (!names) return {};
      auto copy = std::make_shared<ExprNode>(*node);
      copy->name = renamed(*names, node->name);
      return Expr(std::shared_ptr<const ExprNode>(std::move(copy)));
    });
  }
  template <class T>
  static void sort_by_first_use(std::vector<T>& renamed_list, const std::vector<T>& original, const Names& names) {
    std::vector<std::pair<size_t, size_t>> order;  // first use, position
    for (size_t i = 0; i < original.size(); ++i) order.emplace_back(names.at(original[i].name).first, i);
    std::stable_sort(order.begin(), order.end());
    std::vector<T> sorted;
    for (const auto& [use, i] : order) sorted.push_back(std::move(renamed_list[i]));
    renamed_list = std::move(sorted);
  }

  const Kernel& kernel_;
  Names buffers_, symbols_, iters_;
};

std::string canonical_text(const Kernel& kernel) { return print(Canonicaliser(kernel).run()); }

}  // namespace

uint64_t structural_hash(const Kernel& kernel) { return hash_text(canonical_text(kernel)); }

bool equivalent(const Kernel& a, const Kernel& b) { return canonical_text(a) == canonical_text(b); }

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed) { return XXH3_64bits_withSeed(data, size, seed); }

std::string content_hash(const void* data, size_t size) {
  unsigned char digest[32];
  static_assert(sizeof digest == crypto_generichash_BYTES);
  crypto_generichash(digest, sizeof digest, static_cast<const unsigned char*>(data), size, nullptr, 0);
  char hex[2 * sizeof digest + 1];
  sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
  return hex;
}

}  // namespace lathe::ir
