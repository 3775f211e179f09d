// See emulated.h.
#include "tests/gpu/emulated.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/core/text_form.h"
#include "jit/cuda/compile/nvrtc.h"
#include "jit/cuda/lower/lower_device.h"
#include "jit/cuda/text/cuda_text.h"
#include "runtime/cuda/tensor_maps.h"
#include "search/cut/launch_cut.h"
#include "search/cut/safe_kernel.h"
#include "tests/gpu/fakes/emulator.h"
#include "tests/gpu/fakes/fake_cubin.h"
#include "tests/gpu/fakes/fake_maps.h"

namespace lathe::test {

namespace {

int64_t value_of(const ir::Expr& e, const ir::SymbolValues& symbols) { return ir::evaluate(e, symbols).value(); }

// Kernels by their text: the compiler is slow.
EmulatedKernel* compiled(const jit::DeviceProgram& program) {
  static auto& made = *new std::map<std::string, std::unique_ptr<EmulatedKernel>>;
  const std::string text = jit::cuda_text(program, "lathe_leaf");
  const auto known = made.find(text);
  if (known != made.end()) return known->second.get();
  static const auto& nvrtc = *new std::shared_ptr<const jit::Nvrtc>(jit::Nvrtc::open(LATHE_FAKE_NVRTC).value());
  const auto code = nvrtc->compile(text, "lathe_leaf", ir::find_gpu_target("h200").value());
  if (!code.ok()) {
    ADD_FAILURE() << code.status().to_string() << "\n" << text;
    return nullptr;
  }
  auto kernel = std::make_unique<EmulatedKernel>();
  EXPECT_TRUE(kernel->open(host_code(code->cubin.data()), "lathe_leaf"));
  return made.emplace(text, std::move(kernel)).first->second.get();
}

bool same(const Tensors& a, const Tensors& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.dims == y.second.dims && x.second.data == y.second.data;
  });
}

// What the interpreter makes of inputs. Whoever asks again, as tests of many programs of one Kernel do, has it at once.
const Tensors& interpreted(const ir::Kernel& scheduled, const ir::SymbolValues& symbols, const Tensors& inputs) {
  struct Last {
    std::string kernel;
    ir::SymbolValues symbols;
    Tensors inputs, outputs;
  };
  static auto& last = *new Last;
  std::string kernel = print(scheduled);
  if (last.kernel == kernel && last.symbols == symbols && same(last.inputs, inputs)) return last.outputs;
  last = {std::move(kernel), symbols, inputs, inputs};
  const ir::Status done = ir::interpret(scheduled, symbols, last.outputs);
  EXPECT_TRUE(done.ok()) << done.to_string();
  return last.outputs;
}

// Where the elements of a tensor lie, row by row.
std::vector<int64_t> offsets_of(const ir::Buffer& b, const ir::SymbolValues& symbols, const ir::Tensor& t) {
  std::vector<int64_t> steps(t.dims.size(), 1), out(1, 0);
  for (size_t d = t.dims.size(); d-- > 1;) steps[d - 1] = steps[d] * t.dims[d];
  for (size_t d = 0; d < b.strides.size(); ++d) steps[d] = value_of(b.strides[d], symbols);
  for (size_t d = 0; d < t.dims.size(); ++d) {
    std::vector<int64_t> next;
    for (const int64_t at : out) {
      for (int64_t i = 0; i < t.dims[d]; ++i) next.push_back(at + i * steps[d]);
    }
    out = std::move(next);
  }
  return out;
}

// Elements in memory: f32, or bf16 and f16 in 2 bytes.
void put(char* to, ir::DType type, double value) {
  const auto x = static_cast<float>(value);
  if (!ir::is_float(type)) {
    const auto whole = static_cast<int64_t>(value);
    std::memcpy(to, &whole, static_cast<size_t>(ir::dtype_bytes(type)));
  } else if (type == ir::DType::f16) {
    const auto half = static_cast<_Float16>(x);
    std::memcpy(to, &half, sizeof half);
  } else if (type == ir::DType::bf16) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const auto half = static_cast<uint16_t>(std::isnan(x) ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
    std::memcpy(to, &half, sizeof half);
  } else {
    std::memcpy(to, &x, sizeof x);
  }
}
double get(const char* from, ir::DType type) {
  if (!ir::is_float(type)) {
    int64_t whole = 0;
    const int bits = 64 - ir::dtype_bits(type);
    std::memcpy(&whole, from, static_cast<size_t>(ir::dtype_bytes(type)));
    whole = static_cast<int64_t>(static_cast<uint64_t>(whole) << bits);
    const bool is_signed = ir::dtype_kind(type) == ir::DTypeKind::kInt;
    return static_cast<double>(is_signed ? whole >> bits : static_cast<int64_t>(static_cast<uint64_t>(whole) >> bits));
  }
  if (type == ir::DType::f16) {
    _Float16 half;
    std::memcpy(&half, from, sizeof half);
    return static_cast<double>(half);
  }
  if (type == ir::DType::bf16) {
    uint16_t half = 0;
    std::memcpy(&half, from, sizeof half);
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(half) << 16));
  }
  float x = 0;
  std::memcpy(&x, from, sizeof x);
  return static_cast<double>(x);
}

