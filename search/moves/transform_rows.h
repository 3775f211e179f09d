// The rewrite and the proposals of every row of the move table. Internal to search.
#pragma once
#include <vector>

#include "search/moves/transform.h"

namespace lathe::search {

#define LATHE_MOVE_ROW(id)                                                                         \
  ir::Status apply_##id(TransformResult& result, const Move& move, const TransformParams& params); \
  std::vector<Move> propose_##id(const ir::Kernel& kernel)
LATHE_MOVE_ROW(tile_scope);
LATHE_MOVE_ROW(widen_scope);
LATHE_MOVE_ROW(pad_scope);
LATHE_MOVE_ROW(fill_scope);
LATHE_MOVE_ROW(extend_temporary);
LATHE_MOVE_ROW(level_scope);
LATHE_MOVE_ROW(bound_scope);
LATHE_MOVE_ROW(skip_replaced);
LATHE_MOVE_ROW(swap_scopes);
LATHE_MOVE_ROW(deal_scope);
LATHE_MOVE_ROW(move_to_shared);
LATHE_MOVE_ROW(join_scopes);
LATHE_MOVE_ROW(split_scope);
LATHE_MOVE_ROW(swap_ops);
LATHE_MOVE_ROW(create_temporary);
LATHE_MOVE_ROW(keep_result);
LATHE_MOVE_ROW(inline_temporary);
LATHE_MOVE_ROW(tile_buffer);
LATHE_MOVE_ROW(swap_dims);
LATHE_MOVE_ROW(increment_padding);
LATHE_MOVE_ROW(vectorize_buffer);
LATHE_MOVE_ROW(space_dim);
LATHE_MOVE_ROW(swizzle_buffer);
LATHE_MOVE_ROW(move_to_stack);
LATHE_MOVE_ROW(move_to_register);
LATHE_MOVE_ROW(split_reduction);
LATHE_MOVE_ROW(share_sum);
LATHE_MOVE_ROW(online_reduction);
LATHE_MOVE_ROW(split_softmax);
LATHE_MOVE_ROW(online_softmax);
LATHE_MOVE_ROW(mask_softmax);
LATHE_MOVE_ROW(quantize_activations);
LATHE_MOVE_ROW(round_to_bf16);
LATHE_MOVE_ROW(round_to_f16);
LATHE_MOVE_ROW(split_to_bf16);
LATHE_MOVE_ROW(narrow_temporary);
LATHE_MOVE_ROW(split_factor);
LATHE_MOVE_ROW(round_factors);
LATHE_MOVE_ROW(hold_rounded);
LATHE_MOVE_ROW(hold_bytes);
LATHE_MOVE_ROW(pipeline);
LATHE_MOVE_ROW(specialize_roles);
LATHE_MOVE_ROW(make_persistent);
LATHE_MOVE_ROW(rotate_scope);
LATHE_MOVE_ROW(stream_stores);
LATHE_MOVE_ROW(unroll_scope);
LATHE_MOVE_ROW(vectorize_scope);
LATHE_MOVE_ROW(parallelize);
LATHE_MOVE_ROW(parallelize_grid);
LATHE_MOVE_ROW(parallelize_cluster);
LATHE_MOVE_ROW(parallelize_block);
LATHE_MOVE_ROW(tensorize);
LATHE_MOVE_ROW(prefetch);
LATHE_MOVE_ROW(merge_scopes);
LATHE_MOVE_ROW(delete_temporary);
LATHE_MOVE_ROW(reuse_dims);
LATHE_MOVE_ROW(reuse_buffers);
LATHE_MOVE_ROW(split_buffer);
LATHE_MOVE_ROW(repeat_padding);
#undef LATHE_MOVE_ROW

// Of those that round, quantise or divide numbers.
std::vector<Transform> moves_of_numbers();

}  // namespace lathe::search
