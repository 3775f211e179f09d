// Fusion by merging groups along their single results, rule after rule: see fusion.h.
//
//   for rule in rules():  for producer, last first:
//     all consumers of its result in one group, and the rule allows the pair?  ->  one group
//
// The result of a merged producer goes nowhere else, or it is stored as well and who else reads it ends after the
// group: groups run in the order of their last nodes, so merging never makes a cycle.
#include "ops/fusion.h"

#include <algorithm>
#include <map>

#include "ops/family.h"

namespace lathe::ops {

namespace {

// Where the consuming group may read the producer's result.
enum class Reader : uint8_t { kFollower, kAnchorInput, kPackedInput, kSharedInput };
struct Rule {
  const Family *producer, *consumer;
  Reader reader;
};
// Who fuses, in the order of trial: chains first; then they follow the anchors, in the order of families.def; then
// anchors take what is left before them, what riders make of constants, and last what others read as well.
std::vector<Rule> make_rules() {
  std::vector<Rule> out;
  std::vector<const Family*> riders, anchors;
  for (const Family* f : all_families()) (f->rides() ? riders : anchors).push_back(f);
  for (const Family* a : riders) {
    for (const Family* b : riders) out.push_back({a, b, Reader::kFollower});
  }
  for (const Family* anchor : anchors) {
    if (!anchor->fusion.followed) continue;
    for (const Family* rider : riders) {
      out.push_back({anchor, rider, Reader::kFollower});
      out.push_back({rider, anchor, Reader::kFollower});
    }
  }
  for (const Family* anchor : anchors) {
    if (anchor->fusion.preceded == 0) continue;
    for (const Family* rider : riders) out.push_back({rider, anchor, Reader::kAnchorInput});
  }
  for (const Family* anchor : anchors) {
    if (anchor->fusion.packed == 0) continue;
    for (const Family* rider : riders) out.push_back({rider, anchor, Reader::kPackedInput});
  }
  for (const Family* anchor : anchors) {
    if (anchor->fusion.preceded == 0 || !anchor->fusion.stored) continue;
    for (const Family* rider : riders) out.push_back({rider, anchor, Reader::kSharedInput});
  }
  return out;
}
const std::vector<Rule>& rules() {
  static const std::vector<Rule> kRules = make_rules();
  return kRules;
}

class Fuser {
 public:
  explicit Fuser(const Graph& graph);
  std::vector<Group> run();

 private:
  // Empty if `producer` may merge into its consumer by this rule, else the reason.
  std::string refusal(const Rule& rule, int producer) const;
  std::string why_stored(int group) const;
  int consumer(int tensor) const;  // the one group that reads it, or -1
  int first_anchored(int tensor) const;
  int target(const Rule& rule, int producer) const;
  Group merged(const Rule& rule, int producer, int consumer) const;
  void merge(const Rule& rule, int producer, int consumer);
  std::string not_of_a_constant(const Group& riders, const Group& anchors) const;
  std::string read_too_early(const Group& group) const;
  std::vector<int> outside(const Group& group) const;
  bool all_f32(const Group& group) const;
  int64_t expression_size(const Group& group) const;
  bool same_shape(int a, int b) const;

