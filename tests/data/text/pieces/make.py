"""Makes the fixtures of this folder: small sentencepiece models, and the ids and texts that transformers (with
tokenizers, sentencepiece and protobuf) gives for the strings of ../strings.json and a few more.

    python make.py            # in this folder; transformers 5, tokenizers 0.23, sentencepiece 0.2 were used

A case NAME.json holds the files and the tokenizer_config.json of its folder, a 24-bit FNV-1a hash of the ids
(little-endian int32, special tokens added) and of the decoded text (special tokens left out) of each string,
and the ids of some in full, to look at when a hash differs.
"""
import base64, collections, json, os, random, shutil, tempfile
import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import Tokenizer, normalizers
import transformers as tr

HERE = os.path.dirname(os.path.abspath(__file__))
base = json.load(open(os.path.join(HERE, "../strings.json")))["strings"]
rng = random.Random(11)

# What the normalizers and the vocabularies trip over.
extra = ["", " ", "  ", "\u2581", "\u2581\u2581a", "a\u2581b", " a", "a ", "  a  b  ", "a\r\nb", "\r\n", "a\r\n\r\n b",
         "\n", "\t\tx", "\u00a0x\u00a0", "\u3000\u3000", "\u200b", "a\u200bb", "\u200d", "\ufeffx", "\u00ad", "\ufffd",
         "\x00", "a\x00b", "\x01\x02", "\x7f", "\x85x", "\u2028\u2029", "\u1680", "\ufb01\ufb02", "\uff21\uff22\uff11",
         "\u212b", "e\u0301", "o\u0308\u0323", "\u1e9b\u0323", "\u00bd\u00b2", "\u2460\u24b6", "\u3392\u33a1",
         "\uff76\uff9e\uff77\uff9f", "\u1112\u1161\u11ab", "\ud55c\uae00", "\u0e33\u0e01\u0e33", "\u0958\u0915\u093c",
         "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\u00a8 \u00b4\u00b8",
         "\u2026\u2025", "\u037e\u0387", "\u1fef\u2000\u2001\u2002", "\U0001d400\U0001d7d8", "\u2126\u03a9",
         "a\u0300\u0300\u0300", "\u0300", " \u0300a", "\u06dd1", "\u0600\u0661", "z\u20dd", "\u200e\u200f(x)",
         "</s>", "a</s>b", "a </s> b", "<pad>", "<unk>", "x<unk>y", "<s>", "<extra_id_0>", "one <extra_id_5> two",
         "<extra_id_99><extra_id_100>", "<0x41>", "a<0x0A>b", "<mask>", "x <mask>", "en_XX", "__fr__ x", "fr_XX x",
         ">>fr<< hello", ">>fr<<hello", ">>de<< >>fr<< x", ">>xx<< x", ">>", ">>a b<<c", "x >>fr<< y", ">>fr<<",
         "</s>>>de<<x", "\u6f22\u5b57\u6f22", "\u6f22 \u5b57", "\ua9c1\ua9c2", "\U00013000\U00013001 x",
         "the the the the", "\u1b70 \u073eqe1,000,000ba", "kk\ufffd\ufffd\ufffd\ufffd\ufffd  i", "k\u8dbec\u062f \ufffd\ufffd\ufffda",
         "translate English to German: The house is wonderful.", "a" * 300, "\u2581" * 9, " " * 50 + "x"]
for _ in range(100):
    marks = [chr(rng.choice([rng.randrange(0x20, 0x7f), rng.randrange(0xa0, 0x250), rng.randrange(0x300, 0x370),
                             rng.randrange(0x370, 0x600), rng.randrange(0x2000, 0x2070), rng.randrange(0x2100, 0x2200),
                             rng.randrange(0x3040, 0x3100), rng.randrange(0xac00, 0xd7a0), rng.randrange(0xff00, 0xfff0),
                             rng.randrange(0x900, 0xa00), rng.randrange(0x1f300, 0x1f700), 0x20, 0x20, 0x61, 0x65]))
             for _ in range(rng.randrange(1, 24))]
    extra.append("".join(marks))
strings = base + extra

