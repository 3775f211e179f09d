// C ABI: contexts and the seal.
#include <climits>
#include <mutex>

#include "runtime/capi/handle.h"
#include "runtime/capi/rehearsal.h"
#include "runtime/live/online_tuner.h"
#include "runtime/tune/warmup.h"

namespace lathe::runtime {

using ir::invalid;
using ir::OptionId;
using ir::Result;
using ir::Status;

Result<std::string> read_text(const char* text, const std::string& name, int index, size_t max) {
  if (text == nullptr) return invalid("NULL, expected a text").with_arg(name, index);
  const size_t n = strnlen(text, max + 1);
  if (n == 0) return invalid("empty, expected a text").with_arg(name, index);
  if (n > max) return invalid("more than {} characters", max).with_arg(name, index);
  return std::string(text, n);
}

ContextState::ContextState(std::shared_ptr<Context> shared)
    : context(std::move(shared)),
      tuner(std::make_unique<OnlineTuner>(online_options(context->options()))),
      served(context,
             {[this](const ops::Graph& graph, const PrepareRequest& request, double left_ms) {
                return tune_operator(context, graph, request, left_ms);
              },
              [this](const std::shared_ptr<Operator>& op, const PrepareRequest& request) { tuner->watch(op, request); },
              [this](OnlineTuner::Job job) { return tuner->later(context, std::move(job)); }}) {
  tuner->set_mode(context, tuner->mode());
}
ContextState::~ContextState() { tuner->stop(); }  // what it works at uses the operators

namespace {

Status read_layers(const lathe_context_options& o, ContextConfig& config) {
  if (o.num_layers > 0 && o.layers == nullptr) return null_argument("options.layers", 0);
  if (o.num_layers > 64) return invalid("{}, expected at most 64", o.num_layers).with_arg("options.num_layers", 0);
  for (size_t i = 0; i < o.num_layers; ++i) {
    const lathe_layer& layer = o.layers[i];
    const std::string name = fmt::format("options.layers[{}]", i);
    LATHE_ASSIGN(std::string path, read_text(layer.path, name + ".path", 0));
    if (path[0] != '/') return invalid("\"{}\", expected an absolute path", path).with_arg(name + ".path", 0);
    if (layer.kind > LATHE_LAYER_READ_ONLY)
      return invalid("{}, expected a lathe_layer_kind", layer.kind).with_arg(name + ".kind", 0);
    if (layer.reserved != 0) return invalid("expected 0").with_arg(name + ".reserved", 0);
    config.layers.push_back(
        {std::move(path), layer.kind == LATHE_LAYER_READ_ONLY ? LayerMode::read_only : LayerMode::private_rw});
  }
  return {};
}

Status set_option(ContextConfig& config, OptionId id, const char* value, const char* name) {
  if (value == nullptr) return {};
  LATHE_ASSIGN(const std::string text, read_text(value, name, 0));
  const Status status = config.options.set(id, text);
  return status.ok() ? status : status.with_arg(name, 0);
}

// As LATHE_TUNE has it; null: not said.
const char* tune_text(uint32_t mode) {
  constexpr const char* kTexts[] = {nullptr, "off", "replay", "on", "trials"};
  return kTexts[mode];
}

Status create_context(const lathe_context_options* options, lathe_context** out) {
  LATHE_CHECK_POINTER(out, 1);
  lathe_context_options o = LATHE_CONTEXT_OPTIONS_INIT;
  LATHE_RETURN_IF_ERROR(read_struct(options, o, "options", 0));
  if (o.reserved != 0) return invalid("expected 0").with_arg("options.reserved", 0);
  if (o.reserved2 != 0) return invalid("expected 0").with_arg("options.reserved2", 0);
  if (o.tune > LATHE_TUNE_TRIALS) return invalid("{}, expected a lathe_tune", o.tune).with_arg("options.tune", 0);
  if (o.tune_cpu > 100) return invalid("{}, expected 0..100", o.tune_cpu).with_arg("options.tune_cpu", 0);
  if (o.background_threads < -1 || o.background_threads > 1) {
    return invalid("{}, expected -1..1", o.background_threads).with_arg("options.background_threads", 0);
  }
  if (o.own_threads < 0 || o.own_threads > kMaxThreads) {
    return invalid("{}, expected 0..{}", o.own_threads, kMaxThreads).with_arg("options.own_threads", 0);
  }
  ContextConfig config;
  LATHE_ASSIGN(config.options, ir::Options::from_environment());
  LATHE_RETURN_IF_ERROR(read_layers(o, config));
  LATHE_RETURN_IF_ERROR(set_option(config, OptionId::max_isa, o.max_isa, "options.max_isa"));
  LATHE_RETURN_IF_ERROR(set_option(config, OptionId::worker, o.worker_path, "options.worker_path"));
  LATHE_RETURN_IF_ERROR(set_option(config, OptionId::plugin_dir, o.plugin_dir, "options.plugin_dir"));
  LATHE_RETURN_IF_ERROR(set_option(config, OptionId::tune, tune_text(o.tune), "options.tune"));
  if (o.tune_cpu != 0) LATHE_RETURN_IF_ERROR(config.options.set(OptionId::tune_cpu, std::to_string(o.tune_cpu)));
  if (o.background_threads != 0)
    LATHE_RETURN_IF_ERROR(config.options.set(OptionId::background_threads, o.background_threads < 0 ? "0" : "1"));
  config.own_threads = o.own_threads;
  LATHE_ASSIGN(std::shared_ptr<Context> context, Context::create(std::move(config)));
  static std::once_flag rehearsed;
  std::call_once(rehearsed, [&] { (void)rehearse_resolve(context->target()); });
  *out = make_handle<lathe_context>(ContextBody{std::make_shared<ContextState>(std::move(context))});
  return {};
}

Status seal_context(lathe_context* ctx, uint32_t mode) {
  LATHE_CHECK_HANDLE(ctx, 0);
  if (mode > LATHE_SEAL_ERROR) return invalid("{}, expected a lathe_seal_mode", mode).with_arg("mode", 1);
  ContextState& state = *ctx->body->state;
  if (mode != LATHE_SEAL_OFF && state.context->seal() == Seal::off) state.served.complete();
  state.context->leaves().publish_all();
  state.context->set_seal(static_cast<Seal>(mode));
  return {};
}

Status tune_context(lathe_context* ctx, uint32_t mode) {
  LATHE_CHECK_HANDLE(ctx, 0);
  if (mode < LATHE_TUNE_OFF || mode > LATHE_TUNE_TRIALS)
    return invalid("{}, expected LATHE_TUNE_OFF..LATHE_TUNE_TRIALS", mode).with_arg("mode", 1);
  const ContextState& state = *ctx->body->state;
  state.tuner->set_mode(state.context, static_cast<TuneMode>(mode - LATHE_TUNE_OFF));
  return {};
}

}  // namespace
}  // namespace lathe::runtime

using namespace lathe::runtime;  // NOLINT: the C ABI of this floor

extern "C" lathe_status lathe_context_create(const lathe_context_options* options, lathe_context** out,
                                             lathe_error* error) {
  return guarded(error, [&] { return create_context(options, out); });
}
extern "C" void lathe_context_destroy(lathe_context* ctx) { destroy_handle(ctx); }
extern "C" lathe_status lathe_seal(lathe_context* ctx, uint32_t mode, lathe_error* error) {
  return guarded(error, [&] { return seal_context(ctx, mode); });
}
extern "C" lathe_status lathe_tune_mode(lathe_context* ctx, uint32_t mode, lathe_error* error) {
  return guarded(error, [&] { return tune_context(ctx, mode); });
}
