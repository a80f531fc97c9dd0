// Rewords CLI11's parse errors for users. This file does not depend on the commands.
#include "perf/cli/parse_errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <regex>
#include <string_view>
#include <vector>

#include "coll/types.h"
#include "perf/cli/names.h"
#include "perf/cli/spellings.h"
#include "topo/base/status.h"
#include "topo/base/text.h"

namespace weft {
namespace {

// "--algo" for "--algoo"; empty if no option is similar.
std::string option_like(const CLI::App& command, const std::string& typed) {
  if (!typed.starts_with("--")) return "";
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    std::ranges::copy(option->get_lnames(), std::back_inserter(names));
  const std::string like = word_like(typed.substr(2, typed.find('=') - 2), names);
  return like.empty() ? like : "--" + like;
}

std::vector<std::string> commands_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* one : command.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

// "0.5" for "0.500000".
std::string short_of(const std::string& number) {
  if (number.find('.') == number.npos) return number;
  const std::size_t last = number.find_last_not_of('0');
  return number.substr(0, number[last] == '.' ? last : last + 1);
}

// Rewords CLI11's message about a refused value: puts the value first, and omits the end of a range
// if this is a type's largest number.
std::string reworded(const std::string& text) {
  std::smatch m;
  static const std::regex range(R"(^(\S+): Value (.*) not in range (\S+) to (\S+)$)");
  static const std::regex set(R"(^(\S+): (.*) not in \{(.*)\}$)");
  static const std::regex conversion(R"(^Could not convert: (\S+) = (.*)$)");
  if (std::regex_match(text, m, range)) {
    const std::string value = m[2].str();
    if (m[4].str().size() < 20)
      return fmt::format("{} {}: not in the range {} to {}", m[1].str(), value,
                         short_of(m[3].str()), short_of(m[4].str()));
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    const bool is_number = end != value.c_str() && *end == '\0';
    return fmt::format("{} {}: {}", m[1].str(), value,
                       !is_number   ? "not a number"
                       : number < 0 ? "it cannot be negative"
                                    : "it must be above 0");
  }
  if (std::regex_match(text, m, set)) {
    const std::string names = std::regex_replace(m[3].str(), std::regex(","), ", ");
    const std::string list = m[3].str();
    const std::regex comma(",");
    const std::vector<std::string> known(
        std::sregex_token_iterator(list.begin(), list.end(), comma, -1), {});
    return fmt::format("{} {}: not one of {}{}", m[1].str(), m[2].str(), names,
                       did_you_mean(m[2].str(), known));
  }
  if (std::regex_match(text, m, conversion))
    return fmt::format("{} {}: not a number of the kind that it takes", m[1].str(), m[2].str());
  return text;
}

}  // namespace

std::string no_command(const CLI::App& command, const std::string& typed) {
  if (const std::string here = command_for(typed); !here.empty())
    return fmt::format("no command '{}'; it is `{}` here", typed, here);
  const std::vector<std::string> names = commands_of(command);
  return fmt::format("no command '{}'{}; there are: {}", typed, did_you_mean(typed, names),
                     fmt::join(names, " "));
}

std::string explain_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string name = "weft";
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().back();
    name += " " + command->get_name();
  }
  std::string what = reworded(error.what());
  if (const CLI::Option* collective = command->get_option_no_throw("collective");
      collective != nullptr && collective->count() > 0) {
    const std::string typed = collective->results().front(), here = command_for(typed);
    if (!here.empty() && !collective_from(typed))  // a foreign program: weft has other options
      return fmt::format("{}: {}: it is `{}` here", name, typed, here);
  }
  const std::vector<std::string> extras = app.remaining(true);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) && !extras.empty()) {
    what = fmt::format("not expected: {}", fmt::join(extras, " "));
    for (const std::string& extra : extras) {
      if (const std::string here = spelling_here(*command, extra); !here.empty())
        what += "; " + here;
      else if (const std::string like = option_like(*command, extra); !like.empty())
        what += fmt::format("; did you mean {}?", like);
    }
  }
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError))
    for (const std::string& extra : extras)
      if (const std::string here = spelling_here(*command, extra); !here.empty())
        what += "; " + here;
  if (what == "A subcommand is required") {
    const std::vector<std::string> names = commands_of(*command);
    what = extras.empty() || extras[0].starts_with('-')
               ? fmt::format("say which: {}", fmt::join(names, ", "))
               : no_command(*command, extras[0]);
  }
  return fmt::format("{}: {} (see {} --help)", name, what, name);
}

void refuse_what_is_not_finite(CLI::App& app) {
  const auto finite = [](const std::string& text) {
    double value = 0;
    const bool bad = CLI::detail::lexical_cast(text, value) && !std::isfinite(value);
    return bad ? fmt::format("{} is not a finite number", text) : std::string();
  };
  for (CLI::Option* option : app.get_options())
    if (option->get_type_name().starts_with("FLOAT")) option->check(CLI::Validator(finite, ""));
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; }))
    refuse_what_is_not_finite(*command);
}

void refuse_given(const CLI::App& command, std::initializer_list<const char*> options,
                  std::string_view why) {
  for (const char* option : options)
    if (command.get_option(option)->count() > 0)
      throw Error(fmt::format("{} would be ignored: {}; leave it out", option, why));
}

void warn(const std::vector<std::string>& warnings, bool about_command_line) {
  constexpr const char* kWarned = "_WEFT_WARNED";  // internal: inherited by the ranks
  static bool warned_here = false;
  if (about_command_line && !warned_here && std::getenv(kWarned) != nullptr) return;
  for (const char* name : {"WEFT_RANK", "PMIX_RANK", "PMI_RANK", "RANK"})
    if (const char* rank = std::getenv(name)) {
      if (std::string_view(rank) != "0") return;
      break;
    }
  for (const std::string& warning : warnings)
    std::fprintf(stderr, "weft: warning: %s\n", warning.c_str());
  if (!about_command_line) return;
  warned_here = true;
  setenv(kWarned, "1", 1);
}

}  // namespace weft
