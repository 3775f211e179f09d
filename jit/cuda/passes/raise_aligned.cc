// See raise_aligned.h.
#include "jit/cuda/passes/raise_aligned.h"

#include <algorithm>

#include "ir/analysis/analysis.h"
#include "jit/cuda/passes/renaming.h"

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

class Raise {
 public:
  explicit Raise(DeviceProgram& program) : program_(program), value_(next_value(program.body)) {}

  void list(List& all) {
    for (DeviceStmt& s : all) {
      list(s.body);
      list(s.otherwise);
      const bool around = s.kind == Kind::loop || (s.kind == Kind::when && s.otherwise.empty());
      if (around && fills_shared(s.body)) raise(s);
    }
  }

 private:
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
    out.body = out.otherwise = {std::move(s)};
    const auto insert = [&](List& to, const List& list) {
      to[0].body.insert(to[0].body.begin() + where, list.begin(), list.end());
    };
    insert(out.body, together);
    insert(out.otherwise, single);
    Renaming("s", &value_).run(out.otherwise);
    s = std::move(out);
  }

  DeviceProgram& program_;
  int value_;  // the next one
};

}  // namespace

void raise_aligned(DeviceProgram& program) { Raise(program).list(program.body); }

}  // namespace lathe::jit
