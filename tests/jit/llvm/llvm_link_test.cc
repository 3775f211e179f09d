// link_object against LLJIT's own linking, and what it rejects: undefined symbols, unknown or
// absolute relocations, writable sections, objects cut short. The rejected objects are real ones
// with one field changed.
#include <dlfcn.h>
#include <elf.h>

#include "jit/llvm/link_object.h"
#include "tests/jit/llvm/llvm_programs.h"

namespace lathe::jit {
namespace {
using namespace llvm_test;

ir::Result<std::vector<uint8_t>> object_of(const LeafProgram& p) {
  LATHE_ASSIGN(const LlvmPlugin plugin, open_llvm_plugin(llvm_plugin_directories("")));
  const auto bytes = serialise(p);
  LatheLlvmOutput out{};
  if (plugin.compile(bytes.data(), bytes.size(), "object", &out) != kLatheLlvmOk)
    return ir::internal_error("{}", out.error);
  std::vector<uint8_t> object(out.bytes, out.bytes + out.size);
  plugin.free(&out);
  return object;
}

// The parts of an object that the tests change, found from its header each time.
struct ObjectView {
  std::vector<uint8_t>& bytes;
  Elf64_Ehdr* header() { return reinterpret_cast<Elf64_Ehdr*>(bytes.data()); }
  Elf64_Shdr* section(size_t i) { return reinterpret_cast<Elf64_Shdr*>(bytes.data() + header()->e_shoff) + i; }
  // Calls f on every relocation of a loaded section.
  template <class F>
  int relocations(F f) {
    int count = 0;
    for (size_t i = 0; i < header()->e_shnum; ++i) {
      Elf64_Shdr* s = section(i);
      if (s->sh_type != SHT_RELA || !(section(s->sh_info)->sh_flags & SHF_ALLOC)) continue;
      auto* r = reinterpret_cast<Elf64_Rela*>(bytes.data() + s->sh_offset);
      for (uint64_t k = 0; k < s->sh_size / sizeof(Elf64_Rela); ++k, ++count) f(r[k], *section(s->sh_info));
    }
    return count;
  }
  Elf64_Sym* symbol(uint64_t index) {
    for (size_t i = 0; i < header()->e_shnum; ++i) {
      if (section(i)->sh_type == SHT_SYMTAB) {
        return reinterpret_cast<Elf64_Sym*>(bytes.data() + section(i)->sh_offset) + index;
      }
    }
    return nullptr;
  }
};

class LlvmLink : public testing::Test {
 protected:
  void SetUp() override {
    LATHE_NEEDS_LLVM();
    program_ = row_program({ir::IsaLevel::avx2, 8});
    auto object = object_of(program_);
    ASSERT_TRUE(object.ok()) << object.status().to_string();
    object_ = *object;
    ASSERT_TRUE(link_object(object_, program_.name).ok());
  }
  void expect_rejected(const std::string& reason) {
    const auto linked = link_object(object_, program_.name);
    ASSERT_FALSE(linked.ok()) << "expected: " << reason;
    EXPECT_EQ(linked.status().code(), ir::Code::kUNSUPPORTED);
    EXPECT_NE(linked.status().message().find(reason), std::string::npos) << linked.status().to_string();
  }
  LeafProgram program_;
  std::vector<uint8_t> object_;
};

TEST_F(LlvmLink, LljitLinkingGivesTheSameResults) {
#ifdef LATHE_LLVM_ORACLE
  void* library = dlopen(LATHE_LLVM_ORACLE, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  using Link = void* (*)(const uint8_t*, size_t, const char*, void**, char*);
  const auto link = reinterpret_cast<Link>(dlsym(library, "lathe_oracle_link"));
  const auto release = reinterpret_cast<void (*)(void*)>(dlsym(library, "lathe_oracle_release"));
  ASSERT_TRUE(link && release);
  for (const Shape& shape : all_shapes()) {
    if (!host_runs(shape)) continue;
    const LeafProgram p = row_program(shape);
    const auto object = object_of(p);
    ASSERT_TRUE(object.ok()) << object.status().to_string();
    const auto image = compile_llvm(p, "");
    ASSERT_TRUE(image.ok());
    char error[256] = "";
    void* handle = nullptr;
    const auto oracle =
        reinterpret_cast<ir::LeafFn>(link(object->data(), object->size(), p.name.c_str(), &handle, error));
    ASSERT_NE(oracle, nullptr) << error;
    const Loaded ours(*image);
    std::mt19937 random(11);
    const auto values = test_values(random, 3 * 77 + 20);
    std::vector<float> result[2];
    for (int who = 0; who < 2; ++who) {
      result[who].assign(values.size(), -3.0f);
      ir::LeafArgs args{};
      args.op[0] = {reinterpret_cast<char*>(const_cast<float*>(values.data())), {77 * 4}};
      args.op[1] = {reinterpret_cast<char*>(result[who].data()), {77 * 4}};
      args.extent[0] = 3;
      args.extent[1] = 75;
      who == 0 ? oracle(&args) : ours(args);
    }
    EXPECT_EQ(difference(result[0], result[1]), -1) << shape.name();
    release(handle);
  }
#endif
}

TEST_F(LlvmLink, TextThenAlignedConstants) {
  const auto linked = link_object(object_, program_.name);
  ASSERT_TRUE(linked.ok());
  EXPECT_GT(linked->text_bytes, 0u);
  EXPECT_LT(linked->entry, linked->text_bytes);
  EXPECT_GT(linked->code.size(), (linked->text_bytes + 63) / 64 * 64) << "this program has constants";
  EXPECT_GT((ObjectView{object_}.relocations([](Elf64_Rela&, const Elf64_Shdr&) {})), 0);
}

TEST_F(LlvmLink, UndefinedSymbolIsRejected) {
  ObjectView view{object_};
  uint64_t symbol = 0;
  view.relocations([&](Elf64_Rela& r, const Elf64_Shdr&) { symbol = ELF64_R_SYM(r.r_info); });
  ASSERT_NE(symbol, 0u);
  view.symbol(symbol)->st_shndx = SHN_UNDEF;
  expect_rejected("undefined symbol");
}

TEST_F(LlvmLink, UnknownRelocationIsRejected) {
  ObjectView{object_}.relocations(
      [](Elf64_Rela& r, const Elf64_Shdr&) { r.r_info = ELF64_R_INFO(ELF64_R_SYM(r.r_info), R_X86_64_TPOFF32); });
  expect_rejected("unknown relocation");
}

TEST_F(LlvmLink, AbsoluteAddressIsRejected) {
  ObjectView{object_}.relocations(
      [](Elf64_Rela& r, const Elf64_Shdr&) { r.r_info = ELF64_R_INFO(ELF64_R_SYM(r.r_info), R_X86_64_32S); });
  expect_rejected("absolute address");
}

TEST_F(LlvmLink, GotLoadOfAnotherInstructionIsRejected) {
  ObjectView{object_}.relocations(
      [](Elf64_Rela& r, const Elf64_Shdr&) { r.r_info = ELF64_R_INFO(ELF64_R_SYM(r.r_info), R_X86_64_GOTPCREL); });
  expect_rejected("on another instruction than mov");
}

TEST_F(LlvmLink, GotLoadBecomesAnAddress) {
  // Makes the first referring instruction a mov of a symbol's table entry: 48 8b 05 <disp>.
  ObjectView view{object_};
  uint64_t at = 0;
  view.relocations([&](Elf64_Rela& r, const Elf64_Shdr& target) {
    if (at != 0) return;
    at = r.r_offset;
    r.r_info = ELF64_R_INFO(ELF64_R_SYM(r.r_info), R_X86_64_REX_GOTPCRELX);
    uint8_t* code = object_.data() + target.sh_offset + r.r_offset;
    code[-3] = 0x48, code[-2] = 0x8b, code[-1] = 0x05;
  });
  const auto linked = link_object(object_, program_.name);
  ASSERT_TRUE(linked.ok()) << linked.status().to_string();
  EXPECT_EQ(linked->code[at - 2], 0x8d);
}

TEST_F(LlvmLink, WritableSectionIsRejected) {
  ObjectView view{object_};
  for (size_t i = 0; i < view.header()->e_shnum; ++i) {
    if ((view.section(i)->sh_flags & SHF_ALLOC) && view.section(i)->sh_size > 0) view.section(i)->sh_flags |= SHF_WRITE;
  }
  expect_rejected("writable section");
}

TEST_F(LlvmLink, MissingEntryIsRejected) {
  program_.name += "_other";
  expect_rejected("no function named");
}

TEST_F(LlvmLink, ObjectsCutShortAreRejected) {
  const std::vector<uint8_t> whole = object_;
  for (size_t size = 0; size < whole.size(); size += 7) {
    object_.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(link_object(object_, program_.name).ok()) << size;
  }
}

TEST_F(LlvmLink, ChangedBytesNeverCrash) {
  const std::vector<uint8_t> whole = object_;
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    object_ = whole;
    for (int k = 0; k < 4; ++k) object_[random() % object_.size()] = static_cast<uint8_t>(random());
    const auto linked = link_object(object_, program_.name);
    if (linked.ok()) {
      EXPECT_LE(linked->entry, linked->code.size());
    }
  }
}

}  // namespace
}  // namespace lathe::jit
