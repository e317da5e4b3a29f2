# SPDX-License-Identifier: MIT
"""What the peers have in common: PyTorch on CUDA, or on the CPU, or a line that says why not,
training steps, and the lines that bench/peer.h describes. Messages go to stderr.

On a GPU steps are in bf16, by autocast: parameters, their gradients and the optimizer stay f32, as
Weir's do; products, convolutions and attention take bf16 operands. A step copies its mini-batch
from pinned memory, zeroes gradients, does forward, loss and backward, clips, updates by a fused
optimizer, and ends with a synchronisation: what it says in seconds is all of that. Warm-up
compiles.

On the CPU steps are in f32 but where a variant's name says bf16, by as many threads as asked for,
of one OpenMP team. What is fair is an allocator that keeps its memory: by default glibc gives every
large tensor back to the system at once and takes page faults for the next one, which halves the
speed of convolutions. So the script starts itself again with one arena that never maps, never trims
and uses huge pages.
(MALLOC_MMAP_THRESHOLD_ alone does not do: values above 32 MiB are ignored, and the thread of the
backward pass has an arena of its own.)
"""

import argparse
import json
import os
import random
import statistics
import sys
import time

MISSING = 3  # exit status
SETTINGS = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}


def tell(**line):
    print(json.dumps(line), flush=True)


def common_arguments(description, variants, device="cuda"):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--variants", nargs="+", choices=variants, default=None)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--device", choices=["cuda", "cpu"], default=device)
    parser.add_argument("--f32", action="store_true", default=device == "cpu", help="no autocast")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU")
    parser.add_argument("--parameters", type=int, help="how many the model must have")
    parser.add_argument("--mode", default="default", help="of torch.compile")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help="a harness's turn")
    parser.add_argument("--check", action="store_true", help="only counts parameters")
    parser.add_argument("--weights", help="a safetensors file: only says the loss by it")
    parser.set_defaults(with_package="")  # what runs beside PyTorch, and its version
    return parser


def restart_with_settings(threads):
    """malloc and OpenMP read their settings once, before Python begins."""
    wanted = dict(SETTINGS, OMP_NUM_THREADS=str(threads))
    if any(os.environ.get(key) != value for key, value in wanted.items()):
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable, *sys.argv])


def open_torch(arguments):
    if arguments.device == "cpu":
        restart_with_settings(arguments.threads)
    try:
        import torch
    except ImportError as error:
        tell(error=f"{sys.executable} has no PyTorch: {error}")
        sys.exit(MISSING)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        tell(error=f"PyTorch {torch.__version__} of {sys.executable} reaches no GPU by CUDA")
        sys.exit(MISSING)
    torch.manual_seed(arguments.seed)
    if arguments.device == "cpu":
        torch.set_num_threads(arguments.threads)
    else:
        torch.set_float32_matmul_precision("high")  # what autocast leaves in f32 may be TF32
        torch.backends.cudnn.benchmark = True
    return torch


def data(torch, first, count):
    """Numbers of 24 bits, the harness's peer_data."""
    return (torch.arange(first, first + count) * 2654435761 & 0xFFFFFFFF) >> 8


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def read_safetensors(torch, path):
    """{name: f32 tensor}, in the file's order."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start = file.tell()
        header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            if entry["dtype"] == "I64":  # batch norm's counts, which nothing depends on
                continue
            assert entry["dtype"] == "F32", (name, entry)
            file.seek(start + begin)
            flat = torch.frombuffer(bytearray(file.read(end - begin)), dtype=torch.float32)
            tensors[name] = flat.reshape(entry["shape"])
    return tensors


def timed(run):
    """Seconds, and what it gives."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


class Trainer:
    """One variant. `compute_loss(model, input, target)` is a scalar."""

    def __init__(self, torch, name, arguments, model, compute_loss, optimizer, clip, batch):
        self.torch, self.name, self.arguments = torch, name, arguments
        self.plain, self.compute_loss = model, compute_loss
        self.model = torch.compile(model, mode=arguments.mode) if "compile" in name else model
        self.optimizer, self.clip = optimizer, clip
        self.threads = arguments.threads
        pin = arguments.device == "cuda"
        self.batch = [tensor.pin_memory() for tensor in batch] if pin else self.place(batch)
        wanted = arguments.parameters
        assert wanted in (None, count(model)), f"{count(model)} parameters, not {wanted}"

    def place(self, batch):
        device, last = self.arguments.device, "channels-last" in self.name
        placed = [tensor.to(device, non_blocking=True) for tensor in batch]
        channels_last = self.torch.channels_last
        return [t.to(memory_format=channels_last) if last and t.dim() == 4 else t for t in placed]

    def loss(self, model):
        enabled = not self.arguments.f32 or self.name.endswith("-autocast")
        with self.torch.autocast(self.arguments.device, self.torch.bfloat16, enabled=enabled):
            return self.compute_loss(model, *self.place(self.batch))

    def synchronize(self):
        if self.arguments.device == "cuda":
            self.torch.cuda.synchronize()

    def set_threads(self, threads):
        self.threads = threads

    def step(self):
        self.synchronize()
        if self.arguments.device == "cpu":
            self.torch.set_num_threads(self.threads)
        return timed(self.run)

    def run(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.model)
        loss.backward()
        if self.clip > 0:
            self.torch.nn.utils.clip_grad_norm_(self.plain.parameters(), self.clip)
        self.optimizer.step()
        self.synchronize()
        return float(loss.detach())

    def load(self, path):
        self.load_weights(self.torch, self.plain, path)

    def judge(self):
        """The loss by the present weights, without dropout."""
        self.plain.eval()
        with self.torch.no_grad():
            loss = float(self.loss(self.plain))
        self.plain.train()
        return loss


