// The fields of --json that scripts rely on, and exit codes, verb by verb.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/tools/process.h"

namespace lathe::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kData = std::string(LATHE_SOURCE_DIR) + "/tests/tools/data/";

std::string words(const std::string& name) { return kData + name; }

void expect_fields(const json& line, const std::string& verb, std::initializer_list<const char*> fields) {
  ASSERT_TRUE(line.is_object());
  EXPECT_EQ(line.value("schema", ""), "lathe-" + verb + "-1");
  for (const char* f : fields) EXPECT_TRUE(line.contains(f)) << f << " is missing in " << line.dump();
}

TEST(Info, SaysTargetBackendsLayersOptions) {
  TempDir dir;
  const Finished f = lathe({"info", "--json", "--store", dir.path}, {{"LATHE_CACHE", "ro"}});
  EXPECT_EQ(f.code, 0) << f.err;
  expect_fields(f.summary(), "info", {"target", "backends", "layers", "options"});
  bool seen = false;
  const json options = f.summary()["options"];
  for (const json& o : options) {
    if (o["name"] == "cache") seen = o["value"] == "ro" && o["source"] == "environment";
  }
  EXPECT_TRUE(seen);
}

TEST(Info, TheFlagBeatsTheEnvironment) {
  const Finished f = lathe({"info", "--json", "--isa", "portable"}, {{"LATHE_MAX_ISA", "avx2"}});
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.summary()["target"]["isa"], "portable");
}

TEST(Info, ABadVariableIsUsage) {
  const Finished f = lathe({"info", "--json"}, {{"LATHE_CACHE", "maybe"}});
  EXPECT_EQ(f.code, 2);
  EXPECT_THAT(f.err, HasSubstr("LATHE_CACHE"));
}

TEST(Warmup, RowsAndSummaryHaveTheirFields) {
  TempDir dir;
  const Finished f = lathe({"warmup", "--json", "--tier", "1", "--store", dir.path, words("small.jsonl")});
  ASSERT_EQ(f.code, 0) << f.err;
  ASSERT_EQ(f.rows().size(), 4u);
  for (const json& row : f.rows()) {
    expect_fields(row, "warmup",
                  {"op", "dims", "dtype", "threads", "tier", "origin", "schedule", "us", "default_us", "of_roofline",
                   "first_resolve_us"});
    EXPECT_TRUE(row["dims"].is_object());
    EXPECT_TRUE(row["tier"] == "T1" || row["tier"] == "T0");
  }
  EXPECT_EQ(f.rows()[0]["dims"], json({{"M", 1}}));
  EXPECT_EQ(f.rows()[2]["dims"], json({{"m", 4}}));  // as the manifest writes it
  expect_fields(f.summary(), "warmup",
                {"ops", "from_store", "compiled_xbyak", "compiled_llvm", "searches", "measurements", "failed",
                 "llvm_mapped", "first_resolve_us_max", "wall_ms", "digest"});
  EXPECT_EQ(f.summary()["ops"], 3);
  EXPECT_EQ(f.summary()["failed"], 0);
  EXPECT_EQ(f.summary()["searches"], 0);
}

// Rows that there are none of, and squares from one element on.
TEST(Warmup, EmptyRowsAndSquares) {
  TempDir dir;
  const std::string path = dir.path + "/rows.jsonl";
  std::ofstream out(path);
  for (const char* op : {"softmax", "layernorm", "sum"}) {
    for (const char* dims : {"[0,\"T\"]", "[12,\"T\",\"T\"]"}) {
      out << R"({"name":")" << op << dims[1] << R"(","graph":{"tensors":{"x":{"dtype":"f32","dims":)" << dims
          << R"(}},"nodes":[{"op":")" << op
          << R"(","in":["x"],"out":"y"}],"outputs":["y"]},"dims":{"T":{"min":1,"max":512,"hints":[{"value":16,"weight":1}]}}})"
          << "\n";
    }
  }
  out.close();
  for (const char* tier : {"1", "2"}) {
    const Finished f =
        lathe({"warmup", "--json", "--tier", tier, "--candidates", "2", "--budget", "20", "--store", dir.path, path});
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_EQ(f.summary()["failed"], 0) << "tier " << tier << f.err;
  }
}

