// What the loop needs of lathe.h: a context, kernels with named sizes, packed constants. Operands are f32, but for
// weights that stay in the bytes of their file, and integers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/decoder_loop/profile.h"
#include "include/lathe.h"

namespace lathe::decoder {

// 64-byte aligned floats, freed with it.
struct FreeMemory {
  void operator()(float* p) const;
};
using Floats = std::unique_ptr<float[], FreeMemory>;
Floats reserve_bytes(uint64_t bytes);
inline Floats reserve(uint64_t floats) { return reserve_bytes(floats * sizeof(float)); }

class Context {
 public:
  // quantised: products of bytes where weights are of few bits. tune_seconds: what the measuring worker has for each
  // kernel as it is made; 0: default Schedules, where the store has none.
  Context(int threads, bool quantised, double tune_seconds);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  lathe_context* handle() const { return context_; }
  int threads() const { return threads_; }
  bool quantised() const { return quantised_; }
  double tune_seconds() const { return tune_seconds_; }
  uint64_t counter(const char* name) const;
  // Where calls of kernels are counted; null: nowhere.
  void set_profile(Profile* profile) { profile_ = profile; }
  Profile* profile() const { return profile_; }
  // Of at least that size, until the next call asks.
  void* workspace(uint64_t bytes);
  // Until the context ends. Side by side on large pages: alone, most constants are smaller than one.
  void* room_of_constant(uint64_t bytes);

 private:
  lathe_context* context_ = nullptr;
  int threads_;
  bool quantised_;
  double tune_seconds_;
  Profile* profile_ = nullptr;
  Floats workspace_;
  uint64_t workspace_bytes_ = 0;
  std::vector<Floats> blocks_;  // of constants
  std::byte* free_ = nullptr;   // in the last one
  uint64_t free_bytes_ = 0;
};

// A size of an operand: `most` itself, or anything from 1 to it under a name.
struct Size {
  int64_t most;
  const char* symbol = nullptr;
};

struct Operand {
  const char* name;
  std::vector<Size> sizes;
  bool constant = false;
  uint32_t dtype = LATHE_DTYPE_F32;
  std::vector<int64_t> strides = {};  // none: compact
};

// A constant as its kernel wants it, in memory of the context.
struct Packed {
  const void* data = nullptr;
  uint64_t layout_id = 0, bytes = 0;
};

// An operand of a call.
struct Argument {
  const void* data;
  std::vector<int64_t> shape;
  uint64_t layout_id = 0;
  uint32_t dtype = LATHE_DTYPE_F32;
  std::vector<int64_t> strides = {};  // none: compact
};

class Graph {
 public:
  Graph(const Context& context, const char* name, const std::vector<Operand>& inputs);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  int32_t node(const char* op, const std::vector<int32_t>& inputs, const std::vector<lathe_attr>& attributes = {});
  const lathe_graph* finish(std::initializer_list<int32_t> results);

 private:
  lathe_graph* graph_ = nullptr;
  int nodes_ = 0;
};

class Kernel {
 public:
  // build adds operators to tensors 0, 1, ... (the inputs) and finishes the graph with its results.
  using Build = std::function<const lathe_graph*(Graph&)>;
  Kernel(Context& context, const std::string& name, const std::vector<Operand>& inputs, const Build& build);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  // The constant `input` in the kernel's layout; no data: it is best left as it is.
  Packed pack(int input, const Argument& plain) const;
  // Of a product with a weight, for a profile: operations of a row, and bytes of the weight.
  void set_work(double row_operations, double bytes) {
    row_operations_ = row_operations;
    bytes_ = bytes;
  }
  // Inputs in order, then the results, unless they are inputs that the kernel updates.
  void run(std::initializer_list<Argument> arguments);

 private:
  void execute(std::initializer_list<Argument> arguments);

  Context& context_;
  const std::string name_;
  double row_operations_ = 0, bytes_ = 0;
  lathe_kernel* kernel_ = nullptr;
};

lathe_attr flag(const char* name);
lathe_attr integer(const char* name, int64_t value);
lathe_attr integers(const char* name, std::span<const int64_t> values);  // which live as long
lathe_attr real(const char* name, double value);
lathe_attr text(const char* name, const char* value);

}  // namespace lathe::decoder
