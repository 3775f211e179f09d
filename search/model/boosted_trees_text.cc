// Boosted trees as text and back, bit for bit. Whatever parses predicts without a fault: links go forward only,
// features exist.
#include <cmath>
#include <iterator>

#include "ir/analysis/analysis.h"
#include "ir/base/line_reader.h"
#include "search/model/cost_model.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
constexpr int64_t kMaxNodes = 1 << 20;
}

std::string BoostedTrees::print() const {
  std::string out;
  auto it = std::back_inserter(out);
  fmt::format_to(it, "trees 1\nfeatures {}\nseed {}\nrows {:016x}\nbase {}\nnodes {}\n", feature_hash(), seed_, digest_,
                 base_, nodes_.size());
  for (const Node& n : nodes_) {
    if (n.feature < 0) {
      fmt::format_to(it, "{}\n", n.value);
    } else {
      fmt::format_to(it, "{} {} {}\n", n.value, n.left, n.feature);
    }
  }
  fmt::format_to(it, "roots {}\n", roots_.size());
  for (const int32_t root : roots_) fmt::format_to(it, "{}\n", root);
  const uint64_t sum = hash_text(out);
  fmt::format_to(it, "sum {:016x}\n", sum);
  return out;
}

Result<BoostedTrees> BoostedTrees::parse(std::string_view text) {
  const size_t last = text.rfind("sum ");
  if (last == std::string_view::npos ||
      text.substr(last) != fmt::format("sum {:016x}\n", hash_text(text.substr(0, last)))) {
    return invalid("trees: the checksum is wrong");
  }
  BoostedTrees t;
  LineReader in(text.substr(0, last), kMaxNodes);
  if (in.line("trees") != "1") in.fail("expected 'trees 1'");
  if (in.line("features") != feature_hash()) in.fail("trained on other features");
  t.seed_ = in.number<uint64_t>(in.line("seed"));
  const std::string_view digest = in.line("rows");
  const auto [end, error] = std::from_chars(digest.data(), digest.data() + digest.size(), t.digest_, 16);
  if (error != std::errc() || end != digest.data() + digest.size()) in.fail("expected 16 hex digits");
  t.base_ = in.number<float>(in.line("base"));
  const int64_t nodes = in.count_line("nodes");
  for (int64_t i = 0; i < nodes && in.ok(); ++i) {
    std::string_view l = in.raw();
    Node n;
    n.value = in.number<float>(in.word(&l));
    if (!l.empty()) {
      n.left = in.number<int32_t>(in.word(&l));
      n.feature = in.number<int32_t>(in.word(&l));
      if (n.left <= i || n.left + int64_t{1} >= nodes) in.fail("a link out of range");
      if (n.feature < 0 || n.feature >= kFeatures) in.fail("a feature out of range");
    }
    in.done(l);
    t.nodes_.push_back(n);
  }
  for (int64_t i = in.count_line("roots"); i > 0 && in.ok(); --i) {
    t.roots_.push_back(in.number<int32_t>(in.raw()));
    if (t.roots_.back() < 0 || t.roots_.back() >= nodes) in.fail("a root out of range");
  }
  if (in.ok() && !in.at_end()) in.fail("text after the end");
  if (!in.ok()) return in.status();
  return t;
}

}  // namespace lathe::search
