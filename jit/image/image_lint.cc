// See image_lint.h. A length decoder for 64-bit code, by opcode maps; tables of what each opcode carries, everything
// else is refused.
#include "jit/image/image_lint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "jit/host/host_cpu.h"
#include "jit/image/image.h"

namespace lathe::jit {

using ir::Status;

namespace {

// What follows an opcode. no: refused.
enum class Form : uint8_t { no, bare, imm8, imm32, modrm, modrm_imm8, modrm_imm32, jump8, jump32 };

using Map = std::array<Form, 256>;

void set(Map* map, int from, int to, Form form) { std::fill(map->begin() + from, map->begin() + to + 1, form); }

Map one_byte_map() {
  Map m{};
  for (int row = 0; row < 0x40; row += 8) {
    set(&m, row, row + 3, Form::modrm);
    m[static_cast<size_t>(row + 4)] = Form::imm8;
    m[static_cast<size_t>(row + 5)] = Form::imm32;
  }
  set(&m, 0x50, 0x5f, Form::bare);
  m[0x63] = Form::modrm;
  m[0x69] = Form::modrm_imm32;
  m[0x6b] = Form::modrm_imm8;
  set(&m, 0x70, 0x7f, Form::jump8);
  m[0x80] = m[0x83] = m[0xc0] = m[0xc1] = m[0xc6] = Form::modrm_imm8;
  m[0x81] = m[0xc7] = Form::modrm_imm32;
  set(&m, 0x84, 0x8b, Form::modrm);
  m[0x8d] = Form::modrm;
  set(&m, 0x90, 0x99, Form::bare);
  m[0xa8] = Form::imm8;
  m[0xa9] = Form::imm32;
  set(&m, 0xb0, 0xb7, Form::imm8);
  set(&m, 0xb8, 0xbf, Form::imm32);  // eight bytes with REX.W
  m[0xc3] = m[0xc9] = Form::bare;
  set(&m, 0xd0, 0xd3, Form::modrm);
  m[0xe9] = Form::jump32;
  m[0xeb] = Form::jump8;
  m[0xf6] = m[0xf7] = m[0xfe] = m[0xff] = Form::modrm;  // by their extension
  return m;
}

Map two_byte_map() {
  Map m{};
  m[0x0d] = m[0x18] = m[0x1e] = m[0x1f] = Form::modrm;
  set(&m, 0x10, 0x17, Form::modrm);
  set(&m, 0x28, 0x2f, Form::modrm);
  set(&m, 0x40, 0x6f, Form::modrm);
  set(&m, 0x70, 0x73, Form::modrm_imm8);
  set(&m, 0x74, 0x76, Form::modrm);
  set(&m, 0x7c, 0x7f, Form::modrm);
  set(&m, 0x80, 0x8f, Form::jump32);
  set(&m, 0x90, 0x9f, Form::modrm);
  m[0xa3] = m[0xa5] = m[0xab] = m[0xad] = m[0xaf] = m[0xb3] = Form::modrm;
  m[0xa4] = m[0xac] = m[0xba] = m[0xc2] = m[0xc4] = m[0xc5] = m[0xc6] = Form::modrm_imm8;
  m[0xb6] = m[0xb7] = m[0xb8] = m[0xbb] = m[0xbc] = m[0xbd] = m[0xbe] = m[0xbf] = Form::modrm;
  set(&m, 0xc8, 0xcf, Form::bare);
  set(&m, 0xd0, 0xfe, Form::modrm);
  return m;
}

// Map 1 under VEX and EVEX: vector instructions only, their masks and vzeroupper.
Form vector_form(int map, uint8_t opcode, bool evex) {
  static const Map kTwo = two_byte_map();
  if (map == 2) return Form::modrm;
  if (map == 3) return Form::modrm_imm8;
  if (map == 5 || map == 6) return evex ? Form::modrm : Form::no;
  if (map != 1) return Form::no;
  if (opcode == 0x77) return evex ? Form::no : Form::bare;
  if (opcode == 0xae) return Form::no;  // MXCSR
  if ((opcode >= 0x78 && opcode <= 0x7b) && evex) return Form::modrm;
  if (opcode >= 0x80 && opcode <= 0x8f) return Form::no;
  return kTwo[opcode];
}

class Sweep {
 public:
  explicit Sweep(const CodeImage& image) : image_(image), starts_(image.text_bytes + 1, false) {}

  Status run() {
    while (at_ < image_.text_bytes && !only_padding()) {
      starts_[at_] = true;
      start_ = at_;
      LATHE_RETURN_IF_ERROR(instruction());
    }
    for (const auto& [from, to] : jumps_) {
      if (to < 0 || to >= static_cast<int64_t>(image_.text_bytes) || !starts_[static_cast<size_t>(to)])
        return ir::invalid("at {}: a jump to {}, which is no instruction", from, to);
    }
    if (!starts_[image_.entry]) return ir::invalid("the entry is no instruction");
    if (!returns_) return ir::invalid("nothing returns");
    return {};
  }

