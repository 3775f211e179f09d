// Device programs: what one thread of a launch does, in registers and accesses of its own. Everything that the hardware
// does is explicit: which elements a thread takes, how wide an access is, and what was asked of an address before. A
// plain value; prints as text; verify() states the rules.
//
//   program leaf threads 256 (p0: in, p1: out, e0)
//     let i1 = thread
//     if i1 < e0 - 4*block:
//       if aligned x4 p0[4*i1], p1[4*i1]:
//         v0 = load x4 p0[4*i1]
//         v1 = exp v0
//         store x4 p1[4*i1] v1
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/core/swizzle.h"

namespace lathe::jit {

enum class DeviceOp : uint8_t {
#define LATHE_DEVICE_OP(id, result, operands, device, host) k_##id,
#include "jit/cuda/device_ops.def"
#undef LATHE_DEVICE_OP
#define LATHE_INTEGER_OP(id, node, type, operands, device, host) k_##id,
#include "jit/cuda/integer_ops.def"
#undef LATHE_INTEGER_OP
};
struct DeviceOpRow {
  const char* name;
  ir::Op node;
  ir::DType type;  // of the node
  char result;     // as in the table
  const char* operands;
};
const DeviceOpRow& device_op(DeviceOp op);
// The operation that a node of that type is, of operands of those kinds; null: a device has none.
const DeviceOpRow* find_device_op(ir::Op node, ir::DType type, std::string_view operands, DeviceOp* op);
// What a thread has of an element in a register: f an f32, i an integer of at most 32 bits, b a condition, l 64 bits as
// they are.
char value_kind(ir::DType type);

enum class WarpOp : uint8_t {
#define LATHE_WARP_OP(id, results, operands, type) k_##id,
#define LATHE_WARPGROUP_OP(id, factors, type) k_##id,
#include "jit/cuda/warp_ops.def"
#undef LATHE_WARP_OP
};
inline constexpr int kWarpThreads = 32, kGroupThreads = 128;
struct WarpOpRow {
  const char *name, *results, *operands;
  ir::DType type;
  int threads;                                       // a warp, or a group of four
  bool moves() const { return operands[0] == 's'; }  // elements as they are
  // Whether a place of that kind may have elements of that type, so many in a register.
  bool takes(char place, ir::DType of, int elements) const;
  bool goes_on() const { return threads > kWarpThreads; }     // its threads do, and wait for the results later
  size_t held() const { return operands[0] == 't' ? 0 : 4; }  // of those: registers of a thread that are its factor
};
const WarpOpRow& warp_op(WarpOp op);
// Elements in the register of a place of that kind.
inline int elements_of(char place) { return place == 'h' ? 2 : place == 'q' || place == 'u' ? 4 : 1; }
// Of an operation that updates a cell: which of its operands is what the cell holds.
size_t running_operand(DeviceOp op);
// The instruction of that name; null: a device has none.
const WarpOpRow* find_warp_op(std::string_view intrinsic, WarpOp* op);

struct DeviceParam {
  std::string name;      // p0: the address of its first element
  bool written = false;  // else it is only read
  // bf16, f16: a load widens, a store rounds. i8, u8: a load widens, a store keeps the low bits. b8: conditions. i64:
  // integers that are taken, or stored from i32.
  ir::DType type = ir::DType::f32;
  bool bits = false;  // elements of 1, 2 and 8 bytes are moved as they are
  char kind() const;  // of its elements in registers
};

// An operand of an operation: a value or a constant.
struct DeviceOperand {
  int value = -1;  // its number; -1: the constant
  float constant = 0;
  bool whole = false;  // the constant is the integer
  int32_t number = 0;
};
inline DeviceOperand whole_constant(int32_t number) { return {-1, 0, true, number}; }

// Registers of a thread under one name. Which one is meant is known when code is made: loops over them are unrolled.
struct DeviceLocal {
  std::string name;  // r0
  int64_t count = 1;
  ir::DType type = ir::DType::f32;  // bf16, f16: two elements in a register, the even one in the low half. i32, i64
  bool fours = false;               // i8, u8: four elements in a register, which warps' instructions alone take
  // Of one register; 1: each has its own.
  int elements() const { return fours ? 4 : ir::dtype_bytes(type) == 2 ? 2 : 1; }
  int64_t registers() const {
    return (count * std::max(ir::dtype_bytes(type), 4) + 4 * elements() - 1) / (4 * elements());
  }
};

// Memory of a block, aligned to 16 bytes; where it is swizzled, to eight of its lines (ir/core/swizzle.h). Offsets in
// it are as if it were not: where they lie, the text says (swizzled_places.h).
struct DeviceShared {
  std::string name;  // s0
  int64_t count = 1;
  ir::DType type = ir::DType::f32;  // bf16, f16: a load widens, a store rounds. i32, i64
  int swizzle = 0;                  // bytes of the lines in which its pieces of 16 change places; 0: none do
  int ring = -1;                    // that says when boxes have arrived in its places; -1: none are copied to it
  int64_t line() const { return swizzle / dtype_bytes(type); }  // elements
  int64_t alignment() const { return swizzle > 0 ? ir::kSwizzledLines * swizzle : ir::kPieceBytes; }
  int64_t bytes() const { return (count * dtype_bytes(type) + alignment() - 1) / alignment() * alignment(); }
};

// A tensor that boxes are copied of (TMA): sizes and distances in elements, the neighbours first, as the driver's map
// of it has them. The map of each is a parameter. Where some operand has none, since it begins or steps at no multiple
// of 16 bytes, the size `mapped` is 0, and threads copy. (The maps of a leaf: jit/cuda/lower/box_maps.h)
struct DeviceMap {
  std::string name;                         // m0
  int param = 0;                            // of which
  std::vector<ir::Expr> sizes;              // of each dimension
  std::vector<ir::Expr> strides;            // of all but the first
  std::vector<int> box;                     // elements of a box along each
  int64_t elements() const;                 // of a box
  bool same(const DeviceMap& other) const;  // but for its name
};
inline constexpr int kMapBytes = 128, kMapAligned = 128, kMostMapDims = 5, kMostBox = 256;
inline constexpr const char* kMapped = "mapped";

// Places of a ring, of which each says when it has been filled (an mbarrier): when so many threads have arrived, and as
// many bytes as they expect. How often it has been filled is even or odd: that is what threads wait for. Where roles
// fill and read places, another ring says the same of how often each has been read.
struct DeviceRing {
  std::string name;  // f0; e0 of one that says what is read
  int places = 1;
  ir::Expr arrivals;  // of threads, until a place is full
  int read = -1;      // the ring whose places it says are read; -1: it says what is filled
};
inline constexpr int kRingBytes = 8;

// Warps that do two different things from some point on: the last threads of the block fill places of rings, all others
// read them. Each may have registers of its own number; 0: as many as at the start, which is as many as launch bounds
// allow.
struct DeviceRoles {
  int fillers = 0;  // threads; 0: all do the same
  int filler_registers = 0, reader_registers = 0;
};

// How a factor of a group of warps lies in swizzled memory, in lines of elements of 2 bytes: neighbours are terms, or,
// across, rows of a (columns of b). `lines` is from one to the 8th line after it, `panels` to the next line of rows or
// columns where these are neighbours.
struct DeviceTile {
  bool across = false;
  int64_t lines = 0, panels = 0;  // in elements
};

// An element: so many from the first one of a parameter, of a local or of shared memory.
struct DevicePlace {
  enum class Space : uint8_t { param, local, shared };
  Space space = Space::param;
  int index = -1;  // which one
  ir::Expr offset;
};

inline constexpr int kMaxLanes = 16;         // elements of a value: 16 bytes of one each
inline constexpr int kMaxHalves = 8;         // those of elements that are moved as they are: of 2 bytes each
inline constexpr int kMostLocals = 224;      // of the 255 registers that a thread may have
inline constexpr int kMostAllLocals = 384;   // of which not all are in use at once
inline constexpr int kMostCopies = 256;      // of an unrolled loop
inline constexpr int kMostShared = 232448;   // bytes of a block that some GPU has (ir::most_shared)
inline constexpr int kStaticShared = 49152;  // of these, without being asked for at a launch
inline constexpr int kMostStages = 8;        // of what is copied while others are used

struct DeviceStmt {
  enum class Kind : uint8_t {
    let,      // name = integer: an expression of sizes, `block`, how many `blocks` there are, `thread` and names above
    take,     // name = the integer at places[0], or the nearest in integer..step
    when,     // body if integer is true, else `otherwise`
    aligned,  // body if all of `places` are aligned to `lanes` elements, or to 16 bytes, and `integer`, if it is there,
              // is true; else `otherwise`
    loop,     // body for name = 0 .. integer-1; unrolled: in so many copies, of which the first `integer` run
    load,     // value = `lanes` elements from places[0] on, `step` apart
    set,      // value = op of operands, in each lane
    fold,     // value = op of operands, lane after lane: the one of place running_operand() is what there is before the
              // first, and then what there is so far; one lane
    index,    // value = `integer`: a condition, or a number as f32 or i32; `name` is the lane, if it is not empty
    shuffle,  // value = the operand of the thread whose number differs in the bit `distance`
    barrier,  // all threads of the block have come here, and see what the others stored
    warp_barrier,     // all threads of the warp have
    cluster_barrier,  // all threads of the cluster have, and know of each other's rings; of nothing else
    warp,             // the threads of each warp do `warp` together; places: its results, then its operands
    copy,    // `lanes` elements from places[1], of a parameter, on are on their way to places[0] on, of shared memory
    commit,  // the thread's copies since the last commit are a group
    await,   // the thread's groups have arrived, but for the latest `groups`
    fence_sums,       // what groups of warps do next sees the sums as the thread has left them
    fence_shared,     // ... and, after a barrier, what the thread has stored to shared memory
    commit_products,  // what the group has begun since the last of these belongs together
    await_products,   // it is done, but for the latest `groups`: sums may be touched, and factors are no longer read
    open_rings,       // one thread makes all rings; a barrier follows
    expect,           // the thread arrives at place `integer` of `ring`, where so many `bytes` will as well
    arrive,           // the thread arrives at it
    await_ring,       // until place `integer` of `ring` is full for the time before the one of the parity `step`
    box,              // of map `map` from the element `at` on, neighbours first, is on its way to places[0] of shared
                      // memory on; its bytes arrive at place `integer` of `ring`
    count,            // name = 0, an integer that `add` adds to
    add,              // name = name + integer
    roles,            // body by the threads that fill places, `otherwise` by those that read them, until the end
    store             // `lanes` elements from places[0] on, `step` apart = operands[0]
  };
  Kind kind = Kind::let;
  std::string name;
  ir::Expr integer;
  std::vector<DevicePlace> places;
  int lanes = 1;
  int64_t unrolled = 0;  // loop: copies; 0: it runs as a loop
  int distance = 0;      // shuffle: 1, 2, 4, 8 or 16
  bool bits = false;     // load: elements of 2 bytes as they are, two in a register; store: of a constant, the same
  int groups = 0;        // await, await_products
  bool whole = false;    // index: of a number, as i32
  bool all = false;      // box, arrive: in each block of the cluster, at the same place
  int columns = 0;       // warp, of a group: N of its result
  int ring = -1, map = -1;
  int64_t bytes = 0;              // expect
  std::vector<ir::Expr> at;       // box
  std::vector<DeviceTile> tiles;  // and its factors
  ir::Expr step;  // load, store of several lanes; 1: one access of all of them. take: the largest integer
  int value = -1;
  DeviceOp op = DeviceOp::k_add;
  WarpOp warp = WarpOp::k_mma_bf16;
  std::vector<DeviceOperand> operands;
  std::vector<DeviceStmt> body, otherwise;
};

// Elements of the type that an access has at most.
inline int lanes_at_once(ir::DType type) { return 16 / dtype_bytes(type); }
// Of shared memory, where elements of 2 bytes are widened.
inline int lanes_of_shared(ir::DType type) { return dtype_bytes(type) == 2 ? 4 : lanes_at_once(type); }

struct DeviceProgram {
  std::string name;
  int threads = 1;  // of a block
  int cluster = 1;  // blocks by number that run at once and reach each other's shared memory
  std::vector<DeviceParam> params;
  std::vector<std::string> sizes;  // e0, e1, ...: 64-bit integers, the same for all threads
  std::vector<DeviceLocal> locals;
  std::vector<DeviceShared> shared;
  std::vector<DeviceMap> maps;
  std::vector<DeviceRing> rings;
  DeviceRoles roles;
  std::vector<DeviceStmt> body;

