"""Calls of CUDA, cuBLASLt and NCCL that fail: python3 cuda_faults_test.py DIFFUSE_STANDIN [unittest's arguments].

A small run is counted first: which functions of the three libraries are called, and how often, on each rank. Then calls fail, one in a
run of its own. Each of these runs must end soon on all ranks, with an exit code that is not 0 and one line that says what was being
done, from the rank whose call failed. That holds for what frees memory and handles at the end, too.

On one rank, without a launcher: the first call of every function of CUDA and cuBLASLt and one in the middle of the run. Over two ranks
each call of the run is a case; a run costs a launch, so the cases are cut into parts of about BUDGET, each with calls from all over the
run, and one part is walked: the one that the commit chooses, so that another commit walks another. DIFFUSE_FAULTS=3/17 walks the third
of 17 parts and DIFFUSE_FAULTS=all walks all of them (ctest -C faults -R cuda_faults). What every commit walks is the first call of each
of NCCL's functions on one rank or the other.

Within one process a rank, every single call of the backend fails in cuda_backend_test, and every single one of the transport in
nccl_transport_test."""

import os
import time

import support
from support import DATA, CommandLineTest, commit, environment, wait_until

# Called while something is waited for: how often depends on the moment.
POLLED = ("cudaEventQuery", "cudaGetLastError", "ncclCommGetAsyncError", "ncclAsyncError")
RANKS = 2
BUDGET = 24


def part_of(cases):
    """The cases to walk, and what they are for a person."""
    asked = os.environ.get("DIFFUSE_FAULTS", "")
    if asked == "all":
        return cases, "all"
    parts = -(-len(cases) // BUDGET)
    part = commit() % parts
    if asked:
        part, parts = (int(number) for number in asked.split("/"))
        part -= 1
    return cases[part::parts], f"part {part + 1}/{parts}"


class CudaFaultTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.pack("job.h5", [{"id": "a", "tokens": [5, 9, 3]}, {"id": "b", "tokens": [7, 2]}],
                  model=DATA / "golden" / "mixtral-wide", max_new_tokens=3, ignore_eos=True)
        # As small as a run over two ranks gets with a step of each kind: each of its calls is a case.
        self.pack("small.h5", [{"id": "a", "tokens": [5, 9]}], model=DATA / "golden" / "qwen2", max_new_tokens=2, ignore_eos=True)

    def run_job(self, job, ranks, **more):
        env = environment()
        env.update(DIFFUSE_STANDIN_DEVICES=str(RANKS), **more)
        running = self.start("run", job, "-o", "out.h5", "--device", "cuda", "--trace", "--no-resume", "--group", 1, ranks=ranks,
                             env=env)
        begin = time.monotonic()
        done = running.wait(60)
        self.assertLess(time.monotonic() - begin, 40, done)
        if ranks:
            wait_until(lambda: not running.pids(), "nothing is left running", 20)
        return done

    def counted(self, job, ranks):
        """{(function, rank): how often it is called}."""
        self.diffuse("run", job, "-o", "whole.h5", "--device", "cuda", "--trace", "--no-resume")
        done = self.run_job(job, ranks, DIFFUSE_STANDIN_COUNTS=str(self.folder / "counts"))
        self.assertEqual(done.code, 0, done)
        self.assert_identical("whole.h5", "out.h5")
        counts = {}
        for rank in range(max(1, ranks)):
            for line in (self.folder / (f"counts.{rank}" if ranks else "counts")).read_text().splitlines():
                function, count = line.split()
                counts[function, rank] = min(int(count), 2) if function in POLLED else int(count)
        return counts

    def assert_ends(self, job, ranks, function, call, rank):
        done = self.run_job(job, ranks, DIFFUSE_STANDIN_FAIL=f"{function}:{call}" + (f"@{rank}" if ranks else ""))
        self.assertNotEqual(done.code, 0, done)
        self.assertIn(done.code, (69, 70, 74), f"a code of the program's own, not of a crash\n{done}")
        self.assertEqual(len(done.problems), 1, f"one line says why\n{done}")
        if ranks:
            self.assertIn(f"[rank {rank}/{RANKS} ", done.problems[0], f"the rank that failed speaks\n{done}")

    def walk(self, job, ranks, cases):
        for case in cases:
            with self.subTest(case=case):
                self.assert_ends(job, ranks, *case)

    def test_every_function_on_one_rank(self):
        counts = self.counted("job.h5", 0)
        functions = {function for function, _ in counts}
        for name in ("cudaMalloc", "cudaFree", "cudaFreeHost", "cudaLaunchKernel", "kernel", "cudaStreamDestroy", "cudaEventDestroy",
                     "cublasLtMatmul", "cublasLtDestroy", "cublasLtMatmulDescDestroy"):
            self.assertIn(name, functions, "the run that is counted makes such a call")
        cases = sorted({(function, call, rank) for (function, rank), count in counts.items() for call in (1, min(count // 2 + 1, count))})
        print(f"{len(cases)} faults in {len(functions)} functions on one rank", flush=True)
        self.walk("job.h5", 0, cases)

    def test_two_ranks_end_together(self):
        counts = self.counted("small.h5", RANKS)
        linked = sorted({function for function, _ in counts if function.startswith("nccl")})
        for name in ("ncclGetUniqueId", "ncclCommInitRankConfig", "ncclSend", "ncclRecv", "ncclAsyncError", "ncclCommFinalize",
                     "ncclCommDestroy"):
            self.assertIn(name, linked, "the run that is counted makes such a call")
        cases = [(function, call, rank) for (function, rank), count in sorted(counts.items()) for call in range(1, count + 1)]
        chosen, part = part_of(cases)
        for at, name in enumerate(linked):
            ranks = [rank for rank in range(RANKS) if (name, rank) in counts]
            first = (name, 1, ranks[at % len(ranks)])
            if first not in chosen:
                chosen = [first] + chosen
        print(f"{len(chosen)} of {len(cases)} faults over two ranks, {part} (DIFFUSE_FAULTS)", flush=True)
        self.walk("small.h5", RANKS, chosen)


if __name__ == "__main__":
    support.main()
