// See sampled_kernel.h. Iterators and (buffer, dimension) pairs are united where one indexes the
// other alone; a class is given up as soon as one member is used otherwise, is summed over, or
// differs in size.
#include "runtime/oracle/sampled_kernel.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "ir/analysis/analysis.h"

namespace lathe::runtime {
namespace {

using ir::Expr;
using ir::Stmt;

class Grouper {
 public:
  explicit Grouper(const ir::Kernel& kernel) {
    for (const ir::Buffer& b : kernel.buffers) {
      for (size_t d = 0; d < b.dims.size(); ++d) {
        node(key(b.name, static_cast<int>(d)), ir::is_const_int(b.dims[d]) ? b.dims[d]->ival : -1);
      }
    }
    walk(kernel.body);
  }
  static std::string key(const std::string& buffer, int d) { return buffer + "." + std::to_string(d); }
  // Root if the class may be sampled, else -1.
  int free_root(const std::string& name) {
    const auto it = nodes_.find(name);
    if (it == nodes_.end()) return -1;
    const int r = root(it->second);
    return pinned_[r] || extent_[r] < 0 ? -1 : r;
  }
  int64_t extent(int root) const { return extent_[root]; }

 private:
  int node(const std::string& name, int64_t extent) {
    const auto [it, fresh] = nodes_.emplace(name, static_cast<int>(parent_.size()));
    if (fresh) {
      parent_.push_back(it->second);
      extent_.push_back(extent);
      pinned_.push_back(extent < 0);
    }
    return it->second;
  }
  int root(int n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }
  void pin(const std::string& name) {
    const auto it = nodes_.find(name);
    if (it != nodes_.end()) pinned_[root(it->second)] = true;
  }
  void unite(const std::string& a, const std::string& b) {
    const int x = root(nodes_.at(a)), y = root(nodes_.at(b));
    if (x == y) return;
    pinned_[x] = pinned_[x] || pinned_[y] || extent_[x] != extent_[y];
    parent_[y] = x;
  }
  void access(const std::string& buffer, const std::vector<Expr>& index) {
    for (size_t d = 0; d < index.size(); ++d) {
      const std::string name = key(buffer, static_cast<int>(d));
      if (index[d]->op == ir::Op::k_iter && nodes_.count(index[d]->name) && nodes_.count(name)) {
        unite(name, index[d]->name);
      } else {
        pin(name);
        loads(index[d]);
      }
    }
  }
  void loads(const Expr& e) {
    ir::for_each_node(e, [&](const ir::ExprNode& n) {
      if (n.op == ir::Op::k_load) access(n.name, n.args);
    });
  }
  void walk(const std::vector<Stmt>& body) {
    for (const Stmt& s : body) {
      if (s.kind == Stmt::Kind::scope) {
        node(s.iter, ir::is_const_int(s.extent) ? s.extent->ival : -1);
        around_.push_back(s.iter);
        walk(s.body);
        around_.pop_back();
      } else if (s.kind == Stmt::Kind::assign) {
        access(s.target, s.index);
        loads(s.value);
        for (const std::string& iter : around_) {
          const bool indexes = std::any_of(s.index.begin(), s.index.end(),
                                           [&](const Expr& e) { return e->op == ir::Op::k_iter && e->name == iter; });
          if (!indexes) pin(iter);
        }
      }
    }
  }

