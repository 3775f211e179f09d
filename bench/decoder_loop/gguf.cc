// Walks a GGUF file once, front to back, and keeps where things lie: see gguf.h.
#include "bench/decoder_loop/gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

namespace lathe::decoder {

namespace {

enum Type : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
constexpr uint32_t kTypes = 13, kMaxDims = 4;
constexpr size_t kMostText = 200;  // of a message, from its key on and from what was expected on
constexpr uint64_t kSizes[kTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::string printable(std::string text) {
  if (text.size() > kMostText) text.resize(kMostText);
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

std::string in_words(const std::vector<uint64_t>& dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return out + "]";
}

}  // namespace

uint64_t GgufTensor::rows() const {
  uint64_t rows = 1;
  for (size_t d = 1; d < dims.size(); ++d) rows *= dims[d];
  return rows;
}

void GgufTensor::decode_row(uint64_t row, float* out) const {
  const uint64_t blocks = row_length() / format->values;
  format->decode(data + row * blocks * format->bytes, blocks, out);
}

GgufFile::GgufFile(const std::string& path) : path_(path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw Problem(path + ": " + std::strerror(errno));
  struct stat info{};
  const bool regular = ::fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  size_ = regular ? static_cast<uint64_t>(info.st_size) : 0;
  void* mapped = size_ == 0 ? MAP_FAILED : ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) throw Problem(path + ": expected a file that is not empty and can be mapped");
  data_ = static_cast<const uint8_t*>(mapped);
  try {
    if (std::memcmp(take(4, "magic"), "GGUF", 4) != 0) fail("magic", "expected the four bytes GGUF");
    const auto version = number<uint32_t>("version");
    if (version != 2 && version != 3) fail("version", std::to_string(version) + ", expected 2 or 3 in little endian");
    const auto tensors = number<uint64_t>("tensor count"), values = number<uint64_t>("metadata count");
    for (uint64_t i = 0; i < values; ++i) {
      const std::string key(string("key " + std::to_string(i)));
      if (has(key)) fail(key, "stands twice, expected once");
      read_value(key);
    }
    for (uint64_t i = 0; i < tensors; ++i) read_tensor_info(i);
    place_tensors();
  } catch (...) {
    ::munmap(mapped, size_);
    throw;
  }
}

GgufFile::~GgufFile() { ::munmap(const_cast<uint8_t*>(data_), size_); }

void GgufFile::fail(const std::string& where, const std::string& what) const {
  throw Problem(path_ + ": " + printable(where) + ": " + printable(what));
}

const uint8_t* GgufFile::take(uint64_t bytes, const std::string& what) {
  if (bytes > size_ - at_) {
    fail(what, "expected " + std::to_string(bytes) + " bytes at offset " + std::to_string(at_) + ", the file has " +
                   std::to_string(size_));
  }
  const uint8_t* out = data_ + at_;
  at_ += bytes;
  return out;
}

template <class T>
T GgufFile::number(const std::string& what) {
  return load<T>(take(sizeof(T), what));
}

std::string_view GgufFile::string(const std::string& what) {
  const auto bytes = number<uint64_t>(what);
  return {reinterpret_cast<const char*>(take(bytes, what)), bytes};
}

void GgufFile::read_value(const std::string& key) {
  Value v;
  v.type = v.element = number<uint32_t>(key);
  if (v.type == kArray) {
    v.element = number<uint32_t>(key);
    v.count = number<uint64_t>(key);
  }
  if (v.element >= kTypes || v.element == kArray)
    fail(key, "type " + std::to_string(v.element) + ", expected 0 to 12, and no array of arrays");
  v.at = at_;
  if (v.element == kString) {
    for (uint64_t i = 0; i < v.count; ++i) string(key);
  } else {
    const uint64_t size = kSizes[v.element];
    if (v.count > (size_ - at_) / size) fail(key, std::to_string(v.count) + " elements lie past the end of the file");
    take(v.count * size, key);
  }
  values_.emplace(key, v);
}

void GgufFile::read_tensor_info(uint64_t index) {
  const std::string name(string("name of tensor " + std::to_string(index)));
  if (find(name) != nullptr) fail("tensor " + name, "stands twice, expected once");
  const std::string where = "tensor " + name;
  GgufTensor t;
  const auto rank = number<uint32_t>(where);
  if (rank == 0 || rank > kMaxDims) fail(where, std::to_string(rank) + " dims, expected 1 to 4");
  uint64_t elements = 1;
  for (uint32_t d = 0; d < rank; ++d) {
    t.dims.push_back(number<uint64_t>(where));
    // No format has less than half a byte per element, so more elements than this cannot be in the file.
    if (t.dims[d] == 0 || t.dims[d] > size_ * 2 / elements)
      fail(where, "dims " + in_words(t.dims) + ", expected none of 0, and all elements in the file");
    elements *= t.dims[d];
  }
  const auto type = number<uint32_t>(where);
  t.format = find_format(type);
  if (t.format == nullptr) fail(where, "type " + std::to_string(type) + ", expected one of " + format_names());
  if (t.dims[0] % t.format->values != 0) {
    fail(where, "rows of " + std::to_string(t.dims[0]) + ", expected a multiple of " +
                    std::to_string(t.format->values) + " (" + t.format->name + ")");
  }
  offsets_[name] = number<uint64_t>(where);
  tensors_.emplace(name, std::move(t));
}

void GgufFile::place_tensors() {
  const uint64_t align = has("general.alignment") ? integer("general.alignment", 1, 1u << 20) : 32;
  const uint64_t start = (at_ + align - 1) / align * align;
  for (auto& [name, t] : tensors_) {
    const uint64_t offset = offsets_.at(name), bytes = t.dims[0] / t.format->values * t.rows() * t.format->bytes;
    const std::string where = "tensor " + name;
    if (offset % align != 0)
      fail(where, "offset " + std::to_string(offset) + ", expected a multiple of " + std::to_string(align));
    if (start > size_ || offset > size_ - start || bytes > size_ - start - offset) {
      fail(where, std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                      " lie past the end of the file, which has " + std::to_string(size_ - std::min(start, size_)) +
                      " bytes of tensors");
    }
    t.data = data_ + start + offset;
  }
}

const GgufTensor* GgufFile::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

const GgufTensor& GgufFile::tensor(const std::string& name, const std::vector<uint64_t>& dims) const {
  const GgufTensor* t = find(name);
  if (t == nullptr) fail("tensor " + name, "is missing, expected dims " + in_words(dims));
  if (t->dims != dims) fail("tensor " + name, "dims " + in_words(t->dims) + ", expected " + in_words(dims));
  return *t;
}

const GgufFile::Value& GgufFile::value(const std::string& key) const {
  const auto it = values_.find(key);
  if (it == values_.end()) fail(key, "is missing from the metadata");
  return it->second;
}

uint64_t GgufFile::integer(const std::string& key, uint64_t least, uint64_t most) const {
  const Value& v = value(key);
  const uint8_t* at = data_ + v.at;
  int64_t signed_value = 0;
  uint64_t out = 0;
  switch (v.type) {
    case kU8:
      out = *at;
      break;
    case kU16:
      out = load<uint16_t>(at);
      break;
    case kU32:
      out = load<uint32_t>(at);
      break;
    case kU64:
      out = load<uint64_t>(at);
      break;
    case kI8:
      signed_value = load<int8_t>(at);
      break;
    case kI16:
      signed_value = load<int16_t>(at);
      break;
    case kI32:
      signed_value = load<int32_t>(at);
      break;
    case kI64:
      signed_value = load<int64_t>(at);
      break;
    default:
      fail(key, "expected a whole number");
  }
  if (signed_value < 0) fail(key, std::to_string(signed_value) + ", expected no negative number");
  out += static_cast<uint64_t>(signed_value);
  if (out < least || out > most)
    fail(key, std::to_string(out) + ", expected " + std::to_string(least) + " to " + std::to_string(most));
  return out;
}

double GgufFile::real(const std::string& key) const {
  const Value& v = value(key);
  if (v.type != kF32 && v.type != kF64) fail(key, "expected a floating-point number");
  const double out = v.type == kF32 ? static_cast<double>(load<float>(data_ + v.at)) : load<double>(data_ + v.at);
  if (!std::isfinite(out) || out <= 0) fail(key, std::to_string(out) + ", expected a positive finite number");
  return out;
}

std::string GgufFile::text(const std::string& key) const {
  const Value& v = value(key);
  if (v.type != kString) fail(key, "expected a string");
  return {reinterpret_cast<const char*>(data_ + v.at + 8), load<uint64_t>(data_ + v.at)};
}

std::vector<std::string_view> GgufFile::texts(const std::string& key) const {
  const Value& v = value(key);
  if (v.type != kArray || v.element != kString) fail(key, "expected an array of strings");
  std::vector<std::string_view> out;
  const uint8_t* at = data_ + v.at;
  for (uint64_t i = 0; i < v.count; ++i) {
    const auto bytes = load<uint64_t>(at);
    out.emplace_back(reinterpret_cast<const char*>(at + 8), bytes);
    at += 8 + bytes;
  }
  return out;
}

}  // namespace lathe::decoder
