// See nest_walk.h.
#include "runtime/walk/nest_walk.h"

#include <algorithm>
#include <cstring>

#include "runtime/walk/x86/cpu.h"

namespace lathe::runtime {
namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

template <class T>
int64_t element(const char* base, int64_t number) {
  T value;
  std::memcpy(&value, base + number * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

int64_t run_program(const ProgramStep* steps, uint32_t count, const int64_t* iters, char* const* bases) {
  using K = ProgramStep::Kind;
  int64_t stack[kMaxNestStack + 3];
  int64_t* top = stack;  // below the first value
  auto binary = [&](auto f) {
    --top;
    *top = f(top[0], top[1]);
  };
  for (uint32_t i = 0; i < count; ++i) {
    switch (steps[i].kind) {
      case K::constant:
        *++top = steps[i].value;
        break;
      case K::iterator:
        *++top = iters[steps[i].value];
        break;
      case K::load_i8:
        *top = element<int8_t>(bases[steps[i].value], *top);
        break;
      case K::load_u8:
        *top = element<uint8_t>(bases[steps[i].value], *top);
        break;
      case K::load_i32:
        *top = element<int32_t>(bases[steps[i].value], *top);
        break;
      case K::load_i64:
        *top = element<int64_t>(bases[steps[i].value], *top);
        break;
      case K::add:
        binary([](int64_t a, int64_t b) { return a + b; });
        break;
      case K::sub:
        binary([](int64_t a, int64_t b) { return a - b; });
        break;
      case K::mul:
        binary([](int64_t a, int64_t b) { return a * b; });
        break;
      case K::floordiv:
        binary([](int64_t a, int64_t b) { return floor_div(a, b); });
        break;
      case K::mod:
        binary([](int64_t a, int64_t b) { return a - floor_div(a, b) * b; });
        break;
      case K::ceildiv:
        binary([](int64_t a, int64_t b) { return -floor_div(-a, b); });
        break;
      case K::min:
        binary([](int64_t a, int64_t b) { return std::min(a, b); });
        break;
      case K::max:
        binary([](int64_t a, int64_t b) { return std::max(a, b); });
        break;
      case K::neg:
        *top = -*top;
        break;
      case K::abs:
        *top = *top < 0 ? -*top : *top;
        break;
      case K::lt:
        binary([](int64_t a, int64_t b) { return int64_t{a < b}; });
        break;
      case K::le:
        binary([](int64_t a, int64_t b) { return int64_t{a <= b}; });
        break;
      case K::eq:
        binary([](int64_t a, int64_t b) { return int64_t{a == b}; });
        break;
      case K::ne:
        binary([](int64_t a, int64_t b) { return int64_t{a != b}; });
        break;
      case K::land:
        binary([](int64_t a, int64_t b) { return int64_t{a != 0 && b != 0}; });
        break;
      case K::lor:
        binary([](int64_t a, int64_t b) { return int64_t{a != 0 || b != 0}; });
        break;
      case K::lnot:
        *top = *top == 0;
        break;
      case K::select:
        top -= 2;
        *top = top[0] != 0 ? top[1] : top[2];
        break;
    }
  }
  return *top;
}

// In general registers: copies through vector registers would wait for the sums that the leaf before them has left in
// their upper halves.
template <typename T>
void copy_words(T* to, const T& from) {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0);
  const char* const source = reinterpret_cast<const char*>(&from);
  char* const target = reinterpret_cast<char*>(to);
  for (size_t i = 0; i < sizeof(T); i += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, source + i, sizeof word);
    asm("" : "+r"(word));
    std::memcpy(target + i, &word, sizeof word);
  }
}

// The arguments of one call, advanced in place along the innermost loop.
struct Frame {
  ir::LeafArgs args;
  ir::LeafSeg segments[kMaxChangingSegments];  // of a call whose segments change
  uint32_t leaf;                               // index of the LeafRef; kSkip: some variant extent is 0
};
constexpr uint32_t kSkip = UINT32_MAX;

// One thread's walk of its part of one phase.
struct Walker {
  Walker(const BoundNest& n, const LeafRef* l, char* const* b) : nest(n), leaves(l), bases(b) {}

