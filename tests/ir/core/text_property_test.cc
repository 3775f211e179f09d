// Properties of the text form over random kernels and random bytes: printing and parsing are inverse, no text crashes
// parser or verifier. LATHE_SEED repeats a run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "ir/analysis/analysis.h"
#include "ir/analysis/verifier.h"
#include "ir/base/options.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"
#include "ir/meaning/interpreter.h"
#include "tests/common/random_kernel.h"

namespace lathe::ir {
namespace {

uint64_t seed() {
  const std::optional<std::string> text = process_environment("LATHE_SEED");
  return text ? std::strtoull(text->c_str(), nullptr, 10) : 1;
}

bool same(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Expr& x, const Expr& y) { return equal(x, y); });
}
bool same(const std::vector<Stmt>& a, const std::vector<Stmt>& b);
bool same(const Stmt& a, const Stmt& b) {
  return a.kind == b.kind && a.iter == b.iter && equal(a.extent, b.extent) && a.mark == b.mark && a.role == b.role &&
         a.intrinsic == b.intrinsic && same(a.body, b.body) && a.target == b.target && same(a.index, b.index) &&
         a.op == b.op && equal(a.value, b.value) && a.distance == b.distance && a.lines == b.lines;
}
bool same(const std::vector<Stmt>& a, const std::vector<Stmt>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Stmt& x, const Stmt& y) { return same(x, y); });
}
bool same(const Buffer& a, const Buffer& b) {
  const auto layout = [](const LayoutDim& x, const LayoutDim& y) {
    return x.dim == y.dim && x.part == y.part && x.tile == y.tile;
  };
  return a.name == b.name && a.type == b.type && same(a.dims, b.dims) && a.place == b.place && a.padding == b.padding &&
         a.swizzle == b.swizzle && same(a.strides, b.strides) &&
         std::equal(a.layout.begin(), a.layout.end(), b.layout.begin(), b.layout.end(), layout);
}
bool same(const Kernel& a, const Kernel& b) {
  const auto symbols = [](const Symbol& x, const Symbol& y) {
    return x.name == y.name && x.min == y.min && x.max == y.max && x.multiple_of == y.multiple_of;
  };
  return a.name == b.name && a.family == b.family && a.numeric == b.numeric && same(a.body, b.body) &&
         std::equal(a.symbols.begin(), a.symbols.end(), b.symbols.begin(), b.symbols.end(), symbols) &&
         std::equal(a.buffers.begin(), a.buffers.end(), b.buffers.begin(), b.buffers.end(),
                    [](const Buffer& x, const Buffer& y) { return same(x, y); });
}

// Adds what the generator does not make: layouts, padding, strides, marks, prefetches.
void decorate(Kernel& k, std::mt19937_64& rng) {
  for (Buffer& b : k.buffers) {
    const size_t rank = b.dims.size();
    switch (rng() % 4) {
      case 0:
        for (size_t d = rank; d-- > 0;) {
          if (rng() % 2) {
            b.layout.push_back({static_cast<int>(d), LayoutDim::Part::whole, 0});
          } else {
            b.layout.insert(b.layout.begin(), {static_cast<int>(d), LayoutDim::Part::outer, 4});
            b.layout.push_back({static_cast<int>(d), LayoutDim::Part::inner, 4});
          }
        }
        break;
      case 1:
        b.padding.assign(rank, static_cast<int64_t>(rng() % 9));
        break;
      case 2:
        if (b.place == Place::in) b.strides.assign(rank, rng() % 2 ? Expr() : Expr(1));
        break;
      default:
        break;
    }
  }
  for_each_stmt(k.body, [&](Stmt& s) {
    if (s.kind != Stmt::Kind::scope) return;
    s.mark = static_cast<Mark>(rng() % 5);
    if (s.mark == Mark::tensor) s.intrinsic = "mma";
    if (rng() % 4 != 0) return;
    Stmt p;
    p.kind = Stmt::Kind::prefetch;
    p.target = k.buffers[0].name;
    p.distance = rng() % 2 ? 4096 : 0;
    p.iter = rng() % 2 ? s.iter : "";
    p.lines = static_cast<int>(rng() % 9);
    p.cache = rng() % 2 ? 2 : 1;
    s.body.insert(s.body.begin(), p);
  });
  k.numeric = static_cast<uint32_t>(rng() % 64);
}

