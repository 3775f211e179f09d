// The relocations a PIC, small-model object without calls out can have, on x86-64:
//   PC32, PLT32       S + A - P in 32 bits
//   PC64              the same in 64 bits
//   GOTPCREL(X)       of a mov: the mov becomes a lea of the symbol, so that no table of absolute
//   addresses is needed 64, 32, 32S       absolute: only in sections that are not loaded
//   (.stack_sizes), which are read, not linked
#include "jit/llvm/link_object.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace lathe::jit {
namespace {

constexpr uint64_t kNotPlaced = ~uint64_t{0};
constexpr size_t kConstantsAlign = 64;
constexpr uint8_t kPadding = 0xcc;  // int3

class Linker {
 public:
  explicit Linker(const std::vector<uint8_t>& object) : object_(object) {}

  ir::Result<LinkedObject> run(const std::string& entry_symbol) {
    LATHE_RETURN_IF_ERROR(read_sections());
    LATHE_RETURN_IF_ERROR(place());
    LATHE_RETURN_IF_ERROR(read_symbols());
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type == SHT_REL) return reject("relocations without addends");
      if (s.sh_type == SHT_RELA && s.sh_info < sections_.size() && placed_[s.sh_info] != kNotPlaced) {
        LATHE_RETURN_IF_ERROR(relocate(s));
      }
    }
    bool found = false;
    for (const Elf64_Sym& symbol : symbols_) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || text_at(strings_, symbol.st_name) != entry_symbol) continue;
      LATHE_ASSIGN(const uint64_t address, address_of(symbol));
      out_.entry = static_cast<uint32_t>(address);
      found = address < out_.text_bytes;
    }
    if (!found) return reject("no function named {}", entry_symbol);
    LATHE_RETURN_IF_ERROR(read_stack_sizes());
    return std::move(out_);
  }

 private:
  template <class... A>
  static ir::Status reject(fmt::format_string<A...> format, A&&... args) {
    return ir::unsupported("object: {}", fmt::format(format, std::forward<A>(args)...));
  }
  bool inside(uint64_t offset, uint64_t size) const {
    return offset <= object_.size() && size <= object_.size() - offset;
  }
  template <class T>
  ir::Status read_table(const Elf64_Shdr& s, std::vector<T>& out) const {
    if (s.sh_entsize != sizeof(T) || !inside(s.sh_offset, s.sh_size)) return reject("malformed table");
    out.resize(s.sh_size / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), object_.data() + s.sh_offset, out.size() * sizeof(T));
    return {};
  }
  std::string text_at(const Elf64_Shdr& table, uint32_t offset) const {
    if (offset >= table.sh_size || !inside(table.sh_offset, table.sh_size)) return {};
    const auto* text = reinterpret_cast<const char*>(object_.data() + table.sh_offset + offset);
    return std::string(text, strnlen(text, table.sh_size - offset));
  }

  ir::Status read_sections() {
    Elf64_Ehdr header;
    if (!inside(0, sizeof header)) return reject("too short");
    std::memcpy(&header, object_.data(), sizeof header);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_REL || header.e_machine != EM_X86_64) {
      return reject("not a relocatable x86-64 object");
    }
    Elf64_Shdr table{};
    table.sh_offset = header.e_shoff;
    table.sh_entsize = header.e_shentsize;
    table.sh_size = uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
    LATHE_RETURN_IF_ERROR(read_table(table, sections_));
    if (header.e_shstrndx >= sections_.size()) return reject("no section names");
    names_ = sections_[header.e_shstrndx];
    return {};
  }

  // Copies the loaded sections: executable ones first, then read-only data.
  ir::Status place() {
    placed_.assign(sections_.size(), kNotPlaced);
    for (const bool text : {true, false}) {
      if (!text) out_.text_bytes = static_cast<uint32_t>(out_.code.size());
      bool first = true;
      for (size_t i = 0; i < sections_.size(); ++i) {
        const Elf64_Shdr& s = sections_[i];
        if (!(s.sh_flags & SHF_ALLOC) || s.sh_size == 0 || bool(s.sh_flags & SHF_EXECINSTR) != text) continue;
        const std::string name = text_at(names_, s.sh_name);
        if (s.sh_flags & (SHF_WRITE | SHF_TLS)) return reject("writable section {}", name);
        if (s.sh_type != SHT_PROGBITS) return reject("section {} of type {}", name, s.sh_type);
        const uint64_t align = std::max<uint64_t>(s.sh_addralign, first && !text ? kConstantsAlign : 1);
        if (align > kConstantsAlign || (align & (align - 1))) return reject("section {} aligned to {}", name, align);
        if (!inside(s.sh_offset, s.sh_size)) return reject("section {} outside the object", name);
        out_.code.resize((out_.code.size() + align - 1) / align * align, kPadding);
        placed_[i] = out_.code.size();
        const auto* from = object_.data() + s.sh_offset;
        out_.code.insert(out_.code.end(), from, from + s.sh_size);
        first = false;
      }
    }
    if (out_.code.size() > std::numeric_limits<int32_t>::max()) return reject("{} bytes", out_.code.size());
    return {};
  }

  ir::Status read_symbols() {
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type != SHT_SYMTAB) continue;
      if (s.sh_link >= sections_.size()) return reject("symbols without names");
      strings_ = sections_[s.sh_link];
      LATHE_RETURN_IF_ERROR(read_table(s, symbols_));
    }
    for (size_t i = 1; i < symbols_.size(); ++i) {
      if (symbols_[i].st_shndx == SHN_UNDEF) {
        return reject("undefined symbol {}", text_at(strings_, symbols_[i].st_name));
      }
    }
    return {};
  }
  ir::Result<uint64_t> address_of(const Elf64_Sym& symbol) const {
    if (symbol.st_shndx >= sections_.size() || placed_[symbol.st_shndx] == kNotPlaced) {
      return reject("symbol {} is not in a loaded section", text_at(strings_, symbol.st_name));
    }
    return placed_[symbol.st_shndx] + symbol.st_value;
  }

  ir::Status relocate(const Elf64_Shdr& table) {
    std::vector<Elf64_Rela> relocations;
    LATHE_RETURN_IF_ERROR(read_table(table, relocations));
    const Elf64_Shdr& section = sections_[table.sh_info];
    for (const Elf64_Rela& r : relocations) {
      const auto type = ELF64_R_TYPE(r.r_info);
      const uint64_t width = type == R_X86_64_PC64 ? 8 : 4;
      const size_t index = ELF64_R_SYM(r.r_info);
      if (index == 0 || index >= symbols_.size()) return reject("relocation of symbol {}", index);
      if (r.r_offset > section.sh_size || width > section.sh_size - r.r_offset) return reject("relocation outside");
      const uint64_t at = placed_[table.sh_info] + r.r_offset;
      LATHE_ASSIGN(const uint64_t symbol, address_of(symbols_[index]));
      const auto value = static_cast<int64_t>(symbol + static_cast<uint64_t>(r.r_addend) - at);
      switch (type) {
        case R_X86_64_GOTPCREL:
        case R_X86_64_GOTPCRELX:
        case R_X86_64_REX_GOTPCRELX:
          // mov sym@GOTPCREL(%rip), reg is opcode 8b with a RIP-relative operand; lea is 8d.
          if (r.r_offset < 2 || out_.code[at - 2] != 0x8b || (out_.code[at - 1] & 0xc7) != 0x05) {
            return reject("relocation {} on another instruction than mov", type);
          }
          out_.code[at - 2] = 0x8d;
          break;
        case R_X86_64_PC32:
        case R_X86_64_PLT32:
        case R_X86_64_PC64:
          break;
        case R_X86_64_64:
        case R_X86_64_32:
        case R_X86_64_32S:
          return reject("absolute address of {}", text_at(strings_, symbols_[index].st_name));
        default:
          return reject("unknown relocation {}", type);
      }
      if (width == 4 && (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max())) {
        return reject("relocation out of range");
      }
      std::memcpy(out_.code.data() + at, &value, width);  // little-endian
    }
    return {};
  }

  // Entries of .stack_sizes: 8 bytes of function address, then the size as ULEB128.
  ir::Status read_stack_sizes() {
    for (const Elf64_Shdr& s : sections_) {
      if (text_at(names_, s.sh_name) != ".stack_sizes") continue;
      if (!inside(s.sh_offset, s.sh_size)) return reject("malformed .stack_sizes");
      const uint8_t* p = object_.data() + s.sh_offset;
      const uint8_t* const end = p + s.sh_size;
      while (end - p > 8) {
        p += 8;
        uint64_t size = 0;
        for (int shift = 0; p < end && shift < 63; shift += 7) {
          size |= static_cast<uint64_t>(*p & 0x7f) << shift;
          if (!(*p++ & 0x80)) break;
        }
        out_.stack_bytes = std::max(out_.stack_bytes, static_cast<uint32_t>(std::min<uint64_t>(size, 1u << 30)));
      }
    }
    return {};
  }

  const std::vector<uint8_t>& object_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<uint64_t> placed_;  // by section: offset in the block
  std::vector<Elf64_Sym> symbols_;
  Elf64_Shdr names_{}, strings_{};
  LinkedObject out_;
};

}  // namespace

ir::Result<LinkedObject> link_object(const std::vector<uint8_t>& object, const std::string& entry_symbol) {
  return Linker(object).run(entry_symbol);
}

}  // namespace lathe::jit
