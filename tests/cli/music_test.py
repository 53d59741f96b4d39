"""Texts to sound: python3 music_test.py DIFFUSE [unittest's arguments]."""

import array
import json
import shutil
import signal
import struct
import subprocess
import sys

import support
from support import DATA, PROJECT, CommandLineTest, journalled, read_safetensors, safetensors, send, wait_until

MONO, STEREO = DATA / "golden" / "musicgen", DATA / "golden" / "musicgen-stereo"
PIECES = DATA / "text" / "pieces"


def numbers(tensor):
    kind = {"I64": "q", "F32": "f"}[tensor[0]]
    return array.array(kind, tensor[2]).tolist()


def read_wav(path):
    """Channels, rate and samples of a file of 32-bit floats."""
    raw = path.read_bytes()
    assert raw[:4] == b"RIFF" and raw[8:16] == b"WAVEfmt ", raw[:16]
    kind, channels, rate = struct.unpack("<HHI", raw[20:28])
    assert kind == 3
    at = raw.index(b"data")
    return channels, rate, array.array("f", raw[at + 8:at + 8 + struct.unpack("<I", raw[at + 4:at + 8])[0]]).tolist()


class MusicTest(CommandLineTest):
    def golden_job(self, model):
        golden = read_safetensors(model / "golden.safetensors")
        ids = numbers(golden["input_ids"])
        requests = [{"id": f"guidance{scale}", "tokens": ids, "generate": {"guidance_scale": scale}} for scale in (1, 3)]
        requests += [{"id": f"drawn{i}", "tokens": ids[:1 + i], "generate": {"do_sample": True, "seed": i, "guidance_scale": i}}
                     for i in range(4)]
        self.pack("job.h5", requests, model, max_new_tokens=30)
        return golden

    def test_sound_is_the_references_and_the_same_split(self):
        for model in (MONO, STEREO):
            with self.subTest(model=model.name):
                golden = self.golden_job(model)
                self.diffuse("run", "job.h5", "-o", "one.h5", "--trace", "--no-resume", ranks=1)
                self.diffuse("run", "job.h5", "-o", "three.h5", "--trace", "--no-resume", "--group", 2, ranks=3)
                self.assertIn("elements of media", self.assert_identical("one.h5", "three.h5"))
                folder = f"sounds-{model.name}"
                self.assertIn("6 media files", self.diffuse("export", "three.h5", folder).out)
                shown = self.shown("three.h5")
                for name in ("guidance1", "guidance3"):
                    sample = shown[name]["samples"][0]
                    self.assertEqual(sample["tokens"], numbers(golden[f"codes.{name}"]))
                    channels, rate, samples = read_wav(self.folder / folder / f"{name}.wav")
                    facts = sample["media"]
                    self.assertEqual((facts["kind"], facts["channels"], facts["rate"]), ("sound", channels, rate))
                    wave = numbers(golden[f"wave.{name}"])
                    self.assertEqual((len(samples), facts["frames"]), (len(wave), len(wave) // channels))
                    for channel in range(channels):
                        expected = wave[channel * facts["frames"]:(channel + 1) * facts["frames"]]
                        self.assertLess(max(abs(a - b) for a, b in zip(samples[channel::channels], expected)), 1e-4)

    def test_verify(self):
        self.golden_job(MONO)
        done = self.diffuse("verify", "job.h5", "-o", "report", ranks=3)
        rows = json.loads((self.folder / "report.json").read_text())["rows"]
        self.assertEqual([(row["identical"], row["compared"]["media"]) for row in rows], [(True, 6 * 540)] * 2)
        self.assertIn("elements of media", done.out)

    def test_a_prompt_is_read_by_the_text_encoder(self):
        fixture = json.loads((PIECES / "t5.json").read_text())
        name = self.copy_model(MONO, "model")
        for to, of in fixture["files"].items():
            shutil.copy(PIECES / of, self.folder / name / to)
        self.write(f"{name}/tokenizer_config.json", fixture["config"])
        config = json.loads((self.folder / name / "config.json").read_text())
        old, config["text_encoder"]["vocab_size"] = config["text_encoder"]["vocab_size"], 2000
        self.write(f"{name}/config.json", config)
        tensors = read_safetensors(self.folder / name / "model.safetensors")
        for key, (dtype, shape, data) in tensors.items():
            if key.startswith("text_encoder.") and shape[0] == old and len(shape) == 2:
                tensors[key] = (dtype, [2000, shape[1]], (data * (2000 // old + 1))[:2000 * shape[1] * 4])
        self.write(f"{name}/model.safetensors", safetensors(tensors, {"format": "pt"}))
        strings = json.loads((DATA / "text" / "strings.json").read_text())["strings"]
        chosen = next(i for i, ids in fixture["ids"].items() if int(i) < len(strings) and 3 < len(ids) < 40)
        self.pack("job.h5", [{"id": "text", "prompt": strings[int(chosen)]}, {"id": "ids", "tokens": fixture["ids"][chosen]}],
                  self.folder / name, max_new_tokens=12, guidance_scale=3)
        self.diffuse("run", "job.h5", "-o", "out.h5")
        said = self.shown("out.h5")
        self.assertEqual(said["text"]["samples"], said["ids"]["samples"])
        self.assertEqual(said["text"]["prompt_tokens"], len(fixture["ids"][chosen]))

    def test_a_stopped_run_goes_on_with_the_sound_that_it_has(self):
        requests = [{"id": str(i), "tokens": [3 + i % 50, 7], "generate": {"guidance_scale": 1 + i % 3}} for i in range(80)]
        self.pack("job.h5", requests, MONO, max_new_tokens=120)
        command = ["run", "job.h5", "-o", "out.h5", "--group", 4, "--threads", 1]
        running = self.start(*command, ranks=2)
        wait_until(lambda: journalled(self.folder / "out.h5.journal") >= 2, "two requests are finished")
        send(running.process.pid, signal.SIGUSR1)
        self.assertEqual(running.wait().code, 75)
        done = self.diffuse(*command, ranks=1)
        self.assertRegex(done.err, r"\d+ of 80 requests were finished before")
        self.diffuse("run", "job.h5", "-o", "whole.h5")
        self.assert_identical("whole.h5", "out.h5")

    def test_what_cannot_be_asked_is_told_and_the_rest_runs(self):
        asked = {"beams": ({"num_beams": 4}, "no beam search"), "stop": ({"stop": "x"}, "'stop' is of text"),
                 "none": ({"max_new_tokens": 0}, "at least 1"), "fine": ({}, "")}
        requests = [{"id": name, "tokens": [4, 5], "generate": generate} for name, (generate, _) in asked.items()]
        requests += [{"id": "outside", "tokens": [4, 4000]}, {"id": "text", "prompt": "a calm piano"}]
        self.pack("job.h5", requests, MONO, max_new_tokens=9)
        self.diffuse("run", "job.h5", "-o", "out.h5", code=65)
        shown = self.shown("out.h5")
        self.assertEqual([r["id"] for r in shown.values() if r["status"] == "done"], ["fine"])
        for name, (_, message) in asked.items():
            self.assertIn(message, shown[name].get("message", ""))
        self.assertIn("token id 4000", shown["outside"]["message"])
        self.assertIn("give `tokens`", shown["text"]["message"])
        self.diffuse("export", "out.h5", "sounds")
        self.assertEqual([p.name for p in (self.folder / "sounds").glob("*.*") if p.suffix not in (".jsonl", ".csv")], ["fine.wav"])

    def test_three_lines_read_it(self):
        if subprocess.run([sys.executable, "-c", "import h5py"], capture_output=True).returncode:
            self.skipTest("python3-h5py is not installed")
        golden = self.golden_job(STEREO)
        self.diffuse("run", "job.h5", "-o", "out.h5")
        script = """
import h5py
m = h5py.File("out.h5")["media"]; o, c = m["offsets"][:], m["channels"][:]
sounds = [m["samples"][a:b].reshape(-1, n) for a, b, n in zip(o, o[1:], c)]
print(len(sounds), *sounds[0].shape)
"""
        done = subprocess.run([sys.executable, "-c", script], cwd=self.folder, capture_output=True, text=True, check=True)
        channels, frames = golden["wave.guidance1"][1]
        self.assertEqual(done.stdout.split(), ["6", str(frames), str(channels)])

    def test_the_example_packs(self):
        self.assertIn("2 requests", self.diffuse("pack", PROJECT / "jobs" / "music.json", "--model", MONO, "-o", "job.h5").out)

    def test_other_commands_know_it(self):
        self.assertIn("decode, 2 streams", self.diffuse("bench", MONO, "--streams", 2, "--new-tokens", 4, "--prefill", 5, "--prompt", 3,
                                                        ranks=2).out)
        self.fails(69, "codes of sound", "check", MONO, "--probe")


if __name__ == "__main__":
    support.main()
