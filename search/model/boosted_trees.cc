// Training and prediction of boosted regression trees over histograms of at most 32 bins: weighted squared error, rows
// and columns sampled per tree. One thread and a fixed order of sums: the same rows give the same bits. Text form:
// boosted_trees_text.cc.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ir/analysis/analysis.h"
#include "search/model/cost_model.h"

namespace lathe::search {

namespace {

constexpr int kMaxBins = 32;

// splitmix64: the only randomness.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t n) { return next() % n; }
  float unit() { return static_cast<float>(next() >> 40) * 0x1p-24f; }

 private:
  uint64_t state_;
};

// At most bins - 1 cuts between the values of a feature, ascending; x <= cut goes left.
std::vector<float> cuts_of(std::vector<float> values, int bins) {
  std::sort(values.begin(), values.end());
  std::vector<float> distinct = values;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const auto between = [](float a, float b) {
    const float middle = a + (b - a) / 2;
    return middle < b ? middle : a;
  };
  std::vector<float> cuts;
  if (static_cast<int>(distinct.size()) <= bins) {
    for (size_t i = 1; i < distinct.size(); ++i) cuts.push_back(between(distinct[i - 1], distinct[i]));
    return cuts;
  }
  for (int b = 1; b < bins; ++b) {
    const size_t at = values.size() * static_cast<size_t>(b) / static_cast<size_t>(bins);
    const auto above = std::upper_bound(distinct.begin(), distinct.end(), values[at - 1]);
    if (above == distinct.end()) continue;
    const float cut = between(*(above - 1), *above);
    if (cuts.empty() || cut > cuts.back()) cuts.push_back(cut);
  }
  return cuts;
}

struct Bin {
  double gradient = 0, weight = 0;
  int64_t rows = 0;
};

struct Split {
  int column = -1, bin = 0;  // column: position among the sampled ones
  double gain = 0;
};

}  // namespace

// Grows one tree at a time on the residuals of those before.
class TreeGrower {
 public:
  TreeGrower(std::span<const TrainRow> rows, const TreeParams& params) : rows_(rows), p_(params), random_(params.seed) {
    p_.bins = std::clamp(p_.bins, 2, kMaxBins);
    for (int f = 0; f < kFeatures; ++f) {
      std::vector<float> values;
      for (const TrainRow& r : rows) values.push_back(r.x[static_cast<size_t>(f)]);
      std::vector<float> cuts = cuts_of(std::move(values), p_.bins);
      if (cuts.empty()) continue;
      used_.push_back(f);
      cuts_.push_back(std::move(cuts));
    }
    binned_.resize(rows.size() * used_.size());
    for (size_t r = 0; r < rows.size(); ++r) {
      for (size_t c = 0; c < used_.size(); ++c) {
        const float x = rows[r].x[static_cast<size_t>(used_[c])];
        binned_[r * used_.size() + c] =
            static_cast<uint8_t>(std::lower_bound(cuts_[c].begin(), cuts_[c].end(), x) - cuts_[c].begin());
      }
    }
  }

  BoostedTrees run() {
    BoostedTrees out;
    double sum = 0, weight = 0;
    for (const TrainRow& r : rows_) {
      sum += static_cast<double>(r.label) * r.weight;
      weight += r.weight;
    }
    out.base_ = weight > 0 ? static_cast<float>(sum / weight) : 0;
    out.seed_ = p_.seed;
    out.digest_ = ir::hash_bytes(rows_.data(), rows_.size_bytes());
    for (int copy = 0; copy < p_.copies; ++copy) {
      prediction_.assign(rows_.size(), out.base_);
      for (int t = 0; t < p_.trees && !used_.empty(); ++t) grow_tree(out);
    }
    // A sum of all trees is the mean of the copies.
    for (auto& node : out.nodes_) {
      if (node.feature < 0) node.value /= static_cast<float>(p_.copies);
    }
    return out;
  }

 private:
  size_t bins() const { return static_cast<size_t>(p_.bins); }  // of one column in a histogram

