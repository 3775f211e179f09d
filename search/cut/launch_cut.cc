// See launch_cut.h. Leaves are canonical: names depend on the order of use alone, so equal launches of different
// Kernels share one leaf.
#include "search/cut/launch_cut.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/analysis/launch_check.h"
#include "ir/core/names.h"
#include "ir/core/text_form.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

using Names = std::vector<std::pair<std::string, std::string>>;  // of the Kernel, of the leaf

const std::string* find(const Names& names, const std::string& name) {
  const auto at = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.first == name; });
  return at == names.end() ? nullptr : &at->second;
}

class LaunchCutter {
 public:
  explicit LaunchCutter(const Kernel& kernel) : kernel_(kernel) {}

  Result<Launch> run(const Stmt& top, Leaf& leaf) {
    LATHE_RETURN_IF_ERROR(collect_grid(top));
    for (const bool own : {false, true}) {  // after all parameters
      for (const Buffer& b : kernel_.buffers) {
        if (!uses_buffer(top, b.name)) continue;
        if (b.place == Place::stack)
          return unsupported("launch {}: {} is a {} buffer, expected heap, registers or shared memory", top.iter,
                             b.name, place_name(b.place));
        if (own != (b.place == Place::reg || b.place == Place::shared)) continue;
        const char* kind = b.place == Place::shared ? "s" : own ? "r" : "p";
        buffers_.emplace_back(b.name, fmt::format("{}{}", kind, own ? own_++ : launch_.operands.size()));
        if (!own) launch_.operands.push_back(static_cast<int>(&b - kernel_.buffers.data()));
      }
    }
    leaf.kernel.name = "leaf";
    leaf.kernel.family = "device";
    leaf.kernel.body = {top};
    rename_body(leaf.kernel.body);
    for (const auto& [from, to] : buffers_) {
      leaf.kernel.buffers.push_back(renamed(*kernel_.find_buffer(from), to));
      Buffer& b = leaf.kernel.buffers.back();
      if (b.place != Place::heap) continue;
      // What launches make is the caller's, as operands are.
      b.place = writes(top, from) ? Place::out : Place::in;
      if (b.place == Place::out) b.values = {};
    }
    for (const auto& [from, to] : symbols_) {
      Symbol s = *kernel_.find_symbol(from);
      s.name = to;
      leaf.kernel.symbols.push_back(std::move(s));
      launch_.sizes.push_back(symbol(from));
    }
    for_each_stmt(leaf.kernel.body, [&](const Stmt& s) {
      launch_.persistent |= s.mark == Mark::persistent;
      if (s.mark == Mark::cluster) launch_.cluster = static_cast<int>(kClusterBlocks);
    });
    leaf.text = print(leaf.kernel);
    return std::move(launch_);
  }

 private:
  Status collect_grid(const Stmt& top) {
    Ranges ranges(kernel_);
    for (const Stmt* s = &top; s->kind == Stmt::Kind::scope && is_of_grid(s->mark); s = &s->body[0]) {
      const Expr blocks = blocks_along(*s, ranges);
      if (!blocks) return unsupported("launch {}: the extent of {} is no expression of symbols", top.iter, s->iter);
      launch_.grid.push_back(blocks);
      ranges.enter(*s);
      if (s->body.empty()) break;
    }
    return {};
  }

  static bool uses_buffer(const Stmt& s, const std::string& name) {
    if (s.target == name || (s.value && uses(s.value, name)) || (s.extent && uses(s.extent, name))) return true;
    if (std::any_of(s.index.begin(), s.index.end(), [&](const Expr& e) { return uses(e, name); })) return true;
    return std::any_of(s.body.begin(), s.body.end(), [&](const Stmt& c) { return uses_buffer(c, name); });
  }

  static bool writes(const Stmt& s, const std::string& name) {
    if (s.kind == Stmt::Kind::assign && s.target == name) return true;
    return std::any_of(s.body.begin(), s.body.end(), [&](const Stmt& c) { return writes(c, name); });
  }

  // Symbols get their numbers as they are met.
  Expr rename(const Expr& e) {
    return rewrite(e, [&](const Expr& n) -> Expr {
      if (n->op == Op::k_iter) {
        const std::string* to = find(iters_, n->name);
        return to == nullptr ? Expr() : iter(*to);
      }
      if (n->op == Op::k_load) return load(*find(buffers_, n->name), n->args, n->type);
      if (n->op != Op::k_symbol) return {};
      if (find(symbols_, n->name) == nullptr) symbols_.emplace_back(n->name, fmt::format("e{}", symbols_.size()));
      return symbol(*find(symbols_, n->name));
    });
  }

  void rename_body(std::vector<Stmt>& body) {
    for (Stmt& s : body) {
      if (s.kind == Stmt::Kind::scope) {
        s.extent = rename(s.extent);
        iters_.emplace_back(s.iter, fmt::format("i{}", iters_.size()));
        s.iter = iters_.back().second;
        s.role.clear();
        rename_body(s.body);
      } else {
        if (const std::string* to = find(buffers_, s.target)) s.target = *to;
        for (Expr& e : s.index) e = rename(e);
        s.value = rename(s.value);
      }
    }
  }

  Buffer renamed(const Buffer& from, const std::string& name) {
    Buffer b;
    b.name = name;
    b.type = from.type;
    b.place = from.place == Place::constant ? Place::in : from.place;
    b.layout = from.layout;
    b.padding = from.padding;
    b.swizzle = from.swizzle;
    if (from.values.lo) b.values.lo = rename(from.values.lo);
    if (from.values.hi) b.values.hi = rename(from.values.hi);
    for (const Expr& d : from.dims) b.dims.push_back(rename(d));
    for (const Expr& s : from.strides) b.strides.push_back(rename(s));
    return b;
  }

  const Kernel& kernel_;
  Launch launch_;
  size_t own_ = 0;  // temporaries so far
  Names buffers_, symbols_, iters_;
};

}  // namespace

Result<LaunchKernel> cut_launches(const Kernel& scheduled) {
  LaunchKernel out;
  out.kernel = scheduled;
  for (const Stmt& top : scheduled.body) {
    if (top.kind != Stmt::Kind::scope || top.mark != Mark::grid) {
      return unsupported("{} is no @grid scope, expected nothing outside of launches",
                         top.kind == Stmt::Kind::scope ? "scope " + top.iter : "a statement on " + top.target);
    }
    Leaf leaf;
    LATHE_ASSIGN(Launch launch, LaunchCutter(scheduled).run(top, leaf));
    const auto same =
        std::find_if(out.leaves.begin(), out.leaves.end(), [&](const Leaf& l) { return l.text == leaf.text; });
    launch.leaf = static_cast<int>(same - out.leaves.begin());
    if (same == out.leaves.end()) out.leaves.push_back(std::move(leaf));
    out.launches.push_back(std::move(launch));
  }
  return out;
}

}  // namespace lathe::search
