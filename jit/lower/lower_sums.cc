// Sums across lanes that are stored side by side: one tree for up to 16 of them in place of one each. A step puts what
// two registers have left of their sums into one, so that the tree adds the same pairs as reduce_add, and all bits are
// the same. What becomes of the sums before they are stored then happens to a row of them at once, and the first steps
// of it that take the same numbers in all rows to all rows at once.
//
//   a = reduce_add p      x0 = [p0 p1 r0 r1] + [p2 p3 r2 r3]      quarters of p and of another row's r
//   b = a * c             ..                                     15 such steps of 16 registers
//   store_lane0 [m], b    rows, a quarter each: y = x * c;  store [m] y, its first lanes
//   .. of m + 4, m + 8, ..
//
// For 16 lanes with masks. Only straight code is changed, whose sums are used for nothing else.
#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <map>

#include "jit/lower/lowering.h"

namespace lathe::jit {
namespace {

constexpr int kLanes = 16, kQuarter = 4, kElement = 4;
constexpr int kReduceCost = 9;  // instructions of one reduce_add
constexpr int kSpare = 8;       // registers for all but the sums

// A stored value: what becomes of one sum, step by step. A source of a step is the value before it (-1), or a register
// with the same number in every lane.
struct Chain {
  struct Step {
    LeafOp op;
    std::array<int, 3> from;
  };
  int sum = -1;             // the node that reduces
  size_t store = 0;         // the node that stores
  std::vector<Step> steps;  // from the sum to what is stored
};
using Row = std::vector<const Chain*>;  // stored one after another

class SumBatcher {
 public:
  explicit SumBatcher(LeafProgram& p) : p_(p) {}

  void run() {
    definitions_.assign(static_cast<size_t>(p_.num_vregs), 0);
    reads_.assign(static_cast<size_t>(p_.num_vregs), 0);
    only_.resize(static_cast<size_t>(p_.num_vregs));
    look(p_.body);
    if (sums_ > 1) change(p_.body);
  }

 private:
  void look(const Nodes& body) {
    for (const Node& n : body) {
      look(n.body);
      if (n.kind == Node::Kind::set_ptr) moved_.emplace(n.steps[0].ptr, n.from);
      if (n.kind == Node::Kind::segments) {
        moved_.emplace(n.seg_ptr_a, n.seg_base_a);
        moved_.emplace(n.seg_ptr_b, n.seg_base_b);
      }
      if (n.kind != Node::Kind::inst) continue;
      const Inst& i = n.inst;
      for (int s = 0; s < leaf_op_sources(i.op); ++s) ++reads_[static_cast<size_t>(i.src[s])];
      const LeafOpKind kind = leaf_op_kind(i.op);
      if (kind != LeafOpKind::kArith && kind != LeafOpKind::kLoad && kind != LeafOpKind::kConst) continue;
      ++definitions_[static_cast<size_t>(i.dst)];
      only_[static_cast<size_t>(i.dst)] = i;
      sums_ += i.op == LeafOp::k_reduce_add;
    }
  }
  bool defined_once(int reg) const { return definitions_[static_cast<size_t>(reg)] == 1; }
  const Inst& definition(int reg) const { return only_[static_cast<size_t>(reg)]; }

  // The operand that a pointer goes through; -1: a stream's.
  int operand_of(int ptr) const {
    for (size_t steps = 0; steps <= p_.ptrs.size() && ptr >= 0; ++steps) {
      if (p_.ptrs[static_cast<size_t>(ptr)].slot >= 0) return p_.ptrs[static_cast<size_t>(ptr)].slot;
      const auto from = moved_.find(ptr);
      if (from == moved_.end() || from->second == ptr) return -1;
      ptr = from->second;
    }
    return -1;
  }

  void change(Nodes& body) {
    for (Node& n : body) change(n.body);
    for (size_t begin = 0; begin < body.size();) {
      if (body[begin].kind != Node::Kind::inst) {
        ++begin;
        continue;
      }
      size_t end = begin;
      while (end < body.size() && body[end].kind == Node::Kind::inst) ++end;
      begin = end + change_run(body, begin, end);
    }
  }

