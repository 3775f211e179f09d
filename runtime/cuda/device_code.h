// Code of device leaves: from this process, from the store, or compiled where that is allowed. What is stored is the
// cubin behind a record that says what it is and who made it; a stored one needs no compiler, not even its version.
// Thread-safe: the lock guards tables; two callers compile at once, and of what both made one is kept.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "ir/base/gpu_target.h"
#include "ir/nest.h"
#include "jit/cuda/compile/nvrtc.h"
#include "jit/cuda/device_program.h"
#include "runtime/compile/leaf_cache.h"
#include "runtime/store/store.h"

namespace lathe::runtime {

// A device leaf with its code.
struct DeviceCode {
  std::string key;
  std::string kernel;  // the name of its entry
  int threads = 1;     // of a block
  int cluster = 1;     // blocks that run at once
  int registers = 0;
  int shared = 0;        // bytes of shared memory that a launch asks for
  std::string compiler;  // "nvrtc 12.9"
  std::string cubin;
};

struct DevicePolicy {
  bool compile = false;  // else only what is stored
  std::string driver;    // "12.4": code of a later major is not for it; empty: any
  jit::CompileLimits limits;
  bool behind = false;   // nobody waits for it
  std::string compiler;  // only code of this one, else it is made anew: "nvrtc 12.9"; empty: of any
  uint32_t allowed = 0;  // numeric classes, beside those that all Schedules for GPUs may take
  bool takes_compiler(const std::string& made_by) const { return compiler.empty() || compiler == made_by; }
};

class DeviceCodes {
 public:
  // compiler: the option `nvrtc`. store, stats may be null.
  DeviceCodes(std::string compiler, Store* store, Stats* stats)
      : compiler_path_(std::move(compiler)), store_(store), stats_(stats) {}

  // MISS: it is not stored and may not be compiled. UNSUPPORTED: it cannot be made, or there is no compiler for that
  // driver. TIMEOUT, CANCELLED: by the limits.
  ir::Result<std::shared_ptr<const DeviceCode>> get(const ir::Leaf& leaf, const ir::GpuTarget& target,
                                                    const DevicePolicy& policy, LeafOrigin* origin);
  // The driver does not take what was got: a counted miss, and it is made anew the next time.
  void reject(const DeviceCode& code, const ir::GpuTarget& target);
  // NVRTC for a driver of that version, opened now if it was not; empty: for any. UNSUPPORTED: as of Nvrtc::open(), or
  // all that are there are of a newer major than the driver.
  ir::Result<std::shared_ptr<const jit::Nvrtc>> compiler(const std::string& driver = {});

 private:
  std::shared_ptr<const DeviceCode> from_store(const ObjectKey& key, const ir::GpuTarget& target,
                                               const DevicePolicy& policy);
  ir::Result<DeviceCode> compile(const ir::Leaf& leaf, const ir::GpuTarget& target, const DevicePolicy& policy,
                                 const std::string& key);

  const std::string compiler_path_;
  Store* const store_;
  Stats* const stats_;
  std::mutex mutex_;
  std::shared_ptr<const jit::Nvrtc> compiler_;
  std::map<std::string, std::shared_ptr<const DeviceCode>> made_;  // by environment and key
};

// The record that is stored, and what it says; CORRUPT in words: INVALID.
std::string write_device_code(const DeviceCode& code, const ir::GpuTarget& target);
ir::Result<DeviceCode> parse_device_code(std::string_view bytes, const ir::GpuTarget& target);

}  // namespace lathe::runtime
