"""From advantages to training examples: every token with its weight."""

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rostra.arena import Debate, play
from rostra.credit.datums import Batch, datums
from rostra.debate.peer import peer_v1, peer_v2
from rostra.debate.state import prompt_tokens
from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn, TurnId
from rostra.engines.bytechat import ByteChat, decode
from rostra.engines.scripted import ScriptedEngine
from rostra.engines.training import Datum
from rostra.errors import ConfigError
from rostra.players.model import ModelPlayer
from rostra.players.rehearsal import rehearsal
from rostra.rewards.advantages import Key
from rostra.rewards.score import RewardRules, score
from rostra.rewards.streams import STREAMS
from tests.rewards.builders import QUESTION, rehearse, scripted, turn

FIVE = peer_v2(agents=5, rounds=2)
STEADY = {"personas": ()}
"""All seats at temperature 1."""


def scored(debates: list[Transcript], **options: object) -> Batch:
    advantages = score(debates, RewardRules()).advantages.groups
    return datums(debates, advantages, **options)  # type: ignore[arg-type]


def whole_tokens(debate: Transcript, turn: Turn) -> np.ndarray:
    """Prompt and reply of a turn."""
    turns = {t.id: t for t in debate.turns}
    return np.concatenate([prompt_tokens(turns, turn), turn.tokens])


def stretch(debate: Transcript, datum: Datum, turn: Turn) -> slice:
    """Where in a datum the reply of a turn is predicted."""
    end = len(whole_tokens(debate, turn)) - 1
    return slice(end - len(turn.tokens), end)


def words(tokens: np.ndarray, chosen: np.ndarray) -> str:
    return decode(tokens[chosen]).text


def as_float32(value: float) -> float:
    return float(np.float32(value))


# Streams


def test_answer_tokens_carry_the_gen_advantage_and_comparisons_the_judge_advantage() -> None:
    (debate,) = rehearse(FIVE, [0])
    advantages = score([debate], RewardRules()).advantages.groups[0]
    batch = datums([debate], [advantages], normalise="sum")
    checked = 0
    for datum, turns in zip(batch.data, debate.by_seat(), strict=True):
        for spoken in turns:
            gen = advantages.get(Key(*spoken.id, "gen"), 0.0)
            judge = advantages.get(Key(*spoken.id, "judge"), 0.0)
            if debate.kind(spoken) != "speak" or gen == judge:
                continue
            at = stretch(debate, datum, spoken)
            targets, weights = datum.targets[at], datum.weights[at]
            assert set(weights.tolist()) == {as_float32(gen), as_float32(judge)}
            answer, mark, judgement = spoken.text.partition("<comparison>")
            assert words(targets, weights == as_float32(gen)) == answer
            assert words(targets, weights == as_float32(judge)) == mark + judgement
            checked += bool(gen and judge)
    assert checked > 2


def test_ballots_carry_the_judge_advantage_on_every_token() -> None:
    (debate,) = rehearse(FIVE, [0])
    advantages = score([debate], RewardRules()).advantages.groups[0]
    batch = datums([debate], [advantages], normalise="sum")
    worth = set()
    for datum, turns in zip(batch.data, debate.by_seat(), strict=True):
        ballot = turns[-1]
        assert debate.kind(ballot) == "ballot"
        judge = as_float32(advantages[Key(*ballot.id, "judge")])
        assert set(datum.weights[stretch(debate, datum, ballot)].tolist()) == {judge}
        worth.add(judge)
    assert len(worth) > 1


def test_a_malformed_turn_carries_its_penalty_on_every_token() -> None:
    said = {f"{i}.1": "Agent 0 > Agent 1" for i in (2, 3, 4)}
    debate = scripted(peer_v2(agents=5, rounds=1), said, malformed=("2.0",))
    scores = score([debate], RewardRules())
    advantage = scores.advantages.groups[0][Key(2, 0, "judge")]
    # Agents 2, 3, 4 agree with each other; agents 0 and 1 and the malformed turn are fined.
    assert advantage == pytest.approx(-0.5 - (3 * 1 - 3 * 0.5) / 6)
    datum = datums([debate], scores.advantages.groups, normalise="sum").data[2]
    at = stretch(debate, datum, debate.by_seat()[2][0])
    assert datum.weights[at].tolist() == [as_float32(advantage)] * len(datum.weights[at])
    assert {STREAMS[i] for i in datum.streams[at]} == {"judge"}


