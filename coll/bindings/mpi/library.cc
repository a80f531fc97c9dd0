// weft's lifetime in an MPI program: its World, the communicators it serves, errors and counts.
#include "coll/bindings/mpi/library.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "coll/runtime/internals.h"
#include "transport/job/bootstrap.h"

// weft's objects are not destroyed when the process exits: a process that ends without MPI_Finalize
// must not wait, and a handler at exit may still call MPI. So the destructors of this library's
// static objects are not registered.
extern "C" [[gnu::visibility("hidden")]] int __cxa_atexit(void (*)(void*), void*,
                                                          void*) {  // NOLINT
  return 0;
}

namespace weft::mpi {
namespace {

constexpr const char* kWayNames[kWays] = {"weft",     "weft is off",  "other communicator",
                                          "one rank", "element type", "operator",
                                          "argument", "not offered"};

struct Library {
  std::unique_ptr<World> world;
  std::unique_ptr<Communicator> everybody;  // serves MPI_COMM_WORLD
  int key = MPI_KEYVAL_INVALID;             // the attribute of a communicator that weft serves
  int error = MPI_ERR_OTHER;                // the MPI error code of weft's failures
  MPI_Comm own = MPI_COMM_NULL;
  bool requests = false;  // whether MPI can wait for weft
};

Library& library() {
  static Library one;
  return one;
}

std::vector<Count*>& counts() {
  static std::vector<Count*> all;
  return all;
}

bool on(const char* variable, bool otherwise) {
  const char* const text = std::getenv(variable);
  return text ? std::string_view(text) != "0" && std::string_view(text) != "off" : otherwise;
}

int rank_in(MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  return size;
}

// A serving communicator is the value of an attribute, and is deleted with the attribute.
int forget(MPI_Comm comm, int, void* value, void*) {
  leave(comm);
  delete static_cast<Communicator*>(value);
  return MPI_SUCCESS;
}

// Broadcasts rank 0's unique id.
std::string from_rank_0(std::string text) {
  int bytes = static_cast<int>(text.size());
  PMPI_Bcast(&bytes, 1, MPI_INT, 0, MPI_COMM_WORLD);
  text.resize(static_cast<std::size_t>(bytes));
  PMPI_Bcast(text.data(), bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
  return text;
}

// A launcher ends a job when one of its processes ends. As without weft, the user should see the
// exit code and message of that process, not those of a process that detected its end.
constexpr std::chrono::seconds kLauncherEndsJob(5);

bool ends_the_job(MPI_Comm comm) {
  MPI_Errhandler handler;
  PMPI_Comm_get_errhandler(comm, &handler);
  const bool ends = handler == MPI_ERRORS_ARE_FATAL;
  PMPI_Errhandler_free(&handler);
  return ends;
}

}  // namespace

Count::Count(const char* function) : function_(function) { counts().push_back(this); }

void check_mpi() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  PMPI_Get_library_version(text, &length);
  const std::string_view runs(text, static_cast<std::size_t>(length));
  const bool openmpi = runs.find("Open MPI") != std::string_view::npos;
#ifdef OPEN_MPI
  if (openmpi) return;
  constexpr const char* kFor = "Open MPI";
#else
  if (!openmpi) return;
  constexpr const char* kFor = "MPICH and MPIs with its binary interface";
#endif
  std::fputs(
      fmt::format("weft: this libweft_mpi.so is for {}, and the program runs \"{}\": preload "
                  "that of lib/weft/{} instead\n",
                  kFor, runs.substr(0, runs.find_first_of(",\n")), openmpi ? "openmpi" : "mpich")
          .c_str(),
      stderr);
  std::_Exit(4);
}

void start() {
  Library& l = library();
  const int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
  if (size == 1 || !on("WEFT_MPI", true)) return;
  std::string why;
  try {
    const std::string id = from_rank_0(rank == 0 ? World::unique_id() : std::string());
    l.world = World::from_id(id, rank, size);
    // An MPI program may compute for any length of time before it makes a call.
    if (!std::getenv("WEFT_TIMEOUT_MS"))
      Internals::set_timeout(*l.world, std::chrono::hours(24 * 365));
    // A peer may need MPI's progress on this rank before it makes the call.
    Internals::while_waiting(*l.world, move_mpi);
  } catch (const std::exception& e) {
    why = e.what();
  }
  int mine = l.world ? size : rank, first = 0;
  PMPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (first < size) {
    l.world.reset();
    if (rank == first)
      std::fputs(fmt::format("weft: rank {}: MPI runs without weft: {}\n", rank, why).c_str(),
                 stderr);
    return;
  }
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &l.key, nullptr);
  int error_class = 0;
  PMPI_Add_error_class(&error_class);
  PMPI_Add_error_code(error_class, &l.error);
  PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &l.own);
  PMPI_Comm_set_errhandler(l.own, MPI_ERRORS_RETURN);
  l.everybody = std::make_unique<Communicator>(l.world->world());
  l.requests = watch_from_mpi(true);
}

