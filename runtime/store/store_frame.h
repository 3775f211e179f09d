// The frame around every stored object, text or binary: what it is, which key it answers to, its
// length and a checksum.
//
//   lathe-decision 1
//   key <sub>/<name>
//   bytes 1234
//   <payload, exactly so many bytes>
//   blake2b <64 hex digits of everything before this line>
//
// Pure functions.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/stats.h"

namespace lathe::runtime {

inline constexpr int kStoreSchema = 1;

std::string encode_frame(std::string_view kind, std::string_view key, std::string_view payload);

struct DecodedFrame {
  bool ok = false;
  MissReason reason = MissReason::k_corrupt;  // or newer_schema
  const char* detail = "";                    // what is wrong
  std::string_view payload;                   // into the bytes given
};
DecodedFrame decode_frame(std::string_view kind, std::string_view key, std::string_view bytes);

// Names of objects and their directories: [a-z0-9][a-z0-9._-]*, at most 200 characters.
bool valid_object_name(std::string_view name);

}  // namespace lathe::runtime
