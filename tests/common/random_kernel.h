// Random small kernels that verify: symbols, constants, broadcasts, elementwise stages and reductions, each stage a
// nest of its own or all of them under one shared outer scope, some scopes already tiled. For property tests of every
// floor. The same generator state gives the same kernel.
#pragma once
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/common/kernel_builder.h"

namespace lathe::test {

struct RandomKernelOptions {
  int max_stages = 4;
  bool math = true;          // exp, tanh, select, ...: off for tests that compare sums in another order
  bool mixed_types = false;  // f64 and bf16 buffers with casts
  bool tiles = true;         // some scopes come as ceildiv / min pairs
  bool float_max = true;     // fmax= reductions
};

class RandomKernel {
 public:
  explicit RandomKernel(std::mt19937_64& rng, RandomKernelOptions options = {})
      : rng_(rng), options_(options), b_("random", "row") {}

  ir::Kernel make() {
    make_dims();
    const int inputs = 1 + below(3);
    for (int i = 0; i < inputs; ++i) {
      std::vector<int> dims = some_dims();
      const ir::DType type = some_type();
      readable_.push_back({i == 2 ? b_.constant("w" + std::to_string(i), type, sizes(dims))
                                  : b_.in("x" + std::to_string(i), type, sizes(dims)),
                           dims});
    }
    const int stages = 1 + below(options_.max_stages);
    const bool shared = below(2) == 0;
    const auto all = [&] {
      for (int s = 0; s < stages; ++s) stage(s, s + 1 == stages, shared);
    };
    if (!shared) {
      all();
    } else {
      b_.loop("z", dims_[0], "row", [&](const ir::Expr& z) {
        at_ = {{0, z}};
        all();
      });
    }
    return b_.build();
  }

 private:
  struct Source {
    ir::BufferRef ref;
    std::vector<int> dims;
  };
  using Position = std::vector<std::pair<int, ir::Expr>>;  // dimension, index

  int below(int n) { return static_cast<int>(rng_() % static_cast<uint64_t>(n)); }

  void make_dims() {
    const int symbols = 1 + below(2);
    for (int i = 0; i < symbols; ++i) {
      const int multiple = below(3) == 0 ? 4 : 1;
      dims_.push_back(b_.sym(i == 0 ? "N" : "M", below(2) * multiple, 12, multiple));
    }
    dims_.push_back(ir::Expr(1 + below(9)));
    if (below(2) == 0) dims_.push_back(ir::Expr(1 + below(5)));
    std::shuffle(dims_.begin(), dims_.end(), rng_);
  }

  ir::DType some_type() {
    if (!options_.mixed_types) return ir::DType::f32;
    constexpr ir::DType kTypes[] = {ir::DType::f32, ir::DType::f64, ir::DType::bf16};
    return kTypes[below(3)];
  }

  std::vector<int> some_dims() {
    std::vector<int> out;
    for (size_t d = 0; d < dims_.size(); ++d) {
      if (below(3) != 0) out.push_back(static_cast<int>(d));
    }
    std::shuffle(out.begin(), out.end(), rng_);
    return out;
  }
  std::vector<ir::Expr> sizes(const std::vector<int>& dims) const {
    std::vector<ir::Expr> out;
    for (const int d : dims) out.push_back(dims_[static_cast<size_t>(d)]);
    return out;
  }

  // Scopes over the dimensions, some of them tiled, with `body` inside.
  void scopes(std::vector<int> dims, const std::function<void()>& body) {
    if (dims.empty()) return body();
    const int d = dims.back();
    dims.pop_back();
    const ir::Expr& size = dims_[static_cast<size_t>(d)];
    const std::string name = "i" + std::to_string(next_iter_++);
    const std::string role = "d" + std::to_string(d);
    const auto inner = [&](ir::Expr index) {
      at_.emplace_back(d, std::move(index));
      scopes(dims, body);
      at_.pop_back();
    };
    if (!options_.tiles || below(4) != 0) {
      b_.loop(name, size, role, inner);
      return;
    }
    const ir::Expr tile(2 + below(3));
    b_.loop(name + "o", ceildiv(size, tile), role, [&](const ir::Expr& o) {
      b_.loop(name + "i", min(tile, size - tile * o), role, [&](const ir::Expr& i) { inner(tile * o + i); });
    });
  }

