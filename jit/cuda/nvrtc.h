// NVRTC, NVIDIA's compiler as a library, opened when the first kernel is compiled and never closed. Nothing of it is
// needed to build, to link or to serve what is stored. Thread-safe: it compiles in parallel.
#pragma once
#include <memory>
#include <string>

#include "ir/base/gpu_target.h"
#include "ir/base/status.h"
#include "jit/cuda/cubin.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

struct CompiledKernel {
  std::string cubin;
  CubinInfo info;
  std::string log;       // without lines of no interest
  std::string compiler;  // "nvrtc 12.9"
};

class Nvrtc {
 public:
  // path: a library to open, or empty: the one that is loaded already, else where it is customary. UNSUPPORTED with
  // every reason: there is none, or it is older than 12.3.
  static ir::Result<std::shared_ptr<const Nvrtc>> open(const std::string& path);

  // text: of cuda_text(); kernel: the name of its entry. INTERNAL: it does not compile. UNSUPPORTED: it does, and what
  // came out spills, has a stack frame, or was warned of.
  ir::Result<CompiledKernel> compile(const std::string& text, const std::string& kernel,
                                     const ir::GpuTarget& target) const;
  // The same of a program, with as many blocks at once as it wants, or else one.
  ir::Result<CompiledKernel> compile(const DeviceProgram& program, const std::string& kernel,
                                     const ir::GpuTarget& target) const;
  const std::string& version() const { return version_; }  // "nvrtc 12.9"

 private:
  struct Table;
  explicit Nvrtc(std::shared_ptr<const Table> table) : table_(std::move(table)) {}
  std::shared_ptr<const Table> table_;
  std::string version_;
};

// Options that the code depends on, in a line: part of the identity of what is stored.
std::string nvrtc_options();

// Why what the compiler made may not serve; empty: it may.
std::string fault_of(const CubinInfo& info, const std::string& log);

}  // namespace lathe::jit
