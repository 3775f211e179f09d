// See taken_sizes.h.
#include "jit/cuda/lower/taken_sizes.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"

namespace lathe::jit {

using ir::Expr;
using ir::Op;
using ir::Stmt;

namespace {

constexpr int64_t kMost = int64_t{1} << 40;

// The load of an integer that states its values, widened or not; null: it is none.
const ir::ExprNode* taken(const ir::Kernel& kernel, const Expr& e) {
  const bool widened = e->op == Op::k_cast && e->type == ir::DType::i64;
  const Expr& load = widened ? e->args[0] : e;
  if (load->op != Op::k_load || (!widened && load->type != ir::DType::i64) || load->args.empty()) return nullptr;
  const ir::Buffer& b = *kernel.find_buffer(load->name);
  return b.values.lo && b.values.hi && b.place == ir::Place::in ? load.get() : nullptr;
}

std::string text_of(const ir::ExprNode& load) {
  std::string out = load.name;
  for (const Expr& e : load.args) out += " " + print(e);
  return out;
}

// How far the element is from the first one.
Expr offset_of(const ir::Buffer& b, const std::vector<Expr>& index) {
  Expr out(0), step(1);
  for (size_t d = index.size(); d-- > 0;) {
    out = out + index[d] * (b.strides.empty() ? step : b.strides[d]);
    step = step * b.dims[d];
  }
  return ir::simplify(out);
}

Expr renamed(const Expr& e, const std::set<std::string>& names) {
  return ir::rewrite(e, [&](const Expr& n) -> Expr {
    return n->op == Op::k_symbol && names.count(n->name) != 0 ? ir::iter(n->name) : Expr();
  });
}

void rename(std::vector<DeviceStmt>& list, const std::set<std::string>& names) {
  for (DeviceStmt& s : list) {
    if (s.integer) s.integer = renamed(s.integer, names);
    if (s.step) s.step = renamed(s.step, names);
    for (DevicePlace& at : s.places) at.offset = renamed(at.offset, names);
    rename(s.body, names);
    rename(s.otherwise, names);
  }
}

}  // namespace

TakenSizes take_sizes(const ir::Kernel& leaf) {
  TakenSizes out{leaf, {}};
  std::set<std::string> grid;
  for (const Stmt* s = &leaf.body[0]; ir::is_of_grid(s->mark); s = &s->body[0]) {
    grid.insert(s->iter);
    if (s->body.size() != 1) break;
  }
  std::map<std::string, std::string> names;  // by what is loaded
  ir::for_each_stmt(out.kernel.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::scope) return;
    ir::rewrite(s.extent, [&](const Expr& e) -> Expr {
      const ir::ExprNode* load = taken(leaf, e);
      if (load == nullptr) return {};
      bool of_block = true;
      for (const Expr& i : load->args) {
        ir::for_each_node(i, [&](const ir::ExprNode& n) {
          of_block = of_block && n.op != Op::k_load && (n.op != Op::k_iter || grid.count(n.name) != 0);
        });
      }
      const std::string text = text_of(*load);
      if (!of_block || names.count(text) != 0) return {};
      names[text] = fmt::format("g{}", out.takes.size());
      out.takes.push_back({names[text], load->name, load->args});
      return {};
    });
  });
  if (out.takes.empty()) return out;
  ir::rewrite_exprs(out.kernel.body, [&](const Expr& e) -> Expr {
    const ir::ExprNode* load = taken(leaf, e);
    if (load == nullptr) return {};
    const auto known = names.find(text_of(*load));
    return known == names.end() ? Expr() : ir::symbol(known->second);
  });
  const ir::Ranges ranges(leaf);
  for (const TakenSizes::Take& t : out.takes) {
    const ir::ValueRange& values = leaf.find_buffer(t.buffer)->values;
    const int64_t least = std::max(ir::interval(values.lo, ranges).lo, -kMost);
    const int64_t most = std::min(ir::interval(values.hi, ranges).hi, kMost);
    out.kernel.symbols.push_back({t.name, least, std::max(least, most), 1});
  }
  return out;
}

void bring_in(const TakenSizes& sizes, DeviceProgram& program) {
  if (sizes.takes.empty()) return;
  std::set<std::string> names;
  for (const TakenSizes::Take& t : sizes.takes) names.insert(t.name);
  std::erase_if(program.sizes, [&](const std::string& s) { return names.count(s) != 0; });
  rename(program.body, names);
  std::vector<DeviceStmt> takes;
  for (const TakenSizes::Take& t : sizes.takes) {
    const auto param = std::find_if(program.params.begin(), program.params.end(),
                                    [&](const DeviceParam& p) { return p.name == t.buffer; });
    const ir::Buffer& b = *sizes.kernel.find_buffer(t.buffer);
    DeviceStmt s;
    s.kind = DeviceStmt::Kind::take;
    s.name = t.name;
    s.integer = b.values.lo;
    s.step = b.values.hi;
    s.places = {{DevicePlace::Space::param, static_cast<int>(param - program.params.begin()), offset_of(b, t.index)}};
    takes.push_back(std::move(s));
  }
  // Behind the numbers of the block.
  const auto first = std::find_if(program.body.begin(), program.body.end(),
                                  [](const DeviceStmt& s) { return s.kind != DeviceStmt::Kind::let; });
  program.body.insert(first, takes.begin(), takes.end());
}

}  // namespace lathe::jit
