// The making of a device program, in parts: lower_device.cc has scopes and who runs them, lower_reduce.cc what threads
// reduce together, lower_tensor.cc what warps do together, lower_wgmma.cc what groups of warps do, lower_boxes.cc what
// the hardware copies, lower_roles.cc what some threads do alone, lower_values.cc what the statements compute and where
// elements lie, lower_lines.cc what begins at multiples of 16 bytes.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/nest.h"
#include "jit/cuda/device_program.h"
#include "jit/cuda/lower/box_maps.h"
#include "jit/cuda/lower/thread_plan.h"

namespace lathe::jit {

class DeviceLowering {
 public:
  // along: blocks of each @grid scope.
  DeviceLowering(const ir::Kernel& kernel, const ThreadPlan& plan, std::vector<ir::Expr> along)
      : kernel_(kernel), plan_(plan), along_(std::move(along)), ranges_(kernel) {}
  ir::Result<DeviceProgram> run();

 private:
  using List = std::vector<DeviceStmt>;

  // Scopes. threads: the number that take part, from 0 on, in what is shared out below.
  ir::Status buffers();
  ir::Status add_local(const ir::Buffer& b);
  ir::DType type_of(const ir::Buffer& b) const;
  void find_copied();
  bool moves_bits(const std::string& buffer) const;
  ir::Status body(const std::vector<ir::Stmt>& list, int64_t threads, List& to);
  bool all_know(const ir::Stmt& s) const;
  ir::Status scope(const ir::Stmt& s, int64_t threads, List& to);
  ir::Status loop(const ir::Stmt& s, int64_t threads, List& to);
  // A loop where lines begin at multiples of 16 bytes, and where they do not (lower_lines.cc).
  int64_t vectors_in(const ir::Stmt& s, const ir::Ranges& around) const;
  bool goes_by_lines(const ir::Stmt& s) const;
  ir::Status by_lines(const ir::Stmt& s, int64_t threads, List& to);
  bool is_line(const DevicePlace& at);
  ir::Status block(const ir::Stmt& s, int64_t threads, List& to);
  ir::Status vector(const ir::Stmt& s, int64_t threads, List& to);
  ir::Status clear_registers(const ir::Stmt& s, int64_t lanes, List& to);
  ir::Result<bool> halves_lie_together(const ir::Stmt& s, int64_t lanes);
  struct FilledLanes {
    std::vector<ir::Stmt> values;  // the statement where all lanes are inside; empty: nothing is filled
    ir::Expr all, none;            // null: always; never
    bool alike = true;             // lanes go on along the bound
  };
  FilledLanes filled_lanes(const ir::Stmt& s, int64_t lanes) const;
  // What f makes is of all lanes of a vector scope together. places: that must be aligned for it.
  template <class F>
  ir::Status at_once(const ir::Stmt& s, int lanes, std::vector<DevicePlace>& places, F f);
  // What a warp does together (lower_tensor.cc).
  ir::Status tensor(const ir::Stmt& s, int64_t threads, List& to);
  ir::Result<DevicePlace> element(const std::string& buffer, const std::vector<ir::Expr>& index,
                                  const std::vector<std::pair<std::string, ir::Expr>>& at) const;
  // What a group of warps does together (lower_wgmma.cc).
  ir::Status warpgroup(const ir::Stmt& s, DeviceStmt out, List& to);
  ir::Result<DeviceTile> tile_of(const std::string& buffer, const std::vector<ir::Expr>& index, const std::string& line,
                                 int64_t lines, const std::string& term) const;
  ir::Result<int64_t> tile_step(const std::string& buffer, const std::vector<ir::Expr>& index, const std::string& line,
                                int64_t by, const std::string& term, int64_t terms) const;
  // What the hardware copies (lower_boxes.cc).
  ir::Status open_rings();
  ir::Result<ir::Expr> ring_number(const std::string& buffer, const ir::Expr& place) const;
  bool goes_round(const ir::Stmt& loop) const;
  DeviceStmt at_ring(DeviceStmt::Kind kind, const ir::Expr& number) const;
  // What is done by some threads alone (lower_roles.cc).
  enum class Part : uint8_t { all, boxes, copies, reads };
  struct Grid {
    std::vector<std::string> iters;  // the outermost first
    std::vector<ir::Expr> along;     // blocks
    ir::Expr inside;                 // which of them do something; null: all
    bool persistent = false;
    bool last_first = false;  // the last iterations of the outermost come first, since these take longest
  };
  static void iteration(const Grid& grid, const ir::Expr& number, List& to);
  ir::Status roles(const std::vector<ir::Stmt>& list, const Grid& grid, int64_t threads, List& to);
  ir::Status part(const std::vector<ir::Stmt>& list, const Grid& grid, int64_t threads, List& to);
  bool is_left_out(const ir::Stmt& s) const;
  ir::Status fill(const ir::Stmt& s, List& to);
  ir::Status release(const ir::Expr& turn, List& to) const;
  ir::Expr going_on(const ir::Expr& number) const;
  static void count(List& to, int64_t more);
  ir::Status await_boxes(const ir::Stmt& s, List& to);
  ir::Result<size_t> boxes(const std::vector<ir::Stmt>& list, size_t first, int64_t threads, List& to);
  ir::Status box(const BoxCopy& copy, const ir::Stmt& is, const ir::Expr& number, List& to);
  ir::Status copied_by_threads(const ir::Stmt& s, const BoxCopy& copy, int64_t threads, List& to);
  // Where all threads meet: what stands before it runs under the guards around it, and what it waits for under none.
  ir::Status waiting(const std::vector<ir::Stmt>& list, int64_t threads, List& to);
  void guarded(List&& what, List& to);
  // Of the threads that a list is shared out among.
  void barrier(int64_t threads, List& to);
  // Whether these are neighbours in a warp.
  bool in_warp(int64_t threads) const {
    return block_depth_ > 0 && kWarpThreads % threads == 0 && out_.threads % kWarpThreads == 0;
  }
  // Copies to rings: groups of them, and waiting for all but the latest.
  ir::Status copy(const ir::Stmt& s, int64_t threads, List& to, bool* done);
  void once(List&& what, int64_t threads, List& to);
  void commit(List& to);
  void await(int groups, List& to);
  bool is_ahead(const ir::Stmt& loop) const;
  // Places of rings that an iteration has, which get names.
  std::vector<ir::Expr> places_in(const ir::Stmt& loop) const;
  ir::Status groups(const ir::Stmt& s, int64_t threads, List& to);
  template <class F>
  ir::Status inside(const ir::Stmt& s, F f);
  // Whether an index of a local depends on its iterator.
  bool chooses_local(const ir::Stmt& s) const;

