// See dump.h.
#include "runtime/compile/dump.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <system_error>

#include "ir/analysis/analysis.h"
#include "ir/base/file_limit.h"
#include "ir/core/text_form.h"
#include "runtime/walk/nest_text.h"

namespace lathe::runtime {

namespace {

std::filesystem::path folder(const std::string& dir, const std::string& name) {
  std::error_code ignored;
  const std::filesystem::path path = std::filesystem::path(dir) / name;
  std::filesystem::create_directories(path, ignored);
  return path;
}

void write(const std::filesystem::path& path, std::string_view text) {
  const ir::FileLimitGuard guard;
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

}  // namespace

bool dump_wanted(const std::string& filter, const std::string& name) {
  if (filter.empty()) return true;
  try {
    return std::regex_search(name, std::regex(filter));
  } catch (const std::regex_error&) {
    return true;
  }
}

void dump_kernel(const std::string& dir, const ir::Kernel& naive, const search::Schedule& schedule,
                 const ir::CutKernel& cut) {
  const std::string text = ir::print(naive), moves = search::to_text(schedule);
  const uint64_t id = ir::hash_text(text + moves);
  const std::filesystem::path to = folder(dir, fmt::format("{}-{:08x}", naive.name, id & 0xffffffff));
  write(to / "naive.lir", text);
  write(to / "schedule.txt", moves);
  write(to / "nest.txt", nest_text(cut));
  std::vector<ir::Kernel> steps;
  if (!search::replay(naive, schedule, &steps).ok()) return;
  for (size_t i = 0; i < steps.size(); ++i) {
    write(to / fmt::format("step_{:02}_{}.lir", i, schedule.moves[i].name),
          fmt::format("; {}\n{}", search::to_text(schedule.moves[i]), ir::print(steps[i])));
  }
  for (size_t i = 0; i < cut.leaves.size(); ++i) write(to / fmt::format("leaf_{}.lir", i), cut.leaves[i].text);
}

void dump_leaf(const std::string& dir, const jit::LeafProgram& program, const jit::CodeImage& image,
               const std::string& plugin_dir) {
  const std::filesystem::path to = folder(dir, image.symbol);
  write(to / "program.txt", jit::to_text(program));
  write(to / "code.bin", std::string_view(reinterpret_cast<const char*>(image.code.data()), image.code.size()));
  if (ir::Result<std::string> s = jit::llvm_ir_text(program, plugin_dir); s.ok()) write(to / "llvm.ll", *s);
  if (ir::Result<std::string> s = jit::llvm_disassemble(image, plugin_dir); s.ok()) write(to / "code.s", *s);
}

}  // namespace lathe::runtime
