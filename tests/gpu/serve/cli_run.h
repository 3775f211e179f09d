// The command line under the fakes.
#pragma once
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/gpu/temp_store.h"
#include "tests/tools/process.h"

namespace lathe::test {

// One line of a manifest: a chain of N elements, of which `hint` are timed.
inline std::string chain_line(const std::string& name, const std::string& op, int hint) {
  return R"({"name":")" + name + R"(","graph":{"tensors":{"x":{"dtype":"f32","dims":["N"]}},"nodes":[{"op":")" + op +
         R"(","in":["x"],"out":"y"}],"outputs":["y"]},"dims":{"N":{"min":1,"max":65536,"hints":[{"value":)" +
         std::to_string(hint) + R"(,"weight":1}]}}})" + "\n";
}
// The same of a fixed size.
inline std::string fixed_line(const std::string& name, const std::string& op, int size) {
  return R"({"name":")" + name + R"(","graph":{"tensors":{"x":{"dtype":"f32","dims":[)" + std::to_string(size) +
         R"(]}},"nodes":[{"op":")" + op + R"(","in":["x"],"out":"y"}],"outputs":["y"]}})" + "\n";
}

struct Cli {
  TempStore folder;
  std::string manifest = folder.path / "work.jsonl", store = folder.path / "store";
  std::map<std::string, std::string> environment = {
      {"LATHE_CUDA", LATHE_FAKE_CUDA}, {"LATHE_NVRTC", LATHE_FAKE_NVRTC}, {"LATHE_WORKER", LATHE_WORKER_FILE}};
  explicit Cli(const std::string& lines) { std::ofstream(manifest) << lines; }
  tools::Finished run(const std::string& verb, std::vector<std::string> more, bool with_manifest = true) const {
    std::vector<std::string> args = {verb};
    if (with_manifest) args.push_back(manifest);
    args.insert(args.end(), {"--store", store});
    args.insert(args.end(), more.begin(), more.end());
    return tools::lathe(args, environment);
  }
};

}  // namespace lathe::test
