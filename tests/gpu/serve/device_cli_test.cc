// The verbs of the command line on a GPU, under the fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "ir/base/gpu_target.h"
#include "tests/gpu/serve/cli_run.h"

namespace lathe::test {
namespace {

using ::testing::HasSubstr;

std::string lines() {
  return fixed_line("exp", "exp", 1003) + chain_line("silu", "silu", 3000) + chain_line("gelu", "gelu", 100);
}

TEST(DeviceCli, InfoSaysTheState) {
  Cli cli(lines());
  const auto info = [&](const char* device, bool json = true) {
    std::vector<std::string> args = {"--device", device};
    if (json) args.push_back("--json");
    return cli.run("info", args, false);
  };
  tools::Finished f = info("0");
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(f.summary()["state"], "ready");
  EXPECT_EQ(f.summary()["driver"], "12.4");
  EXPECT_EQ(f.summary()["devices"], 2 + static_cast<int>(ir::gpu_target_names().size()));
  EXPECT_EQ(f.summary()["nvrtc"], "nvrtc 12.9");
  EXPECT_EQ(f.summary()["target"]["name"], "NVIDIA H200");
  EXPECT_EQ(f.summary()["target"]["multiprocessors"], 132);
  EXPECT_EQ(f.summary()["target"]["memory_gib"], 144);
  const std::string environment = f.summary()["environment"];
  EXPECT_EQ(info("h200").summary()["environment"], environment) << "the row is the GPU";
  EXPECT_NE(info("h100").summary()["environment"], environment);
  EXPECT_THAT(info("0", false).out, HasSubstr("state     ready: serves and compiles"));
  cli.environment["LATHE_NVRTC"] = "/nowhere/libnvrtc.so";
  EXPECT_EQ(info("0").summary()["state"], "no_compiler");
  cli.environment["LATHE_CUDA"] = "/nowhere/libcuda.so";
  f = info("0");
  EXPECT_EQ(f.code, 0);
  EXPECT_EQ(f.summary()["state"], "no_driver");
  EXPECT_THAT(f.summary()["driver_note"].get<std::string>(), HasSubstr("no CUDA driver: /nowhere/libcuda.so"));
  f = info("h2000");
  EXPECT_EQ(f.code, 2);
  EXPECT_THAT(f.err, HasSubstr("--device: h2000, expected the number of a CUDA device, or one of a100, "));
}

TEST(DeviceCli, VerifyComparesWithTheOracle) {
  const Cli cli(lines());
  const tools::Finished f = cli.run("verify", {"--json", "--device", "1"});
  ASSERT_EQ(f.code, 0) << f.err << f.out;
  EXPECT_GE(f.summary()["checked"], 5);
  EXPECT_EQ(f.summary()["failed"], 0);
  EXPECT_EQ(f.summary()["refused"], 0);
  for (const auto& row : f.rows()) EXPECT_EQ(row["backend"], "nvrtc");
  EXPECT_THAT(cli.run("verify", {"--device", "0"}).out, HasSubstr("T1 device 0 nvrtc"));
  const tools::Finished kind = cli.run("verify", {"--device", "h200"});
  EXPECT_EQ(kind.code, 2);
  EXPECT_THAT(kind.err, HasSubstr("h200 is a kind, expected the number of a CUDA device"));
}

std::string op_line(const char* name, const char* op, const char* dims, const char* attrs) {
  return std::string(R"({"name":")") + name + R"(","graph":{"tensors":{"x":{"dtype":"f32","dims":)" + dims +
         R"(}},"nodes":[{"op":")" + op + R"(","in":["x"],"out":"y","attrs":)" + attrs + R"(}],"outputs":["y"]}})" +
         "\n";
}
// M rows by a weight of few bits.
std::string packed_line() {
  return R"({"name":"q","graph":{"tensors":{"x":{"dtype":"f32","dims":["M",64]},)"
         R"("w":{"dtype":"u8","dims":[5,36],"const":true}},"nodes":[{"op":"quantized_matmul","in":["x","w"],"out":"y",)"
         R"("attrs":{"format":"q4_0"}}],"outputs":["y"]},)"
         R"("dims":{"M":{"min":0,"max":12,"hints":[{"value":2,"weight":1}]}}})"
         "\n";
}

// Operands end at an unmapped page in one run and begin after one in the next: where rows are no multiples of 16 bytes,
// their addresses are aligned in one of them alone. Sums are the same.
TEST(DeviceCli, SumsDoNotDependOnAddresses) {
  const Cli cli(op_line("sum", "sum", "[5,37]", "{}") + op_line("mean", "mean", "[3,1029]", "{}") +
                op_line("rows", "cumsum", "[5,37]", "{}") + op_line("columns", "cumsum", "[37,65]", R"({"axis":0})") +
                op_line("middle", "cumsum", "[5,37,65]", R"({"axis":1})"));
  const tools::Finished f = cli.run("verify", {"--json", "--device", "0"});
  ASSERT_EQ(f.code, 0) << f.err << f.out;
  EXPECT_EQ(f.summary()["checked"], 5);
  EXPECT_EQ(f.summary()["failed"], 0) << f.out;
}

// Calls with packed constants and with the caller's are checked; those with packed ones are timed.
TEST(DeviceCli, ConstantsArePackedForWhoVerifiesAndTimes) {
  const Cli cli(packed_line());
  const tools::Finished verified = cli.run("verify", {"--json", "--device", "0"});
  ASSERT_EQ(verified.code, 0) << verified.err << verified.out;
  EXPECT_EQ(verified.summary()["failed"], 0) << verified.out;
  const int checked = verified.summary()["checked"];
  EXPECT_EQ(checked % 2, 0);
  const tools::Finished warmed = cli.run("warmup", {"--json", "--device", "0"});
  ASSERT_EQ(warmed.code, 0) << warmed.err << warmed.out;
  EXPECT_GE(warmed.summary()["measurements"], 1) << warmed.out;
  EXPECT_EQ(warmed.summary()["failed"], 0);
  const tools::Finished again = cli.run("warmup", {"--json", "--device", "0"});
  EXPECT_EQ(again.summary()["compiled_nvrtc"], 0) << again.out;
  const tools::Finished timed = cli.run("bench", {"--json", "--device", "0", "--row-ms", "20"});
  ASSERT_EQ(timed.code, 0) << timed.err << timed.out;
  EXPECT_GT(timed.rows().at(0)["us"], 0);
}

// A device that refuses one launch and goes on costs one row, here by too little memory.
TEST(DeviceCli, VerifyGoesOnWhereTheDeviceDoes) {
  Cli cli(lines());
  const std::string driver = cli.folder.path / "libcuda_fail-2-at-1_.so";
  std::filesystem::copy_file(LATHE_FAKE_CUDA, driver);
  cli.environment["LATHE_CUDA"] = driver;
  const tools::Finished f = cli.run("verify", {"--json", "--device", "0"});
  EXPECT_EQ(f.summary()["refused"], 1) << f.err << f.out;
  EXPECT_EQ(f.summary()["failed"], 0);
  EXPECT_GE(f.summary()["checked"], 4);
}

TEST(DeviceCli, BenchTimesLaunches) {
  const Cli cli(lines());
  const tools::Finished f = cli.run("bench", {"--json", "--device", "0", "--row-ms", "20"});
  ASSERT_EQ(f.code, 0) << f.err << f.out;
  EXPECT_EQ(f.summary()["rows"], 3);
  EXPECT_EQ(f.summary()["emulated"], true);
  for (const auto& row : f.rows()) {
    EXPECT_GT(row["us"], 0);
    EXPECT_GT(row["copy_gbs"], 0);
  }
  EXPECT_THAT(cli.run("bench", {"--device", "0", "--row-ms", "20", "--cold"}).out,
              HasSubstr("These times are an emulator's: they say nothing of a GPU."));
}

TEST(DeviceExample, RunsOnTheFake) {
  const auto run = [](const char* cuda) {
    FILE* out = popen(
        (std::string("LATHE_CACHE=off LATHE_NVRTC=" LATHE_FAKE_NVRTC " LATHE_CUDA=") + cuda + " " LATHE_EXAMPLE " 2>&1")
            .c_str(),
        "r");
    std::string said;
    for (char line[256]; std::fgets(line, sizeof line, out) != nullptr;) said += line;
    return said + std::to_string(WEXITSTATUS(pclose(out)));
  };
  EXPECT_EQ(run(LATHE_FAKE_CUDA), "on a GPU: 0 wrong numbers\n0");
  EXPECT_EQ(run("/nowhere/libcuda.so"), "on a GPU: no CUDA driver, nothing to show\n0");
}

TEST(DeviceCli, ExplainShowsLaunchesAndCode) {
  Cli cli(lines());
  cli.environment["LATHE_CUDA"] = "/nowhere/libcuda.so";
  const tools::Finished f = cli.run("explain", {"--op", "silu", "--device", "h200"});
  ASSERT_EQ(f.code, 0) << f.err;
  for (const char* part : {"naive kernel", "schedule (the first by rank)", "candidates by rank", "launch 1 of 1, ",
                           "device program", "LT_KERNEL(", "by nvrtc 12.9", "24 registers", "miss: never_seen"})
    EXPECT_THAT(f.out, HasSubstr(part));
  ASSERT_EQ(cli.run("warmup", {"--device", "h200"}).code, 0);
  const tools::Finished stored = cli.run("explain", {"--json", "--op", "silu", "--device", "h200"});
  EXPECT_EQ(stored.rows().at(0)["stored"], true);
  EXPECT_THAT(stored.rows().at(0)["decision"].get<std::string>(), HasSubstr("provisional"));
}

}  // namespace
}  // namespace lathe::test
