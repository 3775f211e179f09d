// See starter_pack.h. The bytes are a file that CMake makes (embed_pack.cmake).
#include "search/model/starter_pack.h"

namespace lathe::search {

extern const char kStarterPack[];
extern const unsigned long kStarterPackBytes;

std::string_view starter_pack_text() { return {kStarterPack, kStarterPackBytes}; }

const std::vector<TaskRecord>& starter_pack() {
  static const std::vector<TaskRecord> kRecords = [] {
    ir::Result<std::vector<TaskRecord>> parsed = parse_records(starter_pack_text());
    return parsed.ok() ? std::move(*parsed) : std::vector<TaskRecord>{};
  }();
  return kRecords;
}

}  // namespace lathe::search
