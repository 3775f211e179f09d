// See rotating_operands.h.
#include "runtime/rotating_operands.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "runtime/data_sets.h"
#include "runtime/nest_walk.h"

namespace lathe::runtime {
namespace {

constexpr int64_t kPage = 4096;

// Pages of this process alone, released with it.
class Pages {
 public:
  static ir::Result<Pages> map(int64_t bytes) {
    Pages out;
    out.bytes_ = static_cast<size_t>(std::max<int64_t>(bytes, 1));
    void* p = mmap(nullptr, out.bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return ir::unsupported("no memory for {} bytes to measure on", bytes);
    out.data_ = static_cast<char*>(p);
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

// Floats in [0.5, 1), other types 0; every page is touched.
void fill_tame(ir::DType type, char* data, int64_t bytes) {
  if (type != ir::DType::f32) {
    std::memset(data, ir::is_float(type) ? 0x3b : 0, static_cast<size_t>(bytes));
    return;
  }
  uint32_t state = 12345;
  for (int64_t i = 0; i + 4 <= bytes; i += 4) {
    state = state * 1664525u + 1013904223u;
    const uint32_t bits = 0x3f000000u | state >> 9;
    std::memcpy(data + i, &bits, 4);
  }
}

}  // namespace

struct RotatingOperands::Impl {
  struct Operand {
    Pages pages;
    int64_t stride = 0;  // bytes between copies; 0: one copy
  };
  struct Bound {
    const Stage* stage = nullptr;
    BoundNest nest;
  };
  std::vector<Operand> operands;
  std::vector<Bound> stages;
  Pages workspace;
  ThreadTeam* team = nullptr;
  int copies = 1, next = 0;
  std::vector<void*> args;
};

RotatingOperands::RotatingOperands(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RotatingOperands::~RotatingOperands() = default;
int RotatingOperands::copies() const { return impl_->copies; }

ir::Result<std::unique_ptr<RotatingOperands>> RotatingOperands::create(
    const ir::Kernel& naive, const std::vector<const Stage*>& stages,
    const RotatingOptions& options, ThreadTeam* team) {
  auto impl = std::make_unique<Impl>();
  impl->team = team;
  SymbolValues symbols = options.dims;
  LATHE_ASSIGN(const std::vector<OperandShape> shapes, operand_shapes(naive, &symbols));
  const std::vector<ArgLayout> layouts = arg_layouts(naive, shapes);

  std::vector<int64_t> bytes;
  for (const OperandShape& s : shapes) bytes.push_back(s.bytes());
  int64_t workspace = 0;
  for (const Stage* stage : stages) {
    for (const PackedParam& p : stage->packed) {
      LATHE_ASSIGN(const int64_t packed, packed_bytes(p, symbols));
      bytes[p.param] = std::max(bytes[p.param], packed);
    }
    impl->stages.push_back({stage, {}});
    LATHE_ASSIGN(impl->stages.back().nest,
                 bind_nest(stage->cut, symbols, layouts, options.threads));
    workspace = std::max(workspace, impl->stages.back().nest.workspace_bytes);
  }
  int64_t constants = 0;
  for (size_t i = 0; i < shapes.size(); ++i)
    constants += shapes[i].place == ir::Place::constant ? bytes[i] : 0;
  // A stream several times the cache evicts itself; else at least two copies.
  if (options.cold && constants > 0 && constants < 4 * options.cache_bytes) {
    impl->copies = static_cast<int>(
        std::clamp<int64_t>((2 * options.cache_bytes + constants - 1) / constants, 2, 1 << 16));
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    const bool rotates = impl->copies > 1 && shapes[i].place == ir::Place::constant;
    Impl::Operand o;
    // Copies of small constants stand a line apart, large ones on pages of their own.
    const int64_t unit = bytes[i] >= kPage ? kPage : 64;
    o.stride = rotates ? (bytes[i] + unit - 1) / unit * unit : 0;
    const int64_t total = rotates ? o.stride * impl->copies : bytes[i];
    LATHE_ASSIGN(o.pages, Pages::map(total));
    fill_tame(shapes[i].type, o.pages.data(), total);
    impl->operands.push_back(std::move(o));
  }
  LATHE_ASSIGN(impl->workspace, Pages::map(workspace));
  if (workspace > 0) std::memset(impl->workspace.data(), 0, static_cast<size_t>(workspace));
  impl->args.resize(shapes.size());
  return std::unique_ptr<RotatingOperands>(new RotatingOperands(std::move(impl)));
}

void RotatingOperands::call(int stage) {
  Impl& m = *impl_;
  for (size_t i = 0; i < m.operands.size(); ++i)
    m.args[i] = m.operands[i].pages.data() + m.operands[i].stride * m.next;
  m.next = m.next + 1 == m.copies ? 0 : m.next + 1;
  const Impl::Bound& b = m.stages[static_cast<size_t>(stage)];
  walk(b.nest, b.stage->leaves.data(), m.args.data(), m.workspace.data(), m.team);
}

}  // namespace lathe::runtime
