// What execute, pin, prepack and the plans refuse, a row per input: the status, the argument named, and outputs
// untouched.
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

// y[M, 24] = x[M, 16] * w[16, 24], and everything a call has.
struct Call {
  Floats x{{5, 16}}, w{{16, 24}}, y{{5, 24}, 77};
  std::vector<lathe_arg> args{x.arg(), w.arg(), y.arg()};
  lathe_exec exec = LATHE_EXEC_INIT;
  int64_t strides[2] = {0, 0};
  Aligned workspace{1 << 20};

  Call() {
    exec.workspace = workspace.memory;
    exec.workspace_bytes = 1 << 20;
  }
  void set_strides(Floats& t, int64_t a, int64_t b) {
    strides[0] = a;
    strides[1] = b;
    t.tensor.strides = strides;
  }
};

struct ExecuteCase {
  const char* name;
  const char* arg;
  std::function<void(Call&)> spoil;
  lathe_status status = LATHE_STATUS_INVALID;
};

const ExecuteCase kCases[] = {
    {"arg_count", "num_args", [](Call& c) { c.args.pop_back(); }},
    {"tensor_null", "x.tensor", [](Call& c) { c.args[0].tensor = nullptr; }},
    {"arg_flags", "x.flags", [](Call& c) { c.args[0].flags = 8; }},
    {"arg_reserved", "w.reserved", [](Call& c) { c.args[1].reserved = 8; }},
    {"read_only_output", "out.flags", [](Call& c) { c.args[2].flags = LATHE_ARG_READ_ONLY; }},
    {"device", "x.device", [](Call& c) { c.x.tensor.device.type = 2; }},
    {"dtype_code", "x.dtype", [](Call& c) { c.x.tensor.dtype.code = 0; }},
    {"dtype_bits", "x.dtype", [](Call& c) { c.x.tensor.dtype.bits = 16; }},
    {"dtype_lanes", "x.dtype", [](Call& c) { c.x.tensor.dtype.lanes = 4; }},
    {"ndim", "x.ndim", [](Call& c) { c.x.tensor.ndim = 1; }},
    {"shape_null", "x.shape", [](Call& c) { c.x.tensor.shape = nullptr; }},
    {"dim_fixed", "x.shape[1]", [](Call& c) { c.x.shape[1] = 17; }},
    {"dim_out_of_range", "x.shape[0]", [](Call& c) { c.x.shape[0] = c.y.shape[0] = 65; }},
    {"dim_negative", "x.shape[0]", [](Call& c) { c.x.shape[0] = -1; }},
    {"symbol_two_values", "out.shape[0]", [](Call& c) { c.y.shape[0] = 4; }},
    {"strides_negative", "x.strides[0]", [](Call& c) { c.set_strides(c.x, -16, 1); }},
    {"strides_other", "x.strides[0]", [](Call& c) { c.set_strides(c.x, 32, 1); }},
    {"output_stride_zero", "out.strides[0]", [](Call& c) { c.set_strides(c.y, 0, 1); }},
    {"output_self_overlap", "out.strides[0]", [](Call& c) { c.set_strides(c.y, 5, 1); }},
    {"data_null", "x.data", [](Call& c) { c.x.tensor.data = nullptr; }},
    {"data_unaligned", "x.data", [](Call& c) { c.x.tensor.data = reinterpret_cast<char*>(c.x.tensor.data) + 1; }},
    {"byte_offset_unaligned", "x.byte_offset", [](Call& c) { c.x.tensor.byte_offset = 2; }},
    {"byte_offset_wraps", "x.byte_offset", [](Call& c) { c.x.tensor.byte_offset = ~uint64_t{0} - 3; }},
    {"capacity", "out.bytes", [](Call& c) { c.args[2].bytes = 5 * 24 * 4 - 1; }},
    {"layout_of_an_input", "x.layout_id", [](Call& c) { c.args[0].layout_id = 3; }},
    {"layout_foreign", "w.layout_id", [](Call& c) { c.args[1].layout_id = 3; }},
    {"output_is_input", "out.data", [](Call& c) { c.y.tensor.data = c.x.data.data(); }},
    {"output_overlaps", "out.data", [](Call& c) { c.y.tensor.data = c.w.data.data() + 100; }},
    {"threads_negative", "threads", [](Call& c) { c.exec.threads = -1; }},
    {"threads_many", "threads", [](Call& c) { c.exec.threads = 100000; }},
    {"exec_reserved", "exec.reserved", [](Call& c) { c.exec.reserved = 1; }},
    {"exec_stream", "exec.stream", [](Call& c) { c.exec.stream = &c; }},
    {"exec_size", "exec.struct_size", [](Call& c) { c.exec.struct_size = 3; }},
    {"exec_version", "exec.version", [](Call& c) { c.exec.version = 3; }},
    {"pool_size", "exec.pool.struct_size",
     [](Call& c) {
       static lathe_pool pool = {};
       c.exec.pool = &pool;
     }},
    {"pool_functions", "exec.pool.num_threads",
     [](Call& c) {
       static lathe_pool pool = LATHE_POOL_INIT;
       c.exec.pool = &pool;
     }},
};

