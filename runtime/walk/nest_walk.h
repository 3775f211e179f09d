// Runs a BoundNest: each phase is one parallel_for (or a serial run) that adds up addresses and
// calls leaves. Allocates nothing, takes no lock, checks nothing: bind_nest() has. Any number of
// threads may walk one BoundNest, each with its own workspace.
#pragma once
#include "runtime/walk/bound_nest.h"
#include "runtime/walk/leaf_ref.h"
#include "runtime/walk/threads.h"

namespace lathe::runtime {

// leaves: nest.num_leaves of them. args: nest.num_params addresses of first elements. workspace:
// nest.workspace_bytes, 64-byte aligned (may be null if 0). team may be null: the caller's thread
// alone; the parts are the same then, and so are the bits.
void walk(const BoundNest& nest, const LeafRef* leaves, void* const* args, void* workspace, ThreadTeam* team);

}  // namespace lathe::runtime