def choose_threads(trainer, most):
    """The number of the CPU's threads that is fastest for this variant."""
    fastest = {}
    for threads in range(most, 0, -1):
        trainer.set_threads(threads)
        trainer.step()
        fastest[threads] = min(trainer.step()[0] for _ in range(2))
    trainer.set_threads(min(fastest, key=fastest.get))


def make_trainers(torch, arguments, variants, make):
    """Those that run here; a line for each that does not."""
    trainers = []
    for name in arguments.variants or variants:
        try:
            trainer = make(torch, name, arguments)
            losses = [trainer.step()[1] for _ in range(arguments.warm_up)]
            if arguments.device == "cpu":
                choose_threads(trainer, arguments.threads)
        except Exception as error:  # no compiler, or too little memory
            reason = f"{name}: {type(error).__name__}: {error}"[:250]
            print(f"skipped: {reason}", file=sys.stderr, flush=True)
            tell(name=name, skipped=reason)
            continue
        assert all(loss == loss for loss in losses), (name, losses)
        print(f"{name}: losses of the warm-up {losses}", file=sys.stderr, flush=True)
        trainers.append(trainer)
    return trainers


def most_bytes(torch, arguments):
    return torch.cuda.max_memory_reserved() if arguments.device == "cuda" else None


def about(torch, trainers, arguments):
    if arguments.device == "cpu":
        capability = torch.backends.cpu.get_cpu_capability()
        chosen = ", ".join(f"{trainer.name} {trainer.threads}" for trainer in trainers)
        return (f"PyTorch {torch.__version__} on {capability}{arguments.with_package}; "
                f"threads: {chosen}")
    return (f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, "
            f"cuDNN {torch.backends.cudnn.version()}, torch.compile {arguments.mode}")


def run_all(torch, trainers, arguments):
    samples = {trainer.name: [] for trainer in trainers}
    order = random.Random(arguments.seed)
    for _ in range(arguments.repetitions):
        for trainer in order.sample(trainers, len(trainers)):
            samples[trainer.name].append(trainer.step()[0])
    for name, own in samples.items():
        tell(name=name, median=statistics.median(own), samples=own,
             about=about(torch, trainers, arguments), bytes=most_bytes(torch, arguments),
             configuration=vars(arguments))


def answer(torch, trainers, arguments, line):
    command, _, path = line.partition(" ")
    named = {trainer.name: trainer for trainer in trainers}
    if command == "weights":
        losses = []
        for trainer in trainers:
            trainer.load(path)
            losses.append(trainer.judge())
        # Of all of them the one that is farthest off.
        middle = statistics.median(losses)
        tell(loss=max(losses, key=lambda loss: abs(loss - middle)))
    elif command == "memory":
        tell(bytes=most_bytes(torch, arguments))
    elif command in named:
        tell(name=command, seconds=named[command].step()[0])
    else:
        tell(error=f"{command}: not one of {', '.join(named)}")


def serve(torch, trainers, arguments):
    if not trainers:
        sys.exit(MISSING)  # each line above says why
    tell(ready=[trainer.name for trainer in trainers], about=about(torch, trainers, arguments))
    for line in sys.stdin:
        answer(torch, trainers, arguments, line.strip())


def run(arguments, variants, make, load, expect):
    """`make(torch, name, arguments)` is a Trainer, `load(torch, model, path)` takes weights,
    `expect(torch, arguments)` is the number of parameters by a formula."""
    torch = open_torch(arguments)
    if arguments.check or arguments.weights:
        trainer = make(torch, variants[-1].replace("compile", "eager"), arguments)
        if arguments.weights:
            load(torch, trainer.plain, arguments.weights)
        parameters, formula = count(trainer.plain), expect(torch, arguments)
        assert parameters == formula, (parameters, formula)
        tell(parameters=parameters, loss=trainer.judge(), torch=torch.__version__)
        return
    trainers = make_trainers(torch, arguments, variants, make)
    for trainer in trainers:
        trainer.load_weights = load
    if arguments.serve:
        serve(torch, trainers, arguments)
    else:
        run_all(torch, trainers, arguments)
