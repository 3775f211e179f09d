// See fake_cubin.h.
#include "tests/gpu/fakes/fake_cubin.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace lathe::test {

namespace {

constexpr int kMachineCuda = 190;
constexpr char kHostSection[] = ".lathe.host";

struct Part {
  std::string name, bytes;
  uint32_t type = SHT_PROGBITS;
};

template <class T>
void append(std::string& to, const T& what) {
  to.append(reinterpret_cast<const char*>(&what), sizeof(T));
}

}  // namespace

std::string write_fake_cubin(int sm, const std::string& kernel, int registers, std::string_view code, int cluster) {
  std::string strings(1, '\0'), symbols, info;
  append(symbols, Elf64_Sym{});
  Elf64_Sym symbol{};
  symbol.st_name = static_cast<Elf64_Word>(strings.size());
  strings += kernel + '\0';
  append(symbols, symbol);
  // Attribute 0x2f: the registers of a symbol.
  for (const uint32_t word : {0x00082f04u, 1u, static_cast<uint32_t>(registers)}) append(info, word);
  // Attribute 0x3d: blocks of a cluster along each dimension.
  std::string own;
  for (const uint32_t word : {0x000c3d04u, static_cast<uint32_t>(cluster), 1u, 1u}) append(own, word);
  const std::vector<Part> parts = {{"", "", SHT_NULL},
                                   {".strtab", strings, SHT_STRTAB},
                                   {".symtab", symbols, SHT_SYMTAB},
                                   {".nv.info", info},
                                   {".text." + kernel, std::string(16, '\0')},
                                   {kHostSection, std::string(code)},
                                   {".nv.info." + kernel, cluster > 1 ? own : std::string()}};
  std::string names, body;
  std::vector<Elf64_Shdr> headers;
  for (const Part& p : parts) {
    Elf64_Shdr h{};
    h.sh_name = static_cast<Elf64_Word>(names.size());
    h.sh_type = p.type;
    h.sh_offset = sizeof(Elf64_Ehdr) + body.size();
    h.sh_size = p.bytes.size();
    names += p.name + '\0';
    body += p.bytes;
    body.resize((body.size() + 15) / 16 * 16);
    headers.push_back(h);
  }
  Elf64_Shdr h{};
  h.sh_name = static_cast<Elf64_Word>(names.size());
  h.sh_type = SHT_STRTAB;
  names += std::string(".shstrtab") + '\0';
  h.sh_offset = sizeof(Elf64_Ehdr) + body.size();
  h.sh_size = names.size();
  headers.push_back(h);
  body += names;
  body.resize((body.size() + 15) / 16 * 16);
  Elf64_Ehdr head{};
  std::memcpy(head.e_ident, ELFMAG, SELFMAG);
  head.e_ident[EI_CLASS] = ELFCLASS64;
  head.e_ident[EI_ABIVERSION] = 8;
  head.e_machine = kMachineCuda;
  head.e_flags = static_cast<Elf64_Word>(sm) << 8;
  head.e_shoff = sizeof(Elf64_Ehdr) + body.size();
  head.e_shentsize = sizeof(Elf64_Shdr);
  head.e_shnum = static_cast<Elf64_Half>(headers.size());
  head.e_shstrndx = static_cast<Elf64_Half>(headers.size() - 1);
  std::string out;
  append(out, head);
  out += body;
  for (const Elf64_Shdr& s : headers) append(out, s);
  return out;
}

std::string_view host_code(const void* cubin) {
  const auto* bytes = static_cast<const char*>(cubin);
  Elf64_Ehdr head;
  std::memcpy(&head, bytes, sizeof head);
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_machine != kMachineCuda) return {};
  const auto section = [&](size_t i) {
    Elf64_Shdr s;
    std::memcpy(&s, bytes + head.e_shoff + i * sizeof s, sizeof s);
    return s;
  };
  const char* names = bytes + section(head.e_shstrndx).sh_offset;
  for (size_t i = 0; i < head.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    if (std::strcmp(names + s.sh_name, kHostSection) == 0) return {bytes + s.sh_offset, s.sh_size};
  }
  return {};
}

int fake_cubin_sm(const void* cubin) {
  Elf64_Ehdr head;
  std::memcpy(&head, cubin, sizeof head);
  return static_cast<int>(head.e_flags >> 8 & 0xff);
}

}  // namespace lathe::test
