// Prepares, runs and checks one collective. Does not depend on reports or verdicts.
#include "perf/collective/exercise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "topo/base/clock.h"
#include "transport/job/bootstrap.h"
#include "transport/launch/failures.h"

namespace weft {

Buffer::Buffer(std::size_t bytes, bool from_weft) : bytes_(bytes) {
  constexpr std::size_t kPage = 4096;
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  auto* p =
      static_cast<unsigned char*>(from_weft ? alloc(rounded) : std::aligned_alloc(kPage, rounded));
  if (p == nullptr && rounded > 0)
    throw Error(fmt::format("no memory for a buffer of {} bytes; use a smaller -e", bytes));
  data_ = {p, from_weft ? &weft::free : &std::free};
  std::memset(p, 0, rounded);  // touch every page before anything is timed
}

Case with_bytes(Case like, std::uint64_t bytes, int nranks) {
  const std::size_t size = size_of(like.type);
  std::size_t blocks = 1;
  if (by_blocks(like.collective)) blocks = static_cast<std::size_t>(nranks);
  like.count = std::max<std::size_t>(bytes / (blocks * size), 1);
  like.bytes = like.count * blocks * size;
  if (like.collective == Collective::kBarrier) like.count = like.bytes = 0;
  return like;
}

Memory::Memory(std::uint64_t bytes, bool in_place, bool from_weft)
    : out(bytes + kGuard, from_weft) {
  if (!in_place) in = Buffer(bytes + kGuard, from_weft);
}

std::unique_ptr<Memory> Memory::on_gpu(int gpu, std::uint64_t bytes, bool in_place) {
  auto memory = std::make_unique<Memory>(bytes, in_place, false);
  const auto mirror = [gpu](const Buffer& host) {
    return std::make_unique<DeviceMirror>(gpu, host.data(), host.size());
  };
  memory->out_on_gpu = mirror(memory->out);
  if (!in_place) memory->in_on_gpu = mirror(memory->in);
  return memory;
}

void Exercise::upload() {
  if (memory_.out_on_gpu) memory_.out_on_gpu->upload();
  if (memory_.in_on_gpu) memory_.in_on_gpu->upload();
}

unsigned char* Exercise::on_gpu(unsigned char* p) const {
  for (const auto* mirror : {&memory_.out_on_gpu, &memory_.in_on_gpu})
    if (*mirror)
      if (unsigned char* there = (*mirror)->at(p)) return there;
  return p;
}

Exercise::Exercise(Communicator& comm, const Case& what, Memory& memory)
    : comm_(comm), memory_(memory), case_(what), payload_(what.type, what.op, comm.size()) {
  if (what.codec != Codec::kNone)
    payload_.allow(error_bound(what.codec, what.collective, what.op, comm.size()));
  const std::size_t n = static_cast<std::size_t>(comm.size());
  const std::size_t mine = static_cast<std::size_t>(comm.rank()) * case_.count;
  const std::size_t size = size_of(case_.type);
  input_count_ = output_count_ = case_.count;
  const Collective c = case_.collective;
  const bool all_to_all = c == Collective::kAllToAll;
  const bool gathers = c == Collective::kAllGather || c == Collective::kGather;
  const bool scatters = c == Collective::kReduceScatter || c == Collective::kScatter;
  if (gathers || all_to_all) output_count_ *= n;
  if (scatters || all_to_all) input_count_ *= n;
  const std::size_t shift = case_.shift * size;
  unsigned char* whole = memory.out.data() + shift;
  in_ = case_.in_place ? whole : memory.in.data() + shift;
  out_ = whole;
  if (case_.in_place && gathers) in_ = whole + mine * size;
  if (case_.in_place && scatters) out_ = whole + mine * size;
  guard_ = whole + (case_.in_place ? std::max(input_count_, output_count_) : output_count_) * size;
}

void Exercise::prepare() {
  const std::size_t size = size_of(case_.type);
  std::memset(guard_, kPoison, Memory::kGuard);
  // In place, the input overwrites its part of the poison.
  std::memset(out_, kPoison, output_count_ * size);
  if (has_input())
    payload_.fill(in_, input_count_, comm_.rank());
  else if (!case_.in_place)
    std::memset(in_, kPoison, input_count_ * size);
  upload();
}

void Exercise::prepare_to_time() {
  if (!case_.in_place) return;
  const std::size_t size = size_of(case_.type);
  std::memset(in_, 0, input_count_ * size);
  std::memset(out_, 0, output_count_ * size);
  upload();
}

Status Exercise::run() {
  unsigned char *const in = on_gpu(in_), *const out = on_gpu(out_);
  const Reduction op(case_.op, case_.op == RedOp::kPreMulSum ? Payload::kFactor : 1);
  switch (case_.collective) {
    case Collective::kAllReduce:
      return comm_.all_reduce(in, out, case_.count, case_.type, op);
    case Collective::kAllGather:
      return comm_.all_gather(in, out, case_.count, case_.type);
    case Collective::kReduceScatter:
      return comm_.reduce_scatter(in, out, case_.count, case_.type, op);
    case Collective::kBroadcast:
      return comm_.broadcast(in, out, case_.count, case_.type, case_.root);
    case Collective::kReduce:
      return comm_.reduce(in, out, case_.count, case_.type, op, case_.root);
    case Collective::kGather:
      return comm_.gather(in, out, case_.count, case_.type, case_.root);
    case Collective::kScatter:
      return comm_.scatter(in, out, case_.count, case_.type, case_.root);
    case Collective::kAllToAll:
      return comm_.all_to_all(in, out, case_.count, case_.type);
    case Collective::kBarrier:
      return comm_.barrier();
    case Collective::kSendRecv: {
      const Rank next = (comm_.rank() + 1) % comm_.size();
      const Message messages[] = {Message::from(previous(), out, case_.count, case_.type),
                                  Message::to(next, in, case_.count, case_.type)};
      return comm_.exchange(messages);
    }
  }
  return {Code::kInternal, "unknown collective"};
}

bool Exercise::has_input() const {
  return (case_.collective != Collective::kBroadcast && case_.collective != Collective::kScatter) ||
         comm_.rank() == case_.root;
}

Mismatch Exercise::check() const {
  if (case_.collective == Collective::kBarrier) return {};
  if (memory_.out_on_gpu) memory_.out_on_gpu->download();
  if (memory_.in_on_gpu) memory_.in_on_gpu->download();
  const std::size_t size = size_of(case_.type);
  const Rank me = comm_.rank();
  Mismatch all;
  const auto add = [&all](Mismatch m, const std::string& where) {
    if (all.wrong == 0 && m.wrong > 0) all.first = where + m.first;
    all.wrong += m.wrong;
  };
  const bool at_root = me == case_.root;
  switch (case_.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      if (case_.collective == Collective::kAllReduce || at_root)
        add(payload_.compare_reduced(out_, case_.count), "");
      break;
    case Collective::kReduceScatter:
      add(payload_.compare_reduced(out_, case_.count, static_cast<std::size_t>(me) * case_.count),
          "");
      break;
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kAllToAll: {
      if (case_.collective == Collective::kGather && !at_root) break;
      const bool all_to_all = case_.collective == Collective::kAllToAll;
      const std::size_t first = all_to_all ? static_cast<std::size_t>(me) * case_.count : 0;
      for (Rank r = 0; r < comm_.size(); ++r)
        add(payload_.compare(out_ + static_cast<std::size_t>(r) * case_.count * size, case_.count,
                             r, first),
            fmt::format("in the block of rank {}, ", r));
      break;
    }
    case Collective::kScatter:
      add(payload_.compare(out_, case_.count, case_.root,
                           static_cast<std::size_t>(me) * case_.count),
          "");
      break;
    case Collective::kBroadcast:
      add(payload_.compare(out_, case_.count, case_.root), "");
      break;
    default:
      add(payload_.compare(out_, case_.count, previous()), "");
  }
  const auto foreign =
      std::count_if(guard_, guard_ + Memory::kGuard, [](unsigned char b) { return b != kPoison; });
  if (foreign > 0)
    add({static_cast<std::uint64_t>(foreign), "bytes behind the result were written"}, "");
  if (!case_.in_place && has_input())
    add(payload_.compare(in_, input_count_, me), "the input was changed: ");
  return all;
}

std::vector<std::vector<double>> time_runs(Job& job, Communicator& comm, Exercise& exercise,
                                           int runs, Rhythm rhythm,
                                           const std::function<void(int)>& shown) {
  std::vector<double> mine;
  mine.reserve(static_cast<std::size_t>(runs / rhythm.runs) + 1);
  double last = now_us();
  for (int done = 0; done < runs; done += rhythm.runs) {
    const int n = std::min(rhythm.runs, runs - done);
    if (rhythm.barriers || done == 0) require(comm.barrier());
    const double start = now_us();
    for (int i = 0; i < n; ++i) require(exercise.run());
    const double end = now_us();
    mine.push_back((end - start) / n);
    if (shown && end - last > 250e3) {
      shown(done + n);
      last = end;
    }
  }
  // Use the control plane: the transports under test must not carry their own results.
  std::vector<std::vector<double>> all;
  for (const std::string& bytes :
       job.all_gather({reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double)})) {
    all.emplace_back(bytes.size() / sizeof(double));
    if (!bytes.empty()) std::memcpy(all.back().data(), bytes.data(), bytes.size());
  }
  return all;
}

}  // namespace weft