  const BoundNest& nest;
  const LeafRef* leaves;
  char* const* bases;
  int64_t iters[kMaxNestDepth + kMaxNestLocals];  // those of open loops, and their locals

  int64_t affine(const Affine& a) const {
    int64_t v = a.base;
    const Term* t = nest.terms.data() + a.first_term;
    for (uint32_t i = 0; i < a.num_terms; ++i) v += t[i].coeff * iters[t[i].level];
    return v;
  }
  int64_t load(const ProgramStep& step, int64_t number) const {
    const char* base = bases[step.value];
    switch (step.kind) {
      case ProgramStep::Kind::load_i8:
        return element<int8_t>(base, number);
      case ProgramStep::Kind::load_u8:
        return element<uint8_t>(base, number);
      case ProgramStep::Kind::load_i32:
        return element<int32_t>(base, number);
      default:
        return element<int64_t>(base, number);
    }
  }
  int64_t eval(const Form& f) const {
    if (f.kind == Form::Kind::constant) return f.value;
    if (f.kind == Form::Kind::program) return run_program(nest.program.data() + f.first, f.count, iters, bases);
    const Affine* a = nest.affines.data() + f.first;
    int64_t v = affine(a[0]);
    for (uint32_t i = 1; i < f.count; ++i) v = std::min(v, affine(a[i]));
    return v;
  }

  void locals(const LocalRange& range) {
    const BoundLocal* l = nest.locals.data() + range.first;
    for (uint32_t i = 0; i < range.count; ++i, ++l) {
      int64_t value = eval(l->form);
      if (l->loads) value = load(l->load, value);
      iters[l->level] = value;
    }
  }

  // The constant part of the arguments.
  void start(const BoundCall& c, Frame* f) const {
    for (uint32_t i = 0; i < c.num_operands; ++i) copy_words(&f->args.op[i], c.args.op[i]);
    if (c.num_extents != 0) copy_words(&f->args.extent, c.args.extent);
    f->args.nseg = c.args.nseg;
    f->args.seg = nest.segments.data() + c.first_segment;
    if (c.segments_change) {
      for (int64_t i = 0; i < c.args.nseg; ++i) copy_words(&f->segments[i], f->args.seg[i]);
      f->args.seg = f->segments;
    }
    if (c.num_streams != 0) copy_words(&f->args.stream, c.args.stream);
    f->leaf = c.leaf;
  }

  void set_pointer(const BoundCall& c, const BoundPointer& p, Frame* f) const {
    int64_t bytes = affine(p.bytes);
    if (c.inner_level >= 0) bytes += p.inner_step * iters[c.inner_level];
    if (p.general) bytes += eval(p.form);
    char* address = bases[p.buffer] + bytes;
    if (p.stream) {
      ir::LeafStream& s = f->args.stream[p.slot];
      s.ptr = address;
      s.end = address + reinterpret_cast<intptr_t>(c.args.stream[p.slot].end);
    } else {
      f->args.op[p.slot].ptr = address;
    }
  }
  void set_pointers(const BoundCall& c, Frame* f) const {
    const BoundPointer* p = nest.pointers.data() + c.first_pointer;
    for (uint32_t i = 0; i < c.num_pointers; ++i) set_pointer(c, p[i], f);
  }

