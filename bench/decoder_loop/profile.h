// Where the time of a prompt or of steps goes, kernel by kernel.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/decoder_loop/shares.h"

namespace lathe::decoder {

class Profile {
 public:
  struct Row {
    std::string kernel;
    int64_t calls = 0;
    double seconds = 0;
    double operations = 0, bytes = 0;  // of products with weights
  };

  void add(const std::string& kernel, double seconds, double operations, double bytes);
  // Those since the last call that took longest first, then what is left of `seconds` in all: the loop's own work.
  std::vector<Row> take(double seconds);

 private:
  std::map<std::string, Row> rows_;
};

// A row as an object; products with what they are of the core's rates. `seconds`: of all rows.
nlohmann::json profile_json(const std::vector<Profile::Row>& rows, double seconds, const Rates& rates);
void print_profile(const char* what, const nlohmann::json& profile);

}  // namespace lathe::decoder
