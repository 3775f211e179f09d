// Turns index expressions into Forms (bound_nest.h) once symbols are numbers: constant folding,
// affine forms, minima, and div and mod that the iterators' ranges resolve. What is left becomes a
// local, or a postfix program where it is not. Overflow is an error. Not thread-safe.
//
// What is read of an argument has the range that its parameter declares, and the caller is held to.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/status.h"
#include "ir/core/binding.h"
#include "ir/core/expr.h"
#include "runtime/walk/bound_nest.h"

namespace lathe::runtime {

class FormBuilder {
 public:
  FormBuilder(const ir::SymbolValues& symbols, BoundNest* out) : symbols_(symbols), out_(out) {}

  struct Range {
    int64_t lo = 0, hi = 0;
  };
  // The parameter's `elements` elements may be read: load(name, {element}).
  void add_input(const std::string& name, int argument, ir::DType type, int64_t elements, Range values) {
    inputs_.push_back({name, argument, type, elements, values});
  }
  // Loops around the expressions that follow: iterator 0 .. max_extent-1 at `level` (-1: always 0).
  void push_loop(const std::string& iter, int level, int64_t max_extent) {
    loops_.push_back({iter, level, max_extent - 1, {}});
  }
  void pop_loop() { loops_.pop_back(); }
  // Appends the locals of the innermost loop, or without loops those that follow none, to the nest's. They end there.
  LocalRange take_locals();

  struct Built {
    Form form;
    Range range;
  };
  ir::Result<Built> build(const ir::Expr& e);
  // scale * e as an affine form without its term of `inner_level`, which goes to *inner_step; null
  // if it is not affine.
  ir::Result<std::optional<Affine>> build_affine(const ir::Expr& e, int64_t scale, int inner_level,
                                                 int64_t* inner_step);
  // The loops that an iterator or a local follows.
  uint64_t levels_of(int level) const;
  // A constant: an expression of symbols only.
  ir::Result<int64_t> constant(const ir::Expr& e);

 private:
  struct Linear {
    __int128 base = 0;
    std::vector<std::pair<int, __int128>> terms;  // by level, no zero coefficients
  };
  struct Local {
    ir::Expr value;
    BoundLocal bound;
  };
  struct Loop {
    std::string iter;
    int level;
    int64_t hi;
    std::vector<Local> locals;
  };
  struct Input {
    std::string name;
    int argument;
    ir::DType type;
    int64_t elements;
    Range values;
  };
  using Minimum = std::vector<Linear>;  // empty: not of that form
  using Wide = std::pair<__int128, __int128>;
  // Of a local, by its level.
  struct Known {
    Wide range;
    uint64_t levels;
  };
  struct Program {
    std::vector<ProgramStep> steps;
    uint64_t levels = 0;
    bool anywhere = true;  // what it reads is there wherever the loops that it names run, whatever runs inside
  };

  Minimum minimum(const ir::Expr& e);
  Minimum combined(const ir::Expr& e);
  std::optional<Linear> local(const ir::Expr& e);
  std::vector<Local>& locals_of(uint64_t levels);
  Minimum divide(const Minimum& a, int64_t by, bool want_mod, bool round_up);
  void prune(Minimum* m) const;
  Wide range(const Linear& a) const;
  Wide range_of_level(int level) const;
  ir::Result<Wide> range(const ir::Expr& e);
  ir::Result<Wide> range_of_parts(const ir::Expr& e);
  ir::Status emit(const ir::Expr& e, int depth, Program* out);
  ir::Status emit_parts(const ir::Expr& e, int depth, Program* out);
  Form store(const Program& program);
  ir::Result<Affine> store(const Linear& a, int64_t scale, int inner_level, int64_t* inner_step);
  const Loop* find_loop(const std::string& iter) const;
  const Input* find_input(const ir::Expr& load) const;  // null: it is none

  const ir::SymbolValues& symbols_;
  BoundNest* out_;
  std::vector<Loop> loops_;
  std::vector<Local> base_;  // that follow no loop
  std::vector<Known> known_;
  std::vector<Input> inputs_;
};

}  // namespace lathe::runtime
