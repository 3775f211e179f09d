// What the statements of a list ask of sizes and addresses alike for all of their threads and iterations: one question
// before them stands for all of those, and where it is answered with yes, they go without.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/analysis/analysis.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

// Of a list. A condition a < b, whose b is a minimum of minima, holds if it does for each of them. What is left of
// b - a is x + s, where s has names that the list defines itself and x none: so x has to be more than the least s takes
// away, for all of the statements the same. What x is known never to be is not asked for.
class WholeQuestion {
 public:
  // loop: the list is its body, and the question stands before it; it lives as long as this does.
  WholeQuestion(const DeviceProgram& program, const std::vector<DeviceStmt>& list, const DeviceStmt* loop = nullptr);

  // Conditions that it stands for.
  size_t asked() const { return asked_; }
  bool nothing() const { return least_.empty() && lines_.empty(); }
  // What asks whether the tile is whole, and whether its lines begin at addresses that are aligned: without bodies.
  DeviceStmt question() const;
  // The list without what is asked for once.
  std::vector<DeviceStmt> of_whole(const std::vector<DeviceStmt>& list) const;

 private:
  using List = std::vector<DeviceStmt>;
  using Facts = std::map<std::string, std::pair<ir::Expr, int64_t>>;  // by text: at least so much

  void define(const std::string& name, ir::Interval range);
  void find_taken(const List& list);
  void find(const List& list, bool of_thread);
  bool has_own(const ir::Expr& e) const;
  bool has_others(const ir::Expr& e) const;
  ir::Expr least_of_loop(const ir::Expr& e) const;
  bool follows(const ir::Expr& condition, Facts& facts) const;
  ir::Expr rest(const ir::Expr& condition) const;
  void ask(const ir::Expr& condition);
  bool begins_line(const DevicePlace& at, DevicePlace* line, std::set<std::string>* steps) const;
  bool are_aligned(const DeviceStmt& s) const;
  void ask_of_lines(const DeviceStmt& s);
  void ask_of_multiples(const ir::Expr& condition, const List& body);
  void ask(const List& list);

  const DeviceStmt* loop_;
  ir::Ranges ranges_;                                  // of their own names
  ir::Ranges known_;                                   // of integers that are taken, and of the loop
  std::vector<std::pair<std::string, ir::Expr>> own_;  // each of them 0
  std::set<std::string> names_;
  Facts least_;
  size_t asked_ = 0;
  int lanes_ = 0;                              // of accesses of several at once
  std::map<std::string, DevicePlace> lines_;   // by text: where they begin
  std::set<std::string> steps_;                // sizes between them
  std::map<std::string, ir::Expr> multiples_;  // by text: conditions on sizes that stand beside lines
};

}  // namespace lathe::jit
