"""Greedy, constrained decoding on scenes that were never trained, and what share of the answers is right."""

import torch

from network import visible
from prompts import ANSWER_MAX, BINS, COLOUR, COUNT, DETECT, EXISTS, HEADER_MAX, POINT, Prompts, size_from_bin
from words_unknown import held_out_things

OBJECTS_LIMIT = 16
UNKNOWN_SEED = 7
IOU_MIN = 0.5


class Exam:
    """A fixed list of prompts for every evaluation scene: all classes as boxes and points, coloured and unknown things, questions."""

    def __init__(self, examiner, phrases, scenes):
        self.examiner, self.phrases = examiner, phrases
        device, n = examiner.device, scenes
        generator = torch.Generator(device).manual_seed(UNKNOWN_SEED)
        classes, colours = examiner.classes, examiner.colours
        every = torch.arange(classes, device=device).expand(n, -1)
        pick = lambda high, k: torch.randint(high, (n, k), device=device, generator=generator)  # noqa: E731
        any_colour = lambda cls: torch.full_like(cls, -1)  # noqa: E731
        groups = [(DETECT, every, any_colour(every)), (POINT, every, any_colour(every))]
        coloured = torch.nonzero(examiner.coloured).flatten()
        for kind, k in ((DETECT, 6), (EXISTS, 3), (COUNT, 3)):
            groups.append((kind, coloured[pick(len(coloured), k)], pick(colours, k)))
        for kind in (EXISTS, COUNT):
            groups.append((kind, pick(classes, 4), torch.full((n, 4), -1, device=device)))
        groups.append((COLOUR, coloured.expand(n, -1), torch.full((n, len(coloured)), -1, device=device)))
        kind = torch.cat([torch.full_like(cls, kind) for kind, cls, _ in groups], 1)
        cls, colour = torch.cat([g[1] for g in groups], 1), torch.cat([g[2] for g in groups], 1)
        row = examiner.known_row(kind, torch.zeros_like(kind), cls, colour)
        self.prompts = Prompts(kind, cls, colour, row)
        self._add_unknown(n)

    def _add_unknown(self, scenes):
        """Two unknown things per scene, one noun and one nonsense word, whose rows go to the end of the phrase table."""
        examiner, device = self.examiner, self.examiner.device
        rows = self.phrases.encode_many(DETECT, held_out_things(2 * scenes, UNKNOWN_SEED))
        ids = torch.zeros(len(rows), HEADER_MAX, dtype=torch.long)
        for i, row in enumerate(rows):
            ids[i, : min(len(row), HEADER_MAX)] = torch.tensor(row[:HEADER_MAX])
        first = len(examiner.rows)
        examiner.rows = torch.cat([examiner.rows, ids.to(device)])
        lengths = [len(row) if len(row) <= HEADER_MAX else 0 for row in rows]
        examiner.row_len = torch.cat([examiner.row_len, torch.tensor(lengths, device=device)])
        row = first + torch.arange(2 * scenes, device=device).view(scenes, 2)
        unknown = Prompts(torch.full_like(row, DETECT), torch.full_like(row, -1), torch.full_like(row, -1), row)
        joined = (torch.cat(pair, 1) for pair in zip(vars(self.prompts).values(), vars(unknown).values()))
        self.prompts = Prompts(*joined)

    def slice(self, start, stop):
        return Prompts(*(value[start:stop] for value in vars(self.prompts).values()))


