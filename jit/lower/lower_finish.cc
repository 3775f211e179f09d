// After lowering: drop what nobody uses, give pointers and index variables few numbers (generators
// keep each in a general register), and name the program. Virtual vector registers stay as many as
// they are: generators allocate those.
#include <algorithm>
#include <cstdlib>
#include <map>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "jit/lower/lowering.h"

namespace lathe::jit {
namespace {

using Numbers = std::pmr::vector<int>;

template <class F>
void each(Nodes& body, const F& f) {
  for (Node& n : body) {
    f(n);
    if (!n.body.empty()) each(n.body, f);
  }
}
size_t count_nodes(const Nodes& body) {
  size_t n = body.size();
  for (const Node& node : body) {
    if (!node.body.empty()) n += count_nodes(node.body);
  }
  return n;
}
template <class F>
void prune(Nodes& body, const F& f) {
  std::erase_if(body, f);
  for (Node& n : body) {
    if (!n.body.empty()) prune(n.body, f);
  }
}

// Stores that a later one covers before anything may read what they wrote: of sums that two statements add to, for one.
// Operands that a leaf writes do not overlap what it uses through other operands in the same loop
// (search/cut/leaf_form.cc), but for a result in place of an input, of which each element is read before it is written.
class DeadStores {
 public:
  explicit DeadStores(LeafProgram& p) : p_(p), operand_(p.ptrs.size(), kUnset, p.memory()), later_(p.memory()) {
    for (size_t i = 0; i < p.ptrs.size(); ++i) {
      if (p.ptrs[i].slot >= 0) operand_[i] = p.ptrs[i].slot;
    }
    each(p.body, [&](Node& n) {
      if (n.kind == Node::Kind::set_ptr) copy(n.from, n.steps[0].ptr);
      if (n.kind != Node::Kind::segments) return;
      copy(n.seg_base_a, n.seg_ptr_a);
      copy(n.seg_base_b, n.seg_ptr_b);
    });
  }
  void remove() { remove(p_.body); }

 private:
  static constexpr int kUnset = -1, kUnknown = -2;
  static constexpr int kMostBytes = 64;  // of a vector
  static constexpr size_t kMost = 64;    // that are looked at

  void copy(int from, int to) {
    const int known = operand_[from] == kUnset ? kUnknown : operand_[from];
    operand_[to] = operand_[to] == kUnset || operand_[to] == known ? known : kUnknown;
  }
  static bool beside(const Mem& a, const Mem& b) {
    return a.ptr == b.ptr && a.index_kind == b.index_kind && a.index == b.index && a.scale == b.scale;
  }
  bool may_read(const Mem& load, const Mem& store) const {
    const int from = operand_[load.ptr], to = operand_[store.ptr];
    if (from >= 0 && to >= 0 && from != to) return false;
    return !beside(load, store) || std::abs(int64_t{load.disp} - store.disp) < kMostBytes;
  }
  static bool covers(const Inst& later, const Inst& store) {
    return beside(later.mem, store.mem) && later.mem.disp == store.mem.disp && later.type == store.type &&
           (later.mask < 0 || later.mask == store.mask);
  }
  // From the last node to the first: later_ has the stores after a node that nothing between may read.
  void remove(Nodes& body) {
    later_.clear();
    const auto forget = [&](auto&& which) { std::erase_if(later_, which); };
    std::pmr::vector<uint8_t> dead(body.size(), p_.memory());
    bool any = false;
    for (size_t i = body.size(); i-- > 0;) {
      Node& n = body[i];
      if (n.kind == Node::Kind::set_ptr) {
        forget([&](const Inst& s) { return s.mem.ptr == n.steps[0].ptr; });
        continue;
      }
      if (n.kind != Node::Kind::inst) {
        if (!n.body.empty()) remove(n.body);
        later_.clear();
        continue;
      }
      const LeafOpKind kind = leaf_op_kind(n.inst.op);
      if (kind == LeafOpKind::kTile) later_.clear();
      if (kind == LeafOpKind::kLoad) forget([&](const Inst& s) { return may_read(n.inst.mem, s.mem); });
      if (kind == LeafOpKind::kMask) forget([&](const Inst& s) { return s.mask == n.inst.dst; });
      if (n.inst.op != LeafOp::k_store) continue;
      dead[i] = std::any_of(later_.begin(), later_.end(), [&](const Inst& s) { return covers(s, n.inst); });
      any |= dead[i] != 0;
      if (!dead[i] && later_.size() < kMost) later_.push_back(n.inst);
    }
    if (!any) return;
    size_t kept = 0;
    for (size_t i = 0; i < body.size(); ++i) {
      if (dead[i]) continue;
      if (kept != i) body[kept] = std::move(body[i]);
      ++kept;
    }
    body.resize(kept);
  }