  ir::Element element(const Source& s) const {
    std::vector<ir::Expr> index;
    for (const int d : s.dims) {
      const auto found = std::find_if(at_.begin(), at_.end(), [&](const auto& p) { return p.first == d; });
      index.push_back(found->second);
    }
    return s.ref.at(std::move(index));
  }
  bool reachable(const Source& s) const {
    return std::all_of(s.dims.begin(), s.dims.end(), [&](int d) {
      return std::any_of(at_.begin(), at_.end(), [&](const auto& p) { return p.first == d; });
    });
  }

  // An expression of this type over what the open scopes can reach.
  ir::Expr value(ir::DType type, int depth) {
    using ir::Op;
    int kind = below(8) == 0 ? 0 : depth <= 0 ? 3 : 1 + below(7);
    if (kind == 6 && !options_.math) kind = 1;
    switch (kind) {
      case 0:
        return ir::const_float(below(9) * 0.25 - 1.0, type);
      case 1:
        return value(type, depth - 1) + value(type, depth - 1);
      case 2:
        return value(type, depth - 1) * value(type, depth - 1);
      case 3:
      case 4: {
        std::vector<const Source*> candidates;
        for (const Source& s : readable_) {
          if (reachable(s)) candidates.push_back(&s);
        }
        if (candidates.empty()) return ir::const_float(1.0, type);
        // The newest half of the time, so that stages depend on each other.
        const int n = static_cast<int>(candidates.size());
        const ir::Expr e = element(*candidates[static_cast<size_t>(below(2) == 0 ? n - 1 : below(n))]);
        return e->type == type ? e : ir::cast(type, e);
      }
      case 5:
        return value(type, depth - 1) - value(type, depth - 1);
      case 6:
        return select(ir::make(Op::k_lt, {value(type, depth - 1), value(type, depth - 1)}), value(type, depth - 1),
                      value(type, depth - 1));
      default: {
        static constexpr Op kUnary[] = {Op::k_neg, Op::k_abs, Op::k_tanh, Op::k_exp, Op::k_sigmoid};
        return ir::make(kUnary[below(options_.math ? 5 : 2)], {value(type, depth - 1)});
      }
    }
  }

  void stage(int number, bool last, bool shared) {
    std::vector<int> dims = some_dims();
    if (shared) {  // dimension 0 belongs to the outer scope, and every stage writes under it
      dims.erase(std::remove(dims.begin(), dims.end(), 0), dims.end());
      dims.insert(dims.begin(), 0);
    }
    const std::string name = last ? "y" : "t" + std::to_string(number);
    const ir::DType type = some_type();
    const Source out{last ? b_.out(name, type, sizes(dims)) : b_.heap(name, type, sizes(dims)), dims};
    std::vector<int> outer = dims, free;
    if (shared) outer.erase(outer.begin());
    for (size_t d = shared ? 1 : 0; d < dims_.size(); ++d) {
      if (std::find(dims.begin(), dims.end(), static_cast<int>(d)) == dims.end()) free.push_back(static_cast<int>(d));
    }
    std::shuffle(outer.begin(), outer.end(), rng_);
    scopes(outer, [&] {
      if (free.empty() || below(2) == 0) {
        b_.set(element(out), value(type, 3));
        return;
      }
      const bool sum = !options_.float_max || below(2) == 0;
      b_.set(element(out), ir::const_float(sum ? 0.0 : -1e30, type));
      scopes({free[static_cast<size_t>(below(static_cast<int>(free.size())))]}, [&] {
        if (sum) {
          b_.add(element(out), value(type, 2));
        } else {
          b_.fmax(element(out), value(type, 2));
        }
      });
    });
    readable_.push_back(out);
  }

  std::mt19937_64& rng_;
  RandomKernelOptions options_;
  ir::Builder b_;
  std::vector<ir::Expr> dims_;
  std::vector<Source> readable_;
  Position at_;
  int next_iter_ = 0;
};

inline ir::Kernel random_kernel(std::mt19937_64& rng, RandomKernelOptions options = {}) {
  return RandomKernel(rng, options).make();
}

}  // namespace lathe::test