def test_in_v1_every_reply_token_of_an_agent_carries_its_return() -> None:
    debate = scripted(peer_v1(agents=4, rounds=2), {"2.0": "Agent 0 > Agent 1"})
    advantages = score([debate], RewardRules(reward="win_rate")).advantages.groups
    batch = datums([debate], advantages, normalise="sum")
    assert len(batch.data) == 4
    for seat, datum in enumerate(batch.data):
        replied = datum.mask == 1
        assert set(datum.weights[replied].tolist()) == {
            as_float32(advantages[0][Key(seat, None, "whole")])
        }
        assert {STREAMS[i] for i in datum.streams[replied]} == {"whole"}
    assert batch.stream_tokens["gen"] == batch.stream_tokens["judge"] == 0


def test_turns_without_a_signal_weigh_nothing_and_are_not_counted() -> None:
    debate = scripted(peer_v2(agents=3, rounds=1))
    advantages = {Key(0, 0, "gen"): 2.0}
    batch = datums([debate], [advantages], normalise="sum")
    first, *others = batch.data
    answer = debate.turns[0].text.partition("<comparison>")[0]
    assert words(first.targets, first.weights != 0) == answer
    assert all(not datum.weights.any() for datum in others)
    assert batch.stream_tokens == {"gen": len(answer), "judge": 0, "whole": 0}


# The shape of a datum


def test_prompt_tokens_have_no_weight_no_mask_no_logprob_and_no_stream() -> None:
    (debate,) = rehearse(FIVE, [0])
    for datum, turns in zip(scored([debate]).data, debate.by_seat(), strict=True):
        replied = np.zeros(len(datum.targets), bool)
        for spoken in turns:
            at = stretch(debate, datum, spoken)
            replied[at] = True
            assert np.array_equal(datum.targets[at], spoken.tokens)
            assert np.array_equal(datum.logprobs[at], spoken.logprobs)
        assert 0 < replied.sum() < len(replied)
        assert np.array_equal(datum.mask, replied.astype(np.float32))
        assert np.array_equal(datum.streams >= 0, replied)
        assert np.all(datum.logprobs[replied] < 0)
        for values in (datum.weights, datum.logprobs):
            assert not values[~replied].any()


def test_inputs_and_targets_are_the_sequence_shifted_by_one() -> None:
    (debate,) = rehearse(FIVE, [0])
    for datum, turns in zip(scored([debate]).data, debate.by_seat(), strict=True):
        sequence = whole_tokens(debate, turns[-1])
        assert np.array_equal(datum.inputs, sequence[:-1])
        assert np.array_equal(datum.targets, sequence[1:])
        for values in (datum.logprobs, datum.weights, datum.mask, datum.streams):
            assert len(values) == len(sequence) - 1


def test_arrays_have_the_types_that_servers_take() -> None:
    datum = scored(rehearse(FIVE))
    for one in datum.data:
        assert one.inputs.dtype == one.targets.dtype == np.int64
        assert one.logprobs.dtype == one.weights.dtype == one.mask.dtype == np.float32


def test_a_datum_remembers_the_temperature_it_was_sampled_at() -> None:
    (debate,) = rehearse(FIVE)
    assert [d.temperature for d in scored([debate]).data] == [0.6, 1.0, 0.9, 1.0, 0.8]


# Normalisation


