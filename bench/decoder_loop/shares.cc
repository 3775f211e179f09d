#include "bench/decoder_loop/shares.h"

#include "jit/host/host_cpu.h"
#include "runtime/measure/machine_profile.h"

namespace lathe::decoder {

void add_shares(const Measured& measured, int threads, bool bytes, nlohmann::json* row) {
  nlohmann::json of_read, of_peak;
  if (threads == 1) {
    const ir::Target target = jit::host_target();
    runtime::MachineProbe probe;
    const double read = probe.read_gbs(runtime::cold_bytes(target)) * 1e9;
    const double peak = probe.fma_peak_gflops(target.level) * 1e9 * (bytes ? 4 : 1);
    of_read = measured.step_bytes / measured.step_seconds / read;
    of_peak = measured.prompt_operations / measured.prompt_seconds / peak;
  }
  (*row)["decode_of_read"] = of_read;
  (*row)["prefill_of_peak"] = of_peak;
}

}  // namespace lathe::decoder
