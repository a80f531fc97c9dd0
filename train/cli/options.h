// Adds options to a command of the trainer; help shows their defaults.
#pragma once

#include <CLI/CLI.hpp>

namespace weft {

class OptionAdder {
 public:
  // The command must outlive the adder.
  explicit OptionAdder(CLI::App& command) : command_(command) {
    command.option_defaults()->always_capture_default();
  }
  // checks: validators, called in their order. `value` must outlive the command.
  template <class V, class... Checks>
  CLI::Option* operator()(const char* name, V& value, const char* about, Checks... checks) const {
    CLI::Option* option = command_.add_option(name, value, about);
    (option->check(checks), ...);
    return option;
  }
  // The same for an option whose default the help does not show.
  template <class V, class... Checks>
  CLI::Option* unset(const char* name, V& value, const char* about, Checks... checks) const {
    return (*this)(name, value, about, checks...)->default_str("");
  }

 private:
  CLI::App& command_;
};

}  // namespace weft
