"""Make `tokenizer.json` and `config.json` of the embedded model.

A byte-level BPE of 512 ids: ten special ids in the order of Moondream 2, the 256 bytes, and 246 merges learned from the words the drawn street
is described with. Known words become one or two tokens; every other text still encodes, byte by byte if it must.
Run `python3 tokenizer.py` after a change of the word lists; both files are checked in, because the weights belong to exactly these ids.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).parent
VOCAB_SIZE = 512
SPECIALS = [
    "<|endoftext|>",
    "<|md_reserved_0|>",
    "<|md_reserved_1|>",
    "<|md_reserved_2|>",
    "<|md_reserved_3|>",
    "<|coord|>",
    "<|size|>",
    "<|start_ground_points|>",
    "<|md_reserved_4|>",
    "<|end_ground|>",
]

CLASSES = [
    ("person", "people"),
    ("car", "cars"),
    ("truck", "trucks"),
    ("bus", "buses"),
    ("bicycle", "bicycles"),
    ("dog", "dogs"),
    ("cat", "cats"),
    ("bird", "birds"),
    ("ball", "balls"),
    ("parcel", "parcels"),
    ("traffic light", "traffic lights"),
    ("stop sign", "stop signs"),
]
COLOURS = ["red", "orange", "yellow", "green", "blue", "purple", "white", "black"]
QUESTION_WORDS = "Is there a? Is there an? How many are there? What colour is the? Yes No describe short normal long detect point query"
CAPTION_WORDS = (
    "A An Two Three Four Five Six Seven Eight Nine Nothing It On In a an two three four five six seven eight nine many nothing and in on by at the "
    "street avenue park car square day dusk night evening clear grey rainy foggy is are there to see. ,"
)


def corpus():
    """Phrases, repeated by how much they matter: the trainer of the merges counts."""
    lines = []
    for singular, plural in CLASSES:
        lines += [f" {singular}"] * 60 + [f" {plural}"] * 40
        lines += [f"Is there a {singular}?", f"How many {plural} are there?", f"What colour is the {singular}?"] * 4
    for colour in COLOURS:
        lines += [f" {colour}"] * 60 + [colour] * 20
    lines += ["Yes", "No", *QUESTION_WORDS.split(" ")] * 20 + [QUESTION_WORDS] * 20
    lines += ["".join(f" {word}" for word in CAPTION_WORDS.split())] * 25
    lines += [word for word in CAPTION_WORDS.split() if word[0].isupper()] * 20
    return lines


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=SPECIALS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=1,
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    assert tokenizer.get_vocab_size() == VOCAB_SIZE, tokenizer.get_vocab_size()
    return tokenizer


def make_config(tokenizer):
    """The network's shape and the prompt templates, in the schema of the published Moondream 2 configuration."""

    def words(text):
        return tokenizer.encode(text).ids

    return {
        "text": {
            "dim": 256,
            "ff_dim": 1024,
            "n_layers": 3,
            "vocab_size": VOCAB_SIZE,
            "max_context": 768,
            "n_heads": 4,
            "n_kv_heads": 4,
            "prefix_attn": 401,
            "group_size": None,
        },
        "vision": {
            "enc_dim": 256,
            "enc_patch_size": 16,
            "enc_n_layers": 5,
            "enc_ff_dim": 1024,
            "enc_n_heads": 4,
            "proj_out_dim": 256,
            "crop_size": 320,
            "in_channels": 3,
            "max_crops": 1,
            "overlap_margin": 0,
            "proj_inner_dim": 384,
        },
        "region": {
            "dim": 256,
            "coord_feat_dim": 64,
            "coord_out_dim": 1024,
            "size_feat_dim": 128,
            "size_out_dim": 2048,
            "inner_dim": 192,
            "group_size": None,
        },
        "tokenizer": {
            "bos_id": 0,
            "eos_id": 0,
            "answer_id": 3,
            "thinking_id": 4,
            "coord_id": 5,
            "size_id": 6,
            "start_ground_points_id": 7,
            "end_ground_id": 9,
            "templates": {
                "caption": {
                    length: [1, *words(" describe"), 2, *words(f" {length}"), 3] for length in ("short", "normal", "long")
                },
                "query": {"prefix": [1, *words(" query"), 2], "suffix": [3]},
                "detect": {"prefix": [1, *words(" detect"), 2], "suffix": [3]},
                "point": {"prefix": [1, *words(" point"), 2], "suffix": [3]},
            },
        },
    }


def main():
    tokenizer = make_tokenizer()
    tokenizer.save(str(HERE / "tokenizer.json"))
    (HERE / "config.json").write_text(json.dumps(make_config(tokenizer), indent=1) + "\n")


if __name__ == "__main__":
    main()
