// See process.h.
#include "tests/tools/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace lathe::tools {

nlohmann::json Finished::summary() const {
  if (lines.empty() || lines.back().value("event", "") != "summary") return {};
  return lines.back();
}

std::vector<nlohmann::json> Finished::rows() const {
  std::vector<nlohmann::json> out;
  for (const nlohmann::json& line : lines) {
    if (line.value("event", "") == "row") out.push_back(line);
  }
  return out;
}

Finished lathe(const std::vector<std::string>& args, const std::map<std::string, std::string>& environment,
               const OnOutput& on_output) {
  Finished result;
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) return result;
  std::vector<std::string> texts = {LATHE_EXECUTABLE};
  texts.insert(texts.end(), args.begin(), args.end());
  std::vector<std::string> env_texts = {"PATH=/usr/bin:/bin"};
  for (const auto& [name, value] : environment) env_texts.push_back(name + "=" + value);
  for (const char* kept : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"}) {
    if (const char* value = std::getenv(kept)) env_texts.push_back(std::string(kept) + "=" + value);
  }
  std::vector<char*> argv, envp;
  for (std::string& t : texts) argv.push_back(t.data());
  for (std::string& t : env_texts) envp.push_back(t.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    dup2(err[1], 2);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  pollfd fds[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  for (int open = 2; open > 0;) {
    if (poll(fds, 2, -1) < 0) continue;
    for (pollfd& p : fds) {
      if (p.fd < 0 || p.revents == 0) continue;
      char buffer[65536];
      const ssize_t n = read(p.fd, buffer, sizeof buffer);
      if (n <= 0) {
        close(p.fd);
        p.fd = -1;
        --open;
        continue;
      }
      (&p == &fds[0] ? result.out : result.err).append(buffer, static_cast<size_t>(n));
      if (&p == &fds[0] && on_output) on_output(result.out, pid);
    }
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::istringstream in(result.out);
  for (std::string line; std::getline(in, line);) {
    nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
    if (!parsed.is_discarded()) result.lines.push_back(std::move(parsed));
  }
  return result;
}

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lathe-tools-XXXXXX").string();
  path = mkdtemp(pattern.data());
}
TempDir::~TempDir() {
  std::error_code error;
  std::filesystem::remove_all(path, error);
}

}  // namespace lathe::tools
