// The look of --help: at most 100 columns, a type and a default for every option.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace weft {

// For the top command, before others are added: these inherit it.
std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace weft