TEST(Bench, RowsAndSummaryHaveTheirFields) {
  TempDir dir;
  const Finished f =
      lathe({"bench", "--json", "--samples", "--row-ms", "1", "--store", dir.path, words("small.jsonl")});
  ASSERT_EQ(f.code, 0) << f.err;
  ASSERT_EQ(f.rows().size(), 4u);
  for (const json& row : f.rows()) {
    expect_fields(row, "bench",
                  {"op", "dims", "dtype", "format", "threads", "cache", "tier", "us", "spread", "of_peak", "peak_of",
                   "ceiling", "of_read", "of_copy", "of_roofline", "limit", "peers", "samples"});
    EXPECT_TRUE(row["format"].is_null());
    EXPECT_EQ(row["peak_of"], "fma");
    EXPECT_EQ(row["ceiling"], 1);
    EXPECT_GT(row["us"].get<double>(), 0);
    EXPECT_GE(row["rounds"].get<int>(), 9);
    EXPECT_EQ(row["samples"].size(), row["rounds"].get<size_t>());
    EXPECT_GT(row["of_roofline"].get<double>(), 0);
  }
  EXPECT_EQ(f.rows()[2]["cache"], "cold");
  expect_fields(f.summary(), "bench",
                {"rows", "peak_gflops", "read_gbs", "copy_gbs", "from_store", "compiled_xbyak", "compiled_llvm",
                 "searches", "llvm_mapped", "geomean_vs_best_peer", "worst_vs_best_peer", "worst_row"});
  EXPECT_EQ(f.summary()["from_store"], 0);
}

// Shares are of the peak of what the row's kernel may use, where the machine has it.
TEST(Bench, SharesAreOfTheRowsOwnPeak) {
  TempDir dir;
  const std::string path = dir.path + "/peaks.jsonl";
  std::ofstream(path)
      << R"({"name":"low","graph":{"tensors":{"x":{"dtype":"f32","dims":[2,64]},"w":{"dtype":"u8","dims":[64,36],"const":true}},)"
      << R"("nodes":[{"op":"quantized_matmul","in":["x","w"],"out":"y","attrs":{"format":"q4_0"}}],"outputs":["y"]},"dims":{},)"
      << R"("allowed":["reassociate","contract","quantised_activations"]})"
      << "\n"
      << R"({"name":"pairs","graph":{"tensors":{"x":{"dtype":"bf16","dims":[8,64]},"w":{"dtype":"bf16","dims":[64,64]}},)"
      << R"("nodes":[{"op":"matmul","in":["x","w"],"out":"y"}],"outputs":["y"]},"dims":{},)"
      << R"("allowed":["reassociate","contract","bf16_dots"]})"
      << "\n";
  const auto bench = [&](const char* level) {
    return lathe({"bench", "--json", "--row-ms", "1", "--hot", "--store", dir.path, path}, {{"LATHE_MAX_ISA", level}});
  };
  const Finished f = bench("portable");
  ASSERT_EQ(f.code, 0) << f.err;
  ASSERT_EQ(f.rows().size(), 2u);
  EXPECT_EQ(f.rows()[0]["format"], "q4_0");
  for (const json& row : f.rows()) {
    EXPECT_EQ(row["peak_of"], "fma");
    EXPECT_EQ(row["ceiling"], 1);
  }
  const Finished wide = bench("avx2");
  ASSERT_EQ(wide.code, 0) << wide.err;
  const json low = wide.rows()[0];
  if (low["peak_of"] == "fma") GTEST_SKIP() << "the CPU lacks AVX2";
  EXPECT_TRUE(low["peak_of"] == "vpmaddubsw" || low["peak_of"] == "vpdpbusd") << low.dump();
  // Two multiply-adds beside 16 dots, of an instruction or three.
  EXPECT_NEAR(low["ceiling"].get<double>(), low["peak_of"] == "vpdpbusd" ? 16. / 18 : 48. / 50, 1e-6);
  EXPECT_GE(low["of_roofline"].get<double>(), low["of_peak"].get<double>() / low["ceiling"].get<double>() - 1e-9);
  EXPECT_EQ(wide.rows()[1]["peak_of"], "fma");
  EXPECT_TRUE(wide.summary()["peak_gflops"].contains("fma"));
}

TEST(Verify, RowsAndSummaryHaveTheirFields) {
  const Finished f =
      lathe({"verify", "--json", "--random", "2", "--seed", "5", words("small.jsonl")}, {{"LATHE_CACHE", "off"}});
  ASSERT_EQ(f.code, 0) << f.err;
  ASSERT_FALSE(f.rows().empty());
  bool portable = false;
  for (const json& row : f.rows()) {
    expect_fields(row, "verify", {"op", "dims", "dtype", "tier", "level", "backend", "gate", "err_over_bound", "ok"});
    EXPECT_TRUE(row["ok"].get<bool>()) << row.dump();
    portable |= row["tier"] == "T0" && row["level"] == "portable";
  }
  EXPECT_TRUE(portable);
  expect_fields(f.summary(), "verify", {"checked", "failed", "refused", "worst_err_over_bound"});
  EXPECT_EQ(f.summary()["refused"], 0);
  EXPECT_EQ(f.summary()["checked"], f.rows().size());
  EXPECT_EQ(f.summary()["failed"], 0);
  EXPECT_LE(f.summary()["worst_err_over_bound"].get<double>(), 1);
}

