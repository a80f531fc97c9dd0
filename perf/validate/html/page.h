// The page of --html without its data: a style, and a script that renders the report's JSON.
#pragma once

#include <string_view>

namespace weft::fabric {

std::string_view page_style();
std::string_view page_script();

}  // namespace weft::fabric