void finish() {
  Library& l = library();
  if (l.world) {
    finish_all();
    PMPI_Barrier(MPI_COMM_WORLD);
    l.everybody.reset();
    watch_from_mpi(false);
    PMPI_Comm_free(&l.own);
  }
  if (on("WEFT_MPI_COUNTS", false)) print_counts();
  l.world.reset();
}

Communicator* serving(MPI_Comm comm, Way& way) {
  const Library& l = library();
  way = Way::kWeft;
  if (comm == MPI_COMM_WORLD && l.everybody) return l.everybody.get();
  if (!l.everybody) {
    way = Way::kOff;
    return nullptr;
  }
  void* value = nullptr;
  int there = 0;
  way = Way::kCommunicator;
  if (comm == MPI_COMM_NULL) return nullptr;
  if (comm != MPI_COMM_SELF) PMPI_Comm_get_attr(comm, l.key, &value, &there);
  auto* const by = there ? static_cast<Communicator*>(value) : nullptr;
  if (by && by->size() > 1) {
    way = Way::kWeft;
    return by;
  }
  int inter = 0;
  PMPI_Comm_test_inter(comm, &inter);
  if (!inter && size_of(comm) == 1) way = Way::kAlone;
  return nullptr;
}

bool hands_out() { return library().requests; }

MPI_Comm own_communicator() { return library().own; }

int adopt(int returned, MPI_Comm parent, const MPI_Comm* comm) {
  Way way;
  Communicator* const by = parent == MPI_COMM_SELF ? nullptr : serving(parent, way);
  if (!by || returned != MPI_SUCCESS) return returned;
  const MPI_Comm made = *comm;
  try {
    int color = Communicator::kNoColor, key = 0;
    if (made != MPI_COMM_NULL) {  // identified by its first rank
      const int first = 0;
      MPI_Group here, there;
      PMPI_Comm_group(made, &there);
      PMPI_Comm_group(parent, &here);
      PMPI_Group_translate_ranks(there, 1, &first, here, &color);
      PMPI_Group_free(&there);
      PMPI_Group_free(&here);
      key = rank_in(made);
    }
    auto serves = std::make_unique<Communicator>(by->split(color, key));
    if (made == MPI_COMM_NULL) return returned;
    return PMPI_Comm_set_attr(made, library().key, serves.release());
  } catch (const std::exception& e) {
    return answer(parent, Status(Code::kTransport, e.what()));
  }
}

void keep_moving() {
  static const bool moves = [] {
    Internals::start_progress_thread(*library().world);
    return true;
  }();
  (void)moves;
}

int answer(MPI_Comm comm, const Status& status) {
  if (status.ok()) return MPI_SUCCESS;
  if (status.code() == Code::kPeerFailed && ends_the_job(comm))
    std::this_thread::sleep_for(kLauncherEndsJob);
  std::string text = "weft: " + status.to_string();
  text.resize(std::min<std::size_t>(text.size(), MPI_MAX_ERROR_STRING - 1));
  const int error = library().error;
  PMPI_Add_error_string(error, text.c_str());
  PMPI_Comm_call_errhandler(comm, error);
  return error;
}

// Prints the counts of all ranks together, on rank 0. All ranks call it.
void print_counts() {
  std::string lines;
  for (const Count* count : counts()) {
    std::array<std::uint64_t, kWays> mine{}, all{};
    for (std::size_t w = 0; w < kWays; ++w) mine[w] = count->of_[w];
    PMPI_Reduce(mine.data(), all.data(), static_cast<int>(kWays), MPI_UINT64_T, MPI_SUM, 0,
                MPI_COMM_WORLD);
    std::uint64_t passed = 0;
    std::string why;
    for (std::size_t w = 1; w < kWays; ++w) {
      passed += all[w];
      if (all[w]) why += fmt::format("{}{} {}", why.empty() ? "" : ", ", kWayNames[w], all[w]);
    }
    if (all[0] + passed != 0)
      lines += fmt::format("{:<28}{:>12}{:>12}  {}\n", count->function_, all[0], passed, why);
  }
  if (rank_in(MPI_COMM_WORLD) != 0) return;
  std::fputs(fmt::format("weft: collectives of all ranks\n{:<28}{:>12}{:>12}  {}\n{}", "function",
                         "by weft", "by MPI", "why", lines)
                 .c_str(),
             stderr);
}

}  // namespace weft::mpi