@torch.no_grad()
def decode(net, examiner, pixels, prompts):
    """Answers of [B, P] prompts: (objects [B, P, N, 4] as bins x, y, w, h; their number [B, P]; text ids [B, P, A], 0 after the end).

    Without a cache of the prompts' own keys: each round runs all of them again, which is short and has nothing to get wrong.
    """
    b, p = prompts.kind.shape
    device = pixels.device
    width = HEADER_MAX + 3 * OBJECTS_LIMIT
    header_len = examiner.row_len[prompts.row]
    ids = torch.zeros(b, p, width, dtype=torch.long, device=device)
    ids[..., :HEADER_MAX] = examiner.rows[prompts.row]
    kinds, values = torch.zeros_like(ids), torch.zeros(b, p, width, 2, device=device)
    objects = torch.zeros(b, p, OBJECTS_LIMIT, 4, device=device)
    count = torch.zeros(b, p, dtype=torch.long, device=device)
    words = torch.zeros(b, p, ANSWER_MAX + 1, dtype=torch.long, device=device)
    spatial = prompts.kind <= POINT
    stride = torch.where(prompts.kind == DETECT, 3, 2)
    done = examiner.row_len[prompts.row] == 0
    _, image = net.vision(pixels)
    cache = [(k.repeat_interleave(p, 0), v.repeat_interleave(p, 0)) for k, v in net.text.prefill(image)]
    for item in range(3 * OBJECTS_LIMIT):
        used = HEADER_MAX + item
        hidden = hidden_at(net, kinds[..., :used], ids[..., :used], values[..., :used, :], cache, header_len + item - 1)
        logits = net.text.logits(hidden).float()
        part, rank = item % stride, item // stride
        more = logits[..., 5] > logits[..., 0]
        word = logits.index_fill(-1, torch.tensor([3], device=device), -torch.inf).argmax(-1)
        ends = torch.where(spatial, (part == 0) & (~more | (rank >= OBJECTS_LIMIT)), (word == 0) | (item > ANSWER_MAX))
        done = done | ends
        if bool(done.all()):
            break
        coord = net.region.coord_decoder(hidden).float().argmax(-1)
        size = net.region.size_decoder(hidden).float().unflatten(-1, (2, BINS)).argmax(-1)
        if item <= ANSWER_MAX:
            words[..., item] = torch.where(done | spatial, 0, word)
        live = spatial & ~done
        store(objects, live & (part < 2), rank, part, coord)
        for side in range(2):
            store(objects, live & (part == 2), rank, 2 + side, size[..., side])
        count += (live & (part == stride - 1)).long()
        at = (header_len + item).unsqueeze(-1)
        sizes = (part == 2).unsqueeze(-1)
        value = torch.where(sizes, size_from_bin(size.float()), coord.unsqueeze(-1) / BINS)
        kinds.scatter_(2, at, torch.where(spatial, torch.where(part == 2, 2, 1), 0).unsqueeze(-1))
        ids.scatter_(2, at, torch.where(spatial, 0, word).unsqueeze(-1))
        values.scatter_(2, at.unsqueeze(-1).expand(-1, -1, -1, 2), value.unsqueeze(2))
    return objects, count, words


def hidden_at(net, kinds, ids, values, cache, last):
    """Run every prompt as a row of its own; the hidden state [B, P, D] at index `last` [B, P] of each."""
    b, p, t = kinds.shape
    prefix = cache[0][0].shape[2]
    positions = torch.arange(prefix, prefix + t, device=kinds.device).unsqueeze(0)
    x = net.embed(kinds.flatten(0, 1), ids.flatten(0, 1), values.flatten(0, 1))
    mask = visible(torch.zeros(1, t, device=kinds.device), prefix)
    hidden = net.text(x, positions, cache, mask).view(b, p, t, -1)
    return hidden.gather(2, last.clamp(0, t - 1)[..., None, None].expand(-1, -1, 1, hidden.shape[-1])).squeeze(2)


def store(objects, where, rank, column, value):
    """objects[b, p, rank, column] = value, where told."""
    b, p, n, _ = objects.shape
    column = torch.as_tensor(column, device=objects.device).expand(b, p)
    flat = objects.view(b, p, n * 4)
    at = (rank.clamp(max=n - 1) * 4 + column).unsqueeze(-1)
    flat.scatter_(2, at, torch.where(where.unsqueeze(-1), value.unsqueeze(-1).float(), flat.gather(2, at)))


def boxes_from_bins(bins):
    centre, side = bins[..., :2] / BINS, size_from_bin(bins[..., 2:])
    return torch.cat([centre - side / 2, centre + side / 2], -1).clamp(0, 1)


def iou(a, b):
    """Boxes [..., N, 4] and [..., M, 4] to [..., N, M]."""
    a, b = a.unsqueeze(-2), b.unsqueeze(-3)
    inner = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    area = lambda x: (x[..., 2:] - x[..., :2]).prod(-1)  # noqa: E731
    return inner / (area(a) + area(b) - inner).clamp(min=1e-9)


def match_boxes(found, truth):
    """IoU of each greedily matched pair, best first, each box once."""
    pairs = []
    if len(found) and len(truth):
        table = iou(found, truth)
        while table.numel() and float(table.max()) >= IOU_MIN:
            best = int(table.argmax())
            i, j = divmod(best, table.shape[1])
            pairs.append(float(table[i, j]))
            table[i], table[:, j] = -1, -1
    return pairs


