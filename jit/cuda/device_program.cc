// Tables, text and rules of device programs: see device_program.h.
#include "jit/cuda/device_program.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/base/gpu_target.h"
#include "ir/core/text_form.h"

namespace lathe::jit {

using ir::invalid;
using ir::Status;

namespace {

constexpr DeviceOpRow kOps[] = {
#define LATHE_DEVICE_OP(id, result, operands, device, host) {#id, ir::Op::k_##id, result, operands},
#include "jit/cuda/device_ops.def"
#undef LATHE_DEVICE_OP
};

class Printer {
 public:
  explicit Printer(const DeviceProgram& p) : p_(p) {}
  std::string run() {
    out_ = fmt::format("program {} threads {} (", p_.name, p_.threads);
    std::vector<std::string> args;
    for (const DeviceParam& q : p_.params) args.push_back(q.name + (q.written ? ": out" : ": in"));
    for (const std::string& e : p_.sizes) args.push_back(e);
    out_ += fmt::format("{})\n", fmt::join(args, ", "));
    body(p_.body, 1);
    return std::move(out_);
  }

 private:
  std::string place(const DevicePlace& at) const {
    return fmt::format("{}[{}]", p_.params[static_cast<size_t>(at.param)].name, ir::print(at.offset));
  }
  static std::string lanes(const DeviceStmt& s) {
    if (s.lanes == 1) return "";
    return fmt::format(" x{}", s.lanes) + (ir::is_const_int(s.step, 1) ? "" : " step " + ir::print(s.step));
  }
  static std::string operand(const DeviceOperand& o) {
    return o.value >= 0 ? fmt::format("v{}", o.value) : ir::print(ir::const_float(o.constant));
  }
  void blocks(const DeviceStmt& s, int indent) {
    body(s.body, indent + 1);
    if (s.otherwise.empty()) return;
    out_.append(static_cast<size_t>(2 * indent), ' ');
    out_ += "else:\n";
    body(s.otherwise, indent + 1);
  }
  void body(const std::vector<DeviceStmt>& list, int indent) {
    using Kind = DeviceStmt::Kind;
    for (const DeviceStmt& s : list) {
      out_.append(static_cast<size_t>(2 * indent), ' ');
      switch (s.kind) {
        case Kind::let:
          out_ += fmt::format("let {} = {}\n", s.name, ir::print(s.integer));
          break;
        case Kind::when:
          out_ += fmt::format("if {}:\n", ir::print(s.integer));
          blocks(s, indent);
          break;
        case Kind::aligned: {
          std::vector<std::string> all;
          for (const DevicePlace& at : s.places) all.push_back(place(at));
          out_ += "if ";
          if (s.integer) out_ += fmt::format("{} and ", ir::print(s.integer));
          out_ += fmt::format("aligned {} {}:\n", 4 * s.lanes, fmt::join(all, ", "));
          blocks(s, indent);
          break;
        }
        case Kind::loop:
          out_ += fmt::format("for {} < {}:\n", s.name, ir::print(s.integer));
          body(s.body, indent + 1);
          break;
        case Kind::load:
          out_ += fmt::format("v{} = load{} {}\n", s.value, lanes(s), place(s.places[0]));
          break;
        case Kind::set:
          out_ += fmt::format("v{} = {}", s.value, device_op(s.op).name);
          for (const DeviceOperand& o : s.operands) out_ += " " + operand(o);
          out_ += "\n";
          break;
        case Kind::store:
          out_ += fmt::format("store{} {} {}\n", lanes(s), place(s.places[0]), operand(s.operands[0]));
          break;
      }
    }
  }

  const DeviceProgram& p_;
  std::string out_;
};

class Verifier {
 public:
  explicit Verifier(const DeviceProgram& p) : p_(p) {}
  Status run() {
    if (p_.threads < 1 || p_.threads > ir::kMaxBlockThreads)
      return invalid("block: {} threads, expected 1..{}", p_.threads, ir::kMaxBlockThreads);
    for (const char* builtin : {"block", "thread"}) names_.insert(builtin);
    for (const std::string& e : p_.sizes) LATHE_RETURN_IF_ERROR(define(e));
    return body(p_.body);
  }

 private:
  Status define(const std::string& name) {
    if (!names_.insert(name).second || !defined_.insert(name).second)
      return invalid("names: {} is defined twice", name);
    return {};
  }

  Status integer(const ir::Expr& e, ir::DType type) const {
    if (!e) return invalid("names: an integer is missing");
    if (e->type != type)
      return invalid("names: {} is {}, expected {}", print(e), dtype_name(e->type), dtype_name(type));
    std::string wrong;
    ir::for_each_node(e, [&](const ir::ExprNode& n) {
      if (n.op == ir::Op::k_load) wrong = n.name + "[]";
      if ((n.op == ir::Op::k_iter || n.op == ir::Op::k_symbol) && !names_.count(n.name)) wrong = n.name;
    });
    return wrong.empty() ? Status() : invalid("names: {} is not known in {}", wrong, print(e));
  }

  Status place(const DevicePlace& at) const {
    if (at.param < 0 || static_cast<size_t>(at.param) >= p_.params.size())
      return invalid("access: there is no parameter {}", at.param);
    return integer(at.offset, ir::DType::i64);
  }

