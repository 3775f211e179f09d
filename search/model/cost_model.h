// Stage B of the cost model: own gradient-boosted trees over Features, trained from history. Deterministic: same
// rows, same seed, same bits. Values; predict is thread-safe.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "search/model/features.h"
#include "search/model/history.h"

namespace lathe::search {

// Labels below this are all "slow": log2(best / time); failures get it.
constexpr float kLabelClip = -5.6f;

struct TrainRow {
  Features x;
  float label = 0;  // log2(best of its task / own time), 0 best, clipped at kLabelClip
  float weight = 1;
};

struct TreeParams {
  int trees = 150, depth = 6, bins = 32, min_leaf = 8;
  int copies = 1;  // ensembles whose mean predicts, each on rows and columns of its own choosing
  float rate = 0.1f, rows = 0.8f, columns = 0.6f, l2 = 1;
  uint64_t seed = 1;
};

class BoostedTrees {
 public:
  static BoostedTrees train(std::span<const TrainRow> rows, const TreeParams& params);
  float predict(const Features& x) const;
  bool empty() const { return roots_.empty(); }
  uint64_t digest() const { return digest_; }  // of the rows it was trained on
  // Format, hash of features.def, seed, digest of rows, trees, checksum. parse: INVALID says what; a features.def of
  // another hash is INVALID too.
  std::string print() const;
  static ir::Result<BoostedTrees> parse(std::string_view text);

 private:
  friend class TreeGrower;
  // A leaf has feature -1 and its value; else `value` or less goes to node `left`, more to the one after it.
  struct Node {
    float value = 0;
    int32_t left = 0;
    int32_t feature = -1;
  };
  float base_ = 0;
  uint64_t digest_ = 0, seed_ = 0;
  std::vector<Node> nodes_;  // parents before children
  std::vector<int32_t> roots_;
};

// What history a model was trained from, by trust.
struct ModelSource {
  int tasks = 0, local_tasks = 0;  // local: measured in this very environment
  int rows = 0;
};

// The model of one family: trees where history carries them (>= 5 tasks and >= 300 rows: the trust rule).
class CostModel {
 public:
  CostModel() = default;
  explicit CostModel(BoostedTrees base, ModelSource source = {}) : base_(std::move(base)), source_(source) {}
  bool trusted() const { return !base_.empty(); }
  // Whether the model may name the first pick after the default: not before three tasks were measured here. Until then
  // it makes shortlists.
  bool may_lead() const { return trusted() && source_.local_tasks >= 3; }
  const ModelSource& source() const { return source_; }
  // Higher is faster: log2 of the share of the best.
  double score(const Features& x) const { return base_.empty() ? 0 : base_.predict(x); }
  const BoostedTrees& base() const { return base_; }

 private:
  BoostedTrees base_;
  ModelSource source_;
};

// The label of a time; best and own in the same unit.
float label_of(double best, double own);

// Rows of all records, features recomputed; records of one task and environment share their best. Trust multiplies the
// weight 0.2 + share of the best; failures count as slow, skipped rows not at all.
std::vector<TrainRow> training_rows(std::span<const TaskRecord> records, const ir::Target& target,
                                    const MachineRates& rates);
// Applies the trust rule: an untrusted model if there is too little.
CostModel train_model(std::span<const TaskRecord> records, const ir::Target& target, const MachineRates& rates,
                      uint64_t seed);

}  // namespace lathe::search
