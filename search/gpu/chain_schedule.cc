// See chain_schedule.h.
#include "search/gpu/chain_schedule.h"

#include <algorithm>
#include <bit>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;  // of a dimension
constexpr int64_t kBlock = 256, kVector = 4;         // threads; elements of 4 bytes in an access of 16

class Generaliser {
 public:
  explicit Generaliser(const Kernel& naive) : naive_(naive) { out_.kernel = naive; }

  Result<GeneralKernel> run() {
    Kernel& k = out_.kernel;
    k.symbols.clear();
    if (k.body.size() != 1 || k.body[0].kind != Stmt::Kind::scope) return no_chain("it is more than one nest");
    Stmt* at = &k.body[0];
    for (;; at = &at->body[0]) {
      at->extent = size_of(at->extent, "D", 1);
      scopes_.push_back(at);
      if (at->body.size() != 1 || at->body[0].kind != Stmt::Kind::scope) break;
    }
    for (const Stmt& s : at->body) {
      if (s.kind != Stmt::Kind::assign || s.op != AssignOp::set) return no_chain("it has more than plain assignments");
      LATHE_RETURN_IF_ERROR(see(s.target, s.index));
      Status loads;
      for_each_node(s.value, [&](const ExprNode& n) {
        if (n.op == Op::k_load && loads.ok()) loads = see(n.name, n.args);
      });
      LATHE_RETURN_IF_ERROR(loads);
    }
    for (Buffer& b : k.buffers) LATHE_RETURN_IF_ERROR(generalise(b));
    return std::move(out_);
  }

 private:
  Status no_chain(const std::string& why) const { return unsupported("no elementwise chain: {}", why); }

  // The symbol that stands for a size; equal ones of a kind share it.
  Expr size_of(const Expr& e, const char* kind, int64_t least) {
    for (const auto& [name, value] : out_.sizes) {
      if (least == 0 && name[0] == kind[0] && equal(value, e)) return symbol(name);
    }
    const auto number =
        std::count_if(out_.sizes.begin(), out_.sizes.end(), [&](const auto& s) { return s.first[0] == kind[0]; });
    const std::string name = fmt::format("{}{}", kind, number);
    out_.sizes.emplace_back(name, e);
    out_.kernel.symbols.push_back({name, least, kMostElements, 1});
    return symbol(name);
  }

  // Every access of a buffer is at the same iterators, or at 0.
  Status see(const std::string& buffer, const std::vector<Expr>& index) {
    std::vector<Expr> sizes;
    for (const Expr& i : index) {
      const auto scope = std::find_if(scopes_.begin(), scopes_.end(),
                                      [&](const Stmt* s) { return i->op == Op::k_iter && i->name == s->iter; });
      if (scope == scopes_.end() && !is_const_int(i, 0)) return no_chain(buffer + " has index " + print(i));
      sizes.push_back(scope == scopes_.end() ? Expr(1) : (*scope)->extent);
    }
    const auto known = std::find_if(seen_.begin(), seen_.end(), [&](const auto& s) { return s.first == buffer; });
    if (known == seen_.end()) {
      seen_.emplace_back(buffer, std::move(sizes));
      return {};
    }
    const bool same = std::equal(sizes.begin(), sizes.end(), known->second.begin(), known->second.end(),
                                 [](const Expr& a, const Expr& b) { return equal(a, b); });
    return same ? Status() : no_chain(buffer + " is used at different places");
  }

  Status generalise(Buffer& b) {
    if (b.type != DType::f32) return no_chain(fmt::format("{} is {}, expected f32", b.name, dtype_name(b.type)));
    if (b.place != Place::in && b.place != Place::constant && b.place != Place::out)
      return no_chain(b.name + " is a temporary");
    if (b.values || b.made || b.kept) return no_chain(b.name + " is more than elements");
    const auto known = std::find_if(seen_.begin(), seen_.end(), [&](const auto& s) { return s.first == b.name; });
    if (known == seen_.end()) return no_chain(b.name + " is not used");
    if (b.place == Place::constant) b.place = Place::in;  // read as it lies
    b.dims = known->second;
    for (size_t d = 0; d < b.strides.size(); ++d) {
      if (is_const_int(b.dims[d], 1)) b.strides[d] = Expr(0);  // one element: never stepped over
      if (!is_const_int(b.strides[d], 0) && !is_const_int(b.strides[d], 1))
        b.strides[d] = size_of(b.strides[d], "S", 0);
    }
    return {};
  }

  const Kernel& naive_;
  GeneralKernel out_;
  std::vector<const Stmt*> scopes_;
  std::vector<std::pair<std::string, std::vector<Expr>>> seen_;
};

struct Dim {
  std::string grid, block;
  int64_t threads = 1;
};

}  // namespace

Result<GeneralKernel> general_chain(const Kernel& naive) { return Generaliser(naive).run(); }

Result<Scheduled> chain_schedule(const GeneralKernel& chain, const SymbolValues& sizes) {
  std::vector<std::string> scopes;
  std::vector<int64_t> extents;
  for_each_stmt(chain.kernel.body, [&](const Stmt& s) {
    if (s.kind != Stmt::Kind::scope) return;
    scopes.push_back(s.iter);
    extents.push_back(std::max<int64_t>(evaluate(s.extent, sizes).value_or(kBlock), 1));
  });
  Schedule schedule;
  schedule.family = chain.kernel.family;
  schedule.recipe = "launch.1";
  const auto move = [&](const std::string& line) {
    LATHE_ASSIGN(Move m, parse_move(line));
    schedule.moves.push_back(std::move(m));
    return Status();
  };
  // Threads from the columns outwards, until the block is full.
  std::vector<Dim> dims(scopes.size());
  int64_t left = kBlock;
  for (size_t d = scopes.size(); d-- > 0;) {
    const bool column = d + 1 == scopes.size();
    const int64_t work = column ? (extents[d] + kVector - 1) / kVector : extents[d];
    dims[d] = {
        scopes[d] + "b", scopes[d] + "t",
        std::min<int64_t>(left, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(work, kBlock)))))};
    left /= dims[d].threads;
    schedule.knobs["t" + std::to_string(d)] = dims[d].threads;
    std::string units = scopes[d];
    if (column) {
      LATHE_RETURN_IF_ERROR(move(fmt::format("tile_scope {0} {1} tail=mask as {0}c,{0}v", scopes[d], kVector)));
      units += "c";
    }
    if (dims[d].threads == 1 && !column) {
      dims[d] = {units, "", 1};
      continue;
    }
    LATHE_RETURN_IF_ERROR(
        move(fmt::format("tile_scope {} {} tail=mask as {},{}", units, dims[d].threads, dims[d].grid, dims[d].block)));
  }
  // What the grid shares out stands outside of what a block does.
  std::vector<std::string> blocks;
  for (const Dim& d : dims) {
    for (size_t b = blocks.size(); b-- > 0;)
      LATHE_RETURN_IF_ERROR(move(fmt::format("swap_scopes {} {}", blocks[b], d.grid)));
    if (!d.block.empty()) blocks.push_back(d.block);
  }
  for (const Dim& d : dims) LATHE_RETURN_IF_ERROR(move("parallelize_grid " + d.grid));
  for (const std::string& b : blocks) LATHE_RETURN_IF_ERROR(move("parallelize_block " + b));
  LATHE_RETURN_IF_ERROR(move(fmt::format("vectorize_scope {}v", scopes.back())));
  return schedule_kernel(chain.kernel, schedule);
}

}  // namespace lathe::search
