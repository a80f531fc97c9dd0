#include "train/commands.h"

namespace weft {

void add_cost(CLI::App&, int&) {}

}  // namespace weft
