// Drives Gloo over TCP. Additional options: --algo NAME (ring, bcube, ring_chunked,
// halving_doubling; all_reduce only), and -n RANKS to fork ranks on loopback. Without -n, the ranks
// are those of `weft lab netlab`, each on its own rail, and --store names a shared folder.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "driver.h"

namespace {

constexpr std::chrono::seconds kTimeout{120};

using Context = std::shared_ptr<gloo::rendezvous::Context>;

class Gloo : public peers::Peer {
 public:
  Gloo(Context context, std::string algorithm)
      : context_(std::move(context)), algorithm_(std::move(algorithm)) {}
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  void max_over_ranks(std::vector<double>& values) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values.data(), values.size());
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::max<double>));
    gloo::allreduce(options);
  }

  std::function<void()> prepare(const std::string& collective, float* in, float* out,
                                std::size_t count) override {
    if (collective == "all_reduce") return all_reduce(in, out, count);
    if (collective == "all_gather") {
      auto options = std::make_shared<gloo::AllgatherOptions>(context_);
      if (in != out) options->setInput(in, count / context_->size);
      options->setOutput(out, count);
      return [options] { gloo::allgather(*options); };
    }
    if (collective == "reduce_scatter") return reduce_scatter(in, out, count);
    if (collective == "broadcast") {
      auto options = std::make_shared<gloo::BroadcastOptions>(context_);
      options->setOutput(out, count);
      options->setRoot(0);
      return [options] { gloo::broadcast(*options); };
    }
    throw std::runtime_error("unknown collective " + collective);
  }

 private:
  std::function<void()> all_reduce(float* in, float* out, std::size_t count) {
    if (algorithm_ == "ring" || algorithm_ == "bcube") {
      auto options = std::make_shared<gloo::AllreduceOptions>(context_);
      if (in != out) options->setInput(in, count);
      options->setOutput(out, count);
      options->setAlgorithm(algorithm_ == "ring" ? gloo::AllreduceOptions::Algorithm::RING
                                                 : gloo::AllreduceOptions::Algorithm::BCUBE);
      options->setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
      return [options] { gloo::allreduce(*options); };
    }
    // The older algorithms work only in place: out of place requires a copy.
    std::shared_ptr<gloo::Algorithm> algorithm;
    const std::vector<float*> pointers = {out};
    const int n = static_cast<int>(count);
    if (algorithm_ == "ring_chunked") {
      algorithm = std::make_shared<gloo::AllreduceRingChunked<float>>(context_, pointers, n);
    } else if (algorithm_ == "halving_doubling") {
      algorithm = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context_, pointers, n);
    } else {
      throw std::runtime_error("unknown --algo " + algorithm_);
    }
    return [=] {
      if (in != out) std::memcpy(out, in, count * sizeof(float));
      algorithm->run();
    };
  }

  std::function<void()> reduce_scatter(float* in, float* out, std::size_t count) {
    const std::size_t part = count / static_cast<std::size_t>(context_->size);
    auto work = std::make_shared<std::vector<float>>(in != out ? count : 0);
    float* data = in != out ? work->data() : out;
    auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
        context_, std::vector<float*>{data}, static_cast<int>(count),
        std::vector<int>(static_cast<std::size_t>(context_->size), static_cast<int>(part)));
    return [=] {
      if (in != out) std::memcpy(work->data(), in, count * sizeof(float));
      algorithm->run();
      if (in != out) std::memcpy(out, work->data(), part * sizeof(float));
    };
  }

  Context context_;
  std::string algorithm_;
};

struct Place {
  int rank = 0, size = 1;
  std::string interface, store;
};

int run(const Place& place, const peers::Options& options, const std::string& algorithm) {
  gloo::transport::tcp::attr attr;
  if (place.interface.empty()) {
    attr.hostname = "127.0.0.1";
  } else {
    attr.iface = place.interface;
  }
  auto device = gloo::transport::tcp::CreateDevice(attr);
  gloo::rendezvous::FileStore store(place.store);
  auto context = std::make_shared<gloo::rendezvous::Context>(place.rank, place.size);
  context->setTimeout(kTimeout);
  context->connectFullMesh(store, device);
  Gloo peer(context, algorithm);
  const double wrong = peers::run_all(peer, options);
  peer.barrier();
  return wrong == 0 ? 0 : 2;
}

int number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) throw std::runtime_error(std::string(name) + " is not set: give -n RANKS");
  return std::atoi(text);
}

// Local ranks are assigned to rails round-robin.
Place place_from_environment(const std::string& store) {
  Place place{number("WEFT_RANK"), number("WEFT_SIZE"), "", store};
  std::string rails = std::getenv("WEFT_RAILS") != nullptr ? std::getenv("WEFT_RAILS") : "";
  std::vector<std::string> names;
  while (!rails.empty()) {
    const std::size_t comma = std::min(rails.find(','), rails.size());
    names.push_back(rails.substr(0, comma));
    rails.erase(0, comma + 1);
  }
  if (!names.empty()) {
    place.interface = names[static_cast<std::size_t>(number("WEFT_LOCAL_RANK")) % names.size()];
  }
  return place;
}

int fork_ranks(int n, const peers::Options& options, const std::string& algorithm) {
  char store[] = "/tmp/gloo_store_XXXXXX";
  if (mkdtemp(store) == nullptr) throw std::runtime_error("mkdtemp failed");
  int worst = 0;
  for (int rank = 0; rank < n; ++rank) {
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error("fork failed");
    if (pid > 0) continue;
    int code = 4;
    try {
      code = run({rank, n, "", store}, options, algorithm);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "gloo_driver rank %d: %s\n", rank, e.what());
    }
    std::fflush(stdout);
    _exit(code);
  }
  for (int status = 0; wait(&status) > 0;) {
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  std::filesystem::remove_all(store);
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const peers::Options options = peers::parse(argc, argv);
    std::string algorithm = "ring", store;
    int n = 0;
    for (std::size_t i = 0; i + 1 < options.own.size(); i += 2) {
      const std::string& word = options.own[i];
      const std::string& value = options.own[i + 1];
      if (word == "--algo") {
        algorithm = value;
      } else if (word == "--store") {
        store = value;
      } else if (word == "-n") {
        n = std::stoi(value);
      } else {
        throw std::runtime_error("unknown option " + word);
      }
    }
    if (n > 0) return fork_ranks(n, options, algorithm);
    return run(place_from_environment(store), options, algorithm);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gloo_driver: %s\n", e.what());
    return 4;
  }
}
