// Problems and history for the tests of the search: a matmul, a softmax and a transpose as ops writes them, and
// synthetic records.
#pragma once
#include <fmt/format.h>

#include "ir/core/text_form.h"
#include "search/model/features.h"
#include "search/model/history.h"
#include "tests/common/machines.h"

namespace lathe::search {

inline ir::Kernel kernel_of(const std::string& text) { return *ir::parse_kernel(text); }

inline Problem matmul_problem(int64_t m, int64_t n, int64_t k, bool cold = false, int threads = 1) {
  Problem p;
  p.kernel = kernel_of(
      fmt::format(R"(kernel matmul(a: f32[{0}, {2}] in, b: f32[{2}, {1}] const, y: f32[{0}, {1}] out) family matmul
  c: f32[{0}, {1}] heap
  for m < {0} [m]:
    for n < {1} [n]:
      c[m, n] = 0.0
      for k < {2} [k]:
        c[m, n] += a[m, k] * b[k, n]
      y[m, n] = c[m, n]
)",
                  m, n, k));
  p.cold = cold;
  p.threads = threads;
  return p;
}

// By a B of 4096 columns of as many terms, from memory, that is no constant: [k, n], or [n, k].
inline Problem plain_product(int64_t m, bool transposed) {
  Problem p;
  p.kernel = kernel_of(fmt::format(
      R"(kernel mm(x: f32[{0}, 4096] in, w: f32[4096, 4096] in, y: f32[{0}, 4096] out) family matmul
  c: f32[{0}, 4096] heap
  for m < {0} [m]:
    for n < 4096 [n]:
      c[m, n] = 0.0
      for k < 4096 [k]:
        c[m, n] += x[m, k] * w[{1}]
      y[m, n] = c[m, n]
)",
      m, transposed ? "n, k" : "k, n"));
  p.cold = true;
  return p;
}

inline Problem softmax_problem(int64_t rows, int64_t columns, int threads = 1) {
  Problem p;
  p.kernel = kernel_of(fmt::format(R"(kernel softmax(s: f32[R, {1}] in, d: f32[R, {1}] out) family row where R in 1..{0}
  mx: f32[R] heap
  su: f32[R] heap
  for i < R [row]:
    mx[i] = -inf
    for n < {1} [col]:
      mx[i] max= s[i, n]
    su[i] = 0.0
    for n1 < {1} [col]:
      d[i, n1] = exp(s[i, n1] - mx[i])
      su[i] += d[i, n1]
    for n2 < {1} [col]:
      d[i, n2] = d[i, n2] / su[i]
)",
                                   rows, columns));
  p.dims = {{"R", rows}};
  p.threads = threads;
  return p;
}

// Of the machine that this run takes itself for. A claim that holds on one machine only names it: machine("zen5").
inline const test::Machine& machine(const std::string& name) { return *test::find_machine(name); }
inline ir::Target run_target() { return test::this_machine().target; }
inline MachineRates run_rates() {
  const ir::Target t = run_target();
  const auto rate = [](const std::string& name) {
    for (const auto& [key, value] : test::this_machine().rates) {
      if (key == name) return value;
    }
    return 0.0;
  };
  MachineRates r;
  r.flops = rate(t.has(ir::IsaLevel::avx512) ? "fma_avx512" : "fma_avx2");
  r.l1 = rate("read_l1");
  r.l2 = rate("read_l2");
  r.l3 = rate("read_l3");
  r.dram = rate("read_memory");
  r.call_us = rate("call_ns") * 1e-3;
  r.task_us = rate("task_ns") * 1e-3;
  r.barrier_us = rate("barrier_ns") * 1e-3;
  return r;
}

}  // namespace lathe::search
