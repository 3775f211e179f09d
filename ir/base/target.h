// What a kernel is generated for. Emitters ask only the Target, never the machine; jit/host/host_cpu fills one in for
// the host, cap() lowers it for tests and for LATHE_MAX_ISA. A plain value.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lathe::ir {

// portable generates no code: leaf programs are executed by C++.
enum class IsaLevel : uint8_t { portable, avx2, avx512, amx };
const char* isa_name(IsaLevel level);  // "portable", "avx2", ...
std::optional<IsaLevel> parse_isa(std::string_view name);

struct Target {
  IsaLevel level = IsaLevel::portable;
  int lanes = 8;  // f32 lanes of a vector register
  int vector_registers = 16;
  int mask_registers = 0;  // AVX-512: 7 usable
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 16 << 20;
  int l1_ways = 8;
  int cores = 1;
  bool bf16 = false, vnni = false;  // separate feature bits

  // The same machine with at most this level.
  Target cap(IsaLevel max) const;
  std::string to_string() const;  // "avx512 lanes 16 registers 32 ..."
};

}  // namespace lathe::ir
