// What the C ABI refuses, a row per input: the status, the argument named, and nothing written.
#include <cmath>
#include <functional>

#include "tests/common/c_client.h"

namespace lathe::test {
namespace {

struct Refusal {
  const char* name;
  lathe_status status;
  const char* arg;  // as lathe_error names it
};

// --- Describing
// -------------------------------------------------------------------------------------------------------------

struct DescribeCase : Refusal {
  std::function<lathe_status(lathe_context*, lathe_graph**, lathe_error*)> call;
};

lathe_status single(lathe_context* ctx, const char* op, const std::vector<lathe_tensor_desc>& in,
                    const std::vector<lathe_attr>& attrs, lathe_graph** out, lathe_error* e) {
  return lathe_graph_single(ctx, op, in.data(), in.size(), attrs.data(), attrs.size(), out, e);
}

// One operator on one tensor "x" that `change` spoils.
std::function<lathe_status(lathe_context*, lathe_graph**, lathe_error*)> spoiled(
    std::vector<lathe_dim> dims, std::function<void(lathe_tensor_desc&)> change = [](auto&) {}) {
  return [dims, change](lathe_context* ctx, lathe_graph** out, lathe_error* e) {
    lathe_tensor_desc d = desc("x", dims);
    change(d);
    return lathe_graph_single(ctx, "relu", &d, 1, nullptr, 0, out, e);
  };
}
std::function<lathe_status(lathe_context*, lathe_graph**, lathe_error*)> with_attr(const char* op, lathe_attr attr) {
  return [op, attr](lathe_context* ctx, lathe_graph** out, lathe_error* e) {
    const std::vector<lathe_dim> dims = {fixed(4), fixed(8)};
    return single(ctx, op, {desc("x", dims)}, {attr}, out, e);
  };
}

const int64_t kNegative[] = {-8, 1};

const std::vector<DescribeCase> kDescribe = {{{"context_null", LATHE_STATUS_INVALID, "ctx"},
                                              [](auto*, auto** o, auto* e) {
                                                return single(nullptr, "relu", {}, {}, o, e);
                                              }},
                                             {{"context_foreign", LATHE_STATUS_INVALID, "ctx"},
                                              [](auto*, auto** o, auto* e) {
                                                uint64_t memory[8] = {};
                                                return single(reinterpret_cast<lathe_context*>(memory), "relu", {}, {},
                                                              o, e);
                                              }},
                                             {{"op_null", LATHE_STATUS_INVALID, "op"},
                                              [](auto* c, auto** o, auto* e) {
                                                return single(c, nullptr, {}, {}, o, e);
                                              }},
                                             {{"op_unknown", LATHE_STATUS_UNSUPPORTED, "op"},
                                              [](auto* c, auto** o, auto* e) {
                                                return single(c, "frobnicate", {}, {}, o, e);
                                              }},
                                             {{"inputs_null", LATHE_STATUS_INVALID, "inputs"},
                                              [](auto* c, auto** o, auto* e) {
                                                return lathe_graph_single(c, "relu", nullptr, 1, nullptr, 0, o, e);
                                              }},
                                             {{"attrs_null", LATHE_STATUS_INVALID, "attrs"},
                                              [](auto* c, auto** o, auto* e) {
                                                const std::vector<lathe_dim> dims = {fixed(4)};
                                                const lathe_tensor_desc d = desc("x", dims);
                                                return lathe_graph_single(c, "relu", &d, 1, nullptr, 1, o, e);
                                              }},
                                             {{"too_few_operands", LATHE_STATUS_INVALID, "nodes[0]"},
                                              [](auto* c, auto** o, auto* e) {
                                                return single(c, "add", {}, {}, o, e);
                                              }},
                                             {{"struct_size_zero", LATHE_STATUS_INVALID, "inputs[0].struct_size"},
                                              spoiled({fixed(4)}, [](auto& d) { d.struct_size = 0; })},
                                             {{"struct_size_huge", LATHE_STATUS_INVALID, "inputs[0].struct_size"},
                                              spoiled({fixed(4)}, [](auto& d) { d.struct_size = 1u << 30; })},
                                             {{"version_unknown", LATHE_STATUS_INVALID, "inputs[0].version"},
                                              spoiled({fixed(4)}, [](auto& d) { d.version = 7; })},
                                             {{"reserved_set", LATHE_STATUS_INVALID, "x.reserved"},
                                              spoiled({fixed(4)}, [](auto& d) { d.reserved = 1; })},
                                             {{"flags_unknown", LATHE_STATUS_INVALID, "x.flags"},
                                              spoiled({fixed(4)}, [](auto& d) { d.flags = 64; })},
                                             {{"name_null", LATHE_STATUS_INVALID, "inputs[0].name"},
                                              spoiled({fixed(4)}, [](auto& d) { d.name = nullptr; })},
                                             {{"name_empty", LATHE_STATUS_INVALID, "inputs[0].name"},
                                              spoiled({fixed(4)}, [](auto& d) { d.name = ""; })},
                                             {{"dtype_unknown", LATHE_STATUS_INVALID, "x.dtype"},
                                              spoiled({fixed(4)}, [](auto& d) { d.dtype = 99; })},
                                             {{"reserved2_set", LATHE_STATUS_INVALID, "x.reserved2"},
                                              spoiled({fixed(4)}, [](auto& d) { d.reserved2 = 1; })},
                                             {{"data_type_unknown", LATHE_STATUS_UNSUPPORTED, "x.data_type"},
                                              spoiled({fixed(4)},
                                                      [](auto& d) { d.data_type = {LATHE_TYPE_CODE_INT, 4, 1}; })},
                                             {{"data_type_no_code", LATHE_STATUS_UNSUPPORTED, "x.data_type"},
                                              spoiled({fixed(4)}, [](auto& d) { d.data_type = {200, 32, 1}; })},
                                             {{"data_type_vector", LATHE_STATUS_UNSUPPORTED, "x.data_type"},
                                              spoiled({fixed(4)},
                                                      [](auto& d) { d.data_type = {LATHE_TYPE_CODE_FLOAT, 32, 4}; })},
                                             {{"data_type_no_lanes", LATHE_STATUS_UNSUPPORTED, "x.data_type"},
                                              spoiled({fixed(4)},
                                                      [](auto& d) { d.data_type = {LATHE_TYPE_CODE_FLOAT, 32, 0}; })},
                                             {{"two_types", LATHE_STATUS_INVALID, "x.dtype"},
                                              spoiled({fixed(4)},
                                                      [](auto& d) {
                                                        d.dtype = LATHE_DTYPE_F16,
                                                        d.data_type = {LATHE_TYPE_CODE_BFLOAT, 16, 1};
                                                      })},
                                             {{"ndim_negative", LATHE_STATUS_INVALID, "x.ndim"},
                                              spoiled({fixed(4)}, [](auto& d) { d.ndim = -1; })},
                                             {{"ndim_nine", LATHE_STATUS_INVALID, "x.ndim"},
                                              spoiled(std::vector<lathe_dim>(9, fixed(1)))},
                                             {{"dims_null", LATHE_STATUS_INVALID, "x.dims"},
                                              spoiled({fixed(4)}, [](auto& d) { d.dims = nullptr; })},
                                             {{"dim_negative", LATHE_STATUS_INVALID, "x.shape[0]"},
                                              spoiled({fixed(-4)})},
                                             {{"dim_max_below_min", LATHE_STATUS_INVALID, "x.shape[0]"},
                                              spoiled({range("M", 8, 4)})},
                                             {{"dim_multiple_negative", LATHE_STATUS_INVALID, "x.shape[0]"},
                                              spoiled({range("M", 1, 4, -2)})},
                                             {{"dim_no_multiple_in_range", LATHE_STATUS_INVALID, "x.shape[0]"},
                                              spoiled({range("M", 5, 6, 4)})},
                                             {{"hints_null", LATHE_STATUS_INVALID, "x.shape[0].hints"},
                                              spoiled({{1, 8, 1, "M", nullptr, 2}})},
                                             {{"symbol_two_ranges", LATHE_STATUS_INVALID, "x.shape[1]"},
                                              spoiled({range("M", 1, 4), range("M", 1, 8)})},
                                             {{"seven_symbols", LATHE_STATUS_INVALID, "dims"},
                                              spoiled(
                                                  {range("A", 1, 2), range("B", 1, 2),
                                                   range("C", 1, 2), range("D", 1, 2), range("E", 1, 2), range("F", 1, 2), range("G", 1, 2)})},
                                             {{"bytes_overflow", LATHE_STATUS_INVALID, "x.shape"},
                                              spoiled({fixed(int64_t{1} << 40), fixed(int64_t{1} << 40)})},
                                             {{"stride_negative", LATHE_STATUS_INVALID, "x.strides[0]"},
                                              spoiled({fixed(4), fixed(8)}, [](auto& d) { d.strides = kNegative; })},
                                             {{"matmul_k", LATHE_STATUS_INVALID, "x.shape[1]"},
                                              [](auto* c, auto** o, auto* e) {
                                                const std::vector<lathe_dim> x = {fixed(4), fixed(128)},
                                                                             w = {fixed(96), fixed(8)};
                                                return single(c, "matmul", {desc("x", x), desc("w", w)}, {}, o, e);
                                              }},
                                             {{"name_twice", LATHE_STATUS_INVALID, "x"},
                                              [](auto* c, auto** o, auto* e) {
                                                const std::vector<lathe_dim> d = {fixed(4)};
                                                return single(c, "add", {desc("x", d), desc("x", d)}, {}, o, e);
                                              }},
                                             {{"attr_unknown", LATHE_STATUS_INVALID, nullptr},
                                              with_attr("softmax",
                                                        {"axes", LATHE_ATTR_INT, 0, 1, 0, nullptr, nullptr, 0})},
                                             {{"attr_type_wrong", LATHE_STATUS_INVALID, nullptr},
                                              with_attr("softmax",
                                                        {"axis", LATHE_ATTR_FLOAT, 0, 1, 0, nullptr, nullptr, 0})},
                                             {{"attr_type_unknown", LATHE_STATUS_INVALID, "attrs[0].type"},
                                              with_attr("softmax", {"axis", 77, 0, 1, 0, nullptr, nullptr, 0})},
                                             {{"attr_name_null", LATHE_STATUS_INVALID, "attrs[0].name"},
                                              with_attr("softmax",
                                                        {nullptr, LATHE_ATTR_INT, 0, 1, 0, nullptr, nullptr, 0})},
                                             {{"attr_reserved", LATHE_STATUS_INVALID, "attrs[0].reserved"},
                                              with_attr("softmax",
                                                        {"axis", LATHE_ATTR_INT, 3, 1, 0, nullptr, nullptr, 0})},
                                             {{"attr_bool_two", LATHE_STATUS_INVALID, "attrs[0].i"},
                                              with_attr("sum",
                                                        {"keepdims", LATHE_ATTR_BOOL, 0, 2, 0, nullptr, nullptr, 0})},
                                             {{"attr_string_null", LATHE_STATUS_INVALID, "attrs[0].s"},
                                              with_attr("gelu", {"approximate", LATHE_ATTR_STRING, 0, 0, 0, nullptr,
                                                                 nullptr, 0})},
                                             {{"attr_ints_null", LATHE_STATUS_INVALID, "attrs[0].ints"},
                                              with_attr("transpose",
                                                        {"perm", LATHE_ATTR_INTS, 0, 0, 0, nullptr, nullptr, 2})},
                                             {{"attr_missing", LATHE_STATUS_INVALID, nullptr},
                                              [](auto* c, auto** o, auto* e) {
                                                const std::vector<lathe_dim> d = {fixed(4), fixed(2)};
                                                return single(c, "transpose", {desc("x", d)}, {}, o, e);
                                              }}};

TEST(CapiRefuse, Describing) {
  const auto ctx = make_context();
  for (const DescribeCase& c : kDescribe) {
    SCOPED_TRACE(c.name);
    auto* const untouched = reinterpret_cast<lathe_graph*>(8);
    lathe_graph* out = untouched;
    lathe_error e{};
    ASSERT_EQ(c.call(ctx.get(), &out, &e), c.status) << e.message;
    EXPECT_EQ(e.code, c.status);
    if (c.arg != nullptr) {
      EXPECT_STREQ(e.arg_name, c.arg) << e.message;
    }
    EXPECT_NE(e.message[0], 0);
    EXPECT_EQ(out, untouched);
    EXPECT_EQ(c.call(ctx.get(), &out, nullptr), c.status);
  }
}

TEST(CapiRefuse, AnUnsupportedTypeIsSaidByResolveAtTheLatest) {
  const auto ctx = make_context();
  const std::vector<lathe_dim> x = {fixed(4), fixed(8)}, w = {fixed(8), fixed(4)};
  const lathe_tensor_desc in[] = {desc("x", x, 0, LATHE_DTYPE_BOOL), desc("w", w, 0, LATHE_DTYPE_BOOL)};
  lathe_graph* graph = nullptr;
  lathe_error e{};
  lathe_status status = lathe_graph_single(ctx.get(), "matmul", in, 2, nullptr, 0, &graph, &e);
  const Owned<lathe_graph> own(graph);
  lathe_kernel* kernel = nullptr;
  if (status == LATHE_STATUS_OK) status = lathe_resolve(ctx.get(), graph, nullptr, &kernel, nullptr, &e);
  EXPECT_TRUE(status == LATHE_STATUS_UNSUPPORTED || status == LATHE_STATUS_INVALID) << status;
  EXPECT_NE(e.message[0], 0);
}

TEST(CapiRefuse, GraphsStepByStep) {
  const auto ctx = make_context();
  lathe_error e{};
  lathe_graph* graph = nullptr;
  ASSERT_EQ(lathe_graph_create(ctx.get(), nullptr, &graph, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "name");
  ASSERT_EQ(lathe_graph_create(ctx.get(), "g", nullptr, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "out");
  ASSERT_EQ(lathe_graph_create(ctx.get(), "g", &graph, &e), LATHE_STATUS_OK);
  const std::vector<lathe_dim> dims = {fixed(4)};
  const lathe_tensor_desc d = desc("x", dims);
  int32_t x = -1, y = -1;
  EXPECT_EQ(lathe_graph_tensor(graph, nullptr, &x, &e), LATHE_STATUS_INVALID);
  ASSERT_EQ(lathe_graph_tensor(graph, &d, &x, &e), LATHE_STATUS_OK);
  const int32_t bad[] = {3};
  EXPECT_EQ(lathe_graph_op(graph, "relu", bad, 1, nullptr, 0, "y", &y, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "inputs[0]");
  EXPECT_EQ(lathe_graph_finish(graph, &e), LATHE_STATUS_INVALID);  // no output
  ASSERT_EQ(lathe_graph_op(graph, "relu", &x, 1, nullptr, 0, "y", &y, &e), LATHE_STATUS_OK);
  EXPECT_EQ(lathe_graph_output(graph, 9, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "id");
  ASSERT_EQ(lathe_graph_output(graph, y, &e), LATHE_STATUS_OK);
  lathe_kernel* kernel = nullptr;
  EXPECT_EQ(lathe_resolve(ctx.get(), graph, nullptr, &kernel, nullptr, &e), LATHE_STATUS_STATE);
  ASSERT_EQ(lathe_graph_finish(graph, &e), LATHE_STATUS_OK) << e.message;
  EXPECT_EQ(lathe_graph_output(graph, y, &e), LATHE_STATUS_STATE);
  EXPECT_EQ(lathe_graph_finish(graph, &e), LATHE_STATUS_STATE);
  const auto other = make_context();
  EXPECT_EQ(lathe_resolve(other.get(), graph, nullptr, &kernel, nullptr, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "graph");
  lathe_graph_destroy(graph);
  EXPECT_EQ(lathe_graph_output(graph, y, &e), LATHE_STATUS_STATE);
  lathe_graph_destroy(graph);
  lathe_graph_destroy(nullptr);
}

// --- Contexts, policies
// -----------------------------------------------------------------------------------------------------

TEST(CapiRefuse, ContextOptions) {
  const struct {
    Refusal want;
    std::function<void(lathe_context_options&)> spoil;
  } cases[] = {
      {{"size", LATHE_STATUS_INVALID, "options.struct_size"}, [](auto& o) { o.struct_size = 4; }},
      {{"version", LATHE_STATUS_INVALID, "options.version"}, [](auto& o) { o.version = 2; }},
      {{"reserved", LATHE_STATUS_INVALID, "options.reserved"}, [](auto& o) { o.reserved = 2; }},
      {{"threads", LATHE_STATUS_INVALID, "options.own_threads"}, [](auto& o) { o.own_threads = -1; }},
      {{"tune", LATHE_STATUS_INVALID, "options.tune"}, [](auto& o) { o.tune = 5; }},
      {{"tune cpu", LATHE_STATUS_INVALID, "options.tune_cpu"}, [](auto& o) { o.tune_cpu = 101; }},
      {{"background", LATHE_STATUS_INVALID, "options.background_threads"}, [](auto& o) { o.background_threads = 2; }},
      {{"reserved2", LATHE_STATUS_INVALID, "options.reserved2"}, [](auto& o) { o.reserved2 = 1; }},
      {{"isa", LATHE_STATUS_INVALID, "options.max_isa"}, [](auto& o) { o.max_isa = "z80"; }},
      {{"worker", LATHE_STATUS_INVALID, "options.worker_path"}, [](auto& o) { o.worker_path = "relative/worker"; }},
      {{"layers", LATHE_STATUS_INVALID, "options.layers"}, [](auto& o) { o.num_layers = 1; }},
      {{"layer path", LATHE_STATUS_INVALID, "options.layers[0].path"},
       [](auto& o) {
         static const lathe_layer layer = {"relative", 0, 0};
         o.layers = &layer;
         o.num_layers = 1;
       }},
      {{"layer kind", LATHE_STATUS_INVALID, "options.layers[0].kind"}, [](auto& o) {
         static const lathe_layer layer = {"/nowhere", 9, 0};
         o.layers = &layer;
         o.num_layers = 1;
       }}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.want.name);
    lathe_context_options o = LATHE_CONTEXT_OPTIONS_INIT;
    c.spoil(o);
    lathe_context* out = nullptr;
    lathe_error e{};
    EXPECT_EQ(lathe_context_create(&o, &out, &e), c.want.status) << e.message;
    EXPECT_STREQ(e.arg_name, c.want.arg) << e.message;
    EXPECT_EQ(out, nullptr);
  }
  lathe_error e{};
  EXPECT_EQ(lathe_context_create(nullptr, nullptr, &e), LATHE_STATUS_INVALID);
  const auto ctx = make_context();
  EXPECT_EQ(lathe_seal(ctx.get(), 9, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "mode");
  for (const uint32_t mode : {uint32_t{LATHE_TUNE_DEFAULT}, uint32_t{LATHE_TUNE_TRIALS} + 1}) {
    e = {};
    EXPECT_EQ(lathe_tune_mode(ctx.get(), mode, &e), LATHE_STATUS_INVALID);
    EXPECT_STREQ(e.arg_name, "mode");
  }
  EXPECT_EQ(lathe_tune_mode(nullptr, LATHE_TUNE_OFF, &e), LATHE_STATUS_INVALID);
}

TEST(CapiRefuse, StructsOfOtherSizes) {
  const auto ctx = make_context();
  const auto graph = unary_graph(ctx.get(), "relu", {fixed(4)});
  struct {
    lathe_policy policy;
    uint64_t tail;
  } longer = {LATHE_POLICY_INIT, 0};
  longer.policy.struct_size = sizeof(longer);
  lathe_kernel* kernel = nullptr;
  lathe_error e{};
  EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), &longer.policy, &kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  lathe_kernel_destroy(kernel);
  longer.tail = 1;
  EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), &longer.policy, &kernel, nullptr, &e), LATHE_STATUS_INVALID);
  EXPECT_STREQ(e.arg_name, "policy.struct_size");
  lathe_policy shorter = LATHE_POLICY_INIT;
  shorter.struct_size = 16;
  shorter.threads = -7;  // beyond its end
  EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), &shorter, &kernel, nullptr, &e), LATHE_STATUS_OK) << e.message;
  lathe_kernel_destroy(kernel);
}