work = tempfile.mkdtemp()
def train(name, sentences, **options):
    text = os.path.join(work, "text")
    open(text, "w").write("\n".join(s.replace("\n", " ").replace("\x00", "") for s in sentences) + "\n")
    options = dict(model_type="unigram", hard_vocab_limit=False, minloglevel=2, max_sentence_length=100000,
                   num_threads=1, **options)
    spm.SentencePieceTrainer.train(input=text, model_prefix=os.path.join(work, "m"), **options)
    shutil.copy(os.path.join(work, "m.model"), os.path.join(HERE, name))
    proto = pb.ModelProto(); proto.ParseFromString(open(os.path.join(HERE, name), "rb").read())
    # Paths and the like of the machine that trained it.
    proto.trainer_spec.ClearField("input"); proto.trainer_spec.ClearField("model_prefix")
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    open(os.path.join(HERE, name), "wb").write(proto.SerializeToString())
    return proto

# Few rules instead of nmt_nfkc's many: full width, ligatures, accents, spaces, deletions, one that begins another.
rules = os.path.join(work, "rules.tsv")
with open(rules, "w") as f:
    def rule(a, b): f.write(" ".join("%04X" % ord(c) for c in a) + "\t" + " ".join("%04X" % ord(c) for c in b) + "\n")
    for c in range(0xff01, 0xff5f): rule(chr(c), chr(c - 0xfee0))
    for a, b in [("\ufb01", "fi"), ("\u00a0", " "), ("\t", " "), ("\r", " "), ("\n", " "), ("\r\n", " "), ("\u200b", ""),
                 ("\u00ad", ""), ("e\u0301", "\u00e9"), ("a\u0300", "\u00e0"), ("a\u0300\u0300", "A"), ("\u00a8", " \u0308"),
                 ("\u3000", " "), ("\u2026", "..."), ("\u00bd", "1\u20442"), ("\uff76\uff9e", "\u30ac"), ("\x01", "")]:
        rule(a, b)

# Trained on what is written with frequent letters, so that the others are unknown.
letters = [c for c, _ in collections.Counter("".join(base)).most_common()]
def written_with(count, begin=0, step=1):
    known = set(letters[:count]) | set(" \n")
    return [s for s in sorted(set(base), key=base.index)[begin::step] if set(s) <= known]
t5 = train("nmt.model", written_with(700), vocab_size=1600, character_coverage=1.0, pad_id=0, eos_id=1, unk_id=2, bos_id=-1,
           normalization_rule_name="nmt_nfkc")
small = train("small.model", written_with(400, 0, 2), vocab_size=900, character_coverage=1.0, normalization_rule_tsv=rules)
def train_bpe(name, **options):
    text = os.path.join(work, "text")
    open(text, "w").write("\n".join(s.replace("\n", " ").replace("\x00", "") for s in written_with(400, 1, 2)) + "\n")
    spm.SentencePieceTrainer.train(input=text, model_prefix=os.path.join(work, "m"), model_type="bpe", minloglevel=2,
                                   hard_vocab_limit=False, num_threads=1, **options)
    proto = pb.ModelProto(); proto.ParseFromString(open(os.path.join(work, "m.model"), "rb").read())
    proto.trainer_spec.ClearField("input"); proto.trainer_spec.ClearField("model_prefix")
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    open(os.path.join(HERE, name), "wb").write(proto.SerializeToString())
    return proto
train_bpe("bytes.model", vocab_size=1000, character_coverage=1.0, byte_fallback=True,
          normalization_rule_name="identity", remove_extra_whitespaces=False)
m2m = train_bpe("pairs.model", vocab_size=900, character_coverage=1.0, normalization_rule_tsv=rules)
source = train("source.model", written_with(350, 0, 2), vocab_size=800, character_coverage=1.0, normalization_rule_tsv=rules)
target = train("target.model", written_with(400, 1, 2), vocab_size=800, character_coverage=1.0, normalization_rule_name="identity")

def shared_vocabulary(*protos, drop=0, more=()):
    order = {}
    for piece in ["</s>", "<unk>", *more]: order.setdefault(piece, len(order))
    for proto in protos:
        for i, p in enumerate(proto.pieces):
            if p.type in (1, 4) and not (drop and i % drop == 7): order.setdefault(p.piece, len(order))
    order["<pad>"] = len(order)
    return order
def save(name, value): json.dump(value, open(os.path.join(HERE, name), "w"), ensure_ascii=False, separators=(",", ":"))
save("marian-vocab.json", shared_vocabulary(source, target, drop=40, more=[">>fr<<", ">>de<<", "\u6f22\u5b57"]))
m2m_vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
for p in m2m.pieces:
    if p.type in (1, 4): m2m_vocab.setdefault(p.piece, len(m2m_vocab))
save("m2m-vocab.json", m2m_vocab)

def fnv(data):
    h = 2166136261
    for byte in data: h = ((h ^ byte) * 16777619) & 0xffffffff
    return "%06x" % (h & 0xffffff)
