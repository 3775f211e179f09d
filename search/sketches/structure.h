// What a candidate asks of the machine, without replaying it: the loops it walks, which buffers they touch, and a few
// counts. Made from a recipe's knobs in about a microsecond, or from the scopes of a Kernel, naive or scheduled.
// Estimates: nothing here decides legality.
#pragma once
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "search/sketches/recipe.h"

namespace lathe::search {

// Of the lesser of arithmetic and memory: what the greater one does not hide.
inline constexpr double kExposed = 0.3;

// Axis of a problem by role: what "m" and "row", "n" and "col", "k" share. Loops that move data only have none.
enum class Axis : uint8_t { none, batch, rows, columns, depth };

struct Structure {
  // Loops in program order, parents first; parent -1: outermost. Trips at the representative dims.
  struct Loop {
    int parent = -1;
    double trips = 1;
    Axis axis = Axis::none;
  };
  struct Term {
    int loop = -1;
    double step = 1;  // elements of the dimension per iteration
  };
  struct Dim {
    std::array<Term, 6> terms;
    int count = 0;
    double base = 1;  // elements that one iteration of all loops touches
    double extent = 1;
    void add(int loop, double step);
  };
  struct Buffer {
    double bytes = 0;       // all of it
    double element = 4;     // bytes
    int operand = -1;       // 0, 1: inputs in order; 2: what is written; -1: others
    bool cold = false;      // comes from memory at each call
    bool scratch = false;   // not an argument
    bool constant = false;  // a Schedule may choose its layout
  };
  struct Access {
    int loop = -1;  // the innermost loop around it
    int buffer = 0;
    std::array<Dim, 5> dims;  // innermost last
    int rank = 0;
    bool packed = false;  // what one tile reads lies together
  };
  std::vector<Loop> loops;
  std::vector<Buffer> buffers;
  std::vector<Access> accesses;

  double rows = 1, columns = 1, depth = 1;  // extents by role
  double flops = 0, padded = 1;             // padded: flops done / useful
  double slowdown = 1;                      // cycles of the tiles over those of their multiply-adds alone, in f32
  double stream = 1;                        // slowdown of what comes from memory: what the tiles do not hide of it
  double tile_rows = 1, tile_vectors = 1;   // accumulators: rows x vectors
  double unroll = 1;                        // steps of the innermost loop side by side
  double block_rows = 0, block_columns = 0, block_depth = 0;  // of the outer level; 0: whole
  double registers = 1;                                       // vector registers in use
  double calls = 1, barriers = 0;                             // leaf calls of one run; phases that threads wait for
  double tasks = 1, imbalance = 1;  // parallel pieces; largest share of a thread over the mean
  Axis parallel = Axis::none;
  bool packs_rows = false, packs_columns = false;  // A, B rearranged before use
  double split_depth = 1;                          // partial sums added in the end
  double prefetch_bytes = 0;                       // distance of the stream; 0: none
  bool prefetch_next = false;                      // the next block, spread over the tiles that run
  double row_stride_bytes = 0;                     // between rows of the first input
  double innermost_stride = 1;                     // of the first input, elements
};

// What is the same for all candidates of a problem; made once.
struct ProblemFacts {
  Structure naive;              // of the problem's kernel as it stands
  double compulsory_bytes = 0;  // arguments, once
  double element_in = 4, element_out = 4;
  int threads = 1;
  bool cold = false;
};
ProblemFacts facts_of(const Problem& problem);

// The scopes of a kernel of this problem, scheduled or not.
Structure structure_of(const ir::Kernel& kernel, const Problem& problem);

// Largest share of a thread over the mean, when `pieces` are dealt out whole.
double imbalance_of(double pieces, int threads);

// Bytes that enter a store of so many bytes from the one below, by buffer: footprint at the outermost depth that fits
// times the trips outside it; a loop that does not index a buffer is free until the first enclosing one that does. What
// fits as a whole costs nothing, but for cold buffers. line: granularity of transfers, 0 for registers.
std::vector<double> traffic(const Structure& s, double capacity, double line);
// Bytes that one iteration of a loop (-1: the whole) touches.
double working_set(const Structure& s, int loop);

}  // namespace lathe::search
