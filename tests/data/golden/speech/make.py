"""Makes this folder: a speech model of small random weights with a byte-level tokenizer, and what transformers'
greedy transcription with timestamps says of two recordings. Not run by the tests.

The recordings are formulas, so that a test can make the very same samples: see sound.py."""

import json
import sys

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from sound import samples
from transformers import PreTrainedTokenizerFast, WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration


def tokenizer():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(letters)}
    model = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|ja|>", "<|translate|>", "<|transcribe|>",
               "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    model.add_special_tokens([AddedToken(text, special=True) for text in special])
    model.add_tokens([AddedToken(f"<|{i * 0.02:.2f}|>") for i in range(1501)])
    return model


def main():
    torch.manual_seed(8)
    text = tokenizer()
    end = 256
    first_timestamp = end + 11
    config = WhisperConfig(
        vocab_size=first_timestamp + 1501, num_mel_bins=80, d_model=32, encoder_layers=2, encoder_attention_heads=2,
        encoder_ffn_dim=48, decoder_layers=3, decoder_attention_heads=2, decoder_ffn_dim=64, max_source_positions=1500,
        max_target_positions=64, pad_token_id=end, bos_token_id=end, eos_token_id=end, decoder_start_token_id=end + 1,
        suppress_tokens=None, begin_suppress_tokens=None, activation_function="gelu")
    model = WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            # Uneven logits that listen to the sound; timestamps not too likely, nor the end too soon.
            if value.dim() > 1 and "position" not in name:
                value.mul_(12.0 if "conv" in name else 30.0 if "encoder_attn" in name else 1.5)
        table = model.model.decoder.embed_tokens.weight
        table.mul_(4.0)
        table[first_timestamp:].mul_(0.3)
    model.tie_weights()
    facts = dict(
        is_multilingual=True, no_timestamps_token_id=end + 10, prev_sot_token_id=end + 8, max_length=64,
        max_initial_timestamp_index=50, begin_suppress_tokens=[text.encode(" ").ids[0], end], suppress_tokens=[1, 2, 3] + list(range(end + 1, end + 10)),
        lang_to_id={"<|en|>": end + 2, "<|de|>": end + 3, "<|ja|>": end + 4},
        task_to_id={"transcribe": end + 6, "translate": end + 5}, alignment_heads=[[2, 1], [0, 0], [1, 1]])
    for name, value in facts.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(".")
    text.save("tokenizer.json")

    extractor = WhisperFeatureExtractor(feature_size=80)
    cases = []
    for seconds, seed, language in [(40.3, 1, "en"), (71.5, 2, "de")]:
        sound = samples(seconds, seed)
        long = len(sound) > 480000
        features = extractor(sound, sampling_rate=16000, return_tensors="pt", truncation=False,
                             padding="longest" if long else "max_length", return_attention_mask=True)
        said = model.generate(features.input_features, attention_mask=features.attention_mask, return_timestamps=True,
                              return_segments=True, num_beams=1, temperature=0.0, condition_on_prev_tokens=False,
                              language=language, task="transcribe")
        with torch.no_grad():
            # What the first window says of silence, behind <|startoftranscript|>.
            start = model(features.input_features[:, :, :3000], decoder_input_ids=torch.tensor([[end + 1]])).logits[0, 0]
        silence = start.softmax(-1)[end + 9].item()
        segments = [{"start": float(s["start"]), "end": float(s["end"]), "tokens": s["tokens"].tolist()}
                    for s in said["segments"][0]]
        for segment in segments:
            # transformers leaves the first timestamp of what follows with the last segment of a window.
            if min(segment["tokens"][-2:]) >= first_timestamp:
                segment["tokens"].pop()
        cases.append({"seconds": seconds, "seed": seed, "language": language, "no_speech_prob": silence, "segments": segments})
        print(seconds, len(segments), [len(s["tokens"]) for s in segments], file=sys.stderr)
    with open("transcripts.json", "w") as file:
        json.dump(cases, file)

    # What is watched where words are laid beside time: every 50th column of the alignment heads' cross-attention, and how
    # likely each id was among the text.
    sound = samples(40.3, 1)
    features = extractor(sound, sampling_rate=16000, return_tensors="pt", truncation=False, padding="longest")
    prompt = [end + 1, end + 2, end + 6, end + 10, 12, 35, 195, 35, 14, end]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        seen = model(features.input_features[:, :, :3000], decoder_input_ids=torch.tensor([prompt]), output_attentions=True)
    likely = seen.logits[0, :, :end].softmax(-1)
    watched = {"prompt": prompt, "step": 50,
               "weights": [seen.cross_attentions[layer][0, head, :, ::50].tolist() for layer, head in facts["alignment_heads"]],
               "likely": [0.0] + [likely[i, id].item() if id < end else 0.0 for i, id in enumerate(prompt[1:])]}
    with open("watched.json", "w") as file:
        json.dump(watched, file)


main()
