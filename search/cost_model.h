// Stage B of the cost model: own gradient-boosted trees over Features, trained from history, and an online residual on one task's own
// measurements. Deterministic: same rows, same seed, same bits. Values; predict is thread-safe.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "search/features.h"
#include "search/history.h"

namespace lathe::search {

struct TrainRow {
  Features x;
  float label = 0;    // log2(best of its task / own time), 0 best, clipped at -5.6 (failures get the clip)
  float weight = 1;
};

struct TreeParams {
  int trees = 150, depth = 6, bins = 32, min_leaf = 8;
  float rate = 0.1f, rows = 0.8f, columns = 0.6f, l2 = 1;
  uint64_t seed = 1;
};

class BoostedTrees {
 public:
  static BoostedTrees train(std::span<const TrainRow> rows, const TreeParams& params);
  float predict(const Features& x) const;
  bool empty() const { return trees_.empty(); }
  // Format, hash of features.def, seed, digest of rows, trees, checksum. parse: INVALID says what; a features.def of another hash is INVALID too.
  std::string print() const;
  static ir::Result<BoostedTrees> parse(std::string_view text);

 private:
  struct Node { int16_t feature; float threshold; int32_t left, right; float value; };
  float base_ = 0;
  uint64_t digest_ = 0;
  std::vector<std::vector<Node>> trees_;
};

// The model of one family: trees where history carries them (>= 5 tasks and >= 300 rows: the trust rule), with the residual of the task at
// hand on top (counts from 8 rows).
class CostModel {
 public:
  CostModel() = default;
  explicit CostModel(BoostedTrees base) : base_(std::move(base)) {}
  bool trusted() const { return !base_.empty(); }
  struct Score { double score = 0, sigma = 0; };  // score: higher is faster, log2 of the share of the best
  Score score(const Features& x) const;
  // Refits the residual on the measurements of the task so far (score labels against the best of them); at most 64 rows count.
  void adapt(std::span<const TrainRow> measured, uint64_t seed);
  void forget();  // drops the residual
  const BoostedTrees& base() const { return base_; }

 private:
  BoostedTrees base_;
  std::vector<BoostedTrees> residual_;  // bagged copies: their spread is sigma
};

// Rows of all records of the family, features recomputed. Trust multiplies the weight 0.2 + share of the best.
std::vector<TrainRow> training_rows(std::span<const TaskRecord> records, const ir::Target& target, const MachineRates& rates);
// Applies the trust rule: an untrusted model if there is too little.
CostModel train_model(std::span<const TaskRecord> records, const ir::Target& target, const MachineRates& rates, uint64_t seed);

}  // namespace lathe::search
