// See general_kernel.h.
#include "search/gpu/general_kernel.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/analysis/dependence.h"
#include "ir/core/names.h"
#include "search/gpu/decoded_weight.h"
#include "search/gpu/packed_constants.h"
#include "search/moves/transform_util.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;  // of a dimension

bool has_role(const Kernel& kernel, const char* role) {
  bool out = false;
  for_each_stmt(kernel.body, [&](const Stmt& s) { out |= s.role == role; });
  return out;
}
// Of attention, whose Schedules need to know heads, depth and columns.
bool counts_keys(const Kernel& kernel) { return has_role(kernel, "key"); }

// Sizes that have to be the same: of scopes, and of dimensions of buffers.
class Sizes {
 public:
  int add(const Expr& size) {
    nodes_.push_back({size, static_cast<int>(nodes_.size())});
    return static_cast<int>(nodes_.size()) - 1;
  }
  int root(int n) const {
    while (nodes_[static_cast<size_t>(n)].parent != n) n = nodes_[static_cast<size_t>(n)].parent;
    return n;
  }
  void fix(int n) { at(root(n)).fixed = true; }
  // Both stay as they were if they are not equal.
  void join(int a, int b) {
    a = root(a);
    b = root(b);
    if (!equal(at(a).size, at(b).size)) {
      at(a).fixed = at(b).fixed = true;
    } else if (a != b) {
      at(std::min(a, b)).fixed |= at(std::max(a, b)).fixed;
      at(std::max(a, b)).parent = std::min(a, b);
    }
  }
  void fix_constants() {
    for (Node& n : nodes_) n.fixed |= is_const_int(n.size);
  }
  bool fixed(int n) const { return nodes_[static_cast<size_t>(root(n))].fixed; }
  const Expr& size(int n) const { return nodes_[static_cast<size_t>(root(n))].size; }

 private:
  struct Node {
    Expr size;
    int parent;
    bool fixed = false;
  };
  Node& at(int n) { return nodes_[static_cast<size_t>(n)]; }
  std::vector<Node> nodes_;
};

class Generaliser {
 public:
  explicit Generaliser(const Kernel& naive) {
    out_.kernel = reads_packed(naive);
    out_.packed = packed_constants(naive);
  }

  GeneralKernel run() {
    Kernel& k = out_.kernel;
    for (Buffer& b : k.buffers) {
      std::vector<int>& dims = dims_[b.name];  // of a scalar there are none
      for (const Expr& d : b.dims) dims.push_back(sizes_.add(d));
    }
    walk(k.body);
    for (const auto& [ids, n] : chosen_)
      if (computed_.count(ids) != 0) sizes_.fix(n);
    if (counts_keys(k)) sizes_.fix_constants();
    if (has_role(k, "slot")) {  // of a head that is appended to a cache, which registers hold
      for_each_stmt(k.body, [&](const Stmt& s) {
        if (s.role == "col") sizes_.fix(scopes_.at(s.iter));
      });
    }
    const std::vector<Symbol> naive = std::exchange(k.symbols, {});
    for (const Symbol& s : naive) taken_.insert(s.name);
    for (const Buffer& b : k.buffers) taken_.insert(b.name);
    for_each_stmt(k.body, [&](const Stmt& s) { taken_.insert(s.iter); });
    for_each_stmt(k.body, [&](Stmt& s) {
      if (s.kind == Stmt::Kind::scope) s.extent = symbol_of(scopes_.at(s.iter));
    });
    for (Buffer& b : k.buffers) generalise(b);
    rename_kept(naive);
    Ranges ranges;
    for (const Symbol& s : naive) ranges.set(s.name, {s.min, s.max}, s.multiple_of);
    for (const auto& [name, size] : out_.sizes) {
      out_.most.emplace_back(name, std::clamp<int64_t>(interval(size, ranges).hi, 1, kMostElements));
      int64_t multiple = 16;
      while (multiple > 1 && !proves_divisible(size, multiple, ranges)) multiple /= 2;
      out_.multiple.emplace_back(name, multiple);
    }
    return std::move(out_);
  }

 private:
  void walk(const std::vector<Stmt>& body) {
    for (const Stmt& s : body) {
      if (s.kind == Stmt::Kind::scope) {
        const int n = sizes_.add(s.extent);
        scopes_[s.iter] = n;
        if (fix_names(s.extent)) sizes_.fix(n);
        for_each_node(s.extent, [&](const ExprNode& e) {
          if (e.op == Op::k_load) see(e.name, e.args);
        });
        around_.push_back(n);
        walk(s.body);
        around_.pop_back();
      } else if (s.kind == Stmt::Kind::assign) {
        statements_.push_back(around_);
        see(s.target, s.index);
        for_each_node(s.value, [&](const ExprNode& n) {
          if (n.op == Op::k_load) see(n.name, n.args);
          if (n.op == Op::k_shift_left || n.op == Op::k_shift_right) fix_names(n.args[1]);  // a count has a range
        });
      }
    }
  }

