// The phases of a compressed collective: which data is quantized, which collective transfers it,
// and where the sums are written. This file is independent of the block format (engine/codec.h).
#include "coll/codec/coded_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "coll/engine/codec.h"
#include "coll/engine/signature.h"
#include "coll/schedule/algorithm.h"
#include "coll/schedule/building_blocks.h"

namespace weft {
namespace {

// The ids of the companions, distinct from the ids of lanes.
constexpr std::uint32_t kAll = 8, kHost = 9, kRail = 10;

// For last_algorithm().
constexpr Algorithm kInt8Blocks{"int8", Collective::kAllReduce, "", nullptr, nullptr},
    kFp8Blocks{"fp8", Collective::kAllReduce, "", nullptr, nullptr};

void make_calls(GroupState& g) WEFT_REQUIRES(core_held) {
  Core& core = *g.core;
  if (g.coded) return;
  auto made = std::make_shared<CodedCalls>();
  const auto& hosts = g.shape.hosts;
  const bool by_hosts = hosts.size() > 1 && hosts[0].size() > 1 && uniform_hosts(g.shape);
  const auto companion = [&](std::uint32_t which,
                             const std::vector<Rank>& of) WEFT_REQUIRES(core_held) {
    std::vector<Rank> world;
    for (const Rank r : of) world.push_back(g.ranks[static_cast<std::size_t>(r)]);
    g.companions.push_back(core.groups.make_companion(g, which, std::move(world)));
    return g.companions.back().get();
  };
  std::vector<Rank> everybody(g.ranks.size());
  std::iota(everybody.begin(), everybody.end(), 0);
  made->all = companion(kAll, everybody);
  if (by_hosts) {
    const Layout layout(g.shape);
    made->place = hosts[static_cast<std::size_t>(layout.my_host())];
    for (const auto& host : hosts)
      made->across.push_back(host[static_cast<std::size_t>(layout.my_local())]);
    made->host = companion(kHost, made->place);
    made->rail = companion(kRail, made->across);
  } else {
    made->place = {g.me};
    made->across = std::move(everybody);
  }
  g.coded = std::move(made);
}

std::byte* bytes_in(std::vector<std::byte>& memory, std::size_t bytes) {
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
}
float* floats_in(std::vector<float>& memory, std::size_t count) {
  if (memory.size() < count) memory.resize(count);
  return memory.data();
}

}  // namespace

double error_bound(Codec codec, Collective collective, RedOp op, int ranks) {
  const double e = codec_error(codec), n = ranks, slop = n * 0x1p-22;
  const double all = op == RedOp::kAvg ? 1 : n;
  switch (collective) {
    case Collective::kAllGather:
      return e;
    case Collective::kReduceScatter:
      return all * (e + slop);
    case Collective::kAllReduce:
      return all * (2 * e + e * e + slop);
    default:
      throw Error(
          fmt::format("error_bound: {} is never compressed; pass all_reduce, "
                      "reduce_scatter or all_gather",
                      name(collective)));
  }
}

Status check_coded(Collective c, const Call& call, bool on_device) {
  const auto fail = [&](const std::string& why) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}{} with {} blocks: {}, or call it on the communicator without "
                              "compressed()",
                              name(c), call.is_vector ? "_v" : "", name(call.codec), why));
  };
  if (call.is_vector || (c != Collective::kAllReduce && c != Collective::kReduceScatter &&
                         c != Collective::kAllGather))
    return fail("only all_reduce, reduce_scatter and all_gather are compressed; use one of them");
  if (call.type != DType::kFloat32)
    return fail(
        fmt::format("the type is {}, only float is compressed; pass float", name(call.type)));
  if (reduces(c) && call.op != RedOp::kSum && call.op != RedOp::kAvg)
    return fail(fmt::format("the operator is {}; pass sum or avg", name(call.op)));
  if (on_device) return fail("the buffers are device memory; copy them to host memory");
  if (call.ordered) return fail("stream order is not supported; use the communicator without on()");
  return {};
}

Task* CodedTask::begin(GroupState& g, const PreparedRef& prepared, std::uint64_t number,
                       const Call& call) {
  Core& core = *g.core;
  make_calls(g);
  g.last = call.codec == Codec::kFp8 ? &kFp8Blocks : &kInt8Blocks;
  g.last_on_board = false;
  auto* const task = new CodedTask(g, prepared, number, call);
  if (!core.tasks.submit(task, false)) return task;
  task->calls_.queue.push_back(task);
  core.tasks.ask(task);
  (void)task->progress();
  return task;
}

