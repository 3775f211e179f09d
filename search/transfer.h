// What measured tasks say about another one: distances between tasks, a portfolio that covers them, the winners of the nearest ones,
// and the few bodies that serve all lengths of one operator. Pure functions of records; no model, no measuring.
#pragma once
#include <cstdint>
#include <vector>

#include "search/history.h"

namespace lathe::search {

// How unlike two knob settings are: |log2| of the ratio of sizes, 3 where one is a special value (<= 0) or absent and the other is not.
double knob_distance(const Knobs& a, const Knobs& b);

// How unlike two tasks are: Euclidean over log2 of the extents by role, plus what differs in structure, threads and cache state.
// Infinite between families.
double task_distance(const Problem& a, const Problem& b);

// At most n knob settings, the next one always that which raises the covered share of all records most: sum over records of
// weight * log2 of (best chosen / best of the record). A setting a record has not measured counts as its nearest row.
// near: records weigh by their distance to it, and `reach` says how fast that falls; null: all alike.
std::vector<Knobs> portfolio(const std::vector<TaskRecord>& records, int n, const Problem* near = nullptr, double reach = 2);

// The winners of the nearest tasks, nearest first, then their second best, distinct; at most n. Trust counts as distance.
std::vector<Knobs> nearest(const std::vector<TaskRecord>& records, const Problem& problem, int n);

// Bodies of one operator's static dimensions: at most k configurations that serve all lengths, chosen jointly.
// us[i][c]: time of configuration c at lengths[i] (ascending); 0: not measured, never chosen there.
struct BodyRule {
  int64_t up_to = 0;  // serves lengths up to this one; the last rule serves all above, too
  int config = -1;
};
// The decision list: a length is served by the first rule it is not above. Empty: no configuration is measured everywhere it is needed.
std::vector<BodyRule> choose_bodies(const std::vector<int64_t>& lengths, const std::vector<std::vector<double>>& us, int k);
// The configuration that serves a length; -1: an empty list.
int body_for(const std::vector<BodyRule>& rules, int64_t length);

}  // namespace lathe::search
