"""figures.py CARD.json OUT MODEL...: holds OUT/bench-I-MODE-GRAPHS.json of each model against what the card could do, adds the steps/s of
pictures (OUT/bench-pictures-MODE.json), and writes OUT/figures.json and OUT/figures.md.

Decode reads all weights once a step, so its share is that of the memory's bandwidth: tokens/s over requests at once, times the
bytes of the weights as they lie on the card. Prefill multiplies each weight once a token, so its share is that of the
arithmetic: tokens/s times two operations a weight. Keys, values and attention come on top and are not counted."""

import json
import re
import sys
from pathlib import Path


def elements_of(model):
    """Weights of a folder's safetensors files."""
    count = 0
    for path in sorted(Path(model).glob("*.safetensors")):
        with path.open("rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            size = 1
            for extent in tensor["shape"]:
                size *= extent
            count += size
    return count


def rows_of(model, mode, graphs, bench, card):
    weights = elements_of(model)
    bytes_each = 2 if mode == "bf16" else 4
    for figure in bench["figures"]:
        rate = figure["tokens_per_second"]
        row = {"model": Path(model).resolve().name, "compute": mode, "graphs": graphs, "what": figure["what"],
               "tokens_per_second": rate}
        streams = re.match(r"decode, (\d+) ", figure["what"])
        if streams:
            row["of"], best = "bandwidth", card["bytes_per_second"]
            row["share"] = rate / int(streams[1]) * weights * bytes_each / best if best else None
        else:
            row["of"], best = "arithmetic", card[f"{mode}_flops"]
            row["share"] = rate * 2 * weights / best if best else None
        yield row


def main():
    card, out, models = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), sys.argv[3:]
    rows = []
    for index, model in enumerate(models):
        for mode in ("bf16", "f32"):
            for graphs in ("auto", "off"):
                bench = out / f"bench-{index}-{mode}-{graphs}.json"
                rows += rows_of(model, mode, graphs, json.loads(bench.read_text()), card)
    pictures = [{"compute": mode, "what": figure["what"], "steps_per_second": figure["steps_per_second"]} for mode in ("bf16", "f32")
                for figure in json.loads((out / f"bench-pictures-{mode}.json").read_text())["figures"]]
    (out / "figures.json").write_text(json.dumps({"card": card, "rows": rows, "pictures": pictures}, indent=1) + "\n")
    lines = [f"{card['name']}, {card['sm']}: {card['bytes_per_second'] / 1e9:.0f} GB/s, bf16 {card['bf16_flops'] / 1e12:.0f} TFLOP/s, "
             f"f32 {card['f32_flops'] / 1e12:.0f} TFLOP/s", "", "| Model | compute | graphs | what | tokens/s | of the card's |",
             "|---|---|---|---|--:|--:|"]
    for row in rows:
        share = "?" if row["share"] is None else f"{100 * row['share']:.0f} % {row['of']}"
        lines.append(f"| {row['model']} | {row['compute']} | {row['graphs']} | {row['what']} | {row['tokens_per_second']:.0f} | {share} |")
    lines += ["", "| Pictures of demo/wan | compute | steps/s |", "|---|---|--:|"]
    lines += [f"| {row['what']} | {row['compute']} | {row['steps_per_second']:.2f} |" for row in pictures]
    (out / "figures.md").write_text("\n".join(lines) + "\n")
    return 0


sys.exit(main())
