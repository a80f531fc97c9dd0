// MPI's element types and operators as weft's, and buffers of any layout as contiguous bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "coll/bindings/mpi/library.h"

namespace weft::mpi {

// weft's element type for reductions; empty: weft has none.
std::optional<DType> dtype_of(MPI_Datatype type);
// weft's operator on elements of that type; empty: weft has none, or the operator is undefined on
// the type.
std::optional<RedOp> op_of(MPI_Op op, MPI_Datatype type);

// Whether elements of the type are contiguous in memory, in the order in which they are sent.
bool plain(MPI_Datatype type);
// The bytes of one element that are sent.
std::size_t bytes_of(MPI_Datatype type);

// Thrown if MPI rejects an argument of a call, before weft has begun anything. MPI then runs the
// call, and reports the error as it does without weft. If MPI libraries would crash instead of
// checking, the call fails with an error of class `by_weft`.
struct Refused {
  int by_weft = MPI_SUCCESS;
};

inline void expect(bool right) {
  if (!right) throw Refused();
}
// A count that must not be negative. MPIs check only some counts.
inline std::size_t elements(MPI_Count count) {
  if (count < 0) throw Refused{MPI_ERR_COUNT};
  return static_cast<std::size_t>(count);
}
// A buffer that must not be MPI_IN_PLACE, and not null if it is used. Open MPI accepts null.
void expect_buffer(const void* data, bool used);
// Two buffers that must differ. Open MPI accepts equal ones, too.
void expect_apart(const void* in, const void* out, bool used);

// A view of a user's array of int, MPI_Count or MPI_Aint.
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
  Numbers at = {};      // where each block begins; none: blocks are contiguous
  bool uniform() const { return !counts && !at; }
};

// A type that lives as long as this object, even if the program frees its handle.
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

// A user's buffer as bytes: itself if the datatype is contiguous, otherwise a packed copy.
class Bytes {
 public:
  Bytes() = default;
  // Both functions throw Refused for a buffer, count or type that MPI rejects. to_send(): a buffer
  // that is read. copy: packs into a new buffer even if the datatype is contiguous.
  static Bytes to_send(const void* data, const Layout& layout, MPI_Datatype type,
                       bool copy = false);
  // A buffer that is written; unpack() writes it if it is a copy. reads: the call also reads the
  // buffer's content.
  static Bytes to_receive(void* data, const Layout& layout, MPI_Datatype type, bool reads = false);
  std::byte* at() const { return at_; }
  std::size_t count(std::size_t block) const { return counts_.empty() ? bytes_ : counts_[block]; }
  std::byte* block(std::size_t b) const {
    return at_ + (offsets_.empty() ? b * bytes_ : offsets_[b]);
  }
  // The blocks in at(), in bytes. Only for a layout that is not uniform.
  Blocks blocks() const { return {counts_, offsets_}; }
  // Keeps the datatype, so that unpack() does not need the program's handle of it.
  void keep_type();
  // Copies what was received to the user's buffer.
  void unpack();

 private:
  Bytes(void* data, const Layout& layout, MPI_Datatype type, bool copies, bool reads);
  void move(bool out);
  std::byte *at_ = nullptr, *data_ = nullptr;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;  // datatype of a copy
  KeptType kept_;
  std::size_t bytes_ = 0;  // size of each block of a uniform layout
  std::vector<std::size_t> counts_, offsets_;
  std::vector<MPI_Aint> begins_;  // copy: offsets of its blocks in the user's buffer
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace weft::mpi