  LeafProgram& p_;
  std::pmr::vector<int> operand_;  // that each pointer points into
  std::pmr::vector<Inst> later_;
};

// Instructions whose result is never read, pointers that address nothing, conditions over nothing:
// users before what they use, until nothing more falls.
class DeadCode {
 public:
  explicit DeadCode(LeafProgram& p)
      : p_(p),
        vregs_(static_cast<size_t>(p.num_vregs), p.memory()),
        masks_(static_cast<size_t>(p.num_masks), p.memory()),
        ptrs_(p.ptrs.size(), p.memory()),
        nodes_(p.memory()) {}

  void remove() {
    nodes_.reserve(count_nodes(p_.body));
    collect(p_.body, -1);
    bool any = false, changed = true;
    while (changed) {
      changed = false;
      for (size_t i = nodes_.size(); i-- > 0;) {
        if (nodes_[i].dead || !is_dead(nodes_[i])) continue;
        nodes_[i].dead = any = changed = true;
        count(*nodes_[i].node, -1);
        if (nodes_[i].parent >= 0) --nodes_[static_cast<size_t>(nodes_[i].parent)].children;
      }
    }
    for (const Entry& e : nodes_) {
      if (e.node->kind == Node::Kind::loop)
        std::erase_if(e.node->steps, [&](const PtrStep& s) { return ptrs_[s.ptr] == 0; });
    }
    if (any) compact(p_.body, 0);
  }

 private:
  struct Entry {
    Node* node;
    int parent;        // in nodes_, -1: the program
    int children = 0;  // alive
    bool dead = false;
  };
  void collect(Nodes& body, int parent) {
    for (Node& n : body) {
      const int at = static_cast<int>(nodes_.size());
      nodes_.push_back({&n, parent, static_cast<int>(n.body.size())});
      count(n, 1);
      if (!n.body.empty()) collect(n.body, at);
    }
  }
  void count(const Node& n, int by) {
    if (n.kind == Node::Kind::inst) {
      const bool arith = leaf_op_kind(n.inst.op) == LeafOpKind::kArith;
      for (int s = 0; s < leaf_op_sources(n.inst.op); ++s) {
        if (n.inst.src[s] != n.inst.dst || !arith) vregs_[n.inst.src[s]] += by;
      }
      if (n.inst.mask >= 0) masks_[n.inst.mask] += by;
      if (n.inst.mem.ptr >= 0) ptrs_[n.inst.mem.ptr] += by;
    }
    if (n.kind == Node::Kind::set_ptr && n.from != n.steps[0].ptr) ptrs_[n.from] += by;
    if (n.kind == Node::Kind::if_any) masks_[n.mask] += by;
    if (n.kind == Node::Kind::segments) {
      ptrs_[n.seg_base_a] += by;
      ptrs_[n.seg_base_b] += by;
    }
  }
  bool is_dead(const Entry& e) const {
    const Node& n = *e.node;
    if (n.kind == Node::Kind::set_ptr) return ptrs_[n.steps[0].ptr] == 0;
    if (n.kind == Node::Kind::if_less || n.kind == Node::Kind::if_any) return e.children == 0;
    if (n.kind != Node::Kind::inst) return false;
    switch (leaf_op_kind(n.inst.op)) {
      case LeafOpKind::kMask:
        return masks_[n.inst.dst] == 0;
      case LeafOpKind::kArith:
      case LeafOpKind::kLoad:
      case LeafOpKind::kConst:
        return vregs_[n.inst.dst] == 0;
      default:
        return false;
    }
  }
  // Drops the dead of `body`, whose first node is nodes_[at]; returns what follows its last.
  size_t compact(Nodes& body, size_t at) {
    size_t kept = 0;
    for (size_t i = 0; i < body.size(); ++i) {
      const bool dead = nodes_[at++].dead;
      at = compact(body[i].body, at);
      if (dead) continue;
      if (kept != i) body[kept] = std::move(body[i]);
      ++kept;
    }
    body.resize(kept);
    return at;
  }

