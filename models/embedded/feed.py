"""Scenes from the generator: its record stream, the threads that read it, and the pool of frames on the training device.

Seeds of training lie below 2^40, seeds of evaluation from 2^40 on, so no picture is ever in both.
"""

import json
import queue
import subprocess
import threading
from dataclasses import dataclass, fields

import numpy as np
import torch

EVAL_SEED = 1 << 40
SEEDS_PER_RUN = 1 << 34
SEEDS_PER_WORKER = 1 << 30
MAX_OBJECTS = 32
CAPTION_BYTES = 160
CAPTION_TOKENS = 72
NO_COLOUR = 255
CHUNK = 64
STREAM_ENDS_SECONDS = 20

OBJECT = np.dtype([("cls", "u1"), ("colour", "u1"), ("zero", "<u2"), ("box", "<f4", 4), ("visible", "<f4")])


@dataclass
class Scenes:
    """A batch of scenes as tensors. Boxes are x0, y0, x1, y1 as shares of the picture."""

    frame: torch.Tensor  # uint8 [N, width * height * 3 / 2], I420
    cls: torch.Tensor  # uint8 [N, 32]
    colour: torch.Tensor  # uint8 [N, 32], 255 without colour
    box: torch.Tensor  # float32 [N, 32, 4]
    visible: torch.Tensor  # float32 [N, 32]; 0 where there is no object
    caption: torch.Tensor  # int16 [N, 3, CAPTION_TOKENS]
    caption_len: torch.Tensor  # uint8 [N, 3]; 0 where it is too long

    def __len__(self):
        return len(self.frame)

    def map(self, f):
        return Scenes(*(f(getattr(self, field.name)) for field in fields(self)))

    def __getitem__(self, index):
        return self.map(lambda tensor: tensor[index])


