// Element types, operators and layouts of MPI.
#include "coll/bindings/mpi/types.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace weft::mpi {
namespace {

struct Known {
  MPI_Datatype type;
  DType as;
};

template <class T>
constexpr DType integer() {
  constexpr bool sign = T(-1) < T(0);
  if constexpr (sizeof(T) == 1) return sign ? DType::kInt8 : DType::kUInt8;
  if constexpr (sizeof(T) == 2) return sign ? DType::kInt16 : DType::kUInt16;
  if constexpr (sizeof(T) == 4) return sign ? DType::kInt32 : DType::kUInt32;
  return sign ? DType::kInt64 : DType::kUInt64;
}

// MPI_CHAR and MPI_WCHAR are characters, which MPI does not reduce.
std::span<const Known> known_types() {
  static const Known types[] = {{MPI_BYTE, DType::kUInt8},
                                {MPI_DOUBLE, DType::kFloat64},
                                {MPI_FLOAT, DType::kFloat32},
                                {MPI_INT, integer<int>()},
                                {MPI_LONG, integer<long>()},
                                {MPI_UNSIGNED, integer<unsigned>()},
                                {MPI_UNSIGNED_LONG, integer<unsigned long>()},
                                {MPI_LONG_LONG, integer<long long>()},
                                {MPI_UNSIGNED_LONG_LONG, integer<unsigned long long>()},
                                {MPI_SIGNED_CHAR, DType::kInt8},
                                {MPI_UNSIGNED_CHAR, DType::kUInt8},
                                {MPI_SHORT, DType::kInt16},
                                {MPI_UNSIGNED_SHORT, DType::kUInt16},
                                {MPI_INT8_T, DType::kInt8},
                                {MPI_UINT8_T, DType::kUInt8},
                                {MPI_INT16_T, DType::kInt16},
                                {MPI_UINT16_T, DType::kUInt16},
                                {MPI_INT32_T, DType::kInt32},
                                {MPI_UINT32_T, DType::kUInt32},
                                {MPI_INT64_T, DType::kInt64},
                                {MPI_UINT64_T, DType::kUInt64},
                                {MPI_AINT, integer<MPI_Aint>()},
                                {MPI_OFFSET, integer<MPI_Offset>()},
                                {MPI_COUNT, integer<MPI_Count>()},
                                {MPI_C_BOOL, DType::kBool}};
  return types;
}

// PMPI_Pack counts bytes in an int.
constexpr std::size_t kMostPacked = std::size_t{1} << 30;

// A type whose elements have `bytes` bytes each.
MPI_Datatype piece_of(std::size_t bytes) {
  constexpr int kUnit = 1 << 20;
  MPI_Datatype unit, piece, types[] = {MPI_DATATYPE_NULL, MPI_BYTE};
  PMPI_Type_contiguous(kUnit, MPI_BYTE, &unit);
  types[0] = unit;
  const int counts[] = {static_cast<int>(bytes / kUnit), static_cast<int>(bytes % kUnit)};
  const MPI_Aint at[] = {0, static_cast<MPI_Aint>(bytes - bytes % kUnit)};
  PMPI_Type_create_struct(2, counts, at, types, &piece);
  PMPI_Type_commit(&piece);
  PMPI_Type_free(&unit);
  return piece;
}

// Moves data that PMPI_Pack cannot move, by a message to this rank itself: `count` elements of any
// size at any address, `bytes` bytes in all.
int move_by_message(std::byte* user, int count, MPI_Datatype type, std::byte* packed,
                    std::size_t bytes, bool out) {
  MPI_Datatype piece = piece_of(bytes);
  const int error = out ? PMPI_Sendrecv(packed, 1, piece, 0, 0, user, count, type, 0, 0,
                                        own_communicator(), MPI_STATUS_IGNORE)
                        : PMPI_Sendrecv(user, count, type, 0, 0, packed, 1, piece, 0, 0,
                                        own_communicator(), MPI_STATUS_IGNORE);
  PMPI_Type_free(&piece);
  return error;
}

// Whether the type describes elements in memory: not null, and committed.
bool describes(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return false;
  char nothing = 0;
  int position = 0;
  return PMPI_Pack(&nothing, 0, type, &nothing, 0, &position, own_communicator()) == MPI_SUCCESS;
}

// Throws Refused if MPI rejects the blocks of `layout`.
void expect_blocks(const void* data, const Layout& layout, MPI_Datatype type, bool is_plain) {
  std::size_t most = elements(layout.count);
  for (int b = 0; layout.counts && b < layout.blocks; ++b)
    most = std::max(most, elements(layout.counts[b]));
  expect(is_plain || describes(type));
  MPI_Aint begin = 0, extent = 0;
  // MPI_BOTTOM is null, too; then the type contains the addresses.
  if (!data && most != 0) PMPI_Type_get_true_extent(type, &begin, &extent);
  expect_buffer(data, most != 0 && begin == 0);
}

}  // namespace

std::optional<DType> dtype_of(MPI_Datatype type) {
  for (const Known& k : known_types())
    if (k.type == type) return k.as;
  return {};
}

