// What a configuration of the matmul recipe costs one core, in cycles: a model from the order of its loops, not a fit.
// The recipe orders its candidates by it, and the analytic stage takes the tiles' slowdown from it. Decides nothing
// about legality.
#pragma once
#include <cstdint>

#include "ir/base/target.h"

namespace lathe::search {

// Bytes, at the least: what lies that far apart is on pages of its own, and there the hardware's prefetcher ends.
inline constexpr int64_t kPage = 4096;

struct MatmulWork {
  double m = 1, n = 1, k = 1;
  double b_columns = 0;                 // of B, where n is only some of them
  double mr = 1, vectors = 1;           // a tile: rows x vectors
  double width = 16, panels = 1;        // columns of a panel of B, panels that a tile walks side by side
  double kc = 0, mc = 0;                // blocks of K and of rows; 0: whole
  double column_block = 0;              // columns whose panels take turns at a block of K; 0: a panel's
  int64_t prefetch = 0;                 // as the recipe's knob
  bool scratch_sums = false;            // sums of all of K pass through scratch, for their functions
  bool packs_rows = false;              // A copied to [tile][k][row]
  bool transposes = false;              // B's panels are transposed in the call
  bool copies = false;                  // B's panels are copied in the call
  bool first_copies = false;            // by the first tile of each, as it reads them
  double sharing = 1;                   // products that walk a panel before the next one is transposed or copied
  bool piecewise = false;               // B's panels are parts of its rows, read or transposed where they lie
  bool in_place = false;                // they are read there, not copied
  double split_lines = 0;               // then, matmul_split_lines()
  bool joined = false;                  // all tiles under a panel are one leaf
  bool looped = false;                  // they are a loop of one
  double row_bytes = 0;                 // between rows of A
  double a_element = 0, b_element = 0;  // bytes of one
  double latency = 4;                   // cycles until a sum can be added to: 4 of a multiply-add
  double cost = 1;                      // multiply-adds in whose time a pipe takes a step of a vector of sums
  bool cold = false;                    // B comes from memory
  int threads = 1;
};

// Without what threads share unevenly. total: compute, and what of B's way it does not hide.
struct MatmulCycles {
  double compute = 0, total = 0;
  double memory = 0;  // of B from memory alone; 0: it is nearer
};
MatmulCycles matmul_cycles(const MatmulWork& work, const ir::Target& target);

// Cache lines that a row of a panel of so many columns touches over those it fills, on average, where rows of n columns
// lie one after another. element: bytes of one.
double matmul_split_lines(int64_t n, int64_t columns, int64_t element);

// A K block is an equal share of K, in steps of eight: what is left over would be prefetched in part only.
int64_t matmul_block_depth(int64_t kc, int64_t k);

}  // namespace lathe::search
