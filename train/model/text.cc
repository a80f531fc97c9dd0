// Text: reads a file or a text of this machine, and cuts samples. Does not depend on the model.
#include "train/model/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "topo/base/random.h"
#include "transport/launch/failures.h"

namespace weft::train {
namespace {

std::string read_text(const std::string& path, const char* flag) {
  if (std::filesystem::is_directory(path))
    throw UsageError(fmt::format("{} {}: a folder; name a file of text", flag, path));
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw UsageError(fmt::format("{} {}: cannot be read: {}", flag, path, std::strerror(errno)));
  std::string all;
  std::vector<char> some(1 << 16);
  while (in.read(some.data(), static_cast<std::streamsize>(some.size())) || in.gcount() > 0)
    all.append(some.data(), static_cast<std::size_t>(in.gcount()));
  if (in.bad())  // otherwise a disk error would silently shorten the text
    throw UsageError(fmt::format("{} {}: cannot be read beyond byte {}: {}; is its disk well?",
                                 flag, path, all.size(), std::strerror(errno)));
  return all;
}

}  // namespace

Text::Text(std::string bytes, std::string source)
    : bytes_(std::move(bytes)), source_(std::move(source)) {}

Text Text::load(const std::string& path, const char* flag) {
  namespace fs = std::filesystem;
  if (!path.empty()) {
    Text text(read_text(path, flag), path);
    text.flag_ = flag;
    return text;
  }
  const std::string license = "/usr/share/common-licenses/GPL-3";  // on every Debian
  if (fs::exists(license)) return Text(read_text(license, flag), license);
  std::vector<std::string> files;
  const fs::path docs = fs::path(WEFT_SOURCE_DIR) / "docs";
  if (fs::exists(docs))
    for (const auto& f : fs::recursive_directory_iterator(docs))
      if (f.path().extension() == ".md") files.push_back(f.path().string());
  if (files.empty()) throw UsageError("no text to train on: pass --data FILE");
  std::sort(files.begin(), files.end());
  std::string all;
  for (const auto& f : files) all += read_text(f, flag);
  return Text(std::move(all), docs.string());
}

void Text::require_sample(Index positions) const {
  if (bytes_.size() > positions) return;
  throw UsageError(fmt::format(
      "{} has {} bytes, fewer than --positions {} and one more; pass a longer text with {}, or "
      "fewer --positions",
      source_, bytes_.size(), positions, flag_));
}

void Text::sample(std::uint64_t seed, std::uint64_t number, Index positions, Token* tokens,
                  Token* targets) const {
  require_sample(positions);
  const std::size_t at = splitmix64(splitmix64(seed) + number) % (bytes_.size() - positions);
  for (Index i = 0; i < positions; ++i) {
    tokens[i] = static_cast<unsigned char>(bytes_[at + i]);
    targets[i] = static_cast<unsigned char>(bytes_[at + i + 1]);
  }
}

Text Text::hold_out() {
  const std::size_t begin = bytes_.size() - bytes_.size() / 20;
  Text test(bytes_.substr(begin), "the last twentieth of " + source_);
  bytes_.resize(begin);
  return test;
}

std::uint64_t Text::fingerprint() const {
  std::uint64_t hash = bytes_.size();
  for (const char c : bytes_) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace weft::train
