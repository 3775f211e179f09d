// Runs the built command line and collects what it said. For tests of tools.
#pragma once
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lathe::tools {

struct Finished {
  int code = -1;  // -1: by a signal
  std::string out, err;
  std::vector<nlohmann::json> lines;  // of out, where they parse
  // The last line; null if there is none or it is no summary.
  nlohmann::json summary() const;
  std::vector<nlohmann::json> rows() const;
};

// environment: added to a clean one. on_output: called with what was written to the standard output so far and the
// process's id.
using OnOutput = std::function<void(const std::string& out, int pid)>;
Finished lathe(const std::vector<std::string>& args, const std::map<std::string, std::string>& environment = {},
               const OnOutput& on_output = {});

// A directory of its own, removed afterwards.
struct TempDir {
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string path;
};

}  // namespace lathe::tools
