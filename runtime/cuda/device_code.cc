// See device_code.h.
#include "runtime/cuda/device_code.h"

#include <charconv>

#include "ir/base/hash.h"
#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "runtime/store/key.h"

namespace lathe::runtime {

using ir::Code;
using ir::invalid;
using ir::Result;
using ir::Status;

namespace {

constexpr char kTitle[] = "device code 3";

Identity environment(const ir::GpuTarget& target) {
  DeviceCodeFields f;
  f.text_epoch = jit::kCudaTextEpoch;
  const std::string& prelude = jit::device_prelude();
  f.prelude = ir::content_hash(prelude.data(), prelude.size());
  f.compiler_options = jit::nvrtc_options();
  f.architecture = target.architecture;
  return device_code_environment(f);
}

std::string key_of(const ir::Leaf& leaf, const ir::GpuTarget& target) {
  LeafFields f;
  f.text = leaf.text;
  f.backend = "nvrtc";
  f.isa = target.architecture;
  return leaf_key(f).hash;
}

int major_of(const std::string& driver) {
  int major = 0;
  (void)std::from_chars(driver.data(), driver.data() + driver.size(), major);
  return major;
}
// Whether a driver of that version runs what a compiler of that major makes: cubins serve within a major, and later.
bool takes(const std::string& driver, int compiler_major) {
  return major_of(driver) == 0 || compiler_major <= major_of(driver);
}

// "name: value", the next line.
Result<std::string> take(std::string_view& bytes, std::string_view name) {
  const size_t end = bytes.find('\n');
  const std::string_view line = bytes.substr(0, end);
  if (end == std::string_view::npos || line.substr(0, name.size()) != name || line.substr(name.size(), 2) != ": ")
    return invalid("expected `{}: ...`", name);
  bytes.remove_prefix(end + 1);
  return std::string(line.substr(name.size() + 2));
}

Result<int64_t> take_number(std::string_view& bytes, std::string_view name) {
  LATHE_ASSIGN(const std::string text, take(bytes, name));
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || value < 0) return invalid("expected a number after `{}`", name);
  return value;
}

}  // namespace

std::string write_device_code(const DeviceCode& code, const ir::GpuTarget& target) {
  return fmt::format(
             "{}\nkernel: {}\narchitecture: {}\nthreads: {}\ncluster: {}\nregisters: {}\nshared: {}\n"
             "compiler: {}\nbytes: {}\n",
             kTitle, code.kernel, target.architecture, code.threads, code.cluster, code.registers, code.shared,
             code.compiler, code.cubin.size()) +
         code.cubin;
}

Result<DeviceCode> parse_device_code(std::string_view bytes, const ir::GpuTarget& target) {
  const std::string title = std::string(kTitle) + "\n";
  if (bytes.substr(0, title.size()) != title) return invalid("expected `{}`", kTitle);
  bytes.remove_prefix(title.size());
  DeviceCode out;
  LATHE_ASSIGN(out.kernel, take(bytes, "kernel"));
  LATHE_ASSIGN(const std::string architecture, take(bytes, "architecture"));
  if (architecture != target.architecture)
    return invalid("made for {}, expected {}", architecture, target.architecture);
  LATHE_ASSIGN(const int64_t threads, take_number(bytes, "threads"));
  LATHE_ASSIGN(const int64_t cluster, take_number(bytes, "cluster"));
  LATHE_ASSIGN(const int64_t registers, take_number(bytes, "registers"));
  LATHE_ASSIGN(const int64_t shared, take_number(bytes, "shared"));
  LATHE_ASSIGN(out.compiler, take(bytes, "compiler"));
  LATHE_ASSIGN(const int64_t size, take_number(bytes, "bytes"));
  if (threads < 1 || threads > ir::kMaxBlockThreads) return invalid("{} threads", threads);
  if (static_cast<uint64_t>(size) != bytes.size()) return invalid("{} bytes of code, expected {}", bytes.size(), size);
  if (shared > ir::most_shared(target)) return invalid("{} bytes of shared memory", shared);
  if (cluster < 1 || cluster > (ir::has_clusters(target) ? ir::kClusterBlocks : 1))
    return invalid("clusters of {} blocks", cluster);
  out.threads = static_cast<int>(threads);
  out.cluster = static_cast<int>(cluster);
  out.shared = static_cast<int>(shared);
  out.registers = static_cast<int>(registers);
  out.cubin = bytes;
  LATHE_ASSIGN(const jit::CubinInfo info, jit::read_cubin(out.cubin, out.kernel));
  if (info.sm != target.sm) return invalid("a cubin for {}, expected {}", info.sm, target.sm);
  if (info.cluster != out.cluster) return invalid("clusters of {} blocks, expected {}", info.cluster, out.cluster);
  if (info.registers != out.registers) return invalid("{} registers, expected {}", info.registers, out.registers);
  return out;
}

