// Random move texts on ten Kernels, the padding and layout of every operand among them: what is built equals the
// interpreter between unmapped pages, whatever the moves, or it is refused. Each Kernel has a child process of its own,
// so that a fault names its moves. LATHE_RANDOM_MOVES sets the number of texts per Kernel: 1000 of them take minutes.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "jit/host/host_cpu.h"
#include "runtime/oracle/oracle.h"

namespace lathe::runtime {
namespace {

struct Case {
  const char* name;
  const char* text;
  std::vector<SymbolValues> dims;
};

const Case kCases[] = {
    {"matmul",
     R"(
kernel mm(x: f32[5, 21] in, w: f32[9, 21] const, y: f32[5, 9] out) family matmul
  c: f32[5, 9] heap
  for m < 5 [m]:
    for n < 9 [n]:
      c[m, n] = 0.0
      for k < 21 [k]:
        c[m, n] += x[m, k] * w[n, k]
      y[m, n] = c[m, n]
)",
     {{}}},
    {"gate",
     R"(
kernel gate(x: f32[M, 22] in, w: f32[22, 70] const, b: f32[70] const, y: f32[M, 70] out) family matmul where M in 1..40
  c: f32[M, 70] heap
  for m < M [m]:
    for n < 70 [n]:
      c[m, n] = 0.0
      for k < 22 [k]:
        c[m, n] += x[m, k] * w[k, n]
      y[m, n] = max(c[m, n] + b[n], 0.0)
)",
     {{{"M", 1}}, {{"M", 13}}}},
    {"narrow_gate",
     R"(
kernel gate(x: bf16[M, 22] in, w: bf16[22, 70] const, b: f32[70] const, y: bf16[M, 70] out) family matmul where M in 1..40
  c: f32[M, 70] heap
  for m < M [m]:
    for n < 70 [n]:
      c[m, n] = 0.0
      for k < 22 [k]:
        c[m, n] += f32(x[m, k]) * f32(w[k, n])
      y[m, n] = bf16(max(c[m, n] + b[n], 0.0))
)",
     {{{"M", 1}}, {{"M", 13}}}},
    {"narrow_scores",
     R"(
kernel scores(q: f32[2, M, 16] in, k: f16[2, L, 16] in, y: f32[2, M, L] out) family matmul where M in 1..8, L in 1..64
  c: f32[2, M, L] heap
  for t < 2 [batch]:
    for m < M [m]:
      for n < L [n]:
        c[t, m, n] = 0.0
        for kk < 16 [k]:
          c[t, m, n] += q[t, m, kk] * f32(k[t, n, kk])
        y[t, m, n] = c[t, m, n]
)",
     {{{"M", 3}, {"L", 37}}}},
    {"nibbles",
     R"(
kernel nibbles(a: f32[M, 64] in, d: f16[70, 2] const strides [18, 9], q: u8[70, 2, 16] const strides [36, 18, 1], y: f32[M, 70] out) family quantised where M in 1..40
  c: f32[M, 70] heap
  for m < M [m]:
    for n < 70 [n]:
      c[m, n] = 0.0
      for k < 64 [k]:
        c[m, n] += a[m, k] * (f32(d[n, k // 32]) * f32((i32(q[n, k // 32, k % 16]) >> 4*(k % 32 // 16) & 15:i32) - 8:i32))
      y[m, n] = c[m, n]
)",
     {{{"M", 1}}, {{"M", 13}}}},
    {"words",
     R"(
kernel words(a: f32[M, 32] in, q: i32[4, 72] const, s: f32[1, 72] const, z: u8[1, 72] const from i32[1, 9] u8(z[d0, d1 // 8] >> 4*(d1 % 8) & 15:i32), y: f32[M, 72] out) family quantised where M in 1..40
  c: f32[M, 72] heap
  for m < M [m]:
    for n < 72 [n]:
      c[m, n] = 0.0
      for k < 32 [k]:
        c[m, n] += a[m, k] * (f32((q[k // 8, n] >> 4*(k % 8) & 15:i32) - i32(z[k // 32, n])) * s[k // 32, n])
      y[m, n] = c[m, n]
)",
     {{{"M", 1}}, {{"M", 13}}}},
    {"head",
     R"(
kernel head(x: f32[1, 33] in, w: f32[130, 33] const, y: f32[1, 130] out) family matmul
  c: f32[1, 130] heap
  for m < 1 [m]:
    for n < 130 [n]:
      c[m, n] = 0.0
      for k < 33 [k]:
        c[m, n] += x[m, k] * w[n, k]
      y[m, n] = c[m, n]
)",
     {{}}},
    {"scores",
     R"(
kernel scores(q: f32[2, M, 16] in, k: f32[2, L, 16] in, y: f32[2, M, L] out) family matmul where M in 1..8, L in 1..64
  c: f32[2, M, L] heap
  for b < 2 [batch]:
    for m < M [m]:
      for n < L [n]:
        c[b, m, n] = 0.0
        for d < 16 [k]:
          c[b, m, n] += q[b, m, d] * k[b, n, d]
        y[b, m, n] = c[b, m, n]
)",
     {{{"M", 3}, {"L", 19}}, {{"M", 1}, {"L", 64}}}},
    {"softmax",
     R"(
kernel softmax(s: f32[B, N] in, d: f32[B, N] out) family row where B in 1..16, N in 1..300
  m: f32[B] heap
  a: f32[B] heap
  for b < B [row]:
    m[b] = -inf
    for n < N [col]:
      m[b] fmax= s[b, n]
    a[b] = 0.0
    for n1 < N [col]:
      d[b, n1] = exp(s[b, n1] - m[b])
      a[b] += d[b, n1]
    for n2 < N [col]:
      d[b, n2] = d[b, n2] / a[b]
)",
     {{{"B", 5}, {"N", 37}}, {{"B", 1}, {"N", 257}}}},
    {"layernorm",
     R"(
kernel layernorm(x: f32[4, 35] in, g: f32[35] const, h: f32[35] const, y: f32[4, 35] out) family row
  mean: f32[4] heap
  square: f32[4] heap
  centred: f32[4, 35] heap
  for i < 4 [row]:
    mean[i] = 0.0
    for p < 35 [col]:
      mean[i] += x[i, p]
    mean[i] = mean[i] / 35.0
    square[i] = 0.0
    for b < 35 [col]:
      centred[i, b] = x[i, b] - mean[i]
    for c < 35 [col]:
      square[i] += centred[i, c] * centred[i, c]
    for d < 35 [col]:
      y[i, d] = centred[i, d] * rsqrt(square[i] / 35.0 + 0.00001) * g[d] + h[d]
)",
     {{}}},
    {"transpose",
     R"(
kernel transpose(x: f32[19, 37] in, y: f32[37, 19] out) family transpose
  for i < 37 [row]:
    for j < 19 [col]:
      y[i, j] = x[j, i]
)",
     {{}}},
    {"strided",
     R"(
kernel strided(x: f32[R, C] in strides [L, 1], b: f32[30] const, y: f32[R, C] out strides [L, 1]) family elementwise where R in 1..8, C in 1..30, L in 30..64
  for i < R [row]:
    for j < C [col]:
      y[i, j] = x[i, j] * b[j]
)",
     {{{"R", 4}, {"C", 29}, {"L", 41}}}},
    {"chain",
     R"(
kernel chain(x: f32[7, 26] in, h: f32[26] const, u: f32[7, 26] const, y: f32[7, 26] out)
  t: f32[7, 26] heap
  s: f32[7, 26] heap
  for i < 7:
    for a < 26:
      t[i, a] = x[i, a] + h[a]
  for j < 7:
    for b < 26:
      s[j, b] = max(t[j, b], 0.0)
  for k < 7:
    for c < 26:
      y[k, c] = s[k, c] * u[k, c]
)",
     {{}}},
    {"shifted",
     R"(
kernel shifted(x: f32[60] in, w: f32[61, 3] const, y: f32[58] out)
  t: f32[58] heap
  for i < 58:
    t[i] = x[i] * w[i + 1, 0]
    t[i] += x[i + 1] * w[i + 2, 1]
    t[i] += x[i + 2] * w[i + 3, 2]
    y[i] = t[i]
)",
     {{}}},
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

