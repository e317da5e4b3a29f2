# SPDX-License-Identifier: MIT
"""Times a training step of a GPT by torch.distributed.pipelining on the CPU: two processes that
talk over gloo, f32, fused AdamW, clipping at 1 over both. The model is gpt_eager.py's, cut in
equal parts: one for each process, or, for ZB-V, two, in a V.

    python gpt_pipelining.py                     all variants, interleaved in random order
    python gpt_pipelining.py --serve             a harness's turn (bench/peer.h)
    python gpt_pipelining.py --check             counts parameters, loss of one forward pass

The process that is started is rank 0. It starts rank 1 with --rank 1, which reads lines on its
stdin: what rank 0 does, it does as well.

With --apart rank 1 is started by somebody else, on another host perhaps, that sees the file --meet:
then these lines go by gloo, too. Which network gloo takes GLOO_SOCKET_IFNAME says, else UCX's.
"""

import atexit
import datetime
import os
import subprocess
import sys
import tempfile

import gpt2_gpu
import gpt_eager
import peer

VARIANTS = ["gpipe", "1f1b", "zb-v"]
RANKS = 2
# Of the parts, by rank: what the schedule's own placement is.
PARTS = {"gpipe": [[0], [1]], "1f1b": [[0], [1]], "zb-v": [[0, 3], [1, 2]]}
PATIENCE = datetime.timedelta(minutes=5)
PATIENCE_APART = datetime.timedelta(minutes=60)  # of one that waits for its turns


def parse_arguments():
    parser = gpt_eager.make_parser(__doc__, VARIANTS)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--meet", help="the file that the ranks meet by")
    parser.add_argument("--apart", action="store_true", help="rank 1 is started elsewhere")
    return parser.parse_args()


# ---- the two processes ---------------------------------------------------------------------------


class Other:
    """Rank 1, seen from rank 0."""

    process = None
    apart = None  # torch, where lines go by gloo

    @classmethod
    def start(cls, torch, arguments):
        if cls.process is not None or cls.apart is not None:
            return
        if arguments.apart:
            join(torch, arguments, 0)
            cls.apart = torch
            atexit.register(cls.tell, "end", "-")
            return
        folder = tempfile.TemporaryDirectory(prefix="weir-gloo-")
        atexit.register(folder.cleanup)
        path = os.path.join(folder.name, "meet")
        given = sys.argv[1:]
        cls.process = subprocess.Popen(
            [sys.executable, sys.argv[0], *given, "--rank", "1", "--meet", path],
            stdin=subprocess.PIPE, stdout=sys.stderr, text=True)
        atexit.register(cls.process.stdin.close)
        arguments.meet = path
        join(torch, arguments, 0)

    @classmethod
    def tell(cls, *words):
        if cls.apart is not None:
            line = [" ".join(str(word) for word in words)]
            cls.apart.distributed.broadcast_object_list(line, src=0)
        if cls.process is not None:
            print(*words, file=cls.process.stdin, flush=True)


def join(torch, arguments, rank):
    device = os.environ.get("UCX_NET_DEVICES", "all")
    if arguments.apart and device != "all":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", device)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{arguments.meet}", rank=rank, world_size=RANKS,
        timeout=PATIENCE_APART if arguments.apart else PATIENCE)


def lines_of(torch, arguments):
    """What rank 0 says, until it ends."""
    if not arguments.apart:
        yield from sys.stdin
    while arguments.apart:
        line = [""]
        torch.distributed.broadcast_object_list(line, src=0)
        if line[0].startswith("end "):
            return
        yield line[0]


def follow(arguments):
    """Rank 1."""
    torch = peer.open_torch(arguments)
    if arguments.apart:
        peer.tell(ready=["rank 1"])
    join(torch, arguments, 1)
    trainers = {}
    for line in lines_of(torch, arguments):
        command, name, *rest = line.split()
        if command == "make":
            trainers[name] = Trainer(torch, name, arguments)
        elif command == "step":
            trainers[name].run()
        elif command == "judge":
            trainers[name].run(update=False)
        elif command == "threads":
            trainers[name].threads = int(rest[0])
        elif command == "weights":
            load(torch, trainers[name], rest[0])


# ---- a variant -----------------------------------------------------------------------------------


