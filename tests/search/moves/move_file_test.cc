// Golden tests of the moves: every file of tests/search/moves is a list of cases
//   ### title
//   kernel ...                       before
//   === tile_scope n 4 tail=mask     one move or several lines of them
//   kernel ...  |  !! CODE: message  after, or the refusal
// LATHE_BLESS=1 writes what the moves give now; read the difference before you keep it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/analysis/verifier.h"
#include "ir/core/text_form.h"
#include "search/moves/schedule.h"

namespace lathe::search {
namespace {

std::filesystem::path folder() { return std::filesystem::path(LATHE_SOURCE_DIR) / "tests/search/moves"; }

std::vector<std::string> files() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    if (entry.path().extension() == ".txt") out.push_back(entry.path().stem().string());
  std::sort(out.begin(), out.end());
  return out;
}

std::string outcome(const std::string& before, const std::vector<std::string>& moves) {
  ir::Result<ir::Kernel> kernel = ir::parse_kernel(before);
  if (!kernel.ok()) return "!! before: " + kernel.status().to_string() + "\n";
  const ir::Status verified = ir::verify(*kernel);
  if (!verified.ok()) return "!! before: " + verified.to_string() + "\n";
  for (const std::string& line : moves) {
    ir::Result<Move> move = parse_move(line);
    if (!move.ok()) return "!! " + move.status().to_string() + "\n";
    ir::Result<TransformResult> next = apply(*kernel, *move);
    if (!next.ok()) return "!! " + next.status().to_string() + "\n";
    *kernel = std::move(next->kernel);
  }
  return ir::print(*kernel);
}

class MoveFile : public testing::TestWithParam<std::string> {};

TEST_P(MoveFile, GivesTheGoldenText) {
  const std::filesystem::path path = folder() / (GetParam() + ".txt");
  std::ifstream in(path);
  std::string line, blessed, title, before;
  std::stringstream wanted_file;
  wanted_file << in.rdbuf();
  std::istringstream text(wanted_file.str());
  std::vector<std::string> moves;
  std::string wanted;
  const auto finish = [&] {
    if (moves.empty()) return;
    const std::string got = outcome(before, moves);
    blessed += got;
    if (std::getenv("LATHE_BLESS") == nullptr) {
      EXPECT_EQ(got, wanted) << title << "\n" << moves.front() << "\nrun with LATHE_BLESS=1 to write what it gives now";
    }
    moves.clear();
    wanted.clear();
  };
  enum { kBefore, kMoves, kAfter } state = kBefore;
  while (std::getline(text, line)) {
    if (line.rfind("###", 0) == 0) {
      finish();
      title = line;
      before.clear();
      state = kBefore;
      blessed += line + "\n";
    } else if (line.rfind("=== ", 0) == 0) {
      if (state == kAfter) finish();
      state = kMoves;
      moves.push_back(line.substr(4));
      blessed += line + "\n";
    } else if (state == kBefore) {
      before += line + "\n";
      blessed += line + "\n";
    } else {
      state = kAfter;
      wanted += line + "\n";
    }
  }
  finish();
  if (std::getenv("LATHE_BLESS") != nullptr) std::ofstream(path) << blessed;
}

INSTANTIATE_TEST_SUITE_P(All, MoveFile, testing::ValuesIn(files()), [](const auto& info) { return info.param; });

// Every row has a golden and, for each precondition, a case it refuses.
TEST(MoveFiles, CoverEveryRowAndPrecondition) {
  std::vector<std::string> lines;
  for (const std::string& name : files()) {
    std::ifstream in(folder() / (name + ".txt"));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
  }
  const auto some_line = [&](const std::string& start, const std::string& part) {
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.rfind(start, 0) == 0 && line.find(part) != std::string::npos;
    });
  };
  for (const Transform& row : transforms()) {
    EXPECT_TRUE(some_line(std::string("=== ") + row.name + " ", "")) << row.name;
    for (const char* sentence : row.preconditions) {
      EXPECT_TRUE(some_line(std::string("!! UNSUPPORTED: ") + row.name + " ", sentence))
          << row.name << ": " << sentence;
    }
  }
}

TEST(MoveFiles, DocumentationListsEveryRow) {
  std::ifstream in(std::filesystem::path(LATHE_SOURCE_DIR) / "docs/moves.md");
  std::stringstream text;
  text << in.rdbuf();
  std::string doc = text.str();
  std::erase(doc, '\\');  // bars are escaped in its table
  for (const Transform& row : transforms()) {
    EXPECT_NE(doc.find(fmt::format("`{} {}`", row.name, row.args)), std::string::npos) << row.name;
  }
}

}  // namespace
}  // namespace lathe::search
