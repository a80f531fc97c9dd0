// Source: reads a stored piece of a tensor.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "train/checkpoint/files.h"
#include "train/checkpoint/index.h"
#include "transport/memory/crc32c.h"

namespace weft::train {

// The data of one stored piece; the first copy() reads the file and verifies the crc. Throws
// Damaged.
template <class T>
class Source {
 public:
  Source(const std::string& path, const IndexEntry& entry, bool wide)
      : path_(path), entry_(entry), wide_(wide) {}
  void copy(std::size_t from, std::size_t count, T* to) {
    if (bytes_.empty()) read();
    if (wide_ == (sizeof(T) == 8))
      std::memcpy(to, bytes_.data() + from * sizeof(T), count * sizeof(T));
    else if (wide_)
      convert<double>(from, count, to);
    else
      convert<float>(from, count, to);
  }

 private:
  void read() {
    const std::string file = path_ + "/" + entry_.file;
    bytes_ = read_part(file, entry_.offset, entry_.count * (wide_ ? 8 : 4));
    if (const auto crc = crc32c(bytes_.data(), bytes_.size()); crc != entry_.crc)
      throw Damaged(
          fmt::format("checkpoint: {} is damaged: tensor '{}' at byte {} has crc32c {}, not {}",
                      file, entry_.logical.name, entry_.offset, hex(crc), hex(entry_.crc)));
  }
  template <class S>
  void convert(std::size_t from, std::size_t count, T* to) const {
    for (std::size_t i = 0; i < count; ++i) {
      S value;
      std::memcpy(&value, bytes_.data() + (from + i) * sizeof(S), sizeof(S));
      to[i] = static_cast<T>(value);
    }
  }
  const std::string& path_;
  const IndexEntry& entry_;
  bool wide_;
  std::vector<std::byte> bytes_;
};

}  // namespace weft::train
