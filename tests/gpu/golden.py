"""golden.py DIFFUSE FOLDER: runs every golden case of the folder on the card, one rank, f32, and holds the tokens against the
reference's. Of the standard library alone."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path


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


def text_to_text(arrays):
    return {"input_ids", "tokens"} <= arrays.keys() and "mel" not in arrays


def tokens_of(program, case, prompt, count, folder):
    spec = {"model": str(case), "generate": {"max_new_tokens": count, "ignore_eos": True}, "requests": [{"tokens": prompt}]}
    (folder / "spec.json").write_text(json.dumps(spec))
    run = lambda *words: subprocess.run([program, *map(str, words)], cwd=folder, check=True, stdout=subprocess.PIPE).stdout
    run("pack", "spec.json", "-o", "job.h5")
    run("run", "job.h5", "-o", "out.h5", "--device", "cuda", "--compute", "f32", "--no-resume")
    return json.loads(run("show", "out.h5", "--json"))["requests"][0]["samples"][0]["tokens"]


def main():
    program, data = str(Path(sys.argv[1]).resolve()), Path(sys.argv[2]).resolve()
    cases = [p.parent for p in sorted(data.glob("*/golden.json")) if text_to_text(json.loads(p.read_text())["arrays"])]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            prompt, tokens = int64s(case / "golden.safetensors", ("input_ids", "tokens"))
            same = tokens_of(program, case, prompt, len(tokens), Path(folder)) == tokens
            wrong += not same
            print(case.name, "equal" if same else "DIFFERENT", flush=True)
    print(f"{len(cases) - wrong} of {len(cases)} cases equal")
    return 1 if wrong or not cases else 0


sys.exit(main())
