// A node of a Chakra trace (protobuf or JSON), and its translation to a TraceNode.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "perf/replay/trace.h"

namespace weft::replay {

struct ChakraNode {
  std::uint64_t id = 0, type = 0, us = 0;
  std::string name;
  std::vector<std::uint64_t> after;
  std::map<std::string, std::int64_t, std::less<>> numbers;  // numeric attributes
  std::map<std::string, std::string, std::less<>> texts;
  std::string inputs;  // process groups of a metadata node, in PyTorch's format
};

// Adds the node to the trace, or counts it in left_out if weft does not play it. Throws Error.
void add_chakra_node(const ChakraNode& node, RankTrace& trace);

// Reads the groups from the text of a "process_group:init" node, a JSON list.
void add_process_groups(const std::string& text, RankTrace& trace);

}  // namespace weft::replay
