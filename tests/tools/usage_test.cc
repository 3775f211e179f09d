// What the command line says of wrong words, values and files: which one, where, what was expected; exit code 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "include/lathe.h"
#include "tests/tools/process.h"

namespace lathe::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kData = std::string(LATHE_SOURCE_DIR) + "/tests/tools/data/";
const std::map<std::string, std::string> kNoStore = {{"LATHE_CACHE", "off"}};

std::string words(const std::string& name) { return kData + name; }

// The standard error of a usage error.
std::string usage(const std::vector<std::string>& args) {
  const Finished f = lathe(args, kNoStore);
  EXPECT_EQ(f.code, 2) << f.err;
  return f.err;
}

TEST(Usage, MalformedInputIsExit2AndBeginsWithFileAndLine) {
  for (const char* verb : {"warmup", "tune", "bench", "verify", "explain"}) {
    EXPECT_THAT(usage({verb, words("bad.jsonl")}), StartsWith(words("bad.jsonl") + ":2: dims.m.min: ")) << verb;
  }
  const TempDir dir;
  const std::string kernel = dir.path + "/k.lir", schedule = dir.path + "/s.txt", spec = dir.path + "/s.spec";
  std::ofstream(kernel)
      << "kernel scale(x: f32[64] in, y: f32[64] out) family elementwise\n  for i < 64 [col]:\n    y[i] = 2.0 * z[i]\n";
  EXPECT_THAT(usage({"opt", kernel}), StartsWith(kernel + ":3:"));
  std::ofstream(kernel, std::ios::trunc)
      << "kernel scale(x: f32[64] in, y: f32[64] out) family elementwise\n  for i < 64 [col]:\n    y[i] = 2.0 * x[i]\n";
  std::ofstream(schedule) << "schedule 1 elementwise f32\nno_such_move i\n";
  EXPECT_THAT(usage({"opt", kernel, "--schedule", schedule}), HasSubstr(schedule + ":"));
  std::ofstream(spec) << "spec 1\nmatch\n";
  EXPECT_THAT(usage({"tune", "--spec", spec, words("small.jsonl")}), StartsWith(spec + ":2: "));
}

TEST(Usage, TuneSearchesByOneStrategyOnly) {
  EXPECT_THAT(usage({"tune", words("small.jsonl"), "--strategy", "annealing"}), HasSubstr("--strategy"));
}

TEST(Usage, JsonSaysFileAndLineToo) {
  const Finished f = lathe({"warmup", "--json", words("bad.jsonl")}, kNoStore);
  ASSERT_EQ(f.lines.size(), 1u);
  EXPECT_EQ(f.lines[0]["arg"], words("bad.jsonl") + ":2");
  EXPECT_THAT(f.lines[0]["message"].get<std::string>(), StartsWith("dims.m.min: "));
}

TEST(Usage, FilesThatNeverEndOrNeverBeginAreRefused) {
  const TempDir dir;
  const std::string fifo = dir.path + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const char* verb : {"warmup", "tune", "bench", "verify", "explain", "opt"}) {
    for (const std::string& path : {fifo, std::string("/dev/zero")})
      EXPECT_THAT(usage({verb, path}), AllOf(HasSubstr(path), HasSubstr("regular file")));
  }
  EXPECT_THAT(usage({"tune", "--spec", fifo, words("small.jsonl")}), HasSubstr(fifo));
  EXPECT_THAT(usage({"warmup", "/nonexistent/x.jsonl"}), HasSubstr("/nonexistent/x.jsonl"));
  const int endless = std::system((std::string(LATHE_EXECUTABLE) + " warmup - </dev/zero >/dev/null 2>&1").c_str());
  EXPECT_EQ(WEXITSTATUS(endless), 2);
}

// The exit code of a shell's command line and what it said on the standard error.
Finished in_shell(const std::string& line) {
  const TempDir dir;
  const std::string file = dir.path + "/err";
  const int status = std::system(("LATHE_CACHE=off; export LATHE_CACHE; exec 2>" + file + "; " + line).c_str());
  Finished out;
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream in(file);
  std::getline(in, out.err, '\0');
  return out;
}

TEST(Usage, OutputThatCannotBeWrittenIsAFailure) {
  const std::string exe = LATHE_EXECUTABLE, small = words("small.jsonl");
  for (const char* line : {" info", " info --json", " --version", " --help", " store ls --store /nonexistent"}) {
    const Finished full = in_shell(exe + line + " >/dev/full");
    EXPECT_EQ(full.code, 1) << line;
    EXPECT_THAT(full.err, StartsWith("lathe: the standard output could not be written")) << line;
  }
  // More than a buffer.
  EXPECT_EQ(in_shell(exe + " explain " + small + " >/dev/full").code, 1);
  EXPECT_EQ(in_shell(exe + " info >&-").code, 1);
  for (const char* lost : {" 2>/dev/full", " 2>&-"}) {
    EXPECT_EQ(in_shell(exe + " frobnicate" + lost).code, 2) << lost;
    EXPECT_EQ(in_shell(exe + " warmup /nonexistent/x.jsonl" + lost).code, 2) << lost;
    EXPECT_EQ(in_shell(exe + " --version >/dev/full" + lost).code, 1) << lost;
  }
}

