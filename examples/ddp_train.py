"""Train on several processes with DDP: box losses divided by the average number of boxes of all processes.

    torchrun --nproc-per-node 2 examples/ddp_train.py              # on CPU with gloo, on GPUs with NCCL
    python examples/ddp_train.py                                   # the same training on one process

A small network finds the box of one digit in a scene. Each process sees its own share of a batch, in which a scene may
have no digit that counts; the gradient is that of one process with the whole batch, so both commands print the same.
"""

from __future__ import annotations

import argparse
import os

import torch
from digit_scenes import CANVAS, DigitScenes
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from iou_losses import CIoULoss
from iou_losses.distributed import global_average

SMALLEST = 400.0  # area in pixels below which a digit does not count


def build_network() -> nn.Sequential:
    """Four convolutions from a scene to the corners of one box, in parts of the canvas."""
    layers: list[nn.Module] = []
    for before, after in [(1, 16), (16, 32), (32, 64), (64, 64)]:
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 36, 4))


def corners(output: Tensor) -> Tensor:
    """Boxes (n, 4) in pixels, each with its corners in the right order."""
    centre, size = output[:, :2].sigmoid(), output[:, 2:].sigmoid()
    return torch.cat([centre - size / 2, centre + size / 2], 1) * CANVAS


def share(scenes: DigitScenes, step: int, options: argparse.Namespace, rank: int, world: int) -> tuple[Tensor, ...]:
    """Part of a batch for one process: images, the box of the first digit of each, and whether it counts."""
    first = step * options.batch
    chosen = [scenes[index] for index in range(first + rank, first + options.batch, world)]
    images = torch.stack([image for image, _ in chosen])
    boxes = torch.stack([target["boxes"][0] for _, target in chosen])
    return images, boxes, (boxes[:, 2:] - boxes[:, :2]).prod(1) >= SMALLEST


def train(options: argparse.Namespace, rank: int, world: int, device: torch.device) -> None:
    """Take the steps and print the loss of some of them, on the first process."""
    torch.manual_seed(0)
    network: nn.Module = build_network().to(device)
    if world > 1:
        network = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    criterion = CIoULoss()
    scenes = DigitScenes("train", options.steps * options.batch)
    for step in range(options.steps):
        images, boxes, counts = (part.to(device) for part in share(scenes, step, options, rank, world))
        pred = corners(network(images))[counts]
        loss = criterion(pred, boxes[counts], avg_factor=global_average(counts.sum()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach() / world
        if world > 1:
            distributed.all_reduce(total)
        if rank == 0 and (step % 10 == 0 or step == options.steps - 1):
            print(f"step {step:3}: {total.item():.4f}", flush=True)


def main() -> None:
    """Join the processes that torchrun started, train, leave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=41, help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=16, help="scenes of all processes (default: %(default)s)")
    options = parser.parse_args()
    world = int(os.environ.get("WORLD_SIZE", "1"))  # set by torchrun
    rank, local = (int(os.environ.get(name, "0")) for name in ("RANK", "LOCAL_RANK"))
    device = torch.device("cpu")
    if torch.cuda.is_available() and torch.cuda.device_count() >= world:
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    if world > 1:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        train(options, rank, world, device)
    finally:
        if world > 1:
            distributed.destroy_process_group()


if __name__ == "__main__":
    main()
