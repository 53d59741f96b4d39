"""diffuse pack: job specs, lists of prompts, and what is wrong with them."""

import json
import struct
import unittest
import wave

import support
from speech_support import write_sound
from support import DATA, DEMO, CommandLineTest

try:
    import h5py
except ImportError:
    h5py = None


class PackTest(CommandLineTest):
    def test_a_spec(self):
        self.write("jobs/spec.json", {
            "model": "../model",
            "generate": {"max_new_tokens": 3},
            "requests": [
                {"id": "chat", "messages": [{"role": "user", "content": "Hello"}]},
                {"prompt": "Once", "generate": {"temperature": 0.5, "seed": 9}},
                {"tokens": [1, 2, 3]},
                "just a prompt",
            ],
        })
        done = self.diffuse("pack", "jobs/spec.json", "-o", "job.h5")
        self.assertEqual(done.out, f"job.h5: 4 requests for {self.folder.resolve()}/model\n")
        self.assertEqual([p.name for p in self.folder.iterdir() if p.name.startswith("job.h5")], ["job.h5"])

    def test_the_same_spec_makes_the_same_bytes(self):
        self.write("a.jsonl", '"One"\n\n{"prompt": "Two", "id": "b"}\n')
        self.diffuse("pack", "a.jsonl", "-o", "1.h5")
        self.diffuse("pack", "a.jsonl", "-o", "2.h5")
        self.assertEqual((self.folder / "1.h5").read_bytes(), (self.folder / "2.h5").read_bytes())

    @unittest.skipIf(h5py is None, "needs python3-h5py")
    def test_what_stands_in_the_file(self):
        self.write("a.jsonl", '"One"\n{"tokens": [5, 6], "id": "b"}\n"Zwölf 🐉"\n')
        self.diffuse("pack", "a.jsonl", "-o", "job.h5", "--model", DEMO)
        with h5py.File(self.folder / "job.h5") as f:
            self.assertEqual(f.attrs["model"].decode() if isinstance(f.attrs["model"], bytes) else f.attrs["model"], str(DEMO))
            offsets, data = f["prompts/offsets"][:], f["prompts/data"][:].tobytes()
            self.assertEqual([data[a:b].decode() for a, b in zip(offsets, offsets[1:])], ["One", "Zwölf 🐉"])
            self.assertEqual(list(f["tokens/ids"]), [5, 6])
            self.assertEqual(list(f["kind"]), [0, 2, 0])

    def test_what_the_model_will_not_do_is_said_beforehand(self):
        requests = [{"id": "long", "tokens": [1] * 5000}, {"id": "beyond", "tokens": [999999]}, {"id": "fine", "prompt": "x"}]
        self.write("a.json", json.dumps({"model": str(DEMO), "requests": requests}))
        err = self.diffuse("pack", "a.json", "-o", "a.h5").err
        self.assertRegex(err, r"warning: request 'long': the prompt has 5000 tokens")
        self.assertRegex(err, r"warning: request 'beyond': .*999999")
        self.assertEqual(len(err.strip().splitlines()), 2, err)
        speech = DATA / "golden" / "speech"
        self.write("s.json", json.dumps({"model": str(speech), "requests": [{"audio": "x.wav", "language": "klingon"}]}))
        write_sound(self.folder / "x.wav", 1, 1)
        self.fails(65, "klingon", "pack", "s.json", "-o", "s.h5")
        self.write("s.json", json.dumps({"model": str(speech), "requests": [{"id": "r", "audio": "x.wav", "language": "fr"}]}))
        self.assertIn("request 'r': this model does not know the language 'fr'", self.diffuse("pack", "s.json", "-o", "s.h5").err)
        # What stands in the way of the whole job.
        self.write("t.json", json.dumps({"model": str(DEMO), "generate": {"guidance_scale": 3}, "requests": ["x"]}))
        self.assertRegex(self.diffuse("pack", "t.json", "-o", "t.h5").err, "warning: .*guidance_scale")
        # The folder may be on the cluster alone.
        self.assertEqual(self.diffuse("pack", "a.json", "-o", "a.h5", "--model", "/no/such/folder").err, "")

    def test_defaults_of_texts_are_not_held_against_speechs(self):
        self.write("a.json", json.dumps({"generate": {"max_new_tokens": 0, "length_penalty": 1}, "requests": ["x"]}))
        self.diffuse("pack", "a.json", "-o", "a.h5")

    def test_wrong_specs(self):
        one = {"prompt": "x"}
        for spec, fragments in [
            ({"requests": [{"promt": "x"}]}, ["promt", "'prompt'", "request 0"]),
            ({"request": [one]}, ["request", "'requests'"]),
            ({"requests": [one], "generate": {"max_tokens": 5}}, ["max_tokens", "'max_new_tokens'"]),
            ({"requests": [one, one | {"generate": {"temprature": 1}}]}, ["temprature", "'temperature'", "request 1"]),
            ({"requests": [one | {"generate": {"max_new_tokens": -1}}]}, ["max_new_tokens", "-1"]),
            ({"requests": [one | {"generate": {"max_new_tokens": "many"}}]}, ["max_new_tokens"]),
            ({"requests": [one | {"generate": {"top_p": 2}}]}, ["top_p"]),
            ({"requests": [{"prompt": "x", "tokens": [1]}]}, ["exactly one"]),
            ({"requests": [{}]}, ["exactly one"]),
            ({"requests": [{"tokens": [-1]}]}, ["-1"]),
            ({"requests": [{"tokens": [1.5]}]}, ["1.5"]),
            ({"requests": [{"messages": [{"rôle": "user"}]}]}, ["rôle"]),
            ({"requests": [{"image": "a.png", "prompt": "x"}]}, ["image"]),
            ({"requests": [one | {"id": "a"}, one | {"id": "a"}]}, ["'a'"]),
            ({"requests": [one | {"id": ""}]}, ["id"]),
            ({"requests": "x"}, ["requests"]),
            ({}, ["requests"]),
            ([], ["spec.json"]),
            ("{", ["spec.json"]),
            ('{"requests": [], "requests": []}', ["requests"]),
            ("[" * 100, ["spec.json"]),
        ]:
            with self.subTest(spec=str(spec)[:70]):
                self.write("spec.json", spec)
                self.fails(65, fragments + ["spec.json"], "pack", "spec.json", "-o", "job.h5")
                self.assertFalse((self.folder / "job.h5").exists())

    def test_a_wrong_line_is_named(self):
        self.write("a.jsonl", '"One"\n\n{"prompt": 5}\n')
        self.fails(65, ["line 3", "request 1", "prompt"], "pack", "a.jsonl", "-o", "job.h5")

    @unittest.skipIf(h5py is None, "needs python3-h5py")
    def test_sound(self):
        with wave.open(str(self.folder / "phone.wav"), "wb") as out:
            out.setnchannels(2)
            out.setsampwidth(2)
            out.setframerate(8000)
            out.writeframes(struct.pack("<hh", 16384, 0) * 4000)
        self.write("spec.json", {
            "generate": {"beam_size": 2, "temperature": [0, 0.4]},
            "requests": [{"audio": "phone.wav", "language": "german", "task": "translate", "generate": {"hotwords": "Grüße"}},
                         {"audio": str(DATA / "media" / "tone.flac")}],
        })
        self.assertEqual(self.diffuse("pack", "spec.json", "-o", "job.h5").out, "job.h5: 2 requests\n")
        with h5py.File(self.folder / "job.h5") as f:
            self.assertEqual(list(f["audio/offsets"]), [0, 8000, 16000])
            self.assertEqual(list(f["audio/rate"]), [16000, 16000])
            self.assertAlmostEqual(f["audio/data"][4000], 0.25, 6)
            self.assertNotIn("kind", f)
            self.assertEqual(f["language/data"][:].tobytes(), b"german")

    def test_wrong_sound(self):
        (self.folder / "note.wav").write_bytes(b"no sound at all")
        one = {"audio": str(DATA / "media" / "tone.mp3")}
        for code, request, fragments in [
            (66, {"audio": "none.wav"}, ["none.wav", "request 0"]),
            (65, {"audio": "note.wav"}, ["note.wav", "no sound file"]),
            (65, {"audio": str(DATA / "media" / "silent_video.mkv")}, ["has no sound"]),
            (65, one | {"language": "klingon"}, ["klingon"]),
            (65, one | {"task": "sing"}, ["sing", "transcribe"]),
            (65, one | {"generate": {"beam_size": 0}}, ["beam_size"]),
            (65, one | {"generate": {"beam_sise": 2}}, ["beam_sise"]),
            (65, {"prompt": "x", "generate": {"beam_size": 2}}, ["beam_size"]),
            (65, {"prompt": "x", "task": "translate"}, ["task"]),
        ]:
            with self.subTest(request=str(request)[:70]):
                self.write("spec.json", {"requests": [request]})
                self.fails(code, fragments, "pack", "spec.json", "-o", "job.h5")
                self.assertFalse((self.folder / "job.h5").exists())

    def test_where_it_is_written(self):
        self.write("a.jsonl", '"One"\n')
        self.fails(66, "no folder 'nowhere'", "pack", "a.jsonl", "-o", "nowhere/job.h5")
        (self.folder / "taken").mkdir()
        self.fails(74, "'taken'", "pack", "a.jsonl", "-o", "taken")
        self.fails(66, "missing.json", "pack", "missing.json", "-o", "job.h5")


if __name__ == "__main__":
    support.main()