TEST(Verify, FailsWhereNothingIsChecked) {
  TempDir dir;
  const std::string path = dir.path + "/large.jsonl";
  std::ofstream(path)
      << R"({"name":"large","graph":{"tensors":{"x":{"dtype":"f32","dims":["M","K"]},"w":{"dtype":"f32","dims":["K","N"]}},)"
      << R"("nodes":[{"op":"matmul","in":["x","w"],"out":"y"}],"outputs":["y"]},)"
      << R"("dims":{"M":{"min":100000,"max":200000},"K":{"min":100000,"max":200000},"N":{"min":100000,"max":200000}}})"
      << "\n";
  const Finished f = lathe({"verify", "--json", path}, {{"LATHE_CACHE", "off"}});
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("nothing was checked"), std::string::npos) << f.err;
}

TEST(Verify, EqualSeedsMakeEqualOperators) {
  const auto ops = [](const char* seed) {
    std::vector<json> out;
    for (const json& row :
         lathe({"verify", "--json", "--isa", "portable", "--random", "3", "--seed", seed}, {{"LATHE_CACHE", "off"}})
             .rows()) {
      out.push_back({row["op"], row["dims"], row["gate"], row["err_over_bound"]});
    }
    return out;
  };
  EXPECT_EQ(ops("9"), ops("9"));
  EXPECT_NE(ops("9"), ops("10"));
}

TEST(Explain, ShowsKernelScheduleNestAndMiss) {
  TempDir dir;
  const Finished f =
      lathe({"explain", "--json", "--store", dir.path, "--op", "gate", "--shape", "M=3", words("small.jsonl")});
  ASSERT_EQ(f.code, 0) << f.err;
  ASSERT_EQ(f.rows().size(), 1u);
  const json row = f.rows()[0];
  EXPECT_EQ(row["dims"], json({{"M", 3}}));
  EXPECT_THAT(row["kernel"].get<std::string>(), HasSubstr("kernel "));
  EXPECT_THAT(row["nest"].get<std::string>(), HasSubstr("call leaf"));
  EXPECT_THAT(row["miss"].get<std::string>(), HasSubstr("never_seen"));
  EXPECT_FALSE(row["refusals"].empty());
  ASSERT_FALSE(row["moves"].empty());
  for (const char* field : {"move", "why", "picture"}) EXPECT_NE(row["moves"][0][field], "") << field;
  EXPECT_GT(row["predicted_us"].get<double>(), 0);
  EXPECT_TRUE(row["measured_us"].is_null());
}

TEST(StoreVerb, ListsAndChecks) {
  TempDir dir;
  ASSERT_EQ(lathe({"warmup", "--tier", "1", "--store", dir.path, words("small.jsonl")}).code, 0);
  const Finished f = lathe({"store", "check", "--json", "--store", dir.path});
  EXPECT_EQ(f.code, 0) << f.err;
  for (const json& row : f.rows()) expect_fields(row, "store", {"object", "ok", "reason"});
  expect_fields(f.summary(), "store", {"objects", "bytes", "bad"});
  EXPECT_EQ(f.summary()["objects"], f.rows().size());
}

TEST(Opt, AppliesAndRefuses) {
  TempDir dir;
  const std::string path = dir.path + "/k.lir";
  std::ofstream(path)
      << "kernel scale(x: f32[64] in, y: f32[64] out) family elementwise\n  for i < 64 [col]:\n    y[i] = 2.0 * x[i]\n";
  Finished f = lathe({"opt", path, "--moves", "tile_scope i 16 tail=exact as i0,i1", "--run", "--json"},
                     {{"LATHE_CACHE", "off"}});
  EXPECT_EQ(f.code, 0) << f.err << f.out;
  EXPECT_THAT(f.summary()["kernel"].get<std::string>(), HasSubstr("i1 < 16"));
  EXPECT_EQ(f.summary()["run"]["ok"], true);
  f = lathe({"opt", path, "--moves", "tile_scope i 7 tail=exact as i0,i1", "--json"});
  EXPECT_EQ(f.code, 1);
  EXPECT_EQ(f.summary()["moves"][0]["ok"], false);
  EXPECT_NE(f.summary()["moves"][0]["reason"], "");
}

}  // namespace
}  // namespace lathe::tools