  // What the threads of a scope reduce together: into registers of each one first, then over all.
  struct Partial {
    std::string buffer;
    DevicePlace whole, part;
    DeviceOp op;
    ir::DType type;
    int64_t count;
    bool single = false;  // of one cell, whatever the scopes inside do
  };
  ir::Result<std::vector<Partial>> open_partials(const ir::Stmt& s, List& to);
  ir::Expr only_cell(const ir::Stmt& s, const std::string& buffer) const;
  ir::Status close_partials(const std::vector<Partial>& partials, int64_t threads, List& to);
  // What an update does to a cell of that type, and what it starts from.
  struct Reduction {
    DeviceOp op;
    DeviceOperand start;
  };
  static Reduction reduction_of(ir::AssignOp op, ir::DType type);
  DeviceOperand over_lanes(DeviceOperand value, DeviceOp op, int64_t threads, List& to);
  void over_warps(const std::vector<Partial>& partials, int64_t threads, std::vector<DeviceOperand>& values, List& to);
  DeviceOperand load_cell(const DevicePlace& cell, List& to);
  static void store_cell(const DevicePlace& cell, const DeviceOperand& value, List& to);

  // Values.
  size_t pair_dim(const ir::Buffer& b) const;
  ir::Expr offset_of(const ir::Buffer& b, const std::vector<ir::Expr>& index) const;
  // The integers that are loaded in it become names, which `to` takes; where they lie depends on no lane.
  ir::Result<ir::Expr> taken(const ir::Expr& e, List& to);
  ir::Status take_ahead(const ir::Stmt& vector, List& to);
  // The index with the names of places in rings.
  std::vector<ir::Expr> named(const std::string& buffer, const std::vector<ir::Expr>& index) const;
  ir::Result<DeviceStmt> access(const std::string& name, const std::vector<ir::Expr>& index, List& to);
  ir::Status assign(const ir::Stmt& s, int64_t threads, List& to);
  // A value that is 0 beyond a bound.
  ir::Status assign_filled(const ir::Stmt& s, int64_t threads, List& to);
  ir::Status store_zero(const ir::Stmt& s, int64_t threads, List& to);
  // A statement that moves elements of 2 bytes into registers or shared memory as they are.
  bool moves_halves(const ir::Stmt& s) const;
  ir::Result<DeviceOperand> halves(const ir::Expr& load, List& to);
  ir::Result<DeviceOperand> updated(const ir::Stmt& s, const DeviceStmt& cell, List& to);
  ir::Result<DeviceOperand> expression(const ir::Expr& e, List& to);
  ir::Result<DeviceOperand> index_value(const ir::Expr& e, ir::DType type, List& to);
  ir::Result<DeviceOperand> comparison(const ir::Expr& e, List& to);
  DeviceOperand set(DeviceOp op, std::vector<DeviceOperand> operands, int lanes, List& to);
  int keep(DeviceStmt s, const std::string& text, List& to);
  int lanes_of(const DeviceOperand& o) const;
  char kind_of(const DeviceOperand& o) const;
  char kind_of(const DeviceStmt& s) const;