TEST(CapiRefuse, Executing) {
  const auto ctx = make_context("portable");
  const auto graph = matmul_graph(ctx.get(), range("M", 1, 64), 16, 24);
  const auto kernel = resolve(ctx.get(), graph.get());
  for (const ExecuteCase& c : kCases) {
    SCOPED_TRACE(c.name);
    Call call;
    c.spoil(call);
    lathe_error e{};
    EXPECT_EQ(lathe_execute(kernel.get(), call.args.data(), call.args.size(), &call.exec, &e), c.status) << e.message;
    EXPECT_STREQ(e.arg_name, c.arg) << e.message;
    EXPECT_NE(e.message[0], 0);
    for (const float v : call.y.data) ASSERT_EQ(v, 77.f);
    for (const float v : call.w.data) ASSERT_EQ(v, 0.f);
    EXPECT_EQ(lathe_execute(kernel.get(), call.args.data(), call.args.size(), &call.exec, nullptr), c.status);
  }
  lathe_error e{};
  EXPECT_EQ(lathe_execute(kernel.get(), nullptr, 3, nullptr, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "args");
  Call call;
  EXPECT_EQ(lathe_execute(nullptr, call.args.data(), 3, nullptr, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "kernel");
  EXPECT_EQ(lathe_execute(reinterpret_cast<lathe_kernel*>(graph.get()), call.args.data(), 3, nullptr, &e),
            LATHE_STATUS_INVALID);
  lathe_pinned* pinned = nullptr;
  EXPECT_EQ(lathe_pin(kernel.get(), call.args.data(), 2, 1, &pinned, &e), LATHE_STATUS_INVALID);
  EXPECT_EQ(lathe_pin(kernel.get(), call.args.data(), 3, -1, &pinned, &e), LATHE_STATUS_INVALID);
  EXPECT_EQ(pinned, nullptr);
}

TEST(CapiRefuse, DeadKernels) {
  const auto ctx = make_context("portable");
  const auto graph = matmul_graph(ctx.get(), range("M", 1, 64), 16, 24);
  lathe_kernel* kernel = resolve(ctx.get(), graph.get()).release();
  lathe_kernel_destroy(kernel);
  Call call;
  lathe_error e{};
  EXPECT_EQ(lathe_execute(kernel, call.args.data(), 3, &call.exec, &e), LATHE_STATUS_STATE);
  EXPECT_STREQ(e.arg_name, "kernel");
  EXPECT_EQ(lathe_generation(kernel), 0u);
  lathe_kernel_destroy(kernel);
}

TEST(CapiRefuse, Workspaces) {
  const auto ctx = make_context("portable");
  lathe_graph* g = nullptr;
  lathe_error e{};
  ASSERT_EQ(lathe_graph_create(ctx.get(), "chain", &g, &e), LATHE_STATUS_OK);
  const Owned<lathe_graph> graph(g);
  const std::vector<lathe_dim> xd = {range("M", 1, 64), fixed(16)}, wd = {fixed(16), fixed(24)};
  const lathe_tensor_desc x = desc("x", xd), w = desc("w", wd);
  int32_t in[2], mid = 0, out = 0;
  ASSERT_EQ(lathe_graph_tensor(g, &x, &in[0], &e), LATHE_STATUS_OK);
  ASSERT_EQ(lathe_graph_tensor(g, &w, &in[1], &e), LATHE_STATUS_OK);
  ASSERT_EQ(lathe_graph_op(g, "matmul", in, 2, nullptr, 0, "mid", &mid, &e), LATHE_STATUS_OK);
  ASSERT_EQ(lathe_graph_op(g, "softmax", &mid, 1, nullptr, 0, "out", &out, &e), LATHE_STATUS_OK);
  ASSERT_EQ(lathe_graph_output(g, out, &e), LATHE_STATUS_OK);
  ASSERT_EQ(lathe_graph_finish(g, &e), LATHE_STATUS_OK) << e.message;
  const auto kernel = resolve(ctx.get(), g);
  Call call;
  uint64_t bytes = 0;
  ASSERT_EQ(lathe_workspace_bytes(kernel.get(), call.args.data(), 3, 1, &bytes, &e), LATHE_STATUS_OK) << e.message;
  ASSERT_GT(bytes, 0u);
  const struct {
    const char* arg;
    void* memory;
    uint64_t bytes;
  } cases[] = {{"exec.workspace", nullptr, bytes},
               {"exec.workspace_bytes", call.workspace.memory, bytes - 1},
               {"exec.workspace", static_cast<char*>(call.workspace.memory) + 4, bytes}};
  for (const auto& c : cases) {
    call.exec.workspace = c.memory;
    call.exec.workspace_bytes = c.bytes;
    EXPECT_EQ(lathe_execute(kernel.get(), call.args.data(), 3, &call.exec, &e), LATHE_STATUS_INVALID);
    EXPECT_STREQ(e.arg_name, c.arg);
    for (const float v : call.y.data) ASSERT_EQ(v, 77.f);
  }
  EXPECT_EQ(lathe_execute(kernel.get(), call.args.data(), 3, nullptr, &e), LATHE_STATUS_INVALID);
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.max_workspace = 8;
  lathe_kernel* refused = nullptr;
  EXPECT_EQ(lathe_resolve(ctx.get(), g, &policy, &refused, nullptr, &e), LATHE_STATUS_UNSUPPORTED);
  EXPECT_STREQ(e.arg_name, "policy.max_workspace");
}

TEST(CapiRefuse, InPlaceOnlyWhereHarmless) {
  const auto ctx = make_context("portable");
  const std::vector<lathe_dim> d = {fixed(8), fixed(8)};
  const int64_t perm[] = {1, 0};
  const lathe_attr attr = {"perm", LATHE_ATTR_INTS, 0, 0, 0, nullptr, perm, 2};
  const lathe_tensor_desc x = desc("x", d);
  lathe_graph* g = nullptr;
  lathe_error e{};
  ASSERT_EQ(lathe_graph_single(ctx.get(), "transpose", &x, 1, &attr, 1, &g, &e), LATHE_STATUS_OK) << e.message;
  const Owned<lathe_graph> graph(g);
  const auto transpose = resolve(ctx.get(), g);
  const auto relu_graph = unary_graph(ctx.get(), "relu", d);
  const auto relu = resolve(ctx.get(), relu_graph.get());
  std::vector<float> memory(72, 1.f);
  Floats a({8, 8}), b({8, 8});
  a.tensor.data = b.tensor.data = memory.data();
  const lathe_arg args[] = {a.arg(), b.arg()};
  EXPECT_EQ(lathe_execute(transpose.get(), args, 2, nullptr, &e), LATHE_STATUS_INVALID);
  EXPECT_EQ(lathe_execute(relu.get(), args, 2, nullptr, &e), LATHE_STATUS_OK) << e.message;
  b.tensor.data = memory.data() + 8;
  EXPECT_EQ(lathe_execute(relu.get(), args, 2, nullptr, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "out.data");
}

TEST(CapiRefuse, Packing) {
  const auto ctx = make_context();
  const auto graph = matmul_graph(ctx.get(), range("M", 1, 64), 128, 256);
  const auto kernel = resolve(ctx.get(), graph.get());
  lathe_pack_info info{};
  lathe_error e{};
  EXPECT_EQ(lathe_prepack_query(kernel.get(), 0, &info, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "arg");
  EXPECT_EQ(lathe_prepack_query(kernel.get(), 3, &info, &e), LATHE_STATUS_INVALID);
  EXPECT_EQ(lathe_prepack_query(kernel.get(), -1, &info, &e), LATHE_STATUS_INVALID);
  ASSERT_EQ(lathe_prepack_query(kernel.get(), 1, &info, &e), LATHE_STATUS_OK);
  if (info.bytes == 0) GTEST_SKIP() << "this machine's default packs nothing";
  Floats w({128, 256});
  Aligned out(info.bytes + 64);
  EXPECT_EQ(lathe_prepack(kernel.get(), 1, &w.tensor, out.memory, info.bytes - 1, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "out_bytes");
  EXPECT_EQ(lathe_prepack(kernel.get(), 1, &w.tensor, static_cast<char*>(out.memory) + 4, info.bytes, &e),
            LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "out");
  EXPECT_EQ(lathe_prepack(kernel.get(), 1, nullptr, out.memory, info.bytes, &e), LATHE_STATUS_INVALID);
  w.shape[0] = 127;
  EXPECT_EQ(lathe_prepack(kernel.get(), 1, &w.tensor, out.memory, info.bytes, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "w.shape[0]");
}

TEST(CapiRefuse, Plans) {
  const auto ctx = make_context("portable");
  lathe_plan* p = nullptr;
  lathe_error e{};
  ASSERT_EQ(lathe_plan_create(ctx.get(), &p, &e), LATHE_STATUS_OK);
  const Owned<lathe_plan> plan(p);
  EXPECT_EQ(lathe_plan_load(p, nullptr, &e), LATHE_STATUS_INVALID);
  EXPECT_EQ(lathe_plan_load(p, "/nonexistent/manifest", &e), LATHE_STATUS_IO);
  EXPECT_NE(e.os_errno, 0);
  const std::string path = testing::TempDir() + "/lathe_bad_manifest_" + std::to_string(getpid()) + ".jsonl";
  std::ofstream(path) << "\n{\"name\": 3}\n";
  EXPECT_EQ(lathe_plan_load(p, path.c_str(), &e), LATHE_STATUS_INVALID);
  std::remove(path.c_str());
  EXPECT_NE(std::string(e.message).find(".jsonl:2: "), std::string::npos) << e.message;
  const auto graph = unary_graph(ctx.get(), "relu", {fixed(8)});
  EXPECT_EQ(lathe_plan_add(p, graph.get(), NAN, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "weight");
  EXPECT_EQ(lathe_plan_add(p, nullptr, 1, &e), LATHE_STATUS_INVALID);
  ASSERT_EQ(lathe_plan_add(p, graph.get(), 1, &e), LATHE_STATUS_OK);
  lathe_policy policy = LATHE_POLICY_INIT;
  EXPECT_EQ(lathe_plan_add_for(p, graph.get(), &policy, -1, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "weight");
  EXPECT_EQ(e.arg_index, 3);
  EXPECT_EQ(lathe_plan_add_for(nullptr, graph.get(), &policy, 1, &e), LATHE_STATUS_INVALID);
  EXPECT_EQ(lathe_plan_add_for(p, nullptr, &policy, 1, &e), LATHE_STATUS_INVALID);
  policy.device = 1;
  EXPECT_EQ(lathe_plan_add_for(p, graph.get(), &policy, 1, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "policy.device");
  policy.threads = 257;
  EXPECT_EQ(lathe_plan_add_for(p, graph.get(), &policy, 1, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "policy.threads");
  lathe_budget budget = LATHE_BUDGET_INIT;
  budget.tier = 3;
  EXPECT_EQ(lathe_plan_run(p, &budget, nullptr, nullptr, nullptr, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "budget.tier");
  budget.tier = 1;
  lathe_report report = LATHE_REPORT_INIT;
  const auto reenter = [](void* user, double, const char*) {
    lathe_error inner{};
    EXPECT_EQ(lathe_plan_run(static_cast<lathe_plan*>(user), nullptr, nullptr, nullptr, nullptr, &inner),
              LATHE_STATUS_STATE);
  };
  EXPECT_EQ(lathe_plan_run(p, &budget, reenter, p, &report, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(report.ops, 1u);
}

TEST(CapiLooking, CountersByNameAndAsText) {
  const auto ctx = make_context("portable");
  uint64_t value = 7;
  lathe_error e{};
  EXPECT_EQ(lathe_stats(ctx.get(), "no_such", &value, &e), LATHE_STATUS_INVALID);
  EXPECT_EQ(value, 7u);
  EXPECT_EQ(lathe_stats(ctx.get(), "compiles_after_seal", &value, &e), LATHE_STATUS_OK);
  EXPECT_EQ(value, 0u);
  EXPECT_EQ(lathe_stats(ctx.get(), "misses_off", &value, &e), LATHE_STATUS_OK);
  size_t needed = 0;
  EXPECT_EQ(lathe_stats_text(ctx.get(), nullptr, 0, &needed, &e), LATHE_STATUS_OK);
  std::string text(needed, 'x');
  EXPECT_EQ(lathe_stats_text(ctx.get(), text.data(), 10, &needed, &e), LATHE_STATUS_OK);
  EXPECT_EQ(text[9], 0);
  EXPECT_EQ(text[10], 'x');
  EXPECT_EQ(lathe_stats_text(ctx.get(), text.data(), text.size(), &needed, &e), LATHE_STATUS_OK);
  EXPECT_NE(text.find("lathe_compiles_after_seal 0"), std::string::npos);
  EXPECT_STREQ(lathe_status_name(LATHE_STATUS_MISS), "MISS");
  EXPECT_STREQ(lathe_status_name(static_cast<lathe_status>(99)), "UNKNOWN");
  EXPECT_EQ(lathe_version(), 10000u);
}

}  // namespace
}  // namespace lathe::test
