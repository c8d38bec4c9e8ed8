"""The explorer's numbers are the package's, and its server answers this computer alone."""

import http.client
import json
import runpy
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path
from urllib.parse import urlencode

import pytest
import torch

import iou_losses

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import explorer  # noqa: E402
import explorer_numbers as numbers  # noqa: E402

PRESETS = numbers.SITUATIONS + numbers.TEXTBOOK
FOUR = "iou,giou,diou,ciou"


@pytest.fixture(scope="module")
def port():
    server = explorer.make_server(0)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def get(port):
    """Ask the server; returns status, headers and body."""

    def ask(path, host=f"127.0.0.1:{port}", **query):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.putrequest("GET", f"{path}?{urlencode(query)}" if query else path, skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, response.headers, body

    return ask


def question(pred, target, **more):
    """A query as the server reads it."""
    values = {"pred": ",".join(map(str, pred)), "target": ",".join(map(str, target)), **more}
    return {name: [str(value)] for name, value in values.items()}


def pair_answer(pred, target, threshold=0.5):
    return numbers.pair_answer(question(pred, target, threshold=threshold))


def boxes(*pair):
    return [torch.tensor(box, dtype=torch.float64) for box in pair]


def test_every_loss_of_the_package_is_shown():
    classes = {value for value in vars(iou_losses).values() if isinstance(value, type)}
    modules = {c for c in classes if issubclass(c, iou_losses.BoxLoss)} - {iou_losses.BoxLoss}
    assert {type(shown.module) for shown in numbers.LOSSES.values()} == modules


@pytest.mark.parametrize("preset", numbers.TEXTBOOK, ids=lambda preset: preset.label)
def test_a_textbook_pair_has_the_iou_that_names_it(preset):
    answer = pair_answer(preset.pred, preset.target)
    assert answer["iou"] == float(Fraction(preset.label))
    assert Fraction(answer["intersection"]["area"]) / Fraction(answer["union"]["area"]) == Fraction(preset.label)


def test_intersection_union_and_hull_of_two_squares():
    answer = pair_answer([0, 0, 4, 4], [1, 1, 5, 5])
    assert answer["intersection"] == {"area": 9, "box": [1, 1, 4, 4]}
    assert answer["union"] == {"area": 23}
    assert answer["hull"] == {"area": 25, "box": [0, 0, 5, 5]}


@pytest.mark.parametrize(
    ("target", "relation"),
    [
        ([0, 0, 4, 4], "identical"),
        ([1, 1, 3, 3], "nested"),
        ([0, 0, 9, 4], "nested"),
        ([2, 2, 6, 6], "overlapping"),
        ([4, 1, 8, 3], "touching"),
        ([4, 4, 8, 8], "touching"),
        ([5, 0, 8, 4], "apart"),
        ([4, 6, 8, 8], "apart"),
    ],
)
def test_how_the_boxes_lie_to_each_other(target, relation):
    assert pair_answer([0, 0, 4, 4], target)["relation"] == relation
    assert pair_answer(target, [0, 0, 4, 4])["relation"] == relation


def test_a_loss_and_its_gradient_are_the_packages_by_name():
    pred, target = [30, 62, 110, 132], [76, 26, 166, 100]
    shown = pair_answer(pred, target)["losses"]["mpdiou"]
    leaf = boxes(pred)[0].requires_grad_()
    loss = iou_losses.mpdiou_loss(leaf, boxes(target)[0], image_size=(640, 480))
    loss.backward()
    assert shown["value"] == loss.item()
    assert shown["gradient"] == leaf.grad.tolist()


@pytest.mark.parametrize("key", ["iou", "giou", "diou", "eiou", "gcd", "sca"])
def test_the_pull_is_what_the_loss_falls_by_when_an_edge_moves_a_side_of_the_target(key):
    pred, target = [30, 62, 110, 132], [76, 26, 166, 100]
    pull = pair_answer(pred, target)["losses"][key]["pull"]
    for edge, side in enumerate([90, 74, 90, 74]):
        step = 1e-4
        ahead, behind = (list(pred) for _ in range(2))
        ahead[edge] += step
        behind[edge] -= step
        values = [pair_answer(box, target)["losses"][key]["value"] for box in (ahead, behind)]
        assert pull[edge] == pytest.approx((values[1] - values[0]) / (2 * step) * side, abs=1e-6)


def test_apart_the_pull_of_iou_is_exactly_zero_and_giou_still_pulls_towards_the_target():
    losses = pair_answer([10, 80, 70, 130], [120, 20, 190, 80])["losses"]
    assert losses["iou"]["pull"] == [0, 0, 0, 0]
    left, top, right, bottom = losses["giou"]["pull"]
    assert left + right > 0 > top + bottom


def test_an_iou_of_exactly_the_threshold_is_a_hit():
    assert pair_answer([25, 0, 125, 100], [0, 0, 100, 100], 0.6)["correct"] is True
    assert pair_answer([25, 0, 125, 100], [0, 0, 100, 100], 0.61)["correct"] is False


def test_an_identical_pair_costs_nothing_and_is_not_pulled():
    for shown in pair_answer([40, 30, 140, 110], [40, 30, 140, 110])["losses"].values():
        assert shown["value"] == 0
        assert shown["pull"] == [0, 0, 0, 0]


def test_questions_do_not_change_the_answers():
    first = pair_answer([0, 0, 4, 4], [1, 1, 5, 5])
    pair_answer([0, 0, 4, 4], [50, 50, 51, 51])
    assert pair_answer([0, 0, 4, 4], [1, 1, 5, 5]) == first


@pytest.mark.parametrize("preset", numbers.SITUATIONS[:3], ids=lambda preset: preset.label)
def test_a_descent_starts_at_the_pair_and_giou_ends_at_the_target(preset):
    paths = numbers.descent_answer(question(preset.pred, preset.target, losses=FOUR))
    assert list(paths) == FOUR.split(",")
    for path in paths.values():
        assert path["boxes"][0] == preset.pred
        assert {len(values) for values in path.values()} == {numbers.STEPS + 1}
        assert path["ious"][0] == pair_answer(preset.pred, preset.target)["iou"]
    assert paths["giou"]["ious"][-1] > 0.99


def test_apart_a_descent_by_iou_stands_still():
    path = numbers.descent_answer(question([10, 80, 70, 130], [120, 20, 190, 80], losses="iou"))["iou"]
    assert path["boxes"] == [[10, 80, 70, 130]] * (numbers.STEPS + 1)


def test_a_descent_is_the_same_for_boxes_a_thousand_times_as_large():
    small, large = (
        numbers.descend(numbers.LOSSES["giou"].module, *boxes([0, 0, 4 * s, 4 * s], [s, s, 5 * s, 6 * s]))["boxes"]
        for s in (1, 1000)
    )
    for box, larger in zip(small, large, strict=True):
        assert [1000 * x for x in box] == pytest.approx(larger, abs=1e-3)


AWKWARD = (
    ([3, 3, 3, 3], [3, 3, 3, 3]),
    ([3, 3, 3, 9], [0, 0, 4, 4]),
    ([0, 0, 4, 4], [3, 3, 3, 3]),
    ([-1e6, -1e6, 1e6, 1e6], [0, 0, 1e-6, 1e-6]),
    ([0, 0, 1e-300, 1e-300], [0, 0, 1, 1]),
    ([0, 0, 1, 1], [0, 0, 1e-300, 1e-300]),
    ([1e6, 1e6, 1e6, 1e6], [-1e6, -1e6, -1e6, -1e6]),
)


@pytest.mark.parametrize("pair", AWKWARD)
def test_awkward_boxes_have_answers_that_json_can_hold(pair):
    assert json.dumps(pair_answer(*pair), allow_nan=False)


@pytest.mark.slow
@pytest.mark.parametrize("key", numbers.LOSSES)
def test_awkward_boxes_have_descents_that_json_can_hold(key):
    for pair in AWKWARD:
        assert json.dumps(numbers.descend(numbers.LOSSES[key].module, *boxes(*pair)), allow_nan=False)


def test_the_page_and_its_setup_are_served(get):
    for path, kind in (("/", "text/html"), ("/style.css", "text/css"), ("/explorer.js", "text/javascript")):
        status, headers, body = get(path)
        assert (status, headers.get_content_type()) == (200, kind)
        assert len(body) == int(headers["Content-Length"]) > 0
        assert headers["Content-Security-Policy"].startswith("default-src 'self'")
    setup = json.loads(get("/api/setup")[2])
    assert list(setup["losses"]) == list(numbers.LOSSES)
    assert [p["label"] for group in setup["presets"].values() for p in group] == [p.label for p in PRESETS]


def test_the_page_names_no_other_host():
    for file in explorer.PAGE.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")  # a name, not an address
        assert "//" not in text.replace("// ", ""), file.name


PAIR = {"pred": "0,0,4,4", "target": "1,1,5,5", "threshold": "0.5"}


@pytest.mark.parametrize(
    ("path", "change", "says"),
    [
        ("pair", {"pred": "0,0,4"}, "pred must be four numbers x1,y1,x2,y2, got 3"),
        ("pair", {"pred": "0,0,4,x"}, "pred must be made of finite numbers, got 'x'"),
        ("pair", {"target": "0,0,4,nan"}, "target must be made of finite numbers, got 'nan'"),
        ("pair", {"target": "0,0,4,inf"}, "target must be made of finite numbers, got 'inf'"),
        ("pair", {"pred": ""}, "pred must be four numbers"),
        ("pair", {"pred": "5,0,4,4"}, "pred must have x1 <= x2 and y1 <= y2, got [5.0, 0.0, 4.0, 4.0]"),
        ("pair", {"pred": "0,0,4,1e7"}, "pred must lie within 1e+06 of the origin"),
        ("pair", {"threshold": "1.5"}, "threshold must be between 0 and 1, got 1.5"),
        ("pair", {"threshold": None}, "threshold must be given once, got 0 values"),
        ("descent", {"losses": "iou,nope"}, "'nope'"),
        ("descent", {"losses": FOUR + ",eiou"}, "losses must be 4 names at most, got 5"),
        ("descent", {}, "losses must be given once"),
    ],
)
def test_what_is_wrong_with_a_question_is_told(path, change, says, get):
    query = {name: value for name, value in {**PAIR, **change}.items() if value is not None}
    status, headers, body = get(f"/api/{path}", **query)
    assert (status, headers.get_content_type()) == (400, "application/json")
    assert says in json.loads(body)["error"]


@pytest.mark.parametrize("path", ["/nothing", "/../explorer.py", "/index.html/..", "/explorer_numbers.py"])
def test_nothing_else_is_served(path, get):
    assert get(path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", None])
def test_another_name_for_this_computer_is_refused(host, get):
    for path in ("/", "/api/setup"):
        assert get(path, host)[0] == 403


def test_localhost_is_served(get, port):
    assert get("/api/setup", f"localhost:{port}")[0] == 200


def test_the_server_listens_to_this_computer_alone():
    with explorer.make_server(0) as server:
        assert server.server_address[0] == "127.0.0.1"


@pytest.mark.skipif(iou_losses.native_isa() is None, reason="the native engine is not built")
def test_an_answer_takes_less_than_a_frame():
    def seconds():
        start = time.thread_time()  # what others do on this computer does not count
        json.dumps(pair_answer([0, 0, 4, 4], [1, 1, 5, 5]))
        return time.thread_time() - start

    assert min(seconds() for _ in range(20)) < 0.016


def run(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["explorer.py", *options])
    runpy.run_path(str(EXAMPLES / "explorer.py"), run_name="__main__")


def test_the_help_says_what_it_shows(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "--help")
    shown = capsys.readouterr().out
    assert (EXAMPLES / "explorer.py").read_text().split('"""')[1].split("\n")[0] in shown
    assert "--port" in shown
    assert "--no-browser" in shown


def test_a_port_in_use_is_told(monkeypatch, port):
    with pytest.raises(SystemExit, match=f"cannot listen on port {port}"):
        run(monkeypatch, "--no-browser", "--port", str(port))


def test_a_port_that_is_none_is_refused(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, "--port", "70000")
    assert "--port must be from 0 to 65535" in capsys.readouterr().err
