// Small traces that tests write, byte by byte for binary formats.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace weft::replay::testing {

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Hand-encoded Chakra (protobuf): independent of compiled schemas.
inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
inline std::string field(int number, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(value);
}
inline std::string field(int number, const std::string& bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}
inline std::string delimited(const std::string& message) {
  return varint(message.size()) + message;
}
inline std::string metadata(const std::string& version = "0.0.4") {
  return delimited(field(1, version));
}
struct ChakraNode {
  std::uint64_t id = 0;
  int type = 4;
  std::vector<std::uint64_t> after;
  std::uint64_t us = 0;
  std::vector<std::pair<std::string, std::uint64_t>> numbers;
  std::string group;
};
inline std::string chakra(const ChakraNode& node) {
  std::string out = field(1, node.id) + field(2, fmt::format("n{}", node.id)) +
                    field(3, static_cast<std::uint64_t>(node.type));
  for (const std::uint64_t id : node.after) out += field(5, id);
  out += field(7, node.us);
  for (const auto& [name, value] : node.numbers) out += field(10, field(1, name) + field(9, value));
  if (!node.group.empty())
    out += field(10, field(1, std::string("pg_name")) + field(29, node.group));
  return delimited(out);
}
inline ChakraNode collective(std::uint64_t id, std::uint64_t type, std::uint64_t bytes,
                             std::vector<std::uint64_t> after = {}, std::string group = "") {
  return {
      id, 7, std::move(after), 0, {{"comm_type", type}, {"comm_size", bytes}}, std::move(group)};
}
inline ChakraNode compute(std::uint64_t id, std::uint64_t us,
                          std::vector<std::uint64_t> after = {}) {
  return {id, 4, std::move(after), us, {}, ""};
}

// type 5: a send to the peer, 6: a receive from it.
inline ChakraNode message(std::uint64_t id, int type, int peer, std::uint64_t bytes,
                          std::vector<std::uint64_t> after = {}) {
  return {id,
          type,
          std::move(after),
          0,
          {{type == 5 ? "comm_dst" : "comm_src", static_cast<std::uint64_t>(peer)},
           {"comm_size", bytes}},
          ""};
}

// A step with four kinds of calls: 500 us of computation, which may hide an all_reduce.
inline std::string small_chakra() {
  return metadata() + chakra(collective(1, 0, 1 << 20)) + chakra(compute(2, 500)) +
         chakra(collective(3, 2, 1 << 16, {1, 2})) + chakra(collective(4, 7, 1 << 18, {3})) +
         chakra(collective(5, 6, 1 << 18, {4}));
}

inline std::string simai(
    const std::string& layers, int count,
    const std::string& head = "model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 1 ga: 1 all_gpus: 8") {
  return fmt::format("HYBRID_TRANSFORMER_FWD_IN_BCKWD {}\n{}\n{}", head, count, layers);
}

}  // namespace weft::replay::testing
