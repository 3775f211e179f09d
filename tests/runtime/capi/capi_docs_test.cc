// docs/stats.md and docs/operators.md list what the tables have: every counter with its text, every operator with its
// attributes.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "ops/family.h"
#include "runtime/base/stats.h"

namespace lathe::runtime {
namespace {

std::string read(const char* name) {
  std::ifstream in(std::string(LATHE_SOURCE_DIR) + "/docs/" + name);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(CapiDocs, EveryCounterIsListed) {
  const std::string text = read("stats.md");
#define LATHE_STAT(id, help) EXPECT_NE(text.find("| `" #id "` | " help " |"), std::string::npos) << #id;
#include "runtime/base/stats.def"
#undef LATHE_STAT
#define LATHE_MISS(id, meaning) EXPECT_NE(text.find("| `misses_" #id "` | " meaning " |"), std::string::npos) << #id;
#include "runtime/base/miss_reasons.def"
#undef LATHE_MISS
}

TEST(CapiDocs, EveryOperatorIsListedWithItsAttributes) {
  const std::string text = read("operators.md");
  for (const ops::OpRow& row : ops::op_rows()) {
    const size_t at = text.find(std::string("| `") + row.name + "` |");
    ASSERT_NE(at, std::string::npos) << row.name;
    const size_t cells = text.find('|', at + 1);  // behind the name, which may be an attribute's as well
    const std::string line = text.substr(cells, text.find('\n', at) - cells);
    EXPECT_NE(line.find(row.family->name.get()), std::string::npos) << line;
#define LATHE_OP_ATTR(id, type, value) \
  EXPECT_EQ((row.attrs & ops::kHas_##id) != 0, line.find("`" #id "`") != std::string::npos) << row.name << " " << #id;
#include "ops/op_attrs.def"
#undef LATHE_OP_ATTR
  }
#define LATHE_OP_ATTR(id, type, value) EXPECT_NE(text.find("\n| `" #id "` |"), std::string::npos) << #id;
#include "ops/op_attrs.def"
#undef LATHE_OP_ATTR
}

}  // namespace
}  // namespace lathe::runtime
