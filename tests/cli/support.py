"""What the tests of the command line share. Each test file is run as: python3 FILE DIFFUSE [unittest's arguments]."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
DATA = PROJECT / "tests" / "data"
DEMO = PROJECT / "demo" / "lm"
MPIEXEC = os.environ.get("DIFFUSE_MPIEXEC", "mpirun")
PATIENCE = 120  # seconds that a command may take on an overloaded machine before it counts as hung
DIFFUSE = ""  # set by main()


def environment():
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "PMI_", "SLURM_"))}
    kept.update(
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        OMPI_MCA_rmaps_base_oversubscribe="1",
        OMPI_MCA_hwloc_base_binding_policy="none",
        # Ranks of one host: looking for other networks is a fifth of a small run's time.
        OMPI_MCA_pml="ob1",
        OMPI_MCA_btl="self,vader,tcp",
    )
    return kept


def stat_of(pid):
    """Fields of /proc/PID/stat from the state on; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def commit():
    """A number that is another one at each commit."""
    done = subprocess.run(["git", "-C", PROJECT, "rev-parse", "HEAD"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return int(done.stdout[:12], 16) if done.returncode == 0 else 0


def alive(pid):
    return stat_of(pid)[:1] not in ([], ["Z"])


class Done:
    """A command that has ended."""

    def __init__(self, command, code, out, err):
        self.command, self.code, self.out, self.err = command, code, out, err

    @property
    def problems(self):
        """The lines by which the program says why it ended."""
        return [line for line in self.err.splitlines() if line.startswith("diffuse")]

    def __str__(self):
        return f"{' '.join(map(str, self.command))}\nexit code {self.code}\n{self.out}\n{self.err}"


class Running:
    """A command under way, in a session of its own: nothing of it outlives the test."""

    def __init__(self, command, cwd, env=None):
        self.command = [str(part) for part in command]
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            self.command, cwd=cwd, env=env or environment(), stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err,
            start_new_session=True)

    def wait(self, patience=PATIENCE):
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            said = self.text(self.err)
            self.kill()
            raise AssertionError(f"{' '.join(self.command)}: not done after {patience} s; it said:\n{said}") from None
        return Done(self.command, self.process.returncode, self.text(self.out), self.text(self.err))

    @staticmethod
    def text(file):
        file.seek(0)
        return file.read().decode(errors="replace")

    def pids(self):
        """Everything in the session of the command that still lives."""
        pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
        return [p for p in pids if stat_of(p)[3:4] == [str(self.process.pid)] and alive(p)]

    def ranks(self):
        """Process ids of the ranks, in the order in which mpirun started them."""
        return sorted(p for p in self.pids() if self.is_rank(p))

    @staticmethod
    def is_rank(pid):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return words[0].decode() == DIFFUSE and b"__read-h5" not in words

    def kill(self):
        """kill -9 of everything at once, as when a machine loses power."""
        for pid in self.pids():
            send(pid, signal.SIGKILL)
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.kill()
        self.out.close()
        self.err.close()


class CommandLineTest(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="diffuse-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    # Running commands. Relative paths are relative to the test's own folder.

    def start(self, *arguments, ranks=0, env=None):
        command = [DIFFUSE, *arguments]
        if ranks:
            command = [MPIEXEC, "-n", ranks, "--oversubscribe", *command]
        running = Running(command, self.folder, env)
        self.addCleanup(running.close)
        return running

    def run_any(self, *arguments, ranks=0, env=None, patience=PATIENCE):
        return self.start(*arguments, ranks=ranks, env=env).wait(patience)

    def diffuse(self, *arguments, code=0, ranks=0, env=None):
        """Runs a command and holds it to its exit code."""
        done = self.run_any(*arguments, ranks=ranks, env=env)
        self.assertEqual(done.code, code, done)
        return done

    def json(self, *arguments, code=0):
        return json.loads(self.diffuse(*arguments, code=code).out)

    def assert_fails(self, done, code, *fragments):
        """One line on stderr says what is wrong, once for all ranks, and holds each of the fragments."""
        self.assertEqual(done.code, code, done)
        self.assertEqual(len(done.problems), 1, f"one line a problem:\n{done}")
        for fragment in fragments:
            self.assertIn(fragment, done.problems[0], done)
        if str(done.command[0]) == DIFFUSE:
            others = [line for line in done.err.splitlines() if line not in done.problems]
            self.assertEqual([line for line in others if not line.startswith(("loading", "device: "))], [], done)

    def fails(self, code, fragments, *arguments, ranks=0, env=None):
        if isinstance(fragments, str):
            fragments = [fragments]
        done = self.run_any(*arguments, ranks=ranks, env=env)
        self.assert_fails(done, code, *fragments)
        return done

    def assert_identical(self, whole, split):
        done = self.diffuse("compare", whole, split)
        self.assertTrue(done.out.startswith("identical"), done)
        return done.out

    # Making files.

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def pack(self, name, requests, model=DEMO, **generate):
        self.write(name + ".json", {"model": str(model), "generate": generate, "requests": requests})
        self.diffuse("pack", name + ".json", "-o", name)
        return name

    def shown(self, result):
        """The requests of a result by id."""
        return {r["id"]: r for r in self.json("show", result, "--json")["requests"]}

    def copy_model(self, source=DEMO, name="model"):
        shutil.copytree(source, self.folder / name)
        for path in (self.folder / name).iterdir():
            path.chmod(0o644)
        return name


def stories(count, shortest=4, longest=40):
    """Prompts whose answers have different lengths, so that requests finish one after another."""
    starts = ["Once upon a time", "The robot walked", "In the village", "What is 7 plus 9?", "A dragon and a key"]
    return [{"id": f"r{i}", "prompt": f"{starts[i % len(starts)]} {i}",
             "generate": {"max_new_tokens": shortest + (longest - shortest) * i // max(1, count - 1)}}
            for i in range(count)]


def safetensors(tensors, metadata=None):
    """Bytes of a safetensors file of {name: (dtype, shape, bytes)}."""
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def read_safetensors(path):
    raw = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], raw[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for name, t in header.items()}


def journalled(path, wanted=3):
    """How many records of a kind a journal holds, read as docs/job-files.md describes it: finished requests, or finished windows (4)."""
    try:
        raw = Path(path).read_bytes()
    except OSError:
        return 0
    at, count = raw.find(b"\n") + 1, 0
    while at and at + 32 <= len(raw):
        magic, kind, length = struct.unpack("<4sIQ", raw[at:at + 16])
        if magic != b"DRJ1" or at + 32 + length > len(raw):
            break
        count += kind == wanted
        at += 32 + length
    return count


def wait_until(happened, what, patience=PATIENCE):
    end = time.monotonic() + patience
    while not happened():
        if time.monotonic() > end:
            raise AssertionError(f"waited {patience} s in vain until {what}")
        time.sleep(0.005)


def main():
    global DIFFUSE
    DIFFUSE = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(module="__main__", verbosity=2)
