// What the searches of a context start from, family by family: the model made from measured rows, the machine's rates;
// and where what they measure is kept. Thread-safe.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/tune/warmup_search.h"

namespace lathe::runtime {

class SearchKnowledge {
 public:
  enum class Training : uint8_t { if_needed, never };
  // The context outlives it. never: a model that the store lacks stays absent, training it takes seconds.
  explicit SearchKnowledge(Context& context, Training training = Training::if_needed)
      : context_(context), training_(training) {}
  // Sets model, rates and keep of a task. Reads the store at the first task of a family; may train its model
  // then.
  void equip(SearchTask* task);

 private:
  struct Family {
    std::shared_ptr<const search::CostModel> model;
    std::shared_ptr<const search::MachineRates> rates;
  };
  const Family& family(const std::string& name);

  Context& context_;
  const Training training_;
  std::mutex mutex_;
  std::map<std::string, Family> families_;
};

}  // namespace lathe::runtime