using Random = std::mt19937_64;
size_t below(Random& random, size_t n) { return static_cast<size_t>(random() % n); }

template <class List>
auto& pick(Random& random, List& list) {
  return list[below(random, std::size(list))];
}

// On any buffer, parameters among them: sizes that fit, that do not, and absurd ones.
search::Move layout_move(const ir::Kernel& kernel, Random& random) {
  static const char* const kRows[] = {"tile_buffer",    "swap_dims",        "increment_padding",
                                      "repeat_padding", "vectorize_buffer", "space_dim"};
  static const char* const kSizes[] = {"2",  "3",  "4",  "5",  "7",   "8",    "13",        "16",
                                       "19", "21", "32", "64", "100", "4096", "2147483648"};
  const ir::Buffer& b = pick(random, kernel.buffers);
  const auto dim = [&] { return std::to_string(below(random, b.dims.size() + 2)); };
  const std::string row = pick(random, kRows);
  if (row == "swap_dims") return {row, {b.name, dim(), dim()}, {}, {}};
  if (row == "vectorize_buffer") return {row, {b.name, pick(random, kSizes)}, {}, {}};
  return {row, {b.name, dim(), pick(random, kSizes)}, {}, {}};
}

// The moves that a search of the CPU goes through.
const std::vector<search::Transform>& cpu_moves() {
  static const std::vector<search::Transform> rows = [] {
    std::vector<search::Transform> out;
    for (const search::Transform& row : search::transforms()) {
      if (row.serves(search::Where::cpu)) out.push_back(row);
    }
    return out;
  }();
  return rows;
}

