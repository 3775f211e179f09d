// See chain_schedule.h.
#include "search/gpu/rows/chain_schedule.h"

#include <algorithm>
#include <bit>

#include "ir/analysis/analysis.h"
#include "search/gpu/move_list.h"
#include "search/gpu/vector_width.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

// The scopes from the outermost in.
Result<std::vector<const Stmt*>> perfect_nest(const Kernel& kernel) {
  std::vector<const Stmt*> out;
  const std::vector<Stmt>* body = &kernel.body;
  while (body->size() == 1 && body->front().kind == Stmt::Kind::scope) {
    out.push_back(&body->front());
    body = &body->front().body;
  }
  const bool plain = std::all_of(body->begin(), body->end(),
                                 [](const Stmt& s) { return s.kind == Stmt::Kind::assign && s.op == AssignOp::set; });
  if (out.empty() || !plain) return unsupported("{} is no nest of plain assignments", kernel.name);
  return out;
}

struct Dim {
  std::string grid, block;
  int64_t threads = 1;
};

// vector: neighbours of a thread.
Result<Scheduled> share_out(const Kernel& kernel, const std::vector<std::string>& scopes,
                            const std::vector<int64_t>& extents, int64_t block, int64_t vector) {
  MoveList list(kernel, "launch.1");
  // Threads from the columns outwards, until the block is full.
  std::vector<Dim> dims(scopes.size());
  int64_t left = block;
  for (size_t d = scopes.size(); d-- > 0;) {
    const bool column = d + 1 == scopes.size();
    const int64_t work = column ? (extents[d] + vector - 1) / vector : extents[d];
    dims[d] = {
        scopes[d] + "b", scopes[d] + "t",
        std::min<int64_t>(left, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(work, block)))))};
    left /= dims[d].threads;
    list.knob(fmt::format("t{}", d), dims[d].threads);
    std::string units = scopes[d];
    if (column && vector > 1) {
      list.move("tile_scope {0} {1} tail=mask as {0}c,{0}v", scopes[d], vector);
      units += "c";
    }
    if (dims[d].threads == 1 && !column) {
      dims[d] = {units, "", 1};
      continue;
    }
    list.move("tile_scope {} {} tail=mask as {},{}", units, dims[d].threads, dims[d].grid, dims[d].block);
  }
  // What the grid shares out stands outside of what a block does.
  std::vector<std::string> blocks;
  for (const Dim& d : dims) {
    for (size_t b = blocks.size(); b-- > 0;) list.move("swap_scopes {} {}", blocks[b], d.grid);
    if (!d.block.empty()) blocks.push_back(d.block);
  }
  for (const Dim& d : dims) list.move("parallelize_grid {}", d.grid);
  for (const std::string& b : blocks) list.move("parallelize_block {}", b);
  if (vector > 1) list.move("vectorize_scope {}v", scopes.back());
  return list.finish();
}

}  // namespace

Result<Scheduled> chain_schedule(const GeneralKernel& chain, const SymbolValues& sizes, int64_t block) {
  LATHE_ASSIGN(const std::vector<const Stmt*> nest, perfect_nest(chain.kernel));
  std::vector<std::string> scopes;
  std::vector<int64_t> extents;
  for (const Stmt* s : nest) {
    scopes.push_back(s->iter);
    extents.push_back(std::max<int64_t>(evaluate(s->extent, sizes).value_or(block), 1));
  }
  // A run of memory begins where it is aligned, whatever its length.
  const int64_t vector =
      vector_of_row(vector_width(chain.kernel, extents.size() == 1 ? 0 : extents.back()), nest.back()->extent);
  Result<Scheduled> made = share_out(chain.kernel, scopes, extents, block, vector);
  // Neighbours whose operands are none, such as elements of words that hold several outputs.
  return made.ok() ? std::move(made) : share_out(chain.kernel, scopes, extents, block, 1);
}

}  // namespace lathe::search
