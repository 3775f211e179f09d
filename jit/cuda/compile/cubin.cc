// See cubin.h. Instructions are 16 bytes, opcodes their low 12 bits, as of compute capability 7.0; the width of a
// global access stands in bits 73 to 75.
#include "jit/cuda/compile/cubin.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace lathe::jit {

using ir::invalid;
using ir::Result;
using ir::Status;

namespace {

constexpr uint64_t kAnyForm = 0x1ff, kFma = 0x023, kGroupMma = 0x1f0;  // of an operation, whatever its operands are
// Under the predicate !PT an instruction does nothing: ptxas puts such loads beside asynchronous copies.
constexpr int kPredicate = 12, kNever = 0xf;
constexpr int kMachineCuda = 190, kAbiOfNewerFiles = 8;
constexpr uint8_t kAttributeFrame = 0x11, kAttributeRegisters = 0x2f, kAttributeCluster = 0x3d;
constexpr size_t kInstruction = 16;

template <class T>
bool read_at(std::string_view bytes, uint64_t at, T& out) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) return false;
  std::memcpy(&out, bytes.data() + at, sizeof(T));
  return true;
}

std::string_view part(std::string_view bytes, uint64_t at, uint64_t size) {
  if (at > bytes.size() || bytes.size() - at < size) return {};
  return bytes.substr(at, size);
}

