// See plant.h: leaves are replaced by others that are interpreted here, or by code of their own; nests are edited.
#include "tests/worker/plant.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <random>

#include "ir/analysis/verifier.h"
#include "ir/core/names.h"
#include "jit/host/cpu_state.h"
#include "jit/image/exec_memory.h"
#include "search/cut/cut.h"

namespace lathe::runtime {

using ir::Expr;
using ir::Result;
using ir::Status;

namespace {

struct PlantedLeaf {
  LeafRef real;
  int operands = 1;  // what a call fills in; nothing behind them is there
  int output = 0;    // the first one that is written
  int calls = 0;
  uint64_t seed = 0;
};

using Kept = std::vector<std::shared_ptr<void>>;
using Interpret = void (*)(const void* program, const ir::LeafArgs& args);

PlantedLeaf& leaf_of(const void* program) { return *static_cast<PlantedLeaf*>(const_cast<void*>(program)); }
const ir::LeafOperand& last_operand(const void* program, const ir::LeafArgs& args) {
  return args.op[leaf_of(program).operands - 1];
}

void idle(const void*, const ir::LeafArgs&) {}
void hang(const void*, const ir::LeafArgs&) {
  for (volatile bool on = true; on;) usleep(1000);
}
void crash(const void*, const ir::LeafArgs&) { __builtin_trap(); }
void leave(const void*, const ir::LeafArgs&) { _exit(3); }
void overread(const void* program, const ir::LeafArgs& args) {
  leaf_of(program).real(&args);
  const volatile char* p = args.op[0].ptr;
  for (int64_t i = 0; i < int64_t{1} << 32; ++i) (void)p[i];
}
void scribble(const void* program, const ir::LeafArgs& args) {
  leaf_of(program).real(&args);
  volatile char* p = last_operand(program, args).ptr;
  for (int64_t i = 0; i < int64_t{1} << 32; ++i) p[i] = 1;
}
void stray(const void* program, const ir::LeafArgs& args) {
  PlantedLeaf& leaf = leaf_of(program);
  leaf.real(&args);
  std::mt19937_64 random(leaf.seed + static_cast<uint64_t>(++leaf.calls));
  for (int n = 0; n < 64; ++n) {
    volatile char* p = last_operand(program, args).ptr;
    p[static_cast<int64_t>(random() >> 16) - (int64_t{1} << 47)] = 1;
  }
}
void eat(const void* program, const ir::LeafArgs& args) {
  constexpr size_t kPiece = size_t{64} << 20;
  leaf_of(program).real(&args);
  // Stops short of what the machine has: a worker without a limit on memory is not to take it down.
  for (int n = 0; n < 64; ++n) {
    char* p = static_cast<char*>(
        mmap(nullptr, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (p == MAP_FAILED) __builtin_trap();
    p[0] = 1;
  }
  __builtin_trap();
}
void dirty_mxcsr(const void* program, const ir::LeafArgs& args) {
  leaf_of(program).real(&args);
  jit::set_fp_control(jit::fp_control() ^ jit::kFpRounding);
}
// Right the first time, another bit of the output later.
void flaky(const void* program, const ir::LeafArgs& args) {
  PlantedLeaf& leaf = leaf_of(program);
  leaf.real(&args);
  if (++leaf.calls > 1) args.op[leaf.output].ptr[0] ^= 1;
}

constexpr std::array<std::pair<std::string_view, Interpret>, 10> kPlants = {{{"idle", idle},
                                                                             {"hang", hang},
                                                                             {"crash", crash},
                                                                             {"exit", leave},
                                                                             {"overread", overread},
                                                                             {"flaky", flaky},
                                                                             {"scribble", scribble},
                                                                             {"stray", stray},
                                                                             {"eat", eat},
                                                                             {"mxcsr", dirty_mxcsr}}};

// One bit of one leaf's text.
Status flip_bit(uint64_t seed, Stage* stage, Kept* keep) {
  if (stage->images.empty() || stage->images.size() != stage->nest().leaves.size())
    return ir::unsupported("no images to break");
  std::mt19937_64 random(seed);
  const size_t l = random() % stage->nest().leaves.size();
  auto image = std::make_shared<jit::CodeImage>(*stage->images[l]);
  const uint64_t bit = random() % (uint64_t{image->text_bytes} * 8);
  image->code[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  auto memory = std::make_shared<jit::ExecMemory>(jit::ExecMode::automatic, size_t{1} << 20);
  LATHE_ASSIGN(const jit::LoadedCode code, memory->load(*image));
  stage->nest().leaves[l] = {code.entry, nullptr, nullptr};
  stage->images[l] = std::move(image);
  keep->push_back(std::move(memory));
  return {};
}

// Every number of a nest.
void collect(std::vector<ir::NestNode>& nodes, std::vector<Expr*>* out) {
  for (ir::NestNode& n : nodes) {
    if (n.kind == ir::NestNode::Kind::loop) out->push_back(&n.extent);
    for (ir::NestOperand& o : n.call.operands) {
      out->push_back(&o.offset);
      for (Expr& s : o.strides) out->push_back(&s);
    }
    for (Expr& e : n.call.extents) out->push_back(&e);
    for (ir::NestCall::Variant& v : n.call.variants) out->push_back(&v.extent);
    for (ir::NestSegment& s : n.call.segments) out->push_back(&s.len);
    collect(n.body, out);
  }
}

Status change_nest(uint64_t seed, bool tail, Stage* stage) {
  std::vector<Expr*> all, places;
  collect(stage->nest().cut.nest.phases, &all);
  for (Expr* e : all) {
    bool fits = !tail;
    ir::for_each_node(*e, [&](const ir::ExprNode& n) { fits |= n.op == ir::Op::k_min; });
    if (*e && fits) places.push_back(e);
  }
  if (places.empty()) return ir::unsupported("no {} in the nest", tail ? "minimum" : "number");
  std::mt19937_64 random(seed);
  Expr& e = *places[random() % places.size()];
  const uint64_t how = random();
  if (tail) {
    bool done = false;
    e = ir::rewrite(e, [&](const Expr& n) {
      if (n->op != ir::Op::k_min || std::exchange(done, true)) return Expr();
      return n->args[how % 2];
    });
    return {};
  }
  switch (how % 5) {
    case 0:
      e = e + 1;
      break;
    case 1:
      e = e - 1;
      break;
    case 2:
      e = e * 2;
      break;
    case 3:
      e = ir::floordiv(e, 2);
      break;
    default:
      e = e + static_cast<int>(how / 5 % 61) + 2;
      break;
  }
  return {};
}

// "M.P": the Schedule with a hole in one proof.
Result<ir::Kernel> replay_broken(std::string_view which, const ir::Kernel& kernel, const search::Schedule& schedule) {
  size_t move = 0;
  int precondition = 0;
  const char* end = which.data() + which.size();
  const auto [dot, bad] = std::from_chars(which.data(), end, move);
  if (bad != std::errc() || dot == end || *dot != '.' || std::from_chars(dot + 1, end, precondition).ec != std::errc())
    return ir::invalid("{} is no precondition to break", which);
  if (move >= schedule.moves.size()) return ir::unsupported("no move {}", move);
  ir::Kernel current = kernel;
  for (size_t i = 0; i < schedule.moves.size(); ++i) {
    search::TransformParams params;
    params.disabled_precondition = i == move ? precondition : -1;
    params.verify = false;
    ir::Result<search::TransformResult> next = search::apply(current, schedule.moves[i], params);
    if (!next.ok()) return ir::unsupported("move {}: {}", i + 1, next.status().message());
    current = std::move(next->kernel);
  }
  const Status verified = ir::verify(current);
  if (!verified.ok()) return ir::unsupported("{}", verified.message());
  return current;
}

Status plant(std::string_view fault, uint64_t seed, Stage* stage, Kept* keep) {
  if (fault == "bytes") return flip_bit(seed, stage, keep);
  if (fault == "nest" || fault == "tail") return change_nest(seed, fault == "tail", stage);
  for (const auto& [name, interpret] : kPlants) {
    if (name != fault) continue;
    for (size_t l = 0; l < stage->nest().leaves.size(); ++l) {
      LeafRef& leaf = stage->nest().leaves[l];
      auto planted = std::make_shared<PlantedLeaf>(PlantedLeaf{leaf, 0, 0, 0, seed});
      for (const ir::Buffer& b : stage->nest().cut.leaves[l].kernel.buffers) {
        if (b.place == ir::Place::out && planted->output == 0) planted->output = planted->operands;
        planted->operands += ir::is_param(b.place);
      }
      leaf = {nullptr, interpret, planted.get()};
      keep->push_back(std::move(planted));
    }
    return {};
  }
  return ir::invalid("{} is no fault to plant", fault);
}

// What follows "; plant " on a line of its own; empty: nothing.
std::string_view fault_in(std::string_view text) {
  constexpr std::string_view kMark = "\n; plant ";
  const size_t at = text.find(kMark);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + kMark.size());
  return rest.substr(0, rest.find('\n'));
}

constexpr std::string_view kBroken = "broken:";

}  // namespace

std::string planted(std::string_view schedule, std::string_view fault) {
  return fmt::format("{}\n; plant {}\n", schedule, fault);
}

Result<Stage> PlantingMaker::build(std::string_view text, const ir::Kernel& naive, const search::Schedule& schedule,
                                   const ir::Target& target, LeafCache& leaves) {
  const std::string_view fault = fault_in(text);
  if (fault.empty()) return StageMaker::build(text, naive, schedule, target, leaves);
  Result<Stage> stage = [&]() -> Result<Stage> {
    if (fault.rfind(kBroken, 0) == 0) {
      search::Scheduled broken{schedule, {}};
      LATHE_ASSIGN(broken.kernel, replay_broken(fault.substr(kBroken.size()), naive, schedule));
      return build_stage(naive, broken, target, leaves, LeafPolicy{});
    }
    LATHE_ASSIGN(Stage out, build_stage(naive, schedule, target, leaves, LeafPolicy{}));
    const size_t colon = std::min(fault.find(':'), fault.size());
    const std::string_view seed_text = fault.substr(std::min(colon + 1, fault.size()));
    uint64_t seed = 0;
    if (!seed_text.empty() &&
        std::from_chars(seed_text.data(), seed_text.data() + seed_text.size(), seed).ec != std::errc())
      return ir::invalid("{} is no fault to plant", fault);
    LATHE_RETURN_IF_ERROR(plant(fault.substr(0, colon), seed, &out, &keep_));
    return out;
  }();
  // A fault that does not exist would pass for one that was caught.
  if (stage.status().code() == ir::Code::kINVALID) {
    fmt::print(stderr, "{}\n", stage.status().message());
    std::abort();
  }
  // Whoever remembers Stages by their Kernel takes it for another.
  if (stage.ok()) stage->nest().cut.kernel.name += fmt::format("_planted_{}", fault);
  return stage;
}

Witness::Replay PlantingMaker::replay(std::string_view text) {
  const std::string_view fault = fault_in(text);
  if (fault.rfind(kBroken, 0) != 0) return {};
  return
      [which = std::string(fault.substr(kBroken.size()))](const ir::Kernel& kernel, const search::Schedule& schedule) {
        return replay_broken(which, kernel, schedule);
      };
}

}  // namespace lathe::runtime
