// Lathe's side of a comparison, through the C ABI as a host uses it: resolved (tuned if the store does not know it),
// constants prepacked, pinned. Does not time.
#pragma once
#include <memory>
#include <vector>

#include "bench/blueprints/case.h"

namespace lathe::blueprints {

struct Ours {
  std::string error;  // what failed; empty: the rest is valid
  int tier = 0;       // of the body that runs; known once pinned
  bool from_store = false;
  std::vector<uint64_t> bytes;   // of each argument as run() wants it: inputs, then the result
  uint64_t workspace_bytes = 0;  // known once pinned

  // The constant input number `arg` from its plain form. These two return what failed, or nothing.
  std::string pack(int arg, float* plain, void* out) const;
  std::string pin(void* const* args);
  void run(void* const* args, void* workspace) const;

  std::shared_ptr<lathe_kernel> kernel;
  std::shared_ptr<lathe_pinned> pinned;
  const Case* what = nullptr;
  std::vector<uint64_t> layouts;  // of each argument, 0: plain
};

// The case must outlive the result.
Ours make_ours(lathe_context* context, const Case& what);

}  // namespace lathe::blueprints