  // Straight code; returns how many nodes are added.
  size_t change_run(Nodes& body, size_t begin, size_t end) {
    made_.clear();
    for (size_t i = begin; i < end; ++i) {
      const LeafOpKind kind = leaf_op_kind(body[i].inst.op);
      if (kind == LeafOpKind::kArith || kind == LeafOpKind::kLoad || kind == LeafOpKind::kConst)
        made_[body[i].inst.dst] = i;
    }
    std::vector<Chain> chains;
    for (size_t i = begin; i < end; ++i) {
      const Inst& store = body[i].inst;
      Chain c{.store = i};
      const bool plain = store.op == LeafOp::k_store_lane0 && store.mask < 0 && store.type == MemType::b32;
      if (plain && operand_of(store.mem.ptr) >= 0 && trace(body, store.src[0], c)) chains.push_back(std::move(c));
    }
    if (chains.size() < 2 || static_cast<int>(chains.size()) > p_.vector_registers - kSpare) return 0;
    if (!may_move(body, chains)) return 0;
    return rewrite(body, rows_of(body, chains), chains[0].store);
  }

  // Whether the register's value comes from one sum of this code.
  bool trace(const Nodes& body, int reg, Chain& c) const {
    const auto made = made_.find(reg);
    if (made == made_.end() || !defined_once(reg) || reads_[static_cast<size_t>(reg)] != 1) return false;
    const Inst& i = body[made->second].inst;
    if (i.mask >= 0) return false;
    if (i.op == LeafOp::k_reduce_add) {
      const auto again = made_.find(i.src[0]);  // the sum of lanes stays as it is
      c.sum = static_cast<int>(made->second);
      return again == made_.end() || again->second < made->second;
    }
    constexpr LeafOp kKnown[] = {LeafOp::k_add, LeafOp::k_sub, LeafOp::k_mul,
                                 LeafOp::k_min, LeafOp::k_max, LeafOp::k_fma};
    if (std::find(std::begin(kKnown), std::end(kKnown), i.op) == std::end(kKnown)) return false;
    Chain::Step step{i.op, {-1, -1, -1}};
    bool found = false;
    for (int s = 0; s < leaf_op_sources(i.op); ++s) {
      if (in_every_lane(i.src[s])) {
        step.from[static_cast<size_t>(s)] = i.src[s];
      } else if (found || !trace(body, i.src[s], c)) {
        return false;
      } else {
        found = true;
      }
    }
    if (found) c.steps.push_back(step);
    return found;
  }
  bool in_every_lane(int reg) const {
    if (!defined_once(reg)) return false;
    const Inst& i = definition(reg);
    return i.op == LeafOp::k_constant || i.op == LeafOp::k_extent_f32 || (i.op == LeafOp::k_load_bcast && i.mask < 0);
  }

  // All are stored where the first one is: its sums are there, and nobody reads or writes what is stored meanwhile.
  bool may_move(const Nodes& body, const std::vector<Chain>& all) const {
    const auto written = [&](const Chain& c) { return operand_of(body[c.store].inst.mem.ptr); };
    const size_t first = all.front().store, last = all.back().store;
    const int operand = written(all[0]);
    for (const Chain& c : all) {
      if (static_cast<size_t>(c.sum) > first || written(c) != operand) return false;
    }
    size_t next = 0;
    for (size_t i = first; i <= last; ++i) {
      if (next < all.size() && all[next].store == i) {
        ++next;
        continue;
      }
      const LeafOpKind kind = leaf_op_kind(body[i].inst.op);
      if (kind != LeafOpKind::kLoad && kind != LeafOpKind::kStore) continue;
      const int other = operand_of(body[i].inst.mem.ptr);
      if (other < 0 || other == operand) return false;
    }
    return true;
  }

