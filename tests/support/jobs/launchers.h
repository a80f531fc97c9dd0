// Other launchers: the capability that is missing to use a launcher, and the command that starts a
// job with it.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "support/process/shell.h"

namespace weft::testing {

// "missing capability: ...", or empty if none is missing.
inline std::string missing_for_mpirun() {
#if !WEFT_HAVE_PMIX
  return "missing capability: PMIx (this build has none)";
#endif
  const Output version = run("mpirun --version");
  if (version.exit_code != 0 || version.text.find("Open MPI") == std::string::npos)
    return "missing capability: mpirun (Open MPI)";
  return {};
}
inline std::string by_mpirun(int ranks, const std::string& command) {
  return fmt::format("mpirun --allow-run-as-root --oversubscribe -n {} {}", ranks, command);
}

// Starts a Slurm cluster of this one machine.
inline constexpr const char* kSlurm = WEFT_SOURCE_DIR "/tests/lab/slurm";
inline std::string missing_for_srun() {
#if !WEFT_HAVE_PMIX
  return "missing capability: PMIx (this build has none)";
#endif
  const Output plugins = run(fmt::format("{} srun --mpi=list", kSlurm));
  if (plugins.exit_code == 77) return plugins.text.substr(plugins.text.find("missing capability"));
  if (plugins.text.find("pmix") == std::string::npos)
    return "missing capability: Slurm's PMIx plugin";
  return {};
}
inline std::string by_srun(int ranks, const std::string& command) {
  return fmt::format("{} srun -n {} --overcommit --mpi=pmix {}", kSlurm, ranks, command);
}

inline std::string missing_for_torchrun() {
  return run("torchrun --help").exit_code == 0 ? "" : "missing capability: torchrun";
}
// -r and -t: without them, torchrun of Debian 12 (torch 1.13 with Python 3.11) fails. --: newer
// ones would parse weft's --log as an abbreviation of their own options.
inline std::string by_torchrun(int ranks, const std::string& logs, const std::string& command) {
  return fmt::format(
      "torchrun -r 1 -t 1 --log_dir {} --master_port {} --nproc_per_node {} --no_python -- {}",
      logs, 10000 + getpid() % 10000, ranks, command);
}

// Sets the variables that torchrun sets for its workers, without torchrun.
inline std::string in_torchrun_environment(int ranks, const std::string& command) {
  std::string all = fmt::format(
      "export WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} TORCHELASTIC_RUN_ID=weft_test; ",
      ranks, 20000 + getpid() % 10000);
  std::string wait;
  for (int r = 1; r < ranks; ++r) {
    all += fmt::format("RANK={0} LOCAL_RANK={0} {1} & p{0}=$!; ", r, command);
    wait += fmt::format(" && wait $p{}", r);
  }
  return all + fmt::format("RANK=0 LOCAL_RANK=0 {}{}", command, wait);
}

}  // namespace weft::testing
