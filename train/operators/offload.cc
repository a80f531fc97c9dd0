// The unnamed file of offloads. Does not depend on tensors.
#include "train/operators/offload.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "topo/base/status.h"

namespace weft::train {
namespace {

// Repeats partial reads or writes until all bytes are transferred.
template <class Move>
void all_of(std::size_t bytes, const char* what, const std::string& folder, Move move) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = move(done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw Error(fmt::format("offload: cannot {} {} bytes in {}: {}; is the disk full?", what,
                              bytes, folder,
                              n < 0 ? std::strerror(errno) : "the file is too short"));
    done += static_cast<std::size_t>(n);
  }
}

}  // namespace

OffloadFile::OffloadFile(const std::string& folder) : folder_(folder) {
  std::string path = folder + "/weft-offload-XXXXXX";
  fd_ = mkostemp(path.data(), O_CLOEXEC);
  if (fd_ < 0)
    throw Error(fmt::format("offload: cannot create a file in {}: {}; does the folder exist?",
                            folder, std::strerror(errno)));
  unlink(path.c_str());
}

OffloadFile::~OffloadFile() { close(fd_); }

std::uint64_t OffloadFile::write(const void* data, std::size_t bytes) {
  auto& places = free_[bytes];
  std::uint64_t at = end_;
  if (places.empty()) {
    end_ += bytes;
  } else {
    at = places.back();
    places.pop_back();
  }
  all_of(bytes, "write", folder_, [&](std::size_t done) {
    return pwrite(fd_, static_cast<const char*>(data) + done, bytes - done,
                  static_cast<off_t>(at + done));
  });
  moved_ += bytes;
  return at;
}

void OffloadFile::read(std::uint64_t at, void* data, std::size_t bytes) {
  all_of(bytes, "read", folder_, [&](std::size_t done) {
    return pread(fd_, static_cast<char*>(data) + done, bytes - done, static_cast<off_t>(at + done));
  });
  moved_ += bytes;
  release(at, bytes);
}

}  // namespace weft::train