  static bool same_place(const Mem& a, const Mem& b, int64_t apart) {
    return a.ptr == b.ptr && a.index_kind == b.index_kind && a.index == b.index && a.scale == b.scale &&
           b.disp - a.disp == apart;
  }
  // The number that a step of the `at`-th of a row takes, beside that of the first: the same, or the one behind it.
  bool follows(int first, int reg, int64_t at) const {
    if (first == reg) return true;
    if (first < 0 || reg < 0) return false;
    const Inst &a = definition(first), &b = definition(reg);
    if (a.op == LeafOp::k_constant) return b.op == a.op && a.imm == b.imm;
    const bool here = made_.contains(first) && made_.contains(reg);
    return here && a.op == LeafOp::k_load_bcast && b.op == a.op && a.type == MemType::b32 && b.type == a.type &&
           same_place(a.mem, b.mem, kElement * at);
  }
  bool continues(const Nodes& body, const Row& row, const Chain& c) const {
    const Chain& first = *row[0];
    const auto at = static_cast<int64_t>(row.size());
    if (at == kLanes || c.steps.size() != first.steps.size()) return false;
    if (!same_place(body[first.store].inst.mem, body[c.store].inst.mem, kElement * at)) return false;
    for (size_t s = 0; s < c.steps.size(); ++s) {
      if (c.steps[s].op != first.steps[s].op) return false;
      for (size_t k = 0; k < c.steps[s].from.size(); ++k) {
        const int here = c.steps[s].from[k], there = first.steps[s].from[k];
        if (!follows(there, here, at)) return false;
        // What follows the first number has to follow at every step.
        if (row.size() > 1 && (here == there) != (row[1]->steps[s].from[k] == there)) return false;
      }
    }
    return true;
  }

  std::vector<Row> rows_of(const Nodes& body, const std::vector<Chain>& all) const {
    std::vector<Row> rows;
    for (const Chain& c : all) {
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return continues(body, r, c); });
      row != rows.end() ? row->push_back(&c) : rows.push_back({&c});
    }
    return rows;
  }

  // Rows of the same number of quarters together, as many as a register holds; returns how many nodes are added.
  size_t rewrite(Nodes& body, const std::vector<Row>& rows, size_t at) {
    Nodes added(p_.memory());
    std::vector<size_t> gone;
    masks_.clear();
    for (int quarters = 1; quarters <= kLanes / kQuarter; quarters *= 2) {
      std::vector<const Row*> batch;
      const auto flush = [&] {
        if (worth_it(batch)) {
          emit(body, batch, quarters, added);
          for (const Row* r : batch) {
            for (const Chain* c : *r) gone.push_back(c->store);
          }
        }
        batch.clear();
      };
      for (const Row& r : rows) {
        if (quarters_of(r) != quarters) continue;
        batch.push_back(&r);
        if (static_cast<int>(batch.size()) * quarters == kLanes / kQuarter) flush();
      }
      if (!batch.empty()) flush();
    }
    std::sort(gone.begin(), gone.end());
    for (size_t i = gone.size(); i-- > 0;) body.erase(body.begin() + static_cast<std::ptrdiff_t>(gone[i]));
    const size_t count = added.size();
    body.insert(body.begin() + static_cast<std::ptrdiff_t>(at), std::make_move_iterator(added.begin()),
                std::make_move_iterator(added.end()));
    return count - gone.size();
  }
  static int quarters_of(const Row& r) {
    const auto lanes = static_cast<int>(std::bit_ceil(r.size()));
    return std::max(lanes / kQuarter, 1);
  }

