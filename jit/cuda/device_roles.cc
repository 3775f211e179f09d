// check_roles of device_waits.h.
#include <algorithm>

#include "jit/cuda/device_waits.h"

namespace lathe::jit {

using ir::invalid;
using ir::Status;

namespace {

using Kind = DeviceStmt::Kind;
using List = std::vector<DeviceStmt>;

constexpr int kAllRegisters = 65536, kRegisterStep = 8, kLeastRegisters = 24, kMostRegisters = 256;

bool holds_roles(const DeviceStmt& s) {
  const auto any = [](const List& list) { return std::any_of(list.begin(), list.end(), holds_roles); };
  return s.kind == Kind::roles || any(s.body) || any(s.otherwise);
}

// What all threads of a block do, or their copies by number.
Status check_inside(const List& list) {
  for (const DeviceStmt& s : list) {
    switch (s.kind) {
      case Kind::barrier:
      case Kind::open_rings:
        return invalid("roles: threads of a role wait for all of the block");
      case Kind::copy:
      case Kind::commit:
      case Kind::await:
        return invalid("roles: threads of a role copy to shared memory, expected boxes and stores");
      case Kind::roles:
        return invalid("roles: roles inside of a role");
      default:
        break;
    }
    LATHE_RETURN_IF_ERROR(check_inside(s.body));
    LATHE_RETURN_IF_ERROR(check_inside(s.otherwise));
  }
  return {};
}

bool differs(const ir::Expr& e) {
  bool out = false;
  ir::for_each_node(e, [&](const ir::ExprNode& n) { out = out || n.name == "thread"; });
  return out;
}

// The last statement of the program, or of a body that all threads run last of all.
Status check_place(const List& list) {
  for (size_t i = 0; i < list.size(); ++i) {
    const DeviceStmt& s = list[i];
    if (!holds_roles(s)) continue;
    if (i + 1 != list.size()) return invalid("roles: something follows threads that have gone apart");
    if (s.kind == Kind::roles) {
      LATHE_RETURN_IF_ERROR(check_inside(s.body));
      return check_inside(s.otherwise);
    }
    if (s.kind != Kind::when || !s.otherwise.empty() || !s.integer || differs(s.integer))
      return invalid("roles: not all threads of the block go apart");
    return check_place(s.body);
  }
  return {};
}

Status check_registers(const DeviceProgram& p) {
  const DeviceRoles& r = p.roles;
  if (r.filler_registers == 0 && r.reader_registers == 0) return {};
  for (const int n : {r.filler_registers, r.reader_registers}) {
    if (n < kLeastRegisters || n > kMostRegisters || n % kRegisterStep != 0)
      return invalid("roles: {} registers, expected {}..{}, by {}", n, kLeastRegisters, kMostRegisters, kRegisterStep);
  }
  const int first = std::min(kAllRegisters / p.threads / kRegisterStep * kRegisterStep, kMostRegisters);
  if (r.filler_registers > first || r.reader_registers < first)
    return invalid("roles: {} and {} registers, expected fewer and more than {}, which all have at the start",
                   r.filler_registers, r.reader_registers, first);
  if (r.fillers * r.filler_registers + p.readers() * r.reader_registers > p.threads * first)
    return invalid("roles: {} threads with {} registers and {} with {}, more than {} with {}", r.fillers,
                   r.filler_registers, p.readers(), r.reader_registers, p.threads, first);
  return {};
}

}  // namespace

Status check_roles(const DeviceProgram& p) {
  const bool apart = std::any_of(p.body.begin(), p.body.end(), holds_roles);
  if (apart != (p.roles.fillers != 0)) return invalid("roles: {} threads fill places of rings", p.roles.fillers);
  for (const DeviceRing& r : p.rings) {
    if ((r.read >= 0) && !apart) return invalid("roles: {} says what is read, and all threads do the same", r.name);
  }
  if (!apart) return {};
  if (p.roles.fillers < kGroupThreads || p.roles.fillers % kGroupThreads != 0 || p.readers() < kGroupThreads ||
      p.readers() % kGroupThreads != 0)
    return invalid("roles: {} and {} threads, expected whole groups of four warps", p.roles.fillers, p.readers());
  LATHE_RETURN_IF_ERROR(check_registers(p));
  return check_place(p.body);
}

}  // namespace lathe::jit
