// Speed limits of this machine, measured on one core: multiply-adds per second, reading and
// copying. Results of kernels are reported as shares of a probe taken in the same round. In no key
// and no Target: a profile describes a moment, not a machine.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "ir/base/target.h"
#include "search/model/features.h"

namespace lathe::runtime {

class ThreadTeam;

// Bytes that come from memory even if they are read again and again: eight last-level caches, but no more than 1 GiB
// unless two of them are. Of two of them a last-level cache keeps a part, since it does not displace what is oldest: on
// a shared Zen 5 with 32 MB, reading 64, 128 and 256 MB in turn takes 1, 1.2 and 1.35 of the time a byte, and more
// changes nothing.
int64_t cold_bytes(const ir::Target& target);

// What a core does at most of one kind of arithmetic.
struct PeakProbe {
  double gflops = 0;
  ir::DType factors = ir::DType::f32;
  const char* instruction = "fma";
  int instructions = 1;  // as of jit::DotLoop
};

// Holds the buffers between probes. Not thread-safe; runs on the caller's thread. Pin it for steady
// numbers.
class MachineProbe {
 public:
  MachineProbe();
  ~MachineProbe();
  MachineProbe(const MachineProbe&) = delete;
  MachineProbe& operator=(const MachineProbe&) = delete;

  // f32, 2 operations a multiply-add; best of 6 runs of about 0.5 ms: chains of independent
  // multiply-adds in registers, as wide as the level allows (for avx512 the better of 512 and 256
  // bits). portable: multiply, then add, 128 bits. 0 if the host lacks the level.
  double fma_peak_gflops(ir::IsaLevel level);
  // Of sums of products of such factors, the best of what the target has for them: bf16 in pairs, bytes (i8) in quads,
  // tiles if those may be. Where it has nothing, or f32 is faster, and for other types, of f32.
  PeakProbe peak(ir::DType factors, const ir::Target& target, bool tiles = true);
  // Best of the passes over a buffer of that many bytes, at least three and at least 1 ms; one and
  // four streams. What fits a cache is read from there; a footprint of cold_bytes() or more comes from memory. With a
  // team each of so many threads passes over a part of it, all at once. slices: a pass takes one of so many of the
  // footprint, and the next pass the next one, be it of another call, reading or copying: what is beyond the caches as
  // a whole comes from memory so, too, and a probe of it takes as much less time.
  double read_gbs(int64_t bytes, ThreadTeam* team = nullptr, int threads = 1, int slices = 1);
  // Bytes copied per second (read and written once each, counted once) between two halves of a thread's part of that
  // footprint, of a slice if it has several; ordinary stores.
  double copy_gbs(int64_t bytes, ThreadTeam* team = nullptr, int threads = 1, int slices = 1);

 private:
  struct Buffer;
  char* buffer(int64_t bytes);
  int64_t next_slice(int slices) { return next_slice_++ % slices; }
  std::unique_ptr<Buffer> buffer_;
  int64_t next_slice_ = 0;
};

// Nanoseconds of one leaf call through the walker's kind of pointer, its operands rewritten first.
double leaf_call_ns();
// Nanoseconds of a phase of empty tasks, and of each task more, on that many threads of a team of its own; 0 for one
// thread.
struct TeamCost {
  double barrier_ns = 0, task_ns = 0;
};
TeamCost team_cost(int threads);

// The profile kept in the store: "fma_avx512 118.2" a line. Peaks of products of shorter factors have the names of
// instructions: "vpdpbusd 472.1".
std::string peak_name(const ir::Target& target);  // "fma_avx512": the peak of what it may use
struct MachineProfile {
  std::vector<std::pair<std::string, double>> values;
  double get(std::string_view name) const;  // 0 if absent
  // As MachineProbe::peak; of 0 GFLOP/s where an instruction that the target has for such factors is absent.
  PeakProbe peak(ir::DType factors, const ir::Target& target, bool tiles = true) const;
};
// One to two seconds.
MachineProfile measure_profile(MachineProbe& probe, const ir::Target& target);
std::string to_text(const MachineProfile& profile);
// INVALID: a line that is not a name and a positive number.
ir::Result<MachineProfile> parse_profile(std::string_view text);
// For tests: the process takes itself for that machine from here on (jit/host/host_cpu.h), and for measured at these
// rates where the store knows none. Before a context is made.
void describe_machine(const ir::Target& target, const MachineProfile& profile);
const std::string& described_profile();  // as text; empty: nobody described the machine
// The profile as the cost model takes it; what it lacks is assumed from the target.
search::MachineRates rates_of(const MachineProfile& profile, const ir::Target& target);

}  // namespace lathe::runtime