  void set_values(const BoundCall& c, Frame* f) const {
    const DynamicValue* v = nest.values.data() + c.first_value;
    int64_t variant = 0;
    bool skip = false;
    for (uint32_t i = 0; i < c.num_values; ++i, ++v) {
      const int64_t x = eval(v->form);
      switch (v->use) {
        case DynamicValue::Use::extent:
          f->args.extent[v->slot] = std::max<int64_t>(x, 0);
          break;
        case DynamicValue::Use::segment_len:
          f->segments[v->slot].len = std::max<int64_t>(x, 0);
          break;
        case DynamicValue::Use::segment_a:
          f->segments[v->slot].a_off = x;
          break;
        case DynamicValue::Use::segment_b:
          f->segments[v->slot].b_off = x;
          break;
        case DynamicValue::Use::variant:
          skip |= x <= 0;
          variant = variant * v->count + x - 1;
          break;
      }
    }
    if (c.variants) f->leaf = skip ? kSkip : nest.leaf_table[c.leaf + static_cast<uint64_t>(variant)];
  }

  void call(const Frame& f) const {
    if (f.leaf != kSkip) leaves[f.leaf](&f.args);
  }

  void advance(const BoundCall& c, Frame* f) const {
    const BoundPointer* p = nest.pointers.data() + c.first_pointer;
    for (uint32_t i = 0; i < c.num_operands; ++i) f->args.op[i].ptr += p[i].inner_step;
    for (uint32_t i = 0; i < c.num_streams; ++i) {
      f->args.stream[i].ptr += p[c.num_operands + i].inner_step;
      f->args.stream[i].end += p[c.num_operands + i].inner_step;
    }
  }

  void call_once(const BoundCall& c) const {
    Frame f;
    start(c, &f);
    set_pointers(c, &f);
    if (c.num_values != 0) set_values(c, &f);
    call(f);
  }

  // Where some do not advance by a constant step.
  void advance_pointers(const BoundCall& c, Frame* f) const {
    const BoundPointer* p = nest.pointers.data() + c.first_pointer;
    for (uint32_t i = 0; i < c.num_pointers; ++i, ++p) {
      if (p->follows) {
        set_pointer(c, *p, f);
      } else if (p->stream) {
        f->args.stream[p->slot].ptr += p->inner_step;
        f->args.stream[p->slot].end += p->inner_step;
      } else {
        f->args.op[p->slot].ptr += p->inner_step;
      }
    }
  }

  // A loop of calls only: addresses are increments, values are looked at again only if they follow
  // this loop.
  void inner_loop(const BoundNode& n, int64_t from, int64_t to) {
    Frame frames[kMaxInnerCalls];
    const BoundCall* calls[kMaxInnerCalls];
    iters[n.level] = from;
    locals(n.locals);
    for (uint32_t k = 0; k < n.num_children; ++k) {
      calls[k] = &nest.calls[nest.nodes[n.first_child + k].call];
      start(*calls[k], &frames[k]);
      set_pointers(*calls[k], &frames[k]);
      if (calls[k]->num_values != 0) set_values(*calls[k], &frames[k]);
    }
    for (int64_t i = from;;) {
      for (uint32_t k = 0; k < n.num_children; ++k) call(frames[k]);
      if (++i >= to) break;
      iters[n.level] = i;
      locals(n.locals);
      for (uint32_t k = 0; k < n.num_children; ++k) {
        const BoundCall& c = *calls[k];
        if (c.pointers_follow) {
          advance_pointers(c, &frames[k]);
        } else {
          advance(c, &frames[k]);
        }
        if (c.inner_values) set_values(c, &frames[k]);
      }
    }
  }

  void loop(const BoundNode& n, int64_t from, int64_t to) {
    if (from >= to) return;
    if (n.inner) {
      inner_loop(n, from, to);
      return;
    }
    for (int64_t i = from; i < to; ++i) {
      iters[n.level] = i;
      locals(n.locals);
      nodes(n.first_child, n.num_children);
    }
  }

  void nodes(uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const BoundNode& n = nest.nodes[first + i];
      if (n.loop) {
        loop(n, 0, eval(n.extent));
      } else {
        call_once(nest.calls[n.call]);
      }
    }
  }

