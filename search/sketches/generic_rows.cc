// The general passes about rows that are walked several times: see generic_rules.h.
//
//   for i: { for a: S } { for b: T }
//   ->  S of row 0;  for i < N - 1: for b: { S of row i + 1 | T of row i };  T of row N - 1
#include <algorithm>

#include "search/moves/transform_util.h"
#include "search/sketches/generic_rules.h"

namespace lathe::search {
using namespace ir;  // NOLINT(google-build-using-namespace)

namespace {
// A plain scope with nothing but assignments in it.
bool is_pass(const Stmt& s) {
  return s.kind == Stmt::Kind::scope && s.mark == Mark::none &&
         std::all_of(s.body.begin(), s.body.end(), [](const Stmt& c) { return c.kind == Stmt::Kind::assign; });
}

// Brings the pass down to the next one of the row, past what lies between, and joins the two.
bool join_with_next(Attempts& a, const std::string& row, const std::string& pass) {
  for (;;) {
    const Stmt* scope = find_scope(a.kernel(), row);
    if (scope == nullptr) return false;
    const std::vector<Stmt>& body = scope->body;
    const auto at = std::find_if(body.begin(), body.end(), [&](const Stmt& c) { return c.iter == pass; });
    if (at == body.end() || at + 1 == body.end()) return false;
    if (is_pass(at[1])) return a.move("join_scopes {} {}", pass, at[1].iter);
    if (!a.move("swap_ops {} {}", row, at - body.begin())) return false;
  }
}
}  // namespace

void compute_again(Attempts& a) {
  std::vector<std::string> temporaries;
  for (const Buffer& b : a.kernel().buffers) {
    if (b.place == Place::heap) temporaries.push_back(b.name);
  }
  for (const std::string& t : temporaries) a.move("inline_temporary {}", t);
}

void overlap_rows(Attempts& a) {
  for (const std::string& row : plain_scopes(a.kernel())) {
    const Stmt* scope = find_scope(a.kernel(), row);
    if (scope == nullptr) continue;
    const std::vector<Stmt>& body = scope->body;
    const auto first = std::find_if(body.begin(), body.end(), is_pass);
    if (first == body.end() || std::none_of(first + 1, body.end(), is_pass)) continue;
    const std::string pass = first->iter;
    Attempts trial = a;
    if (trial.move("pipeline {} after={}", row, first - body.begin()) && join_with_next(trial, row, pass))
      a = std::move(trial);
  }
}

}  // namespace lathe::search
