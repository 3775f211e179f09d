// What the tests of the x64 generator share: the levels, loading through the real loader, and running one program twice
// (portable and generated) on the same operands.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "jit/host/host_cpu.h"
#include "jit/image/exec_memory.h"
#include "tests/jit/llvm/llvm_test_util.h"

namespace lathe::jit::x64_test {
using namespace llvm_test;

inline bool can_run(const Shape& s) { return host_runs(s); }

// One loader for the whole test binary: images live as long as it does.
inline ExecMemory& loader() {
  static ExecMemory memory(ExecMode::automatic);
  return memory;
}

// Calls as the walker does: upper halves cleared afterwards.
__attribute__((target("avx"))) inline void call(ir::LeafFn entry, const ir::LeafArgs& args) {
  entry(&args);
  __builtin_ia32_vzeroupper();
}

// Compiles, loads and calls `p`; false: this host has no code for its level.
inline bool run_generated(const LeafProgram& p, const ir::LeafArgs& args) {
  if (p.level == ir::IsaLevel::portable || !backend_built(Backend::xbyak) || !can_run({p.level, p.lanes})) return false;
  const auto image = compile_xbyak(p);
  EXPECT_TRUE(image.ok()) << image.status().to_string();
  if (!image.ok()) return true;
  const auto code = loader().load(*image);
  EXPECT_TRUE(code.ok()) << code.status().to_string();
  if (code.ok()) call(code->entry, args);
  return true;
}

// A leaf with its operands: filled once, run by both executors on copies.
struct Operands {
  std::vector<std::vector<float>> data;  // per slot
  std::vector<int64_t> stride;           // bytes, all dims of all slots the same: [slot * kMaxLeafStrides + dim]
  ir::LeafArgs args{};                   // extents and segments; pointers are filled in by run()
};

// The operands after a run of `run`.
template <class Run>
std::vector<std::vector<float>> after(const Operands& in, Run&& run) {
  std::vector<std::vector<float>> data;
  std::vector<std::vector<float>> storage;
  ir::LeafArgs args = in.args;
  std::vector<float*> base;
  for (size_t s = 0; s < in.data.size(); ++s) {
    storage.emplace_back(in.data[s].size() + 32);
    auto address = reinterpret_cast<uintptr_t>(storage.back().data());
    base.push_back(reinterpret_cast<float*>((address + 63) & ~uintptr_t{63}));
    std::copy(in.data[s].begin(), in.data[s].end(), base.back());
    args.op[s].ptr = reinterpret_cast<char*>(base.back());
  }
  for (size_t i = 0; i < in.stride.size(); ++i)
    args.op[i / ir::kMaxLeafStrides].stride[i % ir::kMaxLeafStrides] = in.stride[i];
  run(args);
  for (size_t s = 0; s < in.data.size(); ++s) data.emplace_back(base[s], base[s] + in.data[s].size());
  return data;
}

// Compiles, loads and runs `p`; every slot must equal the portable executor's bit for bit. With `refused`, running out
// of registers is counted there instead of failing.
inline void expect_equal(const LeafProgram& p, const Operands& in, const std::string& what, int* refused = nullptr) {
  ASSERT_TRUE(verify_program(p).ok()) << what << ": " << verify_program(p).to_string() << "\n" << to_text(p);
  const auto image = compile_xbyak(p);
  if (refused && image.status().code() == ir::Code::kUNSUPPORTED) {
    ++*refused;
    return;
  }
  ASSERT_TRUE(image.ok()) << what << ": " << image.status().to_string() << "\n" << to_text(p);
  EXPECT_EQ(image->features & ~p.features(), 0u) << what << " uses " << feature_names(image->features);
  const auto code = loader().load(*image);
  ASSERT_TRUE(code.ok()) << what << ": " << code.status().to_string();
  const auto expected = after(in, [&](const ir::LeafArgs& args) { execute_portable(p, args); });
  const auto got = after(in, [&](const ir::LeafArgs& args) { call(code->entry, args); });
  for (size_t s = 0; s < expected.size(); ++s) {
    const int64_t at = difference(expected[s], got[s]);
    ASSERT_EQ(at, -1) << what << ": slot " << s << " element " << at << ": portable "
                      << expected[s][static_cast<size_t>(at)] << ", x64 " << got[s][static_cast<size_t>(at)] << "\n"
                      << to_text(p);
  }
}

// Disassembles with objdump; empty if there is none.
inline std::string disassemble(const std::vector<uint8_t>& text) {
  const std::string path = fmt::format("{}/lathe_lint_{}.bin", testing::TempDir(), getpid());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(text.data()), static_cast<std::streamsize>(text.size()));
  const std::string command =
      "objdump -D -b binary -m i386:x86-64 --no-show-raw-insn -M intel " + path + " 2>/dev/null";
  std::string out;
  if (std::FILE* pipe = popen(command.c_str(), "r")) {
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, n);
    if (pclose(pipe) != 0) out.clear();
  }
  std::remove(path.c_str());
  return out;
}

// What no leaf of this level may contain, of what the disassembly contains.
inline std::string forbidden_words(const std::string& disassembly, const Shape& shape) {
  std::vector<std::string> forbidden = {"(bad)",      "call",         "syscall", "sysenter",
                                        "vzeroupper", "jmp    QWORD", "{rn-sae}"};
  if (shape.level == ir::IsaLevel::avx2) {
    forbidden.insert(forbidden.end(), {"zmm", "{k", ",k1", "ymm16", "ymm31", "xmm16", "\tkmov", "{1to"});
  }
  if (shape.lanes == 8) forbidden.push_back("zmm");
  std::string found;
  for (const std::string& word : forbidden) {
    if (disassembly.find(word) != std::string::npos) found += word + " ";
  }
  return found;
}

}  // namespace lathe::jit::x64_test