TEST(Usage, ClosedDescriptorsAreNotThoseOfTheStore) {
  const TempDir dir;
  const std::string run =
      std::string(LATHE_EXECUTABLE) + " warmup --json --tier 1 --store " + dir.path + "/store " + words("small.jsonl");
  EXPECT_EQ(in_shell("unset LATHE_CACHE; exec " + run + " 0>&- >&- 2>&-").code, 1);  // its rows are lost
  const Finished checked = lathe({"store", "check", "--json", "--store", dir.path + "/store"});
  EXPECT_EQ(checked.code, 0) << checked.out;
  EXPECT_GE(checked.summary()["objects"].get<int>(), 5) << checked.out;
}

TEST(Usage, AMistypedVerbIsNamedWithTheNearest) {
  EXPECT_THAT(usage({"warmpu", words("small.jsonl")}), AllOf(HasSubstr("warmpu"), HasSubstr("did you mean warmup?")));
  EXPECT_THAT(usage({"frobnicate"}),
              AllOf(HasSubstr("frobnicate"), HasSubstr("verify"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(usage({"store", "chekc"}),
              AllOf(HasSubstr("lathe store: no verb chekc"), HasSubstr("did you mean check?")));
  EXPECT_EQ(lathe({}).code, 2);
  EXPECT_EQ(lathe({"warmup"}).code, 2);
  EXPECT_EQ(lathe({"--help"}).code, 0);
}

TEST(Usage, Version) {
  const Finished f = lathe({"--version"});
  EXPECT_EQ(f.code, 0);
  EXPECT_EQ(f.out, "lathe " + std::to_string(LATHE_VERSION_MAJOR) + "." + std::to_string(LATHE_VERSION_MINOR) + "." +
                       std::to_string(LATHE_VERSION_PATCH) + "\n");
}

TEST(Usage, SymbolsThatNobodyHasAreRefusedNamingThoseThereAre) {
  for (const char* verb : {"bench", "verify", "explain"}) {
    EXPECT_THAT(usage({verb, "--shape", "Q=3", words("small.jsonl")}), AllOf(HasSubstr("symbol Q"), HasSubstr("M, m")))
        << verb;
  }
  EXPECT_THAT(usage({"bench", "--shape", "M=none", words("small.jsonl")}), HasSubstr("M=none"));
  EXPECT_THAT(usage({"bench", "--shape", "M=999", words("small.jsonl")}), HasSubstr("M=999"));
  EXPECT_THAT(usage({"bench", "--shape", "M=1,M=2", words("small.jsonl")}), HasSubstr("twice"));
  EXPECT_THAT(usage({"explain", "--op", "gate", "--shape", "m=4", words("small.jsonl")}),
              AllOf(HasSubstr("symbol m"), HasSubstr("one of M")));
  const TempDir dir;
  const std::string kernel = dir.path + "/k.lir";
  std::ofstream(kernel)
      << "kernel scale(x: f32[64] in, y: f32[64] out) family elementwise\n  for i < 64 [col]:\n    y[i] = 2.0 * x[i]\n";
  EXPECT_THAT(usage({"opt", kernel, "--run", "--shape", "m=4"}),
              AllOf(HasSubstr("symbol m"), HasSubstr("all sizes are fixed")));
}

TEST(Usage, NumbersOutOfRangeAreToldInALine) {
  const std::vector<std::vector<std::string>> wrong = {{"warmup", "--budget", "-3"}, {"warmup", "--budget", "0"},
                                                       {"warmup", "--ram", "nan"},   {"tune", "--budget", "-3"},
                                                       {"tune", "--ram", "inf"},     {"tune", "--measurements", "-1"},
                                                       {"bench", "--row-ms", "-3"},  {"warmup", "--budget", "1e300"}};
  for (std::vector<std::string> args : wrong) {
    const std::string option = args[1], value = args[2];
    args.push_back(words("small.jsonl"));
    const std::string said = usage(args);
    EXPECT_THAT(said.substr(0, said.find('\n')), AllOf(HasSubstr(option), HasSubstr(value)));
    EXPECT_LT(said.size(), 160u) << said;
  }
}

}  // namespace
}  // namespace lathe::tools
