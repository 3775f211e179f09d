// The store: layered directories of framed objects under "<layer>/v1", with a layer in memory above
// them. A fault of any layer is a counted miss with a reason, never an error. What the payloads
// mean is others' affair (decision.h; images are the caller's bytes). Thread-safe; not for the hot
// path.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "runtime/base/stats.h"
#include "runtime/base/tasks.h"
#include "runtime/store/store_file.h"

namespace lathe::runtime {

enum class ObjectKind : uint8_t {
#define LATHE_STORE_OBJECT(id, directory, extension, grouped, first_wins, trusted, max_bytes) k_##id,
#include "runtime/store/store_objects.def"
#undef LATHE_STORE_OBJECT
};
const char* object_kind_name(ObjectKind kind);  // "decision", ...

// An object's identity: `sub` groups (an environment's hash; empty for env, profile, quarantine), `name` is the key.
struct ObjectKey {
  ObjectKind kind = ObjectKind::k_decision;
  std::string sub, name;
  std::string path() const;  // "dec/<sub>/<2 characters>/<name>.rec"
};

enum class LayerMode : uint8_t { read_only, private_rw };
struct LayerSpec {
  std::string path;
  LayerMode mode = LayerMode::private_rw;
};
enum class StoreMode : uint8_t { off, read_only, read_write };

// Without layers the place is the first of cache_dir (LATHE_CACHE_DIR), xdg_cache_home + "/lathe",
// home + "/.cache/lathe" that is set; without any, memory only.
struct StoreOptions {
  std::vector<LayerSpec> layers;
  std::string cache_dir, xdg_cache_home, home;
  StoreMode mode = StoreMode::read_write;
};

struct Lookup {
  bool found = false;
  std::string bytes;                             // the payload
  int layer = -1;                                // -1: memory; else index of the layer
  MissReason reason = MissReason::k_never_seen;  // not found: the worst layer's
  std::string detail;                            // "checksum", "EACCES in layer 0"
};

struct StoredObject {
  int layer = 0;
  std::string path;  // below v1
  ObjectKey key;
  int64_t bytes = 0;
  bool ok = true;
  MissReason reason = MissReason::k_never_seen;
  std::string detail;
};

class Store {
 public:
  // INVALID: an API layer or cache_dir that is not an absolute path of at most 3,000 characters.
  // Touches no file.
  static ir::Result<std::unique_ptr<Store>> open(const StoreOptions& options, Stats* stats,
                                                 const FileOps& ops = FileOps::real());

  // Memory, then each layer once per key and process. Counts the hit or the miss.
  Lookup find(const ObjectKey& key);
  // Memory, and the first writable layer. False if it could not be written there (it lives in
  // memory then); *detail says why. Asserts nothing of the payload. INTERNAL: an invalid name or a
  // payload above the kind's limit.
  ir::Result<bool> put(const ObjectKey& key, std::string_view payload, std::string* detail = nullptr);
  // Says that a found payload does not parse or does not fit: moved to bad/ where it is ours,
  // counted, forgotten.
  void reject(const ObjectKey& key, const Lookup& found, MissReason reason);
  // Forgets an object, in memory and in every layer that may be written; the files that went.
  int remove(const ObjectKey& key);

  // Names of the objects of a kind and sub that start with `prefix` (>= 2 characters), in all
  // layers and memory, sorted.
  std::vector<std::string> names(ObjectKind kind, const std::string& sub, const std::string& prefix);

  // The subs that a grouped kind has objects of, in all layers and memory, sorted.
  std::vector<std::string> groups(ObjectKind kind);

  // Every file of every layer, verified if `check`; left-overs in new/ and bad/ are not objects. arena: who reads;
  // null: the caller's thread.
  std::vector<StoredObject> list(bool check, TaskArena* arena = nullptr) const;
  struct LayerInfo {
    std::string path;
    LayerMode mode;
    bool exists, writable;
  };
  std::vector<LayerInfo> layers() const;
  const std::string& placement() const {
    return placement_;
  }  // "LATHE_CACHE_DIR", "memory", ...: why the layers are where they are

 private:
  struct Layer {
    LayerDir dir;
    LayerMode mode;
    std::string path;
  };
  struct Entry {
    bool found = false;
    std::shared_ptr<const std::string> payload;
    int layer = -1;
    MissReason reason = MissReason::k_never_seen;
    std::string detail;
  };
  Store(const StoreOptions& options, Stats* stats) : mode_(options.mode), stats_(stats) {}
  Entry probe(const ObjectKey& key);
  Lookup answer(const Entry& entry);
  void list_directory(int layer, ObjectKind kind, const std::string& sub, const std::string& directory,
                      std::vector<StoredObject>* out) const;
  void read_listed(bool check, StoredObject* o) const;

  StoreMode mode_;
  Stats* stats_;
  std::string placement_;
  std::vector<Layer> layers_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> memory_;  // by path
};

}  // namespace lathe::runtime