CodedTask::CodedTask(GroupState& g, const PreparedRef& of, std::uint64_t numbered, const Call& made)
    : calls_(*g.coded),
      n_(g.ranks.size()),
      hosts_(calls_.across.size()),
      places_(calls_.place.size()),
      part_count_(of->what.collective == Collective::kAllReduce ? coded_part(made.count, n_)
                                                                : made.count),
      part_bytes_(coded_bytes(part_count_)) {
  group = &g;
  prepared = of;
  number = numbered;
  call = made;
  g.number_call(call, *of, number);
  seal(call.head);
}

// ---- phases --------------------------------------------------------------------------------

Task::Step CodedTask::progress() {
  if (calls_.queue.front() != this) return Step::kGoOn;
  if (call.count == 0) return Step::kDone;
  for (;;) {
    if (!failure_.ok()) return Step::kFailed;
    if (part_) {
      // The runtime checks the deadlines of calls only, so a part's progress counts as the call's.
      if (std::exchange(part_->moved, false))
        for (CodedTask* task : calls_.queue) task->moved = true;
      if (!part_->over) return Step::kGoOn;
      part_->patient = false;
      failure_ = part_->status;
      std::exchange(part_, nullptr)->release();
      continue;
    }
    moved = true;
    if (!next()) return Step::kDone;
  }
}

bool CodedTask::next() {
  const bool gathers = collective() == Collective::kAllGather;
  switch (phase_++) {
    case 0:
      if (!gathers && places_ > 1) reduce_host();
      return true;
    case 1:
      encode_blocks();
      return true;
    case 2:
      if (!gathers) sum();
      return true;
    case 3:
      if (collective() != Collective::kReduceScatter) decode_all();
      [[fallthrough]];
    default:
      return false;
  }
}

void CodedTask::run(GroupState& companion, Collective c, const void* in, void* out,
                    std::size_t count, DType type, std::span<const std::size_t> counts) {
  companion.part_of = {.record = record,
                       .tag = call.tag,
                       .group = group,
                       .prepared = prepared,
                       .number = number,
                       .head = call.head};
  companion.shape.deterministic = true;  // all algorithms give a host's sums the same bits
  Call part{.in = in, .out = out, .count = count, .type = type};
  part.is_vector = !counts.empty();
  part.counts = counts;
  part_ = begin_part(companion, c, part, failure_);
  if (part_) part_->patient = true;
}

// The index in this rank's `in` (message or blocks) of the first element that the rank at place
// `place` of host `across` reduces.
std::size_t CodedTask::begin_of(std::size_t across, std::size_t place) const {
  if (collective() == Collective::kAllReduce) return (place * hosts_ + across) * part_count_;
  const auto& hosts = group->shape.hosts;
  const Rank r = places_ > 1 ? hosts[across][place] : static_cast<Rank>(across);
  return static_cast<std::size_t>(r) * part_count_;
}

// The length of the part that begins at `begin`.
std::size_t CodedTask::length_at(std::size_t begin) const {
  if (collective() != Collective::kAllReduce) return part_count_;
  return begin < call.count ? std::min(part_count_, call.count - begin) : 0;
}

// Writes this rank's sums to `sums`, the parts of all hosts one after the other.
void CodedTask::reduce_host() {
  const auto* in = static_cast<const float*>(call.in);
  float* const sums = floats_in(calls_.sums, hosts_ * part_count_);
  if (collective() == Collective::kAllReduce) {
    for (std::size_t p = 0; p < places_; ++p) {
      const std::size_t begin = std::min(begin_of(0, p), call.count);
      counts_.push_back(std::min(begin_of(0, p + 1), call.count) - begin);
    }
    return run(*calls_.host, Collective::kReduceScatter, in, sums, 0, DType::kFloat32, counts_);
  }
  float* to = floats_in(calls_.own, n_ * part_count_);
  for (std::size_t p = 0; p < places_; ++p)
    for (std::size_t a = 0; a < hosts_; ++a, to += part_count_)
      std::copy_n(in + begin_of(a, p), part_count_, to);
  run(*calls_.host, Collective::kReduceScatter, calls_.own.data(), sums, hosts_ * part_count_,
      DType::kFloat32);
}

