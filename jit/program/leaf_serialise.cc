// The bytes of a leaf program: what the LLVM plug-in is handed and what tests compare.
// Little-endian fixed fields after a magic word; not a store format (images are stored, programs
// are not). Malformed bytes give INVALID, never a crash: every count is checked against the bytes
// left, nesting against a limit, and the result against verify_program.
#include <cstring>
#include <type_traits>

#include "jit/program/leaf_program.h"

namespace lathe::jit {
namespace {

constexpr uint32_t kMagic = 0x36504c4c;  // "LLP6"
constexpr int kMaxDepth = 20;

// One visitor describes each struct; the archive writes or reads it.
class Writer {
 public:
  explicit Writer(std::vector<uint8_t>* out) : out_(out) {}
  template <class T>
  void value(const T& v) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    uint8_t bytes[sizeof(T)];
    std::memcpy(bytes, &v, sizeof(T));
    out_->insert(out_->end(), bytes, bytes + sizeof(T));
  }
  template <class List>
  uint32_t count(List& v) {
    value(static_cast<uint32_t>(v.size()));
    return static_cast<uint32_t>(v.size());
  }
  void text(std::string& s) {
    value(static_cast<uint32_t>(s.size()));
    out_->insert(out_->end(), s.begin(), s.end());
  }
  bool enter() { return true; }
  void leave() {}

 private:
  std::vector<uint8_t>* out_;
};

class Reader {
 public:
  Reader(const uint8_t* bytes, size_t size) : p_(bytes), left_(size) {}
  template <class T>
  void value(T& v) {
    if (!ok_ || left_ < sizeof(T)) return fail();
    if constexpr (std::is_same_v<T, bool>) {
      if (*p_ > 1) return fail();
      v = *p_ == 1;
    } else {
      std::memcpy(&v, p_, sizeof(T));
    }
    p_ += sizeof(T);
    left_ -= sizeof(T);
  }
  // Each element takes at least one byte, so a count beyond the bytes left is malformed.
  template <class List>
  uint32_t count(List& v) {
    uint32_t n = 0;
    value(n);
    if (!ok_ || n > left_) {
      fail();
      n = 0;
    }
    v.clear();
    return n;
  }
  void text(std::string& s) {
    uint32_t n = 0;
    value(n);
    if (!ok_ || n > left_) return fail();
    s.assign(reinterpret_cast<const char*>(p_), n);
    p_ += n;
    left_ -= n;
  }
  bool enter() {
    if (++depth_ > kMaxDepth) fail();
    return ok_;
  }
  void leave() { --depth_; }
  bool ok() const { return ok_; }
  size_t left() const { return left_; }

 private:
  void fail() { ok_ = false; }
  const uint8_t* p_;
  size_t left_;
  int depth_ = 0;
  bool ok_ = true;
};

template <class A, class List, class F>
void list(A& a, List& v, F&& f) {
  const uint32_t n = a.count(v);
  for (uint32_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<A, Reader>) {
      if (!a.ok()) return;
      v.emplace_back();
    }
    f(v[i]);
  }
}

template <class A>
void visit(A& a, Extent& e) {
  a.value(e.arg);
  a.value(e.add);
}
template <class A>
void visit(A& a, std::vector<PtrTerm>& terms) {
  list(a, terms, [&](PtrTerm& t) {
    a.value(t.stride);
    a.value(t.mult);
  });
}
template <class A>
void visit(A& a, Inst& i) {
  a.value(i.op);
  a.value(i.dst);
  for (int& s : i.src) a.value(s);
  a.value(i.mask);
  a.value(i.mem.ptr);
  a.value(i.mem.index_kind);
  a.value(i.mem.index);
  a.value(i.mem.scale);
  a.value(i.mem.disp);
  a.value(i.imm);
  a.value(i.var);
  a.value(i.var_add);
  visit(a, i.extent);
  a.value(i.type);
}
template <class A>
void visit(A& a, Node& n) {
  if (!a.enter()) return;
  a.value(n.kind);
  if (n.kind == Node::Kind::inst) {
    visit(a, n.inst);
  } else {
    a.value(n.var);
    a.value(n.init);
    a.value(n.step);
    visit(a, n.extent);
    a.value(n.from);
    for (int* p : {&n.seg_ptr_a, &n.seg_base_a, &n.seg_ptr_b, &n.seg_base_b, &n.mask}) a.value(*p);
    list(a, n.steps, [&](PtrStep& s) {
      a.value(s.ptr);
      a.value(s.bytes);
      visit(a, s.terms);
    });
    list(a, n.body, [&](Node& child) { visit(a, child); });
  }
  a.leave();
}
template <class A>
void visit(A& a, LeafProgram& p) {
  a.text(p.name);
  a.value(p.level);
  for (int* n : {&p.lanes, &p.vector_registers, &p.mask_registers, &p.num_vregs, &p.num_masks, &p.num_vars})
    a.value(*n);
  a.value(p.extra);
  for (uint8_t& rows : p.tile_rows) a.value(rows);
  list(a, p.ptrs, [&](PtrInit& init) {
    a.value(init.slot);
    a.value(init.stream);
    a.value(init.bytes);
    visit(a, init.terms);
  });
  list(a, p.body, [&](Node& n) { visit(a, n); });
}

}  // namespace

std::vector<uint8_t> serialise(const LeafProgram& program) {
  std::vector<uint8_t> out;
  Writer writer(&out);
  writer.value(kMagic);
  LeafProgram copy = program;  // the visitor takes mutable references for the reader's sake
  visit(writer, copy);
  return out;
}

ir::Result<LeafProgram> deserialise(const uint8_t* bytes, size_t size) {
  Reader reader(bytes, size);
  uint32_t magic = 0;
  reader.value(magic);
  if (!reader.ok() || magic != kMagic) return ir::invalid("not a leaf program: wrong magic");
  LeafProgram program;
  visit(reader, program);
  if (!reader.ok()) return ir::invalid("leaf program: truncated or malformed");
  if (reader.left() != 0) return ir::invalid("leaf program: {} bytes after its end", reader.left());
  LATHE_RETURN_IF_ERROR(verify_program(program));
  return program;
}

}  // namespace lathe::jit
