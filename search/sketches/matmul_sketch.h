// What the parts of the matmul recipe share: the sizes of its problem and a setting of its knobs.
#pragma once
#include "search/sketches/matmul_parts.h"
#include "search/sketches/recipe.h"

namespace lathe::search {

struct MatmulSizes {
  int64_t m, n, k, m_max;
};
MatmulSizes matmul_sizes(const MatmulParts& parts, const Problem& problem);

// The knobs as numbers. What older records lack has the value that means what they did.
struct MatmulSetting {
  int64_t mr, nr, st, kc, mc, pf;
  bool pa, ep, mu, pb, gh, dk = false;
  bool operator==(const MatmulSetting&) const = default;
  bool blocked() const { return kc != 0 || ep; }                  // sums pass through scratch
  int64_t block_rows() const { return (mc + mr - 1) / mr * mr; }  // an outer block of rows is whole tiles
};
ir::Result<MatmulSetting> matmul_setting(const Knobs& knobs, const ir::Target& target);

ir::Result<Scheduled> matmul_script(const Knobs& knobs, const Problem& problem, const ir::Target& target);

}  // namespace lathe::search
