// Leaves of a context: see leaf_cache.h.
//
//   get(leaf) = memory | stored image (xbyak's, then LLVM's) | xbyak | LLVM | portable executor
#include "runtime/compile/leaf_cache.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory_resource>
#include <mutex>
#include <thread>
#include <vector>

#include "jit/host/host_cpu.h"
#include "jit/image/image.h"
#include "jit/image/image_lint.h"
#include "jit/image/profiler_map.h"
#include "jit/lower/lower.h"
#include "jit/program/portable_leaves.h"
#include "runtime/base/stats.h"
#include "runtime/compile/dump.h"
#include "runtime/store/key.h"
#include "runtime/store/store.h"

namespace lathe::runtime {

using ir::Code;
using ir::Result;
using ir::Status;

namespace {

std::string key_of(const ir::Leaf& leaf, const ir::Target& target, jit::Backend backend) {
  LeafFields fields;
  fields.text = leaf.text;
  fields.backend = jit::backend_name(backend);
  fields.isa = ir::isa_name(target.level);
  const uint64_t features = jit::code_features(leaf.kernel, target);
  if (features != 0) fields.isa += " " + jit::feature_names(features);
  fields.lanes = target.lanes;
  fields.vector_registers = target.vector_registers;
  return leaf_key(fields).hash;
}

// In this order.
constexpr jit::Backend kNative[] = {jit::Backend::xbyak, jit::Backend::llvm};

// LATHE_PROFILE: 2 perf map, 8 GDB.
uint32_t profiler_bits(int profile) {
  return ((profile & 2) != 0 ? jit::kProfilerPerf : 0u) | ((profile & 8) != 0 ? jit::kProfilerGdb : 0u);
}

void interpret_program(const void* program, const ir::LeafArgs& args) {
  static_cast<const jit::PreparedProgram*>(program)->run(args);
}

}  // namespace

const char* origin_name(LeafOrigin origin) {
  static constexpr const char* kNames[] = {"memory", "store", "compiled", "builtin"};
  return kNames[static_cast<int>(origin)];
}

struct LeafCache::Impl {
  // Memory for a leaf in the making, kept for the next one. Written to at once: the system gives it now.
  using Desk = std::array<std::byte, size_t{512} << 10>;
  // How far a policy lets making a leaf go. What was made by less is not the last word for one that allows more.
  enum class Effort : uint8_t { stored, xbyak, llvm };
  struct Slot {
    LeafEntry entry;
    Effort effort = Effort::stored;  // the most that was tried for it
    uint64_t number = 0;             // of those kept, from 1 on
    std::unique_ptr<jit::PreparedProgram> program;
  };
  // All that was made of a leaf: who was given one may hold it.
  struct Place {
    std::vector<std::unique_ptr<Slot>> made;
    Slot* serves = nullptr;  // the best of them
    Status failure;          // of the last attempt, if nothing serves
  };

  struct Unpublished {
    std::thread::id by;
    std::string key;
    jit::CodeImage image;
  };

  Impl(const LeafCacheOptions& o, Store* s, Stats* t)
      : options(o), memory(o.exec_mode, o.code_bytes), profiler(profiler_bits(o.profile)), store(s), stats(t) {
    code = code_environment(code_fields(jit::backend_versions()));
    // Here, not in the first call.
    memory.reserve();
    desks.push_back(std::make_unique<Desk>());
  }

  void miss(MissReason reason) const {
    if (stats != nullptr) stats->miss(reason);
  }
  void count(Stat stat, int64_t n = 1) const {
    if (stats != nullptr) stats->add(stat, n);
  }

  ObjectKey image_key(const std::string& key) const { return {ObjectKind::k_image, code.hash, key}; }

  // The callable of an image, announced to profilers.
  Status adopt(const jit::CodeImage& image, jit::Backend backend, LeafOrigin origin, Slot& slot) {
    LATHE_ASSIGN(const jit::LoadedCode loaded, memory.load(image));
    slot.entry.ref.fn = loaded.entry;
    slot.entry.backend = backend;
    slot.entry.origin = origin;
    slot.entry.symbol = image.symbol;
    if (options.keep_images) slot.entry.image = std::make_shared<const jit::CodeImage>(image);
    count(Stat::k_code_bytes, static_cast<int64_t>(loaded.size));
    profiler.add(image, loaded);
    return {};
  }

  bool from_store(const std::string& key, jit::Backend backend, Slot& slot) {
    const Lookup found = store->find(image_key(key));
    if (!found.found) return false;
    Result<jit::StoredImage> stored =
        jit::parse_image(reinterpret_cast<const uint8_t*>(found.bytes.data()), found.bytes.size());
    if (!stored.ok() || stored->leaf_key != key || stored->code_environment != code.hash) {
      const bool elsewhere = stored.ok() && stored->leaf_key == key;
      store->reject(image_key(key), found, elsewhere ? MissReason::k_environment : MissReason::k_corrupt);
      return false;
    }
    if (!jit::lint_image(stored->image).ok()) {
      store->reject(image_key(key), found, MissReason::k_corrupt);
      return false;
    }
    const Status status = adopt(stored->image, backend, LeafOrigin::store, slot);
    if (!status.ok()) store->reject(image_key(key), found, why_not_loaded(stored->image, status));
    return status.ok();
  }