  std::map<std::string, int> nodes_;
  std::vector<int> parent_;
  std::vector<int64_t> extent_;
  std::vector<bool> pinned_;
  std::vector<std::string> around_;
};

constexpr int64_t kMostElements = int64_t{1} << 24;  // of one operand, as the interpreter has it
// Fewer cells say little. So many are computed beyond the budget, up to some budgets.
constexpr int64_t kLeastCells = 64, kMostBudgets = 16;

std::string pick_buffer(int cls) { return "pick_" + std::to_string(cls) + "_"; }

std::vector<int64_t> pick_values(int64_t extent, int64_t count, std::mt19937_64& random) {
  std::vector<int64_t> out;
  if (count >= extent) {
    out.resize(static_cast<size_t>(extent));
    std::iota(out.begin(), out.end(), 0);
    return out;
  }
  std::set<int64_t> seen;
  auto add = [&](int64_t v, int64_t limit) {
    if (v >= 0 && v < extent && static_cast<int64_t>(seen.size()) < limit) seen.insert(v);
  };
  const int64_t edges = std::max<int64_t>(count * 3 / 4, std::min<int64_t>(count, 2));
  add(extent - 1, edges);
  add(0, edges);
  for (const int64_t tile : {16, 8, 48, 32, 14, 64, 12, 6, 4}) {
    const int64_t last = (extent - 1) / tile * tile;
    add(last, edges);
    add(last - 1, edges);
    add(tile - 1, edges);
    add(tile, edges);
  }
  while (static_cast<int64_t>(seen.size()) < count)
    seen.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(extent)));
  return {seen.begin(), seen.end()};
}

// How often a scope runs: midway between the ends of what its extent may be, once if they are not known.
void find_extents(const std::vector<Stmt>& body, ir::Ranges& ranges, std::map<std::string, int64_t>* out) {
  for (const Stmt& s : body) {
    if (s.kind != Stmt::Kind::scope) continue;
    const ir::Interval range = ir::interval(s.extent, ranges);
    const int64_t least = std::max<int64_t>(range.lo, 0);
    (*out)[s.iter] = range.hi == INT64_MAX ? 1 : range.hi <= least ? least : least + (range.hi - least + 1) / 2;
    ranges.enter(s);
    find_extents(s.body, ranges, out);
    ranges.leave();
  }
}

}  // namespace

ir::Result<SampledKernel> SampledKernel::create(const ir::Kernel& naive, const SymbolValues& symbols) {
  SampledKernel out;
  out.kernel_ = ir::as_given(naive);
  for (ir::Symbol& s : out.kernel_.symbols) {
    if (const auto it = symbols.find(s.name); it != symbols.end()) s.min = s.max = it->second;
  }
  ir::Ranges ranges(out.kernel_);
  find_extents(out.kernel_.body, ranges, &out.extents_);
  std::vector<std::pair<std::string, Expr>> values;
  for (const auto& [name, value] : symbols) values.emplace_back(name, Expr(value));
  for (ir::Buffer& b : out.kernel_.buffers) {
    for (Expr& d : b.dims) {
      const std::optional<int64_t> size = ir::evaluate(d, symbols);
      if (!size) return ir::invalid("{} has a size without value", b.name);
      d = Expr(*size);
    }
    b.strides.clear();
    b.values = {};
  }
  ir::rewrite_exprs(out.kernel_.body, [&](const Expr& e) -> Expr {
    if (e->op != ir::Op::k_symbol) return {};
    for (const auto& [name, value] : values) {
      if (name == e->name) return value;
    }
    return {};
  });
  ir::for_each_stmt(out.kernel_.body, [&](Stmt& s) {
    if (s.kind != Stmt::Kind::scope) return;
    if (const std::optional<int64_t> extent = ir::evaluate(s.extent, {})) s.extent = Expr(*extent);
  });
  out.kernel_.symbols.clear();

  Grouper groups(out.kernel_);
  std::map<int, int> class_of_root;
  auto class_of = [&](const std::string& name) {
    const int root = groups.free_root(name);
    if (root < 0) return -1;
    const auto [it, fresh] = class_of_root.emplace(root, static_cast<int>(out.classes_.size()));
    if (fresh) out.classes_.push_back({groups.extent(root), {}, {}});
    return it->second;
  };
  ir::for_each_stmt(out.kernel_.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::scope) return;
    if (const int c = class_of(s.iter); c >= 0) {
      out.classes_[c].iters.push_back(s.iter);
      out.class_of_iter_[s.iter] = c;
    }
  });
  for (const ir::Buffer& b : out.kernel_.buffers) {
    for (int d = 0; d < static_cast<int>(b.dims.size()); ++d) {
      const int root = groups.free_root(Grouper::key(b.name, d));
      const auto it = class_of_root.find(root);
      if (it != class_of_root.end()) out.class_of_dim_[{b.name, d}] = it->second;
    }
  }
  return out;
}