class Stream:
    """One generator process, read in chunks of records."""

    def __init__(self, program, seed, count, width, height, threads):
        command = [str(program), "--seed", str(seed), "--count", str(count), "--width", str(width), "--height", str(height)]
        command += ["--threads", str(threads)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, bufsize=1 << 20)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(command)}: ended before its header (exit status {self.process.wait()})")
        self.header = json.loads(line)
        if self.header["v"] != 1 or self.header["max_objects"] != MAX_OBJECTS:
            raise RuntimeError(f"record stream version {self.header['v']}, {self.header['max_objects']} objects: expected 1 and {MAX_OBJECTS}")
        self.width, self.height = self.header["width"], self.header["height"]
        self.dtype = np.dtype(
            [
                ("seed", "<u8"),
                ("count", "<u4"),
                ("objects", OBJECT, MAX_OBJECTS),
                ("captions", f"S{CAPTION_BYTES}", 3),
                ("frame", "u1", self.width * self.height * 3 // 2),
            ]
        )

    def read(self, count):
        """The next `count` records or fewer at the end, as a structured array."""
        buffer = np.empty(count, self.dtype)
        view = memoryview(buffer).cast("B")
        got = 0
        while got < len(view):
            n = self.process.stdout.readinto(view[got:])
            if not n:
                break
            got += n
        return buffer[: got // self.dtype.itemsize]

    def close(self):
        self.process.stdout.close()
        self.process.terminate()
        try:
            self.process.wait(STREAM_ENDS_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def scenes_from_records(records, tokenizer):
    n = len(records)
    objects = records["objects"]
    real = np.arange(MAX_OBJECTS)[None] < records["count"][:, None]
    texts = [raw.decode("utf-8", "replace") for raw in records["captions"].reshape(-1)]
    caption = np.zeros((n * 3, CAPTION_TOKENS), np.int16)
    caption_len = np.zeros(n * 3, np.uint8)
    for i, encoding in enumerate(tokenizer.encode_batch(texts)):
        if 0 < len(encoding.ids) <= CAPTION_TOKENS:
            caption[i, : len(encoding.ids)] = encoding.ids
            caption_len[i] = len(encoding.ids)
    return Scenes(
        frame=torch.from_numpy(np.ascontiguousarray(records["frame"])),
        cls=torch.from_numpy(np.where(real, objects["cls"], 0).astype(np.uint8)),
        colour=torch.from_numpy(np.where(real, objects["colour"], NO_COLOUR).astype(np.uint8)),
        box=torch.from_numpy(np.where(real[..., None], objects["box"], 0).astype(np.float32)),
        visible=torch.from_numpy(np.where(real, objects["visible"], 0).astype(np.float32)),
        caption=torch.from_numpy(caption.reshape(n, 3, -1)),
        caption_len=torch.from_numpy(caption_len.reshape(n, 3)),
    )


def read_eval_scenes(program, count, width, height, threads, tokenizer):
    """`count` scenes that no training run ever sees, with the stream's header."""
    stream = Stream(program, EVAL_SEED, count, width, height, threads)
    try:
        records = stream.read(count)
    finally:
        stream.close()
    if len(records) < count:
        raise RuntimeError(f"{program}: {len(records)} evaluation scenes of {count} came")
    # Records may come out of order; sorting makes the first scenes the same ones in every run.
    return scenes_from_records(records[np.argsort(records["seed"])], tokenizer), stream.header


class Feed:
    """Generator processes and the ring of frames they fill, on the device, for as long as the training runs."""

    def __init__(self, program, run_seed, workers, threads, size, pool_frames, tokenizer, device):
        if not 0 <= run_seed < EVAL_SEED // SEEDS_PER_RUN or workers > SEEDS_PER_RUN // SEEDS_PER_WORKER:
            raise ValueError(f"seed {run_seed} must be below {EVAL_SEED // SEEDS_PER_RUN}, workers {workers} at most {SEEDS_PER_RUN // SEEDS_PER_WORKER}")
        self.device, self.tokenizer = device, tokenizer
        self.capacity = max(1, pool_frames // CHUNK) * CHUNK  # so that no chunk wraps around
        self.arrived = 0  # scenes taken into the ring since the start
        self.pool = None
        self.failure = None
        self.closing = False
        self.chunks = queue.Queue(maxsize=2 * workers)
        self.streams = [
            Stream(program, run_seed * SEEDS_PER_RUN + w * SEEDS_PER_WORKER, 0, *size, threads) for w in range(workers)
        ]
        for w, stream in enumerate(self.streams):
            threading.Thread(target=self._read, args=(stream,), name=f"feed-{w}", daemon=True).start()

    def _read(self, stream):
        try:
            while not self.closing:
                records = stream.read(CHUNK)
                if len(records) < CHUNK:
                    raise RuntimeError(f"generator {stream.process.args} ended after {self.arrived} scenes in all")
                scenes = scenes_from_records(records, self.tokenizer)
                if self.device.type == "cuda":
                    scenes = self._upload(scenes)
                while not self.closing:
                    try:
                        self.chunks.put(scenes, timeout=1)
                        break
                    except queue.Full:
                        continue
        except Exception as error:  # told to the main thread, which decides
            if not self.closing:
                self.failure = error

    def _upload(self, scenes):
        """To the device on a stream of this thread, complete on return."""
        side = torch.cuda.Stream(self.device)
        with torch.cuda.stream(side):
            scenes = scenes.map(lambda tensor: tensor.to(self.device))
        side.synchronize()
        return scenes

    def take(self, wait=False):
        """Move what has arrived into the ring. With `wait`, block up to a second for a first chunk."""
        try:
            scenes = self.chunks.get(timeout=1) if wait else self.chunks.get_nowait()
            while True:
                self._store(scenes)
                scenes = self.chunks.get_nowait()
        except queue.Empty:
            pass
        if self.failure and not any(stream.process.poll() is None for stream in self.streams):
            raise self.failure

    def _store(self, scenes):
        if self.pool is None:
            self.pool = scenes.map(lambda t: torch.zeros((self.capacity, *t.shape[1:]), dtype=t.dtype, device=self.device))
        start = self.arrived % self.capacity
        for field in fields(Scenes):
            source = getattr(scenes, field.name)
            if source.is_cuda:
                source.record_stream(torch.cuda.current_stream(self.device))
            getattr(self.pool, field.name)[start : start + len(scenes)] = source
        self.arrived += len(scenes)

    def sample(self, batch, generator):
        """`batch` random scenes of the ring."""
        filled = min(self.arrived, self.capacity)
        return self.pool[torch.randint(filled, (batch,), device=self.device, generator=generator)]

    def close(self):
        self.closing = True
        for stream in self.streams:
            stream.process.terminate()
        for stream in self.streams:
            stream.close()