// Memory as the driver gives it: it begins at a multiple of 256 bytes.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  explicit DeviceBytes(size_t size, char fill) : bytes_(size + kAligned, fill) {}
  char* data() {
    const auto at = reinterpret_cast<uintptr_t>(bytes_.data());
    return bytes_.data() + (kAligned - at % kAligned) % kAligned;
  }

 private:
  static constexpr size_t kAligned = 256;
  std::vector<char> bytes_;
};

// mapped: operands have maps if their addresses and sizes allow it.
struct CallWay : Way {
  bool mapped = true;
};

int no_map(void*, int, unsigned, void*, const unsigned long long*, const unsigned long long*, const unsigned*,
           const unsigned*, int, int, int, int) {
  return 1;
}

// programs: of the leaves. What went wrong; empty: nothing.
std::string run(const ir::LaunchKernel& cut, const std::vector<jit::DeviceProgram>& programs,
                const ir::SymbolValues& symbols, Tensors& tensors, const CallWay& way, BankCounts* banks = nullptr) {
  const ir::Kernel& k = cut.kernel;
  std::vector<DeviceBytes> memory;
  std::vector<std::vector<int64_t>> offsets;
  for (int p = 0; p < k.num_params(); ++p) {
    const ir::Buffer& b = k.buffers[static_cast<size_t>(p)];
    ir::Tensor& t = tensors[b.name];
    if (t.data.empty()) {
      int64_t n = 1;
      t.dims.clear();
      for (const ir::Expr& d : b.dims) t.dims.push_back(value_of(d, symbols)), n *= t.dims.back();
      t.data.assign(static_cast<size_t>(n), std::nan(""));
    }
    offsets.push_back(offsets_of(b, symbols, t));
    int64_t last = 0;
    for (const int64_t at : offsets.back()) last = std::max(last, at + 1);
    const int64_t bytes = ir::dtype_bytes(b.type);
    memory.emplace_back(static_cast<size_t>(last * bytes + 16), '\xff');  // NaN
    for (size_t i = 0; i < t.data.size(); ++i) put(memory.back().data() + offsets.back()[i] * bytes, b.type, t.data[i]);
  }
  memory.resize(k.buffers.size());
  for (size_t p = static_cast<size_t>(k.num_params()); p < memory.size(); ++p) {  // what launches hand each other
    int64_t n = ir::dtype_bytes(k.buffers[p].type);
    for (const ir::Expr& d : k.buffers[p].dims) n *= value_of(d, symbols);
    if (k.buffers[p].place == ir::Place::heap) memory[p] = DeviceBytes(static_cast<size_t>(n + 16), '\xff');
  }
  for (const ir::Launch& l : cut.launches) {
    EmulatedKernel* kernel = compiled(programs[static_cast<size_t>(l.leaf)]);
    if (kernel == nullptr) return "it does not compile";
    std::vector<uint64_t> args;
    for (const int p : l.operands) args.push_back(reinterpret_cast<uint64_t>(memory[static_cast<size_t>(p)].data()));
    for (const ir::Expr& e : l.sizes) args.push_back(static_cast<uint64_t>(value_of(e, symbols)));
    int64_t blocks = 1;
    for (const ir::Expr& e : l.grid) blocks *= std::max<int64_t>(value_of(e, symbols), 0);
    if (blocks == 0) continue;
    if (l.persistent) blocks = std::min<int64_t>(blocks, 2);
    alignas(jit::kMapAligned) uint64_t words[64 + 2 * runtime::kMapWords];
    const auto& maps = programs[static_cast<size_t>(l.leaf)].maps;
    std::copy(args.begin(), args.end(), words);
    std::vector<int64_t> sizes(args.begin() + static_cast<std::ptrdiff_t>(l.operands.size()), args.end());
    runtime::put_maps(way.mapped ? encode_map : no_map, runtime::bind_maps(maps, sizes).value(), args.data(), words,
                      args.size());
    kernel->ask_for_shared(jit::dynamic_shared(programs[static_cast<size_t>(l.leaf)]));
    Accesses accesses;
    const std::string why = kernel->run(static_cast<unsigned>(blocks), static_cast<unsigned>(kernel->threads()), words,
                                        way, accesses, banks);
    if (!why.empty()) return why;
  }
  for (int p = 0; p < k.num_params(); ++p) {
    const ir::Buffer& b = k.buffers[static_cast<size_t>(p)];
    if (b.place != ir::Place::out) continue;
    std::vector<double>& data = tensors[b.name].data;
    for (size_t i = 0; i < data.size(); ++i) {
      const int64_t at = offsets[static_cast<size_t>(p)][i] * ir::dtype_bytes(b.type);
      data[i] = get(memory[static_cast<size_t>(p)].data() + at, b.type);
    }
  }
  return "";
}