  LeafProgram& p_;
  Numbers vregs_, masks_, ptrs_;  // uses that are alive
  std::pmr::vector<Entry> nodes_;
};

// q = p at the top, where p is an operand's address used for nothing else: q starts as that
// address.
void start_where_used(LeafProgram& p) {
  Numbers uses(p.ptrs.size(), p.memory()), sets(p.ptrs.size(), p.memory());
  each(p.body, [&](Node& n) {
    if (n.kind == Node::Kind::inst && n.inst.mem.ptr >= 0) ++uses[n.inst.mem.ptr];
    if (n.kind == Node::Kind::set_ptr) {
      ++uses[n.from];
      ++sets[n.steps[0].ptr];
    }
    if (n.kind == Node::Kind::segments) {
      for (int i : {n.seg_base_a, n.seg_base_b}) ++uses[i];
      for (int i : {n.seg_ptr_a, n.seg_ptr_b}) ++sets[i];
    }
    if (n.kind == Node::Kind::loop) {
      for (const PtrStep& s : n.steps) ++uses[s.ptr];
    }
  });
  std::erase_if(p.body, [&](const Node& n) {
    if (n.kind != Node::Kind::set_ptr) return false;
    const int to = n.steps[0].ptr;
    PtrInit init = p.ptrs[n.from];
    if (uses[n.from] != 1 || sets[n.from] != 0 || sets[to] != 1 || init.slot < 0 || !init.terms.empty()) return false;
    init.bytes += n.steps[0].bytes;
    init.terms = n.steps[0].terms;
    p.ptrs[to] = init;
    p.ptrs[n.from] = {};
    return true;
  });
}

// Live ranges over node positions; a name that enters a loop from outside lives to the loop's end.
class Ranges {
 public:
  Ranges(size_t names, size_t touches, std::pmr::memory_resource* memory)
      : first_(names, kNone, memory), last_(names, kNone, memory), touches_(memory) {
    touches_.reserve(touches);
  }
  void touch(int name, int at) {
    if (name < 0) return;
    if (first_[name] == kNone) first_[name] = at;
    last_[name] = std::max(last_[name], at);
    touches_.emplace_back(name, at);
  }
  void loop(int from, int to) {  // inner loops first
    for (const auto& [name, at] : touches_) {
      if (at >= from && at <= to && first_[name] < from) last_[name] = std::max(last_[name], to);
    }
  }
  Numbers number(int* count) const {
    const auto memory = first_.get_allocator();
    Numbers order(memory), out(first_.size(), -1, memory), until(memory);
    order.reserve(first_.size());
    until.reserve(first_.size());
    for (size_t i = 0; i < first_.size(); ++i) {
      if (first_[i] != kNone) order.push_back(static_cast<int>(i));
    }
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return first_[a] != first_[b] ? first_[a] < first_[b] : a < b; });
    for (int name : order) {
      size_t slot = 0;
      while (slot < until.size() && until[slot] > first_[name]) ++slot;
      if (slot == until.size()) until.push_back(0);
      until[slot] = std::max(last_[name], first_[name] + 1);
      out[name] = static_cast<int>(slot);
    }
    *count = static_cast<int>(until.size());
    return out;
  }

 private:
  static constexpr int kNone = -2;
  Numbers first_, last_;
  std::pmr::vector<std::pair<int, int>> touches_;
};

struct Numbering {
  Ranges ptrs, vars;
  int at = 0;

  void nodes(const Nodes& body) {
    for (const Node& n : body) node(n);
  }
  void node(const Node& n) {
    const int start = at++;
    switch (n.kind) {
      case Node::Kind::inst:
        ptrs.touch(n.inst.mem.ptr, start);
        if (n.inst.mem.index_kind == Mem::Index::var) vars.touch(n.inst.mem.index, start);
        vars.touch(n.inst.var, start);
        return;
      case Node::Kind::loop:
        vars.touch(n.var, start);
        nodes(n.body);
        vars.touch(n.var, at);
        for (const PtrStep& s : n.steps) ptrs.touch(s.ptr, at);
        close(start + 1);
        return;
      case Node::Kind::if_less:
        vars.touch(n.var, start);
        nodes(n.body);
        return;
      case Node::Kind::if_any:
        nodes(n.body);
        return;
      case Node::Kind::segments:
        ptrs.touch(n.seg_base_a, start);
        ptrs.touch(n.seg_base_b, start);
        ptrs.touch(n.seg_base_a, start + 1);
        ptrs.touch(n.seg_base_b, start + 1);
        at += 2;
        ptrs.touch(n.seg_ptr_a, start + 2);
        ptrs.touch(n.seg_ptr_b, start + 2);
        nodes(n.body);
        close(start + 1);
        return;
      case Node::Kind::set_ptr:
        ptrs.touch(n.from, start);
        ptrs.touch(n.steps[0].ptr, start);
        return;
      case Node::Kind::set_var:
        vars.touch(n.var, start);
        return;
      case Node::Kind::add_stream:
        ptrs.touch(n.steps[0].ptr, start);
        return;
    }
  }
  void close(int from) {
    ptrs.loop(from, at);
    vars.loop(from, at);
    ++at;
  }
};