int SampledKernel::class_of(const std::string& buffer, int d) const {
  const auto it = class_of_dim_.find({buffer, d});
  return it == class_of_dim_.end() ? -1 : it->second;
}

int64_t SampledKernel::steps(const std::vector<int64_t>& counts) const {
  double total = 0;
  const std::function<void(const std::vector<Stmt>&, double)> walk = [&](const std::vector<Stmt>& body, double times) {
    for (const Stmt& s : body) {
      if (s.kind != Stmt::Kind::scope) {
        total += times;
        continue;
      }
      const auto it = class_of_iter_.find(s.iter);
      const int64_t extent = it != class_of_iter_.end() ? counts[it->second] : extents_.at(s.iter);
      walk(s.body, times * static_cast<double>(std::max<int64_t>(extent, 0)));
    }
  };
  walk(kernel_.body, 1);
  return total > 9e18 ? INT64_MAX : static_cast<int64_t>(total);
}

int64_t SampledKernel::longest_sum() const {
  double most = 1;
  std::vector<const Stmt*> around;
  const std::function<void(const std::vector<Stmt>&)> walk = [&](const std::vector<Stmt>& body) {
    for (const Stmt& s : body) {
      if (s.kind == Stmt::Kind::scope) {
        around.push_back(&s);
        walk(s.body);
        around.pop_back();
      } else if (s.kind == Stmt::Kind::assign && s.op == ir::AssignOp::add) {
        double terms = 1;
        for (const Stmt* scope : around) {
          const bool apart =
              std::any_of(s.index.begin(), s.index.end(), [&](const Expr& e) { return ir::uses(e, scope->iter); });
          // What varies is known by its middle.
          const int64_t most_runs = extents_.at(scope->iter) * (ir::is_const_int(scope->extent) ? 1 : 2);
          if (!apart) terms *= static_cast<double>(std::max<int64_t>(most_runs, 1));
        }
        most = std::max(most, terms);
      }
    }
  };
  walk(kernel_.body);
  return most > 9e18 ? INT64_MAX : static_cast<int64_t>(most);
}

int64_t SampledKernel::running_terms() const {
  int64_t most = 0;
  ir::for_each_stmt(kernel_.body, [&](const Stmt& scope) {
    if (scope.kind != Stmt::Kind::scope) return;
    ir::for_each_stmt(scope.body, [&](const Stmt& sum) {
      if (sum.kind != Stmt::Kind::assign || sum.op != ir::AssignOp::add) return;
      const bool apart =
          std::any_of(sum.index.begin(), sum.index.end(), [&](const Expr& e) { return ir::uses(e, scope.iter); });
      bool read = false;
      ir::for_each_stmt(scope.body, [&](const Stmt& s) {
        read = read || (s.kind == Stmt::Kind::assign && ir::uses(s.value, sum.target));
      });
      const auto it = class_of_iter_.find(scope.iter);
      const int64_t extent =
          it != class_of_iter_.end() ? classes_[static_cast<size_t>(it->second)].extent : extents_.at(scope.iter);
      if (!apart && read) most = std::max(most, extent);
    });
  });
  return most;
}

int64_t SampledKernel::largest_operand(const std::vector<int64_t>& counts) const {
  double largest = 0;
  for (const ir::Buffer& b : kernel_.buffers) {
    double elements = 1;
    for (size_t d = 0; d < b.dims.size(); ++d) {
      const int c = class_of(b.name, static_cast<int>(d));
      elements *= static_cast<double>(c >= 0 ? counts[static_cast<size_t>(c)] : b.dims[d]->ival);
    }
    largest = std::max(largest, elements);
  }
  return largest > 9e18 ? INT64_MAX : static_cast<int64_t>(largest);
}