  // Where the sums of the rows go in: the sum that lands in lane l of quarter q.
  using Leaves = std::array<int, kLanes>;
  static size_t leaf_at(size_t quarter, size_t lane) { return quarter + kQuarter * ((lane & 1) * 2 + (lane >> 1)); }
  template <class F>  // F(chain, leaf)
  static void each_leaf(const std::vector<const Row*>& batch, const F& f) {
    size_t quarter = 0;
    for (const Row* r : batch) {
      for (size_t m = 0; m < r->size(); ++m) f(*(*r)[m], leaf_at(quarter + m / kQuarter, m % kQuarter));
      quarter += static_cast<size_t>(quarters_of(*r));
    }
  }
  static bool worth_it(const std::vector<const Row*>& batch) {
    std::array<bool, kLanes> there{};
    int sums = 0, tree = 2;
    each_leaf(batch, [&](const Chain&, size_t leaf) { there[leaf] = true, ++sums; });
    for (size_t count = kLanes / 2; count > 0; count /= 2) {
      for (size_t i = 0; i < count; ++i) {
        there[i] = there[2 * i] || there[2 * i + 1];
        tree += there[i] ? 3 : 0;
      }
    }
    return sums > 1 && tree + 2 * static_cast<int>(batch.size()) < kReduceCost * sums;
  }

  int append(Nodes& out, LeafOp op, std::array<int, 3> src, uint32_t imm = 0) {
    Node n(p_.memory());
    n.inst.op = op;
    n.inst.dst = p_.num_vregs++;
    std::copy(src.begin(), src.end(), n.inst.src);
    n.inst.imm = imm;
    const int dst = n.inst.dst;
    out.push_back(std::move(n));
    return dst;
  }
  // The halves of two registers' sums added, at a level of the tree: of 8, 4, 2 or 1 lanes each.
  int add_halves(Nodes& out, int level, int a, int b) {
    int low = -1, high = -1;
    const std::array<int, 3> both = {a, b, -1};
    if (level <= 2) {
      low = append(out, LeafOp::k_shuffle128, both, level == 1 ? 0x44 : 0x88);
      high = append(out, LeafOp::k_shuffle128, both, level == 1 ? 0xee : 0xdd);
    } else if (level == 3) {
      low = append(out, LeafOp::k_unpack_lo64, both);
      high = append(out, LeafOp::k_unpack_hi64, both);
    } else {
      const int x = append(out, LeafOp::k_unpack_lo32, both), y = append(out, LeafOp::k_unpack_hi32, both);
      low = append(out, LeafOp::k_unpack_lo64, {x, y, -1});
      high = append(out, LeafOp::k_unpack_hi64, {x, y, -1});
    }
    return append(out, LeafOp::k_add, {low, high, -1});
  }

  void emit(const Nodes& body, const std::vector<const Row*>& batch, int quarters, Nodes& out) {
    Leaves leaves;
    leaves.fill(-1);
    each_leaf(batch, [&](const Chain& c, size_t leaf) { leaves[leaf] = body[static_cast<size_t>(c.sum)].inst.src[0]; });
    const std::function<int(int, size_t)> tree = [&](int level, size_t i) {
      if (level == 0) return leaves[i];
      int a = tree(level - 1, 2 * i), b = tree(level - 1, 2 * i + 1);
      if (a < 0) a = b;
      if (b < 0) b = a;
      return a < 0 ? -1 : add_halves(out, level, a, b);
    };
    const size_t joint = joint_steps(batch);
    const int all = take_steps(*batch[0], {0, joint}, tree(4, 0), quarters, out);
    for (size_t r = 0; r < batch.size(); ++r) {
      uint32_t control = 0;
      for (uint32_t q = 0; q < 4; ++q) control |= (static_cast<uint32_t>(r) * quarters + q) % 4 << (2 * q);
      const int of_row = r == 0 ? all : append(out, LeafOp::k_shuffle128, {all, all, -1}, control);
      store_row(body, *batch[r], joint, of_row, out);
    }
  }

