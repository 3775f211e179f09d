// Reads GGUF files (versions 2 and 3, little endian): metadata and tensors as they lie in the mapped file. Every count,
// length and offset is checked against the size of the file before it is used, and nothing is allocated by a count of
// the file. What is wrong is a Problem that names the file, the place in it and what was expected.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bench/decoder_loop/blocks.h"

namespace lathe::decoder {

// What a person is told; the program prints it and ends with status 2.
struct Problem : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct GgufTensor {
  const BlockFormat* format = nullptr;
  std::vector<uint64_t> dims;  // the row's length first, as in the file
  const uint8_t* data = nullptr;

  uint64_t row_length() const { return dims[0]; }
  uint64_t rows() const;
  // Elements of row `row`, row_length() of them.
  void decode_row(uint64_t row, float* out) const;
};

class GgufFile {
 public:
  explicit GgufFile(const std::string& path);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& path() const { return path_; }
  const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(const std::string& name) const;
  // A tensor that must be there with these dims, the row's length first.
  const GgufTensor& tensor(const std::string& name, const std::vector<uint64_t>& dims) const;

  // Throws a Problem: the file, a key or tensor, what was expected. Names of the file are cut and made printable.
  [[noreturn]] void fail(const std::string& where, const std::string& what) const;

  bool has(const std::string& key) const { return values_.count(key) > 0; }
  // A whole number in least..most.
  uint64_t integer(const std::string& key, uint64_t least, uint64_t most) const;
  double real(const std::string& key) const;
  std::string text(const std::string& key) const;
  std::vector<std::string_view> texts(const std::string& key) const;

 private:
  struct Value {
    uint32_t type = 0, element = 0;  // element: of an array
    uint64_t count = 1;
    uint64_t at = 0;  // of the first byte
  };
  // The next `bytes` bytes; `what` is named where the file ends before.
  const uint8_t* take(uint64_t bytes, const std::string& what);
  template <class T>
  T number(const std::string& what);
  std::string_view string(const std::string& what);
  void read_value(const std::string& key);
  void read_tensor_info(uint64_t index);
  void place_tensors();
  const Value& value(const std::string& key) const;

  std::string path_;
  const uint8_t* data_ = nullptr;
  uint64_t size_ = 0, at_ = 0;
  std::map<std::string, Value> values_;
  std::map<std::string, GgufTensor> tensors_;
  std::map<std::string, uint64_t> offsets_;  // of tensors, as the file says
};

}  // namespace lathe::decoder
