"""Writes tiny_bytes.json, tiny_marks.json and json_cases.jsonl: what the `tokenizers` package gives for small tokenizers of many settings.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3 && venv/bin/python make_json_cases.py
"""
import copy
import json
import pathlib
import random

import tokenizers

HERE = pathlib.Path(__file__).parent
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "ran", "to", "see", "big", "red", "sun", "fünf", "日本語", "1984", "e\u0301té"]
PARTS = ["the", " ", " ", "  ", "cat", "the cat", "at", "a", "\n", "\t", "\u2581", "\u2581the", "ü", "日本", "🚀", "</s>", "<s>", "x", "\r\n", "   ", "0",
         "1984", "\u00a0", "e\u0301", "ﬁ", "Cat's", "I'LL", "don't", "<|end|>", "MARK", "MARKs", "_MARK_", "[TAG]", "\u1112\u1161\u11ab", "\u0344", "\u180e", "\u2028", "...", "!?",
         "a\u0327\u0301", "\u1e9b\u0323", "K\u030a", "\u212b", "½", "²", "x\u200b", "ǆ", "\u09c7\u09be"]
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def training_text():
    chosen = random.Random(1)
    return [" ".join(chosen.choice(WORDS) for _ in range(12)) for _ in range(400)]


def texts():
    chosen = random.Random(2)
    return [""] + PARTS + ["".join(chosen.choice(PARTS) for _ in range(chosen.randint(2, 10))) for _ in range(30)]


def added(content, number, **flags):
    token = {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {**token, **flags}


def trained(pre_tokenizer, normalizer, alphabet, size, **options):
    made = tokenizers.Tokenizer(tokenizers.models.BPE(**options))
    made.pre_tokenizer, made.normalizer = pre_tokenizer, normalizer
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    made.train_from_iterator(training_text(), trainer)
    return json.loads(made.to_str())


def bytes_base():
    pre = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    base = trained(pre, None, tokenizers.pre_tokenizers.ByteLevel.alphabet(), 330)
    base["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    base["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return base


def marks_base():
    steps = [tokenizers.normalizers.Prepend("\u2581"), tokenizers.normalizers.Replace(" ", "\u2581")]
    base = trained(tokenizers.pre_tokenizers.Metaspace(), None, [], 120)
    vocab = {piece: number for number, piece in enumerate(["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)])}
    for piece in base["model"]["vocab"]:
        vocab.setdefault(piece, len(vocab))
    base["model"].update(vocab=vocab, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    base["pre_tokenizer"] = None
    base["normalizer"] = json.loads(tokenizers.normalizers.Sequence(steps).__getstate__())
    base["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                                                        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    return base


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern} if isinstance(pattern, str) else pattern, "behavior": behavior, "invert": invert}


def sequence(*steps, use_regex=False, prefix=False):
    return {"type": "Sequence", "pretokenizers": [*steps, {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}]}


def cases(base):
    """(base, name, {"/pointer": value})"""
    specials = base["bytes"]["added_tokens"]
    size = {name: len(file["model"]["vocab"]) for name, file in base.items()}
    more = lambda kind, *tokens: specials + [added(content, size[kind] + i, **flags) for i, (content, flags) in enumerate(tokens)]
    flags = [("MARK", {"single_word": True}), ("<|end|>", {"special": True, "lstrip": True, "rstrip": True}), ("  ", {}), ("   ", {}), ("[TAG]", {"rstrip": True}), ("the cat", {"lstrip": True})]
    yield "bytes", "plain", {}
    yield "bytes", "prefix space", {"/pre_tokenizer/add_prefix_space": True}
    yield "bytes", "added tokens", {"/added_tokens": more("bytes", *flags)}
    yield "bytes", "added tokens in normalised text", {"/added_tokens": more("bytes", ("e\u0301", {"normalized": True}), ("ﬁ", {"normalized": False}), *flags[:2]), "/normalizer": {"type": "NFC"}}
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield "bytes", form, {"/normalizer": {"type": form}}
    yield "bytes", "unknown piece", {"/model/unk_token": "<unk>"}
    yield "bytes", "whole words", {"/model/ignore_merges": True, "/model/merges": base["bytes"]["model"]["merges"][:5]}
    for pattern in (LLAMA3, DEEPSEEK, O200K, r"\w+|[^\w\s]+", r"\S+", r"^\s*\w|.$", r"[一-龥\u3040-\u30ff]+"):
        yield "bytes", "split", {"/pre_tokenizer": sequence(split(pattern))}
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield "bytes", behavior, {"/pre_tokenizer": sequence(split(r"\s|\p{N}", behavior, invert))}
        yield "bytes", behavior + " empty matches", {"/pre_tokenizer": sequence(split(r"a*", behavior))}
        yield "bytes", behavior + " text", {"/pre_tokenizer": sequence(split({"String": "at"}, behavior), prefix=True)}
    yield "bytes", "digits", {"/pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, use_regex=True)}
    yield "bytes", "runs of digits", {"/pre_tokenizer": sequence({"type": "Digits", "individual_digits": False}, use_regex=True)}
    yield "marks", "plain", {}
    yield "marks", "added tokens", {"/added_tokens": more("marks", *flags)}
    yield "marks", "normalised added tokens", {"/added_tokens": [{**token, "normalized": True} for token in more("marks", *flags)]}
    yield "marks", "no fallback", {"/model/byte_fallback": False}
    yield "marks", "unknown pieces one by one", {"/model/byte_fallback": False, "/model/fuse_unk": False}
    yield "marks", "nothing for unknown characters", {"/model/byte_fallback": False, "/model/unk_token": None}
    for scheme in ("always", "never", "first"):
        for cut in (False, True):
            mark = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}
            yield "marks", "Metaspace", {"/normalizer": None, "/pre_tokenizer": mark, "/decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, mark]}}
    yield "marks", "Metaspace with fallback", {"/normalizer": None, "/decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                                                                                                                {"type": "Fuse"}]}}
    yield "marks", "whole words", {"/model/ignore_merges": True, "/model/merges": base["marks"]["model"]["merges"][:5]}


def changed(file, changes):
    file = copy.deepcopy(file)
    for pointer, value in changes.items():
        *parents, last = pointer[1:].split("/")
        node = file
        for key in parents:
            node = node[key]
        node[last] = value
    return file


def main():
    base = {"bytes": bytes_base(), "marks": marks_base()}
    for name, file in base.items():
        (HERE / f"tiny_{name}.json").write_text(json.dumps(file, ensure_ascii=False) + "\n", encoding="utf-8")
    with open(HERE / "json_cases.jsonl", "w", encoding="utf-8") as out:
        print(json.dumps(texts(), ensure_ascii=False), file=out)
        for kind, name, changes in cases(base):
            made = tokenizers.Tokenizer.from_str(json.dumps(changed(base[kind], changes)))
            results = []
            for text in texts():
                made.encode_special_tokens = True
                plain = made.encode(text, add_special_tokens=False).ids
                made.encode_special_tokens = False
                special = made.encode(text, add_special_tokens=False).ids
                decoded = made.decode(plain)
                results.append({"ids": plain, **({"special": special} if special != plain else {}), **({"decoded": decoded} if decoded != text else {})})
            print(json.dumps({"base": kind, "name": name, "changes": changes, "results": results}, ensure_ascii=False, separators=(",", ":")), file=out)


main()