  // The scopes whose iterators are in it stay as they are; whether there are any, or loads.
  bool fix_names(const Expr& e) {
    bool any = false;
    for_each_node(e, [&](const ExprNode& n) {
      any = any || n.op == Op::k_load || n.op == Op::k_iter;
      if (n.op == Op::k_iter) sizes_.fix(scopes_.at(n.name));
    });
    return any;
  }

  void see(const std::string& buffer, const std::vector<Expr>& index) {
    for (size_t d = 0; d < index.size(); ++d) {
      const int n = dims_.at(buffer)[d];
      const Expr& i = index[d];
      if (i->op == Op::k_iter) {
        sizes_.join(n, scopes_.at(i->name));
      } else if (const Expr* ids = chosen(i)) {
        chosen_.emplace_back((*ids)->name, n);
        const Buffer& b = *out_.kernel.find_buffer((*ids)->name);
        const bool ends =
            is_const_int(b.values.lo, 0) && equal(simplify(b.values.hi + Expr(1)), simplify(sizes_.size(n)));
        if (!ends) sizes_.fix(n);
        const auto first =
            std::find_if(chosen_.begin(), chosen_.end(), [&](const auto& c) { return c.first == b.name; });
        sizes_.join(first->second, n);
      } else if (const Expr* offsets = begins(i, n)) {
        fix_names(i);
        offsets_.emplace((*offsets)->name, n);
        sizes_.join(offsets_.at((*offsets)->name), n);
      } else {
        sizes_.fix(n);
        fix_names(i);
        for_each_node(i, [&](const ExprNode& e) {
          if (e.op == Op::k_load) computed_.insert(e.name);
        });
      }
    }
  }

  // The load of an integer that states its values, widened or not.
  const Expr* chosen(const Expr& i) const {
    const Expr& e = i->op == Op::k_cast ? i->args[0] : i;
    if (e->op != Op::k_load) return nullptr;
    const ValueRange& values = out_.kernel.find_buffer(e->name)->values;
    return values.lo && values.hi ? &e : nullptr;
  }

  // The load of an offset in the index of a row of its group: offsets may be as large as there are rows.
  const Expr* begins(const Expr& i, int n) const {
    if (counts_keys(out_.kernel) || i->op != Op::k_add) return nullptr;
    const size_t row = i->args[1]->op == Op::k_iter ? 1 : 0;
    const Expr* offsets = chosen(i->args[1 - row]);
    if (offsets == nullptr || i->args[row]->op != Op::k_iter) return nullptr;
    const ValueRange& values = out_.kernel.find_buffer((*offsets)->name)->values;
    return is_const_int(values.lo, 0) && equal(simplify(values.hi), simplify(sizes_.size(n))) ? offsets : nullptr;
  }

  Expr add_symbol(const char* kind, const Expr& size, int64_t least) {
    std::string name;
    do {
      name = fmt::format("{}{}", kind, next_[*kind]++);
    } while (taken_.count(name) != 0);
    out_.sizes.emplace_back(name, size);
    out_.kernel.symbols.push_back({name, least, kMostElements, 1});
    return symbol(name);
  }

  Expr symbol_of(int n) {
    n = sizes_.root(n);
    if (sizes_.fixed(n)) return sizes_.size(n);
    Expr& known = symbols_[n];
    if (!known) {
      // What every statement stands in runs at least once, or nothing does.
      const bool around_all = std::all_of(statements_.begin(), statements_.end(), [&](const std::vector<int>& around) {
        return std::any_of(around.begin(), around.end(), [&](int scope) { return sizes_.root(scope) == n; });
      });
      known = add_symbol("D", sizes_.size(n), around_all ? 1 : 0);
    }
    return known;
  }

  void generalise(Buffer& b) {
    const std::vector<int>& nodes = dims_.at(b.name);
    for (size_t d = 0; d < nodes.size(); ++d) b.dims[d] = symbol_of(nodes[d]);
    for (size_t d = 0; d < b.strides.size(); ++d) {
      Expr& s = b.strides[d];
      if (is_const_int(b.dims[d], 1)) s = Expr(0);  // one element: never stepped over
      if (is_const_int(s, 0) || is_const_int(s, 1)) continue;
      Expr known;
      for (const auto& [name, size] : strides_)
        if (equal(size, s)) known = symbol(name);
      if (!known) {
        known = add_symbol("S", s, 0);
        strides_.emplace_back(known->name, s);
      }
      s = known;
    }
    for (const auto& [ids, n] : chosen_) {
      if (ids == b.name && !sizes_.fixed(n)) b.values.hi = symbol_of(n) - Expr(1);
    }
    const auto rows = offsets_.find(b.name);
    if (rows != offsets_.end() && !sizes_.fixed(rows->second)) b.values.hi = symbol_of(rows->second);
  }

