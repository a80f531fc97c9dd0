// Text: the bytes that a byte-level model trains on, cut into samples. The seed alone determines
// the starts of samples, so every layout of ranks gets the same samples.
#pragma once

#include <cstdint>
#include <string>

#include "train/operators/operators.h"

namespace weft::train {

class Text {
 public:
  // Reads the file `path`; an empty path selects a text that Debian installs, or this project's
  // documentation. Throws UsageError if a file cannot be read; the message names the flag.
  static Text load(const std::string& path, const char* flag = "--data");
  explicit Text(std::string bytes, std::string source);

  // Throws UsageError if the text is shorter than `positions` + 1 bytes.
  void require_sample(Index positions) const;
  // Writes sample `number` of the run: `positions` bytes as tokens, and the byte after each as its
  // target. Throws like require_sample().
  void sample(std::uint64_t seed, std::uint64_t number, Index positions, Token* tokens,
              Token* targets) const;
  // Removes the last 5 % of the text and returns it, as a test set.
  Text hold_out();
  const std::string& source() const { return source_; }
  std::size_t size() const { return bytes_.size(); }
  std::uint64_t fingerprint() const;

 private:
  std::string bytes_, source_;
  const char* flag_ = "--data";  // the flag with which the user can select another text
};

}  // namespace weft::train
