"""diffuse verify and compare: equal runs are proven equal, and one flipped bit is found and named."""

import json
import unittest

import support
from support import CommandLineTest, stories


class VerifyTest(CommandLineTest):
    def test_whole_against_split(self):
        self.pack("job.h5", stories(5, 3, 12))
        done = self.diffuse("verify", "job.h5", "-o", "report.md", "--ranks", "2,3", ranks=3)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual([row["run"]["ranks"] for row in report["rows"]], [2, 3], report)
        self.assertTrue(all(row["identical"] for row in report["rows"]), report)
        markdown = (self.folder / "report.md").read_text()
        self.assertEqual(done.out, markdown)
        self.assertIn("| 3 ", markdown)
        self.assertIn("Splitting changed nothing", markdown)
        self.assertEqual(len(self.shown("report.h5")), 5)
        self.assertEqual(self.json("show", "report.h5", "--json")["verification"], report)

    def test_a_flipped_bit_is_found_and_named(self):
        self.pack("job.h5", [{"id": "flipped", "prompt": "Once upon a time"}, {"id": "other", "prompt": "The robot"}],
                  max_new_tokens=5)
        for ranks, layer in [(2, 3), (3, 2)]:  # layers of the first stage: where the bit crosses to the second
            with self.subTest(ranks=ranks):
                done = self.diffuse("verify", "job.h5", "-o", "report", "--ranks", ranks, "--flip-bit", ranks=ranks, code=1)
                row = json.loads((self.folder / "report.json").read_text())["rows"][0]
                self.assertFalse(row["identical"])
                first = row["first_difference"]
                self.assertEqual((first["what"], first["position"]), ("digest", 0))
                self.assertEqual(first["layer"], layer + 1, "the layer behind the cut where the bit crossed")
                self.assertIn(f'request "{first["request"]}", sample 0, position 0, layer {layer + 1}', done.out)
        # And the same splits without it are equal: the comparison does not cry wolf.
        self.diffuse("verify", "job.h5", "-o", "report", ranks=2)

    def test_a_bad_request_is_told_and_counts_after_a_difference(self):
        self.pack("job.h5", [{"id": "good", "prompt": "Once upon"}, {"id": "unknown", "tokens": [1, 640]}], max_new_tokens=3)
        done = self.diffuse("verify", "job.h5", "-o", "report", ranks=2, code=65)
        self.assertIn("Splitting changed nothing", done.out)
        said = [line for line in done.err.splitlines() if "'unknown'" in line]
        self.assertEqual(len(said), 1, done)
        self.assertIn("640", said[0])
        self.diffuse("verify", "job.h5", "-o", "report", "--flip-bit", ranks=2, code=1)

    def test_the_reference_again_proves_nothing(self):
        self.pack("job.h5", stories(2, 3, 5))
        self.fails(2, "reference itself", "verify", "job.h5", "-o", "report", "--ranks", 1)
        said = self.diffuse("verify", "job.h5", "-o", "report", "--reference-ranks", 2, "--ranks", 2, ranks=2, code=2).err
        self.assertIn("reference itself", said)
        self.assertFalse((self.folder / "report.md").exists())
        self.diffuse("verify", "job.h5", "-o", "report", "--ranks", "1,2", ranks=2)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual([row["run"]["ranks"] for row in report["rows"]], [2], report)
        self.assertTrue(report["proven"] and report["passed"])

    def test_what_cannot_be_verified(self):
        self.pack("job.h5", stories(1))
        self.fails(2, "mpirun", "verify", "job.h5", "-o", "report")
        self.fails(66, "nowhere", "verify", "job.h5", "-o", "nowhere/report", "--ranks", 1)


class CompareTest(CommandLineTest):
    def test_another_job_and_another_answer(self):
        self.pack("a.h5", stories(2, 3, 5))
        self.pack("b.h5", stories(3, 3, 5))
        self.diffuse("run", "a.h5", "-o", "a-out.h5")
        self.diffuse("run", "b.h5", "-o", "b-out.h5")
        self.fails(65, "different jobs", "compare", "a-out.h5", "b-out.h5")
        done = self.json("compare", "a-out.h5", "a-out.h5", "--json")
        self.assertTrue(done["identical"])
        self.assertEqual(done["compared"]["requests"], 2)

    def test_a_changed_token_is_named(self):
        try:
            import h5py
        except ImportError:
            self.skipTest("needs python3-h5py")
        self.pack("job.h5", stories(3, 6, 6), ignore_eos=True)
        self.diffuse("run", "job.h5", "-o", "a.h5")
        self.write("b.h5", (self.folder / "a.h5").read_bytes())
        with h5py.File(self.folder / "b.h5", "r+") as f:
            at = int(f["tokens/offsets"][1]) + 2
            f["tokens/data"][at] ^= 1
        done = self.diffuse("compare", "a.h5", "b.h5", code=1)
        self.assertRegex(done.out, r'request "r1", sample 0: tokens differ.* position 2')


if __name__ == "__main__":
    support.main()