  // Symbols of the naive Kernel that are still there get names of their own.
  void rename_kept(const std::vector<Symbol>& naive) {
    std::vector<std::pair<std::string, Expr>> names;
    const auto rename = [&](const Expr& e) -> Expr {
      if (e->op != Op::k_symbol) return {};
      const auto kept = std::find_if(naive.begin(), naive.end(), [&](const Symbol& s) { return s.name == e->name; });
      if (kept == naive.end()) return {};
      for (const auto& [from, to] : names)
        if (from == e->name) return to;
      const Expr to = add_symbol("N", e, kept->min);
      Symbol& s = out_.kernel.symbols.back();
      s.max = kept->max;
      s.multiple_of = kept->multiple_of;
      names.emplace_back(e->name, to);
      return to;
    };
    rewrite_exprs(out_.kernel.body, rename);
    for (Buffer& b : out_.kernel.buffers) {
      for (Expr& d : b.dims) d = rewrite(d, rename);
      if (b.values.lo) b.values.lo = rewrite(b.values.lo, rename);
      if (b.values.hi) b.values.hi = rewrite(b.values.hi, rename);
    }
  }

  GeneralKernel out_;
  Sizes sizes_;
  std::map<std::string, int> scopes_;
  std::map<std::string, std::vector<int>> dims_;
  std::vector<std::pair<std::string, int>> chosen_;  // integers, and a dimension that they choose from
  std::map<std::string, int> offsets_;               // of groups, and the dimension of rows that they divide
  std::set<std::string> computed_;                   // integers that indices are computed with
  std::vector<int> around_;
  std::vector<std::vector<int>> statements_;  // the scopes around each
  std::map<int, Expr> symbols_;               // by root
  std::map<char, int> next_;
  std::set<std::string> taken_;
  std::vector<std::pair<std::string, Expr>> strides_;
};

// end - max(0, end - W), of a window, is min(W, end), which says how large it is.
Expr bounded(const Expr& extent) {
  Expr most;
  for_each_node(extent, [&](const ExprNode& n) {
    if (n.op == Op::k_max && is_const_int(n.args[0], 0)) most = max(n.args[0], n.args[1]);
  });
  if (!most) return extent;
  const Expr end = simplify(extent + most), window = simplify(end - most->args[1]);
  return is_const_int(window) && equal(simplify(end - most), simplify(extent)) ? min(window, end) : extent;
}

bool is_empty(const Buffer& b) {
  return std::any_of(b.dims.begin(), b.dims.end(), [](const Expr& d) { return is_const_int(d, 0); });
}

bool never_runs(const Stmt& nest) {
  for (const Stmt* s = &nest; s->kind == Stmt::Kind::scope; s = &s->body[0]) {
    if (is_const_int(s->extent, 0)) return true;
    if (s->body.size() != 1) break;
  }
  return false;
}

// Attention without sequences, whose results are cleared all the same.
void drop_what_never_runs(Kernel& k) {
  std::erase_if(k.body, never_runs);
  std::erase_if(k.buffers,
                [&](const Buffer& b) { return !is_param(b.place) && collect_accesses(k.body, {}, &b.name).empty(); });
}

// Attention whose queries have room for no product with a key.
bool sees_nothing(const Kernel& k) {
  bool out = false;
  for_each_stmt(k.body, [&](const Stmt& s) {
    if (s.role != "key" || s.body.empty() || s.body[0].kind != Stmt::Kind::assign) return;
    const Buffer& scores = *k.find_buffer(s.body[0].target);
    out |= !scores.dims.empty() && is_const_int(scores.dims.back(), 0);
  });
  return out;
}

// Results that are 0 or have no elements, each of a nest of its own.
void store_nothing(Kernel& k) {
  k.body.clear();
  std::erase_if(k.buffers, [](const Buffer& b) { return !is_param(b.place); });
  for (const Buffer& b : k.buffers) {
    if (b.place != Place::out) continue;
    std::vector<Expr> index;
    for (size_t d = 0; d < b.dims.size(); ++d) index.push_back(iter(fmt::format("{}_{}", b.name, d)));
    const Expr zero = const_float(0);
    Stmt s = make_assign(b.name, index, AssignOp::set, b.type == DType::f32 ? zero : cast(b.type, zero));
    for (size_t d = b.dims.size(); d-- > 0;) s = make_scope(index[d]->name, b.dims[d], {std::move(s)});
    k.body.push_back(std::move(s));
  }
}

}  // namespace

GeneralKernel general_kernel(const Kernel& naive) {
  GeneralKernel out = Generaliser(naive).run();
  out.kernel = decode_apart(std::move(out.kernel));
  if (!counts_keys(out.kernel)) return out;
  const bool nothing = std::all_of(out.kernel.buffers.begin(), out.kernel.buffers.end(),
                                   [](const Buffer& b) { return b.place != Place::out || is_empty(b); });
  if (nothing || sees_nothing(out.kernel)) {
    store_nothing(out.kernel);
    return out;
  }
  drop_what_never_runs(out.kernel);
  for_each_stmt(out.kernel.body, [](Stmt& s) {
    if (s.kind == Stmt::Kind::scope) s.extent = bounded(s.extent);
  });
  // Iterators of one iteration are 0 wherever they stand.
  simplify_body(out.kernel.body, Ranges(out.kernel));
  return out;
}

}  // namespace lathe::search