search::Move any_move(const ir::Kernel& kernel, Random& random) {
  for (int attempt = 0; attempt < 8 && below(random, 5) != 0; ++attempt) {
    const std::vector<search::Move> moves = pick(random, cpu_moves()).propose(kernel);
    if (!moves.empty()) return moves[below(random, moves.size())];
  }
  return layout_move(kernel, random);
}

// The default Schedule with moves before, between and after its own, or random moves alone. Most are legal: a refusal
// ends a replay.
search::Schedule random_schedule(const ir::Kernel& naive, const search::Schedule& standard, Random& random) {
  search::Schedule out;
  out.family = naive.family;
  ir::Kernel kernel = naive;
  const auto add = [&](const search::Move& move) {
    ir::Result<search::TransformResult> next = search::apply(kernel, move, {.verify = false});
    if (!next.ok() && below(random, 100) != 0) return;
    if (next.ok()) kernel = std::move(next->kernel);
    out.moves.push_back(move);
  };
  const bool with_default = below(random, 3) != 0;
  const size_t wanted = 1 + below(random, 6);
  const std::vector<search::Move>& own = standard.moves;
  size_t next = 0;
  for (size_t i = 0; i < wanted; ++i) {
    for (size_t n = with_default ? below(random, own.size() + 1) : 0; next < own.size() && n > 0; --n) add(own[next++]);
    const size_t before = out.moves.size();
    for (int attempt = 0; attempt < 10 && out.moves.size() == before; ++attempt) {
      add(below(random, 2) == 0 ? layout_move(kernel, random) : any_move(kernel, random));
    }
  }
  while (with_default && next < own.size()) add(own[next++]);
  return out;
}

// What the child says, in memory of both.
struct Report {
  int served = 0, refused = 0, wrong = 0, unsure = 0;
  char current[1 << 15] = {};
  char first_wrong[1 << 15] = {};
};
void say(char (&to)[1 << 15], const std::string& text) {
  const size_t n = std::min(text.size(), sizeof to - 1);
  text.copy(to, n);
  to[n] = 0;
}

void run_case(const Case& c, int texts, Report& report) {
  const ir::Kernel naive = ir::parse_kernel(c.text).value();
  LeafCache leaves({}, nullptr, nullptr);
  const ir::Target levels[] = {jit::host_target(), jit::host_target().cap(ir::IsaLevel::portable)};
  std::vector<std::unique_ptr<Oracle>> oracles;
  for (const SymbolValues& dims : c.dims) oracles.push_back(Oracle::create({naive, dims, 2, 7}, nullptr).value());
  Random random(ir::hash_text(c.name));
  for (int i = 0; i < texts; ++i) {
    const ir::Target& target = levels[below(random, 4) == 0];
    search::Problem problem;
    problem.kernel = naive;
    problem.dims = c.dims[0];
    const std::string text = search::to_text(random_schedule(naive, search::default_schedule(problem, target), random));
    say(report.current, text);
    const ir::Result<search::Schedule> schedule = search::parse_schedule(text);
    ir::Result<Stage> stage = ir::internal_error("does not parse");
    if (schedule.ok()) stage = build_stage(naive, *schedule, target, leaves, {.llvm = false});
    if (!stage.ok()) {
      ++report.refused;
      if (stage.status().code() == ir::Code::kUNSUPPORTED) continue;
      ++report.wrong;
      if (report.wrong == 1) say(report.first_wrong, stage.status().to_string() + "\n" + text);
      continue;
    }
    for (const auto& oracle : oracles) {
      const ir::Result<Verdict> verdict = oracle->verify(*stage);
      report.unsure += !verdict.ok();
      if (!verdict.ok() || verdict->ok) continue;
      ++report.wrong;
      if (report.wrong == 1) say(report.first_wrong, verdict->reason + "\n" + text);
    }
    ++report.served;
  }
}

class RandomMoves : public testing::TestWithParam<Case> {};

