// The engine runs a plan over transports, round by round, with several rounds in flight.
//
// It is a non-blocking state machine over flat arrays. It has no clock and never waits, sleeps or
// spins, so the simulated fabric drives the same code in virtual time. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "coll/engine/compute.h"
#include "coll/engine/kernels.h"
#include "coll/engine/plan.h"
#include "coll/engine/scratch.h"
#include "transport/offers.h"

namespace weft {

// How to slice a message. The same on every rank of a communicator.
struct Slicing {
  std::size_t slice_bytes = 64 << 10;  // bytes of a chunk, per round
  int rounds_in_flight = 4;            // at most kMaxLanes and at most what fits in kScratchMax
  bool operator==(const Slicing&) const = default;
};

// Limits the scratch of one task, whatever the message; the second limit is for packed rounds,
// whose scratch contains copies of whole rounds.
inline constexpr std::size_t kScratchMax = std::size_t{8} << 20;
inline constexpr std::size_t kPackedScratchMax = 4 * kScratchMax;
inline constexpr int kMaxLanes = 32;
// On a network, a lane starts once 1 / kStagger of the previous lane's plan nodes have finished.
inline constexpr int kStagger = 10;

// The arguments of one collective, and how to run it.
struct Call {
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // elements: of the message (all_reduce, broadcast, reduce), or of a block
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  double factor = 1;  // for kPreMulSum
  // A vector collective ignores `count`. Its spans have one entry per rank: the elements of the
  // rank's block, and the element offset of the block in the buffer. An all_to_all_v sends by
  // counts and offsets, and receives by recv_counts and recv_offsets. All must live until done().
  bool is_vector = false;
  std::span<const std::size_t> counts = {}, offsets = {}, recv_counts = {}, recv_offsets = {};
  std::size_t total_bytes = 0;  // of all chunks (all_to_all: of this rank's blocks); the same on
                                // all ranks, except in an all_to_all_v
  // The GPU stream that an `ordered` call follows (gpu/begin.h), and the arguments of a compressed
  // call (codec/coded_task.h). The engine ignores all of them.
  void* stream = nullptr;
  bool ordered = false;
  Codec codec = Codec::kNone;
  float* residual = nullptr;
  bool streaming = false;       // the message is far larger than the caches
  bool copies_results = false;  // other cores read results: Run::copies_result()
  std::uint64_t tag = 0;        // upper bits of every tag: communicator and sequence number
  std::uint32_t id_high = 0;    // upper half of every transfer id
  Head head = {};  // from signature(); sent with each channel's first message; sign 0: none
};

// The bits of a tag below Call::tag: the round and, below it, the ordinal of the message.
inline constexpr int kRoundBits = 8, kOrdinalBits = kChannelShift + 3;
static_assert(kChannels == 1 << (kOrdinalBits - kChannelShift));

inline constexpr int kLaneShift = 26;  // shift of the lane in a transfer's id, above the node

class Run {
 public:
  // Starts the call: posts the transfers that wait for nothing. `plan`, `call` and the buffers must
  // live until done(); start() completes and seals the head of `call`. links[i] is the transport of
  // Node::link == i. compute: null, or loads and stores data (engine/compute.h); its owner calls
  // progress() when work has completed, and start() throws Error if it is out of memory.
  void start(const Plan& plan, Call& call, const Slicing& slicing,
             std::span<Transport* const> links, Compute* compute = nullptr);

  // Handles the completion of a transfer of this run (id_high matches).
  void complete(const Completion& completion);
  // The bytes to reduce that this completion received from another host; otherwise 0.
  std::size_t to_reduce(const Completion& completion) const {
    const auto low = static_cast<std::uint32_t>(completion.id);
    const std::uint32_t node = low & ((1u << kLaneShift) - 1);
    const Node& n = plan_->nodes[node];
    return n.kind == Node::Kind::kArrive && n.credit >= 0 ? extent(low >> kLaneShift, node).bytes
                                                          : 0;
  }
  // Runs the steps that have become ready. Call it after a batch of complete().
  void progress();

