// See profiler_map.h. The GDB interface is two symbols with fixed names that the debugger looks for, and a list behind
// one of them: process-wide state by its nature, guarded by one lock.
#include "jit/image/profiler_map.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "ir/base/file_limit.h"
#include "jit/host/host_cpu.h"

extern "C" {
struct jit_code_entry {
  jit_code_entry* next;
  jit_code_entry* prev;
  const char* symfile;
  uint64_t symfile_size;
};
struct jit_descriptor {
  uint32_t version;
  uint32_t action;  // 0 none, 1 registered, 2 unregistered
  jit_code_entry* relevant;
  jit_code_entry* first;
};
// The debugger puts a breakpoint here and reads the descriptor when it is hit.
__attribute__((noinline, used)) void __jit_debug_register_code() { __asm__ volatile("" ::: "memory"); }
__attribute__((used)) jit_descriptor __jit_debug_descriptor = {1, 0, nullptr, nullptr};
}

namespace lathe::jit {
namespace {

std::mutex& debug_mutex() {
  static std::mutex mutex;
  return mutex;
}

// A symbol file without code: one section at the leaf's address, one function in it.
struct SymbolFile {
  static constexpr char kSectionNames[] = "\0.text\0.symtab\0.strtab\0.shstrtab";
  enum Section { kNone, kText, kSymtab, kStrtab, kShstrtab, kSections };

  Elf64_Ehdr header{};
  Elf64_Shdr section[kSections] = {};
  Elf64_Sym symbol[2] = {};
  char section_names[sizeof kSectionNames];
  char names[1024] = {};  // "\0" symbol "\0"

  SymbolFile(const CodeImage& image, const LoadedCode& code) {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_EXEC;
    header.e_machine = kElfMachine;
    header.e_version = EV_CURRENT;
    header.e_ehsize = sizeof(Elf64_Ehdr);
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = kSections;
    header.e_shstrndx = kShstrtab;
    header.e_shoff = offsetof(SymbolFile, section);
    std::memcpy(section_names, kSectionNames, sizeof kSectionNames);
    const size_t length = std::min(image.symbol.size(), sizeof names - 2);
    std::memcpy(names + 1, image.symbol.data(), length);
    const auto address = reinterpret_cast<uintptr_t>(code.text);

    section[kText] = {1, SHT_NOBITS, SHF_ALLOC | SHF_EXECINSTR, address, 0, image.text_bytes, 0, 0, 16, 0};
    section[kSymtab] = {7, SHT_SYMTAB,       0, 0, offsetof(SymbolFile, symbol), sizeof symbol, kStrtab, 1,
                        8, sizeof(Elf64_Sym)};
    section[kStrtab] = {15, SHT_STRTAB, 0, 0, offsetof(SymbolFile, names), length + 2, 0, 0, 1, 0};
    section[kShstrtab] = {23, SHT_STRTAB, 0, 0, offsetof(SymbolFile, section_names), sizeof section_names, 0, 0, 1, 0};
    symbol[1].st_name = 1;
    symbol[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
    symbol[1].st_shndx = kText;
    symbol[1].st_value = address + image.entry;
    symbol[1].st_size = image.text_bytes - image.entry;
  }
};

}  // namespace

struct ProfilerMap::GdbEntry {
  GdbEntry(const CodeImage& image, const LoadedCode& code) : file(image, code) {}
  SymbolFile file;
  jit_code_entry code{};
  GdbEntry* next = nullptr;
};

ProfilerMap::ProfilerMap(uint32_t bits, std::string directory) : bits_(bits), directory_(std::move(directory)) {}

ProfilerMap::~ProfilerMap() {
  const std::lock_guard<std::mutex> lock(debug_mutex());
  while (entries_) {
    const std::unique_ptr<GdbEntry> entry(entries_);
    entries_ = entry->next;
    jit_code_entry& code = entry->code;
    (code.prev ? code.prev->next : __jit_debug_descriptor.first) = code.next;
    if (code.next) code.next->prev = code.prev;
    __jit_debug_descriptor.relevant = &code;
    __jit_debug_descriptor.action = 2;
    __jit_debug_register_code();
  }
}

void ProfilerMap::add(const CodeImage& image, const LoadedCode& code) {
  if (bits_ & kProfilerPerf) add_perf_line(image, code);
  if (!(bits_ & kProfilerGdb)) return;
  auto entry = std::make_unique<GdbEntry>(image, code);
  entry->code.symfile = reinterpret_cast<const char*>(&entry->file);
  entry->code.symfile_size = sizeof entry->file;
  const std::lock_guard<std::mutex> lock(debug_mutex());
  entry->code.next = __jit_debug_descriptor.first;
  if (entry->code.next) entry->code.next->prev = &entry->code;
  __jit_debug_descriptor.first = __jit_debug_descriptor.relevant = &entry->code;
  __jit_debug_descriptor.action = 1;
  __jit_debug_register_code();
  entry->next = entries_;
  entries_ = entry.release();
}

// One write per line in append mode: lines of several threads, or of several libraries, do not mix.
void ProfilerMap::add_perf_line(const CodeImage& image, const LoadedCode& code) const {
  const std::string path = fmt::format("{}/perf-{}.map", directory_, getpid());
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const std::string line = fmt::format("{:x} {:x} {}\n", reinterpret_cast<uintptr_t>(code.text) + image.entry,
                                       image.text_bytes - image.entry, image.symbol);
  const ir::FileLimitGuard guard;
  const ssize_t written = write(fd, line.data(), line.size());
  static_cast<void>(written);
  close(fd);
}

}  // namespace lathe::jit