def test_token_mean_divides_each_stream_by_its_tokens_with_a_signal() -> None:
    debates = rehearse(FIVE, range(2))
    summed, averaged = scored(debates, normalise="sum"), scored(debates)
    assert summed.stream_tokens == averaged.stream_tokens
    for stream in ("gen", "judge"):
        index, count = STREAMS.index(stream), summed.stream_tokens[stream]
        assert count > 100
        for plain, divided in zip(summed.data, averaged.data, strict=True):
            on = plain.streams == index
            assert divided.weights[on] == pytest.approx(plain.weights[on] / count, rel=1e-5)


def test_stream_tokens_are_counted_over_the_batch() -> None:
    debate = scripted(peer_v2(agents=3, rounds=1))
    advantages = {Key(0, 0, "gen"): 0.5, Key(1, 0, "gen"): -0.5, Key(2, 1, "judge"): 0.0}
    turns = {t.id: t for t in debate.turns}
    answer = len(turns[turn("0.0")].text.partition("<comparison>")[0])
    batch = datums([debate, debate], [advantages, {}])
    assert batch.stream_tokens == {
        "gen": 2 * answer,
        # An advantage of 0 is a signal too.
        "judge": len(turns[turn("2.1")].tokens),
        "whole": 0,
    }
    total = sum(abs(datum.weights).sum() for datum in batch.data)
    assert total == pytest.approx(0.5, rel=1e-5)


def test_stream_weights_scale_their_streams() -> None:
    debates = rehearse(FIVE, [0])
    plain = scored(debates, normalise="sum")
    weighed = scored(debates, normalise="sum", weights={"judge": 0.25})
    for before, after in zip(plain.data, weighed.data, strict=True):
        factor = np.where(before.streams == STREAMS.index("judge"), 0.25, 1.0)
        assert after.weights == pytest.approx(before.weights * factor, rel=1e-6)
    silenced = scored(debates, weights={"judge": 0.0, "gen": 2.0})
    averaged = scored(debates)
    for before, after in zip(averaged.data, silenced.data, strict=True):
        factor = np.where(before.streams == STREAMS.index("judge"), 0.0, 2.0)
        assert after.weights == pytest.approx(before.weights * factor, rel=1e-6)


# Prefix merge


def test_a_trajectory_of_peer_v2_is_one_datum() -> None:
    debates = rehearse(peer_v2(agents=5, rounds=3), range(2), fault=0.1)
    batch = scored(debates)
    assert len(batch.data) == batch.trajectories == 10
    assert batch.turns == 2 * 5 * 4
    assert batch.metrics() == {"data/datums_per_trajectory": 1.0, "data/prefix_break_frac": 0.0}


def test_history_that_is_rewritten_splits_the_trajectory() -> None:
    (debate,) = rehearse(peer_v2(agents=3, rounds=3, history_rounds=1))
    batch = scored([debate])
    assert (batch.trajectories, batch.turns, batch.breaks) == (3, 12, 9)
    assert batch.metrics() == {"data/datums_per_trajectory": 4.0, "data/prefix_break_frac": 1.0}
    in_order = [t for turns in debate.by_seat() for t in turns]
    for datum, spoken in zip(batch.data, in_order, strict=True):
        assert np.array_equal(datum.inputs, whole_tokens(debate, spoken)[:-1])
        assert datum.mask.sum() == len(spoken.tokens)


class Rerendering(ByteChat):
    """Renders every prompt anew; the bytes come out the same."""

    extends = False


class Rewriting(Rerendering):
    """A template that says in its head how long the conversation is."""

    def open(self, messages):  # type: ignore[no-untyped-def]
        return np.concatenate([np.array([len(messages)], np.uint16), super().open(messages)])


def played_with(chat: ByteChat) -> Transcript:
    async def run() -> Transcript:
        engine = ScriptedEngine(rehearsal())
        player = ModelPlayer(await engine.sampler(), chat)
        rules = peer_v2(agents=3, rounds=2)
        return (await play([Debate.peer(QUESTION, rules)], player)).transcripts[0]

    return asyncio.run(run())