  Status access(const DeviceStmt& s) const {
    if (s.places.size() != 1) return invalid("access: {} places, expected one", s.places.size());
    LATHE_RETURN_IF_ERROR(place(s.places[0]));
    if (s.lanes == 1) return {};
    LATHE_RETURN_IF_ERROR(integer(s.step, ir::DType::i64));
    if (!ir::is_const_int(s.step, 1)) return {};
    const bool known = std::any_of(aligned_.begin(), aligned_.end(), [&](const auto& a) {
      return a.second >= s.lanes && a.first.param == s.places[0].param && equal(a.first.offset, s.places[0].offset);
    });
    const DeviceParam& p = p_.params[static_cast<size_t>(s.places[0].param)];
    return known ? Status()
                 : invalid("access: {} lanes of {}[{}] at once, and nothing says that they are aligned", s.lanes,
                           p.name, print(s.places[0].offset));
  }

  Status define_value(const DeviceStmt& s, char type, int lanes) {
    if (s.value < 0 || !values_.emplace(s.value, std::make_pair(type, lanes)).second)
      return invalid("names: value v{} is defined twice", s.value);
    if (!numbers_.insert(s.value).second) return invalid("names: value v{} is defined twice", s.value);
    return {};
  }

  Status operand(const DeviceOperand& o, char type, int lanes) const {
    if (o.value < 0) return type == 'f' ? Status() : invalid("values: a constant where a condition is expected");
    const auto at = values_.find(o.value);
    if (at == values_.end()) return invalid("names: value v{} is not known here", o.value);
    if (at->second.first != type) return invalid("values: v{} is {}, expected {}", o.value, at->second.first, type);
    if (at->second.second != lanes && at->second.second != 1)
      return invalid("values: v{} has {} lanes, expected {}", o.value, at->second.second, lanes);
    return {};
  }

  // Names and values of a body end with it.
  Status inside(const std::vector<DeviceStmt>& list) {
    const std::set<std::string> names = names_;
    const auto values = values_;
    LATHE_RETURN_IF_ERROR(body(list));
    names_ = names;
    values_ = values;
    return {};
  }

  Status statement(const DeviceStmt& s) {
    using Kind = DeviceStmt::Kind;
    if (s.lanes != 1 && s.lanes != 2 && s.lanes != kMaxLanes) return invalid("lanes: {}, expected 1, 2 or 4", s.lanes);
    switch (s.kind) {
      case Kind::let:
        LATHE_RETURN_IF_ERROR(integer(s.integer, ir::DType::i64));
        return define(s.name);
      case Kind::when:
        LATHE_RETURN_IF_ERROR(integer(s.integer, ir::DType::b8));
        LATHE_RETURN_IF_ERROR(inside(s.body));
        return inside(s.otherwise);
      case Kind::aligned: {
        if (s.integer) LATHE_RETURN_IF_ERROR(integer(s.integer, ir::DType::b8));
        for (const DevicePlace& at : s.places) LATHE_RETURN_IF_ERROR(place(at));
        const size_t outside = aligned_.size();
        for (const DevicePlace& at : s.places) aligned_.emplace_back(at, s.lanes);
        LATHE_RETURN_IF_ERROR(inside(s.body));
        aligned_.resize(outside);
        return inside(s.otherwise);
      }
      case Kind::loop: {
        LATHE_RETURN_IF_ERROR(integer(s.integer, ir::DType::i64));
        const std::set<std::string> names = names_;
        LATHE_RETURN_IF_ERROR(define(s.name));
        LATHE_RETURN_IF_ERROR(inside(s.body));
        names_ = names;
        return {};
      }
      case Kind::load:
        LATHE_RETURN_IF_ERROR(access(s));
        return define_value(s, 'f', s.lanes);
      case Kind::set: {
        const DeviceOpRow& row = device_op(s.op);
        const std::string_view operands = row.operands;
        if (s.operands.size() != operands.size())
          return invalid("values: {} has {} operands, expected {}", row.name, s.operands.size(), operands.size());
        for (size_t i = 0; i < operands.size(); ++i)
          LATHE_RETURN_IF_ERROR(operand(s.operands[i], operands[i], s.lanes).with_context(row.name));
        return define_value(s, row.result, s.lanes);
      }
      case Kind::store:
        LATHE_RETURN_IF_ERROR(access(s));
        if (const DeviceParam& p = p_.params[static_cast<size_t>(s.places[0].param)]; !p.written)
          return invalid("access: {} is stored to, it is only read", p.name);
        if (s.operands.size() != 1) return invalid("values: a store has {} operands", s.operands.size());
        return operand(s.operands[0], 'f', s.lanes);
    }
    return {};
  }

  Status body(const std::vector<DeviceStmt>& list) {
    for (const DeviceStmt& s : list) LATHE_RETURN_IF_ERROR(statement(s));
    return {};
  }

  const DeviceProgram& p_;
  std::set<std::string> names_, defined_;             // known here; ever defined
  std::map<int, std::pair<char, int>> values_;        // known here: type and lanes
  std::set<int> numbers_;                             // ever defined
  std::vector<std::pair<DevicePlace, int>> aligned_;  // found here, to so many lanes
};

}  // namespace

const DeviceOpRow& device_op(DeviceOp op) { return kOps[static_cast<size_t>(op)]; }

const DeviceOpRow* find_device_op(ir::Op node, DeviceOp* op) {
  const auto* at = std::find_if(std::begin(kOps), std::end(kOps), [&](const DeviceOpRow& r) { return r.node == node; });
  if (at == std::end(kOps)) return nullptr;
  *op = static_cast<DeviceOp>(at - std::begin(kOps));
  return at;
}

std::string print(const DeviceProgram& program) { return Printer(program).run(); }
Status verify(const DeviceProgram& program) { return Verifier(program).run(); }

}  // namespace lathe::jit
