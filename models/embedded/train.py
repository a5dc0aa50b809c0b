"""Train the embedded model on scenes of the drawn street.

    cargo build --release --example scenes
    python3 models/embedded/train.py --scenes target/release/examples/scenes --out runs/1 --seconds 1500

`--seconds` is wall-clock time from the start of the program to the end of training: the schedule follows the clock, so every run ends
complete, whatever the machine. The last examination comes after it (about a minute). SIGTERM ends the training early and exports the same way.
In `--out`: model.safetensors, config.json, tokenizer.json (replaced every minute), metrics.json (all examinations), train.log.
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer

from evaluate import Exam, examine
from feed import Feed, read_eval_scenes
from losses import losses
from network import DenseHead, Network, export, load, read_config, visible
from optimiser import Optimiser, rate
from pictures import Eye
from prompts import Examiner, Phrases

HERE = Path(__file__).parent
LOG_SECONDS, EXPORT_SECONDS = 10, 60
EXAM_SHARE = 0.1
EXAM_SCENES = 256  # of the examinations on the way
POOL_WAIT_SECONDS = 300


def arguments():
    cores = os.cpu_count() or 4
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--scenes", required=True, help="the generator program")
    p.add_argument("--out", required=True, help="directory of the results")
    p.add_argument("--seconds", type=float, default=1500, help="wall-clock time until training ends")
    p.add_argument("--init", help="model.safetensors of an earlier run to start from")
    p.add_argument("--seed", type=int, default=0, help="0 to 63; its training scenes are disjoint from those of other seeds")
    p.add_argument("--batch", type=int, default=320, help="pictures per step")
    p.add_argument("--positions", type=int, default=255, help="packed prompt positions per picture")
    p.add_argument("--prompts", type=int, default=32, help="prompts drawn per picture; as many as fit are used")
    p.add_argument("--pool", type=int, default=100_000, help="frames kept on the device")
    p.add_argument("--pool-start", type=int, default=10_000, help="frames to wait for before the first step")
    p.add_argument("--workers", type=int, default=4, help="generator processes")
    p.add_argument("--threads", type=int, default=max(1, (cores - 3) // 4), help="threads of each generator process")
    p.add_argument("--eval-scenes", type=int, default=2048, help="scenes of the last examination")
    p.add_argument("--no-compile", action="store_true", help="do not use torch.compile")
    p.add_argument("--smoke", action="store_true", help="a minute on any machine that goes through everything")
    args = p.parse_args()
    if args.smoke:
        args.batch, args.pool, args.pool_start, args.eval_scenes = 4, 256, 64, 8
        args.workers, args.threads, args.seconds = 1, 1, min(args.seconds, 45)
    return args


class Log:
    """Lines to the terminal and to train.log, with seconds since the start."""

    def __init__(self, path, start):
        self.file, self.start = open(path, "a", buffering=1), start

    def __call__(self, text):
        line = f"{time.monotonic() - self.start:7.1f}s {text}"
        print(line, flush=True)
        self.file.write(line + "\n")


class Trainer:
    def __init__(self, args):
        self.args, self.start = args, time.monotonic()
        self.out = Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.log = Log(self.out / "train.log", self.start)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(args.seed)
        torch.set_float32_matmul_precision("high")
        self.generator = torch.Generator(self.device).manual_seed(args.seed)
        self.config = read_config(HERE)
        self.tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
        self.stop = False
        self.metrics = []
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, *_):
        self.stop = True

    @property
    def share(self):
        return min(1.0, (time.monotonic() - self.start) / self.args.seconds)

    @property
    def over(self):
        return self.stop or self.share >= 1.0

    def autocast(self):
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def prepare(self):
        args, config = self.args, self.config
        self.log(f"{vars(args)} on {torch.cuda.get_device_name() if self.device.type == 'cuda' else 'cpu'}, torch {torch.__version__}")
        total_threads = args.workers * args.threads
        self.eval_scenes, header = read_eval_scenes(args.scenes, args.eval_scenes, 640, 360, total_threads, self.tokenizer)
        self.feed = Feed(args.scenes, args.seed, args.workers, args.threads, (640, 360), args.pool, self.tokenizer, self.device)
        self.log(f"{args.eval_scenes} evaluation scenes; header {json.dumps({k: v for k, v in header.items() if k != 'classes'})}")
        phrases = Phrases(header, config, self.tokenizer, 200 if args.smoke else 20_000, args.seed)
        vision, text = config["vision"], config["text"]
        self.eye = Eye(header, vision["crop_size"], self.device)
        self.net = Network(config).to(self.device)
        if args.init:
            load(self.net, args.init)
        self.head = DenseHead(vision["enc_dim"], len(phrases.things), len(phrases.colours)).to(self.device)
        self.examiner = Examiner(phrases, text["prefix_attn"], self.device)
        self.exam = Exam(self.examiner, phrases, args.eval_scenes)
        self.optimiser = Optimiser(self.net, self.head)
        self.run_net = self.net
        self.good = None
        self.log(f"{sum(p.numel() for p in self.net.parameters())} parameters, {len(phrases.rows)} phrases")

    def fill_pool(self):
        waited = time.monotonic()
        while self.feed.arrived < self.args.pool_start and not self.over:
            self.feed.take(wait=True)
            if time.monotonic() - waited > POOL_WAIT_SECONDS and self.feed.arrived >= self.args.batch:
                break
        took = time.monotonic() - waited
        self.log(f"{self.feed.arrived} scenes in the pool after {took:.1f}s, {self.feed.arrived / max(took, 1e-3):.0f} scenes/s")

    def compile(self):
        """Compile the network, and try it once; without a working compiler the plain one is used."""
        if self.args.no_compile or self.device.type != "cuda":
            return
        try:
            self.run_net = torch.compile(self.net, dynamic=False)
            _, total = self.forward(0.0)
            total.backward()
            self.log("compiled")
        except Exception as error:  # any failure of the compiler means the same: go on without it
            self.run_net = self.net
            self.log(f"not compiled, running plain: {type(error).__name__}: {str(error)[:300]}")
        self.optimiser.adam.zero_grad(set_to_none=True)
        for parameter in self.optimiser.parameters:
            parameter.grad = None

    def forward(self, share):
        args = self.args
        with torch.no_grad():
            scenes = self.feed.sample(args.batch, self.generator)
            pixels, labels = self.eye.look(scenes, self.generator, damage=True)
            prompts = self.examiner.draw(labels, args.prompts, self.generator)
            packed = self.examiner.pack(labels, prompts, args.positions, self.generator)
            mask = visible(packed.seg, self.examiner.prefix)
        with self.autocast():
            outputs = self.run_net(pixels, packed.kinds, packed.ids, packed.values, packed.positions, mask)
            return losses(self.net, self.head, *outputs, packed, labels, share)

    def train(self):
        step = last_step = 0
        last_log = last_export = time.monotonic()
        next_exam = EXAM_SHARE
        while not self.over:
            share = self.share
            self.feed.take()
            parts, total = self.forward(share)
            total.backward()
            self.optimiser.step(rate(step, share))
            step += 1
            now = time.monotonic()
            if now - last_log >= LOG_SECONDS or step == 1:
                self.report(step, (step - last_step) / (now - last_log), share, parts)
                last_log, last_step = time.monotonic(), step
            if now - last_export >= EXPORT_SECONDS or step == 1:
                self.export()
                last_export = time.monotonic()
            if share >= next_exam:
                self.examine(step, share, EXAM_SCENES)
                next_exam = share + EXAM_SHARE
                last_log, last_step = time.monotonic(), step
        return step

    def report(self, step, steps_per_second, share, parts):
        values = {name: float(loss.detach()) for name, loss in parts.items()}
        shown = " ".join(f"{name} {value:.3f}" for name, value in values.items())
        pictures = steps_per_second * self.args.batch
        self.log(f"{share:5.1%} step {step} {steps_per_second:.1f} steps/s {pictures:.0f} pictures/s {self.feed.arrived} scenes | {shown}")

    def finite(self):
        return all(bool(torch.isfinite(p).all()) for p in self.net.parameters())

    def export(self):
        """Write the weights; if they are not finite any more, go back to the last that were."""
        if self.finite():
            export(self.net, self.out, HERE)
            self.good = [p.detach().clone() for p in self.optimiser.parameters]
        elif self.good:
            self.log("weights are not finite: going back to the last export")
            with torch.no_grad():
                for parameter, good in zip(self.optimiser.parameters, self.good):
                    parameter.copy_(good)
            self.optimiser.forget()

    def examine(self, step, share, scenes, **settings):
        """Metrics of the weights as rounded for the file; written at once."""
        rounded = Network(self.config).to(self.device).eval()
        with torch.no_grad():
            for mine, theirs in zip(rounded.parameters(), self.net.parameters()):
                mine.copy_(theirs.bfloat16())
        chosen = self.eval_scenes[: min(scenes, len(self.eval_scenes))]
        batch = 16 if self.device.type == "cuda" else 4
        autocast = settings.get("autocast", self.device.type == "cuda")
        artefacts = settings.get("artefacts", False)
        result = examine(rounded, self.exam, self.eye, chosen, batch, autocast, artefacts)
        entry = {"step": step, "share": round(share, 4), "bf16_activations": autocast, "artefacts": artefacts, **result}
        entry["seconds"] = round(time.monotonic() - self.start, 1)
        entry["scenes_trained"] = self.feed.arrived
        self.metrics.append(entry)
        temporary = self.out / "metrics.json.part"
        temporary.write_text(json.dumps(self.metrics, indent=1) + "\n")
        temporary.replace(self.out / "metrics.json")
        self.log("exam " + json.dumps(entry))

    def run(self):
        self.prepare()
        try:
            self.fill_pool()
            self.compile()
            step = self.train()
            self.export()
        finally:
            self.feed.close()
        self.log(f"training over after {step} steps, {self.feed.arrived} scenes{', stopped by a signal' if self.stop else ''}")
        scenes = EXAM_SCENES if self.stop else self.args.eval_scenes
        self.examine(step, self.share, scenes, autocast=False)
        self.examine(step, self.share, scenes, autocast=False, artefacts=True)
        self.log("done")


if __name__ == "__main__":
    Trainer(arguments()).run()
