// The real NVRTC, if it is there.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "jit/cuda/compile/nvrtc.h"

namespace lathe::test {

// LATHE_TEST_NVRTC, else what scripts/setup_gpu.sh fetched, else what the library itself finds; empty: none.
inline std::string real_nvrtc_path() {
  if (const char* path = std::getenv("LATHE_TEST_NVRTC"); path != nullptr && *path != 0) return path;
  const std::filesystem::path folder = LATHE_SOURCE_DIR "/build/nvidia/lib";
  std::error_code none;
  for (const auto& f : std::filesystem::recursive_directory_iterator(folder, none)) {
    if (f.path().filename().string().rfind("libnvrtc.so.", 0) == 0) return f.path();
  }
  const auto found = jit::Nvrtc::open("");
  return found.ok() ? (*found)->file() : "";
}

// By what it makes of a text, which it has compiled once.
inline ir::Result<std::shared_ptr<const jit::Nvrtc>> kept_nvrtc() {
  const std::string path = real_nvrtc_path();
  if (path.empty()) return jit::Nvrtc::open("");
  setenv("LATHE_REAL_NVRTC", path.c_str(), 1);
  auto kept = jit::Nvrtc::open(LATHE_KEPT_NVRTC);
  if (kept.ok()) return kept;
  // Why the real one is of no use.
  const auto real = jit::Nvrtc::open(path);
  return real.ok() ? std::move(kept) : real;
}

// Tests that need it: they are skipped without.
template <class Test>
class WithNvrtc : public Test {
 protected:
  void SetUp() override {
    auto opened = kept_nvrtc();
    if (!opened.ok()) GTEST_SKIP() << opened.status().message() << "; scripts/setup_gpu.sh fetches it";
    nvrtc = std::move(*opened);
  }
  std::shared_ptr<const jit::Nvrtc> nvrtc;
};

}  // namespace lathe::test