std::vector<jit::DeviceProgram> lowered(const ir::LaunchKernel& cut) {
  std::vector<jit::DeviceProgram> out;
  for (const ir::Leaf& leaf : cut.leaves) {
    auto program = jit::lower_device(leaf);
    EXPECT_TRUE(program.ok()) << program.status().to_string() << "\n" << leaf.text;
    if (program.ok()) out.push_back(std::move(*program));
  }
  return out;
}

constexpr CallWay kWays[] = {{{Order::forward, Copies::late, Products::late}},
                             {{Order::backward, Copies::early, Products::late}},
                             {{Order::shuffled, Copies::late, Products::late, 1}},
                             {{Order::shuffled, Copies::early, Products::early, 2}},
                             {{Order::forward, Copies::late, Products::early}},
                             {{Order::shuffled, Copies::early, Products::late, 3}},
                             {{Order::shuffled, Copies::late, Products::late, 4}, false},
                             {{Order::backward, Copies::early, Products::early}, false}};
constexpr size_t kWaysOfThreads = 3;   // where groups of warps compute nothing
constexpr size_t kWaysOfProducts = 4;  // where boxes are not copied

size_t ways_of(const std::vector<jit::DeviceProgram>& programs) {
  const bool products = std::any_of(programs.begin(), programs.end(), [](const jit::DeviceProgram& p) {
    return std::any_of(p.shared.begin(), p.shared.end(), [](const jit::DeviceShared& s) { return s.swizzle != 0; });
  });
  const bool boxes = std::any_of(programs.begin(), programs.end(), [](const auto& p) { return !p.maps.empty(); });
  return boxes ? std::size(kWays) : products ? kWaysOfProducts : kWaysOfThreads;
}

// The first output that is not what the interpreter gives, relative to the larger of 1 and the value; empty: none.
std::string difference(const ir::Kernel& kernel, const Tensors& want, const Tensors& got, double bound) {
  for (const ir::Buffer& b : kernel.buffers) {
    if (b.place != ir::Place::out) continue;
    const std::vector<double>&w = want.at(b.name).data, &g = got.at(b.name).data;
    for (size_t i = 0; i < w.size(); ++i) {
      const bool same = std::isnan(w[i])
                            ? std::isnan(g[i])
                            : w[i] == g[i] || std::abs(w[i] - g[i]) <= bound * std::max(1.0, std::abs(w[i]));
      if (!same) return fmt::format("{}[{}]: {}, expected {}", b.name, i, g[i], w[i]);
    }
  }
  return "";
}

}  // namespace

Tensors inputs_of(const ir::Kernel& kernel, const ir::SymbolValues& symbols) {
  Tensors out;
  for (const ir::Buffer& b : kernel.buffers) {
    if (!ir::has_contents(b)) continue;
    ir::Tensor t;
    int64_t n = 1;
    for (const ir::Expr& d : b.dims) t.dims.push_back(value_of(d, symbols)), n *= t.dims.back();
    const bool is_signed = ir::dtype_kind(b.type) == ir::DTypeKind::kInt;
    if (b.values) {
      const int64_t lo = value_of(b.values.lo, symbols), choices = value_of(b.values.hi, symbols) - lo + 1;
      const bool rise = b.name == "offsets", fall = b.name == "lengths";  // of which the first is the largest
      for (int64_t i = 0; i < n; ++i) {
        const int64_t choice = rise ? (i * 37 + 5) % choices : i * 7 % choices;
        t.data.push_back(static_cast<double>(lo + (fall ? choices - 1 - choice : choice)));
      }
      if (rise) std::sort(t.data.begin(), t.data.end());
    }
    for (int64_t i = static_cast<int64_t>(t.data.size()); i < n; ++i) {
      const int64_t number = i * 7 % 23 - 11;
      t.data.push_back(ir::is_float(b.type)      ? static_cast<double>((i * 7 + 3) % 23 - 11) / 4
                       : b.type == ir::DType::b8 ? static_cast<double>(i * 7 % 3 != 0)
                                                 : static_cast<double>(is_signed ? number : number + 200));
    }
    out[b.name] = std::move(t);
  }
  return out;
}

