"""Profiles of Hypothesis, and the largest error that the tests saw."""

from hypothesis import HealthCheck, Phase, settings

from . import errors

# A loaded machine is no failure. What takes long to draw is a batch of boxes, which is wanted.
SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
# The same boxes in every run, and few of them: a fault that one run finds is one that the next shows.
settings.register_profile(
    "everyday",
    max_examples=4,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    **SETTINGS,
)
settings.register_profile("thorough", max_examples=300, **SETTINGS)
settings.load_profile("everyday")


def pytest_terminal_summary(terminalreporter):
    lines = errors.report(verbose=terminalreporter.config.get_verbosity() > 0)
    if lines:
        terminalreporter.section("errors against exact arithmetic, in ulp of max(1, |value|)")
        for line in lines:
            terminalreporter.line(line)
