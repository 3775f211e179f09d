// lathe: the command line. One verb a file (cmd_*.cc).
#include "include/lathe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <iostream>
#include <numeric>

#include "tools/cli.h"

namespace lathe::tools {
namespace {

// Letters to insert, delete, replace or swap with the next one.
size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  std::iota(d[0].begin(), d[0].end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// What to say of the first word that should be a verb and is none; empty: all are.
std::string wrong_verb(const CLI::App& app, const std::vector<std::string>& words, const std::string& before) {
  if (words.empty() || words[0].empty() || words[0][0] == '-') return {};
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == words[0]) return wrong_verb(*sub, {words.begin() + 1, words.end()}, before + " " + words[0]);
    names.push_back(sub->get_name());
  }
  if (names.empty()) return {};
  const auto nearest = std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return edits(a, words[0]) < edits(b, words[0]);
  });
  const std::string guess = edits(*nearest, words[0]) <= 2 ? fmt::format("; did you mean {}?", *nearest) : "";
  return fmt::format("{}: no verb {:.40}{} Expected one of {}", before, words[0], guess.empty() ? "." : guess,
                     fmt::join(names, ", "));
}

// Descriptors 0 to 2 are never those of files of the store, into which messages would be written. What the caller has
// closed reads as empty and cannot be written to.
void hold_standard_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDONLY);
  if (fd >= 0) close(fd);
}

// An exit code, or kFailed if what was printed did not get out.
int printed(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  say("lathe: the standard output could not be written");
  return kFailed;
}

int run(int argc, char** argv) {
  CLI::App app{"Lathe: kernels made, verified, measured and stored for this machine"};
  app.name("lathe");
  app.set_version_flag("--version",
                       fmt::format("lathe {}.{}.{}", LATHE_VERSION_MAJOR, LATHE_VERSION_MINOR, LATHE_VERSION_PATCH));
  app.require_subcommand(1);
  std::function<int()> chosen;
  for (const Verb* verb : {&kInfo, &kWarmup, &kTune, &kBench, &kVerify, &kExplain, &kStore, &kOpt}) {
    CLI::App* sub = app.add_subcommand(verb->name, verb->help);
    sub->callback([&chosen, run = verb->setup(*sub)] {
      if (!chosen) chosen = run;
    });
  }
  if (const std::string wrong = wrong_verb(app, {argv + 1, argv + argc}, "lathe"); !wrong.empty()) {
    say(wrong);
    return kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? kDone : kUsage;
  }
  return chosen();
}

}  // namespace
}  // namespace lathe::tools

int main(int argc, char** argv) {
  using namespace lathe::tools;
  hold_standard_descriptors();
  try {
    return printed(run(argc, argv));
  } catch (const std::exception& problem) {  // no memory, or an output that cannot be written to
    say(fmt::format("lathe: {}", problem.what()));
    return kFailed;
  }
}