  void grow_tree(BoostedTrees& out) {
    order_.clear();
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (p_.rows >= 1 || random_.unit() < p_.rows) order_.push_back(static_cast<uint32_t>(r));
    }
    columns_.resize(used_.size());
    std::iota(columns_.begin(), columns_.end(), 0);
    const size_t wanted = std::clamp<size_t>(
        static_cast<size_t>(std::lround(p_.columns * static_cast<float>(used_.size()))), 1, used_.size());
    for (size_t i = 0; i < wanted; ++i) std::swap(columns_[i], columns_[i + random_.below(used_.size() - i)]);
    columns_.resize(wanted);
    std::sort(columns_.begin(), columns_.end());
    gradient_.resize(rows_.size());
    for (size_t r = 0; r < rows_.size(); ++r) gradient_[r] = (rows_[r].label - prediction_[r]) * rows_[r].weight;
    scratch_.resize(rows_.size());
    histograms_.resize(static_cast<size_t>(p_.depth + 2));
    for (auto& h : histograms_) h.resize(wanted * bins());

    const int32_t root = static_cast<int32_t>(out.nodes_.size());
    out.roots_.push_back(root);
    out.nodes_.emplace_back();
    split_bins_.resize(out.nodes_.size());
    fill(0, order_.size(), histograms_[0]);
    grow(out, root, 0, order_.size(), 0);
    for (size_t r = 0; r < rows_.size(); ++r) {
      int32_t n = root;
      while (out.nodes_[static_cast<size_t>(n)].feature >= 0) {
        const auto [column, bin] = split_bins_[static_cast<size_t>(n)];
        n = out.nodes_[static_cast<size_t>(n)].left + (binned_[r * used_.size() + static_cast<size_t>(column)] > bin);
      }
      prediction_[r] += out.nodes_[static_cast<size_t>(n)].value;
    }
  }

  void fill(size_t first, size_t last, std::vector<Bin>& histogram) const {
    std::fill(histogram.begin(), histogram.end(), Bin{});
    const size_t stride = bins();
    for (size_t i = first; i < last; ++i) {
      const size_t r = order_[i];
      const uint8_t* bins = &binned_[r * used_.size()];
      const double g = gradient_[r], w = rows_[r].weight;
      for (size_t c = 0; c < columns_.size(); ++c) {
        Bin& bin = histogram[c * stride + bins[columns_[c]]];
        bin.gradient += g;
        bin.weight += w;
        ++bin.rows;
      }
    }
  }

  Bin sum_of(const std::vector<Bin>& histogram) const {
    Bin all;
    for (size_t b = 0; b < bins(); ++b) {
      all.gradient += histogram[b].gradient;
      all.weight += histogram[b].weight;
      all.rows += histogram[b].rows;
    }
    return all;
  }

  Split best_split(const std::vector<Bin>& histogram, const Bin& all) const {
    Split best;
    const auto score = [&](double g, double w) { return g * g / (w + p_.l2); };
    const double whole = score(all.gradient, all.weight);
    for (size_t c = 0; c < columns_.size(); ++c) {
      Bin left;
      const size_t cuts = cuts_[static_cast<size_t>(columns_[c])].size();
      for (size_t b = 0; b < cuts; ++b) {
        const Bin& bin = histogram[c * bins() + b];
        left.gradient += bin.gradient;
        left.weight += bin.weight;
        left.rows += bin.rows;
        if (left.rows < p_.min_leaf || bin.rows == 0) continue;
        if (all.rows - left.rows < p_.min_leaf) break;
        const double gain =
            score(left.gradient, left.weight) + score(all.gradient - left.gradient, all.weight - left.weight) - whole;
        if (gain > best.gain + 1e-9) best = {static_cast<int>(c), static_cast<int>(b), gain};
      }
    }
    return best;
  }

  // The histogram of rows [first, last) of order_ is in histograms_[depth], and may be used up.
  void grow(BoostedTrees& out, int32_t node, size_t first, size_t last, int depth) {
    std::vector<Bin>& histogram = histograms_[static_cast<size_t>(depth)];
    const Bin all = sum_of(histogram);
    const Split split = depth < p_.depth ? best_split(histogram, all) : Split{};
    if (split.column < 0) {
      out.nodes_[static_cast<size_t>(node)].value = static_cast<float>(p_.rate * all.gradient / (all.weight + p_.l2));
      return;
    }
    const int column = columns_[static_cast<size_t>(split.column)];
    const size_t middle = partition(first, last, column, split.bin);
    const int32_t left = static_cast<int32_t>(out.nodes_.size());
    out.nodes_[static_cast<size_t>(node)] = {cuts_[static_cast<size_t>(column)][static_cast<size_t>(split.bin)], left,
                                             used_[static_cast<size_t>(column)]};
    out.nodes_.resize(out.nodes_.size() + 2);
    split_bins_.resize(out.nodes_.size());
    split_bins_[static_cast<size_t>(node)] = {column, split.bin};
    // The smaller side is counted; the other is what remains.
    std::vector<Bin>& below = histograms_[static_cast<size_t>(depth) + 1];
    const bool left_is_smaller = middle - first <= last - middle;
    if (depth + 1 >= p_.depth) {  // leaves need sums only
      leaf(out, left, first, middle);
      leaf(out, left + 1, middle, last);
      return;
    }
    std::vector<Bin> other = std::move(histogram);
    if (left_is_smaller) {
      fill(first, middle, below);
    } else {
      fill(middle, last, below);
    }
    for (size_t i = 0; i < other.size(); ++i) {
      other[i].gradient -= below[i].gradient;
      other[i].weight -= below[i].weight;
      other[i].rows -= below[i].rows;
    }
    grow(out, left_is_smaller ? left : left + 1, left_is_smaller ? first : middle, left_is_smaller ? middle : last,
         depth + 1);
    std::swap(histograms_[static_cast<size_t>(depth) + 1], other);
    grow(out, left_is_smaller ? left + 1 : left, left_is_smaller ? middle : first, left_is_smaller ? last : middle,
         depth + 1);
    histograms_[static_cast<size_t>(depth)] = std::move(other);  // the storage
  }

  void leaf(BoostedTrees& out, int32_t node, size_t first, size_t last) const {
    double gradient = 0, weight = 0;
    for (size_t i = first; i < last; ++i) {
      gradient += gradient_[order_[i]];
      weight += rows_[order_[i]].weight;
    }
    out.nodes_[static_cast<size_t>(node)].value = static_cast<float>(p_.rate * gradient / (weight + p_.l2));
  }

  // Stable: the rows of each side keep their order.
  size_t partition(size_t first, size_t last, int column, int bin) {
    size_t left = first, kept = 0;
    for (size_t i = first; i < last; ++i) {
      const uint32_t r = order_[i];
      if (binned_[r * used_.size() + static_cast<size_t>(column)] <= bin) {
        order_[left++] = r;
      } else {
        scratch_[kept++] = r;
      }
    }
    std::copy_n(scratch_.begin(), kept, order_.begin() + static_cast<std::ptrdiff_t>(left));
    return left;
  }

  std::span<const TrainRow> rows_;
  TreeParams p_;
  Random random_;
  std::vector<int> used_;                 // features that vary
  std::vector<std::vector<float>> cuts_;  // by used feature
  std::vector<uint8_t> binned_;           // row by row
  std::vector<float> prediction_, gradient_;
  std::vector<uint32_t> order_, scratch_;
  std::vector<int> columns_;  // of this tree
  std::vector<std::vector<Bin>> histograms_;
  std::vector<std::pair<int, int>> split_bins_;  // by node: used feature, bin
};

BoostedTrees BoostedTrees::train(std::span<const TrainRow> rows, const TreeParams& params) {
  if (rows.empty()) return {};
  return TreeGrower(rows, params).run();
}

float BoostedTrees::predict(const Features& x) const {
  float sum = base_;
  const Node* nodes = nodes_.data();
  for (const int32_t root : roots_) {
    const Node* n = nodes + root;
    while (n->feature >= 0) n = nodes + n->left + (x[static_cast<size_t>(n->feature)] > n->value);
    sum += n->value;
  }
  return sum;
}

}  // namespace lathe::search
