// Tells by its content what a file is: a trace that weft reads, or what people take for one.
#pragma once

#include <string>
#include <string_view>

namespace weft::replay {

enum class Format { kChakra, kChakraJson, kParam, kSimai, kGoal, kNone };

struct Recognized {
  Format format = Format::kNone;
  std::string instead;  // kNone: what the file is, and what to give instead
};

Recognized recognize(std::string_view bytes);

}  // namespace weft::replay
