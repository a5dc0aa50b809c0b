"""Which prompts are asked about a picture, their true answers, and how they are packed for training. All on the device, without loops.

A prompt is a kind, a class, a colour (-1 for any) and a row of the phrase table, which holds its ids from the first template id to the last.
Prompts of one picture are packed into one row of L positions; each sees the picture and itself only, at the positions it has when asked alone.
"""

import random
from dataclasses import dataclass

import torch

from feed import MAX_OBJECTS
from words_unknown import unknown_things

DETECT, POINT, EXISTS, COUNT, COLOUR, CAPTION = range(6)
HEADER_MAX = 34  # ids of a prompt before its answer
ANSWER_MAX = 6
BINS = 1024
NOTHING = -100  # no loss here
KIND_SHARES = [0.46, 0.16, 0.11, 0.13, 0.07, 0.07]


class Phrases:
    """Every prompt as ids: known things in all forms, unknown things, captions; and the short answers."""

    def __init__(self, header, config, tokenizer, unknown_count, seed):
        self.tokenizer, self.templates = tokenizer, config["tokenizer"]["templates"]
        self.things = [(c["name"], c["plural"]) for c in header["classes"]]
        self.coloured = [bool(c["coloured"]) for c in header["classes"]]
        self.colours = header["colours"]
        self.forms = question_forms(header.get("phrases", {}))
        rows = [self.known(kind, form, c, colour) for kind in range(5) for form in range(2) for c in range(len(self.things))
                for colour in range(-1, len(self.colours))]
        self.caption_row = len(rows)
        rows += [self.templates["caption"][length] for length in ("short", "normal", "long")]
        self.unknown_row, self.unknown_count = len(rows), unknown_count
        known = {word for thing in self.things for word in thing}
        unknown = unknown_things(unknown_count, known, self.colours, random.Random(seed))
        rows += [row for kind in range(4) for row in self.encode_many(kind, unknown)]
        # A row that is too long has length 0, which drops the prompt.
        self.rows = [row if len(row) <= HEADER_MAX else [] for row in rows]
        self.answers = [tokenizer.encode(text).ids for text in self.answer_texts()]
        assert max(map(len, self.answers)) <= ANSWER_MAX

    def answer_texts(self):
        """No, Yes, the digits, the colours: the order that `answer_index` relies on."""
        return ["No", "Yes", *map(str, range(10)), *self.colours]

    def text(self, kind, thing, things):
        if kind in (DETECT, POINT):
            return f" {thing}"
        a_thing = f"{'an' if thing[0] in 'aeiou' else 'a'} {thing}"
        return self.forms[kind].replace("{a thing}", a_thing).replace("{things}", things).replace("{thing}", thing)

    def wrap(self, kind, ids):
        if kind in (DETECT, POINT):
            template = self.templates["detect" if kind == DETECT else "point"]
            return [*template["prefix"], *ids, *template["suffix"]]
        template = self.templates["query"]
        return [*template["prefix"], *ids, *template["suffix"], *template["suffix"]]

    def known(self, kind, form, c, colour):
        """Detect and point have two forms, singular and plural; questions have one."""
        adjective = "" if colour < 0 else f"{self.colours[colour]} "
        singular, plural = (adjective + word for word in self.things[c])
        thing = plural if form and kind in (DETECT, POINT) else singular
        return self.wrap(kind, self.tokenizer.encode(self.text(kind, thing, plural)).ids)

    def encode_many(self, kind, things):
        texts = [self.text(kind, thing, f"{thing}s") for thing in things]
        return [self.wrap(kind, encoding.ids) for encoding in self.tokenizer.encode_batch(texts)]


def question_forms(phrases):
    """The generator's question forms from its header, by what they ask; these defaults where it names none."""
    forms = {EXISTS: "Is there {a thing}?", COUNT: "How many {things} are there?", COLOUR: "What colour is the {thing}?"}
    starts = {EXISTS: "is there", COUNT: "how many", COLOUR: "what colour"}
    for phrase in phrases.values() if isinstance(phrases, dict) else phrases:
        for kind, start in starts.items():
            if isinstance(phrase, str) and phrase.lower().startswith(start):
                forms[kind] = phrase
    return forms


@dataclass
class Prompts:
    """[B, P] prompts; `row` picks the header ids, -1 drops the prompt."""

    kind: torch.Tensor
    cls: torch.Tensor  # -1: an unknown thing
    colour: torch.Tensor  # -1: any
    row: torch.Tensor


@dataclass
class Answers:
    """What is true of [B, P] prompts. `index` lists the matching objects first, in the network's order."""

    n: torch.Tensor  # [B, P] matching objects
    index: torch.Tensor  # [B, P, 32]
    answer: torch.Tensor  # [B, P] row of the short answers, of questions
    askable: torch.Tensor  # bool [B, P]: the truth is certain


@dataclass
class Packed:
    """[B, L] positions: what goes in (as in `Network.embed`) and what should come out."""

    kinds: torch.Tensor
    ids: torch.Tensor
    values: torch.Tensor  # [B, L, 2]
    positions: torch.Tensor
    seg: torch.Tensor  # prompt of each position; P where there is none
    token: torch.Tensor  # id to emit, or NOTHING
    task: torch.Tensor  # kind of the prompt
    coord: torch.Tensor  # float bin to emit, or -1
    size: torch.Tensor  # [B, L, 2] float bins to emit, or -1