  bool done() const { return lanes_busy_ == 0; }
  // Releases the views that this run holds. The caller cancels its transfers.
  void abandon();
  // The code of the first transfer that failed; kOk if none has.
  Code failure() const { return failure_; }
  Rank failed_peer() const { return failed_peer_; }  // peer of that transfer
  std::string failed_step() const;                   // "chunks [3,4) of round 2, channel 0"
  const Head& head() const { return call_->head; }   // sealed by start()
  // The head that was expected in the message from `peer` that has the head `theirs`.
  const Head& head_for(Rank peer, const Head& theirs) const;
  std::span<const std::size_t> counts() const { return call_->counts; }  // for a vector call
  int failed_link() const { return failed_link_; }

  // A rank that this run currently waits for, for error messages; kNoRank if it waits for none.
  Rank waiting_for() const;
  // The progress of the transfers with one peer on one link.
  struct Progress {
    Rank peer = kNoRank;
    int link = -1;
    std::uint32_t sends_posted = 0, sends_done = 0, recvs_posted = 0, recvs_done = 0;
    bool receives() const { return recvs_posted > recvs_done; }
    bool sends() const { return sends_posted > sends_done; }
  };
  // The progress with every peer on every link; peers it waits to receive from come first.
  std::vector<Progress> survey() const;
  // The traffic of a whole run with one peer on one link.
  struct Traffic {
    Rank peer;
    int link;
    std::uint64_t bytes_sent = 0, bytes_received = 0, messages_sent = 0, messages_received = 0;
  };
  std::span<const Traffic> traffic() {
    if (traffic_.empty()) count_traffic();
    return traffic_;
  }
  std::uint64_t rounds() const { return rounds_; }
  std::uint64_t rounds_done() const;
  std::size_t scratch_bytes() const { return scratch_.bytes; }
  // The bytes that this rank has copied so far between the user's buffers and packed copies, and
  // between these and joined messages.
  std::uint64_t copied_bytes() const { return copied_; }
  // Makes start() take scratch from `with`, which must outlive the run.
  void share_scratch(SpareScratch& with) { spare_ = &with; }
  // Returns this run's scratch for use by other runs, once the run is done.
  void leave_scratch() {
    if (scratch_.bytes) spare_->put(std::exchange(scratch_, {}));
  }
  // Whether the run is bound to this plan, for any count.
  bool bound_to(const Plan& plan) const { return bound_ == plan.serial; }

 private:
  // Byte offsets and length of a node's chunks in a round.
  struct Extent {
    std::size_t from, to, bytes;
    bool first;  // in round 0: the first message of its peer, channel and direction
  };
  // State of a transfer: not posted, or finished; posted to a transport; completed, its view held.
  enum Posted : std::uint8_t { kNot, kPosted, kHeld };
  // The state of a node in the round of a lane.
  struct Point {
    const void* data = nullptr;  // an arrival, or a staged result
    std::uint64_t token = 0;     // releases a view
    std::uint16_t pending = 0;   // nodes that it still waits for
    Posted posted = kNot;
  };
  // A round in flight.
  struct Lane {
    std::uint64_t round = 0;
    // Byte offset of the round in the message or block. With a Compute: offset of the lane's
    // scratch, which contains the round's copy.
    std::size_t at = 0;
    std::uint32_t remaining = 0;
    std::uint32_t cut = 0;            // index into cuts_ and extents_
    const Extent* extents = nullptr;  // extents of the cut, by node
    Point* points = nullptr;          // by node
    std::byte* scratch = nullptr;
    std::uint64_t tag = 0, id = 0;  // tag and id of the round's transfers, without the node's bits
  };

  // Where each chunk lies, in elements from the start of the round in the message or block.
  struct Cut {
    std::vector<std::size_t> offset, length;
    std::vector<std::size_t> kept;  // message layout: elements in scratch before this chunk
  };

