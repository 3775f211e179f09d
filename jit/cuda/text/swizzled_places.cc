// See swizzled_places.h.
#include "jit/cuda/text/swizzled_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/analysis/analysis.h"
#include "jit/cuda/text/integer_text.h"

namespace lathe::jit {

using ir::Expr;
using Kind = DeviceStmt::Kind;

namespace {

// Whether it depends on the number of the thread, and on nothing else.
bool is_of_thread(const Expr& e) {
  bool of_thread = false, of_others = false;
  ir::for_each_node(e, [&](const ir::ExprNode& n) {
    if (n.op != ir::Op::k_iter && n.op != ir::Op::k_symbol) return;
    (n.name == "thread" ? of_thread : of_others) = true;
  });
  return of_thread && !of_others;
}

// Adds the terms of a sum to one of the two.
void sort_terms(const Expr& e, Expr& of_thread, Expr& others) {
  if (e->op == ir::Op::k_add) {
    for (const Expr& a : e->args) sort_terms(a, of_thread, others);
    return;
  }
  Expr& to = is_of_thread(e) ? of_thread : others;
  to = to + e;
}

// A sum in two parts, of which the first is a multiple of `by`.
std::pair<Expr, Expr> split_sum(const Expr& e, int64_t by) {
  if (e->op == ir::Op::k_add) {
    const auto a = split_sum(e->args[0], by), b = split_sum(e->args[1], by);
    return {ir::simplify(a.first + b.first), ir::simplify(a.second + b.second)};
  }
  if (ir::is_const_int(e)) {
    const int64_t rest = (e->ival % by + by) % by;
    return {Expr(e->ival - rest), Expr(rest)};
  }
  return ir::proves_divisible(e, by, {}) ? std::pair{e, Expr(0)} : std::pair{Expr(0), e};
}

// The bits of an element's number that change with the line it is in.
int swizzle_mask(const DeviceShared& s) { return (s.swizzle - ir::kPieceBytes) / dtype_bytes(s.type); }
// Both preludes have lt_swizzled, of elements of 2 bytes in lines of 128; others stand in the text.
constexpr int kSwizzleOfPreludes = 56;
std::string swizzle_function(int mask) {
  return mask == kSwizzleOfPreludes ? "lt_swizzled" : fmt::format("lt_swizzled_{}", mask);
}
// Whole groups of lines are left out of what is swizzled, since it does not depend on them: so most of it is the same
// for many elements of a thread.
std::string swizzled_text(const DeviceShared& s, const Expr& element, const std::string& further) {
  const auto [groups, rest] = split_sum(element, ir::kSwizzledLines * s.line());
  const std::string swizzled = fmt::format("{}({}{})", swizzle_function(swizzle_mask(s)), integer_text(rest), further);
  return ir::is_const_int(groups, 0) ? swizzled : fmt::format("({} + {})", integer_text(groups), swizzled);
}

}  // namespace

std::string place_in(const DeviceShared& s, const Expr& element, const std::string& further) {
  if (s.swizzle == 0) return fmt::format("{} + {}{}", s.name, integer_text(element), further);
  return fmt::format("{} + {}", s.name, swizzled_text(s, element, further));
}

std::string swizzle_functions(const DeviceProgram& p) {
  std::set<int> masks;
  for (const DeviceShared& s : p.shared) {
    if (s.swizzle != 0) masks.insert(swizzle_mask(s));
  }
  masks.erase(kSwizzleOfPreludes);
  std::string out;
  for (const int mask : masks)
    out += fmt::format("LT_FUNCTION lt_int {}(lt_int at) {{ return at ^ (at >> 3 & {}); }}\n", swizzle_function(mask),
                       mask);
  return out;
}

// lt_tile is of lines of 128 bytes; those of 64 and of 32 are the next numbers in the two highest bits.
std::string tile_in(const DeviceShared& s, const std::string& element, const DeviceTile& t) {
  const int bytes = dtype_bytes(s.type), further = s.swizzle == 64 ? 1 : s.swizzle == 32 ? 2 : 0;
  return fmt::format("lt_tile({} + {}, {}, {}){}", s.name, element, t.lines * bytes, t.panels * bytes,
                     further == 0 ? "" : fmt::format(" + ({}ull << 62)", further));
}

KeptPlaces::KeptPlaces(const DeviceProgram& program) : p_(program) {
  const bool swizzles =
      std::any_of(program.shared.begin(), program.shared.end(), [](const DeviceShared& s) { return s.swizzle != 0; });
  if (!swizzles) return;
  find_names(program.body);
  if (alike_) look(program.body);
}

void KeptPlaces::find_names(const std::vector<DeviceStmt>& list) {
  for (const DeviceStmt& s : list) {
    if (!s.name.empty()) {
      // Null: it is no let.
      const Expr is = s.kind == Kind::let ? ir::substitute(s.integer, of_thread_) : Expr();
      const auto [known, first] = defined_.try_emplace(s.name, is);
      const bool same = known->second && is ? ir::equal(known->second, is) : !known->second && !is;
      alike_ = alike_ && (first || same);
      if (first && is && is_of_thread(is)) of_thread_.emplace_back(s.name, is);
    }
    find_names(s.body);
    find_names(s.otherwise);
  }
}

KeptPlaces::Parts KeptPlaces::parts(const DevicePlace& at) const {
  if (at.space != DevicePlace::Space::shared) return {};
  const DeviceShared& s = p_.shared[static_cast<size_t>(at.index)];
  if (s.swizzle == 0) return {};
  Expr of_thread(0), others(0);
  sort_terms(ir::substitute(at.offset, of_thread_), of_thread, others);
  of_thread = ir::simplify(of_thread);
  if (ir::is_const_int(of_thread)) return {};
  const int64_t groups = ir::kSwizzledLines * s.line();
  const auto [whole, rest] = split_sum(ir::simplify(others), groups);
  if (!ir::is_const_int(rest)) return {};  // less than a group
  return {swizzled_text(s, ir::simplify(of_thread + rest), ""), whole};
}

void KeptPlaces::look(const std::vector<DeviceStmt>& list) {
  for (const DeviceStmt& s : list) {
    const bool reads = s.kind == Kind::warp && warp_op(s.warp).moves();
    if (reads || s.kind == Kind::copy) {
      const Parts of = parts(reads ? s.places.back() : s.places.front());
      if (!of.kept.empty() && names_.count(of.kept) == 0) {
        const std::string& name = names_[of.kept] = fmt::format("z{}", names_.size());
        declarations_.push_back(fmt::format("const lt_int {} = lt_kept({});", name, of.kept));
      }
    }
    look(s.body);
    look(s.otherwise);
  }
}

std::string KeptPlaces::find(const DevicePlace& at) const {
  if (names_.empty()) return {};
  const Parts of = parts(at);
  const auto name = of.kept.empty() ? names_.end() : names_.find(of.kept);
  if (name == names_.end()) return {};
  return fmt::format("{} + ({} + {})", p_.shared[static_cast<size_t>(at.index)].name, integer_text(of.others),
                     name->second);
}

}  // namespace lathe::jit