Result<std::shared_ptr<const jit::Nvrtc>> DeviceCodes::compiler(const std::string& driver) {
  {
    const std::lock_guard lock(mutex_);
    if (compiler_ != nullptr && takes(driver, compiler_->major())) return compiler_;
  }
  LATHE_ASSIGN(std::shared_ptr<const jit::Nvrtc> opened, jit::Nvrtc::open(compiler_path_, major_of(driver)));
  if (!takes(driver, opened->major()))
    return ir::unsupported("{} makes code for drivers of CUDA {}, the driver is of CUDA {}; {}", opened->version(),
                           opened->major(), driver, opened->file());
  const std::lock_guard lock(mutex_);
  compiler_ = opened;
  return opened;
}

std::shared_ptr<const DeviceCode> DeviceCodes::from_store(const ObjectKey& key, const ir::GpuTarget& target,
                                                          const DevicePolicy& policy) {
  const Lookup found = store_->find(key);
  if (!found.found) return nullptr;
  Result<DeviceCode> code = parse_device_code(found.bytes, target);
  if (!code.ok()) {
    store_->reject(key, found, MissReason::k_corrupt);
    return nullptr;
  }
  if (!takes(policy.driver, jit::nvrtc_major(code->compiler)) || !policy.takes_compiler(code->compiler)) {
    store_->reject(key, found, MissReason::k_environment);
    return nullptr;
  }
  code->key = key.name;
  return std::make_shared<const DeviceCode>(std::move(*code));
}

Result<DeviceCode> DeviceCodes::compile(const ir::Leaf& leaf, const ir::GpuTarget& target, const DevicePolicy& policy,
                                        const std::string& key) {
  LATHE_ASSIGN(const jit::DeviceProgram program, jit::lower_device(leaf));
  LATHE_ASSIGN(const std::shared_ptr<const jit::Nvrtc> nvrtc, compiler(policy.driver));
  DeviceCode out;
  out.key = key;
  out.kernel = "lathe_" + key.substr(0, 12);
  out.threads = program.threads;
  out.cluster = program.cluster;
  out.shared = jit::dynamic_shared(program);
  Result<jit::CompiledKernel> made = nvrtc->compile(program, out.kernel, target, policy.limits);
  if (!made.ok()) {
    const Code code = made.status().code();
    const bool ended = code == Code::kTIMEOUT || code == Code::kCANCELLED;
    if (stats_ != nullptr) stats_->add(ended ? Stat::k_compiles_ended : Stat::k_refusals);
    return made.status();
  }
  if (stats_ != nullptr) stats_->add(Stat::k_compiled_nvrtc);
  if (stats_ != nullptr && policy.behind) stats_->add(Stat::k_compiled_behind);
  out.registers = made->info.registers;
  out.compiler = made->compiler;
  out.cubin = std::move(made->cubin);
  return out;
}

Result<std::shared_ptr<const DeviceCode>> DeviceCodes::get(const ir::Leaf& leaf, const ir::GpuTarget& target,
                                                           const DevicePolicy& policy, LeafOrigin* origin) {
  const Identity env = environment(target);
  const ObjectKey key{ObjectKind::k_cubin, env.hash, key_of(leaf, target)};
  const std::string id = key.sub + "/" + key.name;
  {
    const std::lock_guard lock(mutex_);
    const auto known = made_.find(id);
    *origin = LeafOrigin::memory;
    if (known != made_.end() && policy.takes_compiler(known->second->compiler)) return known->second;
  }
  std::shared_ptr<const DeviceCode> code = store_ == nullptr ? nullptr : from_store(key, target, policy);
  *origin = LeafOrigin::store;
  if (code == nullptr) {
    if (!policy.compile)
      return ir::make_error(Code::kMISS, "code for {} is not stored, and compiling is not allowed",
                            target.architecture);
    LATHE_ASSIGN(DeviceCode made, compile(leaf, target, policy, key.name));
    *origin = LeafOrigin::compiled;
    if (store_ != nullptr) {
      (void)store_->put({ObjectKind::k_env, "", env.hash}, env.text);
      (void)store_->put(key, write_device_code(made, target));
    }
    code = std::make_shared<const DeviceCode>(std::move(made));
  }
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = made_.try_emplace(id, code);
  if (!fresh && !policy.takes_compiler(at->second->compiler)) at->second = std::move(code);
  return at->second;
}

void DeviceCodes::reject(const DeviceCode& code, const ir::GpuTarget& target) {
  const ObjectKey key{ObjectKind::k_cubin, environment(target).hash, code.key};
  {
    const std::lock_guard lock(mutex_);
    made_.erase(key.sub + "/" + key.name);
  }
  if (store_ != nullptr) store_->reject(key, {}, MissReason::k_corrupt);
}

}  // namespace lathe::runtime
