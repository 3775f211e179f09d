// See served_operators.h.
#include "runtime/serve/served_operators.h"

#include <algorithm>
#include <chrono>

#include "ops/structure.h"

namespace lathe::runtime {

using ir::Result;
using ir::Status;

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::duration<double> kLongestWait = std::chrono::hours(24 * 365);  // what a clock can add

// The only search of an operator at a time; ends with it, whatever comes of it.
class OwnSearch {
 public:
  // Once nobody else searches, if something is left to search for then; nothing at the deadline.
  OwnSearch(ServedOperator& served, Clock::time_point until) : served_(served) {
    std::unique_lock lock(served.mutex);
    const bool free = served.searched.wait_until(lock, until, [&] { return !served.searching; });
    own_ = free && served.info.tier < 2;
    if (own_) served.searching = true;
  }
  ~OwnSearch() {
    if (!own_) return;
    {
      const std::lock_guard lock(served_.mutex);
      served_.searching = false;
    }
    served_.searched.notify_all();
  }
  OwnSearch(const OwnSearch&) = delete;
  OwnSearch& operator=(const OwnSearch&) = delete;
  explicit operator bool() const { return own_; }

 private:
  ServedOperator& served_;
  bool own_ = false;
};

}  // namespace

Status ServedOperators::make(const ops::Graph& graph, const ServeRequest& request, Found& out) const {
  LATHE_ASSIGN(out.op, Operator::create(context_, graph));
  PrepareRequest prepare = request.prepare;
  prepare.caller_waits = request.wait != Wait::tuned;
  if (request.prepare.device != 0) {
    prepare.compile = request.wait == Wait::tuned;
    constexpr uint64_t kLongest = 1'000'000'000'000'000'000;  // far beyond any wait, and no overflow
    if (request.deadline_ns != 0)
      prepare.ends =
          std::chrono::steady_clock::now() + std::chrono::nanoseconds(std::min(request.deadline_ns, kLongest));
    LATHE_ASSIGN(out.info, out.op->stages().prepare_on_device(prepare));
    return {};
  }
  LATHE_ASSIGN(out.info, out.op->stages().prepare(prepare, request.wait == Wait::stored));
  return {};
}

// The operator that serves: the one there is, else one of the caller's own, unless another caller was quicker.
Status ServedOperators::make_or_share(const ops::Graph& graph, const ServeRequest& request, Found& out) const {
  ServedOperator& served = *out.served;
  {
    const std::lock_guard lock(served.mutex);
    if (served.op != nullptr) {
      out.op = served.op;
      out.info = served.info;
      out.info.origin = LeafOrigin::memory;
      return {};
    }
  }
  LATHE_RETURN_IF_ERROR(make(graph, request, out));
  {
    const std::lock_guard lock(served.mutex);
    const bool first = served.op == nullptr;
    if (first) {
      served.op = out.op;
      served.info = out.info;
    }
    out.op = served.op;
    out.info.made = true;
    if (!first) return {};
  }
  if (request.prepare.device == 0) hooks_.serves(out.op, request.prepare);
  return {};
}

// What a caller missed who does not wait is compiled behind it, so that the next one finds it.
Status ServedOperators::compile_behind(const ops::Graph& graph, const ServeRequest& request, const Found& missed,
                                       Status miss) const {
  const std::shared_ptr<ServedOperator> served = missed.served;
  {
    const std::lock_guard lock(served->mutex);
    if (!served->behind_failed.ok()) return miss.with_context(served->behind_failed.message());
    if (served->behind) return miss;
    served->behind = true;
  }
  ServeRequest again = request;
  again.wait = Wait::tuned;
  again.deadline_ns = 0;  // was the caller's
  again.prepare.behind = true;
  const bool queued = hooks_.later([this, graph, again, served](const Hooks::Cancelled& cancelled) mutable {
    again.prepare.cancelled = cancelled;
    Found found;
    found.served = served;
    const Status made = make_or_share(graph, again, found);
    const std::lock_guard lock(served->mutex);
    served->behind = false;
    // What the operator is to blame for stays; what the machine lacked may be there at the next miss.
    if (made.code() == ir::Code::kUNSUPPORTED || made.code() == ir::Code::kINTERNAL) served->behind_failed = made;
  });
  if (!queued) {
    const std::lock_guard lock(served->mutex);
    served->behind = false;
  }
  return miss;
}

