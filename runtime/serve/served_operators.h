// The operators of a context, shared by everybody who asks for the same one: by structure of the graph, classes,
// threads and cache state. Searches and background tuning are other rooms' work, which the owner hands in.
//
// Thread-safe. Only a WAIT waits for others: for a search of the same operator, until its own deadline. The locks are
// for fields and for the table: operators are made, completed and searched without them.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/serve/operator.h"

namespace lathe::runtime {

// What a caller waits for, as lathe_wait.
enum class Wait : uint8_t {
  now,    // nothing: what is stored, else the default
  tuned,  // a search
  stored  // nothing, and only what is stored serves
};

struct ServeRequest {
  PrepareRequest prepare;
  Wait wait = Wait::now;
  uint64_t deadline_ns = 0;  // tuned: 0 = no limit
};
inline constexpr double kNoLimitMs = 1e12;

// What a search for one operator came to.
struct Tuned {
  bool searched = false;
  std::optional<MissReason> missed;  // why something was not measured
};

// One operator as resolve serves it. The Operator in it is prepared once and never changed; a better one takes its
// place.
struct ServedOperator {
  std::mutex mutex;
  std::shared_ptr<Operator> op;  // null: not yet
  PrepareInfo info;
  bool searching = false;            // by a caller that waits for it
  std::condition_variable searched;  // that search has ended
  std::atomic<uint64_t> generation{0};
  bool behind = false;       // what a caller missed is being compiled, or waits for it
  ir::Status behind_failed;  // it cannot be
};

class ServedOperators {
 public:
  struct Hooks {
    // Searches for better Schedules and records them, within the time left.
    std::function<ir::Result<Tuned>(const ops::Graph& graph, const PrepareRequest& request, double left_ms)> tune;
    // An operator serves from now on.
    std::function<void(const std::shared_ptr<Operator>& op, const PrepareRequest& request)> serves;
    // Runs the job on a background thread, and ends before this object does. False: the host allows none. May be empty.
    using Cancelled = std::function<bool()>;
    std::function<bool(std::function<void(const Cancelled&)> job)> later;
  };
  ServedOperators(std::shared_ptr<Context> context, Hooks hooks)
      : context_(std::move(context)), hooks_(std::move(hooks)) {}

  struct Found {
    std::shared_ptr<ServedOperator> served;
    std::shared_ptr<Operator> op;
    PrepareInfo info;
  };
  // The operator for a request: made, or shared with those before. Counts the hit, and what it took.
  ir::Result<Found> serve(const ops::Graph& graph, const ServeRequest& request);
  // What first resolves left for later is made: nothing can be after a seal.
  void complete();
  // Operators below T2 are made anew by the next resolve, and the generation of their kernels moves: better ones were
  // stored.
  void forget_untuned();
  size_t size() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Table = std::map<std::string, std::shared_ptr<ServedOperator>>;
  ir::Status make(const ops::Graph& graph, const ServeRequest& request, Found& out) const;
  ir::Status make_or_share(const ops::Graph& graph, const ServeRequest& request, Found& out) const;
  ir::Status compile_behind(const ops::Graph& graph, const ServeRequest& request, const Found& missed,
                            ir::Status miss) const;
  ir::Status wait_for_tuned(const ops::Graph& graph, const ServeRequest& request, Clock::time_point start,
                            Found& out) const;
  void count(const PrepareInfo& info, int64_t ns) const;
  Table all() const;

  const std::shared_ptr<Context> context_;
  const Hooks hooks_;
  mutable std::mutex mutex_;
  Table served_;
};

}  // namespace lathe::runtime
