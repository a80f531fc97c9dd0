// Recognizes a file by its content: a trace that weft reads, or a file commonly mistaken for one.
#pragma once

#include <string>
#include <string_view>

namespace weft::replay {

enum class Format { kChakra, kChakraJson, kParam, kSimai, kGoal, kNone };

struct Recognized {
  Format format = Format::kNone;
  std::string instead;  // kNone: describes the file, and what to pass instead
};

Recognized recognize(std::string_view bytes);

}  // namespace weft::replay
