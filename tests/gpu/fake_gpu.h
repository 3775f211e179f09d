// The fakes as tests use them: contexts that open them, tensors in their memory.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/common/c_client.h"
#include "tests/gpu/fakes/fake_cuda.h"
#include "tests/gpu/fakes/fake_nvrtc.h"

namespace lathe::test {

// The driver's fake, of which there is one in a process.
struct FakeGpu {
  void* library = dlopen(LATHE_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  FakeCuda& state = *reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda"))();
  void* alloc(size_t bytes, int device) {
    return reinterpret_cast<void* (*)(size_t, int)>(dlsym(library, "fake_cuda_alloc"))(bytes, device);
  }
  void free(void* address) { reinterpret_cast<void (*)(void*)>(dlsym(library, "fake_cuda_free"))(address); }
};
inline FakeGpu& fake_gpu() {
  static FakeGpu& gpu = *new FakeGpu;
  return gpu;
}

// The compiler's fake.
inline FakeNvrtc& fake_compiler() {
  static void* library = dlopen(LATHE_FAKE_NVRTC, RTLD_NOW | RTLD_LOCAL);
  static FakeNvrtc& state = *reinterpret_cast<FakeNvrtc* (*)()>(dlsym(library, "fake_nvrtc"))();
  return state;
}

// store: a folder; empty: memory alone. nvrtc, cuda: libraries.
inline Owned<lathe_context> gpu_context(const std::string& store = {}, const char* nvrtc = LATHE_FAKE_NVRTC,
                                        const char* cuda = LATHE_FAKE_CUDA) {
  setenv("LATHE_CACHE", store.empty() ? "off" : "rw", 1);
  setenv("LATHE_CACHE_DIR", store.c_str(), 1);
  setenv("LATHE_NVRTC", nvrtc, 1);
  setenv("LATHE_CUDA", cuda, 1);
  lathe_context* out = nullptr;
  lathe_error e;
  EXPECT_EQ(lathe_context_create(nullptr, &out, &e), LATHE_STATUS_OK) << e.message;
  return Owned<lathe_context>(out);
}

inline lathe_status resolve_on(lathe_context* ctx, const lathe_graph* graph, uint32_t wait, Owned<lathe_kernel>& out,
                               lathe_kernel_info* info, lathe_error* e, uint32_t device = 1, uint32_t allowed = 0) {
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.wait = wait;
  policy.device = device;
  policy.allowed = allowed;
  lathe_kernel* kernel = nullptr;
  const lathe_status status = lathe_resolve(ctx, graph, &policy, &kernel, info, e);
  out.reset(kernel);
  return status;
}

// Floats in the memory of a fake device; behind them, or behind `room` more, nothing is mapped.
struct DeviceFloats {
  explicit DeviceFloats(std::vector<int64_t> dims, size_t room = 0, int device = 0) : shape(std::move(dims)) {
    for (const int64_t d : shape) count *= static_cast<size_t>(d);
    all = count + room;
    data = static_cast<float*>(fake_gpu().alloc(all * sizeof(float) + (all == 0), device));
    std::fill(data, data + all, -7.5f);
    tensor = {data, {2, device}, static_cast<int32_t>(shape.size()), {2, 32, 1}, shape.data(), nullptr, 0};
  }
  ~DeviceFloats() { fake_gpu().free(data); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const std::vector<float>& from) {
    std::copy(from.begin(), from.end(), data);
    return *this;
  }
  lathe_arg arg() const { return {&tensor, count * sizeof(float), 0, 0, 0}; }

  std::vector<int64_t> shape;
  size_t count = 1, all = 0;
  float* data = nullptr;
  lathe_tensor tensor;
};

inline uint64_t counter(const lathe_context* ctx, const char* name) {
  uint64_t value = 0;
  EXPECT_EQ(lathe_stats(ctx, name, &value, nullptr), LATHE_STATUS_OK) << name;
  return value;
}

// In a process that finds all in the store: no compiler was opened, although there is one.
inline void expect_nothing_compiled(const lathe_context* ctx) {
  EXPECT_EQ(counter(ctx, "compiled_nvrtc"), 0u);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) EXPECT_EQ(line.find("nvrtc"), std::string::npos) << line;
}

inline lathe_exec on_stream() {
  static int stream;
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.stream = &stream;
  return exec;
}

}  // namespace lathe::test
