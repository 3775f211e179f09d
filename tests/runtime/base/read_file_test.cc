// Files that callers name: whole and regular, or refused at once; and errors in them as FILE:LINE.
#include "runtime/base/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "jit/host/llvm_loader.h"
#include "runtime/serve/recorded_calls.h"
#include "tests/common/c_client.h"
#include "tests/runtime/store/store_util.h"

namespace lathe::runtime {
namespace {

using ir::Code;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ReadFile, ReadsWhatIsThereUpToALimit) {
  TempDir dir;
  const std::string path = dir.path() + "/f", text(200'000, 'a');
  write_whole(path, text);
  EXPECT_EQ(read_file(path).value(), text);
  EXPECT_EQ(read_file(path, text.size()).value(), text);
  EXPECT_EQ(read_file(path, text.size() - 1).status().code(), Code::kINVALID);
  EXPECT_EQ(read_file(dir.path() + "/none").status().code(), Code::kIO);
  EXPECT_NE(read_file(dir.path() + "/none").status().os_errno(), 0);
  EXPECT_THAT(read_file(dir.path()).status().message(), HasSubstr("is a directory"));
}

// A child that would wait is ended by the alarm.
template <class Body>
void expect_at_once(const Body& body) {
  EXPECT_EXIT(
      {
        alarm(60);
        _exit(body() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ReadFile, WaitsForNobody) {
  TempDir dir;
  const std::string fifo = dir.path() + "/liblathe_llvm.so";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, std::string("/dev/zero")}) {
    expect_at_once([&] { return read_file(path).status().code() == Code::kINVALID; });
    expect_at_once([&] { return !RecordedCalls::open(path).ok(); });
    expect_at_once([&] {
      const auto ctx = test::make_context("portable");
      lathe_plan* plan = nullptr;
      lathe_error e;
      if (lathe_plan_create(ctx.get(), &plan, &e) != LATHE_STATUS_OK) return false;
      const test::Owned<lathe_plan> owned(plan);
      return lathe_plan_load(plan, path.c_str(), &e) == LATHE_STATUS_INVALID && std::string(e.arg_name) == "path" &&
             std::string(e.message).find("expected a regular file") != std::string::npos;
    });
  }
  expect_at_once([&] { return !jit::open_llvm_plugin({dir.path()}).ok(); });
}

TEST(ReadFile, ErrorsBeginWithFileAndLine) {
  const auto text = [](const ir::Status& s) {
    const ir::Status in = in_file("w.jsonl", s);
    return in.arg() + "|" + in.message();
  };
  EXPECT_EQ(text(ir::invalid("missing").with_arg("line 12: dims.m.min")), "w.jsonl:12|dims.m.min: missing");
  EXPECT_EQ(text(ir::invalid("not JSON").with_arg("line 3")), "w.jsonl:3|not JSON");
  EXPECT_EQ(text(ir::invalid("line 4: expected `spec 1`")), "w.jsonl:4|expected `spec 1`");
  EXPECT_EQ(text(ir::invalid("line 2, column 7: expected ')'")), "w.jsonl:2:7|expected ')'");
  EXPECT_EQ(text(ir::invalid("no operator")), "|w.jsonl: no operator");
}

TEST(ReadFile, APlansErrorBeginsWithFileAndLine) {
  TempDir dir;
  const std::string path = dir.path() + "/w.jsonl", far = dir.path() + "/" + std::string(200, 'd') + ".jsonl";
  const auto ctx = test::make_context("portable");
  lathe_plan* plan = nullptr;
  lathe_error e;
  ASSERT_EQ(lathe_plan_create(ctx.get(), &plan, &e), LATHE_STATUS_OK);
  const test::Owned<lathe_plan> owned(plan);
  for (const std::string& p : {path, far}) write_whole(p, "\n{\"name\": 3}\n");
  EXPECT_EQ(lathe_plan_load(plan, path.c_str(), &e), LATHE_STATUS_INVALID);
  EXPECT_THAT(e.message, StartsWith(path + ":2: "));
  EXPECT_EQ(e.arg_index, 1);
  EXPECT_EQ(lathe_plan_load(plan, far.c_str(), &e), LATHE_STATUS_INVALID);
  EXPECT_THAT(e.message, testing::AllOf(StartsWith("...ddd"), HasSubstr(".jsonl:2: "), HasSubstr("missing")));
}

}  // namespace
}  // namespace lathe::runtime
