// The text that a byte-level model reads: a file, cut into samples by numbers that follow from the
// seed alone, so that every layout of ranks sees the same samples.
#pragma once

#include <cstdint>
#include <string>

#include "train/operators/operators.h"

namespace weft::train {

class Text {
 public:
  // path: a file; empty: a text that Debian ships, or this project's documentation. Throws Error.
  static Text load(const std::string& path);
  explicit Text(std::string bytes, std::string source);

  // Throws UsageError when the text is shorter than a sample and the byte after it.
  void require_sample(Index positions) const;
  // Sample `number` of all that a run sees: `positions` bytes and the byte after each. Throws
  // as require_sample() does.
  void sample(std::uint64_t seed, std::uint64_t number, Index positions, Token* tokens,
              Token* targets) const;
  const std::string& source() const { return source_; }
  std::size_t size() const { return bytes_.size(); }
  std::uint64_t fingerprint() const;

 private:
  std::string bytes_, source_;
};

}  // namespace weft::train
