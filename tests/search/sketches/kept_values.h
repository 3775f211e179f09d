// Whether a setting of the matmul recipe keeps the values of a Kernel.
#pragma once
#include <gtest/gtest.h>

#include <optional>

#include "ir/core/text_form.h"
#include "search/cut/cut.h"
#include "search/cut/safe_kernel.h"
#include "search/sketches/recipe.h"
#include "tests/search/moves/walk.h"

namespace lathe::search {

struct Made {
  Schedule schedule;
  ir::Kernel kernel;
};

// What a setting that is accepted makes: safe, cut into leaves, and equal to the naive Kernel with parallel iterations
// run backwards. None where it could not be made.
inline std::optional<Made> expect_values_kept(const Problem& problem, const Knobs& knobs, const ir::Target& target) {
  SCOPED_TRACE(ir::print(problem.kernel));
  const ir::Status accepted = kMatmulRecipe.accepts(knobs, problem, target);
  EXPECT_TRUE(accepted.ok()) << accepted.to_string();
  ir::Result<Schedule> schedule = kMatmulRecipe.build(knobs, problem, target);
  EXPECT_TRUE(schedule.ok()) << schedule.status().to_string();
  if (!accepted.ok() || !schedule.ok()) return std::nullopt;
  ir::Result<ir::Kernel> kernel = replay(problem.kernel, *schedule);
  EXPECT_TRUE(kernel.ok()) << kernel.status().to_string();
  if (!kernel.ok()) return std::nullopt;
  EXPECT_TRUE(check_safe(problem.kernel, *kernel).ok()) << ir::print(*kernel);
  EXPECT_TRUE(cut(*kernel).ok()) << cut(*kernel).status().to_string() << ir::print(*kernel);
  const Tensors inputs = whole_inputs(problem.kernel, problem.dims);
  const ir::Result<Tensors> want = outputs(problem.kernel, problem.dims, inputs),
                            got = outputs(reversed(*kernel), problem.dims, inputs);
  EXPECT_TRUE(want.ok() && got.ok());
  if (want.ok() && got.ok()) {
    EXPECT_EQ(difference(*want, *got, 1e-5), "") << ir::print(*kernel);
  }
  return Made{std::move(schedule).value(), std::move(kernel).value()};
}

}  // namespace lathe::search
