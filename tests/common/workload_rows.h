// The rows of a workload that ships, by its name in bench/workloads.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ops/manifest.h"

namespace lathe::test {

// None, and a failure that says why, if the file is not there or not as it should be.
inline std::vector<ops::Workload> workload_rows(const std::string& name) {
  std::ifstream in(fmt::format("{}/bench/workloads/{}.jsonl", LATHE_SOURCE_DIR, name));
  std::ostringstream text;
  text << in.rdbuf();
  auto items = ops::parse_manifest(text.str());
  EXPECT_TRUE(items.ok() && !items->empty()) << name << ": " << items.status().to_string();
  return items.ok() ? std::move(*items) : std::vector<ops::Workload>();
}

}  // namespace lathe::test
