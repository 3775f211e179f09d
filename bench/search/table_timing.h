// One search's measuring on a table: the runtime's own TimingSession, on a clock that the table drives. So what a
// replayed strategy is told, and who wins in the end, is decided by the code that decides in earnest, on recorded
// samples.
#pragma once
#include <functional>
#include <span>

#include "bench/search/table_task.h"
#include "runtime/measure/timing.h"

namespace lathe::bench {

class TableTiming {
 public:
  // `reference`: the row everything is compared with, the first candidate.
  TableTiming(const TableTask& task, int reference, uint64_t seed);
  TableTiming(const TableTiming&) = delete;
  TableTiming& operator=(const TableTiming&) = delete;

  // Screens rows as one batch; what a strategy is told of them.
  std::vector<double> screen(const std::vector<int>& rows);
  double reference_us() const { return scores_[0]; }
  // The winner among the first n rows screened, the reference included; leaves the session as it was. belief: of a row
  // and what a strategy was told of it, higher is better: who the finalists are.
  using Beliefs = std::function<std::vector<double>(const std::vector<int>& rows, const std::vector<double>& us)>;
  int decide(int n, const Beliefs& beliefs);
  // Samples of that decision beyond the screening's.
  int further() const { return further_; }

 private:
  double next_us(int row);
  const TableTask* task_;
  Random random_;
  int64_t now_ns_ = 1;
  bool deciding_ = false;
  size_t pass_ = 0;
  std::vector<char> called_;      // rows already called in this pass
  std::vector<size_t> recorded_;  // which recorded pass a row's screening shows, by candidate
  std::vector<size_t> calls_;
  std::vector<int> rows_;  // by candidate of the session
  std::vector<double> scores_;
  runtime::TimingSession session_;
  int further_ = 0;
};

}  // namespace lathe::bench
