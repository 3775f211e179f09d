// The portable executor as fast as this CPU runs it: compiled for AVX2 and FMA as well, several times the speed.
#include "jit/host/host_cpu.h"
#include "jit/program/portable_leaves.h"
#include "jit/program/tile_shape.h"

#if defined(__x86_64__)
namespace lathe::jit {

void portable_run_avx2(const PreparedProgram& program, const ir::LeafArgs& args, PortableState state);

void portable_run_host(const PreparedProgram& program, const ir::LeafArgs& args, PortableState state) {
  static const bool wide = (~host_features() & (kCpu_avx2 | kCpu_fma)) == 0;
  (wide ? portable_run_avx2 : portable_run_baseline)(program, args, state);
}

}  // namespace lathe::jit
#pragma GCC target("avx2,fma")
#define LATHE_PORTABLE_RUN portable_run_avx2
#else
#define LATHE_PORTABLE_RUN portable_run_host
#endif
#include "jit/program/portable_run.inc"
