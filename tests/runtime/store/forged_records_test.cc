// Records that are well-formed, carry the right checksum and lie: no resolve fails for one, no result is wrong, none
// touches a byte outside its operands, and what does not serve is counted with a reason. Through the C ABI, between
// unmapped pages.
#include <cmath>
#include <filesystem>
#include <random>

#include "runtime/capi/handle.h"
#include "search/sketches/recipe.h"
#include "tests/common/c_client.h"
#include "tests/common/generators.h"
#include "tests/common/guard_buffer.h"

namespace lathe::test {
namespace {

using runtime::Decision;
using runtime::MissReason;

struct TempStore {
  TempStore() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lathe-forged-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~TempStore() { std::filesystem::remove_all(path); }
  std::string path;
};

// store: null: in memory.
Owned<lathe_context> context_on(const TempStore* store) {
  setenv("LATHE_CACHE", store == nullptr ? "off" : "rw", 1);
  lathe_layer layer = {store == nullptr ? nullptr : store->path.c_str(), LATHE_LAYER_SHARED, 0};
  lathe_context_options o = LATHE_CONTEXT_OPTIONS_INIT;
  o.layers = &layer;
  o.num_layers = store != nullptr;
  lathe_context* out = nullptr;
  lathe_error e{};
  EXPECT_EQ(lathe_context_create(&o, &out, &e), LATHE_STATUS_OK) << e.message;
  return Owned<lathe_context>(out);
}

lathe_dim hinted(const char* symbol, int64_t min, int64_t max) {
  static const lathe_hint kHints[] = {{1, 1.0}, {7, 1.0}};
  return {min, max, 1, symbol, kHints, 2};
}

Owned<lathe_graph> single(lathe_context* ctx, const char* op, const std::vector<lathe_tensor_desc>& inputs) {
  lathe_graph* out = nullptr;
  lathe_error e{};
  EXPECT_EQ(lathe_graph_single(ctx, op, inputs.data(), inputs.size(), nullptr, 0, &out, &e), LATHE_STATUS_OK)
      << e.message;
  return Owned<lathe_graph>(out);
}

// An operator, the extents of its arguments at m (-1: m itself), and the arguments that are constant.
struct Operand {
  const char* name;
  Owned<lathe_graph> (*graph)(lathe_context* ctx);
  std::vector<std::vector<int64_t>> args;
  std::vector<int> constants;
  std::vector<int64_t> m;
  float tolerance;
};
void PrintTo(const Operand& o, std::ostream* out) { *out << o.name; }

Owned<lathe_graph> fixed_matmul(lathe_context* ctx) { return matmul_graph(ctx, fixed(6), 21, 9); }
Owned<lathe_graph> hinted_matmul(lathe_context* ctx) { return matmul_graph(ctx, hinted("M", 1, 64), 19, 37); }
Owned<lathe_graph> hinted_softmax(lathe_context* ctx) {
  return unary_graph(ctx, "softmax", {hinted("M", 1, 64), fixed(70)});
}
Owned<lathe_graph> fixed_layernorm(lathe_context* ctx) {
  const std::vector<lathe_dim> x = {fixed(6), fixed(35)}, row = {fixed(35)};
  return single(ctx, "layernorm",
                {desc("x", x), desc("g", row, LATHE_TENSOR_CONST), desc("b", row, LATHE_TENSOR_CONST)});
}

const std::vector<Operand>& operands() {
  static const std::vector<Operand> kAll = {
      {"fixed_matmul", fixed_matmul, {{6, 21}, {21, 9}, {6, 9}}, {1}, {6}, 0},
      {"hinted_matmul", hinted_matmul, {{-1, 19}, {19, 37}, {-1, 37}}, {1}, {1, 5, 7, 64}, 0},
      {"hinted_softmax", hinted_softmax, {{-1, 70}, {-1, 70}}, {}, {1, 6, 64}, 1e-5f},
      {"fixed_layernorm", fixed_layernorm, {{6, 35}, {35}, {35}, {6, 35}}, {1, 2}, {6}, 1e-4f},
  };
  return kAll;
}

using Side = GuardBuffer::Side;

// The last argument, computed at m between unmapped pages; packed: with the constants in the layouts the kernel wants.
std::vector<float> compute(lathe_kernel* kernel, const Operand& op, int64_t m, bool packed, Side side) {
  std::vector<std::unique_ptr<GuardBuffer>> memory;
  std::vector<std::vector<int64_t>> shapes = op.args;
  std::vector<lathe_tensor> tensors(shapes.size());
  std::vector<lathe_arg> args(shapes.size());
  lathe_error e{};
  for (size_t a = 0; a < shapes.size(); ++a) {
    size_t n = 1;
    for (int64_t& d : shapes[a]) n *= static_cast<size_t>(d = d < 0 ? m : d);
    memory.push_back(std::make_unique<GuardBuffer>(n * sizeof(float), side));
    float* data = memory.back()->data<float>();
    for (size_t i = 0; i < n; ++i) data[i] = a + 1 < shapes.size() ? static_cast<float>((i * 7 + a * 3) % 11) - 5 : NAN;
    if (a + 1 < shapes.size()) memory.back()->make_read_only();
    tensors[a] = {data, {1, 0}, static_cast<int32_t>(shapes[a].size()), {2, 32, 1}, shapes[a].data(), nullptr, 0};
    args[a] = {&tensors[a], n * sizeof(float), 0, 0, 0};
  }
  bool any = false;
  for (size_t c = 0; packed && c < op.constants.size(); ++c) {
    lathe_pack_info pack{};
    EXPECT_EQ(lathe_prepack_query(kernel, op.constants[c], &pack, &e), LATHE_STATUS_OK) << e.message;
    if (pack.bytes == 0) continue;
    any = true;
    memory.push_back(std::make_unique<GuardBuffer>((pack.bytes + 63) / 64 * 64, side));
    void* to = memory.back()->data<void>();
    const auto number = static_cast<size_t>(op.constants[c]);
    EXPECT_EQ(lathe_prepack(kernel, op.constants[c], &tensors[number], to, pack.bytes, &e), LATHE_STATUS_OK)
        << e.message;
    memory.back()->make_read_only();
    tensors[number].data = to;
    args[number] = {&tensors[number], pack.bytes, 0, 0, pack.layout_id};
  }
  if (packed && !any) return {};
  uint64_t bytes = 0;
  EXPECT_EQ(lathe_workspace_bytes(kernel, args.data(), args.size(), 1, &bytes, &e), LATHE_STATUS_OK) << e.message;
  GuardBuffer workspace((bytes + 63) / 64 * 64, side);
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.workspace = workspace.data<void>();
  exec.workspace_bytes = bytes;
  EXPECT_EQ(lathe_execute(kernel, args.data(), args.size(), &exec, &e), LATHE_STATUS_OK) << e.message;
  const GuardBuffer& out = *memory[shapes.size() - 1];
  EXPECT_TRUE(out.canaries_intact());
  return {out.data<float>(), out.data<float>() + out.size() / sizeof(float)};
}

void expect_close(const std::vector<float>& got, const std::vector<float>& want, float tolerance,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    const bool close = tolerance == 0 ? got[i] == want[i]
                                      : std::fabs(got[i] - want[i]) <= tolerance * std::max(1.0f, std::fabs(want[i]));
    ASSERT_TRUE(close) << what << "\nelement " << i << ": " << got[i] << ", expected " << want[i];
  }
}

// The operator's Kernel as the searches see it, and its record in a store.
struct Bed {
  explicit Bed(lathe_context* ctx, const lathe_graph* graph) : context(ctx->body->state->context) {
    op = runtime::Operator::create(context, graph->body->graph).value();
    request.allowed = LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT;
    dims = op->hinted_dims().back();
    problem = op->problem(0, dims, request);
    standard = search::default_schedule(problem, context->target());
  }
  void record(const std::string& schedule, const std::function<void(Decision&)>& change = {}) {
    Decision d;
    d.status = runtime::DecisionStatus::verified;
    d.kernel = problem.kernel.name;
    d.schedule = schedule;
    const runtime::DecisionQuery query = op->query(0, dims, request);
    context->record_decision(query, d);
    if (!change) return;
    Decision written = context->find_decision(query).value();
    const runtime::ObjectKey key{runtime::ObjectKind::k_decision, context->environment(), written.key};
    change(written);
    EXPECT_TRUE(context->store().put(key, print_decision(written)).ok());
  }
  std::shared_ptr<runtime::Context> context;
  std::shared_ptr<runtime::Operator> op;
  runtime::PrepareRequest request;
  runtime::SymbolValues dims;
  search::Problem problem;
  search::Schedule standard;
};

int64_t counted(const lathe_context* ctx) {
  const runtime::Stats& stats = ctx->body->state->context->stats();
  return stats.misses() - stats.misses(MissReason::k_never_seen) - stats.misses(MissReason::k_off);
}

bool serves_tier_two(const lathe_kernel* kernel) {
  const auto& stages = kernel->body->op->stages().of(0);
  return std::any_of(stages.begin(), stages.end(), [](const auto& s) { return s->tier == 2; });
}

// A forged record; unfit: it cannot serve.
struct Forgery {
  std::string name, schedule;
  std::function<void(Decision&)> change;
  bool unfit = true;
};

std::string first_buffer(const Bed& bed, ir::Place place) {
  for (const ir::Buffer& b : bed.problem.kernel.buffers) {
    if (b.place == place) return b.name;
  }
  return "none";
}
std::string first_scope(const Bed& bed) { return bed.problem.kernel.body.front().iter; }

std::vector<Forgery> forgeries(const Bed& bed, bool symbols) {
  const std::string standard = search::to_text(bed.standard), family = bed.problem.kernel.family;
  const std::string header = "schedule 1 family " + family + " class exact\n",
                    w = first_buffer(bed, ir::Place::constant);
  const std::string input = first_buffer(bed, ir::Place::in), scope = first_scope(bed);
  std::vector<Forgery> out = {
      {"not a schedule", "hello", {}},
      {"an empty schedule text", "", {}},
      {"a move nobody knows", standard + "make_it_fast x\n", {}},
      {"a move that is refused", standard + "parallelize nowhere\n", {}},
      {"of another family", "schedule 1 family pack class exact\n", {}},
      {"of another epoch", standard, [](Decision& d) { d.epoch -= 1; }},
      {"of a later epoch", standard, [](Decision& d) { d.epoch += 1; }},
      {"of another machine", standard, [](Decision& d) { d.environment[0] = d.environment[0] == 'a' ? 'b' : 'a'; }},
      {"for another key", standard, [](Decision& d) { d.key += "1"; }},
      {"a claimed class beyond the request", standard, [](Decision& d) { d.numeric |= LATHE_CLASS_APPROXIMATE; }},
      {"a header that claims what is not taken", "schedule 1 family " + family + " class reduced_accumulate\n", {}},
      {"the callers' input padded", header + "increment_padding " + input + " 1 32\n", {}},
      {"4,000 moves", header, {}},
      {"2,000 temporaries", header, {}},
      {"a nest of 40 loops", header, {}, false},
      {"a statement copied again and again", header, {}, false},
  };
  if (standard.find("class exact") == std::string::npos) {
    std::string honest = standard;
    const size_t from = honest.find("class ");
    honest.replace(from, honest.find('\n') - from, "class exact");
    out.push_back({"liberties that are not admitted", honest, {}});
  }
  for (Forgery& f : out) {
    if (f.name == "4,000 moves") {
      for (int i = 0; i < 2000; ++i) f.schedule += "unroll_scope " + scope + "\nunroll_scope " + scope + "\n";
    } else if (f.name == "2,000 temporaries") {
      for (int i = 0; i < 2000; ++i)
        f.schedule +=
            fmt::format("create_temporary {} t{} at={}\n", i == 0 ? input : fmt::format("t{}", i - 1), i, scope);
    } else if (f.name == "a nest of 40 loops") {
      for (int i = 0; i < 40; ++i)
        f.schedule +=
            fmt::format("tile_scope {} 2 tail=mask as a{},b{}\n", i == 0 ? scope : fmt::format("a{}", i - 1), i, i);
    } else if (f.name == "a statement copied again and again") {
      for (int i = 0; i < 30; ++i)
        f.schedule +=
            fmt::format("tile_scope {} 2 tail=peel as a{},b{},c{}\ntile_scope a{} 2 tail=peel as d{},e{},f{}\n",
                        i == 0 ? scope : fmt::format("d{}", i - 1), i, i, i, i, i, i, i);
    }
  }
  if (w == "none") return out;
  // One that pads or tiles a constant may serve where it alone chooses the layout; where a default shares it, it may
  // not.
  out.push_back({"a constant padded", header + "increment_padding " + w + " 0 32\n", {}, symbols});
  out.push_back({"a constant padded after the default", standard + "repeat_padding " + w + " 0 1\n", {}});
  out.push_back({"a constant tiled", header + "tile_buffer " + w + " 0 4\n", {}, symbols});
  out.push_back({"a constant padded by gigabytes", header + "increment_padding " + w + " 0 2147483648\n", {}});
  out.push_back({"a constant in tiles of gigabytes", header + "tile_buffer " + w + " 0 2147483648\n", {}});
  return out;
}

// Random moves, most of them legal, on top of the default or the naive Kernel; whether it can serve is open.
Forgery random_forgery(const Bed& bed, std::mt19937_64& random) {
  search::Schedule s;
  s.family = bed.problem.kernel.family;
  ir::Kernel kernel = bed.problem.kernel;
  const auto add = [&](const search::Move& move) {
    ir::Result<search::TransformResult> next = search::apply(kernel, move, {.verify = false});
    if (!next.ok()) return;
    kernel = std::move(next->kernel);
    s.moves.push_back(move);
  };
  const size_t own = random() % (bed.standard.moves.size() + 1);
  for (size_t i = 0; i < own; ++i) add(bed.standard.moves[i]);
  for (size_t i = 0; i < 4; ++i) {
    static const char* const kLayout[] = {"increment_padding", "repeat_padding",   "tile_buffer",
                                          "swap_dims",         "vectorize_buffer", "space_dim"};
    const search::Transform& row = random() % 2 == 0 ? *search::find_transform(kLayout[random() % std::size(kLayout)])
                                                     : search::transforms()[random() % search::transforms().size()];
    const std::vector<search::Move> moves = row.propose(kernel);
    if (!moves.empty()) add(moves[random() % moves.size()]);
  }
  for (size_t i = own; i < bed.standard.moves.size(); ++i) add(bed.standard.moves[i]);
  s.numeric = kernel.numeric;
  return {"random moves", search::to_text(s), {}, false};
}

class ForgedRecords : public testing::TestWithParam<Operand> {
 protected:
  void SetUp() override {
    const auto ctx = context_on(nullptr);
    const auto graph = GetParam().graph(ctx.get());
    const auto kernel = resolve(ctx.get(), graph.get());
    for (const int64_t m : GetParam().m)
      want_.push_back(compute(kernel.get(), GetParam(), m, false, Side::ends_at_guard));
  }
  // Writes the record, resolves in a context of its own, computes.
  void try_one(const Forgery& f) {
    const Operand& op = GetParam();
    const std::string what = f.name + "\n" + f.schedule.substr(0, 2000);
    const TempStore store;
    {
      const auto ctx = context_on(&store);
      const auto graph = op.graph(ctx.get());
      Bed(ctx.get(), graph.get()).record(f.schedule, f.change);
    }
    const auto ctx = context_on(&store);
    const auto graph = op.graph(ctx.get());
    const auto kernel = resolve(ctx.get(), graph.get());
    ASSERT_NE(kernel, nullptr) << what;
    const bool served = serves_tier_two(kernel.get());
    EXPECT_FALSE(f.unfit && served) << what;
    EXPECT_TRUE(served || counted(ctx.get()) > 0) << what;
    served_ += served;
    for (const Side side : {Side::ends_at_guard, Side::starts_after_guard}) {
      for (size_t i = 0; i < op.m.size(); ++i) {
        expect_close(compute(kernel.get(), op, op.m[i], false, side), want_[i], op.tolerance, what);
        const std::vector<float> packed = compute(kernel.get(), op, op.m[i], true, side);
        if (!packed.empty()) expect_close(packed, want_[i], op.tolerance, what);
      }
    }
  }
  std::vector<std::vector<float>> want_;
  int served_ = 0;
};

TEST_P(ForgedRecords, neither_fail_a_resolve_nor_pass_uncounted) {
  if (!jit::backend_built(jit::Backend::xbyak)) GTEST_SKIP() << "built with LATHE_XBYAK=OFF";
  std::vector<Forgery> list;
  {
    const auto ctx = context_on(nullptr);
    const auto graph = GetParam().graph(ctx.get());
    const Bed bed(ctx.get(), graph.get());
    list = forgeries(bed, !bed.op->lowered().kernels[0].kernel.symbols.empty());
    std::mt19937_64 random(9);
    while (list.size() < 50) list.push_back(random_forgery(bed, random));
  }
  for (const Forgery& f : list) {
    SCOPED_TRACE(f.name);
    try_one(f);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(served_, 3) << "nothing served: the forgeries are too coarse to test anything";
}

// What is stored does not serve, and nothing may be made in its place.
TEST_P(ForgedRecords, are_misses_under_the_strictest_seal) {
  for (const char* name :
       {"not a schedule", "a move that is refused", "of another epoch", "liberties that are not admitted"}) {
    const TempStore store;
    bool found = false;
    {
      const auto ctx = context_on(&store);
      const auto graph = GetParam().graph(ctx.get());
      Bed bed(ctx.get(), graph.get());
      const auto kernel = resolve(ctx.get(), graph.get());  // all the code there is, is stored
      for (const Forgery& f : forgeries(bed, false)) {
        if (f.name != name) continue;
        found = true;
        for (const runtime::SymbolValues& dims : bed.op->hinted_dims()) {
          bed.dims = dims;
          bed.record(f.schedule, f.change);
        }
      }
    }
    if (!found) continue;
    const auto ctx = context_on(&store);
    lathe_error e{};
    ASSERT_EQ(lathe_seal(ctx.get(), LATHE_SEAL_ERROR, &e), LATHE_STATUS_OK);
    const auto graph = GetParam().graph(ctx.get());
    lathe_kernel* out = nullptr;
    EXPECT_EQ(lathe_resolve(ctx.get(), graph.get(), nullptr, &out, nullptr, &e), LATHE_STATUS_MISS)
        << name << ": " << e.message;
    EXPECT_EQ(out, nullptr);
    EXPECT_GT(counted(ctx.get()), 0) << name;
    lathe_kernel_destroy(out);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ForgedRecords, testing::ValuesIn(operands()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace lathe::test