  // How often the innermost of so many parallel loops runs, or how many elements its iterations have.
  int64_t iterations(const BoundNode& n, int loops) {
    if (loops == 1 && n.unit > 1) return std::max<int64_t>(eval(n.size), 0);
    const int64_t extent = std::max<int64_t>(eval(n.extent), 0);
    if (loops == 1 || extent == 0) return extent;
    const BoundNode& inner = nest.nodes[n.first_child];
    if (n.even) return extent * iterations(inner, loops - 1);
    int64_t sum = 0;
    for (int64_t i = 0; i < extent; ++i) {
      iters[n.level] = i;
      locals(n.locals);
      sum += iterations(inner, loops - 1);
    }
    return sum;
  }

  // Those from `from` up to `to` of them.
  void run(const BoundNode& n, int loops, int64_t from, int64_t to) {
    if (loops == 1) {
      // An iteration belongs to the share of its first element.
      if (n.unit > 1) from = (from + n.unit - 1) / n.unit, to = (to + n.unit - 1) / n.unit;
      loop(n, from, to);
      return;
    }
    const BoundNode& inner = nest.nodes[n.first_child];
    int64_t i = 0, count = 0;
    if (n.even && from < to) {
      count = iterations(inner, loops - 1);
      i = from / count;
      from -= i * count;
      to -= i * count;
    }
    for (; from < to; ++i) {
      iters[n.level] = i;
      locals(n.locals);
      if (!n.even) count = iterations(inner, loops - 1);
      if (from < count) run(inner, loops - 1, from, std::min(to, count));
      from = std::max<int64_t>(from - count, 0);
      to -= count;
    }
  }

  // Part `part` of the parallel space.
  void share(const BoundPhase& p, int part) {
    const BoundNode& outer = nest.nodes[p.first_node];
    const int64_t total = iterations(outer, p.parallel_loops);
    const int64_t from = total / p.parts * part + std::min<int64_t>(part, total % p.parts);
    run(outer, p.parallel_loops, from, from + total / p.parts + (part < total % p.parts ? 1 : 0));
  }
};

void zero_upper(const BoundNest& nest) {
  if (nest.vzeroupper) {
    zero_upper_halves();
  }
}

struct Job {
  const BoundNest& nest;
  const LeafRef* leaves;
  void* const* args;
  char* workspace;
  const BoundPhase* phase;

  void run(int part) const {
    char* const* bases = reinterpret_cast<char* const*>(args);
    char* all[kMaxNestBuffers];
    if (!nest.scratch.empty()) {
      std::copy(args, args + nest.num_params, reinterpret_cast<void**>(all));
      for (size_t i = 0; i < nest.scratch.size(); ++i) {
        const BoundScratch& s = nest.scratch[i];
        all[nest.num_params + i] = workspace + s.offset + (s.per_thread ? s.bytes * part : 0);
      }
      bases = all;
    }
    Walker w(nest, leaves, bases);
    w.locals(phase->locals);
    if (phase->parallel_loops == 0) {
      w.nodes(phase->first_node, phase->num_nodes);
    } else {
      w.share(*phase, part);
    }
    zero_upper(nest);
  }
};

}  // namespace

void walk(const BoundNest& nest, const LeafRef* leaves, void* const* args, void* workspace, ThreadTeam* team) {
  if (nest.direct) return nest.direct->run(leaves[nest.direct->leaf], args);
  for (const BoundPhase& phase : nest.phases) {
    const Job job{nest, leaves, args, static_cast<char*>(workspace), &phase};
    if (phase.parts > 1 && team != nullptr) {
      team->parallel_for(
          phase.parts, [](void* c, int part) { static_cast<const Job*>(c)->run(part); }, const_cast<Job*>(&job));
    } else {
      for (int part = 0; part < phase.parts; ++part) job.run(part);
    }
  }
}

}  // namespace lathe::runtime
