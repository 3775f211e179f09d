// Device programs with one statement changed, and whether that is found.
#pragma once
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "jit/cuda/device_program.h"

namespace lathe::test {

// f(list, i) of each statement of a kind, in the order of the text.
template <class F>
void visit(std::vector<jit::DeviceStmt>& list, jit::DeviceStmt::Kind kind, const F& f) {
  for (size_t i = 0; i < list.size(); ++i) {
    visit(list[i].body, kind, f);
    visit(list[i].otherwise, kind, f);
    if (list[i].kind == kind) f(list, i);
  }
}

inline int count_of(jit::DeviceProgram program, jit::DeviceStmt::Kind kind) {
  int out = 0;
  visit(program.body, kind, [&](auto&, size_t) { ++out; });
  return out;
}

// Without its statement number `which` of a kind.
inline jit::DeviceProgram without(jit::DeviceProgram program, jit::DeviceStmt::Kind kind, int which) {
  std::vector<jit::DeviceStmt>* list = nullptr;
  size_t at = 0;
  visit(program.body, kind, [&](std::vector<jit::DeviceStmt>& found, size_t i) {
    if (which-- == 0) list = &found, at = i;
  });
  if (list != nullptr) list->erase(list->begin() + static_cast<std::ptrdiff_t>(at));
  return program;
}

// Bugs that a test plants, recorded for scripts/gpu.sh when the test ends. One that is not found is a failure.
class PlantedBugs {
 public:
  // What is wrong with a program as it runs; empty: nothing.
  using Failure = std::function<std::string(const jit::DeviceProgram&)>;

  PlantedBugs() = default;
  PlantedBugs(const PlantedBugs&) = delete;
  PlantedBugs& operator=(const PlantedBugs&) = delete;
  ~PlantedBugs() {
    testing::Test::RecordProperty("planted", planted_);
    testing::Test::RecordProperty("caught", caught_);
  }
  int planted() const { return planted_; }

  void plant(const std::string& what, bool found) {
    EXPECT_TRUE(found) << what;
    ++planted_;
    caught_ += found;
  }
  // Each statement of these kinds left out of a sound program: the verifier finds it, and so does running it.
  void leave_out(const jit::DeviceProgram& sound, std::initializer_list<jit::DeviceStmt::Kind> kinds,
                 const Failure& failure) {
    EXPECT_EQ(failure(sound), "");
    for (const jit::DeviceStmt::Kind kind : kinds) {
      for (int i = 0; i < count_of(sound, kind); ++i) {
        const jit::DeviceProgram broken = without(sound, kind, i);
        const bool verified = !verify(broken).ok(), ran = !failure(broken).empty();
        plant(fmt::format("statement {} of kind {}: found by the verifier: {}, as it ran: {}\n{}", i,
                          static_cast<int>(kind), verified, ran, print(sound)),
              verified && ran);
      }
    }
  }
  // Mistakes by name: each changes the program, and shows as it runs.
  template <class Mistakes>
  void make_each(const jit::DeviceProgram& sound, const Mistakes& mistakes, const Failure& failure) {
    for (const auto& [name, change] : mistakes) {
      jit::DeviceProgram broken = sound;
      change(broken);
      EXPECT_NE(print(broken), print(sound)) << name;
      plant(name, !failure(broken).empty());
    }
  }

 private:
  int planted_ = 0, caught_ = 0;
};

}  // namespace lathe::test
