// See raise_aligned.h.
#include "jit/cuda/passes/raise_aligned.h"

#include <algorithm>
#include <map>

#include "ir/analysis/analysis.h"

namespace lathe::jit {

using ir::Expr;
using Kind = DeviceStmt::Kind;
using List = std::vector<DeviceStmt>;

namespace {

constexpr size_t kMostBeside = 12;  // statements beside it, which are there twice afterwards

bool is_name(const DeviceStmt& s) { return s.kind == Kind::let || s.kind == Kind::take; }
bool is_plain(const DeviceStmt& s) {
  return s.kind == Kind::load || s.kind == Kind::set || s.kind == Kind::store || is_name(s);
}

bool fills_shared(const List& list) {
  return std::any_of(list.begin(), list.end(), [](const DeviceStmt& s) {
    const bool stores = s.kind == Kind::store && s.places[0].space == DevicePlace::Space::shared;
    return stores || s.kind == Kind::copy || fills_shared(s.body);
  });
}

// Without what is a multiple of it.
Expr rest_of(const Expr& offset, int64_t by) {
  if (ir::proves_divisible(offset, by, {})) return Expr(0);
  if (offset->op != ir::Op::k_add) return offset;
  return ir::simplify(rest_of(offset->args[0], by) + rest_of(offset->args[1], by));
}

// What a statement defines gets other names, and what is done with it as well.
struct Others {
  std::vector<std::pair<std::string, Expr>> names;
  std::map<int, int> values;

  void rename(DeviceStmt& s) const {
    if (s.integer) s.integer = ir::substitute(s.integer, names);
    if (s.step) s.step = ir::substitute(s.step, names);
    for (DevicePlace& at : s.places) at.offset = ir::substitute(at.offset, names);
    const auto other = [&](int value) { return values.count(value) != 0 ? values.at(value) : value; };
    s.value = other(s.value);
    for (DeviceOperand& o : s.operands) o.value = other(o.value);
    for (List* list : {&s.body, &s.otherwise}) {
      for (DeviceStmt& inner : *list) rename(inner);
    }
  }
};

class Raise {
 public:
  explicit Raise(DeviceProgram& program) : program_(program) { count(program.body); }

  void list(List& all) {
    for (DeviceStmt& s : all) {
      list(s.body);
      list(s.otherwise);
      const bool around = s.kind == Kind::loop || (s.kind == Kind::when && s.otherwise.empty());
      if (around && fills_shared(s.body)) raise(s);
    }
  }

 private:
  void count(const List& all) {
    for (const DeviceStmt& s : all) {
      values_ = std::max(values_, s.value + 1);
      count(s.body);
      count(s.otherwise);
    }
  }

  // Of each parameter what its address may lack of being aligned.
  std::vector<DevicePlace> least(const DeviceStmt& s) const {
    std::vector<DevicePlace> out;
    for (DevicePlace at : s.places) {
      const ir::DType type = program_.params[static_cast<size_t>(at.index)].type;
      at.offset = rest_of(at.offset, std::min(s.lanes, lanes_at_once(type)));
      const bool known = std::any_of(out.begin(), out.end(), [&](const DevicePlace& p) {
        return p.index == at.index && equal(p.offset, at.offset);
      });
      if (!known) out.push_back(at);
    }
    return out;
  }

  // A loop, or what stands under a condition, with a few plain statements and one such question in it, which depends on
  // none of them.
  void raise(DeviceStmt& s) {
    const auto at = std::find_if(s.body.begin(), s.body.end(), [](const DeviceStmt& x) { return !is_plain(x); });
    if (at == s.body.end() || at->kind != Kind::aligned || s.body.size() > kMostBeside + 1) return;
    if (!std::all_of(s.body.begin(), at, is_name) || !std::all_of(at + 1, s.body.end(), is_plain)) return;
    DeviceStmt out = *at;
    out.places = least(out);
    const auto depends_on = [&](const std::string& name) {
      return (out.integer && ir::uses(out.integer, name)) ||
             std::any_of(out.places.begin(), out.places.end(),
                         [&](const DevicePlace& p) { return ir::uses(p.offset, name); });
    };
    if (s.kind == Kind::loop && depends_on(s.name)) return;
    if (std::any_of(s.body.begin(), at, [&](const DeviceStmt& x) { return depends_on(x.name); })) return;
    const List together = std::move(out.body), single = std::move(out.otherwise);
    const auto where = at - s.body.begin();
    s.body.erase(at);
    DeviceStmt other = others(s);
    s.body.insert(s.body.begin() + where, together.begin(), together.end());
    other.body.insert(other.body.begin() + where, single.begin(), single.end());
    last_.rename(other);
    out.body = {std::move(s)};
    out.otherwise = {std::move(other)};
    s = std::move(out);
  }

  // The same with names of its own.
  DeviceStmt others(const DeviceStmt& s) {
    DeviceStmt out = s;
    last_ = {};
    const auto name = [&](std::string& is) {
      last_.names.emplace_back(is, ir::iter(is + "s"));
      is += "s";
    };
    if (out.kind == Kind::loop) name(out.name);
    for (DeviceStmt& x : out.body) {
      if (is_name(x)) name(x.name);
      if (x.value >= 0) last_.values[x.value] = values_++;
    }
    return out;
  }

  DeviceProgram& program_;
  int values_ = 0;  // there are so many
  Others last_;
};

}  // namespace

void raise_aligned(DeviceProgram& program) { Raise(program).list(program.body); }

}  // namespace lathe::jit