  // The first steps that take the same numbers in all rows: they happen to all rows at once.
  size_t joint_steps(const std::vector<const Row*>& batch) const {
    const Row& first = *batch[0];
    const auto varies = [](const Row& r, size_t s, size_t k) {
      return r.size() > 1 && r[1]->steps[s].from[k] != r[0]->steps[s].from[k];
    };
    const auto same = [&](const Row& r, size_t s) {
      if (r.size() != first.size() || r[0]->steps.size() <= s || r[0]->steps[s].op != first[0]->steps[s].op)
        return false;
      for (size_t k = 0; k < r[0]->steps[s].from.size(); ++k) {
        if (!follows(first[0]->steps[s].from[k], r[0]->steps[s].from[k], 0) || varies(r, s, k) != varies(first, s, k))
          return false;
      }
      return true;
    };
    size_t steps = 0;
    while (batch.size() > 1 && steps < first[0]->steps.size() &&
           std::all_of(batch.begin(), batch.end(), [&](const Row* r) { return same(*r, steps); }))
      ++steps;
    return steps;
  }

  // The lanes that the row has; -1: all.
  int mask_of(const Row& row, Nodes& out) {
    const auto count = static_cast<int>(row.size());
    if (count == kLanes) return -1;
    const auto [mask, is_new] = masks_.try_emplace(count, p_.num_masks);
    if (!is_new) return mask->second;
    Node n(p_.memory());
    n.inst.op = LeafOp::k_mask_tail;
    n.inst.dst = p_.num_masks++;
    n.inst.extent.add = count;
    out.push_back(std::move(n));
    return mask->second;
  }

  // Steps of a row, or of all rows of so many quarters.
  int take_steps(const Row& row, std::pair<size_t, size_t> steps, int value, int quarters, Nodes& out) {
    const auto count = static_cast<int>(row.size());
    const auto again = [&](int reg, LeafOp op, int mask) {
      Node n(p_.memory());
      n.inst = definition(reg);
      n.inst.op = op;
      n.inst.mask = mask;
      n.inst.dst = p_.num_vregs++;
      out.push_back(std::move(n));
      return p_.num_vregs - 1;
    };
    for (size_t s = steps.first; s < steps.second; ++s) {
      std::array<int, 3> from = row[0]->steps[s].from;
      for (size_t k = 0; k < from.size(); ++k) {
        const int first = from[k];
        if (static_cast<int>(k) >= leaf_op_sources(row[0]->steps[s].op)) continue;
        if (first < 0) {
          from[k] = value;
          continue;
        }
        // Made where its own sum was stored, it is made again.
        const bool same = count == 1 || row[1]->steps[s].from[k] == first,
                   load = definition(first).op == LeafOp::k_load_bcast;
        if (!same && load) {
          const int lanes = mask_of(row, out);
          from[k] = again(first, LeafOp::k_load, lanes);
          uint32_t control = 0;
          for (uint32_t q = 0; q < 4; ++q) control |= q % static_cast<uint32_t>(quarters) << (2 * q);
          const bool repeats = quarters * kQuarter < kLanes;
          if (repeats) from[k] = append(out, LeafOp::k_shuffle128, {from[k], from[k], -1}, control);
        } else if (made_.contains(first)) {
          from[k] = again(first, definition(first).op, -1);
        }
      }
      value = append(out, row[0]->steps[s].op, from);
    }
    return value;
  }

  void store_row(const Nodes& body, const Row& row, size_t step, int value, Nodes& out) {
    value = take_steps(row, {step, row[0]->steps.size()}, value, kLanes / kQuarter, out);
    Node n(p_.memory());
    n.inst = body[row[0]->store].inst;
    n.inst.src[0] = value;
    if (row.size() > 1) {
      n.inst.op = LeafOp::k_store;
      n.inst.mask = mask_of(row, out);
    }
    out.push_back(std::move(n));
  }

  LeafProgram& p_;
  std::vector<int> definitions_, reads_;  // of each register, in all of the program
  std::vector<Inst> only_;
  std::map<int, int> moved_;    // the pointer that another one starts from
  std::map<int, int> masks_;    // of so many lanes, in what is added
  std::map<int, size_t> made_;  // registers written in the code looked at, by the last node that does
  int sums_ = 0;
};

}  // namespace

void batch_sums(LeafProgram& program) {
  if (program.lanes == kLanes && program.mask_registers > 0) SumBatcher(program).run();
}

}  // namespace lathe::jit
