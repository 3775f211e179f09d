// Kernels of attention, as ops/families/attention.cc writes them, for the tests of GPUs.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace lathe::test {

struct AttentionText {
  const char* type = "bf16";
  int64_t heads = 8, kept = 2, depth = 128, columns = 128;
  bool causal = true;
  int64_t window = 0;  // 0: none
  bool lengths = false, pages = false;
  enum class Mask {
    none,
    queries,
    heads,
    keys,
    narrow_keys
  } mask = Mask::none;  // what has numbers of its own, beside each key
};

// S queries and T keys of each of B sequences; in pages there are 16 of each of N.
inline std::string attention_text(const AttentionText& a) {
  const bool lengths = a.lengths || a.pages;
  const std::string held = lengths ? "i64(lengths[t0])" : "T", room = a.pages ? "16*N" : "T", t = a.type;
  const std::string end = a.causal ? fmt::format("i - S + {} + 1", held) : held;
  const std::string first = a.window > 0 ? fmt::format("max(0, {} - {})", end, a.window) : "0";
  const std::string seen = a.window > 0 ? fmt::format("{} - {}", end, first) : end;
  const std::string of = a.kept == a.heads ? "t1" : a.kept == 1 ? "0" : fmt::format("t1 // {}", a.heads / a.kept);
  const auto key = [&](const char* j) { return a.window > 0 ? fmt::format("{} + {}", j, first) : std::string(j); };
  const std::string rows = a.pages ? fmt::format("P, {}, 16", a.kept) : fmt::format("B, {}, T", a.kept);
  std::string out =
      fmt::format("kernel attention(q: {0}[B, {1}, S, {2}] in, k: {0}[{3}, {2}] in, v: {0}[{3}, {4}] in, ", t, a.heads,
                  a.depth, rows, a.columns);
  if (lengths) out += fmt::format("lengths: i32[B] in values 0..{}, ", room);
  if (a.pages) out += "pages: i64[B, N] in values 0..P - 1, ";
  using Mask = AttentionText::Mask;
  const std::string masks = a.mask == Mask::queries ? fmt::format("f32[S, {}]", room)
                            : a.mask == Mask::heads
                                ? fmt::format("{}[B, {}, S, {}]", t, a.heads, room)
                                : fmt::format("{}[B, 1, 1, {}]", a.mask == Mask::keys ? "f32" : t, room);
  if (a.mask != Mask::none) out += fmt::format("mask: {} in, ", masks);
  out +=
      fmt::format("y: {}[B, {}, S, {}] out) family attention where B in 0..64, S in 0..4096, ", t, a.heads, a.columns);
  out += a.pages ? "P in 0..4096, N in 0..512\n" : "T in 0..8192\n";
  for (const char* name : {"m", "a", "r"}) out += fmt::format("  {}: f32[B, {}, S] heap\n", name, a.heads);
  for (const char* name : {"c", "s"}) out += fmt::format("  {}: f32[B, {}, S, {}] heap\n", name, a.heads, room);
  out += fmt::format("  o: f32[B, {}, S, {}] heap\n", a.heads, a.columns);
  if (a.pages) {
    out += fmt::format("  kt: {0}[B, {1}, 16*N, {2}] heap\n  vt: {0}[B, {1}, 16*N, {3}] heap\n", t, a.kept, a.depth,
                       a.columns);
  }
  out += "  for t0 < B [batch]:\n";
  for (const char* x : {"k", "v"}) {
    if (!a.pages) break;
    const int64_t line = *x == 'k' ? a.depth : a.columns;
    const std::string head = a.kept == 1 ? "0" : fmt::format("{}_g", x);
    std::string space = "    ";
    if (a.kept != 1) {
      out += fmt::format("    for {}_g < {} [copy_heads]:\n", x, a.kept);
      space += "  ";
    }
    out += fmt::format("{0}for {1}_j < {2} [copy]:\n{0}  for {1}_d < {3} [copy_depth]:\n", space, x, held, line);
    out += fmt::format("{0}    {1}t[t0, {2}, {1}_j, {1}_d] = {1}[pages[t0, {1}_j // 16], {2}, {1}_j % 16, {1}_d]\n",
                       space, x, head);
  }
  const std::string kept_k = a.pages ? "kt" : "k", kept_v = a.pages ? "vt" : "v";
  const auto widened = [&](const std::string& load) { return t == "f32" ? load : fmt::format("f32({})", load); };
  out +=
      fmt::format("    for t1 < {} [batch]:\n      for i < S [row]:\n        m[t0, t1, i] = -3.4028235e+38\n", a.heads);
  out += fmt::format("        for j < {} [key]:\n          c[t0, t1, i, {}] = 0.0\n          for d < {} [k]:\n", seen,
                     key("j"), a.depth);
  out += fmt::format("            c[t0, t1, i, {}] += {} * {}\n", key("j"), widened("q[t0, t1, i, d]"),
                     widened(fmt::format("{}[t0, {}, {}, d]", kept_k, of, key("j"))));
  const std::string added = a.mask == Mask::none      ? ""
                            : a.mask == Mask::queries ? fmt::format(" + mask[i, {}]", key("j"))
                            : a.mask == Mask::heads   ? " + " + widened(fmt::format("mask[t0, t1, i, {}]", key("j")))
                            : a.mask == Mask::keys    ? fmt::format(" + mask[t0, 0, 0, {}]", key("j"))
                                                      : " + " + widened(fmt::format("mask[t0, 0, 0, {}]", key("j")));
  out += fmt::format("          s[t0, t1, i, {0}] = c[t0, t1, i, {0}] * 0.125{1}\n", key("j"), added);
  out += fmt::format("          m[t0, t1, i] fmax= s[t0, t1, i, {}]\n        a[t0, t1, i] = 0.0\n", key("j"));
  out += fmt::format("        for j1 < {} [key]:\n", seen);
  out += fmt::format("          s[t0, t1, i, {0}] = exp2((s[t0, t1, i, {0}] - m[t0, t1, i]) * 1.442695)\n", key("j1"));
  out += fmt::format("          a[t0, t1, i] += s[t0, t1, i, {}]\n", key("j1"));
  out += "        r[t0, t1, i] = select(a[t0, t1, i] == 0.0, 0.0, 1.0 / a[t0, t1, i])\n";
  out += fmt::format("        for n < {} [n]:\n          o[t0, t1, i, n] = 0.0\n          for j2 < {} [key]:\n",
                     a.columns, seen);
  out += fmt::format("            o[t0, t1, i, n] += s[t0, t1, i, {}] * {}\n", key("j2"),
                     widened(fmt::format("{}[t0, {}, {}, n]", kept_v, of, key("j2"))));
  const std::string result = "o[t0, t1, i, n] * r[t0, t1, i]";
  out += fmt::format("          y[t0, t1, i, n] = {}\n", t == "f32" ? result : fmt::format("{}({})", t, result));
  return out;
}

}  // namespace lathe::test
