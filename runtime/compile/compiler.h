// The tour: one Kernel and a Schedule to something that runs.
//
//   Kernel ── replay(Schedule) ──▶ scheduled Kernel ── cut ──▶ nest + leaves ── LeafCache ──▶ Stage
//   Stage's Executable ── bind ──▶ BoundExecutable ── run ──▶ results
//
// and a graph's Kernels, in order, are a Body. Pure but for the leaf cache; thread-safe.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/status.h"
#include "ir/nest.h"
#include "runtime/base/stats.h"
#include "runtime/base/tasks.h"
#include "runtime/compile/cpu_nest.h"
#include "runtime/compile/leaf_cache.h"
#include "search/sketches/recipe.h"

namespace lathe::runtime {

// A constant parameter whose layout the Schedule chose: what packs it.
struct PackedParam {
  int param = -1;
  uint64_t layout_id = 0;                  // equal ids: equal bytes
  std::shared_ptr<const Executable> pack;  // parameters src, dst
  ir::DType type = ir::DType::f32;         // of its packed form
  std::vector<ir::Expr> dims;
  std::vector<ir::Expr> strides;  // of dims, in elements; empty: it is dense
  std::vector<std::string> leaf_keys;
  bool portable = false;  // some leaf is executed by T0
};

// What other Stages of a Kernel pack already: a constant that comes out the same is shared.
using KnownPacks = std::vector<const PackedParam*>;

// One Kernel, ready to bind to shapes within its symbol ranges; ready to run once it has its leaves.
struct Stage {
  ir::Kernel naive;  // restricted to the range it serves
  search::Schedule schedule;
  OwnedExecutable executable;
  std::vector<std::string> leaf_keys;
  std::vector<PackedParam> packed;
  std::vector<std::shared_ptr<const jit::CodeImage>>
      images;                              // of native leaves, packing left out; where the cache keeps images
  LeafOrigin origin = LeafOrigin::memory;  // the most expensive one among its leaves
  bool portable = false;                   // some leaf is executed by T0
  double codegen_us = 0;                   // of add_leaves(); CPU time of the caller

  // The parts of one that runs on the CPU, as all that build_stage() makes do.
  CpuNest& nest() { return *executable->cpu_nest(); }
  const CpuNest& nest() const { return *executable->cpu_nest(); }
};

// The packed layout of a constant: equal ids, equal bytes. It depends on dtype, sizes, the order of tiles and what its
// elements are made of.
uint64_t constant_layout(const ir::Buffer& buffer);

// The one way to code: nothing is made of a Kernel that is not proven safe (search/cut/safe_kernel.h). UNSUPPORTED
// names the move, what is not proven, the rule of leaf form, or the backend's refusal; MISS as LeafCache::get. *why, if
// not null, says what a stored Schedule that fails here counts as.
ir::Result<Stage> build_stage(const ir::Kernel& restricted, const search::Schedule& schedule, const ir::Target& target,
                              LeafCache& leaves, const LeafPolicy& policy, MissReason* why = nullptr,
                              const KnownPacks& known = {});
// A Schedule that has just been written, with the Kernel its moves ended with: proven safe and cut, not made again
// (LATHE_VERIFY=2 replays). It has no leaves yet.
ir::Result<Stage> cut_stage(const ir::Kernel& restricted, const search::Scheduled& scheduled,
                            const LeafCacheOptions& options);
// The leaves of a Stage that has none, those that pack its constants included.
ir::Status add_leaves(Stage& stage, const ir::Target& target, LeafCache& leaves, const LeafPolicy& policy,
                      MissReason* why = nullptr, const KnownPacks& known = {});
// Both: build_stage() of what is scheduled already, trusted to mean what the restricted Kernel does.
ir::Result<Stage> build_stage(const ir::Kernel& restricted, const search::Scheduled& scheduled,
                              const ir::Target& target, LeafCache& leaves, const LeafPolicy& policy,
                              MissReason* why = nullptr, const KnownPacks& known = {});

// Packs a compact or strided source into dst (packed_bytes of it); the bytes do not depend on the threads. Allocates
// for a while where elements are made before they are turned.
ir::Status run_pack(const PackedParam& packed, const SymbolValues& symbols, const ArgLayout& source, const void* src,
                    void* dst, TaskArena* arena);
// The same on a device, for a constant whose sizes are numbers: joins the stream.
ir::Status launch_pack(const PackedParam& packed, const void* src, void* dst, void* stream);
// Bytes of the packed form; symbols as bind_nest takes them.
ir::Result<int64_t> packed_bytes(const PackedParam& packed, const SymbolValues& symbols);

}  // namespace lathe::runtime