  void look_at(std::span<Transport* const> links);
  void bind(const Plan& plan, const Slicing& slicing);
  void choose_rounds(const Slicing& slicing);
  void mark_first(std::vector<Extent>& round0) const;
  void make_pairs();
  const Head* head_of(const Node& node) const;
  void count_traffic();
  bool moves_nothing(const Node& node) const;
  void lay_out(std::uint64_t round, Cut& cut) const;
  void measure(const Cut& cut, std::vector<Extent>& extents) const;
  std::size_t block_count(int block) const;
  std::size_t number_of(bool out, int block) const;
  std::size_t block_at(bool out, int block) const;
  std::size_t bytes_of(Chunks at, const Cut& cut) const;
  std::size_t bytes_of(const Node& node, const Cut& cut) const;
  std::size_t offset(Where where, int chunk, const Cut& cut) const;
  bool blocks() const { return plan_->layout == Plan::Layout::kBlocks; }
  bool packed() const { return plan_->layout == Plan::Layout::kPacked; }
  std::size_t elements_of(std::uint64_t round) const {
    return std::min(segment_, total_ - round * segment_);
  }
  std::byte* address(Where where, std::size_t offset, const Lane& lane) const {
    if (where == Where::kScratch) return lane.scratch + offset;
    return (where == Where::kIn ? in_ : out_) + offset + lane.at;
  }
  std::byte* address(Where where, std::size_t offset, std::uint32_t lane) const {
    return address(where, offset, lanes_[lane]);
  }
  const Extent& extent(std::uint32_t lane, std::uint32_t node) const {
    return lanes_[lane].extents[node];
  }
  Point& point(std::uint32_t lane, std::uint32_t node) { return points_[index(lane, node)]; }
  const Point& point(std::uint32_t lane, std::uint32_t node) const {
    return points_[index(lane, node)];
  }
  void name_buffers();
  void end_buffers();
  // Gives an arrival back where its link lends: Views::release().
  bool release(std::uint8_t link, std::uint64_t token) {
    Views* const views = links_[link]->views();
    return !views || views->release(token);
  }
  const UserBuffer* buffer_of(Where where) const {
    return buffers_[0].serial == 0 || where == Where::kScratch
               ? nullptr
               : &buffers_[where == Where::kOut || in_ == out_];
  }
  void activate(std::uint32_t lane, std::uint64_t round);
  void begin_round(std::uint32_t lane);
  inline void start_lane();
  void finish_round(std::uint32_t lane);
  void leave_round(std::uint32_t lane);
  void finish(std::uint32_t lane, std::uint32_t node);
  inline void launch(std::uint32_t lane, std::uint32_t node);
  inline void gather_sources(std::uint32_t lane, std::uint32_t node);
  inline void reduce(std::uint32_t lane, std::uint32_t node);
  // Whether the link checks messages end to end (engine/checked.cc).
  bool checks(int link) const { return checked_links_ >> link & 1; }
  // Whether the reduction that reads this arrival also checks it.
  bool checked_by_reduce(std::uint32_t lane, const Node& arrive) const;
  static constexpr std::size_t kPiece = 16 << 10;  // stays in the first-level cache
  // Whether to reduce into a local buffer and copy the result, since other cores read it.
  bool copies_result(const Node& n, const std::byte* to, std::size_t bytes) const;
  void reduce_for_readers(std::byte* to, std::size_t bytes);
  // Reduces and verifies the arrivals; false if an arrival must be sent again first.
  bool reduce_checked(std::uint32_t lane, std::uint32_t node, std::byte* to, bool sum_result);
  // Handles an arrival that was sent again; false if the node did not wait for one.
  bool came_again(std::uint32_t lane, std::uint32_t node);
  void post_ready();
  void bring(std::byte* to, const std::byte* from, std::size_t elements) const;
  void stage_in(std::uint32_t lane);
  // ---- with a Compute (computed.cc)
  void place_copies();
  std::vector<Work::Slice> slices_of(std::uint32_t lane, bool out) const;
  void give_copy(Work& work, std::uint32_t lane, int chunk, Where to) const;
  void give_bring(std::uint32_t lane);
  void give_take(std::uint32_t lane);
  void give_reduce(std::uint32_t lane, std::uint32_t node, std::byte* to);
  void take_ended();
  bool on_device() const { return compute_ && compute_->on_device(); }
  void copy_packed(std::uint32_t lane, bool out);
  void copy_joined(std::uint32_t lane, const Node& node, const Extent& extent, bool out);
  std::size_t index(std::uint32_t lane, std::uint32_t node) const { return lane * nodes_ + node; }

  // The signatures of an all_to_all_v, indexed by the peer's rank in the communicator.
  struct Pair {
    Rank peer = kNoRank;
    Head to, from;
  };

