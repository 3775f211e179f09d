// The form of shared memory, rings and maps, and of statements on them: see device_waits.h.
#include <algorithm>
#include <set>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "jit/cuda/device_waits.h"

namespace lathe::jit {

using ir::invalid;
using ir::Status;
using Kind = DeviceStmt::Kind;
using Space = DevicePlace::Space;

static Status check_rings_and_maps(const DeviceProgram& p) {
  std::set<std::string> names(p.sizes.begin(), p.sizes.end());
  const auto known = [&](const ir::Expr& e) {
    bool out = static_cast<bool>(e);
    if (e)
      ir::for_each_node(e, [&](const ir::ExprNode& n) {
        out = out && n.op != ir::Op::k_iter && n.op != ir::Op::k_load &&
              (n.op != ir::Op::k_symbol || names.count(n.name) != 0);
      });
    return out;
  };
  for (const DeviceRing& r : p.rings) {
    if (r.places < 2 || r.places > kMostStages)
      return invalid("rings: {} has {} places, expected 2..{}", r.name, r.places, kMostStages);
    const bool reads = r.read >= 0;
    if (reads && (static_cast<size_t>(r.read) >= p.rings.size() || p.rings[static_cast<size_t>(r.read)].read >= 0 ||
                  p.rings[static_cast<size_t>(r.read)].places != r.places))
      return invalid("rings: {} says what is read of no ring of {} places", r.name, r.places);
    if (!known(r.arrivals)) return invalid("rings: it is not known how many threads {} waits for", r.name);
  }
  for (const DeviceShared& s : p.shared) {
    if (s.ring >= 0 &&
        (static_cast<size_t>(s.ring) >= p.rings.size() || s.swizzle == 0 ||
         p.rings[static_cast<size_t>(s.ring)].read >= 0 || s.count % p.rings[static_cast<size_t>(s.ring)].places != 0))
      return invalid("rings: {} is not the swizzled places of a ring", s.name);
  }
  for (const DeviceMap& m : p.maps) {
    const size_t dims = m.box.size();
    if (m.param < 0 || static_cast<size_t>(m.param) >= p.params.size() ||
        p.params[static_cast<size_t>(m.param)].written || dtype_bytes(p.params[static_cast<size_t>(m.param)].type) != 2)
      return invalid("rings: {} is no map of elements of 2 bytes that are only read", m.name);
    if (dims < 1 || dims > static_cast<size_t>(kMostMapDims) || m.sizes.size() != dims || m.strides.size() + 1 != dims)
      return invalid("rings: {} has {} dimensions, expected 1..{}", m.name, dims, kMostMapDims);
    for (const int b : m.box) {
      if (b < 1 || b > kMostBox) return invalid("rings: {} has boxes of {}, expected 1..{}", m.name, b, kMostBox);
    }
    if (!ir::is_swizzle(2 * m.box[0]))
      return invalid("rings: {} has boxes of {} neighbours, expected 32, 64 or 128 bytes of them", m.name, m.box[0]);
    for (const std::vector<ir::Expr>* all : {&m.sizes, &m.strides}) {
      if (!std::all_of(all->begin(), all->end(), known)) return invalid("rings: sizes of {} are not known", m.name);
    }
  }
  return {};
}

Status check_shared(const DeviceProgram& p) {
  int64_t bytes = 0;
  for (const DeviceRing& r : p.rings) bytes += int64_t{std::min(r.places, kMostStages)} * kRingBytes;
  for (const DeviceShared& s : p.shared) {
    if (s.count < 1) return invalid("shared: {} has {} elements", s.name, s.count);
    if (s.swizzle != 0 && (!ir::is_swizzle(s.swizzle) || s.count % (ir::kSwizzledLines * s.line()) != 0))
      return invalid("shared: {} is swizzled by {}, expected 32, 64 or 128 bytes, and groups of {} such lines", s.name,
                     s.swizzle, ir::kSwizzledLines);
    bytes += DeviceShared{s.name, std::min<int64_t>(s.count, kMostShared), s.type, s.swizzle}.bytes();
  }
  if (bytes > kMostShared) return invalid("shared: {} bytes, expected at most {}", bytes, kMostShared);
  return check_rings_and_maps(p);
}

Status check_ring_statement(const DeviceProgram& p, const DeviceStmt& s) {
  if (s.ring < 0 || static_cast<size_t>(s.ring) >= p.rings.size()) return invalid("rings: there is no ring {}", s.ring);
  const DeviceRing& ring = p.rings[static_cast<size_t>(s.ring)];
  if (ring.read >= 0 && (s.kind == Kind::expect || s.kind == Kind::box))
    return invalid("rings: bytes arrive at {}, which says what is read", ring.name);
  if (s.kind != Kind::box) return {};
  if (s.map < 0 || static_cast<size_t>(s.map) >= p.maps.size()) return invalid("rings: there is no map {}", s.map);
  const DeviceMap& m = p.maps[static_cast<size_t>(s.map)];
  if (s.at.size() != m.box.size())
    return invalid("rings: a box of {} at {} numbers, expected {}", m.name, s.at.size(), m.box.size());
  if (s.places.size() != 1 || s.places[0].space != Space::shared || s.places[0].index < 0 ||
      static_cast<size_t>(s.places[0].index) >= p.shared.size())
    return invalid("rings: a box of {} goes to shared memory", m.name);
  const DeviceShared& to = p.shared[static_cast<size_t>(s.places[0].index)];
  if (to.ring != s.ring || to.type != p.params[static_cast<size_t>(m.param)].type)
    return invalid("rings: {} is no place of {} for a box of {}", to.name, p.rings[static_cast<size_t>(s.ring)].name,
                   m.name);
  if (2 * m.box[0] != to.swizzle)
    return invalid("rings: a box of {} neighbours goes to {}, expected lines of {} bytes", m.box[0], to.name,
                   to.swizzle);
  if (!ir::proves_divisible(s.places[0].offset, to.alignment() / 2, {}))
    return invalid("rings: a box at {}[{}], and nothing says that it begins at a multiple of {} bytes", to.name,
                   print(s.places[0].offset), to.alignment());
  return {};
}

}  // namespace lathe::jit
