// The rows of moves that round, quantise or divide numbers; search/moves/transform_table.cc has the others.
#include "ir/core/kernel.h"
#include "search/moves/transform_rows.h"

namespace lathe::search {
using ir::kBf16Dots, ir::kContract, ir::kExact, ir::kQuantisedActivations, ir::kReassociate;

std::vector<Transform> moves_of_numbers() {
  return {
      {.name = "quantize_activations",
       .args = "scope group=size scale=size [sums=groups|scales] [bytes=signed] as groups",
       .picture = "for k < K: c += x[k] * A(k // G) * f32(I(k))  ->  for kl < K: p = max(p, |x[kl]|); ...;\n"
                  "  for kq < K: q[kq] = i8(x[kq] * 127 / p); for kg < K // G: s = 0; for k < G: s += q * I; "
                  "c += f32(s) * A(kg) * p / 127",
       .numeric = kQuantisedActivations,
       .preconditions = {"the factor to be quantised must be made of inputs that nothing writes, over scopes of plain "
                         "extents"},
       .apply = apply_quantize_activations,
       .propose = propose_quantize_activations},
      {.name = "round_to_bf16",
       .args = "buffer scope",
       .picture = "for j: o += s[j] * f32(v[j])  ->  for j: o += f32(bf16(s[j])) * f32(v[j])",
       .numeric = kBf16Dots,
       .apply = apply_round_to_bf16,
       .propose = propose_round_to_bf16},
      {.name = "round_to_f16",
       .args = "buffer scope",
       .picture = "for j: o += s[j] * f32(v[j])  ->  for j: o += f32(f16(s[j])) * f32(v[j])",
       .numeric = kBf16Dots,
       .apply = apply_round_to_f16,
       .propose = propose_round_to_f16,
       .where = Where::gpu},
      {.name = "narrow_temporary",
       .args = "buffer name scope [type=bf16|f16]",
       .picture = "for i: s[i] = e; for j: f(bf16(s[j]))  ->  for i: s[i] = e; t[i] = bf16(s[i]); for j: f(t[j])   "
                  "(scope i; no s[i] where nothing else reads it; type: of all reads, unrounded)",
       .numeric = kExact,
       .preconditions = {"every read that is rounded must come after the scope, of a cell that it wrote",
                         "nothing may write the buffer after the scope",
                         "what is not rounded must be an integer of 8 bits, assigned once"},
       .apply = apply_narrow_temporary,
       .propose = propose_narrow_temporary},
      {.name = "split_factor",
       .args = "buffer scope as parts,part",
       .picture =
           "for k: c += x * t[k]  ->  for p < 3: s[p] = part p of t in bf16; for k: for p < 3: c += x * f32(s[p, k])",
       .numeric = kReassociate | kContract,
       .preconditions = {"the buffer must be given, or one nest before must make all of it"},
       .apply = apply_split_factor,
       .propose = propose_split_factor,
       .where = Where::gpu},
      {.name = "round_factors",
       .args = "scope",
       .picture = "for k: c += a[k] * t[k]  ->  for k: c += f32(bf16(a[k])) * f32(bf16(t[k]))",
       .numeric = kQuantisedActivations,
       .preconditions = {"the factors must be made of inputs and of temporaries that one nest before makes of inputs"},
       .apply = apply_round_factors,
       .propose = propose_round_factors,
       .where = Where::gpu},
      {.name = "hold_rounded",
       .args = "buffer scope as rounded",
       .picture = "for k: c += x * f32(bf16(t[k]))  ->  for i: h[i] = bf16(t[i]); for k: c += x * f32(h[k])",
       .numeric = kExact,
       .preconditions = {"the buffer must be given, or one nest before must make all of it"},
       .apply = apply_hold_rounded,
       .propose = propose_hold_rounded,
       .where = Where::gpu},
      {.name = "hold_bytes",
       .args = "scope at=scope as bytes",
       .picture = "for g: for m: for k: s += i32(x[m, k]) * f(q[k])  ->  for g: for i: h[i] = u8(f(q[i])); "
                  "for m: for k: s += i32(x[m, k]) * i32(h[k])   (at=g)",
       .numeric = kExact,
       .preconditions = {"the factor must be an integer of 0 to 255", "the factor must be made of inputs"},
       .apply = apply_hold_bytes,
       .propose = propose_hold_bytes},
      {.name = "split_to_bf16",
       .args = "buffer scope sums as part,part,part",
       .picture = "for i: s[i] = e; for j: o += s[j] * f32(v[j])  ->  for i: s[i] = e; p[i] = bf16(s[i]); q[i] = "
                  "bf16(s[i] - f32(p[i])); r[i] = ...\n"
                  "  for j: o += f32(p[j]) * f32(v[j]); o += f32(q[j]) * f32(v[j]); o += f32(r[j]) * f32(v[j])",
       .numeric = kReassociate | kContract,
       .preconditions = {"every factor must come after the scope, of a cell that it wrote",
                         "nothing may write the buffer after the scope"},
       .apply = apply_split_to_bf16,
       .propose = propose_split_to_bf16,
       .where = Where::gpu},
  };
}

}  // namespace lathe::search
