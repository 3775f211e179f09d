// Floors: ir < {ops, search, jit} < runtime < tools. No include goes up or sideways, the basement of ir knows nothing
// of Kernels, and each foreign library stays where it belongs. The rules are functions over files, so the test also
// shows that they object.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <set>

#include "tests/source_tree.h"

namespace lathe::house {
namespace {

using Complaints = std::vector<std::string>;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::map<std::string, std::set<std::string>>& allowed() {
  static const std::map<std::string, std::set<std::string>> kAllowed = {
      {"ir", {"ir"}},
      {"ops", {"ir", "ops"}},
      {"search", {"ir", "search"}},
      {"jit", {"ir", "jit"}},
      {"runtime", {"include", "ir", "ops", "search", "jit", "runtime"}},
      {"tools", {"include", "ir", "ops", "search", "jit", "runtime", "tools"}},
      {"bench",
       {"include", "ir", "ops", "search", "jit", "runtime", "tools", "bench", "tests/common/machines.h",
        "tests/worker/plant.h"}},
      {"bench/decoder_loop", {"include/lathe.h", "bench"}},  // an engine on the C ABI
      {"include", {"lathe.h"}},
      {"examples", {"example.h"}},
  };
  return kAllowed;
}

// Rooms are the folders of a floor. What a room may include of its own floor, besides itself; the floors below are open
// to all.
const std::map<std::string, std::set<std::string>>& rooms() {
  static const std::map<std::string, std::set<std::string>> kRooms = {
      {"ir/base", {}},
      {"ir/core", {"base"}},
      {"ir/analysis", {"base", "core"}},
      {"ir/meaning", {"base", "core", "analysis"}},
      {"ir", {"base", "core"}},
      {"ops/families", {}},
      {"ops", {}},
      {"search/moves", {}},
      {"search/moves/softmax", {"moves"}},
      {"search/moves/products", {"moves"}},
      {"search/moves/numbers", {"moves"}},
      {"search/moves/rows", {"moves"}},
      {"search/cut", {"moves"}},
      {"search/sketches", {"moves", "cut"}},
      {"search/gpu", {"moves"}},
      {"search/gpu/rows", {"moves", "gpu"}},
      {"search/gpu/tensor", {"moves", "gpu", "gpu/weights"}},
      {"search/gpu/weights", {"moves", "gpu"}},
      {"search/gpu/attention", {"moves", "gpu", "attention"}},
      {"search/gpu/choice", {"moves", "gpu", "gpu/attention", "gpu/rows", "gpu/tensor", "gpu/weights"}},
      {"search/attention", {"moves", "cut", "sketches"}},
      {"search/quantised", {"moves", "cut", "sketches"}},
      {"search/rows", {"moves", "sketches"}},
      {"search/model", {"moves", "cut", "sketches"}},
      {"search/strategy", {"moves", "cut", "sketches", "model"}},
      {"jit/program", {}},
      {"jit/lower", {"program"}},
      {"jit/llvm", {"program"}},
      {"jit/host", {"program", "llvm"}},
      {"jit/image", {"program", "host"}},
      {"jit/x64", {"program", "host", "image"}},
      {"jit/cuda", {}},
      {"jit/cuda/text", {"cuda"}},
      {"jit/cuda/passes", {"cuda"}},
      {"jit/cuda/lower", {"cuda", "cuda/passes"}},
      {"jit/cuda/compile", {"cuda", "cuda/text"}},
      {"runtime/base", {}},
      {"runtime/walk/x86", {}},
      {"runtime/walk", {"base", "walk/x86"}},
      {"runtime/store", {"base"}},
      {"runtime/compile", {"base", "walk", "store"}},
      {"runtime/cuda", {"base", "walk", "store", "compile"}},
      {"runtime/cuda/measure", {"base", "walk", "store", "compile", "oracle", "measure", "cuda"}},
      {"runtime/oracle", {"base", "walk", "compile"}},
      {"runtime/measure", {"base", "walk", "store", "compile", "oracle"}},
      {"runtime/serve", {"base", "walk", "store", "compile", "cuda", "measure"}},
      {"runtime/bench", {"base", "walk", "store", "compile", "cuda", "oracle", "measure", "serve"}},
      {"runtime/tune", {"base", "walk", "store", "compile", "oracle", "measure", "serve", "bench"}},
      {"runtime/tune/device",
       {"base", "walk", "store", "compile", "cuda", "cuda/measure", "oracle", "measure", "serve", "tune"}},
      {"runtime/live", {"base", "walk", "store", "compile", "oracle", "measure", "serve", "bench", "tune"}},
      {"runtime/capi", {"base", "walk", "store", "compile", "cuda", "measure", "serve", "tune", "tune/device", "live"}},
  };
  return kRooms;
}
constexpr size_t kMostFiles = 25;  // of code in a folder

const std::set<std::string> kBasement = {
    "ir/base/status", "ir/base/errors",  "ir/base/options",      "ir/base/dtype",       "ir/base/dtypes",
    "ir/base/target", "ir/base/targets", "ir/base/cpu_features", "ir/base/target_text", "ir/leaf_abi"};

std::string folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string stem(const std::string& path) { return path.substr(0, path.rfind('.')); }

// Targets of the includes of one kind: quotes or angle brackets.
std::vector<std::string> includes(const File& f, char open, char close) {
  std::vector<std::string> out;
  for (const std::string& line : f.lines) {
    const size_t hash = line.find_first_not_of(" \t");
    if (hash == std::string::npos || line[hash] != '#' || line.find("include", hash) == std::string::npos) continue;
    const size_t from = line.find(open, hash), to = line.find(close, from + 1);
    if (from != std::string::npos && to != std::string::npos) out.push_back(line.substr(from + 1, to - from - 1));
  }
  return out;
}

Complaints upward_or_sideways(const File& f) {
  Complaints out;
  const auto own = allowed().find(folder(f.path)), rule = own != allowed().end() ? own : allowed().find(f.top());
  if (!f.is_code() || rule == allowed().end()) return out;
  for (const std::string& target : includes(f, '"', '"')) {
    if (!rule->second.count(target.substr(0, target.find('/'))) && !rule->second.count(target))
      out.push_back(f.path + " includes " + target);
  }
  return out;
}

bool has_rooms(const std::string& floor) {
  const auto in_floor = [&](const auto& room) { return room.first.rfind(floor + "/", 0) == 0; };
  return std::any_of(rooms().begin(), rooms().end(), in_floor);
}

Complaints into_other_rooms(const File& f) {
  Complaints out;
  if (!f.is_code() || !has_rooms(f.top())) return out;
  const auto rule = rooms().find(folder(f.path));
  if (rule == rooms().end()) return {f.path + " is in no room"};
  for (const std::string& target : includes(f, '"', '"')) {
    const std::string there = folder(target);
    if (target.substr(0, target.find('/')) != f.top() || there == folder(f.path)) continue;
    const std::string name = there == f.top() ? "" : there.substr(f.top().size() + 1);
    // What lies beside the rooms is what they agree on.
    if (!name.empty() && !rule->second.count(name)) out.push_back(f.path + " includes " + target);
  }
  return out;
}

Complaints basement_to_ground(const File& f) {
  Complaints out;
  if (!kBasement.count(stem(f.path))) return out;
  for (const std::string& target : includes(f, '"', '"')) {
    if (!kBasement.count(stem(target))) out.push_back(f.path + " includes " + target);
  }
  return out;
}

// A foreign library and the places that may include it. Tests may do what they like except in headers.
struct Foreign {
  std::string prefix;
  std::regex places;
};

Complaints foreign_includes(const File& f) {
  static const std::vector<Foreign> kForeign = {
      {"xbyak/", std::regex("jit/x64/assembler\\.(h|cc)")},
      {"llvm", std::regex("jit/llvm/.*")},
      {"nlohmann/json.hpp", std::regex("(ops|runtime/[a-z_]+|tools|bench(/[a-z_]+)?)/[^/]*\\.cc")},
      {"CLI/", std::regex("(tools|bench(/[a-z_]+)?)/[^/]*\\.(cc|h)")},
      {"tbb/", std::regex("runtime/base/tasks\\.cc|include/lathe_tbb\\.h|bench/thread_team/.*")},
      {"oneapi/", std::regex("runtime/base/tasks\\.cc|include/lathe_tbb\\.h|bench/thread_team/.*")},
      {"sodium", std::regex("(ir|jit|runtime)/[a-z_]+/[^/]*\\.cc")},
      {"isl/", std::regex("")},
      {"gtest/", std::regex("")},
  };
  Complaints out;
  if (!f.is_code() || f.below("tests")) return out;
  for (const std::string& target : includes(f, '<', '>')) {
    for (const Foreign& foreign : kForeign) {
      if (target.rfind(foreign.prefix, 0) == 0 && !std::regex_match(f.path, foreign.places))
        out.push_back(f.path + " includes <" + target + ">");
    }
  }
  return out;
}

Complaints forbidden_calls(const File& f) {
  struct Call {
    std::regex call;
    std::regex places;
    const char* what;
  };
  static const std::vector<Call> kCalls = {
      {std::regex(R"(\b(secure_)?getenv\s*\()"), std::regex("ir/base/options\\.cc"), "reads the environment"},
      {std::regex(R"(\b(std::)?(abort|terminate)\s*\()"), std::regex(""), "ends the process"},
      {std::regex(R"(\bstd::(cout|cerr)\b|\b(printf|puts)\s*\(|\bfmt::print\b)"), std::regex("(tools|bench)/.*"),
       "prints"},
      {std::regex(R"(\b[Pp]lant(s|ed|ing)?\b|PlantingMaker)"), std::regex("bench/safety/.*"), "plants faults"},
  };
  Complaints out;
  if (!f.is_code() || f.below("tests") || f.below("examples") || f.below("include")) return out;
  for (size_t i = 0; i < f.lines.size(); ++i) {
    const std::string code = f.lines[i].substr(0, f.lines[i].find("//"));
    for (const Call& c : kCalls) {
      if (std::regex_search(code, c.call) && !std::regex_match(f.path, c.places)) {
        out.push_back(f.path + ":" + std::to_string(i + 1) + " " + c.what);
      }
    }
  }
  return out;
}

// What only one architecture has: its built-in functions and headers, attributes and pragmas that name its
// instructions, assembly that is not empty, constraints that name its registers.
Complaints machine_code(const File& f) {
  static const std::regex kMachine(
      R"(__builtin_ia32_|__builtin_cpu_|<(cpuid|[a-z]*intrin)\.h>|\b_mm[0-9]*_|\btarget\s*\("|GCC target)"
      R"(|\b(asm|__asm__)(\s+volatile|\s+__volatile__)?\s*\(\s*("[^"]|$)|"[=+]?[xv]"\s*\()");
  static const std::regex kPlaces(
      "(jit/(host|x64)|runtime/walk/x86)/.*|jit/cuda/device_(prelude|prelude_integers|groups|rings)\\.inc");
  Complaints out;
  const bool library = f.below("ir") || f.below("ops") || f.below("search") || f.below("jit") || f.below("runtime");
  if (!library || std::regex_match(f.path, kPlaces)) return out;
  for (size_t i = 0; i < f.lines.size(); ++i) {
    if (std::regex_search(f.lines[i].substr(0, f.lines[i].find("//")), kMachine))
      out.push_back(f.path + ":" + std::to_string(i + 1) + " has code of one architecture");
  }
  return out;
}

Complaints everywhere(Complaints (*rule)(const File&)) {
  Complaints out;
  for (const File& f : source_tree()) {
    for (std::string& c : rule(f)) out.push_back(std::move(c));
  }
  return out;
}

TEST(Layering, the_tree_is_found) {
  size_t headers = 0;
  for (const File& f : source_tree()) headers += f.is_header();
  EXPECT_GT(headers, 80u);
}

TEST(Layering, no_include_goes_up_or_sideways) { EXPECT_THAT(everywhere(upward_or_sideways), IsEmpty()); }
TEST(Layering, rooms_open_one_way) { EXPECT_THAT(everywhere(into_other_rooms), IsEmpty()); }
// Of the floors that have rooms, of tests and of bench, which follow them.
Complaints crowded(const std::vector<File>& tree) {
  std::map<std::string, size_t> files;
  for (const File& f : tree)
    files[folder(f.path)] += f.is_code() && (has_rooms(f.top()) || f.below("tests") || f.below("bench"));
  Complaints out;
  for (const auto& [room, n] : files)
    if (n > kMostFiles) out.push_back(room + " has " + std::to_string(n) + " files of code");
  return out;
}
TEST(Layering, rooms_hold_at_most_25_files) { EXPECT_THAT(crowded(source_tree()), IsEmpty()); }
bool reaches(const std::string& room, const std::string& target, size_t steps) {
  const auto rule = rooms().find(room);
  if (rule == rooms().end() || steps == 0) return false;
  return std::any_of(rule->second.begin(), rule->second.end(), [&](const std::string& next) {
    const std::string path = room.substr(0, room.find('/')) + "/" + next;
    return path == target || reaches(path, target, steps - 1);
  });
}
TEST(Layering, the_table_of_rooms_has_no_circle) {
  for (const auto& room : rooms()) {
    EXPECT_FALSE(reaches(room.first, room.first, rooms().size())) << room.first;
    for (const std::string& other : room.second)
      EXPECT_TRUE(rooms().count(room.first.substr(0, room.first.find('/')) + "/" + other)) << other;
  }
}
TEST(Layering, the_basement_knows_nothing_of_kernels) { EXPECT_THAT(everywhere(basement_to_ground), IsEmpty()); }
TEST(Layering, foreign_libraries_stay_where_they_belong) { EXPECT_THAT(everywhere(foreign_includes), IsEmpty()); }
TEST(Layering, code_of_one_architecture_has_its_rooms) { EXPECT_THAT(everywhere(machine_code), IsEmpty()); }
TEST(Layering, environment_printing_and_aborting) { EXPECT_THAT(everywhere(forbidden_calls), IsEmpty()); }

TEST(Layering, the_rules_object) {
  EXPECT_THAT(upward_or_sideways(make_file("ir/a.cc", "#include \"ir/b.h\"\n#include \"jit/image/image.h\"\n")),
              ElementsAre("ir/a.cc includes jit/image/image.h"));
  EXPECT_THAT(upward_or_sideways(make_file("bench/decoder_loop/a.cc", "#include \"ir/core/expr.h\"\n")), SizeIs(1));
  EXPECT_THAT(upward_or_sideways(make_file("ops/a.h", "  # include \"search/sketches/recipe.h\"\n")),
              ElementsAre("ops/a.h includes search/sketches/recipe.h"));
  EXPECT_THAT(upward_or_sideways(make_file("runtime/a.cc", "#include \"tools/cli.h\"\n")),
              ElementsAre("runtime/a.cc includes tools/cli.h"));
  EXPECT_THAT(upward_or_sideways(make_file("jit/a.cc", "#include \"status.h\"\n")),
              ElementsAre("jit/a.cc includes status.h"));
  EXPECT_THAT(
      into_other_rooms(make_file("runtime/walk/a.cc", "#include \"runtime/capi/b.h\"\n#include \"ir/nest.h\"\n")),
      ElementsAre("runtime/walk/a.cc includes runtime/capi/b.h"));
  EXPECT_THAT(into_other_rooms(make_file("search/a.cc", "")), ElementsAre("search/a.cc is in no room"));
  std::vector<File> tree;
  for (size_t i = 0; i <= kMostFiles; ++i) tree.push_back(make_file("tests/ir/" + std::to_string(i) + ".cc", ""));
  EXPECT_THAT(crowded(tree), ElementsAre("tests/ir has 26 files of code"));
  EXPECT_THAT(basement_to_ground(make_file("ir/base/status.cc", "#include \"ir/core/kernel.h\"\n")),
              ElementsAre("ir/base/status.cc includes ir/core/kernel.h"));
  EXPECT_THAT(foreign_includes(make_file("jit/x64/compile.cc", "#include <xbyak/xbyak.h>\n")),
              ElementsAre("jit/x64/compile.cc includes <xbyak/xbyak.h>"));
  EXPECT_THAT(
      foreign_includes(make_file("runtime/a.h", "#include <nlohmann/json.hpp>\n#include <nlohmann/json_fwd.hpp>\n")),
      ElementsAre("runtime/a.h includes <nlohmann/json.hpp>"));
  for (const char* path : {"runtime/base/tasks.h", "runtime/walk/threads.cc", "tools/cli.cc", "bench/serving/a.cc"}) {
    EXPECT_THAT(foreign_includes(make_file(path, "#include <oneapi/tbb/task_arena.h>\n#include <tbb/tbb.h>\n")),
                SizeIs(2))
        << path;
  }
  EXPECT_THAT(foreign_includes(make_file("runtime/base/tasks.cc", "#include <oneapi/tbb/task_arena.h>\n")), IsEmpty());
  for (const char* line :
       {"__builtin_ia32_pause();", "#include <immintrin.h>", "#include <cpuid.h>", "_mm256_add_ps(a, b);",
        "__attribute__((target(\"avx2\"))) void f();", "#pragma GCC target(\"avx2\")", "asm volatile(\"pause\");",
        "asm volatile(", "asm(\"\" : \"+x\"(v));", "if (__builtin_cpu_supports(\"avx\"))"}) {
    EXPECT_THAT(machine_code(make_file("runtime/walk/a.cc", line)),
                ElementsAre("runtime/walk/a.cc:1 has code of one architecture"))
        << line;
    EXPECT_THAT(machine_code(make_file("runtime/walk/x86/a.h", line)), IsEmpty());
    EXPECT_THAT(machine_code(make_file("jit/host/a.cc", line)), IsEmpty());
  }
  for (const char* line :
       {"asm(\"\" : \"+r\"(word));", "asm volatile(\"\" ::: \"memory\");", "// _mm_add_ps(", "target(1);"})
    EXPECT_THAT(machine_code(make_file("runtime/walk/a.cc", line)), IsEmpty()) << line;
  EXPECT_THAT(forbidden_calls(make_file("runtime/a.cc", "x = std::getenv(\"A\");\nprintf(\"hi\");  // printf(\n")),
              ElementsAre("runtime/a.cc:1 reads the environment", "runtime/a.cc:2 prints"));
  EXPECT_THAT(forbidden_calls(make_file("tools/a.cc", "plant(\"crash\", stage);\n")),
              ElementsAre("tools/a.cc:1 plants faults"));
  EXPECT_THAT(forbidden_calls(make_file("bench/safety/a.cc", "plant(\"crash\", stage);\n")), IsEmpty());
}

}  // namespace
}  // namespace lathe::house
