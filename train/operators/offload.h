// Offload: moves tensors from memory to an unnamed file and back: activations between forward and
// backward pass, optimizer state between steps. The file is deleted when the process ends. Calls
// block for the file I/O (mostly the kernel's page cache). For device tensors, DeviceOffload
// replaces the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "train/device/offload.h"
#include "train/operators/tensor.h"

namespace weft::train {

// OffloadFile: blocks of bytes in an unnamed file; freed blocks are reused for blocks of equal
// size.
class OffloadFile {
 public:
  // Throws Error if no such file can be created in the folder.
  explicit OffloadFile(const std::string& folder);
  ~OffloadFile();
  OffloadFile(const OffloadFile&) = delete;
  OffloadFile& operator=(const OffloadFile&) = delete;

  std::uint64_t write(const void* data, std::size_t bytes);       // returns the offset
  void read(std::uint64_t place, void* data, std::size_t bytes);  // frees the block
  void release(std::uint64_t place, std::size_t bytes) { free_[bytes].push_back(place); }
  std::uint64_t bytes_moved() const { return moved_; }

 private:
  std::string folder_;
  int fd_ = -1;
  std::uint64_t end_ = 0, moved_ = 0;
  std::map<std::size_t, std::vector<std::uint64_t>> free_;  // free offsets by size
};

template <class T>
class Offload {
 public:
  explicit Offload(const std::string& folder) : file_(folder) {}

  // Writes the tensors, frees their memory and clears the list. Replaces earlier tensors of `key`.
  void put(std::uint64_t key, std::vector<Tensor<T>>& tensors) {
    std::vector<Place>& places = away_[key];
    for (const Place& p : places)
      if (!p.empty) file_.release(p.at, p.count * sizeof(T));
    places.clear();
    for (Tensor<T>& t : tensors)
      places.push_back(
          {t.empty() ? 0 : file_.write(t.data(), t.bytes()), t.count(), t.use(), t.empty()});
    tensors.clear();
  }
  // Reads the tensors of `key` back and removes the key; does nothing if there are none.
  void get(std::uint64_t key, std::vector<Tensor<T>>& tensors) {
    const auto node = away_.extract(key);
    if (node.empty()) return;
    tensors.clear();
    for (const Place& p : node.mapped()) {
      tensors.push_back(p.empty ? Tensor<T>() : Tensor<T>(p.count, p.use));
      if (!p.empty) file_.read(p.at, tensors.back().data(), tensors.back().bytes());
    }
  }
  std::uint64_t bytes_moved() const { return file_.bytes_moved(); }

 private:
  struct Place {
    std::uint64_t at;
    std::size_t count;
    Use use;
    bool empty;
  };
  std::conditional_t<kOnDevice<T>, DeviceOffload, OffloadFile> file_;
  std::map<std::uint64_t, std::vector<Place>> away_;
};

}  // namespace weft::train
