// Text: the bytes that a byte-level model reads, cut into samples. The seed alone decides where
// samples begin, so every layout of ranks sees the same samples.
#pragma once

#include <cstdint>
#include <string>

#include "train/operators/operators.h"

namespace weft::train {

class Text {
 public:
  // Reads the file `path`; an empty path takes a text that Debian ships, or this project's
  // documentation. Throws UsageError where a file cannot be read; the message names the flag.
  static Text load(const std::string& path, const char* flag = "--data");
  explicit Text(std::string bytes, std::string source);

  // Throws UsageError when the text is shorter than a sample and the byte after it.
  void require_sample(Index positions) const;
  // Writes the run's sample `number`: `positions` bytes as tokens, and the byte after each as its
  // target. Throws as require_sample() does.
  void sample(std::uint64_t seed, std::uint64_t number, Index positions, Token* tokens,
              Token* targets) const;
  // Cuts the last twentieth off, which this text then has no longer, and returns it: a model that
  // is trained on the rest has not seen it.
  Text hold_out();
  const std::string& source() const { return source_; }
  std::size_t size() const { return bytes_.size(); }
  std::uint64_t fingerprint() const;

 private:
  std::string bytes_, source_;
  const char* flag_ = "--data";  // that names another one
};

}  // namespace weft::train
