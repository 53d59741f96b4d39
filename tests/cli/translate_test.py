"""Text to text: prompts over encoder-decoder stacks whose folder has a sentencepiece model for a tokenizer."""

import array
import json
import shutil

import support
from support import DATA, CommandLineTest, read_safetensors, safetensors

PIECES = DATA / "text" / "pieces"


class TranslateTest(CommandLineTest):
    def model(self, stack, case):
        """A golden stack whose vocabulary is widened to a tokenizer's."""
        fixture = json.loads((PIECES / f"{case}.json").read_text())
        name = self.copy_model(DATA / "golden" / stack, f"{stack}-{case}")
        for to, of in fixture["files"].items():
            shutil.copy(PIECES / of, self.folder / name / to)
        self.write(f"{name}/tokenizer_config.json", fixture["config"])
        config = json.loads((self.folder / name / "config.json").read_text())
        old, new = config["vocab_size"], 2000
        config.update({key: new for key in config if key.endswith("vocab_size")})
        self.write(f"{name}/config.json", config)
        tensors = read_safetensors(self.folder / name / "model.safetensors")
        for key, (dtype, shape, data) in tensors.items():
            if shape == [1, old]:
                tensors[key] = (dtype, [1, new], bytes(4 * new))
            if shape[0] == old:
                rows = array.array("f", data)
                wide = array.array("f")
                for i in range(new):
                    wide.extend(x * (1 - 0.03 * (i // old)) for x in rows[i % old * shape[1]:(i % old + 1) * shape[1]])
                tensors[key] = (dtype, [new, shape[1]], wide.tobytes())
        self.write(f"{name}/model.safetensors", safetensors(tensors, {"format": "pt"}))
        return self.folder / name, fixture

    def answers(self, model, requests, ranks, **generate):
        self.pack("job.h5", requests, model, max_new_tokens=6, **generate)
        self.diffuse("run", "job.h5", "-o", f"{ranks}.h5", "--trace", "--no-resume", ranks=ranks)
        return self.shown(f"{ranks}.h5")

    def test_a_prompt_is_the_encoders_input(self):
        model, fixture = self.model("t5", "t5")
        strings = json.loads((DATA / "text" / "strings.json").read_text())["strings"]
        chosen = [i for i, ids in fixture["ids"].items() if int(i) < len(strings) and 3 < len(ids) < 60][:4]
        requests = []
        for i in chosen:
            requests += [{"id": f"prompt{i}", "prompt": strings[int(i)]}, {"id": f"tokens{i}", "tokens": fixture["ids"][i]}]
        said = self.answers(model, requests, 1)
        for i in chosen:
            text, ids = said[f"prompt{i}"], said[f"tokens{i}"]
            self.assertEqual(text["prompt_tokens"], len(fixture["ids"][i]))
            self.assertEqual(text["samples"][0]["tokens"], ids["samples"][0]["tokens"])
            self.assertEqual(text["samples"][0]["text"], ids["samples"][0]["text"])
        self.assertTrue(any(r["samples"][0]["text"] for r in said.values()))
        self.answers(model, requests, 2)
        self.assert_identical("1.h5", "2.h5")

    def test_the_language_begins_the_answer(self):
        model, _ = self.model("bart", "m2m")
        codes = {"fr": None, "de": None}
        requests = [{"id": code, "prompt": "the house", "language": code} for code in codes]
        requests += [{"id": "open", "prompt": "the house"}]
        said = self.answers(model, requests, 2, ignore_eos=True)
        first = {id: r["samples"][0]["tokens"][0] for id, r in said.items()}
        self.assertNotEqual(first["fr"], first["de"])
        vocabulary = json.loads((PIECES / "m2m-vocab.json").read_text())
        self.assertGreaterEqual(min(first["fr"], first["de"]), len(vocabulary))
        self.assertNotIn("__", said["fr"]["samples"][0]["text"])
        forced = {name: {"forced_bos_token_id": id} for name, id in (("same", first["fr"]), ("other", first["de"]))}
        self.pack("forced.h5", [{"id": name, "prompt": "the house", "language": "fr", "generate": generate}
                                for name, generate in forced.items()], model, max_new_tokens=2)
        self.diffuse("run", "forced.h5", "-o", "forced-out.h5", code=65)
        said = self.shown("forced-out.h5")
        self.assertEqual(said["same"]["status"], "done")
        self.assertIn("'forced_bos_token_id'", said["other"]["message"])
        self.assertIn("`language`", said["other"]["message"])

    def test_the_language_begins_the_text(self):
        model, fixture = self.model("marian", "marian")
        said = self.answers(model, [{"id": "named", "prompt": "the house", "language": "fr"},
                                    {"id": "written", "prompt": ">>fr<< the house"},
                                    {"id": "open", "prompt": "the house"}], 2)
        self.assertEqual(said["named"]["samples"], said["written"]["samples"])
        self.assertEqual(said["named"]["prompt_tokens"], said["open"]["prompt_tokens"] + 1)

    def test_what_cannot_be_asked(self):
        model, _ = self.model("t5", "t5")
        self.pack("job.h5", [{"id": "good", "prompt": "the house"}, {"id": "prompt", "prompt": "x", "language": "fr"},
                             {"id": "tokens", "tokens": [5, 1], "language": "fr"}], model, max_new_tokens=2)
        done = self.diffuse("run", "job.h5", "-o", "out.h5", code=65)
        said = self.shown("out.h5")
        self.assertEqual(said["good"]["status"], "done", done)
        self.assertIn("no languages", said["prompt"]["message"])
        self.assertIn("`tokens`", said["tokens"]["message"])
        (model / "spiece.model").write_bytes(b"no model")
        self.fails(65, ["spiece.model", "no sentencepiece model"], "run", "job.h5", "-o", "other.h5")


if __name__ == "__main__":
    support.main()
