"""Box-regression losses of the IoU family, right for every box."""

from iou_losses.core import BoxLoss as BoxLoss
from iou_losses.losses.ciou import CIoULoss as CIoULoss
from iou_losses.losses.ciou import ciou_loss as ciou_loss
from iou_losses.losses.diou import DIoULoss as DIoULoss
from iou_losses.losses.diou import diou_loss as diou_loss
from iou_losses.losses.giou import GIoULoss as GIoULoss
from iou_losses.losses.giou import giou_loss as giou_loss
from iou_losses.losses.iou import IoULoss as IoULoss
from iou_losses.losses.iou import iou_loss as iou_loss
from iou_losses.native import native_isa as native_isa
from iou_losses.pairwise import box_iou as box_iou
from iou_losses.pairwise import complete_box_iou as complete_box_iou
from iou_losses.pairwise import distance_box_iou as distance_box_iou
from iou_losses.pairwise import generalized_box_iou as generalized_box_iou
from iou_losses.pairwise import paired_iou as paired_iou
from iou_losses.scoring import COCO_THRESHOLDS as COCO_THRESHOLDS
from iou_losses.scoring import detection_accuracy as detection_accuracy
from iou_losses.scoring import is_correct as is_correct

__version__ = "0.1.0"
