# SPDX-License-Identifier: MIT
"""Writes torch_schedules.csv: the tables that torch.distributed.pipelining exports, one after
another, each behind a line `# CLASS workers micro-batches stages-per-worker`. Made with PyTorch
2.15. The cells are what PyTorch writes; only those for idle steps, which are empty, are left out.

    python make_schedules.py [WORKERS_MAX MICRO_BATCHES_MAX VIRTUAL_MAX [FILE]]
"""
import csv
import io
import sys
from pathlib import Path

from torch.distributed.pipelining import schedules


class Stage:
    """As much of a stage as a schedule looks at to make its table."""

    has_backward = True
    group_rank = 0
    group = submod = device = stage_index_to_group_rank = None

    def __init__(self, index, stages, workers):
        self.stage_index = index
        self.num_stages = stages
        self.group_size = workers
        self.is_first = index == 0
        self.is_last = index == stages - 1


def table(name, workers, micro_batches, virtual):
    """The rows, or None where the class refuses."""
    stages = workers * virtual
    kind = getattr(schedules, name)
    try:
        if name in ("ScheduleGPipe", "Schedule1F1B"):
            order = kind(Stage(0, stages, workers), micro_batches, scale_grads=False)
            order = order._get_pipeline_order()
        else:
            v = name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
            own = [0, stages - 1] if v else range(0, stages, workers)
            own = [Stage(i, stages, workers) for i in own]
            order = kind(own, micro_batches, scale_grads=False).pipeline_order
    except ValueError:
        return None
    return [[str(cell) for cell in order[rank] if cell is not None] for rank in range(workers)]


def main(workers_max=4, micro_batches_max=8, virtual_max=3, file=None):
    loops = ("ScheduleInterleaved1F1B", "ScheduleLoopedBFS", "ScheduleInterleavedZeroBubble")
    virtuals = {name: range(1, int(virtual_max) + 1) for name in loops}
    virtuals |= {name: [2] for name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")}
    virtuals |= {name: [1] for name in ("ScheduleGPipe", "Schedule1F1B")}
    text = io.StringIO()
    for name, of_worker in virtuals.items():
        for workers in range(1, int(workers_max) + 1):
            for virtual in of_worker:
                for micro_batches in range(1, int(micro_batches_max) + 1):
                    rows = table(name, workers, micro_batches, virtual)
                    if rows is not None:
                        text.write(f"# {name} {workers} {micro_batches} {virtual}\n")
                        csv.writer(text, lineterminator="\n").writerows(rows)
    path = Path(file) if file else Path(__file__).with_name("torch_schedules.csv")
    path.write_text(text.getvalue())


main(*sys.argv[1:])
