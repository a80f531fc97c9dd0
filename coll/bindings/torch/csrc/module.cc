// weft_torch._C: creates backends, and exposes their abort and shutdown.
#include <torch/csrc/utils/pybind.h>

#include "backend.h"

namespace {

namespace py = pybind11;
using weft_torch::WeftBackend;

c10::intrusive_ptr<WeftBackend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                       int size, double timeout_s, const std::string& name,
                                       const std::string& group,
                                       const std::vector<std::uint64_t>& global_ranks) {
  auto options = c10::make_intrusive<c10d::Backend::Options>(
      name, std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1000)));
  options->group_name = group;
  options->global_ranks_in_group = global_ranks;
  return c10::make_intrusive<WeftBackend>(store, rank, size, options);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "weft as a backend of torch.distributed";
  py::class_<WeftBackend, c10::intrusive_ptr<WeftBackend>, c10d::Backend>(m, "WeftBackend")
      .def("give_up", &WeftBackend::give_up, py::call_guard<py::gil_scoped_release>())
      .def("all_reduce_compressed", &WeftBackend::all_reduce_compressed, py::arg("tensor"),
           py::arg("codec"), py::arg("average"), py::arg("residual"), py::arg("async_op"),
           py::call_guard<py::gil_scoped_release>())
      .def("shutdown", &WeftBackend::shutdown, py::call_guard<py::gil_scoped_release>());
  m.def("create", &create, py::call_guard<py::gil_scoped_release>());
  m.def("version", [] { return weft_version(); });
}
