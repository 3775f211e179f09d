// Leaves of a context: see leaf_cache.h.
//
//   get(leaf) = memory | stored image (xbyak's, then LLVM's) | xbyak | LLVM | portable executor
#include "runtime/leaf_cache.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory_resource>
#include <mutex>
#include <vector>

#include "jit/host_cpu.h"
#include "jit/image.h"
#include "jit/image_lint.h"
#include "jit/lower.h"
#include "jit/portable_leaves.h"
#include "jit/profiler_map.h"
#include "runtime/dump.h"
#include "runtime/key.h"
#include "runtime/stats.h"
#include "runtime/store.h"

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
  fields.lanes = target.lanes;
  fields.vector_registers = target.vector_registers;
  return leaf_key(fields).hash;
}

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
  enum class State : uint8_t { building, ready, failed };
  // Memory for a leaf in the making, kept for the next one. Written to at once: the system gives it now.
  using Desk = std::array<std::byte, size_t{512} << 10>;
  struct Slot {
    State state = State::building;
    LeafEntry entry;
    Status failure;
    std::unique_ptr<jit::PreparedProgram> program;
  };

  Impl(const LeafCacheOptions& o, Store* s, Stats* t) : options(o), memory(o.exec_mode, o.code_bytes), profiler(profiler_bits(o.profile)), store(s), stats(t) {
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

  void publish() {
    std::vector<std::pair<std::string, jit::CodeImage>> images;
    {
      std::lock_guard lock(mutex);
      images.swap(unpublished);
    }
    if (store == nullptr || images.empty()) return;
    (void)store->put({ObjectKind::k_env, "", code.hash}, code.text);
    for (const auto& [key, image] : images) {
      Result<std::vector<uint8_t>> bytes = jit::write_image({image, key, code.hash});
      if (!bytes.ok()) continue;
      (void)store->put(image_key(key), std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
    }
  }

  // *why: set where there is code, and no memory for it.
  Status compile(const jit::LeafProgram& program, jit::Backend backend, const std::string& key, bool keep, Slot& slot, MissReason* why) {
    Result<jit::CodeImage> image = backend == jit::Backend::xbyak ? jit::compile_xbyak(program, true)
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
      unpublished.emplace_back(key, std::move(*image));
    }
    return {};
  }

  bool makes_code(const ir::Target& target) const { return target.level != ir::IsaLevel::portable && options.exec_mode != jit::ExecMode::off; }

  // key: of the leaf for the forced backend, else for xbyak.
  Status make(const ir::Leaf& leaf, const ir::Target& target, const LeafPolicy& policy, const std::string& key, Desk& desk,
              Slot& slot) {
    const auto key_for = [&](jit::Backend b) {
      return b == (policy.forced ? policy.backend : jit::Backend::xbyak) ? key : key_of(leaf, target, b);
    };
    const bool native = makes_code(target);
    constexpr jit::Backend kNative[] = {jit::Backend::xbyak, jit::Backend::llvm};
    if (native && !policy.forced) {
      for (jit::Backend b : kNative) {
        if (store == nullptr) break;
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
      const bool wanted = policy.forced ? policy.backend == b : policy.generate && (b != jit::Backend::llvm || (policy.llvm && options.llvm));
      if (!native || !wanted) continue;
      slot.entry.key = key_for(b);
      refused = compile(program, b, slot.entry.key, !policy.forced, slot, &why);
      if (refused.ok()) return {};
    }
    if (native && !policy.forced && policy.generate) miss(why);
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
  std::condition_variable made;
  std::map<std::string, std::unique_ptr<Slot>> slots;
  std::vector<std::unique_ptr<Desk>> desks;  // not in use
  std::vector<std::pair<std::string, jit::CodeImage>> unpublished;
};

LeafCache::LeafCache(const LeafCacheOptions& options, Store* store, Stats* stats)
    : impl_(std::make_unique<Impl>(options, store, stats)) {}
LeafCache::~LeafCache() { publish(); }

const LeafCacheOptions& LeafCache::options() const { return impl_->options; }
bool LeafCache::native(const ir::Target& target) const { return impl_->makes_code(target); }
void LeafCache::set_sealed(bool sealed) { impl_->sealed.store(sealed, std::memory_order_relaxed); }
void LeafCache::publish() { impl_->publish(); }

Result<const LeafEntry*> LeafCache::get(const ir::Leaf& leaf, const ir::Target& target, const LeafPolicy& policy,
                                        LeafOrigin* origin) {
  const std::string key = key_of(leaf, target, policy.forced ? policy.backend : jit::Backend::xbyak);
  const std::string id = policy.forced ? key + " forced" : key;
  Impl& m = *impl_;
  std::unique_lock lock(m.mutex);
  std::unique_ptr<Impl::Slot>& place = m.slots[id];
  // A refusal is not final: once generating is allowed, or the portable executor will do, it is tried again.
  if (place && place->state != Impl::State::building) {
    const bool retry = place->state == Impl::State::failed && (policy.generate || policy.portable);
    if (!retry) {
      if (place->state == Impl::State::failed) return place->failure;
      if (origin != nullptr) *origin = LeafOrigin::memory;
      return &place->entry;
    }
    place.reset();
  }
  if (place) {
    m.made.wait(lock, [&] { return place->state != Impl::State::building; });
    if (place->state == Impl::State::failed) return place->failure;
    if (origin != nullptr) *origin = LeafOrigin::memory;
    return &place->entry;
  }
  place = std::make_unique<Impl::Slot>();
  Impl::Slot& slot = *place;
  if (m.desks.empty()) m.desks.push_back(std::make_unique<Impl::Desk>());
  std::unique_ptr<Impl::Desk> desk = std::move(m.desks.back());
  m.desks.pop_back();
  lock.unlock();
  const Status status = m.make(leaf, target, policy, key, *desk, slot);
  lock.lock();
  m.desks.push_back(std::move(desk));
  slot.state = status.ok() ? Impl::State::ready : Impl::State::failed;
  slot.failure = status;
  m.made.notify_all();
  if (!status.ok()) return status;
  if (origin != nullptr) *origin = slot.entry.origin;
  return &slot.entry;
}

}  // namespace lathe::runtime
