// What measured tasks say about another one: distances between tasks, a portfolio that covers them, the winners of the
// nearest ones, and the few bodies that serve all lengths of one operator. Pure functions of records; no model, no
// measuring.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "search/model/history.h"

namespace lathe::search {

// A knob as a number, so that two of them subtract: log2 of a size; a code for a special value (<= 0) and for a knob
// that is absent.
double coded_knob(const Knobs& knobs, const std::string& name);
double coded_distance(double a, double b);

// How unlike two knob settings are: |log2| of the ratio of sizes, 3 where one is a special value (<= 0) or absent and
// the other is not.
double knob_distance(const Knobs& a, const Knobs& b);

// How unlike two tasks are: Euclidean over log2 of the extents by role, plus what differs in structure, threads and
// cache state. Infinite between families.
double task_distance(const Problem& a, const Problem& b);

// Greedy cover of records by knob settings: the next one is always that which raises the covered share of all records
// most, the sum over records of weight * log2 of (best chosen / best of the record). A setting a record has not
// measured counts as its nearest row.
class Coverage {
 public:
  // near: records weigh by exp(-distance to it / reach) and by their trust; null: by trust alone.
  Coverage(const std::vector<TaskRecord>& records, const Problem* near, double reach = 2);
  // Chosen already, by whomever.
  void have(const Knobs& knobs);
  // Measured on the task at hand: records in which the measured settings stand to each other as they do here gain
  // weight.
  void observe(const Knobs& knobs, double us);
  // Marks it as chosen; nothing if no setting helps any more.
  std::optional<Knobs> next();

 private:
  using Coded = std::vector<double>;
  struct Task {
    double weight = 0, best_us = 0, covered = 0;
    std::vector<double> log_us;
    std::vector<Coded> rows;
  };
  struct Candidate {
    Knobs knobs;
    Coded coded;
    std::vector<double> share;  // log2 of best / time of the row of each task that is nearest to it
    bool taken = false;
  };
  Coded code(const Knobs& knobs) const;
  std::vector<double> shares(const Coded& at) const;
  std::vector<double> weights() const;
  std::vector<std::string> names_;
  std::vector<Task> tasks_;
  std::vector<Candidate> candidates_;
  std::vector<std::pair<std::vector<double>, double>> observed_;  // shares in each record, log2 time here
};

// The rows of a record that may be reused, fastest first: timed, of a recipe, nothing appended.
struct RankedRow {
  const MeasuredRow* row = nullptr;
  double us = 0;
};
std::vector<RankedRow> ranked_rows(const TaskRecord& record);

// How much further away a record counts for who measured it.
double distrust(const TaskRecord& record);

// The records of a task's family with rows to reuse, nearest first.
struct NearRecord {
  const TaskRecord* record = nullptr;
  std::vector<RankedRow> rows;
};
std::vector<NearRecord> near_records(const std::vector<TaskRecord>& records, const Problem& problem);

// The winners of the nearest tasks, nearest first, then their second best, distinct; at most n. Trust counts as
// distance.
std::vector<Knobs> nearest(const std::vector<TaskRecord>& records, const Problem& problem, int n);

// Bodies of one operator's static dimensions: at most k configurations that serve all lengths, chosen jointly.
// us[i][c]: time of configuration c at lengths[i] (ascending); 0: not measured, never chosen there.
struct BodyRule {
  int64_t up_to = 0;  // serves lengths up to this one; the last rule serves all above, too
  int config = -1;
};
// The decision list: a length is served by the first rule it is not above. Empty: no configuration is measured
// everywhere it is needed.
std::vector<BodyRule> choose_bodies(const std::vector<int64_t>& lengths, const std::vector<std::vector<double>>& us,
                                    int k);
// The configuration that serves a length; -1: an empty list.
int body_for(const std::vector<BodyRule>& rules, int64_t length);

}  // namespace lathe::search
