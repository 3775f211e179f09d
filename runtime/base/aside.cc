// See aside.h.
#include "runtime/base/aside.h"

#include <sys/resource.h>

#include <algorithm>

namespace lathe::runtime {
namespace {

constexpr int kNice = 10;  // not idle: on a busy machine an idle child would be taken for one that hangs
constexpr int64_t kForgetNs = 5'000'000'000;

}  // namespace

void work_aside() {
  const sched_param none = {};
  (void)sched_setscheduler(0, SCHED_BATCH, &none);
  (void)setpriority(PRIO_PROCESS, 0, std::max(kNice, getpriority(PRIO_PROCESS, 0)));
}

KeepOff::KeepOff() {
  CPU_ZERO(&own_);
  (void)sched_getaffinity(0, sizeof own_, &own_);
  allowed_ = own_;
}

void KeepOff::update(const cpu_set_t& calls, bool parallel, pid_t child, int64_t now_ns) {
  cpu_set_t taken, wanted;
  CPU_AND(&taken, &own_, &calls);
  if (CPU_COUNT(&taken) > 0) seen_ns_ = now_ns;
  const bool forget = parallel || now_ns - seen_ns_ > kForgetNs;
  CPU_XOR(&wanted, &own_, &taken);
  if (forget || CPU_COUNT(&wanted) == 0)
    wanted = own_;
  else if (CPU_COUNT(&taken) == 0)
    wanted = allowed_;
  const bool moved = !CPU_EQUAL(&wanted, &allowed_);
  allowed_ = wanted;
  if (moved) (void)sched_setaffinity(0, sizeof allowed_, &allowed_);
  if (child > 0 && (moved || child != child_)) (void)sched_setaffinity(child, sizeof allowed_, &allowed_);
  child_ = child;
}

}  // namespace lathe::runtime
