// Element types and operators of MPI as weft's, and buffers of any layout as bytes in one piece.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
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

// Thrown where MPI refuses an argument of a call, before weft has begun anything. The call then
// goes to MPI, which reports the error as it does without weft. Where MPIs do not look, but crash,
// the call fails with an error of class `by_weft`.
struct Refused {
  int by_weft = MPI_SUCCESS;
};

inline void expect(bool right) {
  if (!right) throw Refused();
}
// A count that is not negative. MPIs look at some counts only.
inline std::size_t elements(MPI_Count count) {
  if (count < 0) throw Refused{MPI_ERR_COUNT};
  return static_cast<std::size_t>(count);
}
// A buffer that is not MPI_IN_PLACE, and not null where it is used. Open MPI takes null.
void expect_buffer(const void* data, bool used);
// Two buffers that are not the same. Open MPI takes those, too.
void expect_apart(const void* in, const void* out, bool used);

// An array of the user's: of int, MPI_Count or MPI_Aint. Not a copy.
class Numbers {
 public:
  Numbers() = default;
  template <class T>
  Numbers(const T* first)  // NOLINT: implicit
      : first_(first), read_([](const void* from, std::size_t i) {
          return static_cast<MPI_Count>(static_cast<const T*>(from)[i]);
        }) {}
  explicit operator bool() const { return first_ != nullptr; }
  MPI_Count operator[](int i) const { return read_(first_, static_cast<std::size_t>(i)); }

 private:
  const void* first_ = nullptr;
  MPI_Count (*read_)(const void* from, std::size_t i) = nullptr;
};

// The blocks of a buffer, in elements of its type.
struct Layout {
  MPI_Count count = 0;
  int blocks = 1;
  Numbers counts = {};  // none: every block has `count`
  Numbers at = {};      // where each block begins; none: each follows the one before
  bool uniform() const { return !counts && !at; }
};

// A type that lives as long as this object, whatever the program does to its handle.
class KeptType {
 public:
  KeptType() = default;
  explicit KeptType(MPI_Datatype type) { PMPI_Type_dup(type, &type_); }
  KeptType(KeptType&& from) noexcept : type_(std::exchange(from.type_, MPI_DATATYPE_NULL)) {}
  KeptType& operator=(KeptType&& from) noexcept {
    std::swap(type_, from.type_);
    return *this;
  }
  ~KeptType() {
    if (type_ != MPI_DATATYPE_NULL) PMPI_Type_free(&type_);
  }
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

// A user's buffer as bytes: itself where the elements are plain, else a packed copy of it.
class Bytes {
 public:
  Bytes() = default;
  // Both throw Refused for a buffer, count or type that MPI refuses.
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
  // From now on unpack() does not need the program's type.
  void keep_type();
  // Brings what was received to the user's buffer.
  void unpack();

 private:
  Bytes(void* data, const Layout& layout, MPI_Datatype type, bool copies, bool reads);
  void move(bool out);
  std::byte *at_ = nullptr, *data_ = nullptr;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;  // of a copy
  KeptType kept_;
  std::size_t bytes_ = 0;  // of each block of a uniform layout
  std::vector<std::size_t> counts_, offsets_;
  std::vector<MPI_Aint> begins_;  // of a copy: where its blocks begin in the user's buffer
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace weft::mpi
