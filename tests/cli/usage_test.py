"""Help, versions, exit codes and the one line that says what is wrong."""

import json
import shutil
import subprocess
import unittest

import support
from support import DATA, DEMO, PROJECT, CommandLineTest

COMMANDS = ["check", "plan", "pack", "run", "verify", "compare", "show", "export", "merge", "bench"]


class HelpTest(CommandLineTest):
    def test_everything_has_help_and_a_version_without_mpi(self):
        bare = {"PATH": "/nonexistent"}  # no mpirun, no home
        for command in [[]] + [[c] for c in COMMANDS]:
            done = self.diffuse(*command, "--help", env=bare)
            self.assertIn("Usage: diffuse", done.out)
            self.assertIn("Exit codes: 0 done", done.out)
            self.assertEqual(done.err, "")
            version = self.diffuse(*command, "--version", env=bare)
            self.assertRegex(version.out, r"^diffuse \d+\.\d+\.\d+\n$")
            self.assertEqual(version.err, "")

    def test_help_names_every_command(self):
        text = self.diffuse("--help").out
        for command in COMMANDS:
            self.assertRegex(text, rf"\n  {command} +\S")


class UsageTest(CommandLineTest):
    def test_a_wrong_command_line_is_one_line_and_exit_code_2(self):
        for arguments, fragment in [
            ([], "A subcommand is required"),
            (["rnu"], "rnu"),
            (["check"], "model is required"),
            (["check", DEMO, "extra"], "extra"),
            (["check", DEMO, "--jsno"], "--jsno"),
            (["plan", DEMO], "--ranks is required"),
            (["plan", DEMO, "--ranks", "0"], "--ranks"),
            (["plan", DEMO, "--ranks", "two"], "--ranks"),
            (["run"], "job is required"),
            (["run", "job.h5"], "--output is required"),
            (["run", "job.h5", "-o", "o.h5", "--threads", "0"], "--threads"),
            (["run", "job.h5", "-o", "o.h5", "--compute", "f64"], "--compute"),
            (["run", "job.h5", "-o", "o.h5", "--load", "lazy"], "--load"),
            (["run", "job.h5", "-o", "o.h5", "--timeout", "0"], "--timeout"),
            (["run", "job.h5", "-o", "o.h5", "--max-time", "soon"], "--max-time"),
            (["compare", "one.h5"], "split is required"),
            (["merge", "out.h5"], "parts is required"),
            (["bench", DEMO, "--repeat", "0"], "--repeat"),
        ]:
            with self.subTest(arguments=arguments):
                done = self.fails(2, fragment, *arguments)
                self.assertIn("--help", done.problems[0])
                self.assertEqual(done.out, "")

    def test_values_that_only_the_command_can_judge(self):
        self.pack("job.h5", ["Once"], max_new_tokens=1)
        for flags, fragment in [
            (["--kv-memory", "5X"], ["--kv-memory", "'5X'"]),
            (["--kv-memory", "-1"], ["--kv-memory", "'-1'"]),
            (["--kv-memory", "99999999999T"], ["--kv-memory", "'99999999999T'"]),
            (["--simd", "mmx"], "--simd mmx"),
            (["--slices", "0-9"], "--slices '0-9'"),
            (["--max-time", "-1"], "--max-time"),
            (["--max-time", "nan"], "'nan'"),
            (["--timeout", "nan"], "'nan'"),
            (["--timeout", "1e10"], "'1e10'"),
            (["--max-error", "nan"], "'nan'"),
        ]:
            with self.subTest(flags=flags):
                self.fails(2, fragment, "run", "job.h5", "-o", "o.h5", *flags)
        self.fails(2, "--ranks '2,x'", "verify", "job.h5", "-o", "report", "--ranks", "2,x")

    def test_flags_that_would_change_nothing(self):
        pictures, text, speech = PROJECT / "demo" / "wan", DEMO, DATA / "golden" / "speech"
        self.pack("text.h5", ["Once"], max_new_tokens=1)
        self.pack("video.h5", ["a red circle"], model=pictures)
        run, video = ["run", "text.h5", "-o", "o.h5"], ["run", "video.h5", "-o", "o.h5"]
        verify, verify_video = ["verify", "text.h5", "-o", "r", "--ranks", 1], ["verify", "video.h5", "-o", "r", "--ranks", 1]
        for command, flags, fragment in [
            (run, ["--patches", 2], "token by token"),
            (run, ["--encoders", "all"], "no encoder"),
            (run, ["--extrapolate", "off"], "token by token"),
            (run, ["--whole-steps", "3,0"], "token by token"),
            (video, ["--chunk", 16], "makes pictures"),
            (video, ["--group", 2], "makes pictures"),
            (video, ["--groups", 2], "makes pictures"),
            (video, ["--encoders", "all"], "one rank"),
            (video, ["--extrapolate", "linear"], "say --patches 2 or more"),
            (video, ["--extrapolate", "balanced", "--patches", 1], "say --patches 2 or more"),
            (verify, ["--patches", "2,4"], "token by token"),
            (verify_video, ["--group", 2], "makes pictures"),
            (verify_video, ["--patches", "4294967298"], "at most 4096"),
            (["plan", text, "--ranks", 2], ["--encoders", "all"], "no encoder"),
            (["plan", pictures, "--ranks", 2], ["--encoders", "all"], "one rank"),
            (verify_video, ["--extrapolate", "off"], "say --patches 2 or more"),
            (verify_video, ["--whole-steps", "3,0", "--patches", "1"], "say --patches"),
            (["bench", pictures], ["--prompt", 5], "makes pictures"),
            (["bench", pictures], ["--new-tokens", 5], "makes pictures"),
            (["bench", pictures], ["--prefill", 5], "makes pictures"),
            (["bench", pictures], ["--chunk", 5], "makes pictures"),
            (["bench", text], ["--height", 32], "token by token"),
            (["bench", text], ["--patches", 2], "token by token"),
            (["bench", speech], ["--prompt", 5], "windows of sound"),
            (["bench", speech], ["--prefill", 5], "windows of sound"),
            (["plan", text, "--ranks", 2], ["--num-frames", 9], "token by token"),
            (["plan", text, "--ranks", 2], ["--requests", 9], "say --simulate"),
            (["plan", pictures, "--ranks", 2, "--simulate"], ["--prompt", 9], "makes pictures"),
            (["plan", pictures, "--ranks", 2, "--simulate"], ["--new-tokens", 9], "makes pictures"),
        ]:
            with self.subTest(command=command[0], flags=flags):
                self.fails(2, [flags[0], fragment], *command, *flags)
        self.fails(2, ["--group", "makes pictures"], *video, "--group", 2, ranks=3)
        # What says nothing: one patch is the whole, for any model, and one rank that encodes is there always.
        self.diffuse(*run, "--patches", 1, "--encoders", "one")

    def test_a_job_without_a_model(self):
        self.write("job.jsonl", '"Once"\n')
        self.diffuse("pack", "job.jsonl", "-o", "job.h5")
        self.fails(2, "--model", "run", "job.h5", "-o", "o.h5")

    def test_srun_without_mpi_would_run_the_job_in_every_task(self):
        env = support.environment() | {"SLURM_STEP_NUM_TASKS": "4"}
        self.fails(2, "--mpi=pmix", "run", "job.h5", "-o", "o.h5", env=env)