  int readers() const { return threads - roles.fillers; }
  // Of what lies at a place that there is.
  const std::string& name_of(const DevicePlace& at) const;
  ir::DType type_of(const DevicePlace& at) const;
};

// Bytes of shared memory that a launch has to ask for; 0: none, they are part of the code.
int dynamic_shared(const DeviceProgram& program);

std::string print(const DeviceProgram& program);

// INVALID, naming the rule:
//   block    1..1024 threads
//   names    each name and value is defined once, or a name in both branches of `aligned`, and used where it is known;
//            integers are of type i64, conditions b8
//   take     integers are taken from parameters that are only read
//   values   operands agree with the operation, and in lanes; a constant fits any
//   lanes    1, 2, 4, 8 or 16; of what is moved as it is at most 8
//   access   only what is written is stored to; an access of several lanes at once stands where its address was found
//            aligned to all of them, or to 16 bytes, or where that follows from where the parameter begins
//            (aligned_places.h)
//   locals   at most kMostLocals registers each and kMostAllLocals all of them; an access stays inside, and its offset
//            depends on iterators of unrolled loops alone; what is loaded was stored somewhere before; where four
//            elements are in a register, warps' instructions alone touch them, whole registers at a time
//   shared   at most kMostShared bytes; what is loaded was stored somewhere before
//   bits     elements that are moved as they are have 2 bytes on both sides, go to registers or shared memory, and come
//            in whole registers where there are several
//   warp     whole warps; places as the row of warp_ops.def says, of its type, each result a register of its own; of
//            groups of four, sums that lie together, and tiles inside of swizzled memory that begin where lines do
//   products sums and shared memory are handed over by a fence before a group of warps computes with them, and are its
//            own until it is waited for; nothing is on its way at the end (device_waits.h)
//   wait     all threads of the block reach a barrier, a shuffle and what warps do together: none stands where a
//            condition or the length of a loop depends on the thread; a barrier of a warp, all threads of that. Nor may
//            two threads touch an element of shared memory, one of them storing it, with no barrier in between
//            (device_waits.h)
//   rings    boxes are whole lines of swizzled memory of the ring, and fill it; a place is filled when what was
//            done with it before is done, and is read when it is full, for the right time (device_rings.cc)
//   roles    whole groups of four warps each; registers by 8, 24..256, of which there are no more than at the start,
//            and more for readers; all threads come there, nothing follows, and nothing inside waits for all threads
//            (device_roles.cc)
//   cluster  one block, or two that go apart by roles; what is for all blocks stands in a cluster, whose threads meet
//            last of all in each role, so that no block leaves while another one reaches it (device_roles.cc). A place
//            is used in another block once that has made its rings, and its lines are filled once (device_rings.cc)
//   async    copies are of f32, 1 or 4 lanes, or of 16 bytes of elements of 1 or 2; all threads reach a commit and an
//            await; nothing touches an element before its copy has arrived, and all copies arrive before the end
//            (device_waits.h)
ir::Status verify(const DeviceProgram& program);

}  // namespace lathe::jit
