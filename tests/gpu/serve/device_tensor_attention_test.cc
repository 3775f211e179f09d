// Attention on tensor cores, through the C ABI and the fakes, for a caller who allows that weights are rounded: every
// option that they take, at odd sizes, with the results of the CPU; served by another process from the store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gpu/served_op.h"
#include "tests/gpu/temp_store.h"

namespace lathe::test {
namespace {

constexpr uint32_t kBf16 = LATHE_DTYPE_BF16, kF16 = LATHE_DTYPE_F16;
const lathe_hint kMany = {900, 1}, kOne = {1, 1}, kPages = {60, 1};

lathe_dim hinted(const char* name, const lathe_hint& hint) {
  lathe_dim out = range(name, 0, 3000);
  out.hints = &hint;
  out.num_hints = 1;
  return out;
}

struct Attention {
  const char* op = "attention";
  int64_t heads = 4, kept = 2, depth = 32, columns = 48;
  uint32_t dtype = kBf16;
  std::vector<lathe_attr> attrs = {};
  bool sinks = false, decodes = false;  // one query of each sequence, as hinted
  bool masked = false;
  bool bytes = false;  // keys and values, with scales
};

lathe_attr flag(const char* name) {
  lathe_attr a{};
  a.name = name;
  a.type = LATHE_ATTR_BOOL;
  a.i = 1;
  return a;
}

constexpr int64_t kPage = 16;

Owned<lathe_graph> graph_of(lathe_context* ctx, const Attention& a) {
  const lathe_dim b = fixed(2), s = hinted("S", a.decodes ? kOne : kMany), t = hinted("T", kMany);
  const bool paged = std::string_view(a.op) == "paged_attention",
             cached = paged || std::string_view(a.op) == "cached_attention";
  const auto kept = [&](int64_t line) {
    const std::vector<lathe_dim> dims = paged
                                            ? std::vector{range("P", 1, 100), fixed(a.kept), fixed(kPage), fixed(line)}
                                            : std::vector{b, fixed(a.kept), t, fixed(line)};
    return DescOf{dims, a.bytes ? static_cast<uint32_t>(LATHE_DTYPE_I8) : a.dtype};
  };
  std::vector<DescOf> inputs = {{{b, fixed(a.heads), s, fixed(a.depth)}, a.dtype}, kept(a.depth), kept(a.columns)};
  if (cached) inputs.push_back({{b}, LATHE_DTYPE_I32});
  lathe_dim pages = range("N", 0, 100);
  pages.hints = &kPages;
  pages.num_hints = a.decodes ? 1 : 0;
  if (paged) inputs.push_back({{b, pages}, LATHE_DTYPE_I64});
  for (int i = 0; a.bytes && i < 2; ++i) {
    std::vector<lathe_dim> dims = inputs[1].dims;
    dims.pop_back();
    inputs.push_back({dims});
  }
  if (a.masked) inputs.push_back({{s, t}});
  if (a.sinks) inputs.push_back({{fixed(a.heads)}});
  return single_graph(ctx, a.op, inputs, a.attrs);
}

constexpr uint32_t kUsual = LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT, kRounding = kUsual | LATHE_CLASS_BF16_DOTS;
// Bytes times scales are large and cancel each other: what rounding weights does to them says nothing.
uint32_t allowed_to(const Attention& a) { return a.bytes ? kUsual : kRounding; }

void expect_sizes(lathe_context* ctx, const Attention& a, const lathe_graph* graph, lathe_kernel* kernel, int64_t s,
                  int64_t t) {
  SCOPED_TRACE(testing::Message() << a.op << " of " << a.depth << " S " << s << " T " << t);
  const bool paged = std::string_view(a.op) == "paged_attention",
             cached = paged || std::string_view(a.op) == "cached_attention";
  const int64_t pages = (t + kPage - 1) / kPage;
  const auto kept = [&](int64_t line) {
    return ArgOf{
        paged ? std::vector<int64_t>{pages + 1, a.kept, kPage, line} : std::vector<int64_t>{2, a.kept, t, line},
        a.bytes ? static_cast<uint32_t>(LATHE_DTYPE_I8) : a.dtype};
  };
  std::vector<ArgOf> inputs = {{{2, a.heads, s, a.depth}, a.dtype}, kept(a.depth), kept(a.columns)};
  if (cached) inputs.push_back({{2}, LATHE_DTYPE_I32, (paged ? pages * kPage : t) + 1});
  if (paged) inputs.push_back({{2, pages}, LATHE_DTYPE_I64, pages + 1});
  for (int i = 0; a.bytes && i < 2; ++i) {
    std::vector<int64_t> dims = inputs[1].dims;
    dims.pop_back();
    inputs.push_back({dims});
  }
  if (a.masked) inputs.push_back({{s, t}});
  if (a.sinks) inputs.push_back({{a.heads}});
  ArgOf output = inputs[0];
  output.dims.back() = a.columns;
  expect_as_on_cpu(ctx, graph, kernel, inputs, output, 8, 1.6e-2f);
}

const Attention kForms[] = {
    {.attrs = {flag("causal")}},
    {.kept = 4, .depth = 64, .columns = 64, .dtype = kF16},
    {.attrs = {flag("causal"), float_attr("soft_cap", 2.5)}},
    {.attrs = {flag("sinks")}, .sinks = true},
    {.op = "cached_attention", .attrs = {flag("causal")}},
    {.op = "paged_attention", .kept = 1, .attrs = {flag("causal"), float_attr("scale", 0.5)}},
    {.attrs = {flag("causal")}, .masked = true},
    {.attrs = {flag("causal"), int_attr("window", 150)}},
    {.op = "cached_attention", .heads = 8, .attrs = {flag("causal")}, .decodes = true},
    {.op = "paged_attention",
     .heads = 7,
     .kept = 1,
     .dtype = kF16,
     .attrs = {flag("sinks"), float_attr("soft_cap", 3)},
     .sinks = true,
     .decodes = true},
    {.op = "cached_attention", .attrs = {flag("causal"), flag("scales"), float_attr("scale", 1e-3)}, .bytes = true},
    {.op = "paged_attention",
     .heads = 8,
     .attrs = {flag("causal"), flag("scales"), float_attr("scale", 1e-3)},
     .decodes = true,
     .bytes = true}};

// Its kernel, which rounds weights where that is allowed.
Owned<lathe_kernel> served(lathe_context* ctx, const lathe_graph* graph, uint32_t wait, uint32_t allowed) {
  Owned<lathe_kernel> kernel;
  lathe_kernel_info info = LATHE_KERNEL_INFO_INIT;
  lathe_error e;
  EXPECT_EQ(resolve_on(ctx, graph, wait, kernel, &info, &e, 1, allowed), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(info.numeric_class & LATHE_CLASS_BF16_DOTS, allowed & LATHE_CLASS_BF16_DOTS);
  return kernel;
}

TEST(DeviceTensorAttention, AsOnTheCpuAndInAnotherProcess) {
  const TempStore store;
  const auto ctx = gpu_context(store.path);
  int number = 0;
  for (const Attention& a : kForms) {
    const auto graph = graph_of(ctx.get(), a);
    ASSERT_NE(graph, nullptr);
    const auto kernel = served(ctx.get(), graph.get(), LATHE_WAIT_TUNED, allowed_to(a));
    ASSERT_NE(kernel, nullptr);
    for (const auto& [s, t] :
         {std::pair<int64_t, int64_t>{1, 0}, {0, 5}, {1, 1}, {17, 33}, {70, 65}, {3, 200}, {1, 700}}) {
      fake_gpu().state.order = number % 3 == 0 ? Order::forward : number % 3 == 1 ? Order::backward : Order::shuffled;
      ++number;
      expect_sizes(ctx.get(), a, graph.get(), kernel.get(), s, t);
    }
  }
  fake_gpu().state.order = Order::forward;
  expect_served_in_another_process(store, "DeviceTensorAttention.DISABLED_ServesWhatIsStored");
}

// As many as are hinted, and others; rows of no sequence, and sequences without rows.
TEST(DeviceTensorAttention, UnequalSequences) {
  const auto ctx = gpu_context();
  const lathe_dim b = range("B", 0, 9), n = range("N", 0, 9), p = range("P", 1, 100);
  const auto graph = single_graph(ctx.get(), "ragged_attention",
                                  {{{hinted("R", kMany), fixed(4), fixed(32)}, kBf16},
                                   {{p, fixed(2), fixed(kPage), fixed(32)}, kBf16},
                                   {{p, fixed(2), fixed(kPage), fixed(48)}, kBf16},
                                   {{b}, LATHE_DTYPE_I32},
                                   {{b, n}, LATHE_DTYPE_I64},
                                   {{b, fixed(2)}, LATHE_DTYPE_I32}},
                                  {flag("causal")});
  ASSERT_NE(graph, nullptr);
  const auto kernel = served(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kRounding);
  ASSERT_NE(kernel, nullptr);
  struct Sizes {
    int64_t sequences, rows, pages;
  };
  for (const Sizes& s : {Sizes{3, 50, 4}, {1, 1, 2}, {5, 33, 3}, {2, 0, 1}, {0, 3, 1}, {9, 5, 2}}) {
    SCOPED_TRACE(testing::Message() << s.sequences << " sequences of " << s.rows << " rows");
    const int64_t all = 3 * s.pages + 1;
    expect_as_on_cpu(ctx.get(), graph.get(), kernel.get(),
                     {{{s.rows, 4, 32}, kBf16},
                      {{all, 2, kPage, 32}, kBf16},
                      {{all, 2, kPage, 48}, kBf16},
                      {{s.sequences}, LATHE_DTYPE_I32, s.pages * kPage + 1},
                      {{s.sequences, s.pages}, LATHE_DTYPE_I64, all},
                      {{s.sequences, 2}, LATHE_DTYPE_I32, s.rows + 1, true}},
                     {{s.rows, 4, 48}, kBf16}, 8, 1.6e-2f);
  }
}

// Who allows no rounding of weights gets none.
TEST(DeviceTensorAttention, OnlyWhereItIsAllowed) {
  const auto ctx = gpu_context();
  for (const Attention& a : {kForms[0], kForms[1]}) {
    const auto graph = graph_of(ctx.get(), a);
    const auto kernel = served(ctx.get(), graph.get(), LATHE_WAIT_TUNED, kUsual);
    ASSERT_NE(kernel, nullptr);
    expect_sizes(ctx.get(), a, graph.get(), kernel.get(), 5, 40);
  }
}

TEST(DeviceTensorAttention, DISABLED_ServesWhatIsStored) {
  const auto ctx = gpu_context(std::getenv("LATHE_TEST_STORE"));
  for (const Attention& a : kForms) {
    const auto graph = graph_of(ctx.get(), a);
    const auto kernel = served(ctx.get(), graph.get(), LATHE_WAIT_NOW, allowed_to(a));
    ASSERT_NE(kernel, nullptr);
    expect_sizes(ctx.get(), a, graph.get(), kernel.get(), 20, 37);
  }
  expect_nothing_compiled(ctx.get());
}

}  // namespace
}  // namespace lathe::test
