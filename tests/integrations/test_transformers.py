"""The DETR family of transformers with another box loss, on tiny random models."""

import copy
import io
import pickle

import pytest
import torch

import iou_losses

transformers = pytest.importorskip("transformers")
pytest.importorskip("scipy")

from matched_pairs import box_term, measure  # noqa: E402
from transformers.loss.loss_utils import LOSS_MAPPING  # noqa: E402

from iou_losses.integrations.transformers import Diagonal, PairedCriterion, use_box_loss  # noqa: E402

LABELS = 3
SIZES = {
    "d_model": 32,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "decoder_layers": 2,
    "num_queries": 20,
    "num_labels": LABELS,
}
STAGES = {"embedding_size": 16, "hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1], "layer_type": "basic"}
LEVELS = ["stage2", "stage3", "stage4"]


def detr_options(levels):
    backbone = transformers.ResNetConfig(**STAGES, out_features=levels)
    return {**SIZES, "encoder_layers": 1, "backbone_config": backbone, "auxiliary_loss": True}


def rt_detr_options():
    return {
        **SIZES,
        "backbone_config": transformers.RTDetrResNetConfig(**STAGES, out_features=LEVELS),
        "encoder_hidden_dim": 32,
        "encoder_in_channels": [16, 32, 32],
        "decoder_in_channels": [32, 32, 32],
        "hidden_expansion": 0.5,
        "num_denoising": 10,
    }


MODELS = {
    "Detr": lambda: detr_options(LEVELS[-1:]),
    "ConditionalDetr": lambda: detr_options(LEVELS[-1:]),
    "DeformableDetr": lambda: {**detr_options(LEVELS), "num_feature_levels": 3},
    "RTDetr": rt_detr_options,
    "RTDetrV2": rt_detr_options,
    "DFine": rt_detr_options,
}
every_model = pytest.mark.parametrize("name", MODELS)
BY_IOU = ("RTDetr", "RTDetrV2", "DFine")  # these weigh other terms by the IoU


def model_of(name):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**MODELS[name]())
    return getattr(transformers, f"{name}ForObjectDetection")(config).train()


def batch(empty=()):
    """Two images with two boxes and one box, in cxcywh; those named have none."""
    generator = torch.Generator().manual_seed(1)
    boxes = [torch.tensor([[0.3, 0.4, 0.2, 0.3], [0.6, 0.5, 0.3, 0.4]]), torch.tensor([[0.5, 0.5, 0.4, 0.4]])]
    classes = [torch.tensor([1, 2]), torch.tensor([0])]
    labels = [
        {"boxes": b[:0], "class_labels": c[:0]} if index in empty else {"boxes": b, "class_labels": c}
        for index, (b, c) in enumerate(zip(boxes, classes, strict=True))
    ]
    return {"pixel_values": torch.randn(2, 3, 64, 64, generator=generator), "labels": labels}


def step(model, empty=()):
    torch.manual_seed(2)  # of dropout and denoising
    model.zero_grad()
    output = model(**batch(empty))
    output.loss.backward()
    return output, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def is_box_term(name):
    return name.startswith("loss_giou")


@every_model
@pytest.mark.parametrize("fmt", ["xyxy", "cxcywh"])
def test_with_giou_the_total_is_the_originals(name, fmt):
    model = model_of(name)
    before, gradients = step(model)
    assert use_box_loss(model, iou_losses.GIoULoss(fmt=fmt)) is model
    after, found = step(model)
    torch.testing.assert_close(after.loss, before.loss, rtol=1e-6, atol=0)
    assert after.loss_dict.keys() == before.loss_dict.keys()
    for term, value in after.loss_dict.items():
        torch.testing.assert_close(value, before.loss_dict[term], rtol=1e-6, atol=1e-6)
    assert found.keys() == gradients.keys()
    expected, difference = (torch.cat([g.flatten() for g in all_.values()]) for all_ in (gradients, found))
    difference = difference - expected
    assert difference.norm() < 1e-6 * expected.norm()


@every_model
def test_ciou_trains_and_changes_the_box_term_alone(name):
    model = model_of(name)
    before, _ = step(model)
    after, gradients = step(use_box_loss(model, iou_losses.CIoULoss(fmt="cxcywh")))
    for term, value in after.loss_dict.items():
        if is_box_term(term):
            assert value != before.loss_dict[term], term
        else:
            torch.testing.assert_close(value, before.loss_dict[term], rtol=1e-6, atol=1e-6)
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(8):
        losses.append(step(model)[0].loss.item())
        optimizer.step()
    assert losses[-1] < losses[0]
    with torch.inference_mode():
        assert model.eval()(batch()["pixel_values"]).pred_boxes.shape == (2, 20, 4)


@every_model
def test_a_function_then_a_module_and_the_weight_of_a_module(name):
    model = model_of(name)
    first = step(use_box_loss(model, iou_losses.ciou_loss))[0].loss_dict
    second = step(use_box_loss(model, iou_losses.CIoULoss(loss_weight=2.0)))[0].loss_dict
    for term, value in second.items():
        torch.testing.assert_close(value, first[term] * (2 if is_box_term(term) else 1))


