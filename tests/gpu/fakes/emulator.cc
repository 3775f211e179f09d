// See emulator.h.
#include "tests/gpu/fakes/emulator.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace lathe::test {

bool EmulatedKernel::open(std::string_view code, const std::string& name) {
  const int file = memfd_create("lathe_fake_kernel", MFD_CLOEXEC);
  if (file < 0) return false;
  const bool written = write(file, code.data(), code.size()) == static_cast<ssize_t>(code.size());
  void* library = written ? dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  // The file stays open: a later one under the same number would be taken for it.
  if (library == nullptr) return false;
  const auto find = [&](const std::string& symbol) { return dlsym(library, symbol.c_str()); };
  entry_ = reinterpret_cast<void (*)(const void*)>(find(name));
  block_ = static_cast<long long*>(find("lt_block_number"));
  thread_ = static_cast<long long*>(find("lt_thread_number"));
  accesses_ = static_cast<long long*>(find("lt_accesses"));
  misaligned_ = static_cast<int*>(find("lt_misaligned"));
  const auto* threads = static_cast<const int*>(find(name + "_threads"));
  const auto* bytes = static_cast<const unsigned long*>(find(name + "_args"));
  if (entry_ == nullptr || block_ == nullptr || threads == nullptr || bytes == nullptr) return false;
  threads_ = *threads;
  arg_bytes_ = *bytes;
  return true;
}

bool EmulatedKernel::run(unsigned blocks, unsigned threads, const void* args, Order order, Accesses& accesses) const {
  std::vector<uint64_t> all(static_cast<size_t>(blocks) * threads);
  std::iota(all.begin(), all.end(), uint64_t{0});
  if (order == Order::backward) std::reverse(all.begin(), all.end());
  if (order == Order::shuffled) std::shuffle(all.begin(), all.end(), std::mt19937_64(blocks));
  std::fill(accesses_, accesses_ + 6, 0);
  *misaligned_ = 0;
  for (const uint64_t i : all) {
    *block_ = static_cast<long long>(i / threads);
    *thread_ = static_cast<long long>(i % threads);
    entry_(args);
  }
  for (int i = 0; i < 3; ++i) {
    accesses.loads[i] += accesses_[i];
    accesses.stores[i] += accesses_[3 + i];
  }
  return *misaligned_ == 0;
}

}  // namespace lathe::test