def test_prompts_that_were_rendered_anew_and_extend_all_the_same_are_merged() -> None:
    anew, grown = played_with(Rerendering()), played_with(ByteChat())
    assert all(t.extends is None for t in anew.turns)
    merged, reference = scored([anew]), scored([grown])
    assert merged.breaks == 0
    for one, other in zip(merged.data, reference.data, strict=True):
        assert np.array_equal(one.targets, other.targets)
        assert np.array_equal(one.weights, other.weights)
        assert np.array_equal(one.mask, other.mask)


def test_prompts_that_were_rendered_anew_and_differ_are_not_merged() -> None:
    batch = scored([played_with(Rewriting())])
    assert (len(batch.data), batch.breaks) == (9, 6)


def with_turn(debate: Transcript, name: str, **changes: object) -> Transcript:
    turns = tuple(
        replace(t, **changes) if str(t.id) == name else t  # type: ignore[arg-type]
        for t in debate.turns
    )
    return replace(debate, turns=turns)


def test_another_temperature_begins_a_new_datum_with_the_whole_prompt() -> None:
    (debate,) = rehearse(peer_v2(agents=3, rounds=2, **STEADY))
    changed = with_turn(debate, "1.1", temperature=0.5)
    batch = scored([changed])
    assert [d.temperature for d in batch.data] == [1.0, 1.0, 0.5, 1.0, 1.0]
    assert batch.breaks == 2
    first, second, third = changed.by_seat()[1]
    for datum, spoken in zip(batch.data[1:4], (first, second, third), strict=True):
        assert np.array_equal(datum.targets, whole_tokens(changed, spoken)[1:])
        assert datum.mask.sum() == len(spoken.tokens)


def test_a_prompt_that_continues_an_older_turn_than_the_last_begins_a_new_datum() -> None:
    (debate,) = rehearse(peer_v2(agents=3, rounds=2, **STEADY))
    forked = with_turn(debate, "1.2", extends=TurnId(1, 0))
    last = forked.by_seat()[1][-1]
    batch = scored([forked])
    assert batch.breaks == 1
    assert np.array_equal(batch.data[2].targets, whole_tokens(forked, last)[1:])


def test_seats_that_never_spoke_leave_no_datum() -> None:
    debate = scripted(peer_v1(agents=4, rounds=2), malformed=("1.0",))
    advantages = score([debate], RewardRules(reward="win_rate")).advantages.groups
    batch = datums([debate], advantages)
    assert (len(batch.data), batch.trajectories, batch.turns) == (2, 2, 2)
    assert batch.metrics() == {"data/datums_per_trajectory": 1.0, "data/prefix_break_frac": 0.0}


def test_no_debates_give_an_empty_batch() -> None:
    batch = datums([], [])
    assert batch.data == []
    assert batch.stream_tokens == {"gen": 0, "judge": 0, "whole": 0}
    assert batch.metrics() == {"data/datums_per_trajectory": 0.0, "data/prefix_break_frac": 0.0}


def test_advantages_belong_to_their_debates() -> None:
    debates = rehearse(peer_v2(agents=3, rounds=1), range(2))
    with pytest.raises(ValueError):
        datums(debates, [{}])


def test_only_the_players_in_training_become_examples() -> None:
    (debate,) = rehearse(FIVE, [0])
    seats = tuple(
        replace(seat, player="policy" if seat.index < 2 else "frozen")
        for seat in debate.protocol.seats
    )
    mixed = replace(debate, protocol=replace(debate.protocol, seats=seats))
    advantages = score([mixed, mixed], RewardRules()).advantages.groups
    batch = datums([mixed, mixed], advantages)
    assert batch.origins == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(batch.data) == batch.trajectories == 4
    assert len(datums([mixed], advantages[:1], players=("policy", "frozen")).data) == 5
    assert datums([mixed], advantages[:1], players=("nobody",)).data == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"normalise": "mean"}, "normalise = 'mean'"),
        ({"weights": {"gne": 0.0}}, "weights = 'gne': must be .*did you mean gen?"),
    ],
)
def test_a_weighting_that_does_not_exist_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        datums([], [], **wrong)
