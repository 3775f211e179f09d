// Random index expressions over two symbols and three iterators, with values for them; shared by the tests of simplify,
// bounds and dependence. Divisors are positive constants, or the symbols.
#pragma once
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ir/analysis/analysis.h"

namespace lathe::ir {

using Env = SymbolValues;

class RandomIndex {
 public:
  explicit RandomIndex(uint64_t seed) : rng_(seed) {
    ranges_.set("M", {1, 40});
    ranges_.set("N", {16, 64}, 16);
    scopes_.push_back(make_scope("i", ceildiv(symbol("M"), 8), {}));
    scopes_.push_back(make_scope("j", min(8, symbol("M") - 8 * iter("i")), {}));
    scopes_.push_back(make_scope("k", floordiv(symbol("N"), 4), {}));
    for (const Stmt& s : scopes_) ranges_.enter(s);
  }
  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng_); }
  const Ranges& ranges() const { return ranges_; }

  Expr leaf() {
    switch (pick(0, 6)) {
      case 0:
        return symbol("M");
      case 1:
        return symbol("N");
      case 2:
        return iter("i");
      case 3:
        return iter("j");
      case 4:
        return iter("k");
      default:
        return Expr(pick(-20, 40));
    }
  }
  Expr divisor() {
    static constexpr int kSizes[] = {1, 2, 3, 4, 8, 16, 32};
    if (pick(0, 9) == 0) return symbol(pick(0, 1) ? "M" : "N");
    return Expr(kSizes[pick(0, 6)]);
  }
  Expr index(int depth) {
    if (depth == 0) return leaf();
    switch (pick(0, 11)) {
      case 0:
      case 1:
      case 2:
        return index(depth - 1) + index(depth - 1);
      case 3:
        return index(depth - 1) - index(depth - 1);
      case 4:
      case 5:
        return divisor() * index(depth - 1);
      case 6:
        return floordiv(index(depth - 1), divisor());
      case 7:
        return mod(index(depth - 1), divisor());
      case 8:
        return ceildiv(index(depth - 1), divisor());
      case 9:
        return min(index(depth - 1), index(depth - 1));
      case 10:
        return max(index(depth - 1), index(depth - 1));
      default:
        return -index(depth - 1);
    }
  }
  Env values() {
    const int m = pick(1, 40), n = 16 * pick(1, 4);
    Env env = {{"M", m}, {"N", n}};
    for (const Stmt& s : scopes_) {
      const int64_t extent = *evaluate(s.extent, env);
      const int shape = pick(0, 3);  // the ends matter most
      env.emplace_back(s.iter, shape == 0 ? 0 : shape == 1 ? extent - 1 : pick(0, static_cast<int>(extent) - 1));
    }
    return env;
  }

 private:
  std::mt19937_64 rng_;
  Ranges ranges_;
  std::vector<Stmt> scopes_;
};

}  // namespace lathe::ir
