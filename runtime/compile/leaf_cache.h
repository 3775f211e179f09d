// Leaves of a context: canonical leaf -> something callable. In order: memory, stored image, xbyak, LLVM's plug-in, the
// portable executor (T0). Entries live as long as the cache. Thread-safe, and no caller waits for another: two that
// want a leaf at once both make it, and the better entry, of equals the first, serves whoever comes later.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "ir/base/status.h"
#include "ir/base/target.h"
#include "ir/nest.h"
#include "jit/image/exec_memory.h"
#include "jit/program/backend.h"
#include "runtime/base/verbose.h"
#include "runtime/walk/leaf_ref.h"

namespace lathe::runtime {

class Stats;
class Store;

// What making a leaf may do.
struct LeafPolicy {
  bool generate = true;      // xbyak, on this thread
  bool llvm = true;          // the plug-in, if xbyak refuses
  bool portable = true;      // T0, if nothing else serves
  bool packs_later = false;  // leaves that pack constants are made when one is packed, or by a seal
  // Tests and the search: only this backend, nothing stored is read or written.
  bool forced = false;
  jit::Backend backend = jit::Backend::xbyak;
};

enum class LeafOrigin : uint8_t { memory, store, compiled, builtin };
const char* origin_name(LeafOrigin origin);  // "memory", ...

struct LeafEntry {
  LeafRef ref;
  std::string key;     // names the image in the store
  std::string symbol;  // as profilers show it; empty for T0
  jit::Backend backend = jit::Backend::portable;
  LeafOrigin origin = LeafOrigin::builtin;
  std::shared_ptr<const jit::CodeImage> image;  // with keep_images; null for T0
};

// What makes code of a leaf program.
using LeafCompiler = std::function<ir::Result<jit::CodeImage>(const jit::LeafProgram&, jit::Backend)>;

struct LeafCacheOptions {
  jit::ExecMode exec_mode = jit::ExecMode::automatic;
  size_t code_bytes = size_t{256} << 20;
  std::string plugin_dir;
  int profile = 0;     // bits of LATHE_PROFILE
  std::string dump;    // LATHE_DUMP: a folder per kernel and leaf made; empty: none
  std::string filter;  // regular expression: names that are dumped; empty: all
  int verify = 0;      // LATHE_VERIFY: 1 kernels at the borders, 2 after every move
  Verbosity verbose = Verbosity::none;
  bool llvm = true;          // the plug-in is used where a policy allows it
  bool keep_images = false;  // beside the mapped code: who evaluates looks at them
  LeafCompiler compiler;     // tests; empty: the back ends
};

class LeafCache {
 public:
  // store and stats may be null; both outlive the cache.
  LeafCache(const LeafCacheOptions& options, Store* store, Stats* stats);
  ~LeafCache();
  LeafCache(const LeafCache&) = delete;
  LeafCache& operator=(const LeafCache&) = delete;

  const LeafCacheOptions& options() const;
  // Sealed: code that is made all the same counts as compiles_after_seal, code that is not stored as missed for the
  // seal.
  void set_sealed(bool sealed);
  // Whether leaves for the target are code at all, and not the portable executor's.
  bool native(const ir::Target& target) const;
  // Whether some generator may make it under this policy.
  bool generates(const ir::Target& target, const LeafPolicy& policy) const;
  // How many leaves it has kept so far, and those kept after so many, by key: what was made or read since, whoever
  // asked for it, each once.
  struct Kept {
    LeafOrigin origin;
    jit::Backend backend;
  };
  uint64_t kept() const;
  std::map<std::string, Kept> kept_since(uint64_t number) const;
  // Writes images to the store that were made since the last call: files, which take longer than the leaves did. Not
  // part of making a leaf, and a caller that must not wait leaves its own in memory. publish(): those of this thread,
  // for callers that wait for nobody else's work; publish_all(): whoever made them. The destructor writes the rest.
  void publish();
  void publish_all();

  // MISS: not in memory or store and the policy forbids making it. UNSUPPORTED: outside every backend. *origin, if not
  // null, says where this call found it.
  ir::Result<const LeafEntry*> get(const ir::Leaf& leaf, const ir::Target& target, const LeafPolicy& policy,
                                   LeafOrigin* origin = nullptr);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lathe::runtime
