// The portable executor for whatever machine the library is built for.
#include "jit/program/portable_leaves.h"
#include "jit/program/tile_shape.h"

#define LATHE_PORTABLE_RUN portable_run_baseline
#include "jit/program/portable_run.inc"
