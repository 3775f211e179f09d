// See rotating_operands.h.
#include "runtime/measure/rotating_operands.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "ir/base/hash.h"
#include "jit/host/cpu_state.h"
#include "runtime/base/large_pages.h"
#include "runtime/compile/packed_places.h"
#include "runtime/measure/sample.h"
#include "runtime/oracle/data_sets.h"

namespace lathe::runtime {
namespace {

constexpr int64_t kPage = 4096;
// More takes longer to flush than to read, and has been displaced by the other copies since it was read last: unless
// there are too few of them.
constexpr int64_t kEvictAtOnce = int64_t{1} << 20;
constexpr int64_t kMostCopies = 1 << 16;
// Copies of less are copied together.
constexpr int64_t kCopied = int64_t{256} << 10;

// Pages of this process alone, released with it: large ones, as lathe_prepack asks for.
class Pages {
 public:
  static ir::Result<Pages> map(int64_t bytes) {
    Pages out;
    out.bytes_ = static_cast<size_t>(std::max<int64_t>(bytes, 1));
    void* p = mmap(nullptr, out.bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return ir::unsupported("no memory for {} bytes to measure on", bytes);
    out.data_ = static_cast<char*>(p);
    ask_for_large_pages(p, out.bytes_);
    return out;
  }
  Pages() = default;
  Pages(Pages&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(o.bytes_) {}
  Pages& operator=(Pages&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~Pages() {
    if (data_) munmap(data_, bytes_);
  }
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace

struct RotatingOperands::Impl {
  struct Operand {
    Pages pages;
    int64_t bytes = 0;   // of one copy
    int64_t stride = 0;  // between copies; 0: one copy
  };
  RotatingOptions options;
  SymbolValues symbols;
  std::vector<OperandShape> shapes;
  std::vector<ArgLayout> layouts;
  std::vector<Operand> operands;
  // An argument of a Stage: in the pages of which operand, and where in its copy.
  struct Where {
    size_t operand = 0;
    int64_t at = 0;
  };
  struct BoundStage {
    std::unique_ptr<const BoundExecutable> bound;
    std::vector<Where> args;
  };
  std::vector<BoundStage> stages;
  uint64_t together = 0;  // the layouts with room for each other that the pages are filled for; 0: none
  Pages workspace;
  int64_t workspace_bytes = 0;
  ThreadTeam* team = nullptr;
  int copies = 1, next = 0, placement = 0;
  bool all_rotate = false;
  int64_t evict_at_once = kEvictAtOnce;
  std::vector<void*> args;

  ir::Status reserve(size_t i, int64_t bytes);
  void fill(size_t i, int64_t bytes);
  ir::Status place_together(const Stage& stage, std::vector<Where>* args);
  // What is beyond the first bytes is copies of them, and nothing of it is in a cache where operands are cold.
  void copy_first(const Operand& o, int64_t first, int64_t bytes) const;
  ir::Status reserve_workspace(int64_t bytes);
  // The workspace comes after the operands.
  int64_t offset(size_t i) const {
    return i < shapes.size() && counted_integers(shapes, i) ? 0 : placement_offset(placement, static_cast<int>(i));
  }
};

// Copies of small constants stand a line apart, large ones on pages of their own; a page more, for placements.
ir::Status RotatingOperands::Impl::reserve(size_t i, int64_t bytes) {
  Operand& o = operands[i];
  const bool rotates = copies > 1 && (all_rotate || shapes[i].place == ir::Place::constant);
  // Room for packings that are a little larger.
  if (shapes[i].place == ir::Place::constant) bytes += bytes / 8;
  const int64_t unit = bytes >= kPage ? kPage : 64;
  o.bytes = (bytes + unit - 1) / unit * unit;
  o.stride = rotates ? o.bytes : 0;
  const int64_t total = (rotates ? o.stride * copies : o.bytes) + kPage;
  LATHE_ASSIGN(o.pages, Pages::map(total));
  fill(i, total);
  return {};
}

// Every page is touched.
void RotatingOperands::Impl::fill(size_t i, int64_t bytes) {
  const OperandShape& s = shapes[i];
  const Operand& o = operands[i];
  // Copies are copies of the first one, and what is beyond them goes on so.
  const int64_t first = o.stride > 0 ? std::min(o.stride, bytes) : bytes;
  fill_tame(s.type, i, o.pages.data(), first, s.values);
  copy_first(o, first, bytes);
  const std::optional<CountedIntegers> counted = counted_integers(shapes, i);
  if (!counted) return;
  for (int64_t c = 0; c < (o.stride > 0 ? copies : 1); ++c)
    fill_counted(*counted, o.pages.data() + c * o.stride, s.span);
  if (options.cold) jit::flush_lines(o.pages.data(), bytes);
}

void RotatingOperands::Impl::copy_first(const Operand& o, int64_t first, int64_t bytes) const {
  char* data = o.pages.data();
  int64_t done = first;
  for (; done < bytes && done < kCopied; done *= 2)
    std::memcpy(data + done, data, static_cast<size_t>(std::min(done, bytes - done)));
  const int64_t cached = std::min(done, bytes);
  for (; done < bytes; done += cached) jit::copy_past_caches(data + done, data, std::min(cached, bytes - done));
  if (options.cold) jit::flush_lines(data, cached);
}

// Packed parameters with room for each other are all in the pages of the first of them.
ir::Status RotatingOperands::Impl::place_together(const Stage& stage, std::vector<Where>* args) {
  std::vector<const PackedParam*> packed;
  uint64_t layouts = 0;
  for (const PackedParam& p : stage.packed) {
    LATHE_ASSIGN(const PackedPlaces alone, packed_places({&p}, symbols));
    if (!alone.places[0].shares) continue;
    packed.push_back(&p);
    layouts = ir::hash_bytes(&p.layout_id, sizeof(uint64_t), layouts);
  }
  if (packed.empty()) return {};
  LATHE_ASSIGN(const PackedPlaces places, packed_places(packed, symbols));
  const auto first = static_cast<size_t>(packed[0]->param);
  Operand& o = operands[first];
  if (places.bytes > o.bytes) {
    LATHE_RETURN_IF_ERROR(reserve(first, places.bytes));
    together = 0;
  }
  for (size_t i = 0; i < packed.size(); ++i)
    (*args)[static_cast<size_t>(packed[i]->param)] = {first, places.places[i].at};
  if (layouts == together) return {};
  together = layouts;
  for (size_t i = 0; i < packed.size(); ++i) {
    const auto param = static_cast<size_t>(packed[i]->param);
    const PackedPlace& place = places.places[i];
    for (int64_t n = 0; n < place.count; ++n) {
      for (const int64_t offset : place.offsets)
        fill_tame(shapes[param].type, param, o.pages.data() + place.at + n * place.period + offset, place.piece,
                  shapes[param].values);
    }
  }
  const int64_t total = (o.stride > 0 ? o.stride * copies : o.bytes) + kPage;
  copy_first(o, std::min(o.stride > 0 ? o.stride : total, total), total);
  return {};
}

ir::Status RotatingOperands::Impl::reserve_workspace(int64_t bytes) {
  if (bytes <= workspace_bytes && workspace.data() != nullptr) return {};
  LATHE_ASSIGN(workspace, Pages::map(bytes + kPage));
  workspace_bytes = bytes;
  if (bytes > 0) std::memset(workspace.data(), 0, static_cast<size_t>(bytes + kPage));
  return {};
}

RotatingOperands::RotatingOperands(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RotatingOperands::~RotatingOperands() = default;
int RotatingOperands::copies() const { return impl_->copies; }

ir::Result<std::unique_ptr<RotatingOperands>> RotatingOperands::create(const ir::Kernel& naive,
                                                                       const RotatingOptions& options,
                                                                       ThreadTeam* team) {
  auto impl = std::make_unique<Impl>();
  impl->team = team;
  impl->options = options;
  impl->symbols = options.dims;
  LATHE_ASSIGN(impl->shapes, operand_shapes(naive, &impl->symbols));
  impl->layouts = arg_layouts(naive, impl->shapes);
  int64_t constants = 0, read = 0, all = 0;
  for (const OperandShape& s : impl->shapes) {
    constants += s.place == ir::Place::constant ? s.bytes() : 0;
    read += s.place == ir::Place::out ? 0 : s.bytes();
    all += s.bytes();
  }
  impl->all_rotate = options.cold && 2 * constants < read;
  const int64_t rotating = impl->all_rotate ? all : constants;
  if (options.cold && rotating > 0) {
    const int64_t wanted = (options.cold_bytes + rotating - 1) / rotating, most = options.memory / rotating;
    impl->copies = static_cast<int>(std::clamp<int64_t>(std::min(wanted, most), 1, kMostCopies));
    if (most < wanted) impl->evict_at_once = INT64_MAX;
  }
  impl->operands.resize(impl->shapes.size());
  impl->args.resize(impl->shapes.size());
  for (size_t i = 0; i < impl->shapes.size(); ++i) LATHE_RETURN_IF_ERROR(impl->reserve(i, impl->shapes[i].bytes()));
  LATHE_RETURN_IF_ERROR(impl->reserve_workspace(0));
  return std::unique_ptr<RotatingOperands>(new RotatingOperands(std::move(impl)));
}

ir::Result<int> RotatingOperands::add(const Stage& stage) {
  Impl& m = *impl_;
  LATHE_RETURN_IF_ERROR(check_host_memory(*stage.executable, "timing"));
  std::vector<Impl::Where> args(m.operands.size());
  for (size_t i = 0; i < args.size(); ++i) args[i].operand = i;
  LATHE_RETURN_IF_ERROR(m.place_together(stage, &args));
  for (const PackedParam& p : stage.packed) {
    if (args[static_cast<size_t>(p.param)].operand != static_cast<size_t>(p.param)) continue;
    LATHE_ASSIGN(const int64_t packed, packed_bytes(p, m.symbols));
    if (packed > m.operands[static_cast<size_t>(p.param)].bytes)
      LATHE_RETURN_IF_ERROR(m.reserve(static_cast<size_t>(p.param), packed));
  }
  LATHE_ASSIGN(std::unique_ptr<const BoundExecutable> bound,
               stage.executable->bind(m.symbols, m.layouts, m.options.threads));
  LATHE_RETURN_IF_ERROR(m.reserve_workspace(bound->workspace_bytes()));
  m.stages.push_back({std::move(bound), std::move(args)});
  return static_cast<int>(m.stages.size()) - 1;
}

void RotatingOperands::place(int placement) { impl_->placement = placement; }

void RotatingOperands::call(int stage) {
  Impl& m = *impl_;
  const Impl::BoundStage& s = m.stages[static_cast<size_t>(stage)];
  for (size_t i = 0; i < m.operands.size(); ++i) {
    const Impl::Operand& o = m.operands[s.args[i].operand];
    m.args[i] = o.pages.data() + m.offset(s.args[i].operand) + o.stride * m.next + s.args[i].at;
  }
  m.next = m.next + 1 == m.copies ? 0 : m.next + 1;
  s.bound->run(m.args.data(), m.workspace.data() + m.offset(m.operands.size()), m.team);
}

void RotatingOperands::evict(int calls) {
  Impl& m = *impl_;
  for (size_t i = 0; i < m.operands.size(); ++i) {
    const Impl::Operand& o = m.operands[i];
    if (o.stride == 0 || o.bytes * std::min(calls, m.copies) > m.evict_at_once) continue;
    for (int n = 0; n < std::min(calls, m.copies); ++n)
      jit::flush_lines(o.pages.data() + m.offset(i) + o.stride * ((m.next + n) % m.copies), o.bytes);
  }
}

}  // namespace lathe::runtime
