// Limits of real RDMA devices for the fake device, from `ibv_devinfo -v` and drivers.
#pragma once

#include <span>

namespace weft::testing {

struct FakeLimits {
  const char* device;
  int max_qp, max_mr, max_cqe, max_qp_wr;
  int max_inline;     // bytes of inline data, for reliable connections
  int max_rd_atomic;  // pending RDMA reads
  bool reliable;      // supports reliable connections (RC)
  const char* source;
};

// ConnectX-7 and -8 use the driver of ConnectX-6 (mlx5); we have no output of theirs.
inline constexpr FakeLimits kFakeLimits[] = {
    {"ConnectX-6", 262'144, 1 << 24, 4'194'303, 32'768, 988, 16, true,
     "github.com/openucx/ucx/issues/8229 (max_qp, max_qp_wr), open-mpi/ompi/pull/6137 (max_mr, "
     "max_cqe, reads: ConnectX-5), ofiwg/libfabric/pull/3790 (inline: MT4115)"},
    {"ConnectX-6 Lx", 131'072, 1 << 24, 4'194'303, 32'768, 988, 16, true,
     "github.com/openucx/ucx/issues/10317 (max_qp); the rest as ConnectX-6"},
    {"ConnectX-7", 262'144, 1 << 24, 4'194'303, 32'768, 988, 16, true, "as ConnectX-6: mlx5"},
    {"ConnectX-8", 262'144, 1 << 24, 4'194'303, 32'768, 988, 16, true, "as ConnectX-6: mlx5"},
    {"bnxt_re", 65'536, 65'536, 65'535, 8'192, 96, 126, true,
     "Linux, drivers/infiniband/hw/bnxt_re/qplib_fp.h (inline); the rest: an order of magnitude"},
    {"irdma", 16'384, 65'536, 65'535, 4'096, 101, 127, true,
     "github.com/linux-rdma/perftest/issues/139 (inline); the rest: an order of magnitude"},
    {"rxe", 65'536, 262'144, 32'767, 16'384, 512, 128, true,
     "github.com/openucx/ucx/issues/5045; inline: providers/rxe of rdma-core"},
    {"efa", 1'024, 65'536, 32'768, 4'096, 32, 0, false,
     "github.com/ofiwg/libfabric/pull/12858 (inline); has scalable reliable datagrams instead"},
};

}  // namespace weft::testing