void CodedTask::encode_blocks() {
  const bool gathers = collective() == Collective::kAllGather;
  const auto* in = static_cast<const float*>(call.in);
  const std::size_t parts = gathers ? 1 : hosts_;
  const auto place =
      static_cast<std::size_t>(std::ranges::find(calls_.place, group->me) - calls_.place.begin());
  std::byte* const sent = bytes_in(calls_.sent, parts * part_bytes_);
  std::byte* const received = bytes_in(calls_.received, (gathers ? n_ : hosts_) * part_bytes_);
  for (std::size_t a = 0; a < parts; ++a) {
    const std::size_t begin = gathers ? 0 : begin_of(a, place), count = length_at(begin);
    const float* x = !gathers && places_ > 1 ? calls_.sums.data() + a * part_count_ : in + begin;
    float* const residual = call.residual && count ? call.residual + begin : nullptr;
    std::byte* const to = sent + a * part_bytes_;
    encode(call.codec, to, x, residual, residual, count);
    std::fill(to + coded_bytes(count), to + part_bytes_, std::byte{0});
  }
  if (gathers)
    run(*calls_.all, Collective::kAllGather, sent, received, part_bytes_, DType::kUInt8);
  else
    run(calls_.rail ? *calls_.rail : *calls_.all, Collective::kAllToAll, sent, received,
        part_bytes_, DType::kUInt8);
}

void CodedTask::sum() {
  const auto index = [](const std::vector<Rank>& ranks, Rank r) {
    return static_cast<std::size_t>(std::ranges::find(ranks, r) - ranks.begin());
  };
  const std::size_t begin =
      begin_of(index(calls_.across, group->me), index(calls_.place, group->me));
  const std::size_t count = length_at(begin);
  std::vector<const std::byte*> from(hosts_);
  for (std::size_t a = 0; a < hosts_; ++a) from[a] = calls_.received.data() + a * part_bytes_;
  const bool reduces_all = collective() == Collective::kAllReduce;
  float* const to =
      reduces_all ? floats_in(calls_.own, part_count_) : static_cast<float*>(call.out);
  decode_sum(call.codec, to, from.data(), static_cast<int>(hosts_), count);
  const int n = static_cast<int>(n_);
  if (call.op == RedOp::kAvg) scale(to, to, DType::kFloat32, n, count);
  if (!reduces_all) return;
  std::byte* const sent = calls_.sent.data();
  std::byte* const received = bytes_in(calls_.received, n_ * part_bytes_);
  encode(call.codec, sent, to, nullptr, call.residual ? to : nullptr, count);
  std::fill(sent + coded_bytes(count), sent + part_bytes_, std::byte{0});
  if (call.residual) {  // in the next call this rank adds the error of all results
    const float times = call.op == RedOp::kAvg ? static_cast<float>(n) : 1.0F;
    for (std::size_t i = 0; i < count; ++i) call.residual[begin + i] += to[i] * times;
  }
  run(*calls_.all, Collective::kAllGather, sent, received, part_bytes_, DType::kUInt8);
}

void CodedTask::decode_all() {
  auto* const out = static_cast<float*>(call.out);
  const bool gathers = collective() == Collective::kAllGather;
  const auto& hosts = group->shape.hosts;
  const auto decode_part = [&](Rank r, std::size_t begin) {
    const std::byte* from = calls_.received.data() + static_cast<std::size_t>(r) * part_bytes_;
    if (const std::size_t count = length_at(begin)) decode(call.codec, out + begin, from, count);
  };
  for (std::size_t a = 0; a < (places_ > 1 && !gathers ? hosts_ : n_); ++a)
    if (gathers)
      decode_part(static_cast<Rank>(a), a * part_count_);
    else
      for (std::size_t p = 0; p < places_; ++p)
        decode_part(places_ > 1 ? hosts[a][p] : static_cast<Rank>(a), begin_of(a, p));
}

void CodedTask::done() {
  calls_.queue.pop_front();
  for (CodedTask* task : calls_.queue) task->moved = true;
}

Rank CodedTask::waiting_for() const {
  const Task* const part = calls_.queue.empty() ? nullptr : calls_.queue.front()->part_;
  return part ? part->waiting_for() : kNoRank;
}

void CodedTask::release() {
  if (part_) {  // the part has failed together with this task
    part_->patient = false;
    if (part_->over)
      part_->release();
    else
      part_->keep = {std::shared_ptr<void>(), part_->group};
  }
  delete this;
}

}  // namespace weft
