// check_roles of device_waits.h.
#include <algorithm>

#include "ir/core/kernel.h"
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
      case Kind::cluster_barrier:
        return invalid("cluster: threads of a role meet others before they are done");
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

// cluster: its threads meet where the role ends.
Status check_role(List list, bool cluster) {
  if (cluster) {
    if (list.empty() || list.back().kind != Kind::cluster_barrier)
      return invalid("cluster: a role ends before all threads of the cluster meet");
    list.pop_back();
  }
  return check_inside(list);
}

bool differs(const ir::Expr& e) {
  bool out = false;
  ir::for_each_node(e, [&](const ir::ExprNode& n) { out = out || n.name == "thread"; });
  return out;
}

// The last statement of the program, or of a body that all threads run last of all.
Status check_place(const List& list, bool cluster) {
  for (size_t i = 0; i < list.size(); ++i) {
    const DeviceStmt& s = list[i];
    if (!holds_roles(s)) continue;
    if (i + 1 != list.size()) return invalid("roles: something follows threads that have gone apart");
    if (s.kind == Kind::roles) {
      LATHE_RETURN_IF_ERROR(check_role(s.body, cluster));
      return check_role(s.otherwise, cluster);
    }
    if (s.kind != Kind::when || !s.otherwise.empty() || !s.integer || differs(s.integer))
      return invalid("roles: not all threads of the block go apart");
    return check_place(s.body, cluster);
  }
  return {};
}

// What is for a cluster, in a program of one block.
bool needs_cluster(const List& list) {
  return std::any_of(list.begin(), list.end(), [](const DeviceStmt& s) {
    return s.all || s.kind == Kind::cluster_barrier || needs_cluster(s.body) || needs_cluster(s.otherwise);
  });
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
  if (p.cluster != 1 && p.cluster != ir::kClusterBlocks)
    return invalid("cluster: {} blocks, expected 1 or {}", p.cluster, ir::kClusterBlocks);
  if (p.cluster > 1 && !apart) return invalid("cluster: blocks share what all threads ask for, expected roles");
  if (p.cluster == 1 && needs_cluster(p.body)) return invalid("cluster: one block reaches others");
  if (apart != (p.roles.fillers != 0)) return invalid("roles: {} threads fill places of rings", p.roles.fillers);
  for (const DeviceRing& r : p.rings) {
    if ((r.read >= 0) && !apart) return invalid("roles: {} says what is read, and all threads do the same", r.name);
  }
  if (!apart) return {};
  if (p.roles.fillers < kGroupThreads || p.roles.fillers % kGroupThreads != 0 || p.readers() < kGroupThreads ||
      p.readers() % kGroupThreads != 0)
    return invalid("roles: {} and {} threads, expected whole groups of four warps", p.roles.fillers, p.readers());
  LATHE_RETURN_IF_ERROR(check_registers(p));
  return check_place(p.body, p.cluster > 1);
}

}  // namespace lathe::jit
