"""Calls of CUDA, cuBLASLt and NCCL that fail: python3 cuda_faults_test.py DIFFUSE_STANDIN [unittest's arguments].

A small run is counted first: which functions of the three libraries are called, and how often. Then, for each function, its first
call fails in a run of its own, and one in the middle of the run in another. Each of these runs must end soon, with an exit code
that is not 0 and one line that says what was being done. That holds for what frees memory and handles at the end, too.

On one rank, without a launcher, this is done for every function of CUDA and cuBLASLt. Over two ranks, where a run costs a launch, for
every function of NCCL on one of the ranks and some others; DIFFUSE_ALL_FAULTS=1 does all of them on both. Every single call of the
backend fails in cuda_backend_test, and every single one of the transport in nccl_transport_test, within one process each."""

import os
import time

import support
from support import DATA, CommandLineTest, environment, wait_until

# Called while something is waited for: how often depends on the moment.
POLLED = ("cudaEventQuery", "ncclCommGetAsyncError", "ncclAsyncError")
RANKS = 2
# Of the functions that one rank calls too.
SAMPLE = ("cudaMalloc", "kernel", "cublasLtMatmul", "cudaFree", "cublasLtDestroy", "cudaStreamDestroy")


class CudaFaultTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.pack("job.h5", [{"id": "a", "tokens": [5, 9, 3]}, {"id": "b", "tokens": [7, 2]}],
                  model=DATA / "golden" / "mixtral-wide", max_new_tokens=3, ignore_eos=True)
        self.diffuse("run", "job.h5", "-o", "whole.h5", "--device", "cuda", "--trace")

    def run_job(self, ranks, **more):
        env = environment()
        env.update(DIFFUSE_STANDIN_DEVICES=str(RANKS), **more)
        running = self.start("run", "job.h5", "-o", "out.h5", "--device", "cuda", "--trace", "--no-resume", "--group", 1,
                             ranks=ranks, env=env)
        begin = time.monotonic()
        done = running.wait(60)
        self.assertLess(time.monotonic() - begin, 40, done)
        if ranks:
            wait_until(lambda: not running.pids(), "nothing is left running", 20)
        return done

    def counted(self, ranks):
        """(function, call, rank) of the calls that are to fail."""
        done = self.run_job(ranks, DIFFUSE_STANDIN_COUNTS=str(self.folder / "counts"))
        self.assertEqual(done.code, 0, done)
        self.assert_identical("whole.h5", "out.h5")
        cases = []
        for rank in range(max(1, ranks)):
            for line in (self.folder / (f"counts.{rank}" if ranks else "counts")).read_text().splitlines():
                function, count = line.split()
                later = 2 if function in POLLED else int(count) // 2 + 1
                cases += [(function, call, rank) for call in sorted({1, min(later, int(count))})]
        return sorted(cases)

    def assert_ends(self, ranks, function, call, rank):
        done = self.run_job(ranks, DIFFUSE_STANDIN_FAIL=f"{function}:{call}" + (f"@{rank}" if ranks else ""))
        self.assertNotEqual(done.code, 0, done)
        self.assertIn(done.code, (69, 70, 74), f"a code of the program's own, not of a crash\n{done}")
        self.assertEqual(len(done.problems), 1, f"one line says why\n{done}")
        if ranks:
            self.assertIn(f"[rank {rank}/{RANKS} ", done.problems[0], f"the rank that failed speaks\n{done}")

    def test_every_function_on_one_rank(self):
        cases = self.counted(0)
        functions = {function for function, _, _ in cases}
        for name in ("cudaMalloc", "cudaFree", "cudaFreeHost", "cudaLaunchKernel", "kernel", "cudaStreamDestroy", "cudaEventDestroy",
                     "cublasLtMatmul", "cublasLtDestroy", "cublasLtMatmulDescDestroy"):
            self.assertIn(name, functions, "the run that is counted makes such a call")
        print(f"{len(cases)} faults in {len(functions)} functions on one rank", flush=True)
        for case in cases:
            with self.subTest(case=case):
                self.assert_ends(0, *case)

    def test_two_ranks_end_together(self):
        cases = self.counted(RANKS)
        functions = sorted({function for function, _, _ in cases})
        linked = [name for name in functions if name.startswith("nccl")]
        for name in ("ncclGetUniqueId", "ncclCommInitRankConfig", "ncclSend", "ncclRecv", "ncclAsyncError", "ncclCommFinalize",
                     "ncclCommDestroy"):
            self.assertIn(name, linked, "the run that is counted makes such a call")
        chosen = cases
        if os.environ.get("DIFFUSE_ALL_FAULTS") != "1":
            # The later call of each, on its ranks in turn.
            chosen = []
            for name in linked + [name for name in SAMPLE if name in functions]:
                own = [case for case in cases if case[0] == name]
                chosen.append(own[-1] if len(chosen) % 2 == 0 else own[0])
        print(f"{len(chosen)} of {len(cases)} faults over two ranks", flush=True)
        for case in chosen:
            with self.subTest(case=case):
                self.assert_ends(RANKS, *case)


if __name__ == "__main__":
    support.main()