 private:
  // Traps fill the text up to its last line; nothing runs or jumps there.
  bool only_padding() const {
    const auto text = image_.code.begin();
    return returns_ && std::all_of(text + static_cast<std::ptrdiff_t>(at_), text + image_.text_bytes,
                                   [](uint8_t b) { return b == 0xcc; });
  }

  Status refuse(const char* what) const { return ir::invalid("at {}: {}", start_, what); }

  bool take(uint8_t* byte) {
    if (at_ >= image_.text_bytes) return false;
    *byte = image_.code[at_++];
    return true;
  }
  bool skip(size_t n) {
    at_ += n;
    return at_ <= image_.text_bytes;
  }
  Status needs(uint64_t features) const {
    const uint64_t missing = features & ~image_.features;
    if (missing == 0) return {};
    return ir::invalid("at {}: needs {}, which is not declared", start_, feature_names(missing));
  }

  // *reg: the extension. Memory relative to the code has to lie in the image; known when the instruction's end is.
  bool modrm(uint8_t* byte) {
    if (!take(byte)) return false;
    const int mod = *byte >> 6, rm = *byte & 7;
    if (mod == 3) return true;
    uint8_t sib = 0;
    if (rm == 4 && !take(&sib)) return false;
    if (mod == 1) return skip(1);
    if (mod == 0 && rm == 5) {
      if (at_ + 4 > image_.text_bytes) return false;
      int32_t distance;
      std::memcpy(&distance, image_.code.data() + at_, 4);
      relative_ = distance;
      has_relative_ = true;
      return skip(4);
    }
    return mod == 2 || (mod == 0 && rm == 4 && (sib & 7) == 5) ? skip(4) : true;
  }

  bool jump(size_t bytes) {
    if (at_ + bytes > image_.text_bytes) return false;
    int32_t distance = 0;
    if (bytes == 1)
      distance = static_cast<int8_t>(image_.code[at_]);
    else
      std::memcpy(&distance, image_.code.data() + at_, 4);
    at_ += bytes;
    jumps_.emplace_back(start_, static_cast<int64_t>(at_) + distance);
    return true;
  }

  Status operands(Form form, uint8_t* modrm_byte, bool short_imm) {
    bool ok = true;
    const size_t word = short_imm ? 2 : 4;
    switch (form) {
      case Form::no:
        return refuse("an instruction no leaf has");
      case Form::bare:
        break;
      case Form::imm8:
        ok = skip(1);
        break;
      case Form::imm32:
        ok = skip(word);
        break;
      case Form::modrm:
        ok = modrm(modrm_byte);
        break;
      case Form::modrm_imm8:
        ok = modrm(modrm_byte) && skip(1);
        break;
      case Form::modrm_imm32:
        ok = modrm(modrm_byte) && skip(word);
        break;
      case Form::jump8:
        ok = jump(1);
        break;
      case Form::jump32:
        ok = jump(4);
        break;
    }
    return ok ? Status() : refuse("cut off");
  }

  Status instruction() {
    bool short_imm = false, repeated = false, wide = false;
    uint8_t byte = 0;
    has_relative_ = false;
    while (true) {
      if (!take(&byte)) return refuse("cut off");
      if (byte == 0x66)
        short_imm = true;
      else if (byte == 0xf2 || byte == 0xf3)
        repeated = true;
      else if (byte != 0x2e && byte != 0x3e)
        break;  // no-op prefixes of alignment and branches
      if (at_ - start_ > 14) return refuse("an instruction without end");
    }
    if (byte == 0xc5 || byte == 0xc4 || byte == 0x62) {
      if (short_imm || repeated) return refuse("a prefix before a vector instruction");
      LATHE_RETURN_IF_ERROR(vector_instruction(byte));
    } else {
      if ((byte & 0xf0) == 0x40) {
        wide = (byte & 8) != 0;
        if (!take(&byte)) return refuse("cut off");
      }
      LATHE_RETURN_IF_ERROR(byte == 0x0f ? escaped(repeated) : plain(byte, short_imm, wide));
    }
    if (!has_relative_) return {};
    const int64_t target = static_cast<int64_t>(at_) + relative_;
    if (target < 0 || target >= static_cast<int64_t>(image_.code.size())) return refuse("an address outside the image");
    return {};
  }

  Status plain(uint8_t opcode, bool short_imm, bool wide) {
    static const Map kOne = one_byte_map();
    uint8_t m = 0;
    if ((opcode & 0xf8) == 0xb8 && wide) return skip(8) ? Status() : refuse("cut off");
    LATHE_RETURN_IF_ERROR(operands(kOne[opcode], &m, short_imm));
    const int extension = m >> 3 & 7;
    if (opcode == 0xf6 && extension < 2 && !skip(1)) return refuse("cut off");
    if (opcode == 0xf7 && extension < 2 && !skip(short_imm ? 2 : 4)) return refuse("cut off");
    if (opcode == 0xfe && extension > 1) return refuse("an instruction no leaf has");
    if (opcode == 0xff && extension > 1) return refuse("an indirect call or jump");
    if ((opcode == 0xc6 || opcode == 0xc7) && extension != 0) return refuse("an instruction no leaf has");
    returns_ |= opcode == 0xc3;
    return {};
  }