void share_numbers(LeafProgram& p) {
  const size_t nodes = count_nodes(p.body);
  Numbering n{Ranges(p.ptrs.size(), nodes, p.memory()), Ranges(static_cast<size_t>(p.num_vars), nodes, p.memory())};
  for (size_t i = 0; i < p.ptrs.size(); ++i) {
    if (p.ptrs[i].slot >= 0 || p.ptrs[i].stream >= 0) n.ptrs.touch(static_cast<int>(i), -1);
  }
  n.nodes(p.body);
  int count = 0;
  const Numbers ptr = n.ptrs.number(&count);
  std::vector<PtrInit> ptrs(count);
  for (size_t i = 0; i < p.ptrs.size(); ++i) {
    if (p.ptrs[i].slot >= 0 || p.ptrs[i].stream >= 0) ptrs[ptr[i]] = p.ptrs[i];
  }
  p.ptrs = std::move(ptrs);
  const Numbers var = n.vars.number(&p.num_vars);
  const auto rename = [](const Numbers& map, int& i) {
    if (i >= 0) i = map[i];
  };
  Numbers vreg(static_cast<size_t>(p.num_vregs), -1, p.memory()),
      mask(static_cast<size_t>(p.num_masks), -1, p.memory());
  int vregs = 0, masks = 0;
  const auto number = [](Numbers& map, int& next, int& i) {
    if (i < 0) return;
    if (map[i] < 0) map[i] = next++;
    i = map[i];
  };
  each(p.body, [&](Node& node) {
    if (node.kind == Node::Kind::inst) {
      Inst& i = node.inst;
      rename(ptr, i.mem.ptr);
      if (i.mem.index_kind == Mem::Index::var) rename(var, i.mem.index);
      rename(var, i.var);
      for (int& s : i.src) number(vreg, vregs, s);
      number(mask, masks, i.mask);
      leaf_op_kind(i.op) == LeafOpKind::kMask ? number(mask, masks, i.dst) : number(vreg, vregs, i.dst);
      return;
    }
    rename(var, node.var);
    number(mask, masks, node.mask);
    for (PtrStep& s : node.steps) rename(ptr, s.ptr);
    if (node.kind == Node::Kind::set_ptr) rename(ptr, node.from);
    for (int* i : {&node.seg_ptr_a, &node.seg_base_a, &node.seg_ptr_b, &node.seg_base_b}) rename(ptr, *i);
  });
  prune(p.body, [](const Node& node) {
    return node.kind == Node::Kind::set_ptr && node.from == node.steps[0].ptr && node.steps[0].bytes == 0 &&
           node.steps[0].terms.empty();
  });
  p.num_vregs = vregs;
  p.num_masks = masks;
}

}  // namespace

void tidy(LeafProgram& program) {
  DeadStores(program).remove();
  DeadCode(program).remove();
  for (const Node& n : program.body) {
    if (n.kind == Node::Kind::set_ptr) {
      start_where_used(program);
      break;
    }
  }
  // Operands nobody addresses any more need no pointer.
  std::pmr::vector<uint8_t> used(program.ptrs.size(), program.memory());
  each(program.body, [&](Node& n) {
    if (n.kind == Node::Kind::inst && n.inst.mem.ptr >= 0) used[n.inst.mem.ptr] = 1;
    if (n.kind == Node::Kind::set_ptr) used[n.from] = 1;
    if (n.kind == Node::Kind::segments) used[n.seg_base_a] = used[n.seg_base_b] = 1;
    for (const PtrStep& s : n.steps) used[s.ptr] = 1;
  });
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) program.ptrs[i] = {};
  }
  share_numbers(program);
}

std::string program_name(const ir::Kernel& leaf, const ir::Target& target, std::string_view text) {
  std::string family, tile = fmt::format("v{}", target.lanes);
  bool reduces = false;
  ir::for_each_stmt(leaf.body, [&](const ir::Stmt& s) {
    reduces |= s.kind == ir::Stmt::Kind::assign && s.op != ir::AssignOp::set;
    if (s.mark != ir::Mark::tensor) return;
    const std::string& what = s.intrinsic;
    const bool product = what == "mma" || what == "mma_u8s8" || what == "dot2_bf16" || what.starts_with("tile_");
    family = product ? "matmul" : s.intrinsic;
    if (!product) tile = fmt::format("{0}x{0}", target.lanes);
    ir::for_each_stmt(s.body, [&](const ir::Stmt& update) {
      const ir::Buffer* c = update.kind == ir::Stmt::Kind::assign ? leaf.find_buffer(update.target) : nullptr;
      if (c == nullptr || c->place != ir::Place::reg) return;
      tile.clear();
      for (const ir::Expr& d : c->dims) tile += fmt::format("{}{}", tile.empty() ? "" : "x", ir::print(d));
    });
  });
  if (family.empty()) family = reduces ? "row" : "elementwise";
  if (tile.empty()) tile = "1";
  const uint64_t hash = ir::hash_text(fmt::format("{}{}{}", text, isa_name(target.level), target.lanes));
  return fmt::format("lathe_{}_f32_{}_{}_{:08x}", family, tile, ir::isa_name(target.level),
                     static_cast<uint32_t>(hash));
}

}  // namespace lathe::jit
