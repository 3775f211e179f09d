// The least of all limits around a process, in both forms that control groups have.
#include "runtime/base/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lathe::runtime {
namespace {

class MemoryLimit : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "/memory_limit_" + std::to_string(getpid());
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = root_ + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string root_;
};

TEST_F(MemoryLimit, TheLeastOfAGroupAndThoseAroundIt) {
  write("/memory.max", "max\n");
  write("/a/memory.max", "1000\n");
  write("/a/b/memory.max", "5000\n");
  write("/c/memory.max", "max\n");
  EXPECT_EQ(control_group_limit(root_, "0::/a/b\n"), 1000);
  EXPECT_EQ(control_group_limit(root_, "0::/a"), 1000);
  EXPECT_EQ(control_group_limit(root_, "0::/c\n"), INT64_MAX);
  EXPECT_EQ(control_group_limit(root_, "0::/not/there\n"), INT64_MAX);
  write("/memory.max", "300\n");  // as a container sees itself
  EXPECT_EQ(control_group_limit(root_, "0::/\n"), 300);
  EXPECT_EQ(control_group_limit(root_, "0::/not/there\n"), 300);
}

TEST_F(MemoryLimit, TheOlderHierarchyHasAFolderOfItsOwn) {
  write("/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/memory/docker/x/memory.limit_in_bytes", "4096\n");
  write("/cpu/memory.limit_in_bytes", "7\n");
  EXPECT_EQ(control_group_limit(root_, "5:cpu:/\n4:hugetlb,memory:/docker/x\n0::/docker/x\n"), 4096);
  EXPECT_EQ(control_group_limit(root_, "4:memory:/\n"), 9223372036854771712);
}

TEST_F(MemoryLimit, TextsThatSayNothing) {
  write("/memory.max", "lots\n");
  for (const char* own : {"", "\n", "0:", "0::", "0::/", "::::", "no colon", "0::/\n\n"})
    EXPECT_EQ(control_group_limit(root_, own), INT64_MAX) << own;
  write("/memory.max", "99999999999999999999999\n");
  EXPECT_EQ(control_group_limit(root_, "0::/"), INT64_MAX);
}

TEST_F(MemoryLimit, IsThatOfTheProcessToo) {
  EXPECT_GT(memory_limit(), 0);
  EXPECT_LE(memory_limit(), int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {rlim_t{1} << 29, rlim_t{1} << 29};
    _exit(setrlimit(RLIMIT_AS, &limit) == 0 && memory_limit() <= int64_t{1} << 29 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
#endif
}

}  // namespace
}  // namespace lathe::runtime
