// Which attention tensor_attention.h takes, and by which tiles.
#include <algorithm>

#include "ir/analysis/analysis.h"
#include "ir/base/gpu_target.h"
#include "ir/core/names.h"
#include "search/gpu/attention/tensor_attention.h"

namespace lathe::search {

using namespace ir;  // NOLINT: this file is all IR

namespace {

constexpr int64_t kMostLine = 256;
constexpr int64_t kStaticBytes = 48 * 1024, kMostBytes = 227 * 1024;  // of shared memory: of any GPU, of some
constexpr int64_t kHalves = 8;                                        // elements of 2 bytes in an access of 16
constexpr int64_t kSquare = 16;
constexpr int64_t kMostKept = 128;  // depth of queries that stay in registers
constexpr int64_t kGroupRows = 64, kPanel = 64, kMostBox = 256, kRing = 8;

}  // namespace

bool keeps_queries(int64_t depth) { return depth <= kMostKept; }

int64_t most_room(const Kernel& kernel, const AttentionParts& p) {
  return interval(kernel.find_buffer(p.scores->body[0].target)->dims.back(), Ranges(kernel)).hi;
}

bool are_bytes(const Kernel& kernel) {
  const Buffer *k = kernel.find_buffer("k"), *v = kernel.find_buffer("v");
  return k != nullptr && v != nullptr && k->type == DType::i8 && v->type == DType::i8;
}

Expr load_of_mask(const Kernel& kernel, const AttentionParts& p) {
  Expr out;
  for_each_node(p.scores->body[2].value, [&](const ExprNode& e) {
    const Buffer* b = e.op == Op::k_load && is_float(e.type) && e.name != "ks" ? kernel.find_buffer(e.name) : nullptr;
    if (b != nullptr && is_param(b->place)) out = load(e.name, e.args, e.type);
  });
  return out;
}

Result<AttentionParts> tensor_parts(const GeneralKernel& general) {
  const Kernel& k = general.kernel;
  AttentionParts p = attention_parts(k);
  const auto no = [&](const char* why) { return unsupported("{} is no attention for tensor cores: {}", k.name, why); };
  if (!p || p.heads.empty()) return no("expected its loops");
  if (!is_const_int(p.columns->extent) || !is_const_int(p.depth->extent))
    return no("expected a depth and columns that do not vary");
  for (const Stmt* line : {p.depth, p.columns}) {
    if (line->extent->ival % kSquare != 0 || line->extent->ival < kSquare || line->extent->ival > kMostLine)
      return no("expected a depth and columns of whole squares, up to 256");
  }
  const Buffer *q = k.find_buffer("q"), *key = k.find_buffer("k"), *v = k.find_buffer("v");
  const bool halves = q != nullptr && key != nullptr && v != nullptr && dtype_bytes(q->type) == 2 &&
                      is_float(q->type) && ((key->type == q->type && v->type == q->type) || are_bytes(k));
  if (!halves) return no("expected queries, keys and values of bf16, or of f16, or keys and values of i8");
  if (are_bytes(k) && (p.powers->body.size() != 3 || copy_of(p, load_of_keys(p)) == nullptr))
    return no("expected a scale of each value");
  const Expr mask = load_of_mask(k, p);
  const std::string& key_of = p.scores->iter;
  const auto of_keys = [&](const Expr& e) { return uses(e, key_of); };
  const bool flat = !mask || (std::count_if(mask->args.begin(), mask->args.end(), of_keys) == 1 &&
                              !uses(simplify(mask->args.back() - iter(key_of)), key_of));
  if (!flat) return no("expected a mask whose last dimension is keys");
  return p;
}

int64_t shared_bytes(const AttentionTile& t, int64_t depth, int64_t columns) {
  if (t.groups) return t.stages * (2 * t.keys * (depth + columns) + kRing);
  return 2 * ((t.rows + t.stages * t.keys) * (depth + kHalves) + t.stages * t.keys * (columns + kHalves));
}

// Of groups of four warps.
static Status check_groups(const AttentionTile& t, const Kernel& kernel, const AttentionParts& p) {
  if (t.rows % kGroupRows != 0 || t.keys % kPanel != 0 || t.keys > kMostBox)
    return invalid("{} queries and {} keys of groups, expected multiples of {}, at most {} keys", t.rows, t.keys,
                   kGroupRows, kMostBox);
  if (t.stages < 2) return invalid("{} stages of boxes, expected at least 2", t.stages);
  if (t.heads) return invalid("tiles of heads in groups of four warps");
  const int64_t depth = p.depth->extent->ival, columns = p.columns->extent->ival;
  if (depth % kPanel != 0 || columns % kPanel != 0 || !search::keeps_queries(depth))
    return unsupported("boxes of a depth of {} and of {} columns, expected whole lines of {}, a depth of at most {}",
                       depth, columns, kPanel, kMostKept);
  if (are_bytes(kernel)) return unsupported("boxes of bytes, which are made numbers on their way");
  // A box goes on to the end of its tensor, whatever lies there.
  bool read = false;
  for_each_node(p.scores->extent, [&](const ExprNode& e) { read = read || e.op == Op::k_load; });
  if (read || !p.clear.empty()) return unsupported("boxes of keys whose number is read");
  if (!from_first(p)) return unsupported("boxes of the keys of a window");
  return {};
}

static Status check_tile(const AttentionTile& t, int64_t depth, int64_t columns, bool bytes) {
  if (t.rows < kSquare || t.rows % kSquare != 0 || t.threads() > kMaxBlockThreads)
    return invalid("{} queries of a block, expected a multiple of {} of at most {} threads", t.rows, kSquare,
                   kMaxBlockThreads);
  if (t.keys < kSquare || t.keys % kSquare != 0)
    return invalid("{} keys of a block, expected a multiple of {}", t.keys, kSquare);
  if (t.stages < 1 || t.stages > 4) return invalid("{} stages, expected 1..4", t.stages);
  if (t.part < 0 || t.part % t.keys != 0)
    return invalid("parts of {} keys, expected whole blocks of {}", t.part, t.keys);
  // Of a loop that runs once at most accesses are not proven to stay inside of operands.
  if (t.part > 0 && t.part / t.keys <= t.stages)
    return invalid("parts of {} blocks of keys in {} stages, expected more blocks than stages", t.part / t.keys,
                   t.stages);
  if (t.part > 0 && !t.heads) return invalid("parts of {} keys of queries, expected those of heads", t.part);
  const int64_t shared = shared_bytes(t, depth, columns), most = t.stages == 1 && !bytes ? kStaticBytes : kMostBytes;
  if (shared > most) return invalid("{} bytes of shared memory, expected at most {}", shared, most);
  return {};
}

Status check_tile(const AttentionTile& tile, const Kernel& kernel, const AttentionParts& p) {
  LATHE_RETURN_IF_ERROR(check_tile(tile, p.depth->extent->ival, p.columns->extent->ival, are_bytes(kernel)));
  if (tile.groups) LATHE_RETURN_IF_ERROR(check_groups(tile, kernel, p));
  if (are_bytes(kernel) && tile.stages != 1)
    return unsupported("{} stages of keys of bytes, which are made numbers on their way", tile.stages);
  if (tile.split && kernel.find_buffer("q")->type != DType::bf16)
    return unsupported("weights of values that are not bf16 in three numbers");
  if (tile.heads && heads_of_group(p) == 1) return unsupported("tiles of heads, each of which has keys of its own");
  if (tile.part > 0 && !p.clear.empty()) return unsupported("parts of keys of unequal sequences");
  const int64_t most = most_keys_seen(kernel, p);
  const Expr& first = p.scores->body[0].index.back();
  const int64_t seen = most + (!tile.heads && uses(first, p.row->iter) ? tile.rows - 1 : 0);
  // The same of a loop over a window: its blocks are few in any call.
  if (!from_first(p) && seen <= tile.keys * tile.stages)
    return unsupported("blocks of {} keys in {} stages, where a tile sees at most {}", tile.keys, tile.stages, seen);
  const int64_t queries = p.clear.empty() ? interval(p.row->extent, Ranges(kernel)).hi : INT64_MAX;
  if (!tile.heads && queries < tile.rows)
    return unsupported("tiles of {} queries, of which there are at most {}", tile.rows, queries);
  if (const int64_t room = most_room(kernel, p); room < tile.keys)
    return unsupported("blocks of {} keys, where there is room for at most {}", tile.keys, room);
  if (tile.part > 0 && tile.part >= most)
    return unsupported("parts of {} keys, of which a query sees at most {}", tile.part, most);
  return {};
}

}  // namespace lathe::search
