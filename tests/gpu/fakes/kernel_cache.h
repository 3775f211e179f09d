// What a compiler has made, in files that all processes of a build folder share. A file holds the text that it was made
// of and is served for no other one. Its folder is that of the maker, such as the compiler, the flags and the prelude;
// of other makers' folders one is left, so that two libraries may take turns.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

namespace lathe::test {

struct MadeKernel {
  std::string log, code;
};

class KernelCache {
 public:
  static constexpr size_t kMostFiles = 8192;  // of a folder; beyond that it is emptied

  // folder: it is made if the one above it is there. maker: all that matters beside a text. Where a new maker comes, of
  // the others the one that came last stays. Where files cannot be written nothing is found.
  KernelCache(std::string folder, const std::string& maker);
  std::optional<MadeKernel> find(const std::string& text) const;
  // Another process that reads meanwhile has all of it or nothing.
  void keep(const std::string& text, const MadeKernel& made) const;

 private:
  std::string file_of(const std::string& text) const;
  std::string folder_;  // empty: nothing is kept
};

}  // namespace lathe::test
