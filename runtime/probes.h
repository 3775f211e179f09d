// What this machine can do at best, right now: multiply-adds from registers, bytes read, bytes copied. A share of a ceiling is the ratio of a
// kernel's time to such a probe of the same round. Nothing is allocated; single-threaded, like the caller.
#pragma once
#include <cstddef>
#include <cstdint>

#include "ir/target.h"

namespace lathe::runtime {

// Runs `steps` rounds of independent f32 multiply-adds in registers at the target's level; returns the operations done (2 per
// multiply-add and lane).
double probe_fma(const ir::Target& target, int64_t steps);
// Reads every byte once, forward, with several streams of wide loads. bytes: a multiple of 64 is read, the rest is left.
void probe_read(const ir::Target& target, const void* data, size_t bytes);
// Copies forward with wide loads and stores.
void probe_copy(const ir::Target& target, void* out, const void* in, size_t bytes);

}  // namespace lathe::runtime
