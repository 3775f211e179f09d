// lathe: the command line. One verb a file (cmd_*.cc).
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <iostream>

#include "tools/cli.h"

int main(int argc, char** argv) {
  using namespace lathe::tools;
  CLI::App app{"Lathe: kernels made, verified, measured and stored for this machine"};
  app.name("lathe");
  app.require_subcommand(1);
  std::function<int()> chosen;
  for (const Verb* verb : {&kInfo, &kWarmup, &kTune, &kBench, &kVerify, &kExplain, &kStore, &kOpt}) {
    CLI::App* sub = app.add_subcommand(verb->name, verb->help);
    sub->callback([&chosen, run = verb->setup(*sub)] {
      if (!chosen) chosen = run;
    });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? kDone : kUsage;
  }
  return chosen();
}
