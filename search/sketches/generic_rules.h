// The general rules behind generic_schedules(), each a pass that tries moves on a Kernel and keeps those that are
// legal. A pass that finds nothing to do leaves the Kernel as it was. Internal to search; single-threaded.
#pragma once
#include <string>
#include <vector>

#include "search/sketches/recipe.h"

namespace lathe::search {

// A Kernel and the moves that led to it; a refused move changes nothing.
class Attempts {
 public:
  explicit Attempts(ir::Kernel kernel) : kernel_(std::move(kernel)) {}
  template <class... A>
  bool move(fmt::format_string<A...> format, A&&... args) {
    return add(fmt::format(format, std::forward<A>(args)...));
  }
  // Names that stand for `old` since the last move; empty if it did not say.
  std::vector<std::string> now(const std::string& old) const;
  const ir::Kernel& kernel() const { return kernel_; }
  const std::vector<Move>& moves() const { return moves_; }

 private:
  bool add(const std::string& line);
  ir::Kernel kernel_;
  std::vector<Move> moves_;
  std::vector<std::pair<std::string, std::vector<std::string>>> renamed_;
};

// The knobs of the general rules.
struct GenericPlan {
  bool join = true;  // producers with consumers
  int64_t rows = 1;  // block of a product: rows x vectors; 0: products are not blocked
  int64_t vectors = 1;
  int64_t unroll = 1;    // vectors at once elsewhere
  bool again = false;    // what is kept between passes is computed anew
  bool overlap = false;  // the first pass of a row beside the next pass of the row before
  bool place = true;     // temporaries into registers and onto the stack
  bool stage = true;     // sums that go to memory are held in registers meanwhile
  int64_t grain = 0;     // rows per share of a thread; 0: one
  bool parallel = false;
};

void join_producers(Attempts& a);
void block_products(Attempts& a, const GenericPlan& plan, const ir::Target& target);
void square_copies(Attempts& a);
void place_temporaries(Attempts& a);
void compute_again(Attempts& a);
void overlap_rows(Attempts& a);
void vectorize_scopes(Attempts& a, const GenericPlan& plan, const ir::Target& target);
void share_out(Attempts& a, const GenericPlan& plan);

// A product c[m.., n..] += x[m.., k..] * w[n.., k..] with exactly one scope that c does not depend on. m may be empty.
struct ProductSite {
  std::string m, n, k, target;
  std::string factor;  // the operand that n indexes
  int factor_n = -1, factor_k = -1;
};
std::vector<ProductSite> find_products(const ir::Kernel& kernel);

// The scope steps every access under it by one element or not at all.
bool unit_stride(const ir::Kernel& kernel, const ir::Stmt& scope);
// The names of plain scopes with nothing but assignments in them.
std::vector<std::string> innermost_scopes(const ir::Kernel& kernel);
// "exact" or "mask".
const char* tail_for(const ir::Kernel& kernel, const std::string& scope, int64_t size);

}  // namespace lathe::search
