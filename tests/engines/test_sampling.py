"""What a sampler may be asked for."""

import pytest

from rostra.engines.sampling import SamplingParams, check_stop
from rostra.errors import ConfigError


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": 0},
        {"temperature": -0.1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": -1},
        {"stop": ("</a>", 3)},
        {"stop": (3, "</a>")},
        {"stop": ("</a>", "")},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SamplingParams(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fine",
    [
        {"max_tokens": 1},
        {"temperature": 0.0},
        {"top_p": 1e-3},
        {"top_p": 1.0},
        {"top_k": 0},
        {"stop": ("</a>", "</b>")},
        {"stop": (1, 2)},
        {"stop": ()},
    ],
)
def test_settings_at_the_edge_of_sense_are_kept(fine: dict[str, object]) -> None:
    params = SamplingParams(**fine)  # type: ignore[arg-type]
    assert {name: getattr(params, name) for name in fine} == fine


def test_a_mixed_stop_list_is_shown_in_the_message() -> None:
    with pytest.raises(ConfigError, match=r"\['x', 7\]"):
        check_stop(["x", 7])
