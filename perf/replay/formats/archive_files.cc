// Unpacks files with libarchive; built only if it was found.
#include "perf/replay/formats/archive_files.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <array>
#include <memory>

#include "topo/base/status.h"

namespace weft::replay {

// Limits the unpacked size: a small archive can expand to any size.
constexpr std::size_t kMostBytes = std::size_t{16} << 30;

std::vector<std::pair<std::string, std::string>> unpack(const std::string& path,
                                                        const std::string& bytes) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> in(archive_read_new(),
                                                                  archive_read_free);
  const auto check = [&](int code) {
    if (code < ARCHIVE_WARN) {
      const char* why = archive_error_string(in.get());  // may be null
      throw Error(fmt::format("{}: cannot be unpacked: {}", path, why ? why : "damaged"));
    }
    return code;
  };
  check(archive_read_support_filter_gzip(in.get()));
  check(archive_read_support_format_tar(in.get()));
  check(archive_read_support_format_raw(in.get()));
  check(archive_read_open_memory(in.get(), bytes.data(), bytes.size()));
  std::vector<std::pair<std::string, std::string>> files;
  archive_entry* entry = nullptr;
  std::size_t all = 0;
  while (check(archive_read_next_header(in.get(), &entry)) != ARCHIVE_EOF) {
    const bool raw = archive_format(in.get()) == ARCHIVE_FORMAT_RAW;
    if (!raw && archive_entry_filetype(entry) != AE_IFREG) continue;
    auto& [name, text] = files.emplace_back(raw ? "" : archive_entry_pathname(entry), "");
    std::array<char, 1 << 16> buffer;
    for (;;) {
      const auto n = archive_read_data(in.get(), buffer.data(), buffer.size());
      if (n < 0) check(static_cast<int>(n));
      if (n <= 0) break;
      text.append(buffer.data(), static_cast<std::size_t>(n));
      if ((all += static_cast<std::size_t>(n)) > kMostBytes)
        throw Error(fmt::format("{}: unpacks to more than {} GiB", path, kMostBytes >> 30));
    }
  }
  return files;
}

}  // namespace weft::replay
