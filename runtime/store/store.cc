// See store.h.
#include "runtime/store/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "runtime/store/store_frame.h"

namespace lathe::runtime {
namespace {

struct KindRow {
  const char* name;
  std::string_view directory, extension;
  bool grouped, first_wins, trusted;
  size_t max_bytes;
};
constexpr KindRow kKinds[] = {
#define LATHE_STORE_OBJECT(id, directory, extension, grouped, first_wins, trusted, max_bytes) \
  {#id, directory, extension, grouped, first_wins, trusted, max_bytes},
#include "runtime/store/store_objects.def"
#undef LATHE_STORE_OBJECT
};
constexpr size_t kFrameBytes = 1024;  // room for the frame's lines
constexpr size_t kMaxPath = 3000;

const KindRow& row(ObjectKind kind) { return kKinds[static_cast<int>(kind)]; }
bool grouped(ObjectKind kind) { return row(kind).grouped; }

std::string frame_key(const ObjectKey& key) { return key.sub.empty() ? key.name : key.sub + "/" + key.name; }
bool valid(const ObjectKey& key) {
  return valid_object_name(key.name) && key.name.size() >= 2 &&
         (grouped(key.kind) ? valid_object_name(key.sub) : key.sub.empty());
}

bool absolute(const std::string& path) { return !path.empty() && path[0] == '/' && path.size() <= kMaxPath; }

// Of two misses the one that tells more.
bool worse(MissReason a, MissReason than) { return than == MissReason::k_never_seen && a != MissReason::k_never_seen; }

const char* errno_name(int error) {
  const char* name = strerrorname_np(error);
  return name != nullptr ? name : "?";
}

}  // namespace

const char* object_kind_name(ObjectKind kind) { return row(kind).name; }

std::string ObjectKey::path() const {
  const KindRow& r = row(kind);
  if (!grouped(kind)) return fmt::format("{}/{}{}", r.directory, name, r.extension);
  return fmt::format("{}/{}/{}/{}{}", r.directory, sub, name.substr(0, 2), name, r.extension);
}

ir::Result<std::unique_ptr<Store>> Store::open(const StoreOptions& options, Stats* stats, const FileOps& ops) {
  std::unique_ptr<Store> store(new Store(options, stats));
  std::vector<LayerSpec> specs = options.layers;
  if (!specs.empty()) {
    store->placement_ = "layers";
  } else if (!options.cache_dir.empty()) {
    specs.push_back({options.cache_dir, LayerMode::private_rw});
    store->placement_ = "LATHE_CACHE_DIR";
  } else if (absolute(options.xdg_cache_home)) {
    specs.push_back({options.xdg_cache_home + "/lathe", LayerMode::private_rw});
    store->placement_ = "XDG_CACHE_HOME";
  } else if (absolute(options.home) && options.home != "/") {
    struct stat s;
    if (::stat(options.home.c_str(), &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid() &&
        access(options.home.c_str(), W_OK) == 0) {
      specs.push_back({options.home + "/.cache/lathe", LayerMode::private_rw});
      store->placement_ = "HOME";
    }
  }
  if (options.mode == StoreMode::off) {
    specs.clear();
    store->placement_ = "off";
  } else if (specs.empty()) {
    store->placement_ = "memory";
  }
  for (LayerSpec& s : specs) {
    if (!absolute(s.path)) {
      return ir::invalid("a store layer at '{:.80}', expected an absolute path of at most {} characters", s.path,
                         kMaxPath);
    }
    if (options.mode == StoreMode::read_only) s.mode = LayerMode::read_only;
    store->layers_.push_back({LayerDir(s.path + "/v1", ops), s.mode, s.path});
  }
  return store;
}

Lookup Store::answer(const Entry& entry) {
  Lookup out;
  out.found = entry.found;
  out.layer = entry.layer;
  out.reason = entry.reason;
  out.detail = entry.detail;
  if (entry.found) {
    out.bytes = *entry.payload;
    stats_->add(entry.layer < 0 ? Stat::k_from_memory : Stat::k_from_store);
  } else {
    stats_->miss(entry.reason);
  }
  return out;
}

Store::Entry Store::probe(const ObjectKey& key) {
  const KindRow& r = row(key.kind);
  Entry out;
  if (mode_ == StoreMode::off) out.reason = MissReason::k_off;
  const std::string path = key.path();
  for (size_t i = 0; i < layers_.size(); ++i) {
    FileRead file = layers_[i].dir.read(path, r.max_bytes + kFrameBytes, r.trusted);
    DecodedFrame frame;
    if (file.ok) {
      frame = decode_frame(r.name, frame_key(key), file.bytes);
      if (frame.ok) {
        out.found = true;
        out.layer = static_cast<int>(i);
        out.payload = std::make_shared<const std::string>(frame.payload);
        return out;
      }
      file.reason = frame.reason;
    }
    if (worse(file.reason, out.reason)) {
      out.reason = file.reason;
      out.detail = fmt::format("{} in layer {}",
                               file.ok              ? frame.detail
                               : file.os_errno != 0 ? errno_name(file.os_errno)
                                                    : "file",
                               i);
    }
    if (file.reason == MissReason::k_corrupt && layers_[i].mode != LayerMode::read_only &&
        layers_[i].dir.set_aside(path)) {
      stats_->add(Stat::k_bad_files);
    }
  }
  return out;
}

Lookup Store::find(const ObjectKey& key) {
  if (!valid(key)) return answer(Entry{});
  const std::string path = key.path();
  std::optional<Entry> memory;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = memory_.find(path);
    if (it != memory_.end()) memory = it->second;
  }
  if (memory) {
    if (memory->found) memory->layer = -1;
    return answer(*memory);
  }
  const Entry entry = probe(key);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    memory_.emplace(path, entry);
  }
  return answer(entry);
}

ir::Result<bool> Store::put(const ObjectKey& key, std::string_view payload, std::string* detail) {
  const KindRow& r = row(key.kind);
  if (!valid(key)) return ir::internal_error("'{:.80}' in '{:.80}' is no object name", key.name, key.sub);
  if (payload.size() > r.max_bytes) return ir::internal_error("a {} of {} bytes", r.name, payload.size());
  const std::string path = key.path();
  bool first_wins = r.first_wins;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Entry& entry = memory_[path];
    if (entry.found && r.first_wins) return true;
    // What may not be used would keep its place for ever.
    const bool useless = entry.reason == MissReason::k_untrusted || entry.reason == MissReason::k_environment;
    if (!entry.found && useless) first_wins = false;
    entry = Entry{true, std::make_shared<const std::string>(payload), -1, MissReason::k_never_seen, {}};
  }
  const auto layer =
      std::find_if(layers_.begin(), layers_.end(), [](const Layer& l) { return l.mode != LayerMode::read_only; });
  if (layer == layers_.end()) {
    if (detail != nullptr) *detail = "no writable layer";
    return false;
  }
  const int error = layer->dir.publish(path, encode_frame(r.name, frame_key(key), payload), first_wins);
  stats_->add(error == 0 ? Stat::k_published : Stat::k_publish_failed);
  if (error != 0 && detail != nullptr) *detail = errno_name(error);
  return error == 0;
}

