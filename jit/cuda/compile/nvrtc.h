// NVRTC, NVIDIA's compiler as a library, opened when the first kernel is compiled and never closed. Nothing of it is
// needed to build, to link or to serve what is stored. Thread-safe: it compiles in parallel.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "ir/base/gpu_target.h"
#include "ir/base/status.h"
#include "jit/cuda/compile/compile_log.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

struct CompiledKernel {
  std::string cubin;
  CubinInfo info;
  std::string log;       // without lines of no interest
  std::string compiler;  // "nvrtc 12.9"
};

// How long a compilation may take. NVRTC asks often; one older than 12.9 or so does not ask, and takes its time.
struct CompileLimits {
  int64_t most_ms = 60'000;  // of one compilation, where nothing says when all of them end
  std::chrono::steady_clock::time_point ends = std::chrono::steady_clock::time_point::max();  // of all together
  std::function<bool()> cancelled;  // by any thread; may be empty
};

class Nvrtc {
 public:
  // path: a library to open, or empty: the one that is loaded already, else where it is customary; the first of at most
  // that major, which 0 does not limit, else the first newer one. UNSUPPORTED with every reason: there is none, or none
  // is 12.3 or later.
  static ir::Result<std::shared_ptr<const Nvrtc>> open(const std::string& path, int most_major = 0);

  // text: of cuda_text(); kernel: the name of its entry. INTERNAL: it does not compile. UNSUPPORTED: it does, and what
  // came out may not serve (compile_faults.def). TIMEOUT, CANCELLED: by the limits.
  ir::Result<CompiledKernel> compile(const std::string& text, const std::string& kernel, const ir::GpuTarget& target,
                                     const CompileLimits& limits = {}) const;
  // The same of a program, with as many blocks at once as it wants, or else one. What spills registers is compiled once
  // more, sparing them. UNSUPPORTED as well where instructions of tiles are missing (tile_counts.h).
  ir::Result<CompiledKernel> compile(const DeviceProgram& program, const std::string& kernel,
                                     const ir::GpuTarget& target, const CompileLimits& limits = {}) const;
  const std::string& version() const { return version_; }  // "nvrtc 12.9"
  int major() const { return major_; }
  bool can_cancel() const;
  std::string file() const;  // the library, for a process that finds it in another way

 private:
  enum class Registers : uint8_t { as_usual, spared };
  // *spilled: it is refused because registers did not suffice; may be null.
  ir::Result<CompiledKernel> compile(const std::string& text, const std::string& kernel, const ir::GpuTarget& target,
                                     const CompileLimits& limits, Registers registers, bool* spilled) const;
  struct Table;
  static ir::Result<std::shared_ptr<const Nvrtc>> of_library(void* library);
  explicit Nvrtc(std::shared_ptr<const Table> table) : table_(std::move(table)) {}
  std::shared_ptr<const Table> table_;
  std::string version_;
  int major_ = 0;
};

// Options that the code depends on, in a line: part of the identity of what is stored.
std::string nvrtc_options();
// The major version in "nvrtc 12.9", as records have it; 0: it is none.
int nvrtc_major(std::string_view version);

}  // namespace lathe::jit