  Status escaped(bool repeated) {
    static const Map kTwo = two_byte_map();
    uint8_t opcode = 0, m = 0;
    if (!take(&opcode)) return refuse("cut off");
    if (opcode == 0x38 || opcode == 0x3a) {
      const bool immediate = opcode == 0x3a;
      if (!take(&opcode)) return refuse("cut off");
      return operands(immediate ? Form::modrm_imm8 : Form::modrm, &m, false);
    }
    const bool fence = opcode == 0xae;  // those of streaming stores, by their register form
    LATHE_RETURN_IF_ERROR(operands(fence ? Form::modrm : kTwo[opcode], &m, false));
    if (fence && (repeated || m < 0xe8)) return refuse("an instruction no leaf has");
    if (opcode == 0x1e && !(repeated && (m == 0xfa || m == 0xfb))) return refuse("an instruction no leaf has");
    return {};
  }

  Status vector_instruction(uint8_t prefix) {
    uint8_t p0 = 0, p1 = 0, p2 = 0, opcode = 0, m = 0;
    int map = 1;
    if (!take(&p0)) return refuse("cut off");
    if (prefix != 0xc5) {
      map = p0 & (prefix == 0x62 ? 7 : 31);
      if (!take(&p1)) return refuse("cut off");
    }
    const bool evex = prefix == 0x62;
    if (evex && !take(&p2)) return refuse("cut off");
    if (evex && ((p0 & 8) != 0 || (p1 & 4) == 0)) return refuse("an instruction no leaf has");
    if (!take(&opcode)) return refuse("cut off");
    LATHE_RETURN_IF_ERROR(operands(vector_form(map, opcode, evex), &m, false));
    const int implied = (prefix == 0xc5 ? p0 : p1) & 3;
    if (map == 2 && !evex && (opcode == 0x49 || opcode == 0x4b || opcode == 0x5c || opcode == 0x5e))
      return tiles(opcode, implied);
    LATHE_RETURN_IF_ERROR(needs(evex ? uint64_t{kCpu_avx512f} : uint64_t{kCpu_avx}));
    const bool fused = map == 2 && opcode >= 0x96 && opcode <= 0xbf && (opcode & 0xf) >= 6;
    if (fused && !evex) LATHE_RETURN_IF_ERROR(needs(kCpu_fma));
    if (map == 2 && opcode == 0x52 && implied == 2 && evex) {  // dot products of bf16
      LATHE_RETURN_IF_ERROR(needs(kCpu_avx512bf16));
    } else if (map == 2 && opcode >= 0x50 && opcode <= 0x53) {  // of integers; other prefixes have other meanings
      if (implied != 1) return refuse("an instruction no leaf has");
      LATHE_RETURN_IF_ERROR(needs(evex ? uint64_t{kCpu_avx512vnni} : uint64_t{kCpu_avx_vnni}));
    }
    if (!evex && ((map == 2 && opcode == 0x13) || (map == 3 && opcode == 0x1d)))
      LATHE_RETURN_IF_ERROR(needs(kCpu_f16c));
    return {};
  }

  // Each instruction on tiles, or on their configuration, is one opcode with one prefix.
  Status tiles(uint8_t opcode, int implied) {
    const bool known = opcode == 0x49   ? implied == 0 || implied == 3  // ldtilecfg, tilerelease; tilezero
                       : opcode == 0x4b ? implied == 2 || implied == 3  // tilestored, tileloadd
                       : opcode == 0x5e ? implied != 0                  // tdpbusd, tdpbsud, tdpbssd
                                        : implied == 2;                 // tdpbf16ps
    if (!known) return refuse("an instruction no leaf has");
    return needs(opcode == 0x5c   ? uint64_t{kCpu_amx_bf16}
                 : opcode == 0x5e ? uint64_t{kCpu_amx_int8}
                                  : uint64_t{kCpu_amx_tile});
  }

  const CodeImage& image_;
  size_t at_ = 0, start_ = 0;
  std::vector<bool> starts_;
  std::vector<std::pair<size_t, int64_t>> jumps_;
  bool has_relative_ = false, returns_ = false;
  int64_t relative_ = 0;
};

}  // namespace

Status lint_image(const CodeImage& image) {
  LATHE_RETURN_IF_ERROR(check_image(image));
  if (image.text_bytes > image.code.size() || image.entry >= image.text_bytes)
    return ir::invalid("the text is longer than the image");
  return Sweep(image).run();
}

}  // namespace lathe::jit
