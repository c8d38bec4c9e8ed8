"""What all integrations stand on: how a loss is called, how an object is changed, what is imported when."""

import copy
import functools
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

import iou_losses
from iou_losses.integrations import required
from iou_losses.integrations.box_term import BoxTerm
from iou_losses.integrations.changed import Changed, change, restore, with_globals

PRED = torch.tensor([[3.0, 0, 4, 1], [0, 0, 2, 2]])
TARGET = torch.tensor([[0.0, 0, 1, 1], [0, 0, 2, 1]])
GIOU = torch.tensor([1.5, 0.5])


class Stateful(nn.Module):
    """A loss that counts the boxes it has seen."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, pred, target, weight=None, avg_factor=None, reduction_override=None):
        if self.training:
            self.seen += len(pred)
        return iou_losses.giou_loss(pred, target, reduction_override)


def keywords_only(pred, target, **options):
    return iou_losses.giou_loss(pred, target, **options)


@pytest.mark.parametrize(
    "loss",
    [
        iou_losses.giou_loss,
        iou_losses.GIoULoss(),
        iou_losses.GIoULoss(reduction="none"),
        functools.partial(iou_losses.giou_loss, eps=0.0),
        keywords_only,
        Stateful(),
    ],
    ids=["function", "module", "module-none", "partial", "keywords", "stateful"],
)
def test_any_loss_is_called_one_way(loss):
    term = BoxTerm(loss)
    torch.testing.assert_close(term(PRED, TARGET, "none"), GIOU)
    torch.testing.assert_close(term(PRED, TARGET), GIOU.sum())
    torch.testing.assert_close(term.similarity(PRED, TARGET), 1 - GIOU)


def test_loss_weight_counts_in_the_loss_and_not_in_the_similarity():
    term = BoxTerm(iou_losses.GIoULoss(loss_weight=3.0))
    torch.testing.assert_close(term(PRED, TARGET), 3 * GIOU.sum())
    torch.testing.assert_close(term.similarity(PRED, TARGET), 1 - GIOU)


@pytest.mark.parametrize("loss", [None, 3, "ciou", lambda pred, target: pred, nn.Identity()])
def test_what_cannot_be_called_is_refused(loss):
    with pytest.raises(TypeError, match=r"reduction='sum'.*got"):
        BoxTerm(loss)


def test_a_class_is_refused_with_a_hint():
    with pytest.raises(TypeError, match=r"CIoULoss\(\), not the class"):
        BoxTerm(iou_losses.CIoULoss)


@pytest.mark.parametrize(
    "loss",
    [iou_losses.CIoULoss(fmt="cxcywh"), functools.partial(iou_losses.ciou_loss, fmt="cxcywh")],
    ids=["module", "partial"],
)
def test_another_format_is_refused_unless_offered(loss):
    with pytest.raises(ValueError, match="'xyxy', the loss expects 'cxcywh'"):
        BoxTerm(loss)
    assert BoxTerm(loss, ("xyxy", "cxcywh")).fmt == "cxcywh"


def test_the_term_is_shown_and_holds_the_state_of_a_stateful_loss():
    assert "ciou_loss" in repr(BoxTerm(iou_losses.ciou_loss))
    assert "CIoULoss(" in repr(BoxTerm(iou_losses.CIoULoss()))
    assert BoxTerm(iou_losses.CIoULoss()).state_dict() == {}
    assert list(BoxTerm(Stateful()).state_dict()) == ["loss.seen"]


class Speaker(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def word(self):
        return "own"


class ChangedWord(Changed):
    def word(self):
        return f"not {self.original.word(self)}"


def changed_speaker():
    speaker = Speaker()
    change(speaker, ChangedWord, BoxTerm(iou_losses.ciou_loss))
    return speaker


def test_one_object_is_changed_and_no_other():
    speaker, other = changed_speaker(), Speaker()
    assert speaker.word() == "not own"
    assert other.word() == "own"
    assert isinstance(speaker, Speaker)
    assert type(speaker) is type(changed_speaker())
    change(speaker, ChangedWord, BoxTerm(iou_losses.giou_loss))  # once more is still once
    assert speaker.word() == "not own"
    restore(speaker)
    restore(speaker)
    assert type(speaker) is Speaker
    assert speaker.word() == "own"
    assert not hasattr(speaker, "chosen_box_loss")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_changed_object_is_pickled(protocol):
    speaker = changed_speaker()
    twin = pickle.loads(pickle.dumps(speaker, protocol))
    assert twin.word() == "not own"
    assert type(twin) is type(speaker)
    assert torch.equal(twin.layer.weight, speaker.layer.weight)
    restore(twin)
    assert type(twin) is Speaker


def test_a_changed_object_is_copied_and_saved():
    speaker = changed_speaker()
    file = io.BytesIO()
    torch.save(speaker, file)
    file.seek(0)
    for twin in (copy.deepcopy(speaker), copy.copy(speaker), torch.load(file, weights_only=False)):
        assert twin.word() == "not own"
        assert twin is not speaker
    twin = copy.deepcopy(speaker)
    restore(speaker)
    assert twin.word() == "not own"
    assert twin.layer.weight is not speaker.layer.weight


LIMIT = 3


def limited(x, *, least=0):
    return max(least, min(x, LIMIT))


def test_a_function_with_other_globals_leaves_the_module_alone():
    wider = with_globals(limited, LIMIT=5)
    assert (wider(7), limited(7), LIMIT) == (5, 3, 3)
    assert (wider(-1), wider(-1, least=1)) == (0, 1)
    assert wider.__code__ is not limited.__code__  # torch.compile keeps its results by code object


def test_a_function_that_does_not_read_the_name_is_an_error():
    with pytest.raises(ImportError, match="limited does not use BOUND"):
        with_globals(limited, BOUND=5)


def test_a_missing_library_is_named_with_what_to_install():
    with pytest.raises(ModuleNotFoundError, match=r"needs no_such_library, tested with 1\.2: pip install no-such"):
        required("no_such_library.part", "Thing", install="no-such", tested="1.2")


@pytest.mark.parametrize(
    ("module", "missing"), [("torch.nn", "torch.nn.Thing"), ("torch.no_such", "torch.no_such.Thing")]
)
def test_another_version_of_a_library_is_named_with_what_it_lacks(module, missing):
    with pytest.raises(ImportError, match=rf"torch {torch.__version__.split('+')[0]}.* has no {missing}; .*torch 0\.1"):
        required(module, "Thing", install="torch", tested="0.1")


@pytest.mark.slow
def test_nothing_is_imported_unasked():
    code = (
        "import sys, iou_losses, iou_losses.integrations, iou_losses.distributed;"
        "print({'torchvision', 'ultralytics', 'transformers', 'mmengine'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
