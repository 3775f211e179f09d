// See kernel_cache.h.
#include "tests/gpu/fakes/kernel_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace lathe::test {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFirst = "lathe fake kernel 1\n";
constexpr const char* kMaker = "/maker";

std::string number_of(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash));
  return out;
}

std::optional<std::string> read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void write(const std::string& path, const std::string& bytes) {
  std::string other = path + ".XXXXXX";
  const int file = mkstemp(other.data());
  if (file < 0) return;
  const bool written = ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  if (close(file) != 0 || !written || rename(other.c_str(), path.c_str()) != 0) unlink(other.c_str());
}

void put(std::string& to, std::string_view part) {
  const uint64_t size = part.size();
  to.append(reinterpret_cast<const char*>(&size), sizeof size);
  to += part;
}
// False: bytes end before.
bool take(std::string_view& from, std::string_view& part) {
  uint64_t size = 0;
  if (from.size() < sizeof size) return false;
  from.copy(reinterpret_cast<char*>(&size), sizeof size);
  from.remove_prefix(sizeof size);
  if (from.size() < size) return false;
  part = from.substr(0, size);
  from.remove_prefix(size);
  return true;
}

}  // namespace

KernelCache::KernelCache(std::string folder, const std::string& maker) {
  std::error_code error;
  if (folder.empty() || (!fs::create_directory(folder, error) && !fs::is_directory(folder, error))) return;
  const std::string own = folder + "/" + number_of(maker);
  if (fs::create_directory(own, error)) {
    std::vector<std::pair<fs::file_time_type, fs::path>> others;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path() != own)
        others.emplace_back(fs::last_write_time(entry.path() / (kMaker + 1), error), entry.path());
    }
    std::sort(others.begin(), others.end());
    if (!others.empty()) others.pop_back();
    for (const auto& other : others) fs::remove_all(other.second, error);
  }
  if (!fs::exists(own + kMaker, error)) write(own + kMaker, maker);
  if (read(own + kMaker) == maker) folder_ = own;
}

std::string KernelCache::file_of(const std::string& text) const { return folder_ + "/" + number_of(text); }

std::optional<MadeKernel> KernelCache::find(const std::string& text) const {
  if (folder_.empty()) return std::nullopt;
  const std::optional<std::string> bytes = read(file_of(text));
  if (!bytes || bytes->compare(0, kFirst.size(), kFirst) != 0) return std::nullopt;
  std::string_view rest(*bytes), of, log, code;
  rest.remove_prefix(kFirst.size());
  if (!take(rest, of) || !take(rest, log) || !take(rest, code) || !rest.empty() || of != text) return std::nullopt;
  return MadeKernel{std::string(log), std::string(code)};
}

void KernelCache::keep(const std::string& text, const MadeKernel& made) const {
  if (folder_.empty()) return;
  std::error_code error;
  const auto files = std::distance(fs::directory_iterator(folder_, error), fs::directory_iterator());
  if (static_cast<size_t>(files) > kMostFiles) {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder_, error)) {
      if (entry.path().filename() != kMaker + 1) all.push_back(entry.path());
    }
    for (const fs::path& file : all) fs::remove(file, error);
  }
  std::string bytes(kFirst);
  for (const std::string_view part : {std::string_view(text), std::string_view(made.log), std::string_view(made.code)})
    put(bytes, part);
  write(file_of(text), bytes);
}

}  // namespace lathe::test