void Store::reject(const ObjectKey& key, const Lookup& found, MissReason reason) {
  stats_->miss(reason);
  if (!valid(key)) return;
  int layer = found.layer;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Entry& entry = memory_[key.path()];
    if (layer < 0) layer = entry.layer;
    entry = Entry{false, nullptr, -1, reason, "rejected"};
  }
  if (layer < 0 || reason != MissReason::k_corrupt) return;
  const Layer& l = layers_[static_cast<size_t>(layer)];
  if (l.mode != LayerMode::read_only && l.dir.set_aside(key.path())) stats_->add(Stat::k_bad_files);
}

int Store::remove(const ObjectKey& key) {
  if (!valid(key)) return 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    memory_.erase(key.path());
  }
  if (mode_ != StoreMode::read_write) return 0;
  int removed = 0;
  for (const Layer& l : layers_) removed += l.mode != LayerMode::read_only && l.dir.remove(key.path()) == 0;
  return removed;
}

std::vector<std::string> Store::names(ObjectKind kind, const std::string& sub, const std::string& prefix) {
  const KindRow& r = row(kind);
  std::set<std::string> found;
  if (!valid({kind, sub, prefix})) return {};
  std::string directory = ObjectKey{kind, sub, prefix}.path();
  directory.resize(directory.rfind('/'));
  auto take = [&](std::string_view file) {
    if (file.size() <= r.extension.size() || file.substr(file.size() - r.extension.size()) != r.extension) return;
    file.remove_suffix(r.extension.size());
    if (file.substr(0, prefix.size()) == prefix) found.emplace(file);
  };
  for (const Layer& l : layers_) l.dir.list(directory, take);
  std::lock_guard<std::mutex> lock(mutex_);
  directory += '/';
  for (auto it = memory_.lower_bound(directory);
       it != memory_.end() && it->first.compare(0, directory.size(), directory) == 0; ++it) {
    if (it->second.found) take(std::string_view(it->first).substr(directory.size()));
  }
  return {found.begin(), found.end()};
}

