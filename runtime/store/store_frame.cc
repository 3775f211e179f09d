// See store_frame.h.
#include "runtime/store/store_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ir/analysis/analysis.h"

namespace lathe::runtime {
namespace {

constexpr std::string_view kSum = "blake2b ";
constexpr size_t kDigits = 64;
constexpr size_t kTail = 8 + kDigits + 1;

DecodedFrame wrong(const char* detail, MissReason reason = MissReason::k_corrupt) {
  DecodedFrame out;
  out.reason = reason;
  out.detail = detail;
  return out;
}

// Takes "<label> <rest>\n" off the front.
std::optional<std::string_view> take_line(std::string_view* text, std::string_view label) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos || text->substr(0, label.size()) != label) return std::nullopt;
  if (end <= label.size() || (*text)[label.size()] != ' ') return std::nullopt;
  const std::string_view rest = text->substr(label.size() + 1, end - label.size() - 1);
  text->remove_prefix(end + 1);
  return rest;
}

std::optional<uint64_t> number(std::string_view text) {
  uint64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

}  // namespace

std::string encode_frame(std::string_view kind, std::string_view key, std::string_view payload) {
  std::string out = fmt::format("lathe-{} {}\nkey {}\nbytes {}\n", kind, kStoreSchema, key, payload.size());
  out.append(payload);
  out += fmt::format("{}{}\n", kSum, ir::content_hash(out.data(), out.size()));
  return out;
}

DecodedFrame decode_frame(std::string_view kind, std::string_view key, std::string_view bytes) {
  std::string_view rest = bytes;
  const auto schema = take_line(&rest, fmt::format("lathe-{}", kind));
  const auto version = schema ? number(*schema) : std::nullopt;
  if (!version) return wrong("no header");
  if (*version > kStoreSchema && *version < 1000) return wrong("newer schema", MissReason::k_newer_schema);
  if (*version != kStoreSchema) return wrong("schema");
  const auto stored_key = take_line(&rest, "key");
  if (!stored_key) return wrong("no key");
  const auto length = take_line(&rest, "bytes");
  const auto size = length ? number(*length) : std::nullopt;
  if (!size) return wrong("no length");
  if (rest.size() < kTail || rest.size() - kTail != *size) return wrong("length");
  const std::string_view tail = rest.substr(*size);
  if (tail.substr(0, kSum.size()) != kSum || tail.back() != '\n') return wrong("no checksum");
  const size_t covered = bytes.size() - kTail;
  if (tail.substr(kSum.size(), kDigits) != ir::content_hash(bytes.data(), covered)) return wrong("checksum");
  if (*stored_key != key) return wrong("key");
  DecodedFrame out;
  out.ok = true;
  out.payload = rest.substr(0, *size);
  return out;
}

bool valid_object_name(std::string_view name) {
  auto word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > 200 || !word(name[0])) return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return word(c) || c == '.' || c == '_' || c == '-'; });
}

}  // namespace lathe::runtime
