// Names of generated code for tools: a line per leaf in perf's map file, and an in-memory symbol file per leaf for
// debuggers (the GDB JIT interface). Off unless asked for. Faults (no directory to write to) are silent: tools see
// less. Thread-safe.
#pragma once
#include <cstdint>
#include <string>

#include "jit/image/exec_memory.h"

namespace lathe::jit {

enum ProfilerBits : uint32_t { kProfilerPerf = 1, kProfilerGdb = 2 };

class ProfilerMap {
 public:
  // The map is <directory>/perf-<pid>.map; perf reads it from /tmp.
  explicit ProfilerMap(uint32_t bits, std::string directory = "/tmp");
  ~ProfilerMap();  // debuggers forget the leaves; the map file stays for perf
  ProfilerMap(const ProfilerMap&) = delete;
  ProfilerMap& operator=(const ProfilerMap&) = delete;

  void add(const CodeImage& image, const LoadedCode& code);

 private:
  void add_perf_line(const CodeImage& image, const LoadedCode& code) const;

  struct GdbEntry;
  const uint32_t bits_;
  const std::string directory_;
  GdbEntry* entries_ = nullptr;  // newest first, under the interface's lock
};

}  // namespace lathe::jit
