// Adds options to a command of the trainer; the help shows the defaults. Rows of an OptionTable
// also declare values that must be equal on all ranks, and invalid combinations.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iomanip>
#include <sstream>
#include <string>

#include "transport/launch/failures.h"

namespace weft {

class OptionAdder {
 public:
  // The command must outlive the adder.
  explicit OptionAdder(CLI::App& command) : command_(command) {
    command.option_defaults()->always_capture_default();
  }
  // checks: validators, called in order. `value` must outlive the command.
  template <class V, class... Checks>
  CLI::Option* operator()(const char* name, V& value, const char* about, Checks... checks) const {
    CLI::Option* option = command_.add_option(name, value, about);
    (option->check(checks), ...);
    return option;
  }
  // Like operator(), but the help does not show the default.
  template <class V, class... Checks>
  CLI::Option* unset(const char* name, V& value, const char* about, Checks... checks) const {
    return (*this)(name, value, about, checks...)->default_str("");
  }

 protected:
  CLI::App& command_;
};

// One function lists all rows of a command. It is called once to add the options, and once after
// parsing, to reject options without effect and to collect the values that ranks must agree on.
class OptionTable : OptionAdder {
 public:
  // Rows add options. The command must outlive the table.
  explicit OptionTable(CLI::App& command) : OptionAdder(command) {}
  // Rows check the parsed options, and append names and values to `agreed`, for train::agree().
  OptionTable(CLI::App& command, std::string& agreed) : OptionAdder(command), agreed_(&agreed) {}

  // Returns whether the options are parsed, so that rows check them.
  bool checks() const { return agreed_ != nullptr; }

  struct Row {
    const OptionTable& table;
    CLI::Option* option;
    std::string name, value;
    // Requires that `said` (by default the value) is equal on all ranks.
    const Row& agreed() const { return agreed(value); }
    const Row& agreed(const std::string& said) const {
      if (table.agreed_ != nullptr)
        *table.agreed_ += (std::ostringstream() << name << " " << std::quoted(said) << " ").str();
      return *this;
    }
    // Throws UsageError if the option was given but has no effect (`vain`). The message is the
    // option's name and value, then `why`, which includes a remedy.
    const Row& refused(bool vain, const std::string& why) const {
      if (table.agreed_ == nullptr || !vain || option->count() == 0) return *this;
      const bool flag = option->get_expected_min() == 0;
      throw UsageError(fmt::format("{}{}{}{}{}", name, flag ? "" : " ",
                                   flag ? "" : option->results().back(),
                                   why.front() == ':' ? "" : " ", why));
    }
  };
  template <class V, class... Checks>
  Row operator()(const char* name, V& value, const char* about, Checks... checks) const {
    return row(name, value, [&] { OptionAdder::operator()(name, value, about, checks...); });
  }
  template <class V, class... Checks>
  Row unset(const char* name, V& value, const char* about, Checks... checks) const {
    return row(name, value, [&] { OptionAdder::unset(name, value, about, checks...); });
  }
  Row flag(const std::string& name, bool& value, const char* about) const {
    return row(name.substr(0, name.find('{')), value,
               [&] { command_.add_flag(name, value, about); });
  }
  // Returns the row of an option that was added before.
  Row row(const char* name) const { return {*this, command_.get_option(name), name, ""}; }

 private:
  template <class V, class Add>
  Row row(const std::string& name, const V& value, Add add) const {
    if (agreed_ == nullptr) add();
    return {*this, command_.get_option(name), name, fmt::format("{}", value)};
  }
  std::string* agreed_ = nullptr;
};

}  // namespace weft
