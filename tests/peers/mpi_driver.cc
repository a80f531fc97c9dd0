// Drives an MPI library; compiled once with each library's compiler wrapper.
#include <mpi.h>

#include "driver.h"

namespace {

class Mpi : public peers::Peer {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  void max_over_ranks(std::vector<double>& values) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  MPI_COMM_WORLD);
  }

  std::function<void()> prepare(const std::string& collective, float* in, float* out,
                                std::size_t count) override {
    const int n = static_cast<int>(count);
    const int part = n / size_;
    const void* from = in == out ? MPI_IN_PLACE : in;
    if (collective == "all_reduce") {
      return [=] { MPI_Allreduce(from, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    }
    if (collective == "all_gather") {
      return [=] { MPI_Allgather(from, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD); };
    }
    if (collective == "reduce_scatter") {
      return [=] { MPI_Reduce_scatter_block(from, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); };
    }
    if (collective == "all_to_all") {
      return [=] { MPI_Alltoall(from, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD); };
    }
    if (collective == "broadcast") {
      return [=] { MPI_Bcast(out, n, MPI_FLOAT, 0, MPI_COMM_WORLD); };
    }
    throw std::runtime_error("unknown collective " + collective);
  }

 private:
  int rank_ = 0, size_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    Mpi mpi;
    const double wrong = peers::run_all(mpi, peers::parse(argc, argv));
    MPI_Finalize();
    return wrong == 0 ? 0 : 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mpi_driver: %s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 4);
  }
  return 4;
}