std::optional<RedOp> op_of(MPI_Op op, MPI_Datatype type) {
  const std::optional<DType> as = dtype_of(type);
  if (!as) return {};
  if (type == MPI_C_BOOL) {
    if (op == MPI_LAND) return RedOp::kMin;
    if (op == MPI_LOR) return RedOp::kMax;
    return {};
  }
  const bool bits = !is_floating(*as);
  if (op == MPI_BAND && bits) return RedOp::kBitAnd;
  if (op == MPI_BOR && bits) return RedOp::kBitOr;
  if (op == MPI_BXOR && bits) return RedOp::kBitXor;
  if (type == MPI_BYTE) return {};
  if (op == MPI_SUM) return RedOp::kSum;
  if (op == MPI_MAX) return RedOp::kMax;
  if (op == MPI_MIN) return RedOp::kMin;
  if (op == MPI_PROD) return RedOp::kProd;
  return {};
}

bool plain(MPI_Datatype type) {
  if (type == MPI_CHAR || dtype_of(type)) return true;
  if (type == MPI_DATATYPE_NULL) return false;
  int integers = 0, addresses = 0, types = 0, combiner = 0;
  if (PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS ||
      combiner != MPI_COMBINER_NAMED)
    return false;
  MPI_Aint first = 0, extent = 0;  // MPI_DOUBLE_INT has a gap
  PMPI_Type_get_extent(type, &first, &extent);
  return first == 0 && extent == static_cast<MPI_Aint>(bytes_of(type));
}

std::size_t bytes_of(MPI_Datatype type) {
  MPI_Count bytes = 0;
  PMPI_Type_size_x(type, &bytes);
  return static_cast<std::size_t>(bytes);
}

void expect_buffer(const void* data, bool used) {
  expect(data != MPI_IN_PLACE);
#ifdef OPEN_MPI
  (void)used;
#else
  expect(data || !used);
#endif
}

void expect_apart(const void* in, const void* out, bool used) {
#ifdef OPEN_MPI
  (void)in, (void)out, (void)used;
#else
  expect(in != out || !in || !used);
#endif
}

Bytes Bytes::to_send(const void* data, const Layout& layout, MPI_Datatype type, bool copy) {
  const bool is_plain = plain(type);
  expect_blocks(data, layout, type, is_plain);
  return {const_cast<void*>(data), layout, type, copy || !is_plain, true};
}

Bytes Bytes::to_receive(void* data, const Layout& layout, MPI_Datatype type, bool reads) {
  const bool is_plain = plain(type);
  expect_blocks(data, layout, type, is_plain);
  return {data, layout, type, !is_plain, reads};
}

Bytes::Bytes(void* data, const Layout& layout, MPI_Datatype type, bool copies, bool reads)
    : at_(static_cast<std::byte*>(data)), data_(static_cast<std::byte*>(data)) {
  const std::size_t element = bytes_of(type);
  bytes_ = static_cast<std::size_t>(layout.count) * element;
  if (layout.uniform() && !copies) return;
  MPI_Aint first = 0, extent = 0;
  PMPI_Type_get_extent(type, &first, &extent);
  MPI_Aint next = 0;
  for (int b = 0; b < layout.blocks; ++b) {
    const MPI_Count count = layout.counts ? layout.counts[b] : layout.count;
    begins_.push_back(layout.at ? static_cast<MPI_Aint>(layout.at[b]) * extent : next);
    next = begins_.back() + static_cast<MPI_Aint>(count) * extent;
    counts_.push_back(static_cast<std::size_t>(count) * element);
  }
  if (!copies) {
    // Blocks may begin before the buffer's address. Empty ones may lie anywhere.
    MPI_Aint low = 0;
    for (std::size_t b = 0; b < begins_.size(); ++b)
      if (counts_[b]) low = std::min(low, begins_[b]);
    at_ += low;
    for (std::size_t b = 0; b < begins_.size(); ++b)
      offsets_.push_back(counts_[b] ? static_cast<std::size_t>(begins_[b] - low) : 0);
    return;
  }
  std::size_t all = 0;
  for (const std::size_t count : counts_) {
    offsets_.push_back(all);
    all += count;
  }
  type_ = type;
  copy_ = std::make_unique_for_overwrite<std::byte[]>(all);
  at_ = copy_.get();
  if (reads) move(false);
}

void Bytes::keep_type() {
  if (!copy_) return;
  kept_ = KeptType(type_);
  type_ = kept_.get();
}

void Bytes::unpack() {
  if (copy_) move(true);
}

// Moves the blocks between the user's buffer and the copy.
void Bytes::move(bool out) {
  const std::size_t element = bytes_of(type_);
  if (element == 0) return;
  MPI_Aint first = 0, extent = 0;
  PMPI_Type_get_extent(type_, &first, &extent);
  const std::size_t most = std::max<std::size_t>(1, kMostPacked / element);
  for (std::size_t b = 0; b < counts_.size(); ++b) {
    std::byte* user = data_ + begins_[b];
    std::byte* packed = at_ + offsets_[b];
    for (std::size_t left = counts_[b] / element; left != 0;) {
      const std::size_t now = std::min(left, most), bytes = now * element;
      int position = 0, error = MPI_SUCCESS;
      // MPICH does not pack at MPI_BOTTOM.
      if (element > kMostPacked || !data_)
        error = move_by_message(user, static_cast<int>(now), type_, packed, bytes, out);
      else if (out)
        error = PMPI_Unpack(packed, static_cast<int>(bytes), &position, user, static_cast<int>(now),
                            type_, own_communicator());
      else
        error = PMPI_Pack(user, static_cast<int>(now), type_, packed, static_cast<int>(bytes),
                          &position, own_communicator());
      if (error != MPI_SUCCESS)
        throw Error("MPI cannot pack the elements of this call's type: the type is invalid");
      user += static_cast<MPI_Aint>(now) * extent;
      packed += bytes;
      left -= now;
    }
  }
}

}  // namespace weft::mpi
