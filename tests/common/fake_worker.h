// Programs that are started as the measuring worker and are none: shell scripts in a folder of the test's.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace lathe::test {

class FakeWorker {
 public:
  // body: of a /bin/sh script; what it has is the task at descriptor 0, where it answers too, and no environment. $dir
  // is the folder.
  explicit FakeWorker(const std::string& body) {
    std::string pattern = (std::filesystem::temp_directory_path() / "lathe-worker-XXXXXX").string();
    dir_ = mkdtemp(pattern.data());
    std::ofstream(path()) << "#!/bin/sh\ndir=" << dir_ << "\n" << body << "\n";
    chmod(path().c_str(), 0700);
  }
  ~FakeWorker() { std::filesystem::remove_all(dir_); }
  FakeWorker(const FakeWorker&) = delete;

  std::string path() const { return dir_ + "/worker"; }
  std::string file(const std::string& name) const { return dir_ + "/" + name; }

 private:
  std::string dir_;
};

// One that says when it was asked, and is silent until it is let go; then it ends. So does the one that is started in
// its place.
class HeldWorker : public FakeWorker {
 public:
  HeldWorker()
      : FakeWorker("read task\necho asked > $dir/asked\nread word < $dir/go"),
        asked_(pipe_at("asked")),
        go_(pipe_at("go")) {}
  ~HeldWorker() {
    close(asked_);
    close(go_);
  }
  void await() const {
    char word[6];
    EXPECT_EQ(read(asked_, word, sizeof word), 6);
  }
  void let_go() const { EXPECT_EQ(write(go_, "on\non\n", 6), 6); }

 private:
  // Open at both ends: neither side waits for the other to come.
  int pipe_at(const std::string& name) const {
    EXPECT_EQ(mkfifo(file(name).c_str(), 0600), 0);
    return open(file(name).c_str(), O_RDWR | O_CLOEXEC);
  }
  int asked_, go_;
};

}  // namespace lathe::test
