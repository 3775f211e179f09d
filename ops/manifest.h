// The manifest of a workload: JSON Lines, one operator or fused group a line (docs/workloads.md,
// docs/workload.schema.json). Strict: unknown fields are errors, and messages name line and field.
// No files: callers read and write the text.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ops/graph.h"

namespace lathe::ops {

enum class CacheState : uint8_t { hot, cold };
const char* cache_name(CacheState cache);

struct Workload {
  std::string name;
  Graph graph;                // as written: finish() it before use
  std::vector<DimDesc> dims;  // the symbols, with ranges and hints, under the names of the manifest
  int threads = 1;
  CacheState cache = CacheState::hot;
  uint32_t allowed = 0;  // ir::NumericClass bits; 0: the default
  double weight = 1;
  bool operator==(const Workload&) const = default;
};

// Every line of the text; empty lines are skipped. Each graph is known to finish().
// "line 3: graph.tensors.w.dims[1]: expected a non-negative integer or a symbol".
ir::Result<std::vector<Workload>> parse_manifest(std::string_view text);
ir::Result<Workload> parse_workload(std::string_view line, int line_number = 1);

// One line, without its end. parse_workload(to_json_line(w)) equals w for what parse_workload gave;
// of other graphs, finished ones included, the line means the same.
std::string to_json_line(const Workload& workload);

// A workload of a graph made otherwise: its symbols collected.
Workload make_workload(Graph graph);

}  // namespace lathe::ops