// Tuned by measurement, by this caller or by another that is at it; what there is at the deadline.
Status ServedOperators::wait_for_tuned(const ops::Graph& graph, const ServeRequest& request, Clock::time_point start,
                                       Found& out) const {
  ServedOperator& served = *out.served;
  const auto limit = std::chrono::duration<double, std::nano>(
      request.deadline_ns == 0 ? kNoLimitMs * 1e6 : static_cast<double>(request.deadline_ns));
  const Clock::time_point until =
      start + std::chrono::duration_cast<Clock::duration>(std::min<std::chrono::duration<double>>(limit, kLongestWait));
  const OwnSearch own(served, until);
  const double left_ms = std::chrono::duration<double, std::milli>(until - Clock::now()).count();
  if (own && left_ms > 0) {
    LATHE_ASSIGN(const Tuned tuned,
                 hooks_.tune(graph, request.prepare, request.deadline_ns == 0 ? kNoLimitMs : left_ms));
    if (tuned.searched) {
      const std::shared_ptr<Operator> before = out.op;
      LATHE_RETURN_IF_ERROR(make(graph, request, out));
      (void)before->stages().complete();  // handles go on using it, and a seal would not find it any more
      {
        const std::lock_guard lock(served.mutex);
        served.op = out.op;
        served.info = out.info;
      }
      served.generation.fetch_add(1, std::memory_order_release);
      hooks_.serves(out.op, request.prepare);
    }
    if (tuned.missed) {
      out.info.missed = true;
      out.info.miss = *tuned.missed;
      context_->stats().miss(*tuned.missed);
    }
    return {};
  }
  const std::lock_guard lock(served.mutex);
  out.op = served.op;
  out.info = served.info;
  out.info.origin = LeafOrigin::memory;
  if (served.info.tier < 2) {  // waited in vain
    out.info.missed = true;
    out.info.miss = MissReason::k_budget;
    context_->stats().miss(MissReason::k_budget);
  }
  return {};
}

void ServedOperators::count(const PrepareInfo& info, int64_t ns) const {
  Stats& stats = context_->stats();
  stats.add(info.tier >= 2 ? Stat::k_hits_t2 : info.tier == 1 ? Stat::k_hits_t1 : Stat::k_hits_t0);
  if (info.origin == LeafOrigin::compiled) stats.add(Stat::k_caller_blocked_ns, ns);
  if (info.tier == 0 && context_->target().level != ir::IsaLevel::portable) stats.add(Stat::k_fallbacks);
}

Result<ServedOperators::Found> ServedOperators::serve(const ops::Graph& graph, const ServeRequest& request) {
  const Clock::time_point start = Clock::now();
  const PrepareRequest& p = request.prepare;
  const std::string key =
      fmt::format("{} {} {} {}\n{}", p.device, p.threads, p.cold, p.allowed, ops::structure_of(graph));
  Found out;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<ServedOperator>& slot = served_[key];
    if (slot == nullptr) slot = std::make_shared<ServedOperator>();
    out.served = slot;
  }
  const Status made = make_or_share(graph, request, out);
  const bool missed = made.code() == ir::Code::kMISS && p.device != 0 && request.wait == Wait::now;
  if (missed && hooks_.later && context_->seal() == Seal::off) return compile_behind(graph, request, out, made);
  LATHE_RETURN_IF_ERROR(made);
  const bool on_cpu = p.device == 0;
  if (on_cpu && request.wait == Wait::tuned && out.info.tier < 2 && context_->seal() == Seal::off)
    LATHE_RETURN_IF_ERROR(wait_for_tuned(graph, request, start, out));
  if (request.wait == Wait::tuned) context_->leaves().publish_all();
  count(out.info, std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
  return out;
}

ServedOperators::Table ServedOperators::all() const {
  const std::lock_guard lock(mutex_);
  return served_;
}

size_t ServedOperators::size() const {
  const std::lock_guard lock(mutex_);
  return served_.size();
}

void ServedOperators::complete() {
  for (const auto& [key, served] : all()) {
    std::shared_ptr<Operator> op;
    {
      const std::lock_guard lock(served->mutex);
      op = served->op;
    }
    if (op != nullptr) (void)op->stages().complete();  // what cannot be made, the calls that want it say
  }
}

void ServedOperators::forget_untuned() {
  for (const auto& [key, served] : all()) {
    std::shared_ptr<Operator> op;
    {
      const std::lock_guard lock(served->mutex);
      if (served->info.tier < 2) op = served->op;
    }
    if (op == nullptr) continue;
    (void)op->stages().complete();  // handles go on using it, and a seal would not find it any more
    const std::lock_guard lock(mutex_);
    const std::lock_guard fields(served->mutex);
    const auto it = served_.find(key);
    if (served->op != op || it == served_.end() || it->second != served) continue;  // somebody was quicker
    served->generation.fetch_add(1, std::memory_order_release);
    served_.erase(it);
  }
}

}  // namespace lathe::runtime
