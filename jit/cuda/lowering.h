// The making of a device program, in parts: lower_device.cc has scopes and who runs them, lower_values.cc what the
// statements compute and where elements lie.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ir/analysis/analysis.h"
#include "ir/nest.h"
#include "jit/cuda/device_program.h"

namespace lathe::jit {

class DeviceLowering {
 public:
  explicit DeviceLowering(const ir::Kernel& kernel) : kernel_(kernel), ranges_(kernel) {}
  ir::Result<DeviceProgram> run();

 private:
  using List = std::vector<DeviceStmt>;

  // Scopes. threads: the number that take part, from 0 on, in what is shared out below.
  ir::Status buffers();
  ir::Status body(const std::vector<ir::Stmt>& list, int64_t threads, List& to);
  ir::Status scope(const ir::Stmt& s, int64_t threads, List& to);
  ir::Status loop(const ir::Stmt& s, int64_t threads, List& to);
  ir::Status block(const ir::Stmt& s, int64_t threads, List& to);
  ir::Status vector(const ir::Stmt& s, int64_t threads, List& to);
  template <class F>
  ir::Status inside(const ir::Stmt& s, F f);
  // Whether an index of a local depends on its iterator.
  bool chooses_local(const ir::Stmt& s) const;

  // Values.
  ir::Result<DeviceStmt> access(const std::string& name, const std::vector<ir::Expr>& index);
  ir::Status assign(const ir::Stmt& s, int64_t threads, List& to);
  ir::Result<DeviceOperand> updated(const ir::Stmt& s, const DeviceStmt& cell, List& to);
  ir::Result<DeviceOperand> expression(const ir::Expr& e, List& to);
  ir::Result<DeviceOperand> index_value(const ir::Expr& e, List& to);
  DeviceOperand set(DeviceOp op, std::vector<DeviceOperand> operands, int lanes, List& to);
  int keep(DeviceStmt s, const std::string& text, List& to);
  int lanes_of(const DeviceOperand& o) const;

  const ir::Kernel& kernel_;
  ir::Ranges ranges_;
  DeviceProgram out_;
  std::map<std::string, DevicePlace> place_of_;  // buffers: space and index
  std::vector<int> lanes_of_;                    // by value
  std::map<std::string, int> known_;             // values, by what they are
  int block_depth_ = 0;
  const ir::Stmt* vector_ = nullptr;  // whose lanes are taken together
  int lanes_ = 1;
  std::vector<DevicePlace>* places_ = nullptr;  // that must be aligned for it
};

template <class F>
ir::Status DeviceLowering::inside(const ir::Stmt& s, F f) {
  ranges_.enter(s);
  ir::Status status = f();
  ranges_.leave();
  return status;
}

}  // namespace lathe::jit