def case(name, tokenizer, **more):
    out = dict(more, hashes=[], ids={})
    for i, s in enumerate(strings):
        ids = tokenizer(s)["input_ids"]
        text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        out["hashes"].append(fnv(b"".join(int(x).to_bytes(4, "little") for x in ids)) + fnv(text.encode()))
        if i % 40 == 0: out["ids"][str(i)] = ids
    save(name + ".json", out)
    print(name, sum(len(tokenizer(s)["input_ids"]) for s in strings), os.path.getsize(os.path.join(HERE, name + ".json")))

def folder(files, config):
    d = tempfile.mkdtemp()
    for to, of in files.items(): shutil.copy(os.path.join(HERE, of), os.path.join(d, to))
    json.dump(config, open(os.path.join(d, "tokenizer_config.json"), "w"))
    return d
def of_folder(name, cls, files, change=None, **config):
    config = dict(tokenizer_class=cls, **config)
    tokenizer = getattr(tr, cls).from_pretrained(folder(files, config))
    if change: change(tokenizer)
    case(name, tokenizer, files=files, config=config)
    return tokenizer

save("strings.json", extra)
t = of_folder("t5", "T5Tokenizer", {"spiece.model": "nmt.model"}, eos_token="</s>", unk_token="<unk>", pad_token="<pad>",
              extra_ids=100)
# The same as a tokenizer.json, and what UMT5's is like; the charsmap stands in nmt.model only.
def as_json(tokenizer):
    j = json.loads(tokenizer._tokenizer.to_str())
    steps = j["normalizer"]["normalizers"] if j["normalizer"]["type"] == "Sequence" else [j["normalizer"]]
    for n in steps:
        if n["type"] == "Precompiled": n["precompiled_charsmap"] = ""
    return j
j = as_json(t)
case("t5-json", t, json=j, charsmap="nmt.model")
u = json.loads(t._tokenizer.to_str())
charsmap = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(t5.normalizer_spec.precompiled_charsmap).decode()}
u["normalizer"] = {"type": "Sequence", "normalizers": [charsmap, {"type": "Strip", "strip_left": False, "strip_right": True},
                   {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]}
u["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
u["model"]["byte_fallback"] = True
u["model"]["vocab"] = u["model"]["vocab"][:3] + [["<0x%02X>" % b, 0.0] for b in range(256)] + u["model"]["vocab"][3:]
for a in u["added_tokens"]:
    if a["id"] > 2: a["id"] += 256
u["decoder"] = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, u["decoder"]]}
umt5 = tr.TokenizersBackend(tokenizer_object=Tokenizer.from_str(json.dumps(u)), eos_token="</s>", pad_token="<pad>",
                                  unk_token="<unk>")
case("umt5-json", umt5, json=as_json(umt5), charsmap="nmt.model")

def with_charsmap(tokenizer):  # transformers 5 leaves it out of this class; the model was trained with it
    tokenizer._tokenizer.normalizer = normalizers.Precompiled(small.normalizer_spec.precompiled_charsmap)
of_folder("mbart", "MBartTokenizer", {"sentencepiece.bpe.model": "small.model"}, with_charsmap)
of_folder("mbart50", "MBart50Tokenizer", {"sentencepiece.bpe.model": "small.model"}, src_lang="de_DE")
of_folder("xlm-roberta", "XLMRobertaTokenizer", {"sentencepiece.bpe.model": "small.model"})
of_folder("pegasus", "PegasusTokenizer", {"spiece.model": "nmt.model"}, mask_token="<mask_2>", mask_token_sent="<mask_1>")
of_folder("llama", "LlamaTokenizer", {"tokenizer.model": "bytes.model"}, bos_token="<s>", eos_token="</s>",
          unk_token="<unk>", add_bos_token=True, add_eos_token=False, legacy=False)
of_folder("llama-legacy", "LlamaTokenizer", {"tokenizer.model": "bytes.model"}, bos_token="<s>", eos_token="</s>",
          unk_token="<unk>", add_bos_token=True, add_eos_token=False, legacy=True)
of_folder("m2m", "M2M100Tokenizer", {"sentencepiece.bpe.model": "pairs.model", "vocab.json": "m2m-vocab.json"}, src_lang="de",
          additional_special_tokens=["__%s__" % c for c in tr.models.m2m_100.tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]])
of_folder("marian", "MarianTokenizer", {"source.spm": "source.model", "target.spm": "target.model",
          "vocab.json": "marian-vocab.json"}, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