std::vector<std::vector<int64_t>> SampledKernel::choose(int64_t budget, uint64_t seed) const {
  std::vector<int64_t> counts;
  for (const Class& c : classes_) counts.push_back(c.extent);
  const auto suffices = [&] {
    const int64_t work = steps(counts);
    const double cells = std::accumulate(counts.begin(), counts.end(), 1.0, std::multiplies<>());
    const bool few = cells <= kLeastCells && work / kMostBudgets <= budget;
    return (work <= budget || few) && largest_operand(counts) <= kMostElements;
  };
  while (!suffices()) {
    const auto largest = std::max_element(counts.begin(), counts.end());
    if (largest == counts.end() || *largest <= 1) break;
    *largest = *largest > 256 ? *largest / 2 : *largest - std::max<int64_t>(*largest / 8, 1);
  }
  std::mt19937_64 random(seed);
  std::vector<std::vector<int64_t>> picks;
  for (size_t c = 0; c < classes_.size(); ++c) picks.push_back(pick_values(classes_[c].extent, counts[c], random));
  return picks;
}

ir::Kernel SampledKernel::at(const std::vector<std::vector<int64_t>>& picks) const {
  ir::Kernel k = kernel_;
  for (ir::Buffer& b : k.buffers) {
    for (int d = 0; d < static_cast<int>(b.dims.size()); ++d) {
      if (const int c = class_of(b.name, d); c >= 0) b.dims[d] = Expr(static_cast<int64_t>(picks[c].size()));
    }
  }
  std::set<int> used;
  const auto value_of = [&](const Expr& e) -> Expr {
    if (e->op != ir::Op::k_iter) return {};
    const auto it = class_of_iter_.find(e->name);
    if (it == class_of_iter_.end()) return {};
    used.insert(it->second);
    return ir::load(pick_buffer(it->second), {e}, ir::DType::i64);
  };
  // An iterator alone as an index of its class stays; anywhere else it stands for the picked value.
  const std::function<Expr(const Expr&)> visit = [&](const Expr& e) -> Expr {
    if (e->op == ir::Op::k_iter) {
      const Expr v = value_of(e);
      return v ? v : e;
    }
    auto node = std::make_shared<ir::ExprNode>(*e);
    for (size_t d = 0; d < e->args.size(); ++d) {
      const Expr& a = e->args[d];
      const bool own =
          e->op == ir::Op::k_load && a->op == ir::Op::k_iter && class_of(e->name, static_cast<int>(d)) >= 0;
      node->args[d] = own ? a : visit(a);
    }
    return Expr(std::shared_ptr<const ir::ExprNode>(std::move(node)));
  };
  ir::for_each_stmt(k.body, [&](Stmt& s) {
    if (s.kind == Stmt::Kind::scope) {
      const auto it = class_of_iter_.find(s.iter);
      s.extent = it != class_of_iter_.end() ? Expr(static_cast<int64_t>(picks[it->second].size())) : visit(s.extent);
      return;
    }
    if (s.kind != Stmt::Kind::assign) return;
    for (size_t d = 0; d < s.index.size(); ++d) {
      const bool own = s.index[d]->op == ir::Op::k_iter && class_of(s.target, static_cast<int>(d)) >= 0;
      if (!own) s.index[d] = visit(s.index[d]);
    }
    s.value = visit(s.value);
  });
  for (const int c : used) {
    ir::Buffer b;
    b.name = pick_buffer(c);
    b.type = ir::DType::i64;
    b.dims = {Expr(static_cast<int64_t>(picks[c].size()))};
    k.buffers.insert(k.buffers.begin(), std::move(b));
  }
  return k;
}

void SampledKernel::add_picks(const std::vector<std::vector<int64_t>>& picks,
                              std::map<std::string, ir::Tensor>* tensors) const {
  for (int c = 0; c < num_classes(); ++c) {
    ir::Tensor t;
    t.dims = {static_cast<int64_t>(picks[c].size())};
    t.data.assign(picks[c].begin(), picks[c].end());
    (*tensors)[pick_buffer(c)] = std::move(t);
  }
}

}  // namespace lathe::runtime