  const Plan* plan_ = nullptr;
  // What the run is bound to: the plan's serial (0: none), and the count and type of a call. The
  // binding of a vector call, or of one with a Compute, is not reused.
  std::uint64_t bound_ = 0;
  std::size_t bound_count_ = 0;
  DType bound_type_ = DType::kFloat32;
  bool bound_once_ = true;
  Call* call_ = nullptr;
  std::vector<Pair> pairs_;
  Slicing slicing_;
  std::span<Transport* const> links_;
  bool phantom_ = false;
  bool barrier_ = false;
  RedOp op_ = RedOp::kSum;
  ReduceFn kernel_ = nullptr;  // for `op_` and the call's type

  std::size_t nodes_ = 0, element_ = 4;
  std::uint64_t rounds_ = 0, next_round_ = 0;
  std::size_t total_ = 0, segment_ = 0;  // elements of the message (or of a block), and per round
  // The cuts of full rounds and of the last round; in a vector call, also of each lane's round.
  std::vector<Cut> cuts_;
  std::vector<std::vector<Extent>> extents_;
  std::size_t chunk_bytes_ = 0, lane_bytes_ = 0;  // size of a value in scratch, and of a lane
  std::size_t packed_at_ = 0;                     // offset of the packed copy in a lane
  std::uint64_t copied_ = 0;                      // see copied_bytes()
  std::vector<std::size_t> credit_at_;            // offset of each credit in a lane, then the end
  std::size_t scratch_need_ = 0;
  Scratch scratch_;
  std::byte* base_ = nullptr;  // start of the scratch of all lanes
  SpareScratch* spare_ = nullptr;
  Compute* compute_ = nullptr;
  // Offsets of the copies of a round's input and output in a lane; elements between blocks there.
  std::size_t copy_in_ = 0, copy_out_ = 0, copy_stride_ = 0;
  std::byte *in_ = nullptr, *out_ = nullptr;
  UserBuffer buffers_[2];  // input, output; serial 0: transfers refer to none

  std::vector<Lane> lanes_;
  std::uint32_t nlanes_ = 0, lanes_busy_ = 0, lanes_started_ = 0;
  std::size_t stagger_ = 0;          // the next lane starts when this many nodes are left
  std::vector<Point> points_;        // [lane][node]
  std::uint64_t checked_links_ = 0;  // a bit per link: caps().checks
  bool plain_ = true;                // reductions run at once on this core and verify nothing
  struct Sum {
    bool known = false;
    std::uint32_t crc = 0;
  };
  std::vector<Sum> sums_;               // [lane][node]: checksum of the result, if a link checks
  std::vector<std::uint32_t> missing_;  // [lane][node]: awaits a resend; reduce: number of those
  std::vector<Sum> read_sums_;          // checksums of the sources of a reduction
  std::vector<const void*> pieces_;
  struct Ready {
    std::uint32_t lane, node;
  };
  std::vector<Ready> to_post_, to_reduce_;
  std::size_t next_reduce_ = 0;
  std::vector<std::vector<Transfer>> batch_;  // per link
  std::vector<const void*> sources_;
  std::vector<Traffic> traffic_;  // empty: not computed yet
  Code failure_ = Code::kOk;
  Rank failed_peer_ = kNoRank;
  int failed_link_ = -1;
  std::uint32_t failed_node_ = 0;
  std::uint64_t failed_round_ = 0;
};

// How to slice a message for a run with a Compute; the same on all ranks with equal round_bytes().
Slicing slicing_for(const Compute& compute, const Plan& plan);

// Whether a message of blocks may run packed: it is short, or its blocks are so short that a
// message for each costs more than copying them (0.6 us at both ends, and 10 GB/s).
constexpr bool may_pack(std::size_t total_bytes, int nranks) {
  constexpr std::size_t kShort = std::size_t{256} << 10, kOfBlocks = std::size_t{4} << 20;
  constexpr std::size_t kBlock = std::size_t{4} << 10;
  return total_bytes <= kShort ||
         (total_bytes <= kOfBlocks && total_bytes <= kBlock * static_cast<std::size_t>(nranks));
}

// Whether to compile the plan of a message of blocks in the packed layout.
bool wants_packed(std::size_t total_bytes, const Schedule& schedule);

}  // namespace weft
