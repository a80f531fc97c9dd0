// Element types and operators of MPI as weft's, and buffers of any layout as bytes in one piece.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "coll/bindings/mpi/library.h"

namespace weft::mpi {

// The element type that weft reduces; empty: weft has none for it.
std::optional<DType> dtype_of(MPI_Datatype type);
// The operator on elements of that type; empty: not weft's, or not defined on the type.
std::optional<RedOp> op_of(MPI_Op op, MPI_Datatype type);

// Whether elements of the type follow each other in memory in the order in which they are sent.
bool plain(MPI_Datatype type);
// The bytes of one element that are sent.
std::size_t bytes_of(MPI_Datatype type);

// The blocks of a buffer, in elements of its type.
struct Layout {
  int count = 0, blocks = 1;
  const int* counts = nullptr;  // null: every block has `count`
  const int* at = nullptr;      // where each block begins; null: each follows the one before
  bool uniform() const { return !counts && !at; }
};

// A user's buffer as bytes: itself where the elements are plain, else a packed copy of it.
class Bytes {
 public:
  Bytes() = default;
  // A buffer that is read. copy: a copy of it even where the elements are plain.
  static Bytes to_send(const void* data, const Layout& layout, MPI_Datatype type,
                       bool copy = false);
  // A buffer that is written; of a copy, unpack() does so. reads: its content is read before.
  static Bytes to_receive(void* data, const Layout& layout, MPI_Datatype type, bool reads = false);
  std::byte* at() const { return at_; }
  std::size_t count(std::size_t block) const { return counts_.empty() ? bytes_ : counts_[block]; }
  std::byte* block(std::size_t b) const {
    return at_ + (offsets_.empty() ? b * bytes_ : offsets_[b]);
  }
  // The blocks in at(), in bytes. Only of a layout that is not uniform.
  Blocks blocks() const { return {counts_, offsets_}; }
  // Brings what was received to the user's buffer.
  void unpack();

 private:
  Bytes(void* data, const Layout& layout, MPI_Datatype type, bool copies, bool reads);
  void move(bool out);
  std::byte *at_ = nullptr, *data_ = nullptr;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;  // of a copy
  std::size_t bytes_ = 0;                  // of each block of a uniform layout
  std::vector<std::size_t> counts_, offsets_;
  std::vector<MPI_Aint> begins_;  // of a copy: where its blocks begin in the user's buffer
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace weft::mpi
