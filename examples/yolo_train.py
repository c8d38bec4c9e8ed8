"""Train an ultralytics YOLO, built from its shipped YAML, on digit scenes with a box loss of this package.

    python examples/yolo_train.py                                     # yolov8n with CIoU, half a minute
    python examples/yolo_train.py --model yolo26n.yaml --loss giou    # an end-to-end head
    python examples/yolo_train.py --loss own                          # ultralytics' own CIoU, to compare

Nothing is downloaded: the scenes are written to `--out`, where ultralytics writes its results too.
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path

os.environ.setdefault("YOLO_OFFLINE", "true")  # read when ultralytics is imported

import numpy as np
from digit_scenes import CANVAS, DigitScenes
from PIL import Image
from ultralytics import YOLO

import iou_losses
from iou_losses.integrations.ultralytics import use_box_loss

LOSSES = {
    "own": None,
    "iou": iou_losses.IoULoss(),
    "giou": iou_losses.GIoULoss(),
    "diou": iou_losses.DIoULoss(),
    "ciou": iou_losses.CIoULoss(),
}


def write_scenes(folder: Path, scenes: int) -> Path:
    """Write train and test scenes as ultralytics reads them; returns the path of the data set's YAML."""
    for split in ("train", "test"):
        (folder / "images" / split).mkdir(parents=True, exist_ok=True)
        (folder / "labels" / split).mkdir(parents=True, exist_ok=True)
        for index, (image, target) in enumerate(DigitScenes(split, scenes)):
            pixels = (image[0].clamp(0, 1) * 255).byte().numpy()
            Image.fromarray(np.stack([pixels] * 3, axis=-1)).save(folder / "images" / split / f"{index}.png")
            rows = [
                f"{label} {(x1 + x2) / 2 / CANVAS} {(y1 + y2) / 2 / CANVAS} {(x2 - x1) / CANVAS} {(y2 - y1) / CANVAS}\n"
                for (x1, y1, x2, y2), label in zip(target["boxes"].tolist(), target["labels"].tolist(), strict=True)
            ]
            (folder / "labels" / split / f"{index}.txt").write_text("".join(rows))
    names = "".join(f"  {digit}: '{digit}'\n" for digit in range(10))
    data = folder / "digits.yaml"
    data.write_text(f"path: {folder.resolve()}\ntrain: images/train\nval: images/test\nnames:\n{names}")
    return data


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", choices=LOSSES, default="ciou", help="box loss (default: %(default)s)")
    parser.add_argument("--model", default="yolov8n.yaml", help="a YAML of ultralytics (default: %(default)s)")
    parser.add_argument("--assigner", action="store_true", help="let the assigner score with the same similarity")
    parser.add_argument("--epochs", type=int, default=6, help="default: %(default)s")
    parser.add_argument("--scenes", type=int, default=64, help="of each split (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/yolo_train"), help="folder (default: %(default)s)")
    return parser.parse_args()


def main() -> None:
    """Write the scenes, train, print the box loss of each epoch."""
    options = parse_options()
    data = write_scenes(options.out / "digits", options.scenes)
    model = YOLO(options.model)
    if LOSSES[options.loss] is not None:
        use_box_loss(model, LOSSES[options.loss], assigner=options.assigner)  # the only line for the loss
    model.train(
        data=str(data),
        epochs=options.epochs,
        imgsz=CANVAS,
        batch=8,
        optimizer="AdamW",
        lr0=2e-3,
        warmup_epochs=0,
        mosaic=0.0,
        fliplr=0.0,  # a mirrored digit is another one, or none
        device="cpu",
        workers=0,
        amp=False,
        plots=False,
        project=str(options.out.resolve()),
        name=options.loss,
        exist_ok=True,
        verbose=False,
    )
    with model.trainer.csv.open() as results:
        epochs = [float(row["train/box_loss"]) for row in csv.DictReader(results)]
    print("box loss of each epoch:", " ".join(f"{loss:.4f}" for loss in epochs))


if __name__ == "__main__":
    main()
