"""Who takes part in the comparison: how each is installed, built and started, and how it tells its
time. Knows nothing of tables and targets."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
NETLAB = TREE / "tests" / "lab" / "netlab"
BUILD = TREE / "build" / "peers"


@dataclass(frozen=True)
class Layout:
    """A lab: hosts x ranks per host x rails @ Mbit/s of a port, as in 4x2x2@400."""

    hosts: int
    ppn: int
    rails: int
    mbit: int

    @staticmethod
    def parse(text):
        try:
            shape, rate = text.split("@")
            return Layout(*map(int, shape.split("x")), int(rate))
        except (ValueError, TypeError):
            raise SystemExit(f"compare: layout {text}: write it like 4x2x2@400") from None

    def __str__(self):
        return f"{self.hosts}x{self.ppn}x{self.rails}@{self.mbit}"

    def bound_us(self, collective, size):
        """The least time: what a host must send, over all rails, at the payload share of a frame
        (1448 of 1514 bytes)."""
        share = (self.hosts - 1) / self.hosts if collective != "broadcast" else 1
        factor = 2 * share if collective == "all_reduce" else share
        return factor * size * 8 / (self.rails * self.mbit * 1448 / 1514)


@dataclass(frozen=True)
class Case:
    """One thing to measure. `layout` is None in shared memory."""

    scenario: str
    collective: str
    ranks: int
    bytes: int
    in_place: bool = False
    back_to_back: bool = False
    layout: Layout = None

    @property
    def place(self):
        return str(self.layout or self.ranks)


class Failed(Exception):
    """A run that gave no time. The text says why."""


def execute(argv, environment, timeout_s):
    with subprocess.Popen(argv, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as job:
        try:
            output, errors = job.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end within {timeout_s} s") from None
        finally:
            end_all(job)
    if job.returncode != 0:
        last = (errors.strip() or output.strip()).splitlines()[-1:]
        raise Failed(f"exit code {job.returncode}: {' '.join(last)}")
    return output


def end_all(job):
    """A launcher takes its ranks down when it is asked to end; what is left would take the
    processor from whoever is measured next."""
    for ask in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(job.pid, ask)
        except ProcessLookupError:
            return
        try:
            job.wait(5)
        except subprocess.TimeoutExpired:
            pass


class Peer:
    """A library with a driver. Subclasses say how ranks are started."""

    packages = ()
    needs = ()  # programs and headers that must be there
    driver = None  # name of the built driver

    def __init__(self, name, setup):
        self.name, self.setup = name, setup

    def missing(self):
        return [n for n in self.needs if not (Path(n).exists() or shutil.which(n))]

    def build(self):
        target = self.setup.build / self.driver
        sources = [HERE / "driver.h", HERE / self.source]
        if target.exists() and target.stat().st_mtime > max(s.stat().st_mtime for s in sources):
            return
        self.setup.build.mkdir(parents=True, exist_ok=True)
        subprocess.run([self.compiler, "-O2", "-std=c++17", *self.flags, str(sources[1]), "-o",
                        str(target), *self.libraries], check=True)

    def words(self, case):
        """The command line of the driver."""
        words = [str(self.setup.build / self.driver), case.collective, "--budget",
                 str(self.setup.budget_s)]
        words += ["--in-place"] * case.in_place + ["--back-to-back"] * case.back_to_back
        return words + [f"{case.bytes}:{self.setup.iterations(case)}"]

    def supports(self, case):
        return True

    def median_us(self, case):
        argv, environment = self.command(case)
        output = execute(argv, environment, self.setup.timeout_s)
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if not lines:
            raise Failed("the driver printed no result")
        row = json.loads(lines[-1])
        if row["wrong"]:
            raise Failed(f"{row['wrong']} wrong elements")
        return {"time_us": row["time_us_p50"]}


class OpenMpi(Peer):
    packages = ("openmpi-bin", "libopenmpi-dev", "g++")
    needs = ("mpirun.openmpi", "mpicxx.openmpi")
    driver, source, compiler = "mpi_openmpi", "mpi_driver.cc", "mpicxx.openmpi"
    flags, libraries = ("-DOMPI_SKIP_MPICXX",), ()

    def __init__(self, name, setup, parameters=None, ucx=False, only=None):
        super().__init__(name, setup)
        self.parameters, self.ucx, self.only = dict(parameters or {}), ucx, only
        if ucx:
            self.parameters.update(pml="ucx", mpi_yield_when_idle="1",
                                   opal_common_ucx_tls="any", opal_common_ucx_devices="any")

    def missing(self):
        missing = super().missing()
        if not missing and self.ucx:
            listed = subprocess.run(["ompi_info"], capture_output=True, text=True, check=False)
            missing = [] if "MCA pml: ucx" in listed.stdout else ["Open MPI's pml ucx"]
        return missing

    def supports(self, case):
        return self.only is None or case.collective == self.only

    def command(self, case):
        # Its own default binds ranks to cores while there are enough; it must be told so beside
        # --oversubscribe. More ranks than cores, or several daemons on one machine: no binding.
        fits = case.layout is None and case.ranks <= len(os.sched_getaffinity(0))
        argv = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe",
                "--bind-to", "core" if fits else "none", "-n", str(case.ranks)]
        parameters, words, environment = dict(self.parameters), self.words(case), {}
        if case.layout is None:
            argv += ["-x", "UCX_TLS=sm,self"] * self.ucx
        else:
            lab = case.layout
            argv = [str(NETLAB), "exec", "h1", *argv, "--host",
                    ",".join(f"h{h}:{lab.ppn}" for h in range(1, lab.hosts + 1))]
            # Its daemon in each host is started through an agent that enters the host.
            parameters.update(plm_rsh_agent=f"{NETLAB} rsh", oob_tcp_if_include="rail0",
                              mpi_yield_when_idle="1")
            environment = {"WEFT_LAB": self.setup.lab}
            if self.ucx:
                argv += ["-x", "UCX_TLS=tcp,sm,self"]
                pin = f"UCX_NET_DEVICES=rail$((OMPI_COMM_WORLD_LOCAL_RANK % {lab.rails}))"
                words = ["bash", "-c", f'{pin} exec "$@"', "bash", *words]
            else:
                parameters.update(pml="ob1", btl="self,vader,tcp", btl_tcp_if_include=",".join(
                    f"rail{r}" for r in range(lab.rails)))
        for name, value in parameters.items():
            argv += ["--mca", name, value]
        return argv + words, environment


class WeftMpi(OpenMpi):
    """The program of Open MPI, with libweft_mpi in front."""

    def __init__(self, name, setup):
        super().__init__(name, setup)
        beside = Path(shutil.which(setup.weft or "") or "weft").resolve().parent
        places = [beside / "mpi" / "openmpi", beside.parent / "lib" / "weft" / "openmpi"]
        files = [place / "libweft_mpi.so" for place in places]
        self.library = next((f for f in files if f.exists()), files[0])

    def missing(self):
        return super().missing() + [str(self.library)] * (not self.library.exists())

    def command(self, case):
        argv, environment = super().command(case)
        return [argv[0], "-x", f"LD_PRELOAD={self.library}", *argv[1:]], environment


class Mpich(Peer):
    packages = ("mpich", "libmpich-dev", "g++")
    needs = ("mpiexec.mpich", "mpicxx.mpich")
    driver, source, compiler = "mpi_mpich", "mpi_driver.cc", "mpicxx.mpich"
    flags, libraries = ("-DMPICH_SKIP_MPICXX",), ()

    def supports(self, case):
        # It spins and never gives way: more ranks than cores take milliseconds at every size.
        return case.layout is None and case.ranks <= (os.cpu_count() or 1)

    def command(self, case):
        return ["mpiexec.mpich", "-n", str(case.ranks), *self.words(case)], {}


class Gloo(Peer):
    """Over TCP: on loopback, or in the lab with each local rank on a rail of its own."""

    packages = ("libgloo-dev", "g++")
    needs = ("/usr/include/gloo/context.h", "g++")
    driver, source, compiler = "gloo", "gloo_driver.cc", "g++"
    flags, libraries = (), ("-lgloo", "-pthread")

    def __init__(self, name, setup, algorithm=None):
        super().__init__(name, setup)
        self.algorithm = algorithm

    def supports(self, case):
        return (case.collective == "all_reduce") == (self.algorithm is not None)

    def command(self, case):
        words = self.words(case) + (["--algo", self.algorithm] if self.algorithm else [])
        if case.layout is None:
            return [*words, "-n", str(case.ranks)], {}
        store = tempfile.mkdtemp(dir=self.setup.folder)
        return [*self.setup.in_lab(case), *words, "--store", store], {}


class Weft:
    """`weft perf` with buffers of one kind."""

    packages = needs = ()

    def __init__(self, name, setup, buffers):
        self.name, self.setup, self.buffers = name, setup, buffers

    def missing(self):
        return []

    def build(self):
        pass

    def supports(self, case):
        return True

    def median_us(self, case):
        report = Path(self.setup.folder) / "weft.json"
        report.unlink(missing_ok=True)
        iterations = self.setup.iterations(case)
        words = ["perf", case.collective, "-b", str(case.bytes), "-e", str(case.bytes), "-n",
                 str(iterations), "-w", str(max(2, min(iterations // 10, 100))), "--buffers",
                 self.buffers, "--json", str(report)]
        words += ["--in-place" if case.in_place else "--out-of-place"]
        words += ["--back-to-back"] * case.back_to_back
        if case.layout is None:
            argv = [self.setup.weft, *words, "-N", str(case.ranks)]
        else:
            argv = [*self.setup.in_lab(case), "weft", *words]
        execute(argv, {}, self.setup.timeout_s)
        try:
            row = json.loads(report.read_text())["rows"][-1]
        except (OSError, ValueError, KeyError, IndexError) as e:
            raise Failed(f"no rows in its report: {e}") from None
        if row.get("wrong"):
            raise Failed(f"{row['wrong']} wrong elements")
        result = {"time_us": row["time_us_p50"], "algorithm": row.get("algorithm")}
        if row.get("of_bound") is not None:
            result["of_bound"] = row["of_bound"]
        return result


def contenders(setup, scenario):
    """(peers, weft's own) of a scenario."""
    rules = {"coll_tuned_use_dynamic_rules": "1"}
    ring = {**rules, "coll_tuned_allreduce_algorithm": "4"}
    segmented = {**rules, "coll_tuned_allreduce_algorithm": "5",
                 "coll_tuned_allreduce_algorithm_segmentsize": "262144"}
    peers = [OpenMpi("openmpi", setup), OpenMpi("openmpi_ucx", setup, ucx=True)]
    if scenario == "shm":
        peers += [
            OpenMpi("openmpi_ring256k", setup, segmented, only="all_reduce"),
            Mpich("mpich", setup),
            Gloo("gloo_ring_chunked", setup, "ring_chunked"),
            Gloo("gloo_halving_doubling", setup, "halving_doubling"),
            Gloo("gloo", setup),
        ]
        return peers, [Weft("weft_malloc", setup, "malloc"), Weft("weft_weft", setup, "weft"),
                       WeftMpi("weft_mpi", setup)]
    peers += [
        OpenMpi("openmpi_ring", setup, ring, only="all_reduce"),
        Gloo("gloo_ring", setup, "ring"),
        Gloo("gloo_bcube", setup, "bcube"),
    ]
    return peers, [Weft("weft_malloc", setup, "malloc")]
