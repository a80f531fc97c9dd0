// Walks the definitions of commands and options. Parses no command line.
#include "perf/cli/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <memory>
#include <vector>

#include "perf/cli/names.h"
#include "topo/base/exit_code.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// Calls visit(path, command) for the command and all below it; path: "weft perf bw".
void walk(const CLI::App& command, const std::string& path,
          const std::function<void(const std::string&, const CLI::App&)>& visit) {
  visit(path, command);
  for (const CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; }))
    walk(*below, path + " " + below->get_name(), visit);
}

std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> all;
  for (const std::string& name : option.get_snames()) all.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) all.push_back("--" + name);
  return all;
}

Json to_json(const CLI::Option& option) {
  return {{"names", spellings(option)},
          {"position", option.get_positional() ? option.get_name(true, false) : ""},
          {"group", option.get_group()},
          {"about", option.get_description()},
          {"takes", option.get_items_expected_max() == 0 ? "nothing" : option.get_type_name()},
          {"may_be_left_out", option.get_items_expected_min() == 0},
          {"required", option.get_required()}};
}

// Returns the words that may follow a command: subcommands, options, and names of collectives.
std::vector<std::string> words_after(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; }))
    words.push_back(below->get_name());
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : spellings(*option)) words.push_back(name);
    if (option->get_positional() && option->get_name().starts_with("collective"))
      for (const Collective c : all_collectives()) words.emplace_back(name(c));
  }
  return words;
}

}  // namespace

Json options_of(const CLI::App& app) {
  Json commands = Json::array();
  walk(app, "weft", [&](const std::string& path, const CLI::App& command) {
    Json options = Json::array();
    for (const CLI::Option* option : command.get_options()) options.push_back(to_json(*option));
    commands.push_back(
        {{"command", path},
         {"about", command.get_description()},
         {"footer", command.get_footer()},
         {"has_commands", !command.get_subcommands([](const CLI::App*) { return true; }).empty()},
         {"options", options}});
  });
  return {{"schema", "weft.options/1"}, {"commands", commands}};
}

std::string bash_completion(const CLI::App& app) {
  std::string table;
  walk(app, "weft", [&](const std::string& path, const CLI::App& command) {
    table += fmt::format("  [\"{}\"]=\"{}\"\n", path, fmt::join(words_after(command), " "));
  });
  return "# bash completion of weft, made by `weft completion bash`\n"
         "declare -gA _weft_words=(\n" +
         table +
         ")\n"
         "_weft() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} path=weft word\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    [[ $word != -- ]] || return 0  # what follows is another program's\n"
         "    [[ -z ${_weft_words[$path $word]-} ]] || path+=\" $word\"\n"
         "  done\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"${_weft_words[$path]}\" -- \"$current\")\n"
         "}\n"
         "complete -o default -F _weft weft ./weft\n";
}

void add_completion(CLI::App& app, int& exit_code) {
  const auto what = std::make_shared<std::string>("bash");
  CLI::App* command =
      app.add_subcommand("completion", "print the completion of commands and options for a shell");
  command->add_option("what", *what, "bash: a script to source; json: the definitions themselves")
      ->check(CLI::IsMember({"bash", "json"}))
      ->capture_default_str();
  command->footer("Example: source <(weft completion bash)");
  command->callback([&app, what, &exit_code] {
    fmt::print("{}", *what == "bash" ? bash_completion(app) : options_of(app).dump(1) + "\n");
    exit_code = kExitOk;
  });
}

}  // namespace weft
