// The portable executor for whatever machine the library is built for.
#include "jit/portable_leaves.h"

#define LATHE_PORTABLE_RUN portable_run_baseline
#include "jit/portable_run.inc"
