import numpy as np
import pytest

from voicebench.mock_agent import BargeIn, Clear, Heard, MockAgent, Say, session_seed
from voicebench.scenario.adapter_options import MockOptions

RATE_HZ = 8000
FRAME = 160  # 20 ms


def drive(agent: MockAgent, drawn: str) -> str:
    """One sign is one frame of user audio, '#' speech; one sign comes back for what the agent does meanwhile:
    '.' nothing, 'h' heard, 's' says, '!' notices a barge-in while speaking, 'c' clears."""
    signs = {Heard: "h", Say: "s", BargeIn: "!", Clear: "c"}
    done = ""
    for sign in drawn:
        outputs = agent.step(active=sign == "#", n_samples=FRAME)
        done += signs[type(outputs[0])] if outputs else "."
    return done


def agent(**options) -> MockAgent:
    defaults = {"endpoint_silence_ms": 60, "response_delay_ms": 40, "response_ms": 100, "barge_in_min_ms": 40}
    return MockAgent(MockOptions(**{**defaults, "interrupt_reaction_ms": 20, **options}), sample_rate_hz=RATE_HZ)


@pytest.mark.parametrize(
    ("user", "does"),
    [
        ("####............", "......h..sssss.."),  # 60 ms of silence, 40 ms of delay, 100 ms of reply
        ("##..##..........", "........h..sssss"),  # a pause shorter than the end-pointing is no end
        ("................", "................"),
        ("##.........####.....", "....h..sssss.....h.."),
    ],
)
def test_it_answers_when_the_user_has_finished(user, does):
    assert drive(agent(), user) == does


def test_a_barge_in_stops_the_reply_after_the_reaction_time():
    does = drive(agent(response_ms=1000), "##.......####........")
    assert does == "....h..sss!sc..h..sss"


def test_noise_shorter_than_a_barge_in_is_no_turn():
    assert drive(agent(response_ms=200), "##.......#.............") == "....h..ssssssssss......"


def test_an_uninterruptible_agent_goes_on():
    assert "c" not in drive(agent(response_ms=400, interruptible=False), "##.......########......")


def test_it_greets_at_once():
    assert drive(agent(greeting_ms=60), ".....") == "sss.."


def test_transcripts_come_in_order_and_then_none():
    one = agent(transcripts=("hello", "bye"))
    texts = []
    for sign in "##..............##..............##.............":
        outputs = one.step(active=sign == "#", n_samples=FRAME)
        texts += [output.text for output in outputs if isinstance(output, Heard)]
    assert texts == ["hello", "bye", None]


def test_a_reply_is_padded_to_its_last_frame_and_no_further():
    one = agent(greeting_ms=50)
    said = [output for _ in range(5) for output in one.step(active=False, n_samples=FRAME)]
    assert [(each.start, each.stop, each.first, each.last) for each in said] == [
        (0, 160, True, False),
        (160, 320, False, False),
        (320, 480, False, True),
    ]
    assert [len(each.samples) for each in said] == [160, 160, 160]
    assert not said[-1].samples[80:].any()


def test_the_jitter_is_seeded_and_differs_between_sessions():
    def first_word(seed: int) -> int:
        one = MockAgent(MockOptions(jitter_ms=500), sample_rate_hz=RATE_HZ, seed=seed)
        return drive(one, "##" + "." * 80).index("s")

    assert first_word(0) == first_word(0)
    assert len({first_word(session_seed(0, number)) for number in range(8)}) > 4


def test_hearing_audio_and_knowing_its_activity_are_the_same():
    rng = np.random.default_rng(3)
    frames = [(rng.standard_normal(FRAME) * level).astype(np.int16) for level in rng.choice([0, 30, 3000], 200)]
    heard, told = agent(response_ms=300), agent(response_ms=300)
    for frame in frames:
        assert heard.hear(frame) == told.step(active=told.is_active(frame), n_samples=FRAME)
