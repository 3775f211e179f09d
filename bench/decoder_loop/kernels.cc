// The calls of lathe.h, each with its status looked at: see kernels.h.
#include "bench/decoder_loop/kernels.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <new>

#include "bench/decoder_loop/gguf.h"

namespace lathe::decoder {

namespace {

constexpr size_t kMostArguments = 8, kMostDims = 4;

void check(lathe_status status, const lathe_error& error) {
  if (status != LATHE_STATUS_OK) {
    throw Problem(std::string("Lathe: ") + lathe_status_name(status) + " " + error.arg_name + ": " + error.message);
  }
}

lathe_data_type type_of(uint32_t dtype) {
  switch (dtype) {
    case LATHE_DTYPE_U8:
      return {LATHE_TYPE_CODE_UINT, 8, 1};
    case LATHE_DTYPE_I32:
      return {LATHE_TYPE_CODE_INT, 32, 1};
    case LATHE_DTYPE_F16:
      return {LATHE_TYPE_CODE_FLOAT, 16, 1};
    case LATHE_DTYPE_BF16:
      return {LATHE_TYPE_CODE_BFLOAT, 16, 1};
    default:
      return {LATHE_TYPE_CODE_FLOAT, 32, 1};
  }
}

// Room for what the C interface takes by pointers that are not const.
using Dims = std::array<int64_t, kMostDims>;

lathe_tensor tensor_of(const Argument& a, Dims& shape, Dims& strides) {
  std::copy(a.shape.begin(), a.shape.end(), shape.begin());
  std::copy(a.strides.begin(), a.strides.end(), strides.begin());
  return {const_cast<void*>(a.data),
          {1, 0},
          static_cast<int32_t>(a.shape.size()),
          type_of(a.dtype),
          shape.data(),
          a.strides.empty() ? nullptr : strides.data(),
          0};
}

}  // namespace

void FreeMemory::operator()(float* p) const { std::free(p); }

Floats reserve_bytes(uint64_t bytes) {
  auto* memory = static_cast<float*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
  if (memory == nullptr) throw std::bad_alloc();
  return Floats(memory);
}

Context::Context(int threads, bool quantised, double tune_seconds)
    : threads_(threads), quantised_(quantised), tune_seconds_(tune_seconds) {
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.own_threads = threads;
  lathe_error e{};
  check(lathe_context_create(&options, &context_, &e), e);
}

Context::~Context() { lathe_context_destroy(context_); }

uint64_t Context::counter(const char* name) const {
  uint64_t value = 0;
  lathe_error e{};
  check(lathe_stats(context_, name, &value, &e), e);
  return value;
}

void* Context::workspace(uint64_t bytes) {
  if (bytes > workspace_bytes_) {
    workspace_ = reserve_bytes(bytes);
    workspace_bytes_ = bytes;
  }
  return bytes == 0 ? nullptr : workspace_.get();
}

void* Context::room_of_constant(uint64_t bytes) {
  constexpr uint64_t kLine = 64, kPage = uint64_t{2} << 20, kBlock = 16 * kPage;
  const uint64_t whole = (bytes + kLine - 1) / kLine * kLine;
  if (whole > free_bytes_) {
    const uint64_t block = std::max((whole + kPage - 1) / kPage * kPage, kBlock);
    auto* memory = static_cast<float*>(std::aligned_alloc(kPage, block));
    if (memory == nullptr) throw std::bad_alloc();
    blocks_.emplace_back(memory);
    (void)madvise(memory, block, MADV_HUGEPAGE);
    free_ = reinterpret_cast<std::byte*>(memory);
    free_bytes_ = block;
  }
  void* room = free_;
  free_ += whole;
  free_bytes_ -= whole;
  return room;
}

namespace {

// Nobody waits for a first call: default Schedules may be as much code as they like.
void compile(const Context& context, const lathe_graph* graph, const lathe_policy& policy) {
  lathe_error e{};
  lathe_plan* plan = nullptr;
  check(lathe_plan_create(context.handle(), &plan, &e), e);
  const std::unique_ptr<lathe_plan, decltype(&lathe_plan_destroy)> owned(plan, lathe_plan_destroy);
  lathe_budget budget = LATHE_BUDGET_INIT;
  budget.tier = 1;
  check(lathe_plan_add_for(plan, graph, &policy, 1, &e), e);
  check(lathe_plan_run(plan, &budget, nullptr, nullptr, nullptr, &e), e);
}

}  // namespace

Graph::Graph(const Context& context, const char* name, const std::vector<Operand>& inputs) {
  lathe_error e{};
  check(lathe_graph_create(context.handle(), name, &graph_, &e), e);
  for (const Operand& input : inputs) {
    // Decode and a prompt: what the default Schedules are chosen for.
    const lathe_hint hints[] = {{1, 1.0}, {128, 1.0}};
    std::vector<lathe_dim> dims;
    for (const Size& s : input.sizes) {
      if (s.symbol == nullptr) {
        dims.push_back({s.most, s.most, 1, nullptr, nullptr, 0});
      } else {
        dims.push_back({1, s.most, 1, s.symbol, hints, s.most < 128 ? size_t{1} : size_t{2}});
      }
    }
    lathe_tensor_desc d = LATHE_TENSOR_DESC_INIT;
    d.name = input.name;
    d.ndim = static_cast<int32_t>(dims.size());
    d.dims = dims.data();
    d.strides = input.strides.empty() ? nullptr : input.strides.data();
    d.dtype = input.dtype;
    d.flags = input.constant ? uint32_t{LATHE_TENSOR_CONST} : 0u;
    int32_t id = 0;
    check(lathe_graph_tensor(graph_, &d, &id, &e), e);
  }
}

Graph::~Graph() { lathe_graph_destroy(graph_); }

int32_t Graph::node(const char* op, const std::vector<int32_t>& inputs, const std::vector<lathe_attr>& attributes) {
  const std::string name = "t" + std::to_string(nodes_++);
  int32_t id = 0;
  lathe_error e{};
  check(lathe_graph_op(graph_, op, inputs.data(), inputs.size(), attributes.data(), attributes.size(), name.c_str(),
                       &id, &e),
        e);
  return id;
}

const lathe_graph* Graph::finish(std::initializer_list<int32_t> results) {
  lathe_error e{};
  for (const int32_t result : results) check(lathe_graph_output(graph_, result, &e), e);
  check(lathe_graph_finish(graph_, &e), e);
  return graph_;
}

Kernel::Kernel(Context& context, const std::string& name, const std::vector<Operand>& inputs, const Build& build)
    : context_(context), name_(name) {
  Graph graph(context, name.c_str(), inputs);
  const lathe_graph* finished = build(graph);
  lathe_policy policy = LATHE_POLICY_INIT;
  policy.threads = context.threads();
  policy.cold = 1;
  if (context.quantised())
    policy.allowed = LATHE_CLASS_REASSOCIATE | LATHE_CLASS_CONTRACT | LATHE_CLASS_QUANTISED_ACTIVATIONS;
  lathe_error e{};
  if (context.tune_seconds() > 0) {
    policy.wait = LATHE_WAIT_TUNED;
    policy.deadline_ns = static_cast<uint64_t>(context.tune_seconds() * 1e9);
  } else {
    compile(context, finished, policy);
  }
  check(lathe_resolve(context.handle(), finished, &policy, &kernel_, nullptr, &e), e);
}

Kernel::~Kernel() { lathe_kernel_destroy(kernel_); }

Packed Kernel::pack(int input, const Argument& plain) const {
  lathe_pack_info info{};
  lathe_error e{};
  check(lathe_prepack_query(kernel_, input, &info, &e), e);
  if (info.bytes == 0) return {};
  Dims shape{}, strides{};
  const lathe_tensor source = tensor_of(plain, shape, strides);
  void* room = context_.room_of_constant(info.bytes);
  check(lathe_prepack(kernel_, input, &source, room, info.bytes, &e), e);
  return {room, info.layout_id, info.bytes};
}

void Kernel::run(std::initializer_list<Argument> arguments) {
  if (context_.profile() == nullptr) return execute(arguments);
  const auto start = std::chrono::steady_clock::now();
  execute(arguments);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto rows = static_cast<double>(arguments.begin()->shape[0]);
  context_.profile()->add(name_, seconds, rows * row_operations_, bytes_);
}

void Kernel::execute(std::initializer_list<Argument> arguments) {
  std::array<lathe_tensor, kMostArguments> tensors;
  std::array<lathe_arg, kMostArguments> args{};
  std::array<Dims, kMostArguments> shapes, strides;
  size_t n = 0;
  for (const Argument& a : arguments) {
    tensors.at(n) = tensor_of(a, shapes[n], strides[n]);
    args[n].tensor = &tensors[n];
    args[n].layout_id = a.layout_id;
    ++n;
  }
  lathe_exec exec = LATHE_EXEC_INIT;
  exec.threads = context_.threads();
  lathe_error e{};
  check(lathe_workspace_bytes(kernel_, args.data(), n, exec.threads, &exec.workspace_bytes, &e), e);
  exec.workspace = context_.workspace(exec.workspace_bytes);
  check(lathe_execute(kernel_, args.data(), n, &exec, &e), e);
}

lathe_attr flag(const char* name) { return {name, LATHE_ATTR_BOOL, 0, 1, 0, nullptr, nullptr, 0}; }
lathe_attr integer(const char* name, int64_t value) { return {name, LATHE_ATTR_INT, 0, value, 0, nullptr, nullptr, 0}; }
lathe_attr integers(const char* name, std::span<const int64_t> values) {
  return {name, LATHE_ATTR_INTS, 0, 0, 0, nullptr, values.data(), values.size()};
}
lathe_attr real(const char* name, double value) { return {name, LATHE_ATTR_FLOAT, 0, 0, value, nullptr, nullptr, 0}; }
lathe_attr text(const char* name, const char* value) { return {name, LATHE_ATTR_STRING, 0, 0, 0, value, nullptr, 0}; }

}  // namespace lathe::decoder
