"""golden.py DIFFUSE FOLDER: runs every golden case of the folder on the card, one rank, f32, and holds what it answers against the
reference's: tokens of text, codes of sound, segments of transcripts. Of the standard library alone."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
from speech_support import GREEDY, write_sound  # noqa: E402


def int64s(path, wanted):
    """Arrays of a safetensors file, as lists."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    arrays = []
    for name in wanted:
        begin, end = header[name]["data_offsets"]
        data = raw[8 + size + begin:8 + size + end]
        arrays.append([int.from_bytes(data[i:i + 8], "little", signed=True) for i in range(0, len(data), 8)])
    return arrays


class Card:
    """The program, in a folder of its own."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def diffuse(self, *words):
        return subprocess.run([self.program, *map(str, words)], cwd=self.folder, check=True, stdout=subprocess.PIPE).stdout

    def run(self, model, requests, **generate):
        spec = {"model": str(model), "generate": generate, "requests": requests}
        (self.folder / "spec.json").write_text(json.dumps(spec))
        self.diffuse("pack", "spec.json", "-o", "job.h5")
        self.diffuse("run", "job.h5", "-o", "out.h5", "--device", "cuda", "--compute", "f32", "--no-resume")

    def tokens(self, model, requests, **generate):
        """Of the first sample of each request."""
        self.run(model, requests, **generate)
        answered = json.loads(self.diffuse("show", "out.h5", "--json"))["requests"]
        return [request["samples"][0]["tokens"] for request in answered]


def text_is_right(card, case):
    prompt, tokens = int64s(case / "golden.safetensors", ("input_ids", "tokens"))
    return card.tokens(case, [{"tokens": prompt}], max_new_tokens=len(tokens), ignore_eos=True) == [tokens]


def music_is_right(card, case):
    prompt, plain, guided = int64s(case / "golden.safetensors", ("input_ids", "codes.guidance1", "codes.guidance3"))
    requests = [{"tokens": prompt, "generate": {"guidance_scale": scale}} for scale in (1, 3)]
    return card.tokens(case, requests, max_new_tokens=30) == [plain, guided]


def speech_is_right(card, case):
    transcript = json.loads((case / "transcripts.json").read_text())[0]
    write_sound(card.folder / "heard.wav", transcript["seconds"], transcript["seed"])
    card.run(case, [{"id": "heard", "audio": "heard.wav", "language": transcript["language"]}], **GREEDY)
    card.diffuse("export", "out.h5", "texts")
    said = json.loads((card.folder / "texts" / "heard.json").read_text())
    keys = ("start", "end", "tokens")
    return [[s[key] for key in keys] for s in said["segments"]] == [[s[key] for key in keys] for s in transcript["segments"]]


def how_held(case):
    """What holds a folder against its reference; None where it is not of the command line (recorded mels, pictures)."""
    if (case / "transcripts.json").exists():
        return speech_is_right
    golden = case / "golden.json"
    if not golden.exists():
        return None
    arrays = json.loads(golden.read_text())["arrays"].keys()
    if "codes.guidance1" in arrays:
        return music_is_right
    return text_is_right if {"input_ids", "tokens"} <= arrays and "mel" not in arrays else None


def main():
    program, data = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
    cases = [(case, how_held(case)) for case in sorted(data.iterdir()) if how_held(case)]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        card = Card(program, Path(folder))
        for case, is_right in cases:
            same = is_right(card, case)
            wrong += not same
            print(case.name, "equal" if same else "DIFFERENT", flush=True)
    kinds = {is_right for _, is_right in cases}
    print(f"{len(cases) - wrong} of {len(cases)} cases equal")
    return 1 if wrong or kinds != {text_is_right, music_is_right, speech_is_right} else 0


sys.exit(main())
