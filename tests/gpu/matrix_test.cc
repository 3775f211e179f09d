// The compile matrix: every Schedule that is proposed, of every form, for every GPU of the table, through the real
// compiler, without spills or warnings; and the reader of cubins against NVIDIA's disassembler. Skipped where they are
// not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <regex>

#include "ir/analysis/analysis.h"
#include "jit/cuda/compile/nvrtc.h"
#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "search/cut/launch_cut.h"
#include "search/gpu/choice/device_candidates.h"
#include "tests/gpu/chains.h"
#include "tests/gpu/counted_kernels.h"
#include "tests/gpu/temp_store.h"
#include "tests/gpu/tensor/tensor_products.h"

namespace lathe::test {
namespace {

struct Form {
  const char* text;
  ir::SymbolValues dims;
  bool wide;  // all of it goes by 16 bytes where it is whole
};
const Form kForms[] = {{kFlat, {{"N", 100000}}, true},
                       {kRows, {{"M", 1000}}, true},
                       {kTurned, {{"A", 100}, {"B", 100}, {"C", 100}}, false}};

// The kernels of every candidate, by leaf.
std::map<std::string, bool> leaves_of(const Form& form, const ir::GpuTarget& target) {
  std::map<std::string, bool> out;
  const search::GeneralKernel general = search::general_kernel(kernel_of(form.text));
  ir::SymbolValues sizes;
  for (const auto& [name, size] : general.sizes) sizes.emplace_back(name, ir::evaluate(size, form.dims).value());
  const auto ranked = search::device_candidates(general, sizes, target, 9);
  EXPECT_TRUE(ranked.ok()) << ranked.status().to_string();
  for (const search::Scheduled& s : *ranked) {
    const auto cut = search::cut_launches(s.kernel);
    EXPECT_TRUE(cut.ok()) << cut.status().to_string();
    for (const ir::Leaf& leaf : cut->leaves) out[leaf.text] = form.wide;
  }
  return out;
}

class CompileMatrix : public CountedKernels<testing::Test> {
 protected:
  ir::Result<jit::CompiledKernel> compile(const std::string& leaf, const ir::GpuTarget& target) const {
    const auto program = jit::lower_device({kernel_of(leaf), leaf});
    if (!program.ok()) return program.status();
    return nvrtc->compile(jit::cuda_text(*program, "lathe_leaf"), "lathe_leaf", target);
  }
};

TEST_F(CompileMatrix, EveryCandidateOnEveryGpu) {
  for (const std::string_view gpu : ir::gpu_target_names()) {
    const ir::GpuTarget target = *ir::find_gpu_target(gpu);
    for (const Form& form : kForms) {
      for (const auto& [leaf, wide] : leaves_of(form, target)) {
        const auto made = compiled({kernel_of(leaf), leaf}, target, leaf);
        if (made) expect_predicted(made->stores.bits128 > 0 && (!wide || made->loads.bits128 > 0), leaf);
      }
    }
  }
  EXPECT_GE(kernels(), 24);
}

std::string disassembler() {
  std::error_code none;
  for (const auto& f : std::filesystem::recursive_directory_iterator(LATHE_SOURCE_DIR "/build/nvidia/lib", none)) {
    if (f.path().filename() == "nvdisasm") return f.path();
  }
  return {};
}

// What the disassembler makes of a cubin.
jit::CubinInfo disassembled(const std::string& tool, const std::string& cubin) {
  const TempStore folder;
  const std::string file = folder.path / "kernel.cubin";
  std::ofstream(file, std::ios::binary) << cubin;
  jit::CubinInfo out;
  FILE* in = popen((tool + " -c " + file + " 2>&1").c_str(), "r");
  const std::regex instruction(R"(/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ +|@!?U?PT +)?([A-Z0-9_]+)([A-Z0-9_.]*))");
  for (char line[4096]; std::fgets(line, sizeof line, in) != nullptr;) {
    std::cmatch m;
    if (!std::regex_search(line, m, instruction)) continue;
    ++out.instructions;
    const std::string op = m[1], modifiers = m[2];
    if (op == "LDL" || op == "STL") ++out.local;
    if (op == "HMMA" || op == "IMMA") ++out.mma;
    if (op == "HGMMA") ++out.group_mma;
    if (op == "LDSM") ++out.matrix_loads;
    if (op == "UTMALDG") ++out.box_copies;
    if (op == "SYNCS") ++out.rings;
    if (op == "USETMAXREG") ++out.register_changes;
    if (op != "LDG" && op != "STG") continue;
    jit::AccessCounts& counts = op == "LDG" ? out.loads : out.stores;
    ++(modifiers.find(".128") != std::string::npos  ? counts.bits128
       : modifiers.find(".64") != std::string::npos ? counts.bits64
                                                    : counts.narrow);
  }
  pclose(in);
  return out;
}

TEST_F(CompileMatrix, TheReaderAgreesWithTheDisassembler) {
  const std::string tool = disassembler();
  if (tool.empty()) GTEST_SKIP() << "no nvdisasm; scripts/setup_gpu.sh fetches it";
  int compared = 0;
  for (const char* gpu : {"a100", "h200"}) {
    const ir::GpuTarget target = *ir::find_gpu_target(gpu);
    std::vector<Form> forms(std::begin(kForms), std::end(kForms));
    const std::string product = tensor_product("bf16", false, false);
    forms.push_back({product.c_str(), {{"M", 4096}, {"N", 4096}, {"K", 4096}}, true});
    for (const Form& form : forms) {
      const std::string leaf = leaves_of(form, target).begin()->first;
      const auto made = compile(leaf, target);
      ASSERT_TRUE(made.ok()) << made.status().message();
      const jit::CubinInfo theirs = disassembled(tool, made->cubin), ours = made->info;
      EXPECT_EQ(ours.instructions, theirs.instructions) << gpu;
      EXPECT_EQ(ours.local, theirs.local);
      EXPECT_EQ(ours.mma, theirs.mma);
      EXPECT_EQ(ours.group_mma, theirs.group_mma);
      EXPECT_EQ(ours.mma + ours.group_mma > 0, form.text == product);
      EXPECT_EQ(ours.matrix_loads, theirs.matrix_loads);
      EXPECT_EQ(ours.box_copies, theirs.box_copies);
      EXPECT_EQ(ours.box_copies > 0, ours.group_mma > 0);
      EXPECT_EQ(ours.rings, theirs.rings);
      EXPECT_EQ(ours.register_changes, theirs.register_changes);
      for (const auto& [a, b] : {std::pair(ours.loads, theirs.loads), std::pair(ours.stores, theirs.stores)}) {
        EXPECT_EQ(a.bits128, b.bits128) << gpu;
        EXPECT_EQ(a.bits64, b.bits64) << gpu;
        EXPECT_EQ(a.narrow, b.narrow) << gpu;
      }
      ++compared;
    }
  }
  RecordProperty("disassembled", compared);
}

}  // namespace
}  // namespace lathe::test