class Examiner:
    """Draws prompts, finds their answers and packs both, from tables on the device."""

    def __init__(self, phrases, prefix, device):
        self.device, self.prefix = device, prefix
        self.classes, self.colours = len(phrases.things), len(phrases.colours)
        self.caption_row, self.unknown_row, self.unknown_count = phrases.caption_row, phrases.unknown_row, phrases.unknown_count
        self.coloured = torch.tensor(phrases.coloured, device=device)
        self.rows, self.row_len = table(phrases.rows, HEADER_MAX, device)
        self.answers, self.answer_len = table(phrases.answers, ANSWER_MAX, device)
        self.shares = torch.tensor(KIND_SHARES, device=device)

    def known_row(self, kind, form, cls, colour):
        return ((kind * 2 + form) * self.classes + cls) * (self.colours + 1) + colour + 1

    def draw(self, labels, count, generator):
        """`count` prompts per picture: things that are there, things in another colour, absent and unknown things."""
        b, p = len(labels.cls), count
        rand = lambda: torch.rand(b, p, device=self.device, generator=generator)  # noqa: E731
        kind = torch.multinomial(self.shares, b * p, replacement=True, generator=generator).view(b, p)
        # One object per prompt, drawn among those present; without any, the place holds a random class.
        weight = labels.present.float() + 1e-6
        chosen = torch.multinomial(weight, p, replacement=True, generator=generator)
        real = labels.present.gather(1, chosen)
        random_cls = (rand() * self.classes).long()
        random_colour = (rand() * self.colours).long()
        cls = torch.where(real, labels.cls.gather(1, chosen), random_cls)
        own_colour = torch.where(real, labels.colour.gather(1, chosen), random_colour)
        mode = rand()  # .40 class there | .20 its colour too | .12 another colour | .12 any class | .06 any pair | .10 unknown
        cls = torch.where((mode >= 0.72) & (mode < 0.90), random_cls, cls)
        colour = torch.where((mode >= 0.40) & (mode < 0.60), own_colour, -1)
        colour = torch.where(((mode >= 0.60) & (mode < 0.72)) | ((mode >= 0.84) & (mode < 0.90)), random_colour, colour)
        colour = torch.where(self.coloured[cls] & (kind != COLOUR), colour, -1)
        form = ((rand() < 0.3) & (kind <= POINT)).long()
        unknown = (mode >= 0.90) & (kind <= COUNT)
        unknown_row = self.unknown_row + kind * self.unknown_count + (rand() * self.unknown_count).long()
        row = torch.where(unknown, unknown_row, self.known_row(kind.clamp(max=COLOUR), form, cls, colour))
        length = (rand() * 3).long()
        row = torch.where(kind == CAPTION, self.caption_row + length, row)
        # The same prompt twice would teach nothing new and take the place of another.
        again = (row.unsqueeze(2) == row.unsqueeze(1)).tril(-1).any(2)
        row = torch.where(again, -1, row)
        return Prompts(kind, torch.where(unknown, -1, cls), torch.where(kind == CAPTION, length, colour), row)

    def answer(self, labels, prompts):
        """The truth from the labels. A prompt that touches an ignored object has none."""
        cls, colour = prompts.cls.unsqueeze(2), prompts.colour.unsqueeze(2)
        same = labels.cls.unsqueeze(1) == cls
        of_colour = (colour < 0) | (labels.colour.unsqueeze(1) == colour)
        match = same & of_colour & labels.present.unsqueeze(1)
        doubt = (same & (of_colour | (labels.colour.unsqueeze(1) < 0)) & labels.ignored.unsqueeze(1)).any(2)
        n = match.sum(2)
        index = (~match).to(torch.int8).argsort(dim=2, stable=True)
        kind = prompts.kind
        first_colour = labels.colour.unsqueeze(1).expand_as(index).gather(2, index[..., :1]).squeeze(2)
        answer = torch.where(kind == COUNT, 2 + n.clamp(max=9), (n > 0).long())
        answer = torch.where(kind == COLOUR, 12 + first_colour.clamp(min=0), answer)
        length = prompts.colour.clamp(0, 2)
        captioned = labels.whole.unsqueeze(1) & (labels.caption_len.gather(1, length) > 0)
        askable = torch.where(kind == CAPTION, captioned, ~doubt)
        askable &= (kind != COUNT) | (n <= 9)
        askable &= (kind != COLOUR) | ((n == 1) & (first_colour >= 0))
        askable &= (prompts.row >= 0) & (self.row_len[prompts.row.clamp(min=0)] > 0)
        return Answers(n, index, answer, askable)

    def pack(self, labels, prompts, length, generator):
        """As many prompts as fit into `length` positions, in the order given, with inputs and targets."""
        truth = self.answer(labels, prompts)
        kind, b = prompts.kind, len(prompts.kind)
        text = kind >= EXISTS
        stride = torch.where(kind == DETECT, 3, 2)
        caption_len = labels.caption_len.gather(1, prompts.colour.clamp(0, 2))
        text_len = torch.where(kind == CAPTION, caption_len, self.answer_len[truth.answer])
        header_len = self.row_len[prompts.row.clamp(min=0)]
        tail_len = torch.where(text, text_len, stride * truth.n)
        total = torch.where(truth.askable, header_len + tail_len, 0)
        total = torch.where(total.cumsum(1) <= length, total, 0)
        ends = total.cumsum(1)
        place = torch.arange(length, device=self.device).expand(b, length).contiguous()
        seg = torch.searchsorted(ends, place, right=True)
        used = seg < kind.shape[1]
        at = seg.clamp(max=kind.shape[1] - 1)
        pick = lambda t: t.gather(1, at)  # noqa: E731
        offset = torch.where(used, place - pick(ends - total), 0)
        here = Here(at, pick(kind), pick(prompts.row).clamp(min=0), pick(truth.answer), pick(prompts.colour).clamp(0, 2), pick(stride))
        # The input at `offset` is item `fed` of the tail; the output there is item `due`, which may be the end.
        fed = offset - pick(header_len)
        due = fed + 1
        boxes = bins_from_boxes(labels.box)
        end = due >= pick(tail_len)
        emit = used & (due >= 0)
        inputs = self._inputs(here, labels, truth, boxes, offset, fed, generator)
        targets = self._targets(here, labels, truth, boxes, due, end, emit)
        return Packed(*inputs, self.prefix + offset, seg, *targets)

    def _object(self, here, truth, boxes, item):
        """Bins (x, y, w, h) of the object that tail item `item` speaks of: [B, L, 4]."""
        rank = (item.clamp(min=0) // here.stride).clamp(max=MAX_OBJECTS - 1)
        flat = truth.index.flatten(1).gather(1, here.at * MAX_OBJECTS + rank)
        return boxes.gather(1, flat.unsqueeze(-1).expand(-1, -1, 4))

    def _word(self, here, labels, item):
        """Id of item `item` of a text answer."""
        short = self.answers[here.answer, item.clamp(0, ANSWER_MAX - 1)]
        captions = labels.caption
        width = captions.shape[2]
        caption = captions.flatten(1).gather(1, here.length * width + item.clamp(0, width - 1))
        return torch.where(here.kind == CAPTION, caption, short)

    def _inputs(self, here, labels, truth, boxes, offset, fed, generator):
        part = fed.clamp(min=0) % here.stride
        tail = fed >= 0
        spatial = tail & (here.kind <= POINT)
        kinds = torch.where(spatial, torch.where(part == 2, 2, 1), 0)
        header = self.rows[here.row, offset.clamp(max=HEADER_MAX - 1)]
        ids = torch.where(spatial, 0, torch.where(tail, self._word(here, labels, fed), header))
        # What is fed back at run time is an answer with errors, so training feeds bins that are a little off.
        noise = torch.randn(*boxes.shape, device=self.device, generator=generator)
        bins = self._object(here, truth, (boxes + noise).round().clamp(0, BINS - 1), fed)
        coord = torch.where(part == 0, bins[..., 0], bins[..., 1]) / BINS
        size = size_from_bin(bins[..., 2:])
        return kinds, ids, torch.where((part == 2).unsqueeze(-1), size, coord.unsqueeze(-1))

    def _targets(self, here, labels, truth, boxes, due, end, emit):
        part = due.clamp(min=0) % here.stride
        spatial = emit & (here.kind <= POINT)
        token = torch.where(end, 0, torch.where(here.kind <= POINT, 5, self._word(here, labels, due)))
        token = torch.where(emit & ((part == 0) | ~spatial), token, NOTHING)
        bins = self._object(here, truth, boxes, due)
        coord = torch.where(part == 0, bins[..., 0], bins[..., 1])
        coord = torch.where(spatial & ~end & (part < 2), coord, -1.0)
        size = torch.where((spatial & ~end & (part == 2)).unsqueeze(-1), bins[..., 2:], -1.0)
        return token, here.kind, coord, size


@dataclass
class Here:
    """What each packed position belongs to, all [B, L]."""

    at: torch.Tensor
    kind: torch.Tensor
    row: torch.Tensor
    answer: torch.Tensor
    length: torch.Tensor
    stride: torch.Tensor


def table(rows, width, device):
    """Lists of ids as a padded tensor [R, width] and their lengths [R]."""
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.long)
    return ids.to(device), torch.tensor([len(row) for row in rows], device=device)


def bins_from_boxes(box):
    """x0, y0, x1, y1 to float bins of x centre, y centre, width, height: value bin / 1024, and 2^(bin / 1023 * 10 - 10)."""
    centre = (box[..., :2] + box[..., 2:]) / 2 * BINS
    side = (box[..., 2:] - box[..., :2]).clamp(min=1 / BINS)
    return torch.cat([centre.clamp(0, BINS - 1), (side.log2() + 10) / 10 * (BINS - 1)], dim=-1)


def size_from_bin(bins):
    return torch.exp2(bins / (BINS - 1) * 10 - 10)