class Tally:
    """Counts of one examination. Pure Python: some thousand pictures take seconds."""

    def __init__(self):
        self.sums = {}

    def add(self, **amounts):
        for name, amount in amounts.items():
            self.sums[name] = self.sums.get(name, 0) + amount

    def share(self, part, whole):
        return round(self.sums.get(part, 0) / self.sums[whole], 4) if self.sums.get(whole) else None

    def report(self):
        s = self.sums
        hits, found, truth = (s.get(f"detect_{k}", 0) for k in ("hits", "found", "truth"))
        report = {
            "detect_f1": round(2 * hits / max(found + truth, 1), 4),
            "detect_precision": self.share("detect_hits", "detect_found"),
            "detect_recall": self.share("detect_hits", "detect_truth"),
            "mean_iou": round(s.get("iou", 0) / max(hits, 1), 4),
            "point_precision": self.share("point_inside", "point_found"),
            "point_recall": self.share("point_hits", "point_truth"),
            "absent_boxed": self.share("absent_boxed", "absent"),
            "wrong_colour_boxed": self.share("wrong_colour_boxed", "wrong_colour"),
            "unknown_boxed": self.share("unknown_boxed", "unknown"),
        }
        for name in ("exists", "count", "colour"):
            report[name] = self.share(f"{name}_right", f"{name}_asked")
        for name in sorted(s):
            if name.startswith("truth_of_"):
                report[f"recall_{name[9:]}"] = self.share(f"hits_of_{name[9:]}", name)
        return report


def tally_spatial(tally, kind, cls, colour, name, found, truth, same_class):
    """One detect or point prompt with certain truth. `same_class`: things of the class stand there, in whatever colour."""
    if cls < 0:
        tally.add(unknown=1, unknown_boxed=int(len(found) > 0))
    elif not len(truth):
        group = "wrong_colour" if colour >= 0 and same_class else "absent"
        tally.add(**{group: 1, f"{group}_boxed": int(len(found) > 0)})
    if kind == DETECT:
        pairs = match_boxes(boxes_from_bins(found), truth)
        tally.add(detect_hits=len(pairs), detect_found=len(found), detect_truth=len(truth), iou=sum(pairs))
        if cls >= 0 and colour < 0 and len(truth):
            tally.add(**{f"truth_of_{name}": len(truth), f"hits_of_{name}": len(pairs)})
        return
    points = found[:, :2] / BINS
    low, high = truth[:, :2], truth[:, 2:]
    inside = ((points[:, None] >= low[None]) & (points[:, None] <= high[None])).all(-1)
    tally.add(point_found=len(points), point_inside=int(inside.any(1).sum()))
    tally.add(point_truth=len(truth), point_hits=int(inside.any(0).sum()))


def tally_batch(tally, exam, prompts, truth, labels, answers):
    phrases = exam.phrases
    objects, count, words = (t.cpu() for t in answers)
    labels_box, labels_cls, present = labels.box.cpu(), labels.cls.cpu(), labels.present.cpu()
    kind, cls, colour = prompts.kind.tolist(), prompts.cls.tolist(), prompts.colour.tolist()
    n, askable, answer, index = truth.n.tolist(), truth.askable.tolist(), truth.answer.tolist(), truth.index.cpu()
    for b in range(len(kind)):
        there = set(labels_cls[b][present[b]].tolist())
        for p in range(len(kind[b])):
            if not askable[b][p]:
                continue
            if kind[b][p] <= POINT:
                c = cls[b][p]
                name = phrases.things[c][0] if c >= 0 else ""
                found, boxes = objects[b, p, : count[b, p]], labels_box[b][index[b, p, : n[b][p]]]
                tally_spatial(tally, kind[b][p], c, colour[b][p], name, found, boxes, c in there)
            else:
                name = {EXISTS: "exists", COUNT: "count", COLOUR: "colour"}[kind[b][p]]
                expected = phrases.answers[answer[b][p]]
                given = words[b, p].tolist()
                right = given[: len(expected) + 1] == [*expected, 0]
                tally.add(**{f"{name}_asked": 1, f"{name}_right": int(right)})


@torch.no_grad()
def examine(net, exam, eye, scenes, batch, autocast, artefacts=False):
    """Metrics over `scenes` (on any device), `batch` at a time, as a plain dictionary."""
    tally = Tally()
    device = exam.examiner.device
    generator = torch.Generator(device).manual_seed(UNKNOWN_SEED)
    for start in range(0, len(scenes), batch):
        part = scenes[start : start + batch].map(lambda t: t.to(device))
        prompts = exam.slice(start, start + len(part))
        pixels, labels = eye.look(part, generator, artefacts=artefacts)
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            answers = decode(net, exam.examiner, pixels, prompts)
        tally_batch(tally, exam, prompts, exam.examiner.answer(labels, prompts), labels, answers)
    return {"scenes": len(scenes), **tally.report()}