void emulate(const ir::Kernel& scheduled, const ir::SymbolValues& symbols, Tensors& tensors) {
  const auto cut = search::cut_launches(scheduled);
  ASSERT_TRUE(cut.ok()) << cut.status().to_string();
  const std::vector<jit::DeviceProgram> programs = lowered(*cut);
  ASSERT_EQ(programs.size(), cut->leaves.size());
  ASSERT_EQ(run(*cut, programs, symbols, tensors, CallWay{}), "") << cut->leaves[0].text << print(programs[0]);
}

std::string failure_of(const jit::DeviceProgram& program, const ir::Kernel& scheduled, const ir::SymbolValues& symbols,
                       double bound) {
  const auto cut = search::cut_launches(scheduled);
  EXPECT_TRUE(cut.ok()) << cut.status().to_string();
  const Tensors inputs = inputs_of(scheduled, symbols);
  const Tensors& want = interpreted(scheduled, symbols, inputs);
  std::string why;
  for (size_t i = 0; i < ways_of({program}) && why.empty(); ++i) {
    Tensors tensors = inputs;
    why = run(*cut, {program}, symbols, tensors, kWays[i]);
    if (why.empty()) why = difference(scheduled, want, tensors, bound);
  }
  return why;
}

BankCounts bank_conflicts(const ir::Kernel& scheduled, const ir::SymbolValues& symbols) {
  BankCounts out;
  const auto cut = search::cut_launches(scheduled);
  EXPECT_TRUE(cut.ok()) << cut.status().to_string();
  Tensors tensors = inputs_of(scheduled, symbols);
  EXPECT_EQ(run(*cut, lowered(*cut), symbols, tensors, CallWay{}, &out), "");
  return out;
}

void expect_as_interpreted(const ir::Kernel& scheduled, const ir::SymbolValues& symbols, double bound) {
  const Tensors inputs = inputs_of(scheduled, symbols);
  const Tensors& want = interpreted(scheduled, symbols, inputs);
  const auto cut = search::cut_launches(scheduled);
  ASSERT_TRUE(cut.ok()) << cut.status().to_string();
  const std::vector<jit::DeviceProgram> programs = lowered(*cut);
  ASSERT_EQ(programs.size(), cut->leaves.size());
  for (size_t i = 0; i < ways_of(programs); ++i) {
    Tensors got = inputs;
    ASSERT_EQ(run(*cut, programs, symbols, got, kWays[i]), "") << cut->leaves[0].text << print(programs[0]);
    ASSERT_EQ(difference(scheduled, want, got, bound), "") << print(scheduled);
  }
}

ir::SymbolValues sizes_of(const search::GeneralKernel& general, const ir::SymbolValues& symbols) {
  ir::SymbolValues out;
  for (const auto& [name, size] : general.sizes) out.emplace_back(name, ir::evaluate(size, symbols).value());
  return out;
}

void expect_values_kept(const ir::Kernel& naive, const search::GeneralKernel& general,
                        const ir::Result<search::Scheduled>& scheduled, const ir::SymbolValues& symbols, double bound) {
  ASSERT_TRUE(scheduled.ok()) << scheduled.status().to_string();
  const auto safe = search::check_safe(general.kernel, scheduled->kernel);
  EXPECT_TRUE(safe.ok()) << safe.message();
  const auto cut = search::cut_launches(scheduled->kernel);
  EXPECT_TRUE(cut.ok()) << cut.status().message();
  const Tensors inputs = inputs_of(naive, symbols);
  Tensors want = inputs;
  ASSERT_TRUE(ir::interpret(naive, symbols, want).ok());
  const Tensors& got = interpreted(scheduled->kernel, sizes_of(general, symbols), inputs);
  for (const auto& [name, tensor] : want) {
    const std::vector<double>& data = got.at(name).data;
    ASSERT_EQ(tensor.data.size(), data.size());
    for (size_t i = 0; i < data.size(); ++i)
      ASSERT_NEAR(data[i], tensor.data[i], bound * (1 + std::fabs(tensor.data[i]))) << name << " " << i;
  }
}

}  // namespace lathe::test