  static MissReason why_not_loaded(const jit::CodeImage& image, const Status& status) {
    if ((image.features & ~jit::host_features()) != 0) return MissReason::k_features;
    return status.code() == Code::kNOMEM ? MissReason::k_budget : MissReason::k_no_exec_memory;
  }

  void publish(bool of_all) {
    std::vector<Unpublished> images;
    {
      std::lock_guard lock(mutex);
      const auto mine = std::stable_partition(unpublished.begin(), unpublished.end(), [&](const Unpublished& u) {
        return !of_all && u.by != std::this_thread::get_id();
      });
      images.assign(std::make_move_iterator(mine), std::make_move_iterator(unpublished.end()));
      unpublished.erase(mine, unpublished.end());
    }
    if (store == nullptr || images.empty()) return;
    (void)store->put({ObjectKind::k_env, "", code.hash}, code.text);
    for (const auto& [by, key, image] : images) {
      Result<std::vector<uint8_t>> bytes = jit::write_image({image, key, code.hash});
      if (!bytes.ok()) continue;
      (void)store->put(image_key(key), std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
    }
  }

  // *why: set where there is code, and no memory for it.
  Status compile(const jit::LeafProgram& program, jit::Backend backend, const std::string& key, bool keep, Slot& slot,
                 MissReason* why) {
    Result<jit::CodeImage> image = options.compiler                 ? options.compiler(program, backend)
                                   : backend == jit::Backend::xbyak ? jit::compile_xbyak(program, true)
                                                                    : jit::compile_llvm(program, options.plugin_dir);
    if (!image.ok()) {
      count(Stat::k_refusals);
      return image.status();
    }
    count(backend == jit::Backend::xbyak ? Stat::k_compiled_xbyak : Stat::k_compiled_llvm);
    if (sealed.load(std::memory_order_relaxed)) count(Stat::k_compiles_after_seal);
    const Status loaded = adopt(*image, backend, LeafOrigin::compiled, slot);
    if (!loaded.ok()) {
      *why = why_not_loaded(*image, loaded);
      return loaded;
    }
    if (!options.dump.empty() && dump_wanted(options.filter, image->symbol)) {
      dump_leaf(options.dump, program, *image, options.plugin_dir);
    }
    if (keep && store != nullptr) {
      std::lock_guard lock(mutex);
      unpublished.push_back({std::this_thread::get_id(), key, std::move(*image)});
    }
    return {};
  }

  Effort effort(const LeafPolicy& policy) const {
    return !policy.generate ? Effort::stored : policy.llvm && options.llvm ? Effort::llvm : Effort::xbyak;
  }
  // Whether the policy may give more than what serves: code instead of the portable executor.
  bool improves(const Slot& serving, const ir::Target& target, const LeafPolicy& policy) const {
    return serving.entry.backend == jit::Backend::portable && !policy.forced && makes_code(target) &&
           effort(policy) > serving.effort;
  }

  bool makes_code(const ir::Target& target) const {
    return target.level != ir::IsaLevel::portable && options.exec_mode != jit::ExecMode::off;
  }

  bool may_use(jit::Backend b, const LeafPolicy& policy) const {
    if (!jit::backend_built(b)) return false;
    return policy.forced ? policy.backend == b
                         : policy.generate && (b != jit::Backend::llvm || (policy.llvm && options.llvm));
  }
  bool generates(const ir::Target& target, const LeafPolicy& policy) const {
    return makes_code(target) &&
           std::any_of(std::begin(kNative), std::end(kNative), [&](jit::Backend b) { return may_use(b, policy); });
  }

  // key: of the leaf for the forced backend, else for xbyak.
  Status make(const ir::Leaf& leaf, const ir::Target& target, const LeafPolicy& policy, const std::string& key,
              Desk& desk, Slot& slot) {
    const auto key_for = [&](jit::Backend b) {
      return b == (policy.forced ? policy.backend : jit::Backend::xbyak) ? key : key_of(leaf, target, b);
    };
    const bool native = makes_code(target);
    if (native && !policy.forced) {
      for (jit::Backend b : kNative) {
        if (store == nullptr) break;
        if (!jit::backend_built(b)) continue;
        slot.entry.key = key_for(b);
        if (from_store(slot.entry.key, b, slot)) return {};
      }
      if (!policy.generate && sealed.load(std::memory_order_relaxed)) miss(MissReason::k_sealed);
      if (!policy.generate && !policy.portable) {
        return ir::make_error(Code::kMISS, "a leaf is not in the store, and compiling is not allowed");
      }
    }
    std::pmr::monotonic_buffer_resource scratch(desk.data(), desk.size());
    LATHE_ASSIGN(const jit::LeafProgram program, jit::lower_leaf(leaf.kernel, target, leaf.text, &scratch));
    Status refused = ir::unsupported("the target has no native level");
    MissReason why = MissReason::k_compile_failed;
    for (jit::Backend b : kNative) {
      if (!native || !may_use(b, policy)) continue;
      slot.entry.key = key_for(b);
      refused = compile(program, b, slot.entry.key, !policy.forced, slot, &why);
      if (refused.ok()) return {};
    }
    if (!policy.forced && generates(target, policy)) miss(why);
    const bool portable = policy.forced ? policy.backend == jit::Backend::portable : policy.portable;
    if (!portable) return refused;
    slot.entry.key = key_for(jit::Backend::portable);
    slot.program = std::make_unique<jit::PreparedProgram>(program);
    slot.entry.ref = {nullptr, interpret_program, slot.program.get()};
    slot.entry.backend = jit::Backend::portable;
    slot.entry.origin = LeafOrigin::builtin;
    return {};
  }

  const LeafCacheOptions options;
  Identity code;
  jit::ExecMemory memory;
  jit::ProfilerMap profiler;
  Store* store;
  Stats* stats;
  std::atomic<bool> sealed{false};
  std::mutex mutex;
  std::map<std::string, Place> places;
  std::vector<std::unique_ptr<Desk>> desks;  // not in use
  std::vector<Unpublished> unpublished;
  uint64_t kept = 0;  // slots
};

LeafCache::LeafCache(const LeafCacheOptions& options, Store* store, Stats* stats)
    : impl_(std::make_unique<Impl>(options, store, stats)) {}
LeafCache::~LeafCache() { impl_->publish(true); }

const LeafCacheOptions& LeafCache::options() const { return impl_->options; }
bool LeafCache::native(const ir::Target& target) const { return impl_->makes_code(target); }
bool LeafCache::generates(const ir::Target& target, const LeafPolicy& policy) const {
  return impl_->generates(target, policy);
}
void LeafCache::set_sealed(bool sealed) { impl_->sealed.store(sealed, std::memory_order_relaxed); }
void LeafCache::publish() { impl_->publish(false); }
void LeafCache::publish_all() { impl_->publish(true); }

uint64_t LeafCache::kept() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->kept;
}

std::map<std::string, LeafCache::Kept> LeafCache::kept_since(uint64_t number) const {
  std::map<std::string, Kept> out;
  const std::lock_guard lock(impl_->mutex);
  for (const auto& [id, place] : impl_->places) {
    for (const auto& slot : place.made) {
      if (slot->number > number) out[slot->entry.key] = {slot->entry.origin, slot->entry.backend};
    }
  }
  return out;
}

Result<const LeafEntry*> LeafCache::get(const ir::Leaf& leaf, const ir::Target& target, const LeafPolicy& policy,
                                        LeafOrigin* origin) {
  const std::string key = key_of(leaf, target, policy.forced ? policy.backend : jit::Backend::xbyak);
  const std::string id = policy.forced ? key + " forced" : key;
  Impl& m = *impl_;
  std::unique_lock lock(m.mutex);
  Impl::Place& place = m.places[id];
  const auto serve = [&](LeafOrigin from) {
    if (origin != nullptr) *origin = from;
    return &place.serves->entry;
  };
  if (place.serves != nullptr && !m.improves(*place.serves, target, policy)) return serve(LeafOrigin::memory);
  // A refusal is not final: once generating is allowed, or the portable executor will do, it is tried again.
  if (place.serves == nullptr && !place.failure.ok() && !policy.generate && !policy.portable) return place.failure;
  if (m.desks.empty()) m.desks.push_back(std::make_unique<Impl::Desk>());
  std::unique_ptr<Impl::Desk> desk = std::move(m.desks.back());
  m.desks.pop_back();
  lock.unlock();
  // Another thread may make the same leaf meanwhile. The later one is thrown away, unless it is code and what serves is
  // not.
  auto slot = std::make_unique<Impl::Slot>();
  slot->effort = m.effort(policy);
  const Status status = m.make(leaf, target, policy, key, *desk, *slot);
  lock.lock();
  m.desks.push_back(std::move(desk));
  Impl::Slot* const serving = place.serves;
  if (serving != nullptr && (!status.ok() || slot->entry.backend == jit::Backend::portable ||
                             serving->entry.backend != jit::Backend::portable)) {
    serving->effort = std::max(serving->effort, slot->effort);
    return serve(status.ok() ? slot->entry.origin : LeafOrigin::memory);
  }
  place.failure = status;
  if (!status.ok()) return status;
  slot->number = ++m.kept;
  place.made.push_back(std::move(slot));
  place.serves = place.made.back().get();
  return serve(place.serves->entry.origin);
}

}  // namespace lathe::runtime
