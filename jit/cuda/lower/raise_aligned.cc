// See raise_aligned.h.
#include "jit/cuda/lower/raise_aligned.h"

#include <algorithm>

#include "ir/analysis/analysis.h"

namespace lathe::jit {

using ir::Expr;
using Kind = DeviceStmt::Kind;
using List = std::vector<DeviceStmt>;
using Names = std::vector<std::pair<std::string, Expr>>;  // and what takes their place

namespace {

bool is_name(const DeviceStmt& s) { return s.kind == Kind::let || s.kind == Kind::take; }

void rename(DeviceStmt& s, const Names& names) {
  if (s.integer) s.integer = ir::substitute(s.integer, names);
  if (s.step) s.step = ir::substitute(s.step, names);
  for (DevicePlace& at : s.places) at.offset = ir::substitute(at.offset, names);
  for (List* list : {&s.body, &s.otherwise}) {
    for (DeviceStmt& inner : *list) rename(inner, names);
  }
}

// Without what is a multiple of it.
Expr rest_of(const Expr& offset, int64_t by) {
  if (ir::proves_divisible(offset, by, {})) return Expr(0);
  if (offset->op != ir::Op::k_add) return offset;
  return ir::simplify(rest_of(offset->args[0], by) + rest_of(offset->args[1], by));
}

class Raise {
 public:
  explicit Raise(const DeviceProgram& program) : program_(program) {}

  void list(List& all) const {
    for (DeviceStmt& s : all) {
      list(s.body);
      list(s.otherwise);
      if (s.kind == Kind::aligned) {
        least(s);
      } else if (has_aligned_alone(s)) {
        raise(s);
      }
    }
  }

 private:
  // Of each parameter what its address may lack of being aligned.
  void least(DeviceStmt& s) const {
    std::vector<DevicePlace> places;
    for (DevicePlace& at : s.places) {
      const ir::DType type = program_.params[static_cast<size_t>(at.index)].type;
      at.offset = rest_of(at.offset, std::min(s.lanes, lanes_at_once(type)));
      const bool known = std::any_of(places.begin(), places.end(), [&](const DevicePlace& p) {
        return p.index == at.index && equal(p.offset, at.offset);
      });
      if (!known) places.push_back(at);
    }
    s.places = std::move(places);
  }

  // A loop, or what stands under a condition, that has names and that alone, which depends on none of them.
  static bool has_aligned_alone(const DeviceStmt& s) {
    const bool around = s.kind == Kind::loop || (s.kind == Kind::when && s.otherwise.empty());
    if (!around || s.body.empty() || s.body.back().kind != Kind::aligned) return false;
    const DeviceStmt& inner = s.body.back();
    const auto depends_on = [&](const std::string& name) {
      return (inner.integer && ir::uses(inner.integer, name)) ||
             std::any_of(inner.places.begin(), inner.places.end(),
                         [&](const DevicePlace& at) { return ir::uses(at.offset, name); });
    };
    if (s.kind == Kind::loop && depends_on(s.name)) return false;
    return std::all_of(s.body.begin(), s.body.end() - 1,
                       [&](const DeviceStmt& n) { return is_name(n) && !depends_on(n.name); });
  }

  // Each name is defined once: what is done one by one has others.
  static void raise(DeviceStmt& s) {
    DeviceStmt out = std::move(s.body.back());
    s.body.pop_back();
    DeviceStmt single = s;
    Names names;
    const auto other = [&](std::string& name) {
      names.emplace_back(name, ir::iter(name + "s"));
      name += "s";
    };
    if (single.kind == Kind::loop) other(single.name);
    for (DeviceStmt& n : single.body) other(n.name);
    std::move(out.otherwise.begin(), out.otherwise.end(), std::back_inserter(single.body));
    rename(single, names);
    std::move(out.body.begin(), out.body.end(), std::back_inserter(s.body));
    out.body = {std::move(s)};
    out.otherwise = {std::move(single)};
    s = std::move(out);
  }

  const DeviceProgram& program_;
};

}  // namespace

void raise_aligned(DeviceProgram& program) { Raise(program).list(program.body); }

}  // namespace lathe::jit
