"""diffuse show, export and merge."""

import csv
import json
import unittest

import support
from support import CommandLineTest, stories


class ResultTest(CommandLineTest):
    def setUp(self):
        super().setUp()
        requests = stories(4, 6, 9)
        requests[1]["generate"]["n"] = 2
        requests[2]["prompt"] = ""
        requests[3]["id"] = "R0"  # the same file name on a system that ignores case
        self.pack("job.h5", requests, ignore_eos=True)
        self.diffuse("run", "job.h5", "-o", "out.h5", code=65)

    def test_show(self):
        text = self.diffuse("show", "out.h5").out
        self.assertTrue(text.startswith("4 requests: 3 done, 1 bad, 0 unfinished"), text)
        self.assertIn("== r1, sample 1", text)
        short = self.diffuse("show", "out.h5", "--summary").out
        self.assertNotIn("== r1", short)
        one = self.diffuse("show", "out.h5", "--request", "r1").out
        self.assertIn("== r1, sample 0", one)
        self.assertNotIn("== r0", one)
        self.fails(2, "'nobody'", "show", "out.h5", "--request", "nobody")

    def test_export(self):
        done = self.diffuse("export", "out.h5", "texts")
        self.assertEqual(done.out, "4 texts in texts, 1 requests have none\n")
        names = {p.name for p in (self.folder / "texts").iterdir()}
        self.assertEqual(names, {"r0.txt", "r1-0.txt", "r1-1.txt", "R0~2.txt", "results.jsonl", "results.csv"})
        lines = [json.loads(line) for line in (self.folder / "texts" / "results.jsonl").read_text().splitlines()]
        texts = [s["text"] for r in self.shown("out.h5").values() for s in r.get("samples", [])]
        self.assertEqual([line["text"] for line in lines if "text" in line and line["text"] is not None][:4], texts)
        with open(self.folder / "texts" / "results.csv", newline="") as table:
            self.assertGreaterEqual(len(list(csv.reader(table))), 5)
        self.write("file", "in the way")
        self.fails(74, "file", "export", "out.h5", "file")


class MergeTest(CommandLineTest):
    def test_parts_of_an_array(self):
        parts = []
        for part in range(3):
            name = f"part-{part}"
            self.pack(name + ".h5", [r | {"id": f"{part}-{r['id']}"} for r in stories(2, 3, 5)])
            self.diffuse("run", name + ".h5", "-o", name + "-out.h5")
            parts.append(name + "-out.h5")
        done = self.diffuse("merge", "all.h5", *parts)
        self.assertEqual(done.out, "all.h5: 6 requests of 3 results\n")
        merged = self.shown("all.h5")
        self.assertEqual(list(merged), [f"{part}-r{i}" for part in range(3) for i in range(2)])
        for part, name in enumerate(parts):
            for request, found in self.shown(name).items():
                self.assertEqual(found["samples"], merged[request]["samples"])

    def test_equal_ids_get_the_name_of_their_part(self):
        for name in ("a", "b"):
            self.pack(name + ".h5", [{"id": "x", "prompt": name}], max_new_tokens=2)
            self.diffuse("run", name + ".h5", "-o", name + "-out.h5")
        self.diffuse("merge", "all.h5", "a-out.h5", "b-out.h5")
        self.assertEqual(list(self.shown("all.h5")), ["a-out/x", "b-out/x"])

    def test_runs_that_cannot_be_one(self):
        self.pack("a.h5", stories(1))
        self.diffuse("run", "a.h5", "-o", "f32.h5")
        self.diffuse("run", "a.h5", "-o", "bf16.h5", "--compute", "bf16")
        self.fails(65, "compute", "merge", "all.h5", "f32.h5", "bf16.h5")
        self.assertFalse((self.folder / "all.h5").exists())


if __name__ == "__main__":
    support.main()
