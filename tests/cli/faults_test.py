"""Ranks that die or stop, disks that are full, folders that cannot be written: a clear end, and nothing lost."""

import os
import signal
import subprocess
import time
import unittest

import support
from support import CommandLineTest, alive, journalled, send, stories, wait_until

OUT = "out.h5"


class RankTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.pack("job.h5", stories(40, 4, 400), ignore_eos=True)
        self.command = ["run", "job.h5", "-o", OUT, "--trace"]

    def started(self, *flags):
        journal = self.folder / (OUT + ".journal")
        before = journalled(journal)
        running = self.start(*self.command, *flags, ranks=3)
        wait_until(lambda: journalled(journal) > before, "a request is finished")
        ranks = running.ranks()
        self.assertEqual(len(ranks), 3, running.text(running.err))
        return running, ranks

    def goes_on(self):
        done = self.diffuse(*self.command, ranks=2)
        self.assertRegex(done.err, r"\d+ of 40 requests were finished before")
        self.diffuse("run", "job.h5", "-o", "whole.h5", "--trace")
        self.assert_identical("whole.h5", OUT)

    def test_one_rank_is_killed(self):
        for victim in (0, 2):
            running, ranks = self.started()
            at = time.monotonic()
            send(ranks[victim], signal.SIGKILL)
            done = running.wait(60)
            self.assertNotEqual(done.code, 0, done)
            self.assertLess(time.monotonic() - at, 30)
            wait_until(lambda: not any(alive(p) for p in ranks), "the other ranks have ended too", 30)
        self.goes_on()

    def test_one_rank_is_stopped(self):
        running, ranks = self.started("--timeout", 3)
        os.kill(ranks[1], signal.SIGSTOP)
        done = running.wait(60)
        self.assertEqual(done.code, 74, done)
        self.assertEqual(len(done.problems), 1, done)
        self.assertRegex(done.problems[0], r"rank 1\b", done)
        self.assertRegex(done.problems[0], r"request", done)
        self.assertRegex(done.problems[0], r"layer", done)
        wait_until(lambda: not any(alive(p) for p in ranks), "all ranks have ended", 30)
        self.goes_on()

    def test_one_rank_is_stopped_while_they_start(self):
        in_time = 0
        for moment in (0, 0.5, 0.8):
            with self.subTest(moment=moment):
                running = self.start(*self.command, "--no-resume", "--timeout", 3, ranks=3)
                wait_until(lambda: len(running.ranks()) == 3, "the ranks are there")
                ranks = running.ranks()
                time.sleep(moment)
                if all(alive(p) for p in ranks):
                    os.kill(ranks[1], signal.SIGSTOP)
                if (self.folder / OUT).exists() or not all(alive(p) for p in ranks):
                    running.kill()  # too late: a rank may stop behind its end, where no other is left to notice
                    (self.folder / OUT).unlink(missing_ok=True)
                    continue
                in_time += 1
                at = time.monotonic()
                done = running.wait(60)
                self.assertLess(time.monotonic() - at, 20)
                self.assertEqual(done.code, 74, done)
                self.assertEqual(len(done.problems), 1, done)
                self.assertRegex(done.problems[0], r"waited [\d.]+ s for ")
                wait_until(lambda: not any(alive(p) for p in ranks), "all ranks have ended", 30)
        self.assertGreater(in_time, 0)

    def test_two_runs_on_one_output(self):
        running, ranks = self.started()
        os.kill(ranks[0], signal.SIGSTOP)  # so that it cannot end before the other has begun
        try:
            self.fails(74, "another run", *self.command)
        finally:
            os.kill(ranks[0], signal.SIGCONT)
        self.assertEqual(running.wait().code, 0)


class DiskTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        self.pack("job.h5", stories(12, 4, 60), ignore_eos=True)

    def disk(self, options):
        """A small file system of our own."""
        path = self.folder / "disk"
        path.mkdir()
        if os.geteuid() != 0 or self.mount(path, options) != 0:
            self.skipTest("needs to mount a tmpfs")
        self.addCleanup(subprocess.run, ["umount", "-l", path])
        return path

    @staticmethod
    def mount(path, options):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path], stderr=subprocess.DEVNULL).returncode

    def test_a_full_disk_loses_nothing(self):
        disk = self.disk("size=16k")
        command = ["run", self.folder / "job.h5", "-o", "disk/out.h5", "--trace"]
        self.fails(74, ["disk/out.h5.journal", "No space left on device"], *command)
        kept = journalled(disk / "out.h5.journal")
        self.assertGreater(kept, 0)
        self.assertEqual(self.mount(disk, "remount,size=4m"), 0)
        done = self.diffuse(*command, ranks=2)
        self.assertIn(f"{kept} of 12 requests were finished before", done.err)
        self.diffuse("run", "job.h5", "-o", "whole.h5", "--trace")
        self.assert_identical("whole.h5", "disk/out.h5")

    def test_a_disk_too_small_for_the_result(self):
        # The journal fits, the result beside it does not.
        self.diffuse("run", "job.h5", "-o", "whole.h5")
        disk = self.disk("size=1m")
        (disk / "ballast").write_bytes(bytes((1 << 20) - 16 * 1024))
        command = ["run", "job.h5", "-o", "disk/out.h5"]
        done = self.run_any(*command)
        self.assert_fails(done, 74, "disk/out.h5")
        self.assertEqual(sorted(p.name for p in disk.iterdir()), ["ballast", "out.h5.journal"])
        (disk / "ballast").unlink()
        done = self.diffuse(*command)
        self.assertIn("12 of 12 requests were finished before", done.err)
        self.assert_identical("whole.h5", "disk/out.h5")

    def test_a_folder_that_cannot_be_written(self):
        if os.geteuid() == 0:
            self.disk("ro")
        else:
            (self.folder / "disk").mkdir(0o555)
        self.fails(74, "disk/out.h5", "run", "job.h5", "-o", "disk/out.h5")
        self.fails(74, "disk/out.h5", "run", "job.h5", "-o", "disk/out.h5", ranks=3)
        self.fails(74, "disk/report", "verify", "job.h5", "-o", "disk/report", "--ranks", 1)
        self.fails(74, "disk/x.h5", "pack", "job.h5.json", "-o", "disk/x.h5")

    def test_places_where_no_result_can_stand(self):
        (self.folder / "taken").mkdir()
        self.fails(74, "'taken'", "run", "job.h5", "-o", "taken")
        self.assertEqual([p.name for p in self.folder.iterdir() if "journal" in p.name], [], "found before the run began")
        self.fails(66, "nowhere", "run", "job.h5", "-o", "nowhere/out.h5")
        self.write("notes.txt", "mine")
        self.fails(65, "notes.txt", "run", "job.h5", "-o", "notes.txt")
        self.assertEqual((self.folder / "notes.txt").read_text(), "mine")

    def test_what_is_read_is_not_written_over(self):
        spec, job = (self.folder / "job.h5.json", self.folder / "job.h5")
        written = spec.read_bytes(), job.read_bytes()
        self.fails(2, "job.h5.json", "pack", "job.h5.json", "-o", "job.h5.json")
        self.fails(2, "job.h5", "run", "job.h5", "-o", "job.h5")
        self.fails(2, "job.h5", "verify", "job.h5", "-o", "job")
        self.write("notes.txt", "mine")
        self.fails(2, "notes.txt", "pack", "job.h5.json", "-o", "notes.txt")
        self.assertEqual((self.folder / "notes.txt").read_text(), "mine")
        self.assertEqual((spec.read_bytes(), job.read_bytes()), written)
        self.diffuse("pack", "job.h5.json", "-o", "job.h5")  # a job again in its place

    def test_what_stood_there_is_kept(self):
        self.write("report.json", "mine")
        done = self.diffuse("verify", "job.h5", "-o", "report", ranks=2)
        self.assertIn("it is kept as 'report.json_prev'", done.err)
        self.assertEqual((self.folder / "report.json_prev").read_text(), "mine")
        self.diffuse("run", "job.h5", "-o", "a.h5")
        first = (self.folder / "a.h5").read_bytes()
        done = self.diffuse("merge", "a.h5", "a.h5")
        self.assertIn("it is kept as 'a.h5_prev'", done.err)
        self.assertEqual((self.folder / "a.h5_prev").read_bytes(), first)


if __name__ == "__main__":
    support.main()
