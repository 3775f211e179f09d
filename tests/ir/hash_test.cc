// Structural hash and equivalence do not see names and see everything else; content hashes are what other machines compute.
#include <gtest/gtest.h>

#include "ir/analysis.h"
#include "ir/text_form.h"

namespace lathe::ir {
namespace {

Kernel parsed(const std::string& text) {
  Result<Kernel> k = parse_kernel(text);
  EXPECT_TRUE(k.ok()) << k.status().to_string();
  return k.ok() ? *k : Kernel();
}

const char* const kBase =
    "kernel a(x: f32[B, N] in, y: f32[B] out) family row where B in 1..64, N in 1..64\n"
    "  t: f32[B] heap\n  u: f32[B] heap\n"
    "  for b < B [row]:\n    t[b] = 0.0\n    u[b] = 1.0\n    for n < N [col]:\n      t[b] += x[b, n]\n    y[b] = t[b] + u[b]\n";

TEST(StructuralHash, DoesNotSeeNames) {
  const Kernel other = parsed(
      "kernel c(s: f32[Q, P] in, d: f32[Q] out) family row where P in 1..64, Q in 1..64\n"
      "  w: f32[Q] heap\n  v: f32[Q] heap\n"
      "  for n < Q [row]:\n    v[n] = 0.0\n    w[n] = 1.0\n    for b < P [col]:\n      v[n] += s[n, b]\n    d[n] = v[n] + w[n]\n");
  EXPECT_TRUE(equivalent(parsed(kBase), other));
  EXPECT_EQ(structural_hash(parsed(kBase)), structural_hash(other));
}

TEST(StructuralHash, SeesStructure) {
  const std::pair<const char*, const char*> edits[] = {
      {"family row", "family col"}, {"N in 1..64", "N in 1..65"}, {"t[b] + u[b]", "u[b] + t[b]"}, {"[col]", "[k]"},
      {"t: f32[B] heap", "t: f32[B] stack"}, {"+= x", "fmax= x"}, {"= 1.0", "= 2.0"}, {"for n < N [col]:", "for n < N [col] @vector:"},
      {"x: f32[B, N] in", "x: f32[B, N] in strides [N, 1]"}, {"x[b, n]", "x[n, b]"}};
  const Kernel base = parsed(kBase);
  for (const auto& [from, to] : edits) {
    std::string text = kBase;
    text.replace(text.find(from), std::string(from).size(), to);
    const Kernel edited = parsed(text);
    EXPECT_FALSE(equivalent(base, edited)) << from << " -> " << to;
    EXPECT_NE(structural_hash(base), structural_hash(edited)) << from << " -> " << to;
  }
}

TEST(ContentHash, KnownValues) {
  EXPECT_EQ(hash_text(""), 0x2d06800538d394c2u);  // XXH3 64 of nothing
  EXPECT_EQ(content_hash("", 0), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_NE(hash_text("a", 1), hash_text("a", 2));
}

}  // namespace
}  // namespace lathe::ir
