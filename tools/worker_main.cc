// See worker_main.h.
#include "tools/worker_main.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "runtime/cuda/measure/device_evaluation.h"
#include "runtime/live/shadow.h"
#include "runtime/measure/evaluation.h"
#include "runtime/measure/worker_protocol.h"

namespace {

using namespace lathe::runtime;

// For the signal handler: nothing else can tell it what was running, in the process and in the thread that faults; and
// which of the first 64 candidates are being compiled, a bit each.
std::atomic<int> g_candidate{-1};
thread_local int t_candidate = -1;
std::atomic<uint64_t> g_compiled{0};
std::atomic<const Oracle*> g_oracle{nullptr};

void send_all(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(0, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(0);
    data += n;
    size -= static_cast<size_t>(n);
  }
}

size_t put(char* to, const char* text) {
  const size_t n = strlen(text);
  memcpy(to, text, n);
  return n;
}
size_t put(char* to, int value) {
  char digits[12];
  int n = 0;
  unsigned v = value < 0 ? 0u - static_cast<unsigned>(value) : static_cast<unsigned>(value);
  do digits[n++] = static_cast<char>('0' + v % 10);
  while ((v /= 10) != 0);
  size_t out = 0;
  if (value < 0) to[out++] = '-';
  while (n > 0) to[out++] = digits[--n];
  return out;
}

// Last words, with async-signal-safe calls only. SIGTERM is the client asking where a task hangs.
void on_fault(int signal, siginfo_t* info, void*) {
  char text[320];
  size_t n = put(text, "\n{\"fault\": ");
  const uint64_t compiled = g_compiled.load();  // of several that began together, those that do not end
  const int hangs = compiled != 0 ? std::countr_zero(compiled) : g_candidate.load();
  n += put(text + n, signal != SIGTERM && t_candidate >= 0 ? t_candidate : hangs);
  n += put(text + n, ", \"signal\": ");
  n += put(text + n, signal);
  n += put(text + n, ", \"what\": \"");
  const Oracle* oracle = g_oracle.load();
  if (oracle && signal != SIGTERM) n += oracle->describe(info->si_addr, text + n, 128);
  n += put(text + n, "\"}\n");
  send_all(text, n);
  _exit(128 + signal);
}

// Last words, too: nothing runs on that device any more in this process.
void device_lost(int candidate, const std::string& what) {
  const std::string text = encode_fault(candidate, what);
  send_all(text.data(), text.size());
  _exit(1);
}

void install_handlers() {
  static char stack[64 << 10];
  const stack_t alternate = {stack, 0, sizeof stack};
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int s : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM, SIGXCPU}) sigaction(s, &action, nullptr);
}

// CPU time from now on; the limit is absolute.
void limit_cpu(rlim_t seconds) {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  const rlim_t spent = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
  rlimit limit = {};
  getrlimit(RLIMIT_CPU, &limit);
  limit.rlim_cur = spent + seconds;
  setrlimit(RLIMIT_CPU, &limit);
}

// One session at a time: the last one begun.
class Server {
 public:
  Server(LeafCache& leaves, std::shared_ptr<StageMaker> stages) : leaves_(leaves), stages_(std::move(stages)) {}

  std::string answer(const std::string& line) {
    const auto tell = [](const std::string& text) { send_all(text.data(), text.size()); };
    if (is_shadow(line)) return answer_shadow(line, leaves_, *stages_, tell);
    lathe::ir::Result<WorkerRequest> request = decode_request(line);
    if (!request.ok()) return encode_error(request.status());
    if (request->kind == WorkerRequest::Kind::begin) {
      evaluation_.reset();
      auto begun = request->task.device != 0 ? begin_device_evaluation(std::move(request->task), hooks(), device_lost)
                                             : begin_evaluation(std::move(request->task), leaves_, hooks());
      if (!begun.ok()) return encode_error(begun.status());
      evaluation_ = std::move(*begun);
      return encode_done();
    }
    if (!evaluation_) return encode_error(lathe::ir::invalid("no task has begun"));
    told_ = -1;
    const std::string text = request->kind == WorkerRequest::Kind::screen ? screen(request->batch) : decide(*request);
    g_oracle = nullptr;
    g_candidate = t_candidate = -1;
    return text;
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string screen(const std::vector<CandidateSpec>& batch) {
    const auto results = evaluation_->screen(batch);
    return results.ok() ? encode_done() : encode_error(results.status());
  }
  std::string decide(const WorkerRequest& request) {
    const auto decision = evaluation_->decide(request.finalists, request.incumbent);
    return decision.ok() ? encode_decision(*decision) : encode_error(decision.status());
  }

  EvaluationHooks hooks() {
    EvaluationHooks out;
    out.progress = [this](int candidate, EvaluatePhase phase) {
      const std::lock_guard lock(mutex_);  // several candidates may be built at once
      g_candidate = t_candidate = candidate;
      // Samples of the timing are not disturbed by more than a sign of life.
      const bool timing = phase == EvaluatePhase::time;
      const Clock::time_point now = Clock::now();
      if (timing && candidate <= told_ && now - last_ < std::chrono::milliseconds(100)) return;
      if (timing) told_ = std::max(told_, candidate);
      last_ = now;
      const std::string text = encode_progress(candidate, phase);
      send_all(text.data(), text.size());
    };
    out.compiles = [](int candidate, bool begins) {
      const uint64_t bit = candidate < 64 ? uint64_t{1} << candidate : 0;
      begins ? g_compiled |= bit : g_compiled &= ~bit;
    };
    out.settled = [](int candidate, const CandidateResult& result) {
      const std::string text = encode_settled(candidate, result);
      send_all(text.data(), text.size());
    };
    out.oracle = [](const Oracle* oracle) { g_oracle = oracle; };
    out.stages = stages_;
    return out;
  }

  LeafCache& leaves_;
  const std::shared_ptr<StageMaker> stages_;
  std::unique_ptr<Evaluation> evaluation_;
  std::mutex mutex_;
  Clock::time_point last_ = Clock::now();
  int told_ = -1;  // highest candidate whose timing was announced
};

}  // namespace

namespace lathe::tools {

int worker_main(int argc, char** argv, std::shared_ptr<StageMaker> stages) {
  if (argc < 3) return 2;
  const pid_t parent = getppid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) return 0;
  install_handlers();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  if (const rlim_t memory = std::strtoull(argv[1], nullptr, 10) << 20; memory > 0) {
    const rlimit limit = {memory, memory};
    setrlimit(RLIMIT_AS, &limit);
  }
#endif
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  LeafCacheOptions options;
  if (argc > 3) options.plugin_dir = argv[3];
  options.keep_images = true;
  LeafCache leaves(options, nullptr, nullptr);
  Server server(leaves, std::move(stages));
  std::string pending;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = read(0, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    pending.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
      limit_cpu(std::strtoull(argv[2], nullptr, 10));
      const std::string text = server.answer(pending.substr(0, end));
      send_all(text.data(), text.size());
    }
  }
}

}  // namespace lathe::tools