std::vector<std::string> Store::groups(ObjectKind kind) {
  const KindRow& r = row(kind);
  if (!r.grouped) return {};
  std::set<std::string> found;
  for (const Layer& l : layers_) {
    l.dir.list(std::string(r.directory), [&](const char* sub) {
      if (valid_object_name(sub)) found.emplace(sub);
    });
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const std::string top = std::string(r.directory) + "/";
  for (auto it = memory_.lower_bound(top); it != memory_.end() && it->first.compare(0, top.size(), top) == 0; ++it) {
    if (it->second.found) found.insert(it->first.substr(top.size(), it->first.find('/', top.size()) - top.size()));
  }
  return {found.begin(), found.end()};
}

void Store::list_directory(int layer, ObjectKind kind, const std::string& sub, const std::string& directory,
                           std::vector<StoredObject>* out) const {
  const KindRow& r = row(kind);
  const LayerDir& dir = layers_[static_cast<size_t>(layer)].dir;
  std::vector<std::string> files;
  dir.list(directory, [&](const char* name) { files.emplace_back(name); });
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    StoredObject o;
    o.layer = layer;
    o.path = directory + "/" + file;
    std::string name = file;
    if (name.size() > r.extension.size() && name.ends_with(r.extension)) name.resize(name.size() - r.extension.size());
    o.key = {kind, sub, name};
    out->push_back(std::move(o));
  }
}

// What the file of a listed name holds.
void Store::read_listed(bool check, StoredObject* o) const {
  const KindRow& r = row(o->key.kind);
  const LayerDir& dir = layers_[static_cast<size_t>(o->layer)].dir;
  const bool named = valid(o->key) && o->key.path() == o->path;
  const FileRead read = named ? dir.read(o->path, r.max_bytes + kFrameBytes, r.trusted) : FileRead{};
  o->bytes = static_cast<int64_t>(read.bytes.size());
  o->ok = read.ok;
  o->reason = named ? read.reason : MissReason::k_corrupt;
  if (!named) o->detail = "name";
  if (!read.ok || !check) return;
  const DecodedFrame frame = decode_frame(r.name, frame_key(o->key), read.bytes);
  o->ok = frame.ok;
  o->reason = frame.reason;
  o->detail = frame.detail;
}

std::vector<StoredObject> Store::list(bool check, TaskArena* arena) const {
  std::vector<StoredObject> out;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const LayerDir& dir = layers_[i].dir;
    for (size_t k = 0; k < std::size(kKinds); ++k) {
      const auto kind = static_cast<ObjectKind>(k);
      const std::string top(kKinds[k].directory);
      if (!grouped(kind)) {
        list_directory(static_cast<int>(i), kind, "", top, &out);
        continue;
      }
      std::vector<std::string> subs, groups;
      dir.list(top, [&](const char* sub) { subs.emplace_back(sub); });
      std::sort(subs.begin(), subs.end());
      for (const std::string& sub : subs) {
        groups.clear();
        dir.list(top + "/" + sub, [&](const char* g) { groups.emplace_back(g); });
        std::sort(groups.begin(), groups.end());
        for (const std::string& g : groups)
          list_directory(static_cast<int>(i), kind, sub, top + "/" + sub + "/" + g, &out);
      }
    }
  }
  (void)for_each_index(arena, out.size(), [&](size_t i) {
    read_listed(check, &out[i]);
    return ir::Status();
  });
  return out;
}

std::vector<Store::LayerInfo> Store::layers() const {
  std::vector<LayerInfo> out;
  for (const Layer& l : layers_) {
    struct stat s;
    const bool exists = ::stat(l.path.c_str(), &s) == 0;
    out.push_back(
        {l.path, l.mode, exists, l.mode != LayerMode::read_only && (!exists || access(l.path.c_str(), W_OK) == 0)});
  }
  return out;
}

}  // namespace lathe::runtime
