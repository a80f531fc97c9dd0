// Formats --help: at most 100 columns, with a type and a default for every option.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace weft {

// Set this formatter on the top command before subcommands are added, since they inherit it.
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace weft
