// A softmax and the sums of values that it weights, as split_softmax and online_softmax find them. Internal to search.
#pragma once
#include <string>
#include <vector>

#include "search/moves/transform_util.h"

namespace lathe::search {

// m = least; ...; for j: { ...; m fmax= s }; ...; a = a0; ...; for j1: { s = exp2((s - m) * c); a += s; ... }; ...;
// for n: { ...; o = o0; for j2: o += s * v; ... }, all in one body.
struct Softmax {
  std::vector<ir::Stmt>* body = nullptr;
  ScopePath outer;
  // Where the scopes and the first values stand: in the body, those of o in the scope n.
  size_t max = 0, sum = 0, columns = 0, max_start = 0, sum_start = 0, weighted = 0, weighted_start = 0;
  size_t key = 0;  // the dimension of s that j indexes
  ir::Expr extent;
  const ir::Stmt& maximum() const { return (*body)[max].body.back(); }
  const ir::Stmt& power() const { return (*body)[sum].body[0]; }
  const ir::Stmt& added() const { return (*body)[sum].body[1]; }
  const ir::Stmt& product() const { return (*body)[columns].body[weighted].body[0]; }
  const std::string& scores() const { return power().target; }
};

// INVALID, naming what is expected. The scopes of the maximum, of the sum and of the weighted sums.
ir::Result<Softmax> find_softmax(ir::Kernel& kernel, const std::string& max, const std::string& sum,
                                 const std::string& weighted);
// Whether the results are used where they are whole only, and the values nowhere else.
bool used_whole(const ir::Kernel& kernel, const Softmax& p);
// Whether what stands between the scopes leaves alone what the parts read, and reads nothing that they write.
bool parts_stand_alone(const Softmax& p);
// x is a factor of e, rounded or not, and e has it nowhere else.
bool is_factor(const ir::Expr& x, const ir::Expr& e);
// exp2((x - m) * c) of the difference x - m, or exp(x - m): the difference; null: neither.
ir::Expr exponent(const ir::Expr& e);
// The power of a difference, of the same kind as e.
ir::Expr power_like(const ir::Expr& e, const ir::Expr& difference);

}  // namespace lathe::search
