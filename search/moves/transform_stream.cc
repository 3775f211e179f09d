// stream_stores: an output that is written once and never read may go past the caches. A flag of the
// buffer; which stores do is the generators' affair: whole vectors at aligned addresses.
//   d[N] out  ->  d[N] out stream
#include <algorithm>

#include "ir/analysis/dependence.h"
#include "search/moves/transform_rows.h"
#include "search/moves/transform_util.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

// Whether no two instances of its plain assignments may write one cell.
static bool written_once(const Kernel& kernel, const std::string& buffer) {
  std::vector<Access> writes = collect_accesses(kernel.body, {}, &buffer);
  std::erase_if(writes, [](const Access& a) { return !a.write; });
  for (size_t i = 0; i < writes.size(); ++i) {
    const Access& a = writes[i];
    for (const Stmt* scope : a.scopes) {
      if (may_conflict_across(kernel, scope->iter, a, a, false)) return false;
    }
    for (size_t j = 0; j < i; ++j) {
      const Access& b = writes[j];
      const auto split = std::mismatch(a.scopes.begin(), a.scopes.end(), b.scopes.begin(), b.scopes.end());
      const ScopePath common(a.scopes.begin(), split.first);
      for (const Stmt* scope : common) {
        if (may_conflict_across(kernel, scope->iter, a, b, false)) return false;
      }
      const auto part = [&](const Access& x) -> const Stmt& {
        return x.scopes.size() > common.size() ? *x.scopes[common.size()] : *x.stmt;
      };
      if (!may_exchange(kernel, part(b), part(a), common, nullptr)) return false;
    }
  }
  return true;
}

Status apply_stream_stores(TransformResult& result, const Move& move, const TransformParams& params) {
  const Legality legality("stream_stores", params);
  Buffer* buffer = result.kernel.find_buffer(move.args[0]);
  if (!buffer || buffer->place != Place::out || buffer->stream)
    return invalid("expected the name of an output not streamed yet, got `{}`", move.args[0]);
  const std::vector<Access> accesses = collect_accesses(result.kernel.body);
  const bool read = std::any_of(accesses.begin(), accesses.end(),
                                [&](const Access& a) { return a.buffer == buffer->name && (!a.write || a.reduction); });
  LATHE_RETURN_IF_ERROR(legality.require(0, !read));
  LATHE_RETURN_IF_ERROR(legality.require(1, written_once(result.kernel, buffer->name)));
  buffer->stream = true;
  return {};
}

std::vector<Move> propose_stream_stores(const Kernel& kernel) {
  std::vector<Move> out;
  for (const Buffer& b : kernel.buffers) {
    if (b.place == Place::out && !b.stream) out.push_back({"stream_stores", {b.name}, {}, {}});
  }
  return out;
}

}  // namespace lathe::search
