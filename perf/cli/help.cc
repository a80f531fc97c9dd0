// Wraps the lines of --help. This file does not depend on any command.
#include "perf/cli/help.h"

#include <fmt/format.h>

#include <sstream>
#include <string>

#include "perf/cli/table.h"

namespace weft {
namespace {

constexpr std::size_t kNameColumns = 34;

class Help : public CLI::Formatter {
 public:
  Help() { column_width(kNameColumns); }

  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description(), kColumns - kNameColumns);
  }

  // Returns the type and the default; the description lists the allowed values.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    const std::string all = option->get_type_name();
    const std::string type = all.substr(0, all.find_first_of(":{"));
    const bool json = type == "[FILE]";
    std::string text = type.empty() ? "" : " " + (type == "UINT" ? "INT" : type);
    if (!json && !option->get_default_str().empty()) text += "=" + option->get_default_str();
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) text += " ...";
    return text + (option->get_required() ? " (required)" : "");
  }

  std::string make_footer(const CLI::App* app) const override {
    std::istringstream lines(app->get_footer());
    std::string text;
    for (std::string line; std::getline(lines, line);)  // may be a table row
      text += (line.size() <= kColumns ? line : wrapped(line, kColumns)) + "\n";
    return text;
  }

  std::string make_subcommand(const CLI::App* below) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, below->get_name(),
                             wrapped(below->get_description(), kColumns - kNameColumns),
                             kNameColumns);
    return out.str();
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<Help>(); }

}  // namespace weft