TEST_P(RandomMoves, are_right_or_refused) {
  const char* wanted = std::getenv("LATHE_RANDOM_MOVES");
  const int texts = wanted == nullptr ? 60 : std::atoi(wanted);
  void* shared = mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* report = new (shared) Report;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    run_case(GetParam(), texts, *report);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the child ended by signal " << WTERMSIG(status) << " on\n"
      << report->current;
  EXPECT_EQ(report->wrong, 0) << report->first_wrong;
  EXPECT_GT(report->served, texts / 8);
  RecordProperty("served", report->served);
  RecordProperty("refused", report->refused);
  RecordProperty("unsure", report->unsure);
  std::printf("%d served, %d refused, %d that cannot be judged\n", report->served, report->refused, report->unsure);
  munmap(shared, sizeof(Report));
}

INSTANTIATE_TEST_SUITE_P(All, RandomMoves, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Schedules that this test once found wrong.
struct Found {
  const char *name, *kernel, *moves;
};
const Found kFound[] = {
    {"a copy is read again at an offset of its own after a loop filled it anew",
     R"(
kernel t(w: f32[6, 5] in, y: f32[6] out) family matmul
  t: f32[5] heap
  for n < 6:
    for i < 5:
      t[i] = w[n, i]
    y[n] = t[4]
)",
     "unroll_scope n\n"},
    {"one thread fills what another one reads on its own stack",
     R"(
kernel t(x: f32[1, 33] in, w: f32[130, 33] const, y: f32[1, 130] out) family matmul
  c: f32[1, 130] heap
  for m < 1 [m]:
    for n < 130 [n]:
      c[m, n] = 0.0
      for k < 33 [k]:
        c[m, n] += x[m, k] * w[n, k]
      y[m, n] = c[m, n]
)",
     "tile_scope n 128 tail=peel as nw,ni,nd\nsplit_scope m after=0 as md\ntile_scope nd 2 tail=exact as nd0,nd1\n"
     "swap_scopes md nd0\ncreate_temporary w bd at=nd0\nmove_to_stack bd nd0\npipeline nd0 after=0\n"
     "parallelize bd_0_p\n"},
    {"lanes are summed in a tile",
     R"(
kernel t(x: f32[33] in, w: f32[2, 33] in, y: f32[2] out) family matmul
  c: f32[2] heap
  for n < 2 [n]:
    c[n] = 0.0
    for k < 33 [k]:
      c[n] += x[k] * w[n, k]
    y[n] = c[n]
)",
     "tile_scope k 16 tail=peel as kv,kl,kt\nvectorize_scope kl\ntensorize kv mma\n"},
    {"the count of a shift is as large as the last tile's size lets it be",
     R"(
kernel t(a: f32[3, 32] in, q: i32[4, 72] const, y: f32[3, 72] out) family matmul
  c: f32[3, 72] heap
  for m < 3 [m]:
    for n < 72 [n]:
      c[m, n] = 0.0
      for k < 32 [k]:
        c[m, n] += a[m, k] * f32(q[k // 8, n] >> 4*(k % 8) & 15:i32)
      y[m, n] = c[m, n]
)",
     "tile_scope k 8 tail=exact as k0,k1\ntile_scope k1 3 tail=mask as kp,kr\nunroll_scope kp\nunroll_scope kr\n"},
};

TEST(RandomMoves, WhatWasFoundIsRightOrRefused) {
  for (const Found& f : kFound) {
    const ir::Kernel naive = ir::parse_kernel(f.kernel).value();
    const auto oracle = Oracle::create({naive, {}, 2, 7}, nullptr).value();
    for (const ir::Target& target : {jit::host_target(), jit::host_target().cap(ir::IsaLevel::portable)}) {
      LeafCache leaves({}, nullptr, nullptr);
      const auto schedule = search::parse_schedule("schedule 1 family matmul class exact\n" + std::string(f.moves));
      ASSERT_TRUE(schedule.ok()) << schedule.status().to_string();
      const ir::Result<Stage> stage = build_stage(naive, *schedule, target, leaves, {.llvm = false});
      if (!stage.ok()) {
        EXPECT_EQ(stage.status().code(), ir::Code::kUNSUPPORTED) << f.name << ": " << stage.status().to_string();
        continue;
      }
      const ir::Result<Verdict> verdict = oracle->verify(*stage);
      ASSERT_TRUE(verdict.ok()) << f.name << ": " << verdict.status().to_string();
      EXPECT_TRUE(verdict->ok) << f.name << ": " << verdict->reason;
    }
  }
}

}  // namespace
}  // namespace lathe::runtime