class InputTest(CommandLineTest):
    def test_a_missing_input_is_named(self):
        self.pack("job.h5", ["Once"], max_new_tokens=1)
        for arguments in [
            ["check", "nowhere"],
            ["plan", "nowhere", "--ranks", "2"],
            ["bench", "nowhere"],
            ["pack", "nowhere", "-o", "x.h5"],
            ["run", "nowhere", "-o", "x.h5"],
            ["run", "job.h5", "-o", "x.h5", "--model", "nowhere"],
            ["verify", "nowhere", "-o", "report"],
            ["compare", "nowhere", "nowhere"],
            ["show", "nowhere"],
            ["export", "nowhere", "folder"],
            ["merge", "x.h5", "nowhere"],
        ]:
            with self.subTest(arguments=arguments):
                self.fails(66, "nowhere", *arguments)

    def test_a_component_that_is_missing(self):
        shutil.copytree(PROJECT / "demo" / "wan", self.folder / "wan")
        shutil.rmtree(self.folder / "wan" / "vae")
        self.pack("video.h5", ["a red circle"], model="wan")
        self.fails(66, "component vae/", "plan", "wan", "--ranks", 2)
        self.fails(66, "component vae/", "run", "video.h5", "-o", "o.h5")
        # `check` is asked whether it can be run, and answers.
        done = self.diffuse("check", "wan", "--json", code=69)
        answer = json.loads(done.out)
        self.assertEqual((answer["verdict"], answer["can_run"]), ("runs", False))
        self.assertIn("component vae/", answer["missing"])

    def test_files_that_are_no_jobs_and_no_results(self):
        self.pack("job.h5", ["Once"], max_new_tokens=1)
        self.write("text.h5", "not HDF5 at all")
        self.write("empty.h5", "")
        crash = DATA / "job" / "crashes-hdf5-1.10.h5"
        for name in ["text.h5", "empty.h5", crash]:
            self.fails(65, str(name), "run", name, "-o", "o.h5")
            self.fails(65, str(name), "show", name)
        self.fails(65, "job.h5", "show", "job.h5")
        self.diffuse("run", "job.h5", "-o", "o.h5")
        self.fails(65, "o.h5", "run", "o.h5", "-o", "p.h5")

    def test_an_answer_that_cannot_be_printed_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([support.DIFFUSE, "check", DEMO], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 74, done)
        self.assertEqual(done.stderr.count("\n"), 1, done)


class RanksTest(CommandLineTest):
    def test_what_all_ranks_meet_is_said_once(self):
        self.pack("job.h5", ["Once"], max_new_tokens=1)
        for code, fragment, arguments in [
            (2, "--output is required", ["run", "job.h5"]),
            (2, "--slices '0-9'", ["run", "job.h5", "-o", "o.h5", "--slices", "0-9"]),
            (66, "nowhere", ["run", "nowhere", "-o", "o.h5"]),
            (66, "gone", ["run", "job.h5", "-o", "o.h5", "--model", "gone"]),
            (2, "--ranks 4", ["verify", "job.h5", "-o", "report", "--ranks", "4"]),
        ]:
            with self.subTest(arguments=arguments):
                self.fails(code, fragment, *arguments, ranks=3)


if __name__ == "__main__":
    support.main()