  const ir::Kernel& kernel_;
  const ThreadPlan& plan_;
  const std::vector<ir::Expr> along_;
  ir::Ranges ranges_;
  DeviceProgram out_;
  std::map<std::string, DevicePlace> place_of_;              // buffers: space and index
  std::vector<int> lanes_of_;                                // by value
  std::vector<char> kinds_;                                  // by value, as value_kind() says
  std::map<std::string, int> known_;                         // values, by what they are
  std::map<std::string, std::vector<ir::ThreadDim>> share_;  // reg buffers
  std::vector<ir::Expr> guards_;                             // that what comes next stands under
  std::vector<ir::BlockScope> blocks_;                       // around, in which threads wait
  std::set<std::string> single_;                             // reg buffers of which one cell is in use
  std::vector<std::string> unrolled_;                        // iterators of unrolled loops around
  int loops_ = 0;                                            // around, that all threads go through
  std::map<std::string, std::string> taken_;                 // names of integers, by what they are
  std::map<std::string, std::string> slots_;                 // names of places of rings, by what they are
  int slot_names_ = 0;
  int takes_ = 0;
  bool open_ = false, on_their_way_ = false;  // copies that no group has; that nothing has waited for
  int block_depth_ = 0;
  Part part_ = Part::all;
  std::vector<ir::Expr> awaited_;     // numbers of places of rings, in the lists around
  ir::Expr turns_;                    // of the loop that has read places of rings; null: none yet
  std::string rank_;                  // which block of the cluster it is
  std::set<std::string> copied_;      // registers that hold elements of inputs as they are
  bool tensor_ = false;               // warps compute together: elements of 2 bytes lie as they are
  const ir::Stmt* vector_ = nullptr;  // whose lanes are taken together
  int lanes_ = 1;
  std::vector<DevicePlace>* places_ = nullptr;  // that must be aligned for it
  std::optional<std::set<int>> lines_;  // parameters that have to begin at a multiple of 16 bytes; none: unknown
  bool as_they_lie_ = false;            // it has been asked, and they do not
};

template <class F>
ir::Status DeviceLowering::at_once(const ir::Stmt& s, int lanes, std::vector<DevicePlace>& places, F f) {
  vector_ = &s;
  lanes_ = lanes;
  places_ = &places;
  const ir::Status status = inside(s, f);
  vector_ = nullptr;
  lanes_ = 1;
  places_ = nullptr;
  return status;
}

template <class F>
ir::Status DeviceLowering::inside(const ir::Stmt& s, F f) {
  ranges_.enter(s);
  ir::Status status = f();
  ranges_.leave();
  return status;
}

}  // namespace lathe::jit