  const Graph& g_;
  std::vector<Group> groups_;              // merged ones have no nodes
  std::vector<int> group_of_;              // node -> group
  std::vector<std::vector<int>> readers_;  // tensor -> nodes
  std::vector<char> is_output_;
};

Fuser::Fuser(const Graph& graph) : g_(graph), readers_(graph.tensors.size()), is_output_(graph.tensors.size(), 0) {
  for (size_t i = 0; i < g_.nodes.size(); ++i) {
    const Node& node = g_.nodes[i];
    const Family* family = op_row(node).family;
    const int index = static_cast<int>(i);
    groups_.push_back({family, family->rides() ? -1 : index, {index}, node.output, node.also, {}, {}});
    group_of_.push_back(index);
    for (int t : node.inputs) readers_[t].push_back(index);
  }
  for (int t : g_.outputs) is_output_[t] = 1;
}

int Fuser::consumer(int tensor) const {
  int found = -1;
  for (int node : readers_[tensor]) {
    if (found >= 0 && group_of_[node] != found) return -1;
    found = group_of_[node];
  }
  return found;
}

// The first group whose anchor reads it, or -1.
int Fuser::first_anchored(int tensor) const {
  for (const int node : readers_[tensor]) {
    if (groups_[group_of_[node]].anchor == node) return group_of_[node];
  }
  return -1;
}

// The group that the producer would join; -1: there is none, or several.
int Fuser::target(const Rule& rule, int producer) const {
  const int result = groups_[producer].output;
  return rule.reader == Reader::kSharedInput ? first_anchored(result) : consumer(result);
}

Group Fuser::merged(const Rule& rule, int producer, int consumer) const {
  const Group& p = groups_[producer];
  Group out = groups_[consumer];
  if (!p.family->rides()) out.family = p.family;
  out.anchor = std::max(p.anchor, out.anchor);
  out.nodes.insert(out.nodes.end(), p.nodes.begin(), p.nodes.end());
  std::sort(out.nodes.begin(), out.nodes.end());
  const bool others = std::any_of(readers_[p.output].begin(), readers_[p.output].end(),
                                  [&](int node) { return group_of_[node] != consumer; });
  if (rule.reader == Reader::kPackedInput) out.packed.push_back(p.output);
  out.packed.insert(out.packed.end(), p.packed.begin(), p.packed.end());
  out.stored.insert(out.stored.end(), p.stored.begin(), p.stored.end());
  if (is_output_[p.output] || others) out.stored.push_back(p.output);
  std::sort(out.stored.begin(), out.stored.end());
  return out;
}

// Empty if what the group stores besides its result is there before anyone else reads it.
std::string Fuser::read_too_early(const Group& group) const {
  for (const int t : group.stored) {
    for (const int node : readers_[t]) {
      const bool inside = std::find(group.nodes.begin(), group.nodes.end(), node) != group.nodes.end();
      if (!inside && groups_[group_of_[node]].nodes.back() < group.nodes.back())
        return fmt::format("{} is read before the {} ends", g_.tensors[t].name, group.family->name.get());
    }
  }
  return {};
}

bool Fuser::same_shape(int a, int b) const {
  const auto &x = g_.tensors[a].dims, &y = g_.tensors[b].dims;
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_dim);
}

bool Fuser::all_f32(const Group& group) const {
  const auto fits = [&](int t) {
    return g_.tensors[t].dtype == ir::DType::f32 || g_.tensors[t].dtype == ir::DType::b8;
  };
  return std::all_of(group.nodes.begin(), group.nodes.end(), [&](int i) {
    const Node& node = g_.nodes[i];
    return fits(node.output) && std::all_of(node.inputs.begin(), node.inputs.end(), fits);
  });
}

// Tensors that the group reads, each once.
std::vector<int> Fuser::outside(const Group& group) const {
  std::vector<int> seen;
  for (int i : group.nodes) {
    for (int t : g_.nodes[i].inputs) {
      const bool inside =
          std::any_of(group.nodes.begin(), group.nodes.end(), [&](int j) { return g_.nodes[j].output == t; });
      if (!inside && std::find(seen.begin(), seen.end(), t) == seen.end()) seen.push_back(t);
    }
  }
  return seen;
}

// Empty if packing can make what the riders make: of one compact constant of fixed dims, element by element, that the
// anchor's group does not read besides.
std::string Fuser::not_of_a_constant(const Group& riders, const Group& anchors) const {
  const std::string& name = g_.tensors[riders.output].name;
  const std::vector<int> read = outside(riders);
  if (read.size() != 1 || !g_.tensors[read[0]].constant)
    return fmt::format("{} is read by the {} and not made of one constant", name, anchors.family->name.get());
  const TensorDesc& constant = g_.tensors[read[0]];
  const bool fixed =
      std::all_of(constant.dims.begin(), constant.dims.end(), [](const DimDesc& d) { return d.fixed(); });
  if (!fixed || !constant.strides.empty()) return fmt::format("{} is strided or of varying size", constant.name);
  if (!same_shape(read[0], riders.output) || g_.tensors[riders.output].dtype != ir::DType::f32)
    return fmt::format("{} is not f32, element by element of {}", name, constant.name);
  const bool alone = std::all_of(riders.nodes.begin(), riders.nodes.end(), [&](int i) {
    return g_.nodes[i].inputs.size() == 1 && same_shape(g_.nodes[i].inputs[0], riders.output);
  });
  if (!alone) return fmt::format("{} takes more than one operand", name);
  const std::vector<int> others = outside(anchors);
  if (std::count(others.begin(), others.end(), read[0]) != 0) return fmt::format("{} is read besides", constant.name);
  return {};
}

int64_t Fuser::expression_size(const Group& group) const {
  std::map<int, int64_t> size;  // of results inside the group; saturates
  int64_t largest = 1;
  for (int i : group.nodes) {
    const Node& node = g_.nodes[i];
    const OpRow& row = op_row(node);
    const auto of = [&](int t) { return size.count(t) ? size[t] : int64_t{1}; };
    int64_t total = row.repeats * (of(node.inputs[0]) + 1);
    for (size_t k = 1; k < node.inputs.size(); ++k) total += of(node.inputs[k]);
    total = std::min<int64_t>(total, 1 << 20);
    largest = std::max(largest, total);
    size[node.output] = i == group.anchor ? 1 : total;
  }
  return largest;
}

std::string Fuser::refusal(const Rule& rule, int producer) const {
  const Group& p = groups_[producer];
  const std::string& name = g_.tensors[p.output].name;
  const int to = target(rule, producer);
  if (to < 0 && is_output_[p.output]) return fmt::format("{} is an output of the graph", name);
  if (to < 0) return fmt::format("{} is used by several kernels", name);
  const Group& c = groups_[to];
  if (p.family != rule.producer || c.family != rule.consumer) {
    return fmt::format("no rule fuses {} into {}", p.family->name.get(), c.family->name.get());
  }
  const Group merged = this->merged(rule, producer, to);
  if (!merged.stored.empty() && !merged.family->fusion.stored) {
    return fmt::format("{} is {}, and a {} stores one result", g_.tensors[merged.stored[0]].name,
                       is_output_[merged.stored[0]] ? "an output of the graph" : "used by several kernels",
                       merged.family->name.get());
  }
  if (std::string reason = read_too_early(merged); !reason.empty()) return reason;
  for (int node : readers_[p.output]) {
    if (group_of_[node] != to) continue;
    const bool anchor = node == c.anchor;
    if (!anchor && rule.reader == Reader::kSharedInput) continue;
    if (anchor != (rule.reader != Reader::kFollower)) {
      return fmt::format("{} is read {} the {}", name, anchor ? "by" : "after", c.family->name.get());
    }
    if (!anchor) continue;
    const auto& inputs = g_.nodes[node].inputs;
    const auto at = std::find(inputs.begin(), inputs.end(), p.output);
    const FusionRoles& roles = c.family->fusion;
    const uint32_t operands = rule.reader == Reader::kPackedInput ? roles.packed : roles.preceded;
    const int operand = static_cast<int>(at - inputs.begin());
    if ((operands >> operand & 1) == 0 || std::count(at, inputs.end(), p.output) != 1) {
      return fmt::format("{} is not an operand of the {} that riders make", name, c.family->name.get());
    }
    const bool packs = (roles.packed >> operand & 1) != 0 && not_of_a_constant(p, c).empty();
    if (rule.reader == Reader::kAnchorInput && packs) return fmt::format("{} is made when it is packed", name);
  }
  if (rule.reader == Reader::kFollower && !same_shape(p.output, c.output)) {
    return fmt::format("{} is broadcast", name);
  }
  // What a cast rounds, or makes an integer of, is rounded once and as it says.
  const auto converts = [](const Node& node) { return (op_row(node).attrs & kHas_to) != 0; };
  if (converts(g_.nodes[p.nodes.back()]) && g_.tensors[p.output].dtype != ir::DType::f32)
    return fmt::format("{} is {}", name, ir::dtype_name(g_.tensors[p.output].dtype));
  // An f32 or i32 is what it would be in memory; but a rider only ends a Kernel so.
  const ir::DType kept = g_.tensors[p.output].dtype;
  for (int node : readers_[p.output]) {
    const ir::DType result = g_.tensors[g_.nodes[node].output].dtype;
    const bool as_stored = op_row(g_.nodes[node]).family->rides() && (kept == ir::DType::f32 || kept == ir::DType::i32);
    if (group_of_[node] == to && converts(g_.nodes[node]) && !ir::is_float(result) && !as_stored)
      return fmt::format("{} is {} and becomes {}", name, ir::dtype_name(kept), ir::dtype_name(result));
  }
  if (rule.reader == Reader::kPackedInput) {
    if (std::string reason = not_of_a_constant(p, c); !reason.empty()) return reason;
  }
  for (const Family* f : {p.family, c.family}) {
    if (rule.reader != Reader::kPackedInput && f->fusion.f32_alone && !all_f32(merged))
      return fmt::format("a {} is all f32", f->name.get());
  }
  if (static_cast<int>(outside(merged).size() + merged.stored.size()) + 1 > kMaxGroupOperands)
    return fmt::format("more than {} operands", kMaxGroupOperands);
  if (expression_size(merged) > kMaxExpressionSize)
    return fmt::format("its expression exceeds {} nodes", kMaxExpressionSize);
  return {};
}

void Fuser::merge(const Rule& rule, int producer, int consumer) {
  groups_[consumer] = merged(rule, producer, consumer);
  for (int node : groups_[producer].nodes) group_of_[node] = consumer;
  groups_[producer].nodes.clear();
}

// The reason given by the rule for its pair of families, or that there is none.
std::string Fuser::why_stored(int group) const {
  std::string reason;
  const int to = consumer(groups_[group].output);
  for (const Rule& rule : rules()) {
    const bool pair = to >= 0 && rule.producer == groups_[group].family && rule.consumer == groups_[to].family;
    if (reason.empty() || pair) reason = refusal(rule, group);
  }
  return reason;
}

std::vector<Group> Fuser::run() {
  for (const Rule& rule : rules()) {
    for (bool changed = true; changed;) {
      changed = false;
      for (int i = static_cast<int>(groups_.size()) - 1; i >= 0; --i) {
        if (groups_[i].nodes.empty() || !refusal(rule, i).empty()) continue;
        merge(rule, i, target(rule, i));
        changed = true;
      }
    }
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[i];
    if (group.nodes.empty()) continue;
    for (int node : group.nodes) group.note += (group.note.empty() ? "" : " + ") + g_.nodes[node].op;
    for (int t : group.stored) group.note += fmt::format("; {} is stored as well", g_.tensors[t].name);
    group.note += "; stored: " + why_stored(static_cast<int>(i));
  }
  std::vector<Group> out;
  for (Group& group : groups_) {
    if (!group.nodes.empty()) out.push_back(std::move(group));
  }
  std::sort(out.begin(), out.end(), [](const Group& a, const Group& b) { return a.nodes.back() < b.nodes.back(); });
  return out;
}

}  // namespace

std::vector<Group> fuse(const Graph& graph) { return Fuser(graph).run(); }

}  // namespace lathe::ops