TEST(CapiRefuse, StoredOnlyIsAMissOnEveryLevel) {
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    SCOPED_TRACE(isa);
    const auto ctx = make_context(isa);
    const auto graph = matmul_graph(ctx.get(), range("M", 1, 64), 16, 16);
    lathe_policy p = LATHE_POLICY_INIT;
    p.wait = LATHE_WAIT_STORED;
    lathe_kernel* out = nullptr;
    lathe_error e{};
    EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), &p, &out, nullptr, &e), LATHE_STATUS_MISS) << e.message;
    EXPECT_EQ(out, nullptr);
  }
}

TEST(CapiRefuse, Policies) {
  const auto ctx = make_context();
  const auto graph = matmul_graph(ctx.get(), range("M", 1, 64), 16, 16);
  const struct {
    Refusal want;
    std::function<void(lathe_policy&)> spoil;
  } cases[] = {{{"wait", LATHE_STATUS_INVALID, "policy.wait"}, [](auto& p) { p.wait = 3; }},
               {{"allowed", LATHE_STATUS_INVALID, "policy.allowed"}, [](auto& p) { p.allowed = 1u << 20; }},
               {{"threads", LATHE_STATUS_INVALID, "policy.threads"}, [](auto& p) { p.threads = -1; }},
               {{"cold", LATHE_STATUS_INVALID, "policy.cold"}, [](auto& p) { p.cold = 2; }},
               {{"compiled only", LATHE_STATUS_MISS, ""}, [](auto& p) { p.wait = LATHE_WAIT_STORED; }}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.want.name);
    lathe_policy p = LATHE_POLICY_INIT;
    c.spoil(p);
    lathe_kernel* out = nullptr;
    lathe_error e{};
    EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), &p, &out, nullptr, &e), c.want.status) << e.message;
    EXPECT_STREQ(e.arg_name, c.want.arg) << e.message;
    EXPECT_EQ(out, nullptr);
  }
}

}  // namespace
}  // namespace lathe::test