@every_model
@pytest.mark.parametrize("empty", [(0,), (0, 1)], ids=["one of two", "all"])
def test_images_without_objects_keep_the_graph(name, empty):
    model = model_of(name)
    expected, _ = step(model, empty)
    output, gradients = step(use_box_loss(model, iou_losses.GIoULoss()), empty)
    torch.testing.assert_close(output.loss, expected.loss, rtol=1e-6, atol=0)
    assert all(torch.isfinite(gradient).all() for gradient in gradients.values())
    assert any("bbox" in parameter for parameter in gradients)


@pytest.mark.slow
@every_model
def test_the_model_is_copied_pickled_and_saved(name, tmp_path):
    model = model_of(name)
    keys = list(model.state_dict())
    use_box_loss(model, iou_losses.CIoULoss())
    assert list(model.state_dict()) == keys
    expected = step(model)[0].loss
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)]
    use_box_loss(model, iou_losses.IoULoss())  # the copies have their own
    for twin in twins:
        assert torch.equal(step(twin)[0].loss, expected)
    model.save_pretrained(tmp_path)
    fresh = type(model).from_pretrained(tmp_path)
    assert fresh.loss_function is LOSS_MAPPING[fresh.loss_type]  # documented: the choice is not saved
    assert isinstance(use_box_loss(fresh, iou_losses.CIoULoss()).loss_function, PairedCriterion)


def test_other_models_are_not_touched():
    model, other = model_of("DFine"), model_of("DFine")
    before = step(other)[0].loss
    use_box_loss(model, iou_losses.CIoULoss())
    step(model)
    assert torch.equal(step(other)[0].loss, before)


def test_the_state_of_a_loss_goes_with_the_model():
    loss = iou_losses.WIoULoss(version=3, momentum=0.5)
    model = use_box_loss(model_of("Detr"), loss)
    step(model)
    assert loss.mean != 1
    (key,) = (key for key in model.state_dict() if key.startswith("_loss_function"))
    assert key.endswith("mean")
    model.eval()
    assert not loss.training


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch.compile's own look at it
def test_a_compiled_model_trains():
    torch.compiler.reset()
    model = use_box_loss(model_of("Detr"), iou_losses.CIoULoss())
    expected = step(model.eval())[0].loss  # no dropout: its random numbers are others when compiled
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(step(compiled)[0].loss, expected)


@pytest.mark.parametrize("name", BY_IOU)
def test_no_term_computes_a_matrix(name, monkeypatch):
    """The matcher of the original apart, nothing may ask transformers for a matrix of IoUs."""
    model = use_box_loss(model_of(name), iou_losses.CIoULoss())
    step(model)
    import transformers.loss.loss_d_fine as d_fine
    import transformers.loss.loss_rt_detr as rt_detr

    def forbidden(*args):
        raise AssertionError("a matrix")

    monkeypatch.setattr(d_fine, "box_iou", forbidden)
    monkeypatch.setattr(rt_detr, "box_iou", forbidden)
    step(model)
    with pytest.raises(AssertionError, match="a matrix"):
        step(model_of(name))


def test_a_diagonal_is_read_as_such_and_nothing_else():
    assert torch.diag(Diagonal(torch.arange(3))).tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="Diagonal"):
        torch.sum(Diagonal(torch.arange(3)))


def test_a_degenerate_pair_does_not_poison_the_gradient_of_another():
    """Of two collapsed boxes, a prediction and the target of another one, the matrix takes 0/0."""
    pred = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.3, 0.3, 0.2, 0.2]])
    true = torch.tensor([[0.5, 0.5, 0.2, 0.2], [0.5, 0.5, 0.0, 0.0]])
    _, gradient = box_term(2, with_pairs=False)(pred, true)
    assert not torch.isfinite(gradient[0]).all()
    loss, gradient = box_term(2, with_pairs=True)(pred, true)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


@pytest.mark.slow
def test_pairs_take_less_memory_and_time_than_a_matrix(capsys):
    matrix, pairs = measure(1600, with_pairs=False), measure(1600, with_pairs=True)
    with capsys.disabled():
        print(f"\n1,600 matched pairs: matrix {matrix}, pairs {pairs}")
    assert pairs.megabytes < matrix.megabytes / 20
    assert pairs.seconds < matrix.seconds / 20


def test_without_transformers_the_error_says_what_to_install(import_without):
    with pytest.raises(
        ModuleNotFoundError, match=r"needs transformers, tested with 5\.24\.0: pip install transformers"
    ):
        import_without("transformers", "transformers")


def test_without_scipy_the_error_says_what_to_install(import_without):
    with pytest.raises(ModuleNotFoundError, match=r"needs scipy, .*pip install transformers scipy"):
        import_without("transformers", "scipy")


def test_what_is_not_supported_is_named():
    bert = transformers.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    for other in (transformers.BertForSequenceClassification(bert), torch.nn.Identity(), None):
        with pytest.raises(TypeError, match=r"RT-DETR v2 and D-FINE; got (Bert|Identity|None)"):
            use_box_loss(other, iou_losses.ciou_loss)
    model = model_of("Detr")
    with pytest.raises(ValueError, match="'xyxy' or 'cxcywh', the loss expects 'xywh'"):
        use_box_loss(model, iou_losses.CIoULoss(fmt="xywh"))
    with pytest.raises(TypeError, match=r"CIoULoss\(\), not the class"):
        use_box_loss(model, iou_losses.CIoULoss)
    assert model.loss_function is LOSS_MAPPING["ForObjectDetection"]