TEST(TextProperty, PrintAndParseAreInverse) {
  for (uint64_t i = 0; i < 400; ++i) {
    std::mt19937_64 rng(seed() * 100003 + i);
    Kernel k = test::random_kernel(rng, {.mixed_types = i % 2 == 1});
    const Status plain = verify(k);
    ASSERT_TRUE(plain.ok()) << "seed " << seed() << " kernel " << i << "\n" << plain.to_string() << "\n" << print(k);
    if (i % 3 != 0) decorate(k, rng);
    const Status status = verify(k);
    ASSERT_TRUE(status.ok()) << "seed " << seed() << " kernel " << i << "\n" << status.to_string() << "\n" << print(k);
    const std::string text = print(k);
    Result<Kernel> back = parse_kernel(text);
    ASSERT_TRUE(back.ok()) << "LATHE_SEED=" << seed() << " kernel " << i << "\n"
                           << back.status().to_string() << "\n"
                           << text;
    ASSERT_TRUE(same(k, *back)) << "LATHE_SEED=" << seed() << " kernel " << i << "\n"
                                << text << "\nparses to\n"
                                << print(*back);
    ASSERT_EQ(print(*back), text);
  }
}

// What verifies runs: the interpreter refuses accesses outside their buffer.
TEST(TextProperty, RandomKernelsRun) {
  for (uint64_t i = 0; i < 200; ++i) {
    std::mt19937_64 rng(seed() * 31 + i);
    const Kernel k = test::random_kernel(rng, {.mixed_types = i % 2 == 1});
    SymbolValues symbols;
    for (const Symbol& s : k.symbols) {
      symbols[s.name] = s.min + static_cast<int64_t>(rng() % static_cast<uint64_t>(s.max - s.min + 1)) / s.multiple_of *
                                    s.multiple_of;
    }
    std::map<std::string, Tensor> tensors;
    for (const Buffer& b : k.buffers) {
      if (!is_input(b.place)) continue;
      Tensor t;
      t.dims = *evaluate_dims(b.dims, symbols);
      size_t count = 1;
      for (const int64_t d : t.dims) count *= static_cast<size_t>(d);
      t.data.assign(count, 0.5);
      tensors[b.name] = t;
    }
    const Status status = interpret(k, symbols, tensors);
    ASSERT_TRUE(status.ok()) << "LATHE_SEED=" << seed() << " kernel " << i << "\n"
                             << status.to_string() << "\n"
                             << print(k);
  }
}

TEST(TextFuzz, AnyBytesParseOrFail) {
  std::mt19937_64 rng(seed());
  int parsed = 0;
  for (int i = 0; i < 4000; ++i) {
    std::mt19937_64 kernel_rng(rng() % 50);
    std::string text = print(test::random_kernel(kernel_rng, {.mixed_types = true}));
    const int edits = 1 + static_cast<int>(rng() % 4);
    for (int e = 0; e < edits; ++e) {
      const size_t at = rng() % text.size(), other = rng() % text.size();
      switch (rng() % 5) {
        case 0:
          text[at] = static_cast<char>(rng());
          break;
        case 1:
          text.erase(at, 1 + rng() % 5);
          break;
        case 2:
          text.insert(at, text.substr(other, 1 + rng() % 20));
          break;
        case 3:
          text.insert(at, 1, "()[]<>=+-*/%.,:;@? \n0987654321e"[rng() % 31]);
          break;
        default:
          text[at] = text[other];
          break;
      }
      if (text.empty()) text = "k";
    }
    Result<Kernel> k = parse_kernel(text);
    if (!k.ok()) {
      EXPECT_EQ(k.status().code(), Code::kINVALID);
      EXPECT_EQ(k.status().message().substr(0, 5), "line ") << k.status().message();
      continue;
    }
    ++parsed;
    (void)verify(*k);
    Result<Kernel> again = parse_kernel(print(*k));
    EXPECT_TRUE(again.ok() || !verify(*k).ok()) << print(*k);
  }
  EXPECT_GT(parsed, 50);
}

}  // namespace
}  // namespace lathe::ir