def make_part(torch, arguments, index, count):
    """Part `index` of the model with all of its names, so that a file's weights fit."""
    whole = gpt2_gpu.make_gpt(torch, arguments)
    cuts = [arguments.layers * i // count for i in range(count + 1)]
    first, last = index == 0, index == count - 1

    class Part(torch.nn.Module):
        def __init__(self):
            super().__init__()
            if first:
                self.wte, self.wpe = whole.wte, whole.wpe
            blocks = range(cuts[index], cuts[index + 1])
            self.h = torch.nn.ModuleDict({str(i): whole.h[i] for i in blocks})
            if last:
                self.ln_f, self.lm_head = whole.ln_f, whole.lm_head

        def forward(self, x):
            if first:
                x = self.wte(x) + self.wpe(torch.arange(x.shape[1]))
            for block in self.h.values():
                x = block(x)
            return self.lm_head(self.ln_f(x)) if last else x

    return Part()


def make_schedule(torch, name, stages, chunks):
    from torch.distributed import pipelining

    def compute_loss(logits, target):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    if name == "zb-v":
        return pipelining.ScheduleZBVZeroBubble(stages, chunks, loss_fn=compute_loss)
    of = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}[name]
    return of(stages[0], chunks, loss_fn=compute_loss)


class Trainer:
    def __init__(self, torch, name, arguments):
        from torch.distributed.pipelining import PipelineStage

        self.torch, self.name, self.arguments = torch, name, arguments
        self.threads = arguments.threads
        self.rank = arguments.rank
        parts, count = PARTS[name][self.rank], sum(len(own) for own in PARTS[name])
        self.batch = gpt2_gpu.make_batch(torch, arguments)
        self.plain = torch.nn.ModuleList(
            make_part(torch, arguments, part, count) for part in parts)
        stages = [PipelineStage(module, part, count, torch.device("cpu"))
                  for module, part in zip(self.plain, parts)]
        self.schedule = make_schedule(torch, name, stages, arguments.chunks)
        self.takes, self.ends = 0 in parts, count - 1 in parts
        self.optimizer = gpt2_gpu.make_optimizer(torch, self.plain)

    def clip(self):
        """Both ranks' gradients as one."""
        torch, own = self.torch, [p.grad for p in self.plain.parameters()]
        norm = torch.nn.utils.get_total_norm(own)
        squares = norm * norm
        torch.distributed.all_reduce(squares)
        torch.nn.utils.clip_grads_with_norm_(self.plain.parameters(), 1.0, squares.sqrt())

    def run(self, update=True):
        """The loss, on both ranks."""
        torch, losses = self.torch, []
        torch.set_num_threads(self.threads)
        self.optimizer.zero_grad(set_to_none=True)
        inputs = self.batch[:1] if self.takes else ()
        ends = {"target": self.batch[1], "losses": losses} if self.ends else {}
        self.schedule.step(*inputs, **ends)
        if update:
            self.clip()
            self.optimizer.step()
        loss = torch.stack([l.detach() for l in losses]).mean() if losses else torch.zeros(())
        torch.distributed.all_reduce(loss)
        return float(loss)

    def set_threads(self, threads):
        self.threads = threads
        Other.tell("threads", self.name, threads)

    def step(self):
        Other.tell("step", self.name)
        return peer.timed(self.run)

    def judge(self):
        Other.tell("judge", self.name)
        return self.run(update=False)

    def load(self, path):
        Other.tell("weights", self.name, path)
        load(self.torch, self, path)


def load(torch, trainer, path):
    file = peer.read_safetensors(torch, path)
    for part in trainer.plain:
        gpt2_gpu.copy_weights(torch, file, dict(part.named_parameters()))


def make(torch, name, arguments):
    Other.start(torch, arguments)
    Other.tell("make", name)
    return Trainer(torch, name, arguments)


if __name__ == "__main__":
    asked = parse_arguments()
    if asked.rank > 0:
        follow(asked)
    elif asked.check or asked.weights:  # of the model, which is gpt_eager.py's
        peer.run(asked, gpt_eager.VARIANTS, gpt2_gpu.make, gpt2_gpu.load, gpt2_gpu.expect)
    else:
        peer.run(asked, VARIANTS, make, None, None)