std::string_view name_at(std::string_view strings, uint64_t at) {
  if (at >= strings.size()) return {};
  const std::string_view from = strings.substr(at);
  return from.substr(0, from.find('\0'));
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  Result<CubinInfo> run(const std::string& kernel) {
    if (!read_at(bytes_, 0, head_) || std::memcmp(head_.e_ident, ELFMAG, SELFMAG) != 0) return invalid("no ELF file");
    if (head_.e_machine != kMachineCuda) return invalid("an ELF file for machine {}, expected a GPU", head_.e_machine);
    out_.sm = head_.e_ident[EI_ABIVERSION] >= kAbiOfNewerFiles ? static_cast<int>(head_.e_flags >> 8 & 0xff)
                                                               : static_cast<int>(head_.e_flags & 0xff);
    LATHE_RETURN_IF_ERROR(sections());
    const Section *text = find(".text." + kernel), *info = find(".nv.info"), *symbols = find(".symtab");
    if (text == nullptr) return invalid("no kernel {} in it", kernel);
    count_instructions(text->bytes);
    if (info != nullptr && symbols != nullptr) read_info(info->bytes, symbols->bytes, kernel);
    if (const Section* own = find(".nv.info." + kernel); own != nullptr) read_own_info(own->bytes);
    return out_;
  }

 private:
  struct Section {
    std::string_view name, bytes;
  };

  Status sections() {
    // The driver goes by what the file says of its tables: they lie in it.
    if (head_.e_shentsize != sizeof(Elf64_Shdr)) return invalid("sections of {} bytes each", head_.e_shentsize);
    if (head_.e_shoff > bytes_.size()) return invalid("cut short");
    if (part(bytes_, head_.e_phoff, uint64_t{head_.e_phnum} * head_.e_phentsize).size() !=
        size_t{head_.e_phnum} * head_.e_phentsize)
      return invalid("cut short");
    std::vector<Elf64_Shdr> headers(head_.e_shnum);
    for (size_t i = 0; i < headers.size(); ++i) {
      if (!read_at(bytes_, head_.e_shoff + i * sizeof(Elf64_Shdr), headers[i])) return invalid("cut short");
    }
    if (head_.e_shstrndx >= headers.size()) return invalid("no names of sections");
    const Elf64_Shdr& s = headers[head_.e_shstrndx];
    const std::string_view names = part(bytes_, s.sh_offset, s.sh_size);
    for (const Elf64_Shdr& h : headers) {
      const std::string_view content =
          h.sh_type == SHT_NOBITS ? std::string_view() : part(bytes_, h.sh_offset, h.sh_size);
      if (h.sh_type != SHT_NOBITS && content.size() != h.sh_size) return invalid("cut short");
      const std::string_view name = name_at(names, h.sh_name);
      if (name == ".strtab") strings_ = content;
      sections_.push_back({name, content});
    }
    return {};
  }

  const Section* find(const std::string& name) const {
    for (const Section& s : sections_) {
      if (s.name == name) return &s;
    }
    return nullptr;
  }

  void count_instructions(std::string_view code) {
    for (uint64_t at = 0; at + kInstruction <= code.size(); at += kInstruction) {
      uint64_t low = 0, high = 0;
      (void)read_at(code, at, low);
      (void)read_at(code, at + 8, high);
      if (low == 0 && high == 0) continue;  // none, of any GPU
      ++out_.instructions;
      if ((low >> kPredicate & 0xf) == kNever) continue;
      const auto count = [&](AccessCounts& to) {
        const uint64_t width = high >> 9 & 7;
        ++(width == 6 ? to.bits128 : width == 5 ? to.bits64 : to.narrow);
      };
      switch (low & 0xfff) {
        case 0x981:
          count(out_.loads);
          break;
        case 0x986:
          count(out_.stores);
          break;
        case 0x983:
        case 0x387:
          ++out_.local;
          break;
        case 0x984:
          count(out_.shared_loads);
          break;
        case 0x388:
        case 0x988:
          count(out_.shared_stores);
          break;
        case 0xfae:
          ++out_.async_copies;
          break;
        case 0x3b4:
          ++out_.shared_boxes;
          [[fallthrough]];
        case 0x5b4:
          ++out_.box_copies;
          break;
        case 0x9c7:
          ++out_.cluster_barriers;
          break;
        case 0x5a7:
        case 0x9a7:
          ++out_.rings;
          break;
        case 0x9c8:
          ++out_.register_changes;
          break;
        case 0xb1d:
          ++out_.barriers;
          break;
        case 0x237:  // of integers
        case 0x23c:
          ++out_.mma;
          break;
        case 0x83b:
          ++out_.matrix_loads;
          break;
        default:
          if ((low & kAnyForm) == kFma) ++out_.fma;
          if ((low & kAnyForm) == kGroupMma) ++out_.group_mma;
          break;
      }
    }
  }

  bool names(std::string_view symbols, uint32_t index, const std::string& kernel) const {
    Elf64_Sym symbol;
    return read_at(symbols, index * sizeof(Elf64_Sym), symbol) && name_at(strings_, symbol.st_name) == kernel;
  }

  // Attributes: format, number, then a value of two bytes or the size of what follows. f(number, what follows)
  template <class F>
  static void each_attribute(std::string_view info, const F& f) {
    constexpr uint8_t kSized = 4;
    for (uint64_t at = 0;;) {
      uint8_t format = 0, attribute = 0;
      uint16_t size = 0;
      if (!read_at(info, at, format) || !read_at(info, at + 1, attribute) || !read_at(info, at + 2, size)) return;
      at += 4;
      if (format != kSized) continue;
      f(attribute, part(info, at, size));
      at += size;
    }
  }

  void read_info(std::string_view info, std::string_view symbols, const std::string& kernel) {
    each_attribute(info, [&](uint8_t attribute, std::string_view of) {
      uint32_t symbol = 0, value = 0;
      const bool two = of.size() == 8 && read_at(of, 0, symbol) && read_at(of, 4, value);
      if (!two || !names(symbols, symbol, kernel)) return;
      if (attribute == kAttributeRegisters) out_.registers = static_cast<int>(value);
      if (attribute == kAttributeFrame) out_.frame_bytes = static_cast<int>(value);
    });
  }

  void read_own_info(std::string_view info) {
    each_attribute(info, [&](uint8_t attribute, std::string_view of) {
      uint32_t along[3] = {};
      for (size_t i = 0; i < 3; ++i) (void)read_at(of, 4 * i, along[i]);
      const uint64_t blocks = uint64_t{along[0]} * along[1] * along[2];
      if (attribute == kAttributeCluster) out_.cluster = static_cast<int>(std::min<uint64_t>(blocks, INT32_MAX));
    });
  }

  std::string_view bytes_, strings_;
  Elf64_Ehdr head_{};
  std::vector<Section> sections_;
  CubinInfo out_;
};

}  // namespace

Result<CubinInfo> read_cubin(std::string_view bytes, const std::string& kernel) {
  Result<CubinInfo> out = Reader(bytes).run(kernel);
  return out.ok() ? std::move(out) : Result<CubinInfo>(out.status().with_context("cubin"));
}

}  // namespace lathe::jit
